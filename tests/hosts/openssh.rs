//! OpenSSH: who is asking comes from the line of the key or from sshd, and from
//! nothing that a client can choose.

use super::machine::{Machine, NOT_FOUND};

const URL: &str = "git@localhost:acme/app.git";

/// The machine of the README with alice, bob and eve; only the first two have a
/// line in authorized_keys.
fn forced_command() -> Option<Machine> {
    let machine = Machine::new()?;
    for name in ["alice", "bob", "eve"] {
        machine.add_person(name);
        machine.add_worktree(name, URL);
    }
    machine.follow("openssh");
    Some(machine)
}

#[test]
fn a_forced_command_serves_claims_and_git() {
    let Some(machine) = forced_command() else {
        return;
    };
    machine.ok("alice", "cd work; git claim 42 --ttl 2h");
    machine
        .run("bob", "cd work; git claim 42")
        .expect(4, "claimed by alice");
    // Several requests share one connection.
    machine
        .run("alice", "cd work; git claim renew -v 42 42 --ttl 1h")
        .expect(0, "over the connection of the request before");
    machine.ok(
        "bob",
        "cd work; git commit -q --allow-empty -m one; git push -q origin main
         git clone -q git@localhost:acme/app.git ~/clone",
    );
    // Whom no line names has no access at all.
    machine
        .run("eve", "cd work; git claim 42")
        .expect(6, "Permission denied (publickey");
}

/// Every sentence here is one that somebody could type.
#[test]
fn a_forced_command_runs_nothing_of_the_clients_choice() {
    let Some(machine) = forced_command() else {
        return;
    };
    for words in [
        "git-claim-server local",
        "git-claim-server openssh --as alice",
        "/usr/local/bin/git-claim-server local",
        "git-claim-server check",
        "env SSH_USER_AUTH=/tmp/x collab-lease whoami",
        "SSH_USER_AUTH=/tmp/x collab-lease whoami",
        "sh",
    ] {
        machine
            .run("bob", &format!("ssh git@localhost {words}"))
            .expect(1, "error: only git and collab-lease are served here\n");
    }
    for words in [
        "--as alice",
        "--config /home/bob/config list acme/app.git",
        "acquire acme/app.git 42 --as alice",
    ] {
        machine
            .run("bob", &format!("ssh git@localhost collab-lease {words}"))
            .expect(1, "error: ");
    }
    machine
        .run("bob", "ssh git@localhost")
        .expect(1, "Hello bob, your key works.");
}

/// The worst configuration of sshd that lets clients in: it takes every
/// variable, and a forged account of a login lies ready, readable only to `git`.
#[test]
fn a_client_that_sends_environment_stays_who_it_is() {
    let Some(machine) = forced_command() else {
        return;
    };
    machine.write(
        "/etc/ssh/sshd_config.d/weak.conf",
        "AcceptEnv *\nPermitUserEnvironment yes",
    );
    machine.ok("root", "systemctl reload ssh");
    forge_login_of_alice(&machine);
    for expose in ["", "ExposeAuthInfo yes"] {
        machine.write("/etc/ssh/sshd_config.d/expose.conf", expose);
        machine.ok("root", "systemctl reload ssh");
        let reply = machine.run("bob", SEND_EVERYTHING).expect(0, "").json();
        assert_eq!(reply["name"], "bob", "{expose}");
        let key = reply["key"].as_str().unwrap();
        let bobs = machine.ok("bob", "ssh-keygen -lf .ssh/id_ed25519.pub | cut -d' ' -f2");
        // Without ExposeAuthInfo nothing vouches for the key, but the name stands.
        assert!(expose.is_empty() || key == bobs.trim(), "{key}");
    }
}

/// A plugin that leaves a trace once anything of it has run.
const PLANTED: &str = "
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void)
{
    close(open(\"/tmp/loaded\", O_CREAT | O_WRONLY, 0666));
}
void *gclaim_plugin_v1(void) { return 0; }";

#[test]
fn a_planted_plugin_is_never_loaded() {
    let Some(machine) = forced_command() else {
        return;
    };
    assert!(PLANTED.contains(&format!(" *{}(", git_claim_api::abi::GCLAIM_ENTRY)));
    machine.write("planted.c", PLANTED);
    machine.ok(
        "root",
        "cc -shared -fPIC -o planted.so planted.c
         for place in /tmp /srv/git /srv/git/.ssh /srv/git/acme /srv/git/acme/app.git; do
             install -o git planted.so $place/libgit_claim_plugin.so
             install -o git planted.so $place/libc.so.6
         done",
    );
    let asked = |variables: &str| {
        let asked = machine.run(
            "bob",
            &format!("ssh -o SetEnv='{variables}' git@localhost collab-lease list acme/app.git"),
        );
        machine.ok("root", "! test -e /tmp/loaded");
        asked
    };
    // Beside the repository, where the server starts, and where clients point.
    asked("LANG=C").expect(0, "");
    asked("LD_LIBRARY_PATH=/tmp LD_PRELOAD=/tmp/libgit_claim_plugin.so").expect(0, "");
    // In the plugin's own place, if others than root could have put it there.
    let ours = "/usr/local/lib/git-claim/libgit_claim_plugin.so";
    machine.ok(
        "root",
        &format!("cp {ours} kept.so; chmod 777 $(dirname {ours})"),
    );
    asked("LANG=C").expect(6, "others may write it");
    machine.ok(
        "root",
        &format!("chmod 755 $(dirname {ours}); install -m 757 planted.so {ours}"),
    );
    asked("LANG=C").expect(6, "others may write it");
    machine.ok("root", &format!("install -o bob planted.so {ours}"));
    asked("LANG=C").expect(6, "it belongs to user");
    machine.ok("root", &format!("install kept.so {ours}"));
    asked("LANG=C").expect(0, "");
    // It would have been seen.
    machine.ok(
        "root",
        "LD_PRELOAD=/tmp/libgit_claim_plugin.so /bin/true; test -e /tmp/loaded",
    );
}

/// A file as sshd would write it for alice, where the client can name it.
fn forge_login_of_alice(machine: &Machine) {
    machine.ok(
        "root",
        "umask 077; echo \"publickey $(cut -d' ' -f1,2 alice.pub)\" >/tmp/forged
         chown git /tmp/forged",
    );
}

const SEND_EVERYTHING: &str = "
    export SSH_USER_AUTH=/tmp/forged GL_USER=alice GITEA_PUSHER_NAME=alice
    export GIT_CLAIM_PRINCIPAL=alice GIT_CLAIM_KEY=SHA256:x USER=alice LOGNAME=alice
    export HOME=/tmp XDG_CONFIG_HOME=/tmp SSH_ORIGINAL_COMMAND='collab-lease list x'
    ssh -F /dev/null -i /home/bob/.ssh/id_ed25519 \\
        -o SendEnv='SSH_USER_AUTH GL_* GITEA_* GIT_* USER LOGNAME HOME XDG_* SSH_ORIGINAL_COMMAND' \\
        git@localhost collab-lease whoami acme/app.git";

#[test]
fn keys_from_a_program_are_named_by_the_settings() {
    let Some(machine) = forced_command() else {
        return;
    };
    machine.ok("root", "rm /srv/git/.ssh/authorized_keys");
    machine.follow("openssh-keys-command");
    machine.ok("alice", "cd work; git claim 42");
    let alice = machine
        .run(
            "alice",
            "ssh git@localhost collab-lease whoami acme/app.git",
        )
        .json();
    assert_eq!(
        (&alice["name"], &alice["access"]),
        (&"alice".into(), &"admin".into())
    );
    // bob has no [claimUser], so he is his key, which is in no list but `*`.
    let bob = machine
        .run("bob", "ssh git@localhost collab-lease whoami acme/app.git")
        .json();
    let print = machine.ok("bob", "ssh-keygen -lf .ssh/id_ed25519.pub | cut -d' ' -f2");
    assert_eq!(
        (&bob["name"], &bob["key"]),
        (&bob["key"], &print.trim().into())
    );
    assert_eq!(bob["access"], "read");
    machine
        .run("eve", "ssh git@localhost collab-lease whoami")
        .expect(255, "Permission denied");
    machine
        .run("bob", "ssh git@localhost git-claim-server local")
        .expect(1, "only git and collab-lease");
}

#[test]
fn of_two_keys_the_one_that_logs_in_counts() {
    let Some(machine) = forced_command() else {
        return;
    };
    // bob offers eve's key first, which is not known, then his own.
    machine.ok(
        "root",
        "install -m 600 -o bob /home/eve/.ssh/id_ed25519 /home/bob/other",
    );
    let whoami = |options: &str| {
        machine.run(
            "bob",
            &format!("ssh {options} git@localhost collab-lease whoami acme/app.git"),
        )
    };
    let both = "-o IdentitiesOnly=yes -i other -i .ssh/id_ed25519";
    assert_eq!(whoami(both).json()["name"], "bob");

    // sshd asks for two keys: then neither is the one, unless both lines say who
    // it is. sshd itself lets nobody in by two lines that differ.
    machine.write(
        "/etc/ssh/sshd_config.d/two.conf",
        "ExposeAuthInfo yes\nAuthenticationMethods publickey,publickey",
    );
    machine.ok("root", "systemctl reload ssh");
    let lines = |name: &str| {
        machine.ok(
            "root",
            &format!(
                "for key in bob eve; do
                     echo \"command=\\\"git-claim-server openssh {name}\\\" $(cat $key.pub)\"
                 done >/srv/git/.ssh/authorized_keys"
            ),
        );
    };
    lines("");
    whoami(both).expect(
        1,
        "error: the server does not know who you are: you logged in with two keys",
    );
    lines("--as bob");
    let reply = whoami(both).expect(0, "").json();
    assert_eq!(
        (&reply["name"], &reply["key"]),
        (&"bob".into(), &"openssh:bob".into())
    );
}

#[test]
fn a_certificate_is_its_authority_and_its_key_id() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for name in ["alice", "bob", "carol", "dave"] {
        machine.add_person(name);
    }
    machine.follow("openssh");
    machine.ok(
        "root",
        "ssh-keygen -q -t ed25519 -N '' -f ca; ssh-keygen -q -t ed25519 -N '' -f ca2",
    );
    machine.follow("openssh-certificates");
    let sign = |ca: &str, id: &str, whose: &str| {
        machine.ok(
            "root",
            &format!(
                "cp /home/{whose}/.ssh/id_ed25519.pub {whose}.pub
                 ssh-keygen -q -s {ca} -I '{id}' -n git {whose}.pub
                 install -o {whose} {whose}-cert.pub /home/{whose}/.ssh/id_ed25519-cert.pub"
            ),
        );
    };
    let whoami = |who: &str| machine.run(who, "ssh git@localhost collab-lease whoami acme/app.git");

    sign("ca", "carol@example.org", "carol");
    let first = whoami("carol").expect(0, "").json();
    assert_eq!(first["name"], "carol");
    // A new key and a new certificate: the same person.
    machine.ok(
        "carol",
        "rm .ssh/id*; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519",
    );
    sign("ca", "carol@example.org", "carol");
    assert_eq!(whoami("carol").json()["key"], first["key"]);
    // Another key id is another person, whatever it looks like.
    for id in [
        "carol",
        "dave",
        "carol@example.org x",
        "../carol@example.org",
    ] {
        sign("ca", id, "dave");
        let reply = whoami("dave").expect(0, "").json();
        assert_ne!(reply["name"], "carol", "{id}");
        assert_ne!(reply["key"], first["key"], "{id}");
        assert_eq!(reply["access"], "read", "{id}");
    }
    // Another authority is none.
    sign("ca2", "carol@example.org", "dave");
    whoami("dave").expect(255, "Permission denied");
}

#[test]
fn without_a_line_that_names_them_and_without_sshd_nobody_is_known() {
    let Some(machine) = forced_command() else {
        return;
    };
    machine.ok(
        "root",
        "sed -i 's/ --as [a-z]*//' /srv/git/.ssh/authorized_keys",
    );
    machine
        .run("alice", "cd work; git claim 42")
        .expect(1, "does not know who you are");
    machine
        .run("alice", "git clone git@localhost:acme/app.git")
        .expect(128, "does not know who you are");
    // Somebody else's forgery is not believed, even where sshd lets it through.
    machine.write("/etc/ssh/sshd_config.d/weak.conf", "AcceptEnv *");
    machine.ok("root", "systemctl reload ssh");
    machine.ok(
        "bob",
        "umask 077; echo \"publickey $(cut -d' ' -f1,2 .ssh/*.pub)\" >/tmp/bobs",
    );
    machine
        .run(
            "bob",
            "export SSH_USER_AUTH=/tmp/bobs
             ssh -o SendEnv=SSH_USER_AUTH git@localhost collab-lease whoami",
        )
        .expect(1, "error: SSH_USER_AUTH: /tmp/bobs: ");
}

#[test]
fn what_one_may_not_see_is_not_there() {
    let Some(machine) = forced_command() else {
        return;
    };
    machine.ok(
        "root",
        "runuser -u git -- git init -q --bare /srv/git/secret.git
         runuser -u git -- git -C /srv/git/secret.git config claim.read alice
         runuser -u git -- git -C /srv/git/secret.git config claim.write alice",
    );
    machine.ok("alice", "ssh git@localhost collab-lease list secret.git");
    for repo in ["secret.git", "missing.git", "/etc/passwd", "../../etc"] {
        let ran = machine
            .run(
                "bob",
                &format!("ssh git@localhost collab-lease list {repo}"),
            )
            .expect(1, "");
        assert_eq!(ran.stderr(), NOT_FOUND, "{repo}");
    }
}

//! git-shell as the login shell, with `collab-lease` in its folder of commands:
//! every word is the client's, and sshd alone says who is asking.

use super::machine::Machine;

const URL: &str = "git@localhost:acme/app.git";

fn machine() -> Option<Machine> {
    let machine = Machine::new()?;
    for name in ["alice", "bob"] {
        machine.add_person(name);
        machine.add_worktree(name, URL);
    }
    machine.follow("git-shell");
    Some(machine)
}

#[test]
fn claims_clone_and_push_go_over_one_key() {
    let Some(machine) = machine() else {
        return;
    };
    machine.ok(
        "bob",
        "cd work; git commit -q --allow-empty -m one; git push -q origin main; git claim 42",
    );
    machine
        .run("alice", "cd work; git claim 42")
        .expect(4, "claimed by bob");
    // The note is free text with everything in it that a shell would touch.
    machine.ok(
        "bob",
        "cd work; git claim 43 -m \"it's a '#' and a \\\"note\\\"\"",
    );
    let reply = machine
        .run(
            "alice",
            "ssh git@localhost collab-lease show acme/app.git 43",
        )
        .expect(0, "")
        .json();
    assert_eq!(reply["note"], "it's a '#' and a \"note\"");
    // Several requests share one connection.
    machine
        .run("bob", "cd work; git claim renew -v 42 43 --ttl 1h")
        .expect(0, "over the connection of the request before");
    let whoami = machine.run("bob", "ssh git@localhost collab-lease whoami acme/app.git");
    assert_eq!(whoami.json()["name"], "bob");
    assert_eq!(whoami.stderr(), "");
}

#[test]
fn nobody_becomes_another_by_words_or_variables() {
    let Some(machine) = machine() else {
        return;
    };
    // What is not in the folder is not run.
    for words in [
        "git-claim-server local",
        "git-claim-server openssh --as alice",
        "/usr/local/bin/git-claim-server local",
        "../../usr/local/bin/git-claim-server local",
        "env SSH_USER_AUTH=/tmp/x collab-lease whoami",
        "SSH_USER_AUTH=/tmp/x collab-lease whoami",
    ] {
        machine
            .run("bob", &format!("ssh git@localhost {words}"))
            .expect(128, "unrecognized command");
    }
    for words in [
        "openssh --as alice",
        "--as alice whoami",
        "--config /home/bob/config list acme/app.git",
        "whoami acme/app.git --as alice",
    ] {
        machine
            .run("bob", &format!("ssh git@localhost collab-lease {words}"))
            .expect(1, "error: ");
    }
    // An administrator's mistake stays without consequence.
    machine.ok(
        "root",
        "ln -s /usr/local/bin/git-claim-server /srv/git/git-shell-commands/
         install -m 755 /usr/local/bin/git-claim-server /srv/git/git-shell-commands/copy",
    );
    for command in ["git-claim-server openssh --as alice", "copy local"] {
        machine
            .run("bob", &format!("ssh git@localhost {command}"))
            .expect(1, "does not run from git-shell-commands");
    }

    // sshd lets every variable in, and a forgery lies ready where git may read it.
    machine.write("/etc/ssh/sshd_config.d/weak.conf", "AcceptEnv *");
    machine.ok(
        "root",
        "systemctl reload ssh; umask 077
         echo \"publickey $(cut -d' ' -f1,2 alice.pub)\" >/tmp/forged; chown git /tmp/forged",
    );
    let reply = machine
        .run(
            "bob",
            "export SSH_USER_AUTH=/tmp/forged SSH_ORIGINAL_COMMAND='collab-lease list' USER=alice
             export GIT_CLAIM_PRINCIPAL=alice GL_USER=alice XDG_CONFIG_HOME=/tmp
             ssh -o SendEnv='SSH_* GIT_* GL_* USER XDG_*' git@localhost \\
                 collab-lease whoami acme/app.git",
        )
        .expect(0, "")
        .json();
    assert_eq!(reply["name"], "bob");
}

#[test]
fn where_sshd_does_not_tell_nobody_is_known() {
    let Some(machine) = machine() else {
        return;
    };
    machine.ok(
        "root",
        "sed -i /ExposeAuthInfo/d /etc/ssh/sshd_config.d/git-claim.conf; systemctl reload ssh",
    );
    machine.run("bob", "cd work; git claim 42").expect(
        1,
        "hint: the administrator of the server sets `ExposeAuthInfo yes`",
    );
}

/// With any other login shell a client sets what it likes.
#[test]
fn behind_another_shell_whoami_says_that_the_name_is_only_advisory() {
    let Some(machine) = machine() else {
        return;
    };
    machine.ok("root", "usermod --shell /bin/bash git");
    machine
        .run("bob", "ssh git@localhost collab-lease whoami acme/app.git")
        .expect(0, "warning: this name is only advisory");
    let list = machine.run("bob", "ssh git@localhost collab-lease list acme/app.git");
    assert_eq!(list.expect(0, "").stderr(), "");
}

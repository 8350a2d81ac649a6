//! gitolite 3, Debian's, set up for real: keys and rules come by admin pushes,
//! and its own rules say who may claim.

use super::machine::{Machine, NOT_FOUND};

const URL: &str = "git@localhost:acme/app";

const RULES: &str = "\
@devs = alice bob
repo gitolite-admin
    RW+ = admin
repo acme/app
    RW+ = alice
    RW  = bob
    R   = carol
repo acme/quiet
    RW+ = alice
    option collab.lease = off
repo wild/CREATOR/..*
    C   = @devs
    RW+ = CREATOR
    RW  = WRITERS
    R   = READERS
";

/// A site with the README's section on it. `count` counts what gitolite is
/// asked.
fn machine() -> Option<Machine> {
    let machine = Machine::new()?;
    for name in ["admin", "alice", "bob", "carol", "eve"] {
        machine.add_person(name);
    }
    machine.ok(
        "root",
        "useradd --create-home --home-dir /srv/git --shell /bin/sh git
         usermod -p '*' git
         cp admin.pub /tmp",
    );
    machine.ok("git", "gitolite setup -pk /tmp/admin.pub");
    machine.follow_as("git", "gitolite");
    machine.ok("admin", "git clone -q git@localhost:gitolite-admin");
    for name in ["alice", "bob", "carol", "eve"] {
        machine.ok(
            "root",
            &format!("install -o admin {name}.pub /home/admin/gitolite-admin/keydir/"),
        );
    }
    push_rules(&machine, RULES);
    for name in ["alice", "bob", "carol"] {
        machine.add_worktree(name, URL);
    }
    machine.ok("root", "install -o git /dev/null /tmp/asked");
    // In front of the real one, which it runs.
    machine.write(
        "/usr/local/bin/gitolite",
        "#!/bin/sh\n[ ! -f /tmp/asked ] || echo \"$*\" >>/tmp/asked\nexec /usr/bin/gitolite \"$@\"",
    );
    machine.ok("root", "chmod 755 /usr/local/bin/gitolite");
    Some(machine)
}

fn push_rules(machine: &Machine, rules: &str) {
    machine.ok(
        "admin",
        &format!(
            "cd gitolite-admin
             cat >conf/gitolite.conf <<'END'\n{rules}\nEND
             git add -A; git commit -q -m rules; git push -q"
        ),
    );
}

/// What gitolite was asked about rights since the last call.
fn asked(machine: &Machine) -> Vec<String> {
    let text = machine.ok("root", "cat /tmp/asked; : >/tmp/asked");
    let access = text.lines().filter(|line| line.starts_with("access "));
    access.map(str::to_owned).collect()
}

fn verb(machine: &Machine, who: &str, words: &str) -> super::machine::Ran {
    machine.run(who, &format!("ssh git@localhost collab-lease {words}"))
}

#[test]
fn read_lists_write_claims_and_plus_ends_the_claims_of_others() {
    let Some(machine) = machine() else {
        return;
    };
    machine.ok(
        "bob",
        "cd work; git claim 42 --ttl 2h -m \"it's \\\"mine\\\", & #1\"",
    );
    assert_eq!(asked(&machine), ["access -q acme/app bob W any"]);
    machine
        .run("alice", "cd work; git claim 42")
        .expect(4, "claimed by bob");
    let claims = machine
        .run("carol", "cd work; git claims --json")
        .expect(0, "")
        .json();
    assert_eq!(claims["leases"][0]["holder"], "bob");
    assert_eq!(claims["leases"][0]["note"], "it's \"mine\", & #1");
    asked(&machine);
    verb(&machine, "carol", "list acme/app").expect(0, "leases");
    assert_eq!(asked(&machine), ["access -q acme/app carol R any"]);
    machine.run("carol", "cd work; git claim 43").expect(
        1,
        "carol may see the claims in acme/app.git, but not take any",
    );
    for words in ["list acme/app", "acquire acme/app 43", "whoami acme/app"] {
        assert_eq!(
            verb(&machine, "eve", words).expect(1, "").stderr(),
            NOT_FOUND
        );
    }

    // Several requests share one connection.
    machine
        .run("bob", "cd work; git claim renew -v 42 42 --ttl 1h")
        .expect(0, "over the connection of the request before");
    // Nobody but the holder ends a claim without `+`.
    machine
        .run(
            "carol",
            "cd work; git unclaim 42 --force --reason x --expected-token 1",
        )
        .expect(1, "");
    asked(&machine);
    machine.ok(
        "alice",
        "cd work; git unclaim 42 --force --reason gone --expected-token 1",
    );
    assert_eq!(asked(&machine), ["access -q acme/app alice + any"]);
    for (who, access) in [("alice", "admin"), ("bob", "write"), ("carol", "read")] {
        let reply = verb(&machine, who, "whoami acme/app").expect(0, "").json();
        assert_eq!(
            (&reply["name"], &reply["access"]),
            (&who.into(), &access.into())
        );
        assert_eq!(reply["key"], format!("gitolite:{who}"));
    }
    let nowhere = verb(&machine, "bob", "whoami").expect(0, "").json();
    assert_eq!(nowhere["name"], "bob");
    // And git itself goes its own way.
    machine.ok(
        "bob",
        "cd work; git commit -q --allow-empty -m x; git push -q origin main",
    );
}

#[test]
fn a_push_meets_the_fence_behind_gitolites_own_rules() {
    let Some(machine) = machine() else {
        return;
    };
    machine
        .run("git", "git-claim-server setup --kind gitolite acme/app")
        .expect(0, "hooks/pre-receive: added");
    machine.ok(
        "bob",
        "cd work; git commit -q --allow-empty -m begun; git push -q origin main
         git fetch -q; git remote set-head origin main
         git claim start 42 --ttl 1h
         cd ../work.claims/42; git commit -q --allow-empty -m work; git push -q origin HEAD",
    );
    machine.ok(
        "alice",
        "cd work; git fetch -q; git reset -q --hard origin/main",
    );
    let move_branch = "cd work; git push origin +origin/main:claim/42";
    machine
        .run("alice", move_branch)
        .expect(1, "bob holds it since");
    // gitolite has made HEAD before there was any branch.
    let check = "git-claim-server check --kind gitolite acme/app";
    machine
        .run("git", check)
        .expect(1, "problem: HEAD names a branch that is not there");
    machine.ok(
        "git",
        "git -C repositories/acme/app.git symbolic-ref HEAD refs/heads/main",
    );
    machine.ok("git", check);
    // What the rules say comes on top of it.
    machine
        .run(
            "carol",
            "cd work; git fetch -q; git push origin origin/main:x",
        )
        .expect(128, "DENIED");
    machine
        .run(
            "bob",
            "cd work.claims/42; git push -q origin HEAD:y; git push origin --delete y",
        )
        .expect(1, "DENIED");
    machine
        .run(
            "alice",
            "cd work; git merge -q --ff-only origin/claim/42; git push origin main",
        )
        .expect(
            0,
            "bob's claim on issue 42 is released: branch 'claim/42' was merged",
        );
    machine
        .run(
            "bob",
            "cd work.claims/42; git commit -q --allow-empty -m late; git push origin HEAD:x",
        )
        .expect(1, "is not yours any more: it was done");
    machine.ok("alice", move_branch);
}

#[test]
fn every_spelling_is_one_repository_and_a_missing_one_is_not_made() {
    let Some(machine) = machine() else {
        return;
    };
    verb(&machine, "bob", "acquire acme/app 42 --session s").expect(0, "\"tenure\":\"new\"");
    for spelling in [
        "acme/app.git",
        "/acme/app",
        "/acme/app.git",
        "acme/app/",
        "./acme//app",
    ] {
        verb(
            &machine,
            "bob",
            &format!("acquire {spelling} 42 --session s"),
        )
        .expect(0, "\"tenure\":\"own\"")
        .expect(0, "\"repo\":\"acme/app.git\"");
    }
    // bob may create the second one, but a claim does not.
    asked(&machine);
    for repo in ["acme/none", "wild/bob/one", "gitolite-admin", "acme", "app"] {
        let ran = verb(&machine, "bob", &format!("acquire {repo} 1")).expect(1, "");
        assert_eq!(ran.stderr(), NOT_FOUND, "{repo}");
    }
    assert_eq!(
        machine.ok("git", "ls repositories/wild 2>/dev/null || echo none"),
        "none\n"
    );
    // gitolite has its own word for paths that lead upwards.
    verb(&machine, "bob", "list ../../etc").expect(25, "no relative paths");

    // Once created it is its creator's, until they let others in.
    machine.ok("bob", "git clone -q git@localhost:wild/bob/one");
    let acquire = "acquire wild/bob/one 7 --session s";
    verb(&machine, "bob", acquire).expect(0, "acquired");
    // What is not there takes gitolite as long as what is not hers to see.
    asked(&machine);
    let mut questions = Vec::new();
    for repo in ["wild/bob/one", "wild/bob/two"] {
        let denied = verb(&machine, "carol", &format!("list {repo}")).expect(1, "");
        assert_eq!(denied.stderr(), NOT_FOUND);
        questions.push(asked(&machine).join("\n").replace(repo, "REPO"));
    }
    assert_eq!(questions[0], "access -q REPO carol R any");
    assert_eq!(questions[1], questions[0]);
    machine.ok(
        "bob",
        "ssh git@localhost perms wild/bob/one + READERS carol",
    );
    verb(&machine, "carol", "list wild/bob/one").expect(0, "\"holder\":\"bob\"");
    verb(&machine, "carol", acquire).expect(1, "not take any");
    machine.ok(
        "bob",
        "ssh git@localhost perms wild/bob/one + WRITERS carol",
    );
    verb(&machine, "carol", acquire).expect(4, "\"holder\":\"bob\"");
}

#[test]
fn an_option_turns_claims_off() {
    let Some(machine) = machine() else {
        return;
    };
    let check = |args: &str| {
        machine.run(
            "git",
            &format!("git-claim-server check --kind gitolite {args}"),
        )
    };
    check("acme/app --as bob").expect(0, "ok: bob has write access by gitolite's rules");
    check("acme/app --as eve").expect(1, "problem: eve may do nothing");
    check("acme/quiet --as alice").expect(1, "turns claims off; remove it from gitolite.conf");
    verb(&machine, "alice", "acquire acme/quiet 1")
        .expect(1, "error: claims are turned off in acme/quiet.git");
    let ran = verb(&machine, "bob", "acquire acme/quiet 1").expect(1, "");
    assert_eq!(ran.stderr(), NOT_FOUND);
    push_rules(
        &machine,
        &RULES.replace("collab.lease = off", "collab.lease = on"),
    );
    verb(&machine, "alice", "acquire acme/quiet 1").expect(0, "acquired");
}

#[test]
fn unrestricted_arguments_pass_quotes_and_nothing_more() {
    let Some(machine) = machine() else {
        return;
    };
    let quoted = "\"list '~/acme/app'\"";
    verb(&machine, "bob", quoted).expect(25, "suspicious characters");
    machine.ok(
        "git",
        "sed -i \"s/'collab-lease',/'collab-lease ua',/\" .gitolite.rc",
    );
    verb(&machine, "bob", quoted).expect(0, "\"repo\":\"acme/app.git\"");
    for words in [
        "list acme/app; id",
        "list acme/app && id",
        "list acme/app | id",
        "list $(id)",
        "list `id`",
        "list \"acme/app\"",
        "list 'acme/app",
        "list ../../../etc",
        "list -- -q",
        "list ./-q",
    ] {
        let sent = words.replace('\'', "'\\''");
        let ran = machine
            .run("bob", &format!("ssh git@localhost 'collab-lease {sent}'"))
            .expect(1, "error: ");
        assert!(!ran.stderr().contains("uid="), "{words}");
        assert_eq!(ran.stdout(), "", "{words}");
    }
}

#[test]
fn nobody_becomes_another_by_words_or_variables() {
    let Some(machine) = machine() else {
        return;
    };
    for words in [
        "git-claim-server local",
        "git-claim-server gitolite -- list acme/app",
        "GL_USER=alice collab-lease whoami",
    ] {
        machine
            .run("bob", &format!("ssh git@localhost {words}"))
            .expect(25, "unknown git/gitolite command");
    }
    machine.write("/etc/ssh/sshd_config.d/weak.conf", "AcceptEnv *");
    machine.ok("root", "systemctl reload ssh");
    let reply = machine
        .run(
            "bob",
            "export GL_USER=alice GL_REPO_BASE=/etc GL_BYPASS_ACCESS_CHECKS=1 USER=alice
             export SSH_ORIGINAL_COMMAND='collab-lease list' GIT_CLAIM_PRINCIPAL=alice
             ssh -o SendEnv='GL_* USER SSH_* GIT_*' git@localhost \\
                 collab-lease whoami acme/app",
        )
        .expect(0, "")
        .json();
    assert_eq!(
        (&reply["name"], &reply["access"]),
        (&"bob".into(), &"write".into())
    );
    // Not run by gitolite: nobody is anybody.
    machine
        .run("git", "git-claim-server gitolite -- whoami")
        .expect(1, "GL_USER is not set");
}

#[test]
fn a_setup_that_is_broken_is_not_now() {
    let Some(machine) = machine() else {
        return;
    };
    machine.ok(
        "git",
        "git config -f .config/git-claim/config claim.write '*'",
    );
    verb(&machine, "bob", "list acme/app").expect(6, "claim.write counts for nothing here");
    machine
        .run("git", "git-claim-server check --kind gitolite")
        .expect(1, "problem: settings file");
    machine.ok(
        "git",
        "git config -f .config/git-claim/config --unset claim.write",
    );
    verb(&machine, "bob", "list acme/app").expect(0, "leases");
    machine.write(
        "/usr/local/bin/gitolite",
        "#!/bin/sh\n[ \"$1\" != access ] || exit 255\nexec /usr/bin/gitolite \"$@\"",
    );
    verb(&machine, "bob", "list acme/app").expect(6, "gitolite could not say what you may do");
}

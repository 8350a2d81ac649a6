//! The first minutes of somebody new: a key with a passphrase, an agent, a
//! remote that is mistyped, a server where only half of it is, a machine without
//! sshd. Each ends in a claim, or in the sentence that leads there.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::support::bound::{get_through, lead_out};
use crate::support::client::{Client, Person, stderr};
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::terminal::Terminal;
use crate::support::{eventually, programs};

const PASSPHRASE: &str = "correct horse";

/// Puts a passphrase on the key that sshd knows already.
fn lock_key(person: &Person) {
    let status = Command::new(programs::need("ssh-keygen"))
        .args(["-q", "-p", "-P", "", "-N", PASSPHRASE, "-f"])
        .arg(person.key())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Somebody with a clone, and a key with a passphrase.
fn newcomer(forge: &Forge) -> Client {
    let client = forge.client("alice");
    lock_key(client.person());
    client
}

/// Once, however often the server is asked, by this command and the next.
#[test]
fn a_passphrase_is_asked_for_at_the_terminal() {
    let forge = Forge::new();
    let alice = newcomer(&forge);
    let mut changes_their_mind = Terminal::new(&alice, "git claim ae1c051");
    changes_their_mind.take_until("Enter passphrase for key");
    changes_their_mind.types("\x03");
    changes_their_mind.take_until("error: stopped");
    // And the terminal echoes what is typed then.
    for ssh in ["", "GIT_SSH_COMMAND=ssh "] {
        let command = format!("{ssh}git-claim ae1c051");
        let commands = format!("sh -c 'trap : INT; {command}; stty -a; echo all done'");
        let mut terminal = Terminal::new(&alice, &commands);
        terminal.take_until("Enter passphrase for key");
        terminal.types("\x03");
        let said = terminal.take_until("all done");
        assert!(
            said.contains(" echo ") && !said.contains("-echo "),
            "{said}"
        );
    }
    alice.ok("git commit -q --allow-empty -m Begin");
    let commands = "sh -c 'git claim start ae1c051 --base HEAD && git claims && echo all done'";
    let mut terminal = Terminal::new(&alice, commands);
    terminal.take_until("Enter passphrase for key");
    terminal.types(&format!("{PASSPHRASE}\n"));
    let said = terminal.take_until("all done");
    assert!(said.contains("work may begin"), "{said}");
    assert!(!said.contains("Enter passphrase"), "{said}");

    // Nor where git is set to run some ssh, to which nothing can be added.
    alice
        .git(["config", "core.sshCommand", "ssh -q"])
        .assert()
        .success();
    let mut terminal = Terminal::new(&alice, "git claim start 537daeba --base HEAD");
    terminal.take_until("Enter passphrase for key");
    terminal.types(&format!("{PASSPHRASE}\n"));
    let said = terminal.take_until("work may begin");
    assert!(!said.contains("Enter passphrase"), "{said}");
}

/// The terminal is the command's then.
#[test]
fn while_a_command_runs_nobody_is_asked() {
    let forge = Forge::new();
    let alice = newcomer(&forge);
    let end = "cd \"$XDG_RUNTIME_DIR\" && for s in git-claim/*.*; do ssh -S $s -O exit forge; done";
    alice
        .person()
        .make_program("work", &format!("{end}; exec sleep 60"));
    let run = "sh -c 'git claim run ae1c051 -t 9s -- work; echo code $?'";
    let mut terminal = Terminal::new(&alice, run);
    terminal.take_until("Enter passphrase for key");
    terminal.types(&format!("{PASSPHRASE}\n"));
    let said = terminal.take_until("code 105");
    assert!(said.contains("Exit request sent"), "{said}");
    assert!(!said.contains("Enter passphrase"), "{said}");
    assert!(said.contains("does not let us in"), "{said}");
}

#[test]
fn where_nobody_can_type_the_way_out_is_named() {
    let forge = Forge::new();
    let alice = newcomer(&forge);
    let words = stderr(&alice.run("git claim ae1c051").code(6));
    assert!(
        words.starts_with("error: forge does not let us in: "),
        "{words}"
    );
    assert!(words.contains("\nhint: "), "{words}");
    assert!(
        words.contains("`eval \"$(ssh-agent)\" && ssh-add`"),
        "{words}"
    );
    // The agent that runs may not have it.
    let mut claim = alice.command("git");
    claim.args(["claim", "ae1c051"]);
    claim.env("SSH_AUTH_SOCK", alice.person().home().join("run/none"));
    let words = stderr(&claim.assert().code(6));
    assert!(words.contains("`ssh-add -l`"), "{words}");
}

/// What ssh runs instead of asking at a terminal.
fn make_askpass(person: &Person) -> std::path::PathBuf {
    person.make_program("askpass", &format!("echo '{PASSPHRASE}'"));
    person.home().join("bin/askpass")
}

#[test]
fn a_window_may_ask_instead() {
    for (variable, value) in [("DISPLAY", ":0"), ("SSH_ASKPASS_REQUIRE", "force")] {
        let forge = Forge::new();
        let alice = newcomer(&forge);
        let askpass = make_askpass(alice.person());
        let mut claim = alice.command("git-claim");
        claim.arg("ae1c051").env("SSH_ASKPASS", askpass);
        claim.env(variable, value).assert().success();
    }
}

/// An ssh-agent, ended when it is dropped.
struct Agent(Child);

impl Agent {
    /// One that has the person's key, and that their ssh asks.
    fn with_key_of(person: &Person) -> Agent {
        let socket = person.home().join("run/agent");
        let agent = Command::new(programs::need("ssh-agent"))
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let agent = Agent(agent);
        // The socket is there before anybody listens.
        eventually("the agent", || UnixStream::connect(&socket).is_ok());
        let added = Command::new(programs::need("ssh-add"))
            .arg("-q")
            .arg(person.key())
            .env("SSH_AUTH_SOCK", &socket)
            .env("SSH_ASKPASS", make_askpass(person))
            .env("SSH_ASKPASS_REQUIRE", "force")
            .status()
            .unwrap();
        assert!(added.success());
        let config = person.home().join("ssh_config");
        let text = fs::read_to_string(&config).unwrap();
        let asked = format!("IdentityAgent {}", socket.display());
        fs::write(config, text.replace("IdentityAgent none", &asked)).unwrap();
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_agent_answers_for_the_key() {
    let forge = Forge::new();
    let alice = newcomer(&forge);
    let _agent = Agent::with_key_of(alice.person());
    alice.ok("git claim ae1c051 --ttl 2h");
    assert!(alice.ok("git claims").contains("alice"));
}

/// Each with what it says, and a way on.
#[test]
fn a_wrong_remote_is_told_from_a_missing_server() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let nobody_listens = format!("ssh://git@127.0.0.1:1/{REPO}");
    for (remote, code, says, hints) in [
        (
            "/nowhere/at/all.git",
            1,
            "repository not found",
            "`git remote -v`",
        ),
        (
            "ssh://forge/acme/ap.git",
            1,
            "repository not found",
            "`git remote -v`",
        ),
        (
            "https://forge.example/acme/app.git",
            1,
            "not over https",
            "claimUrl",
        ),
        (&nobody_listens, 6, "cannot be reached", "`ssh -p 1 "),
    ] {
        alice.ok(&format!("git remote set-url origin {remote}"));
        let output = alice.run("git claim ae1c051");
        let words = stderr(&output);
        let Some(hint) = words.split("\nhint: ").nth(1) else {
            panic!("{remote}: no hint: {words}");
        };
        assert!(words.contains(says), "{remote}: {words}");
        if says == "repository not found" {
            assert!(hint.contains(remote), "{remote}: {words}");
        }
        assert!(hint.contains(hints), "{remote}: {words}");
        output.code(code);
    }
}

/// sshd and repositories are there; of git-claim nothing, or the program alone.
#[test]
fn a_server_with_half_of_it_says_which_half() {
    let forge = Forge::new();
    let plain = forge
        .person_behind("plain", "restrict")
        .worktree("forge:none");
    plain.ok(&format!("git remote set-url origin {}", url(REPO)));
    let words = stderr(&plain.run("git claim ae1c051").code(7));
    assert!(words.contains("forge"), "{words}");
    assert!(words.contains("hint: "), "{words}");
    let refusal = plain.json("git claim start ae1c051", 7);
    assert_eq!(refusal["exact_next_action"], "git claim whoami");

    let alice = forge.client("alice");
    let settings = fs::read_to_string(forge.config()).unwrap();
    let missing = forge.dir().join("libgit_claim_plugin.so");
    let lost = format!("{settings}[claim]\n\tplugin = {}\n", missing.display());
    fs::write(forge.config(), lost).unwrap();
    let words = stderr(&alice.run("git claim ae1c051").code(6));
    assert!(words.contains(missing.to_str().unwrap()), "{words}");
    assert!(words.contains("hint: "), "{words}");
}

#[test]
fn a_server_with_a_typo_in_its_settings_names_who_mends_it() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let settings = fs::read_to_string(forge.config()).unwrap();
    fs::write(forge.config(), format!("{settings}\treadAll = *\n")).unwrap();
    let words = stderr(&alice.run("git claim ae1c051").code(6));
    assert!(
        words.contains("unknown key claim.readAll (line "),
        "{words}"
    );
    assert!(words.contains("git-claim-server check"), "{words}");
}

/// `ssh` alone would go another way.
#[test]
fn what_git_is_set_to_run_is_what_to_try() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice
        .git(["config", "core.sshCommand", "ssh -p 1"])
        .assert()
        .success();
    let words = stderr(&alice.run("git claim ae1c051").code(6));
    assert!(words.contains("`ssh -p 1 forge` shows"), "{words}");
}

#[test]
fn what_is_free_is_listed() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c051");
    let free = alice.ok("git claims --ready");
    assert!(
        free.contains("New title") && !free.contains("Crash on empty"),
        "{free}"
    );
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.tracker", "none"]);
    let words = stderr(&alice.run("git claims --ready").code(1));
    assert!(words.contains("has no issue tracker"), "{words}");
}

/// A repository as `git init --bare` leaves it: no branch, no fence, no tracker.
#[test]
fn the_first_start_in_a_new_repository_leads_to_a_push() {
    let forge = Forge::new();
    let repo = forge.repos().join("acme/new.git");
    let new = ["init", "-q", "--bare", "-b", "main", repo.to_str().unwrap()];
    git(forge.dir(), &new);
    let alice = forge.person("alice").worktree("forge:acme/new.git");
    let other = forge.person("alice").worktree("forge:acme/new.git");
    let begin = "git commit --allow-empty -m Begin && git push -u origin HEAD";
    assert_eq!(
        lead_out(&alice, "git claim start 42"),
        ["git claim start 42", begin]
    );
    let said = alice.ok("git claim start 42");
    let setup = "until `git-claim-server setup acme/new.git` (with `--kind` for gitolite, ";
    assert!(said.contains(setup), "{said}");
    // Whoever has cloned it before has to fetch, and to begin nothing.
    let typed = lead_out(&other, "git claim start 43");
    assert!(typed[1].starts_with("git fetch origin "), "{typed:#?}");
    other.ok("git claim start 43");
    let worktree = alice.json("git claim inspect 42", 0)["worktree"]["path"].clone();
    let there = alice.at(worktree.as_str().unwrap());
    there.ok("git push -q origin HEAD");
    // The admin adds the fence, and what was bound before takes part in it.
    let mut setup = Command::new(programs::server());
    setup.current_dir(forge.dir());
    setup.args(["setup", "--config", "config", "acme/new.git"]);
    assert!(setup.output().unwrap().status.success());
    let option = "git config push.pushOption";
    there.run(option).code(1);
    alice.ok("git claim start 42");
    assert!(there.ok(option).starts_with("claim-token=42:"));
    // Lost to somebody else, it is let go of, and one is told so.
    forge.ledger().rewind(10_000);
    forge
        .person("bob")
        .worktree("forge:acme/new.git")
        .ok("git claim 42");
    let words = stderr(&there.run("git unclaim").code(4));
    assert!(
        words.contains("not bound to that claim any more"),
        "{words}"
    );
    there.run(option).code(1);
}

/// As where the server's git calls the first branch by another name than the
/// client's.
#[test]
fn a_remote_whose_head_names_nothing_has_branches_to_begin_at() {
    let forge = Forge::new();
    let repo = forge.add_repo("acme/astray.git");
    git(&repo, &["symbolic-ref", "HEAD", "refs/heads/master"]);
    let alice = forge.person("alice").worktree("forge:acme/astray.git");
    git(alice.dir(), &["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    let typed = get_through(&alice, "git claim start 42");
    assert!(typed[1].starts_with("git fetch origin "), "{typed:#?}");
    assert_eq!(typed[3], "git claim start 42 --base origin/main");
}

/// Without a tracker any word is an issue, and nothing says which is next.
#[test]
fn a_mistyped_subcommand_claims_nothing() {
    let forge = Forge::new();
    git(
        &forge.add_repo("acme/plain.git"),
        &["config", "claim.tracker", "none"],
    );
    let worktree = |name| forge.person(name).worktree("forge:acme/plain.git");
    let (alice, bob) = (worktree("alice"), worktree("bob"));
    for (line, code, hint) in [
        ("git claim relase 42", 2, "`git unclaim <id>`"),
        ("git claim lsit", 2, "`git claims`"),
        ("git claim run -- echo x", 102, "`git claim run 43 -- "),
    ] {
        let words = stderr(&alice.run(line).code(code));
        assert!(words.contains(hint), "{line}: {words}");
    }
    assert_eq!(alice.json("git claims", 0)["leases"], json!([]));
    let words = stderr(&alice.run("git claim --next").code(1));
    assert!(words.contains("before they are pushed"), "{words}");
    alice.ok("git claim -- lsit");
    let words = stderr(&bob.run("git claim -- lsit").code(4));
    assert!(words.contains("claimed by alice"), "{words}");
    assert!(!words.contains("--next"), "{words}");
}

/// As where the server's git and the client's call the first branch by other
/// names.
#[test]
fn a_default_branch_that_is_not_there_is_named() {
    let forge = Forge::new();
    let repo = forge.add_repo("acme/astray.git");
    let alice = forge.person("alice").worktree("forge:acme/astray.git");
    alice.ok("mkdir .beads");
    fs::write(
        alice.dir().join(".beads/issues.jsonl"),
        "{\"id\":\"app-1\"}",
    )
    .unwrap();
    alice.ok("git add .beads");
    alice.ok("git commit -q -m Issues");
    alice.ok("git push -q --force origin HEAD:main");
    let head = |branch: &str| git(&repo, &["symbolic-ref", "HEAD", branch]);
    head("refs/heads/master");
    for line in ["git claim app-1", "git claim --next", "git claim whoami"] {
        let words = stderr(&alice.run(line).code(6));
        assert!(words.contains("HEAD names 'refs/heads/master'"), "{words}");
        assert!(words.contains("`git symbolic-ref HEAD "), "{words}");
    }
    let mut check = Command::new(programs::server());
    check.args(["check", "--config"]).arg(forge.config());
    let output = check.arg("acme/astray.git").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("problem: HEAD names a branch"), "{said}");
    head("refs/heads/main");
    alice.ok("git claim app-1");
}

/// What cannot pass by itself is not to be tried again.
#[test]
fn a_tracker_that_cannot_be_read_is_for_those_who_can_mend_it() {
    let forge = Forge::new();
    let repo = forge.repos().join(REPO);
    let alice = forge.client("alice");
    let lines = [
        "git claim 42",
        "git claim --next",
        "git claim start 42",
        // Over a line of its own.
        "git claim 42 --wait=1s",
    ];
    let told = |expected: &[&str]| {
        for line in lines {
            let words = stderr(&alice.run(line).code(6));
            for expected in expected {
                assert!(words.contains(expected), "{line}: {words}");
            }
            assert!(!words.contains("again is safe"), "{line}: {words}");
        }
    };
    let by_a_push = "hint: trying again does not help before somebody mends the issues";
    git(&repo, &["config", "claim.tracker", "beads"]);
    told(&["there is no .beads/issues.jsonl at HEAD", by_a_push]);
    alice.ok("mkdir .beads");
    fs::write(alice.dir().join(".beads/issues.jsonl"), "{}\n<<<<<<<\n").unwrap();
    alice.ok("git add .beads");
    alice.ok("git commit -q -m Issues");
    alice.ok("git push -q --force origin HEAD:main");
    told(&[
        "read: .beads/issues.jsonl line 1: it has no id\n",
        by_a_push,
    ]);
    git(&repo, &["config", "claim.tracker", "git-issue"]);
    let blob = git(&repo, &["hash-object", "-w", "HEAD"]);
    git(&repo, &["update-ref", "refs/issues/42", &blob]);
    told(&["issue 42: ", by_a_push]);
    git(&repo, &["config", "claim.maxTtl", "long"]);
    told(&[
        "claim.maxTtl",
        "hint: trying again does not help before the server's administrator",
    ]);
}

/// `make demo` where sshd is not installed.
#[test]
fn the_demo_needs_no_sshd() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/demo.sh");
    // sshd is in a folder with programs of root's alone.
    let hidden = "mount -t tmpfs none /usr/sbin";
    let output = Command::new(programs::need("unshare"))
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg(format!("{hidden} && exec {}", demo.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("No sshd here"), "{said}");
    assert!(said.contains("is claimed by"), "{said}");
}

//! Every exit code of the commands, reached as it is reached in life.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;

use predicates::prelude::*;

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::{Forge, REPO, url};

/// The exit code, an error on stderr, and nothing that looks like a reply on
/// stdout; with `--json` the error is JSON, and a conflict the server's reply.
fn fails(client: &Client, line: &str, exit: i32, said: &str) {
    let text = stderr(&client.run(line).code(exit).stdout(""));
    assert!(text.starts_with("error: "), "{line}: {text}");
    assert!(text.contains(said), "{line}: {said:?} is not in {text:?}");
    // Behind `--` it would be an id.
    let words: Vec<&str> = line.split(' ').collect();
    let line = format!("{} --json {}", words[..2].join(" "), words[2..].join(" "));
    let assert = client.run(&line).code(exit);
    let (out, err) = (stdout(&assert), stderr(&assert));
    let text = if exit == 4 { &out } else { &err };
    let json: serde_json::Value = serde_json::from_str(text)
        .unwrap_or_else(|error| panic!("{line}: no JSON ({error}): {out:?} {err:?}"));
    if exit == 4 {
        assert_eq!(json["status"], "held", "{line}");
    } else {
        assert_eq!(out, "", "{line}");
        assert!(
            json["error"]["message"].as_str().unwrap().contains(said),
            "{line}: {json}"
        );
    }
}

#[test]
fn done_is_0_and_so_is_done_again() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for line in [
        "git claim ae1c --ttl 1h",
        "git claim ae1c --ttl 1h",
        "git claim renew ae1c",
        "git claims",
        "git claim log ae1c",
        "git claim whoami",
        "git unclaim ae1c",
        "git unclaim ae1c",
        "git claim --version",
    ] {
        alice.run(line).code(0).stderr("");
    }
}

#[test]
fn what_the_server_refuses_is_1() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    fails(&alice, "git claim 0123456", 1, "0123456");
    fails(&alice, "git claim ddf3587", 1, "closed");
    fails(&alice, "git claim ae1c --ttl 31d", 1, "2592000");
    fails(
        &forge.client("eve"),
        "git claim ae1c",
        1,
        "repository not found",
    );
    fails(
        &forge.client("eve"),
        "git claims",
        1,
        "repository not found",
    );
}

#[test]
fn a_bad_command_line_is_2_and_nobody_is_asked() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for line in [
        "git claim",
        "git claim ae1c --ttl 0",
        "git claim ae1c --ttl -5",
        "git claim ae1c --ttl 5y",
        "git claim ae1c --ttl 99999999999999999999s",
        "git claim ae1c --surprise",
        "git claim ae1c 537d",
        "git claim list",
        "git claim status",
        "git claim renw",
        "git claim a..b",
        "git claim ae1c --session -x",
        "git claim ae1c --take-over",
        "git claim ae1c --reason x",
        "git unclaim ae1c --force",
        "git claims --holder",
        "git claims extra",
    ] {
        let assert = alice.run(line).code(2).stdout("");
        assert!(
            stderr(&assert).starts_with("error: "),
            "{line}: {}",
            stderr(&assert)
        );
    }
    // An empty word can't be typed through `run`.
    alice.git(["claim", ""]).assert().code(2);
    alice.git(["claim", "ae1c", "--ttl", ""]).assert().code(2);
    // Nor does it matter whether anybody can read why.
    for (program, words, code) in [
        ("git-claim", &["--bogus"][..], 2),
        ("git-claim", &["--bogus", "--json"], 2),
        ("git-claim", &["run"], 102),
    ] {
        let mut command = alice.person().std_command(program, alice.dir());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = command.args(words).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{words:?}");
    }
    assert_eq!(forge.logins(), 0);
    // After `--` everything is an id.
    fails(&alice, "git claim -- status", 1, "status");
}

/// `next` is not built yet; a server that has nothing left to take says so.
#[test]
fn nothing_left_to_take_is_3() {
    let forge = Forge::new();
    let person = forge.person_behind(
        "mia",
        r#"restrict,command="printf '{\"status\":\"none\"}\n'; exit 3""#,
    );
    let client = person.worktree(&url(REPO));
    client.verb("next acme/app.git").code(3);
}

#[test]
fn a_conflict_is_4() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    alice.ok("git claim ae1c");
    fails(&bob, "git claim ae1c", 4, "alice");
    fails(&bob, "git claim renew ae1c --ttl 1h", 4, "alice");
    fails(&bob, "git unclaim ae1c", 4, "alice");
    fails(&bob, "git claim renew 537d --ttl 1h", 4, "");
}

#[test]
fn no_server_is_6_and_nothing_is_said_to_be_held() {
    let mut forge = Forge::new();
    let alice = forge.client("alice");
    forge.stop_sshd();
    for line in [
        "git claim ae1c",
        "git claim renew ae1c --ttl 1h",
        "git unclaim ae1c",
        "git claims",
        "git claim log ae1c",
        "git claim whoami",
    ] {
        fails(&alice, line, 6, "");
    }
}

#[test]
fn a_connection_that_died_is_6() {
    let mut forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claims");
    // The master of the first call is still there, or dying.
    forge.stop_sshd();
    fails(&alice, "git claim ae1c", 6, "");
}

#[test]
fn a_server_that_hangs_is_6_after_the_time_that_was_set() {
    let forge = Forge::new();
    // Accepts and never says a word: the kernel completes the connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let person = forge.person("alice");
    person.knows_host(
        "silent",
        silent.local_addr().unwrap().port(),
        Path::new("/dev/null"),
    );
    let client = person.worktree("ssh://silent/acme/app.git");
    client.ok("git config claim.timeout 1s");
    fails(&client, "git claim ae1c", 6, "");
}

#[test]
fn a_verb_that_hangs_is_6_after_the_time_that_was_set() {
    let forge = Forge::new();
    let person = forge.person_behind("alice", "restrict,command=\"sleep 1000\"");
    let client = person.worktree(&url(REPO));
    client.ok("git config claim.timeout 1s");
    fails(&client, "git claim ae1c", 6, "");
}

#[test]
fn a_reply_that_breaks_off_is_6() {
    let forge = Forge::new();
    let person = forge.person_behind("alice", r#"restrict,command="kill -9 $$""#);
    let client = person.worktree(&url(REPO));
    fails(&client, "git claim ae1c", 6, "");
}

#[test]
fn a_ledger_out_of_order_is_6() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    fs::write(
        forge.ledger().file(),
        "not a database, but long enough to be one",
    )
    .unwrap();
    fails(&alice, "git claim ae1c", 6, "");
    fails(&alice, "git claims", 6, "");
}

/// Forges that don't know the verb, as each of them says so.
#[test]
fn a_host_without_the_verb_is_7() {
    let forge = Forge::new();
    let hosts = [
        (
            "gitshell",
            128,
            "fatal: unrecognized command 'collab-lease acquire'",
        ),
        (
            "plainshell",
            127,
            "bash: line 1: collab-lease: command not found",
        ),
        (
            "gitolite",
            25,
            "FATAL: unknown git/gitolite command: collab-lease",
        ),
        ("forgejo", 1, "Forgejo: Invalid repository path"),
        ("gitlab", 1, "remote: ERROR: Disallowed command"),
        (
            "srht",
            128,
            "Hi mia! You've successfully authenticated, but I do not provide an interactive shell. Bye!",
        ),
    ];
    for (name, exit, said) in hosts {
        let script = forge.dir().join(name).with_extension("sh");
        fs::write(
            &script,
            format!("cat >&2 <<'SAID'\n{said}\nSAID\nexit {exit}\n"),
        )
        .unwrap();
        let options = format!("restrict,command=\"sh {}\"", script.display());
        let client = forge.person_behind(name, &options).worktree(&url(REPO));
        fails(&client, "git claim ae1c", 7, "collab-lease");
        fails(&client, "git claims", 7, "collab-lease");
    }
}

#[test]
fn a_shell_that_has_no_such_program_is_7() {
    let forge = Forge::new();
    let client = forge
        .person_behind(
            "mia",
            "restrict,command=\"PATH=/nowhere /bin/sh -c \\\"$SSH_ORIGINAL_COMMAND\\\"\"",
        )
        .worktree(&url(REPO));
    fails(&client, "git claim ae1c", 7, "collab-lease");
}

#[test]
fn a_reply_that_is_not_ours_is_7() {
    let forge = Forge::new();
    for (name, said) in [
        ("words", "Welcome to the forge!"),
        ("array", "[1]"),
        ("object", r#"{\"message\":\"hi\"}"#),
        ("nothing", ""),
    ] {
        let options = format!("restrict,command=\"echo '{said}'\"");
        let client = forge.person_behind(name, &options).worktree(&url(REPO));
        fails(&client, "git claim ae1c", 7, "collab-lease");
    }
}

#[test]
fn a_remote_that_cannot_be_asked_is_an_error_that_says_what_to_do() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git remote set-url origin https://example.org/acme/app.git");
    fails(&alice, "git claim ae1c", 1, "http");
    alice
        .run("git claim ae1c")
        .stderr(predicate::str::contains("claimUrl"));
    alice.ok("git remote remove origin");
    fails(&alice, "git claim ae1c", 1, "remote");
    fails(&alice, "git claim ae1c --remote nowhere", 1, "nowhere");
}

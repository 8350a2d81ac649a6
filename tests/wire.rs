//! The verb as anybody with `ssh` can send it: `ssh host collab-lease …`.

use crate::support::client::{stderr, stdout};
use crate::support::forge::{Forge, REPO};

/// Everything that the grammar refuses.
const REFUSED: &[&str] = &[
    // Words
    "",
    " ",
    "list \"acme/app.git\"",
    "list 'acme/app.git",
    "list acme/app.git'",
    "list ''",
    "list acme\\ app.git",
    "list acme/app.git\\",
    "list acme/app.git # comment",
    "list acme/app.git; id",
    "list $HOME",
    "list `id`",
    "list acme/*",
    "list acme/app.git | cat",
    "list acme/app.git > /tmp/x",
    "list acme/app.git\tx",
    "list acme/app.git\nlist acme/app.git",
    "list 'acme/app.git\u{1b}[2J'",
    "list 'acme/app.git\u{7f}'",
    "list 'acme/app.git\u{85}'",
    // Subverbs, and those that are the host's own
    "lists acme/app.git",
    "LIST acme/app.git",
    "--help",
    "rename acme/app.git other.git",
    "backup /tmp/ledger",
    // Repositories
    "list",
    "list -acme/app.git",
    "list --json",
    "list acme/app.git acme/app.git",
    // Issues
    "acquire acme/app.git",
    "acquire acme/app.git ''",
    "acquire acme/app.git -1",
    "acquire acme/app.git .ae1c051",
    "acquire acme/app.git ae1c051..",
    "acquire acme/app.git ae1c051.lock",
    "acquire acme/app.git ae1c051.",
    "acquire acme/app.git refs/issues/ae1c051",
    "acquire acme/app.git ae1c051 537daeb",
    "acquire acme/app.git '#ae1c051'",
    // Options
    "acquire acme/app.git ae1c051 --surprise",
    "acquire acme/app.git ae1c051 --ttl=60",
    "acquire acme/app.git ae1c051 --ttl",
    "acquire acme/app.git ae1c051 --ttl 0",
    "acquire acme/app.git ae1c051 --ttl -5",
    "acquire acme/app.git ae1c051 --ttl +5",
    "acquire acme/app.git ae1c051 --ttl 1h",
    "acquire acme/app.git ae1c051 --ttl 1.5",
    "acquire acme/app.git ae1c051 --ttl 2592001",
    "acquire acme/app.git ae1c051 --ttl 99999999999999999999",
    "acquire acme/app.git ae1c051 --ttl 60 --ttl 60",
    "acquire acme/app.git ae1c051 --session",
    "acquire acme/app.git ae1c051 --session -x",
    "acquire acme/app.git ae1c051 --session a/b",
    "acquire acme/app.git ae1c051 --session 's s'",
    "acquire acme/app.git ae1c051 --note",
    "acquire acme/app.git ae1c051 --note %",
    "acquire acme/app.git ae1c051 --note %zz",
    "acquire acme/app.git ae1c051 --note %ff",
    "acquire acme/app.git ae1c051 --note %00",
    "acquire acme/app.git ae1c051 --note a%0Ab",
    "acquire acme/app.git ae1c051 --note %1b[2J",
    "acquire acme/app.git ae1c051 --note %E2%80%AE",
    "acquire acme/app.git ae1c051 --branch b",
    "acquire acme/app.git ae1c051 --branch a..b --worktree w --machine m",
    "acquire acme/app.git ae1c051 --branch main --worktree w --machine m",
    "acquire acme/app.git ae1c051 --branch %2Dx --worktree w --machine m",
    "acquire acme/app.git ae1c051 --if-token x",
    "acquire acme/app.git ae1c051 --request a/b",
    "acquire acme/app.git ae1c051 --take-over",
    "acquire acme/app.git ae1c051 --reason x",
    "acquire acme/app.git ae1c051 --expected-token 1",
    "acquire acme/app.git ae1c051 --take-over --reason x --expected-token 0",
    "renew acme/app.git ae1c051 --ttl 60 --token 0",
    "renew acme/app.git ae1c051 --ttl 60 --token x",
    "release acme/app.git ae1c051 --force",
    "release acme/app.git ae1c051 --reason x",
    "list acme/app.git --limit 0",
    "list acme/app.git --limit x",
    "list acme/app.git --holder",
    "verify acme/app.git ae1c051",
    "show acme/app.git",
    "whoami acme/app.git x",
];

#[test]
fn what_is_refused_leaves_no_trace() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.verb("acquire acme/app.git 766dbfe").success();
    let before = forge.ledger().dump();
    assert!(!before.is_empty());
    for line in REFUSED {
        let assert = alice.verb(line);
        let shown = line.escape_debug();
        assert_eq!(assert.get_output().status.code(), Some(1), "{shown}");
        assert_eq!(stdout(&assert), "", "{shown}");
        let error = stderr(&assert);
        assert!(error.starts_with("error: "), "{shown}: {error}");
        assert_eq!(error.lines().count(), 1, "{shown}: {error}");
        assert!(
            !error.trim_end_matches('\n').contains(char::is_control),
            "{shown}"
        );
    }
    assert_eq!(forge.ledger().dump(), before);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let forge = Forge::new();
    let alice = forge.client("alice");
    let command = OsString::from_vec(b"collab-lease list acme/\xff.git".to_vec());
    let assert = alice.ssh(command).assert().code(1).stdout("");
    assert!(stderr(&assert).starts_with("error: "));
    let long = format!("collab-lease list {}", "a".repeat(100_000));
    let assert = alice.ssh(long).assert().code(1).stdout("");
    assert_eq!(stderr(&assert).lines().count(), 1);
    assert!(forge.ledger().dump().is_empty());
}

#[test]
fn a_request_is_answered_with_one_line_of_json() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for (line, exit) in [
        (
            "acquire acme/app.git ae1c051 --ttl 60 --session s --note two%20words",
            0,
        ),
        ("acquire acme/app.git ae1c051 --session other", 4),
        (
            "renew acme/app.git ae1c051 --ttl 90 --session s --token 1",
            0,
        ),
        (
            "renew acme/app.git ae1c051 --ttl 90 --session s --token 2",
            4,
        ),
        ("verify acme/app.git ae1c051 --token 1 --session s", 0),
        ("verify acme/app.git ae1c051 --token 2 --session s", 4),
        ("show acme/app.git ae1c051", 0),
        ("list acme/app.git", 0),
        ("log acme/app.git", 0),
        ("whoami", 0),
        ("whoami acme/app.git", 0),
        ("release acme/app.git ae1c051 --session s --token 1", 0),
        ("acquire acme/app.git ae1c051 --if-token 7", 4),
        ("acquire acme/app.git ae1c051 --if-token 1 --session s", 0),
    ] {
        let assert = alice.verb(line).code(exit).stderr("");
        let reply = stdout(&assert);
        assert_eq!(reply.lines().count(), 1, "{line}: {reply}");
        let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
        assert!(git_claim_api::reply::is_ours(&reply), "{line}: {reply}");
        assert!(
            reply["now"].as_str().unwrap().ends_with('Z'),
            "{line}: {reply}"
        );
    }
}

#[test]
fn a_note_is_what_was_encoded() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let note = "it's 100% “done” \\ # \"x\" ! $HOME — 日本";
    alice
        .git(["claim", "ae1c", "--note", note])
        .assert()
        .success();
    assert_eq!(alice.json("git claims", 0)["leases"][0]["note"], note);
    alice
        .git(["claim", "537d", "--note", "a\nb"])
        .assert()
        .code(2);
    alice.git(["claim", "537d", "--note", ""]).assert().code(2);
}

#[test]
fn a_retry_with_the_same_request_answers_the_same_tenure() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let ask = "acquire acme/app.git ae1c051 --session s --request r1";
    let token = |exit: i32| {
        let reply = stdout(&alice.verb(ask).code(exit));
        serde_json::from_str::<serde_json::Value>(&reply).unwrap()
    };
    assert_eq!(token(0)["token"], 1);
    assert_eq!(token(0)["token"], 1);
    alice
        .verb("release acme/app.git ae1c051 --session s")
        .success();
    assert_eq!(token(4)["reason"], "request-ended");
}

#[test]
fn lists_go_on_where_they_were_cut() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let mut wanted = Vec::new();
    for issue in ["ae1c051", "537daeb", "862b6f3", "766dbfe"] {
        let reply = stdout(&alice.verb(&format!("acquire {REPO} {issue}")).success());
        let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
        wanted.push(reply["issue"].as_str().unwrap().to_owned());
    }
    let mut seen: Vec<String> = Vec::new();
    loop {
        let after = seen
            .last()
            .map(|issue| format!("--after {issue}"))
            .unwrap_or_default();
        let reply = stdout(
            &alice
                .verb(&format!("list {REPO} --limit 3 {after}"))
                .success(),
        );
        let reply: serde_json::Value = serde_json::from_str(&reply).unwrap();
        let page = reply["leases"].as_array().unwrap();
        seen.extend(
            page.iter()
                .map(|lease| lease["issue"].as_str().unwrap().to_owned()),
        );
        if reply["more"] != true {
            break;
        }
        assert_eq!(page.len(), 3);
    }
    assert_eq!(seen, wanted);
}

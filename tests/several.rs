//! One command for several issues: each is done for itself, over one connection.

use std::fs;

use serde_json::{Value, json};

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::{Calls, Forge, REPO, url};
use crate::support::issue;

/// Alice with three claims, and what she has asked since.
fn with_three_claims(forge: &Forge) -> (Client, Calls) {
    let (person, calls) = forge.counted_person("alice", "exec $server");
    let alice = person.worktree(&url(REPO));
    for id in ["ae1c", "537d", "862b"] {
        alice.ok(&format!("git claim {id} --ttl 1h"));
    }
    calls.forget();
    (alice, calls)
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn values(text: &str) -> Vec<Value> {
    let value = |line| serde_json::from_str(line).unwrap();
    text.lines().map(value).collect()
}

#[test]
fn several_are_renewed_and_released_in_one_call() {
    let forge = Forge::new();
    let (alice, calls) = with_three_claims(&forge);
    let said = alice.ok("git claim renew 862b ae1c 537d --ttl 2h");
    let ids = ["862b6f3d", "ae1c051b", "537daeba"];
    for (line, id) in lines(&said).iter().zip(ids) {
        assert!(line.starts_with(&format!("renewed {id} ")), "{said}");
    }
    assert_eq!(calls.subverbs(), ["serve"]);
    let list = alice.json("git claims", 0);
    let leases = list["leases"].as_array().unwrap();
    assert!(leases.iter().all(|lease| lease["ttl"] == 7_200), "{list}");
    calls.forget();
    let said = alice.ok("git unclaim #537d ae1c 862b");
    let released = ["537daeba", "ae1c051b", "862b6f3d"].map(|id| format!("released {id}"));
    assert_eq!(lines(&said), released);
    assert_eq!(calls.subverbs(), ["serve"]);
    assert_eq!(alice.json("git claims", 0)["leases"], json!([]));
    // Once more, and quietly.
    alice
        .run("git unclaim -q 537d ae1c")
        .code(0)
        .stdout("")
        .stderr("");
}

#[test]
fn one_that_fails_keeps_no_other_from_being_done() {
    let forge = Forge::new();
    let (alice, calls) = with_three_claims(&forge);
    let bob = forge.client("bob");
    bob.ok("git claim 766d");
    // Its token is sent as ever: this one is of another tenure.
    let token = alice
        .dir()
        .join(format!(".git/claims/origin/{}.token", issue::REOPENED));
    fs::write(token, "7\n").unwrap();
    let line = "git claim renew ae1c 0123456 537d 766d 862b";
    let assert = alice.run(line).code(4);
    let said = stdout(&assert);
    assert!(said.starts_with("renewed ae1c051b"), "{said}");
    assert_eq!(lines(&said).len(), 2);
    let errors = stderr(&assert);
    let errors: Vec<&str> = errors
        .lines()
        .filter(|line| !line.starts_with("hint: "))
        .collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    for (error, (id, words)) in errors.iter().zip([
        ("0123456", "there is no issue"),
        ("537d", "token"),
        ("766d", "bob has it"),
    ]) {
        // Its message names it, and once is enough.
        assert_eq!(error.matches(id).count(), 1, "{error}");
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(calls.subverbs(), ["serve"]);

    let values = values(&stdout(
        &alice.run(&format!("{line} --json")).code(4).stderr(""),
    ));
    let of = |at: usize, key: &str| values[at][key].clone();
    assert_eq!(values.len(), 5);
    for (at, status) in [(0, "renewed"), (2, "held"), (3, "held"), (4, "renewed")] {
        assert_eq!(of(at, "status"), status);
    }
    assert_eq!(of(2, "reason"), "stale-token");
    assert_eq!(
        (of(1, "issue"), of(1, "exit")),
        (json!("0123456"), json!(1))
    );
    assert_eq!(values[1]["error"]["kind"], "error");
    alice.run("git claim renew ae1c 0123456").code(1);
    alice.run("git unclaim 0123456 766d ae1c").code(4);
}

#[test]
fn who_gives_no_answer_is_not_asked_for_ever() {
    let mut forge = Forge::new();
    let (alice, _) = with_three_claims(&forge);
    forge.stop_sshd();
    let assert = alice
        .run("git unclaim ae1c 537d 862b 766d")
        .code(6)
        .stdout("");
    let text = stderr(&assert);
    let errors: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 4, "{text}");
    assert!(
        errors[..2]
            .iter()
            .all(|error| error.contains("cannot be reached")),
        "{text}"
    );
    assert!(
        errors[2..].iter().all(|error| error.contains("not asked")),
        "{text}"
    );
}

#[test]
fn a_server_without_the_verb_is_asked_once() {
    let forge = Forge::new();
    let script = "echo 'sh: collab-lease: not found' >&2; exit 127";
    let (alice, calls) = forge.counted_person("alice", script);
    let alice = alice.worktree(&url(REPO));
    let words = stderr(&alice.run("git claim renew 42 43").code(7).stdout(""));
    assert_eq!(
        words.matches("does not speak collab-lease").count(),
        1,
        "{words}"
    );
    assert!(
        words.ends_with("error: 43: not asked, as the server cannot answer\n"),
        "{words}"
    );
    let is_second = |line: &String| line.contains(" 43");
    assert!(!calls.lines().iter().any(is_second), "{:?}", calls.lines());
}

#[test]
fn a_connection_that_breaks_concerns_one() {
    let forge = Forge::new();
    let (alice, calls) = with_three_claims(&forge);
    // The first ends behind its second reply.
    let (_, _) = forge.counted_person(
        "alice",
        &format!(
            "[ -e {once} ] && {{ $server; exit; }}\n: >{once}\n$server | sed -u 2q; kill -9 $$",
            once = forge.dir().join("once").display()
        ),
    );
    let assert = alice
        .run("git claim renew ae1c 537d 862b 766d --ttl 2h")
        .code(6);
    let (said, errors) = (stdout(&assert), stderr(&assert));
    assert_eq!(lines(&said).len(), 2, "{said}");
    assert!(
        errors.starts_with("error: 862b: the connection to "),
        "{errors}"
    );
    assert!(errors.contains("do not hold 766d"), "{errors}");
    assert_eq!(calls.subverbs(), ["serve", "serve"]);
}

#[test]
fn what_is_meant_for_one_is_for_one() {
    let forge = Forge::new();
    let (alice, calls) = with_three_claims(&forge);
    for line in [
        "git unclaim ae1c 537d --force --reason x --expected-token 1",
        "git claim ae1c 537d",
        "git claim log ae1c 537d",
    ] {
        let assert = alice.run(line).code(2).stdout("");
        assert!(stderr(&assert).contains("a call of its own"), "{line}");
    }
    assert!(calls.subverbs().is_empty());
    let other = forge.person("alice").worktree(&url(REPO));
    other.run("git unclaim ae1c 537d").code(4);
    let assert = other
        .run("git unclaim ae1c 537d --force --reason moved")
        .code(0);
    assert_eq!(lines(&stdout(&assert)).len(), 2);
}

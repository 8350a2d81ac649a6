//! Waiting for a claim, and watching them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::terminal::Terminal;
use crate::support::{issue, words_of_waiting};

/// Starts one of our programs; its process is the program's own.
fn start(client: &Client, words: &[&str]) -> Child {
    client
        .person()
        .std_command(words[0], client.dir())
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

fn reply(child: Child) -> (Option<i32>, Value, String) {
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let reply = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), reply, stderr)
}

#[test]
fn a_waiter_gets_what_is_released() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051");
    let mut waiter = start(&bob, &["git-claim", "ae1c051", "--wait", "--verbose"]);
    let words = words_of_waiting(&mut waiter);
    assert!(words.contains("waiting for alice"), "{words}");
    alice.ok("git unclaim ae1c051");
    let (code, _, stderr) = reply(waiter);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(alice.json("git claim ae1c051", 4)["holder"], "bob");
}

/// Nobody asks for what is told of this soon.
const BEFORE_ANYBODY_ASKS: Duration = Duration::from_secs(15);

#[test]
fn a_waiter_is_told_and_does_not_ask_again_and_again() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let (bob, calls) = forge.counted_person("bob", "exec $server");
    let mut times = Vec::new();
    for _ in 0..3 {
        alice.ok("git claim ae1c051");
        let bob = bob.worktree(&url(REPO));
        let mut waiter = start(&bob, &["git-claim", "ae1c051", "--wait", "--verbose"]);
        words_of_waiting(&mut waiter);
        alice.ok("git unclaim ae1c051");
        let free = Instant::now();
        let (code, _, stderr) = reply(waiter);
        times.push(free.elapsed());
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(calls.subverbs(), ["serve"]);
        bob.ok("git unclaim ae1c051");
        calls.forget();
    }
    assert!(
        times.iter().all(|time| *time < BEFORE_ANYBODY_ASKS),
        "{times:?}"
    );
    // However busy this machine is, it is quick once.
    assert!(
        times.iter().any(|time| *time < Duration::from_secs(2)),
        "{times:?}"
    );
}

/// Fifty worktrees of one person, over connections that take ten sessions each.
#[test]
fn fifty_waiters_cost_next_to_nothing() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let (person, calls) = forge.counted_person("bob", "exec $server");
    alice.ok("git claim ae1c051");
    let bobs: Vec<Client> = (0..50).map(|_| person.worktree(&url(REPO))).collect();
    // They find a connection, and fill it.
    bobs[0].ok("git claims");
    let mut waiters: Vec<Child> = bobs
        .iter()
        .map(|bob| start(bob, &["git-claim", "ae1c051", "--wait", "--verbose"]))
        .collect();
    for waiter in &mut waiters {
        let words = words_of_waiting(waiter);
        assert!(words.contains("waiting for alice"), "{words}");
    }
    let logins = forge.logins();
    assert!(logins < 15, "{logins}");
    calls.forget();
    let began = Instant::now();
    alice.ok("git unclaim ae1c051");
    // It goes from hand to hand, and none is had by two.
    let carol = forge.client("carol");
    for token in 2..7 {
        let first = first_to_end(&mut waiters);
        let winner = waiters.remove(first);
        let (code, _, stderr) = reply(winner);
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(alice.json("git claim ae1c051", 4)["token"], token);
        carol.ok(&format!(
            "git unclaim ae1c051 --force --reason next --expected-token {token}"
        ));
    }
    std::thread::sleep(Duration::from_secs(10).saturating_sub(began.elapsed()));
    let asked = calls.lines();
    assert!(asked.len() < 50, "{asked:?}");
    for waiter in waiters {
        interrupt(&waiter);
        reply(waiter);
    }
}

/// Which of them has ended.
fn first_to_end(waiters: &mut [Child]) -> usize {
    let began = Instant::now();
    loop {
        let has_ended = |waiter: &mut Child| waiter.try_wait().unwrap().is_some();
        if let Some(at) = waiters.iter_mut().position(has_ended) {
            return at;
        }
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn next_finds_what_becomes_open() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    for _ in 0..5 {
        alice.ok("git claim --next");
    }
    let mut waiter = start(&bob, &["git-claim", "--next", "--wait", "--verbose"]);
    words_of_waiting(&mut waiter);
    // No claim changes by it.
    let repo = forge.repos().join(REPO);
    let closed = format!("refs/issues/{}", issue::CLOSED);
    let first = git(&repo, &["rev-list", "--max-parents=0", &closed]);
    git(&repo, &["update-ref", &closed, &first]);
    let (code, _, stderr) = reply(waiter);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(alice.json("git claim ddf3587", 4)["holder"], "bob");
}

#[test]
fn a_waiter_gets_what_runs_out() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051 --ttl 2s");
    let waiter = start(&bob, &["git-claim", "ae1c051", "--wait=1h", "--json"]);
    let (code, reply, stderr) = reply(waiter);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(reply["token"], 2);
}

#[test]
fn one_of_many_waiters_gets_it() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bobs: Vec<Client> = (0..4).map(|_| forge.client("bob")).collect();
    alice.ok("git claim ae1c051 --ttl 2s");
    let waiters: Vec<Child> = bobs
        .iter()
        .map(|bob| start(bob, &["git-claim", "ae1c051", "--wait=5s", "--json"]))
        .collect();
    let codes: Vec<Option<i32>> = waiters.into_iter().map(|waiter| reply(waiter).0).collect();
    let of = |code| codes.iter().filter(|have| **have == Some(code)).count();
    assert_eq!((of(0), of(4)), (1, 3), "{codes:?}");
}

#[test]
fn patience_ends_with_the_conflict() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051");
    let assert = bob.run("git claim ae1c051 --wait=1s").code(4).stdout("");
    let text = stderr(&assert);
    assert!(text.contains("is claimed by alice"), "{text}");
    assert!(text.contains(" (waited 1s)\n"), "{text}");
    assert_eq!(bob.json("git claim ae1c051 --wait=1s", 4)["status"], "held");
    // What is no matter of waiting ends it at once.
    bob.run("git claim ddf3587 --wait").code(1);
    bob.run("git claim 0123456 --wait").code(1);
    bob.run("git claim ae1c051 --wait=0").code(2);
}

#[test]
fn next_waits_for_something_to_take() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    let mut taken = Vec::new();
    for _ in 0..5 {
        let reply = alice.json("git claim --next", 0);
        taken.push(reply["issue"].as_str().unwrap().to_owned());
    }
    let mut waiter = start(&bob, &["git-claim", "--next", "--wait", "--verbose"]);
    let words = words_of_waiting(&mut waiter);
    assert!(words.contains("nothing is left"), "{words}");
    alice.ok(&format!("git unclaim {}", taken[2]));
    assert_eq!(reply(waiter).0, Some(0));
    assert_eq!(
        alice.json(&format!("git claim {}", taken[2]), 4)["holder"],
        "bob"
    );
}

#[test]
fn only_a_terminal_shows_for_whom_one_waits() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051");
    let words = stderr(&bob.run("git claim ae1c051 --wait=1s").code(4));
    assert!(words.starts_with("error: "), "{words}");
    let terminal = Terminal::new(&bob, "git claim ae1c051 --wait");
    terminal.take_until("waiting for alice");
    alice.ok("git unclaim ae1c051");
    terminal.take_until("claimed ae1c051b");
}

#[test]
fn ctrl_c_ends_the_waiting() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051");
    let mut waiter = start(&bob, &["git-claim", "ae1c051", "--wait", "--verbose"]);
    words_of_waiting(&mut waiter);
    interrupt(&waiter);
    let (code, _, stderr) = reply(waiter);
    assert_eq!(code, Some(130), "{stderr}");
    alice.ok("git unclaim ae1c051");
    assert_eq!(alice.json("git claims", 0)["leases"], serde_json::json!([]));
}

#[test]
fn a_terminal_shows_what_is_left_of_each_claim() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c051 --ttl 10m");
    let (carol, calls) = forge.counted_person("carol", "exec $server");
    let carol = carol.worktree(&url(REPO));
    let mut terminal = carol.person().std_command("script", carol.dir());
    terminal.args(["-qec", "git-claims --watch", "/dev/null"]);
    let mut terminal = terminal
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut screen = BufReader::new(terminal.stdout.take().unwrap()).split(b')');
    let mut shown: Vec<String> = Vec::new();
    // Four different times, each less than the one before.
    while shown.len() < 4 {
        let text = String::from_utf8(screen.next().unwrap().unwrap()).unwrap();
        let Some((_, left)) = text.rsplit_once("(in 9m ") else {
            continue;
        };
        let left = format!("{left:0>3}");
        if shown.last() != Some(&left) {
            shown.push(left);
        } else {
            assert_ne!(shown.len(), 1, "drawn twice at the start");
        }
    }
    assert!(
        shown.is_sorted_by(|before, after| before > after),
        "{shown:?}"
    );
    assert_eq!(calls.subverbs(), ["serve"]);
    terminal.kill().unwrap();
    terminal.wait().unwrap();
}

#[test]
fn claims_are_shown_anew_when_they_change() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    let (carol, calls) = forge.counted_person("carol", "exec $server");
    let carol = carol.worktree(&url(REPO));
    let mut watch = start(&carol, &["git-claims", "--watch", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Vec<String> {
        let line = lines.next().unwrap().unwrap();
        let list: Value = serde_json::from_str(&line).unwrap();
        let leases = list["leases"].as_array().unwrap();
        let holder = |lease: &Value| lease["holder"].as_str().unwrap().to_owned();
        leases.iter().map(holder).collect()
    };
    assert!(next().is_empty());
    alice.ok("git claim ae1c051 --ttl 1h");
    assert_eq!(next(), ["alice"]);
    bob.ok("git claim 537daeb");
    assert_eq!(next(), ["alice", "bob"]);
    alice.ok("git unclaim ae1c051");
    assert_eq!(next(), ["bob"]);
    assert_eq!(calls.subverbs(), ["serve"]);
    interrupt(&watch);
    assert_eq!(watch.wait().unwrap().code(), Some(0));

    let mut watch = start(&carol, &["git-claims", "--watch"]);
    let mut shown = String::new();
    let mut lines = BufReader::new(watch.stdout.take().unwrap());
    lines.read_line(&mut shown).unwrap();
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    let (code, _, stderr) = reply(watch);
    assert_eq!((code, stderr.as_str()), (Some(128 + 15), ""));
}

//! One connection for all requests of a command: over a shared ssh connection,
//! over the ssh command that the user has set, and over a pipe on this machine.
//! It breaks, it lies, or the server knows none: nobody works on its word.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::client::{Client, stderr};
use crate::support::forge::{Calls, Forge, REPO, children, url};
use crate::support::{eventually, words_of_waiting};

/// Tests several cases at once: they wait more than they work.
fn for_each<Case: Send>(cases: impl IntoIterator<Item = Case>, test: impl Fn(Case) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Works on an issue until the file `go` is there.
fn work(client: &Client, issue: &str, ttl: &str) -> Child {
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    client
        .person()
        .std_command("git-claim", client.dir())
        .args(["run", issue, "-t", ttl, "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Ends the work; how it ended.
fn finish(client: &Client, child: Child) -> (Option<i32>, String) {
    fs::write(client.dir().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), stderr)
}

/// Waits for some heartbeats of the one claim that there is.
fn wait_for_heartbeats(seen_by: &Client, count: usize) {
    let last = || seen_by.json("git claims", 0)["leases"][0]["heartbeat_at"].clone();
    eventually("the claim", || last().is_string());
    for _ in 0..count {
        let before = last();
        eventually("a heartbeat", || {
            let last = last();
            assert!(last.is_string(), "the claim was lost");
            last != before
        });
    }
}

/// The process that serves the call of this number.
fn server_of_call(forge: &Forge, call: usize) -> Pid {
    let file = forge.dir().join("pids");
    let pids = || fs::read_to_string(&file).unwrap_or_default();
    eventually("the call", || pids().lines().count() >= call);
    let pid = pids().lines().nth(call - 1).unwrap().parse().unwrap();
    Pid::from_raw(pid).unwrap()
}

/// A script of the server's whose processes can be found.
fn with_pids(forge: &Forge) -> String {
    format!("echo $$ >>{}/pids; exec $server", forge.dir().display())
}

fn counted(forge: &Forge, name: &str, script: &str) -> (Client, Calls) {
    let (person, calls) = forge.counted_person(name, script);
    (person.worktree(&url(REPO)), calls)
}

#[test]
fn a_run_asks_the_server_once() {
    for_each([false, true], |has_ssh_command| {
        let forge = Forge::new();
        let (alice, calls) = counted(&forge, "alice", "exec $server");
        let bob = forge.client("bob");
        if has_ssh_command {
            alice.ok("git config core.sshCommand ssh");
        }
        let child = work(&alice, "ae1c051", "9s");
        wait_for_heartbeats(&bob, 2);
        let (code, err) = finish(&alice, child);
        assert_eq!(code, Some(0), "{err}");
        assert_eq!(calls.subverbs(), ["serve"], "{has_ssh_command}");
        let log = bob.json("git claim log ae1c051", 0);
        assert_eq!(log["tenures"][0]["how"], "released", "{log}");
    });
}

#[test]
fn a_run_on_this_machine_starts_one_server() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let path = forge.repos().join(REPO);
    alice.ok(&format!("git remote set-url origin {}", path.display()));
    let child = work(&alice, "ae1c051", "6s");
    let servers = || -> Vec<u32> {
        let is_server = |pid: &u32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline"));
            words.is_ok_and(|words| words.contains("git-claim-server\0local"))
        };
        children(child.id()).into_iter().filter(is_server).collect()
    };
    wait_for_heartbeats(&alice, 1);
    let first = servers();
    assert_eq!(first.len(), 1);
    wait_for_heartbeats(&alice, 2);
    assert_eq!(servers(), first);
    let (code, err) = finish(&alice, child);
    assert_eq!(code, Some(0), "{err}");
    // It has ended by itself, and closed the ledger.
    let ledger = forge.ledger().file().to_owned();
    assert!(!ledger.with_extension("db-wal").exists());
    assert_eq!(alice.json("git claims", 0)["leases"], serde_json::json!([]));
}

#[test]
fn a_connection_that_ends_is_made_again() {
    let forge = Forge::new();
    let (alice, calls) = counted(&forge, "alice", &with_pids(&forge));
    let bob = forge.client("bob");
    bob.ok("git claim ae1c051");
    let mut waiter = alice.person().std_command("git-claim", alice.dir());
    waiter
        .args(["ae1c051", "--wait", "--verbose"])
        .stderr(Stdio::piped());
    let mut waiter = waiter.spawn().unwrap();
    // Somebody who was answered once is not put off.
    words_of_waiting(&mut waiter);
    for ended in 1..3 {
        kill_process(server_of_call(&forge, ended), Signal::KILL).unwrap();
    }
    server_of_call(&forge, 3);
    bob.ok("git unclaim ae1c051");
    assert!(waiter.wait_with_output().unwrap().status.success());
    assert_eq!(calls.subverbs(), ["serve"; 3]);
}

/// How a server that has no `serve` answers it.
const UNSERVED: [&str; 4] = [
    "echo \"error: there is no subverb 'serve'\" >&2; exit 1",
    "echo \"fatal: unrecognized command 'collab-lease'\" >&2; exit 128",
    "echo Welcome",
    "read line; exit 7",
];

#[test]
fn a_server_without_it_is_asked_call_by_call() {
    for_each(UNSERVED, |unserved| {
        let forge = Forge::new();
        let script =
            format!("case $SSH_ORIGINAL_COMMAND in *\" serve \"*) {unserved};; *) $server;; esac");
        let (alice, calls) = counted(&forge, "alice", &script);
        let bob = forge.client("bob");
        let child = work(&alice, "ae1c051", "9s");
        wait_for_heartbeats(&bob, 2);
        let (code, err) = finish(&alice, child);
        assert_eq!(code, Some(0), "{unserved}: {err}");
        let asked = calls.subverbs();
        assert_eq!(
            &asked[..4],
            ["serve", "show", "acquire", "renew"],
            "{unserved}"
        );
        assert_eq!(asked.last().unwrap(), "release", "{unserved}");
        assert_eq!(
            asked.iter().filter(|subverb| *subverb == "serve").count(),
            1
        );
        bob.ok("git claim ae1c051 --ttl 2s");
        alice.ok("git claim ae1c051 --wait");
    });
}

/// What a server may make of its replies to heartbeats: `sed` rewrites them.
const LIES: [&str; 5] = [
    // The reply to another request.
    "/renewed/s/^{.id.:[0-9]*/{\"id\":1/",
    "/renewed/s/\"mine\":true/\"mine\":false/",
    "/renewed/s/\"issue\":\"[^\"]*/&x/",
    "/renewed/s/}$//",
    // None at all.
    "/renewed/d",
];

#[test]
fn nobody_works_on_a_lie() {
    for_each(LIES, |lie| {
        let forge = Forge::new();
        let script = format!(
            "case $SSH_ORIGINAL_COMMAND in
             *\" serve \"*) $server | sed -u '{lie}';;
             *) echo 'error: busy' >&2; exit 6;;
             esac"
        );
        let (alice, _) = counted(&forge, "alice", &script);
        let bob = forge.client("bob");
        let child = work(&alice, "ae1c051", "4s");
        eventually("the claim", || {
            let list = bob.json("git claims", 0);
            list["leases"][0]["holder"] == "alice"
        });
        assert_eq!(bob.json("git claim ae1c051 --wait=1m", 0)["token"], 2);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(105), "{lie}: {stderr}");
    });
}

#[test]
fn a_claim_that_was_lied_about_is_not_had() {
    let lies = [
        ("s/\"issue\":\"[^\"]*/&x/", "makes no sense"),
        ("s/\"mine\":true/\"mine\":false/", "makes no sense"),
        ("s/^{.id.:[0-9]*/{\"id\":7/", "makes no sense"),
        ("s/\"exit\":0/\"exit\":4/", "makes no sense"),
        ("s/\"token\":[0-9]*/\"token\":0/", "makes no sense"),
        ("s/.*/hello/", "no answer"),
    ];
    for_each(lies, |(lie, said)| {
        let forge = Forge::new();
        let (alice, _) = counted(&forge, "alice", &format!("$server | sed -u '{lie}'"));
        if said == "no answer" {
            alice.ok("git config claim.timeout 3s");
        }
        let assert = alice.run("git claim ae1c051 --wait").code(6).stdout("");
        let text = stderr(&assert);
        assert!(text.contains(said), "{lie}: {text}");
        assert!(!alice.dir().join(".git/claims").exists(), "{lie}");
    });
}

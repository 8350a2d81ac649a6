//! `serve` over a real sshd: one login for many requests, and a watch that hears
//! of everybody else's.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::forge::{Forge, REPO, git};
use crate::support::serving::Connection;
use crate::support::{issue, programs};

#[test]
fn many_requests_take_one_login() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let mut connection = Connection::open(&alice);
    let take =
        json!({"id":1,"op":"acquire","issue":"ae1c","ttl":300,"session":"s","note":"it's me"});
    let taken = connection.ask(&take);
    assert_eq!(taken["id"], 1);
    assert_eq!(taken["reply"]["issue"], issue::CRASH);
    assert_eq!(taken["reply"]["note"], "it's me");
    let logins = forge.logins();
    for id in 2..100 {
        let renewed = connection
            .ask(&json!({"id":id,"op":"renew","issue":issue::CRASH,"ttl":300,"session":"s"}));
        assert_eq!((&renewed["id"], &renewed["exit"]), (&json!(id), &json!(0)));
    }
    assert_eq!(forge.logins(), logins);
    // Many at once, without waiting for the replies.
    let batch: String = (0..200)
        .map(|id| format!("{}\n", json!({"id":id,"op":"show","issue":"ae1c"})))
        .collect();
    connection.send(&batch);
    for id in 0..200 {
        assert_eq!(connection.next()["id"], id);
    }
    assert_eq!(connection.end(), 0);
    // The claim outlives the connection.
    assert_eq!(alice.json("git claims", 0)["leases"][0]["holder"], "alice");
}

#[test]
fn a_watch_hears_of_each_change_that_others_make() {
    let forge = Forge::new();
    let dave = forge.client("dave");
    let alice = forge.client("alice");
    let mut connection = Connection::open(&dave);
    assert_eq!(
        connection.ask(&json!({"id":1,"op":"watch"}))["reply"]["status"],
        "watching"
    );
    for (command, event) in [
        ("git claim ae1c --ttl 2h", "acquired"),
        ("git claim renew ae1c --ttl 1h", "renewed"),
        ("git unclaim ae1c", "released"),
    ] {
        alice.ok(command);
        let line = connection.next();
        assert_eq!(line["event"]["event"], event);
        assert_eq!(line["event"]["issue"], issue::CRASH);
        assert_eq!(line["event"]["repo"], REPO);
    }
    // It goes on answering.
    assert_eq!(connection.ask(&json!({"id":2,"op":"list"}))["id"], 2);
    assert_eq!(connection.end(), 0);
}

#[test]
fn rights_that_are_taken_away_count_on_an_open_connection() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let mut connection = Connection::open(&alice);
    let take = json!({"op":"acquire","issue":"ae1c"});
    assert_eq!(connection.ask(&take)["exit"], 0);
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.write", "bob"]);
    let refused = connection.ask(&take);
    assert_eq!(
        (&refused["exit"], &refused["error"]),
        (&json!(1), &json!("repository not found"))
    );
    let eve = forge.client("eve");
    let eves = Connection::open(&eve);
    assert_eq!(eves.end(), 1);
}

#[test]
fn a_broken_client_hurts_nobody() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    // One that says half a request, and one that never reads a reply.
    let mut half = Connection::open(&alice);
    half.send("{\"op\":\"acquire\",\"issue\":\"ae1c\"");
    let mut command = alice.person().std_command("ssh", alice.dir());
    command
        .arg("forge")
        .arg(format!("collab-lease serve {REPO}"));
    let mut deaf = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut into = deaf.stdin.take().unwrap();
    std::thread::spawn(move || {
        let line = format!("{}\n", json!({"op":"log"})).repeat(2_000);
        let _ = into.write_all(line.as_bytes());
    });
    // One that is killed in the middle, and garbage.
    let mut killed = Connection::open(&alice);
    assert_eq!(
        killed.ask(&json!({"op":"acquire","issue":"862b"}))["exit"],
        0
    );
    killed.kill();
    let mut garbage = Connection::open(&alice);
    garbage.send("\u{0}\u{1b}[31m\n");
    assert!(garbage.next()["error"].is_string());
    assert_eq!(garbage.end(), 1);
    let mut long = Connection::open(&alice);
    long.send(&"x".repeat(100 * 1024));
    assert!(long.next()["error"].as_str().unwrap().contains("65536"));

    bob.ok("git claim ae1c --ttl 2h");
    bob.run("git claim 862b").code(4);
    deaf.kill().unwrap();
    deaf.wait().unwrap();
    half.kill();
}

#[test]
fn a_request_that_hangs_ends_its_connection_and_no_other() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice
        .verb(&format!("acquire {REPO} ae1c --session s"))
        .success();
    let server = || {
        let mut server = Command::new(programs::server());
        server
            .args(["openssh", "--as", "alice", "--config"])
            .arg(forge.config())
            .env("SSH_ORIGINAL_COMMAND", format!("collab-lease serve {REPO}"));
        Connection::of(server)
    };
    let mut one = server();
    let mut two = server();
    let renew = json!({"op":"renew","issue":"ae1c","ttl":60,"session":"s"});
    assert_eq!(one.ask(&renew)["exit"], 0);
    // As a stopped process would: it holds the queue's lock and does not let go.
    let queue = forge.ledger().file().with_extension("db-queue");
    let file = std::fs::File::options().write(true).open(queue).unwrap();
    file.lock().unwrap();
    one.send(&format!("{renew}\n"));
    // Looking needs no turn.
    assert_eq!(two.ask(&json!({"op":"list"}))["exit"], 0);
    assert_eq!(one.ended(), 6);
    file.unlock().unwrap();
    assert_eq!(two.ask(&renew)["exit"], 0);
    assert_eq!(two.end(), 0);
}

//! `kill -9` in the middle of everything: no acknowledged claim is lost, no
//! token is handed out twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::client::Client;
use crate::support::forge::{Forge, REPO};
use crate::support::{programs, random};

const WORKERS: usize = 6;
const TENURES: usize = 25;
const ISSUES: [&str; 3] = ["ae1c051", "537daeb", "862b6f3"];

/// One server call as sshd would make it, and what it answered: `None` if it
/// was killed before it had answered in full.
struct Server<'a> {
    config: &'a Path,
    name: String,
    /// Roughly how long a call takes.
    call: Duration,
}

impl Server<'_> {
    fn start(&self, request: &str) -> Child {
        Command::new(programs::server())
            .args(["openssh", "--config"])
            .arg(self.config)
            .args(["--as", &self.name])
            .env("SSH_ORIGINAL_COMMAND", format!("collab-lease {request}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Asks; kills the server at a random moment, or never.
    fn once(&self, request: &str) -> Option<(i32, Value)> {
        let mut child = self.start(request);
        if random(2) == 0 {
            let whole = u64::try_from(self.call.as_micros()).unwrap() * 3 / 2;
            std::thread::sleep(Duration::from_micros(random(whole.max(1))));
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        // What was written before the kill counts: the client has seen it.
        let reply = serde_json::from_slice(&output.stdout).ok()?;
        let exit = output.status.code().unwrap_or_else(|| exit_of(&reply));
        Some((exit, reply))
    }

    /// Asks until there is an answer.
    fn ask(&self, request: &str) -> (i32, Value) {
        for _ in 0..1_000 {
            if let Some(answer) = self.once(request) {
                return answer;
            }
        }
        panic!("no answer to `{request}` in 1000 tries");
    }
}

/// The exit code that goes with a reply whose server was killed behind it.
fn exit_of(reply: &Value) -> i32 {
    if reply["status"] == "held" { 4 } else { 0 }
}

#[test]
fn servers_killed_at_random_lose_nothing_and_repeat_nothing() {
    let forge = Forge::without_sshd("\twrite = *\n");
    let config = forge.config();
    // Which holder each issue's token was acknowledged to.
    let given: Mutex<BTreeMap<(String, u64), String>> = Mutex::default();
    let began = Instant::now();
    let first = Server {
        config: &config,
        name: "first".to_owned(),
        call: Duration::from_secs(1),
    };
    first
        .start(&format!("release {REPO} {}", ISSUES[0]))
        .wait()
        .unwrap();
    let call = began.elapsed();

    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (config, given) = (&config, &given);
            scope.spawn(move || {
                let server = Server {
                    config,
                    name: format!("worker{worker}"),
                    call,
                };
                let mut tenures = 0;
                while tenures < TENURES {
                    let issue = ISSUES[usize::try_from(random(3)).unwrap()];
                    let (exit, reply) = server.ask(&format!("acquire {REPO} {issue} --session s"));
                    if exit == 4 {
                        assert_ne!(reply["holder"], server.name, "{reply}");
                        continue;
                    }
                    assert_eq!((exit, &reply["status"]), (0, &"acquired".into()), "{reply}");
                    let token = reply["token"].as_u64().unwrap();
                    let key = (issue.to_owned(), token);
                    let other = given.lock().unwrap().insert(key, server.name.clone());
                    assert_eq!(other, None, "{issue}: token {token} was given out twice");
                    // What was acknowledged stands until it is given back.
                    for request in [
                        format!("verify {REPO} {issue} --session s --token {token}"),
                        format!("renew {REPO} {issue} --session s --token {token} --ttl 3600"),
                    ] {
                        let (exit, reply) = server.ask(&request);
                        assert_eq!(exit, 0, "{request}: {reply}");
                    }
                    let request = format!("release {REPO} {issue} --session s --token {token}");
                    // The first try may have been killed behind its commit,
                    // and somebody else may hold the issue by now.
                    let (exit, reply) = server.ask(&request);
                    assert!(
                        exit == 0 || reply["reason"] != "held" || reply["holder"] != server.name
                    );
                    tenures += 1;
                }
            });
        }
    });

    let ledger = forge.ledger();
    assert_eq!(ledger.integrity(), "ok");
    let given = given.into_inner().unwrap();
    assert_eq!(given.len(), WORKERS * TENURES);
    for ((issue, token), _) in given.iter() {
        let full = [
            crate::support::issue::CRASH,
            crate::support::issue::REOPENED,
            crate::support::issue::RETITLED,
        ]
        .into_iter()
        .find(|full| full.starts_with(issue.as_str()))
        .unwrap();
        assert!(ledger.token(full) >= i64::try_from(*token).unwrap());
    }
}

#[test]
fn killed_clients_leave_the_ledger_usable() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let began = Instant::now();
    alice.ok("git claim ae1c051");
    let call = u64::try_from(began.elapsed().as_micros()).unwrap();
    alice.ok("git unclaim ae1c051");
    for _ in 0..15 {
        let mut child = start(&alice, &["claim", "ae1c051", "--ttl", "1h"]);
        std::thread::sleep(Duration::from_micros(random(call * 3 / 2)));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whether it was taken or not, its own session finds out and goes on.
        alice.ok("git claim ae1c051");
        bob.run("git claim ae1c051").code(4);
        alice.ok("git unclaim ae1c051");
        bob.ok("git claim ae1c051");
        bob.ok("git unclaim ae1c051");
    }
    assert_eq!(forge.ledger().integrity(), "ok");
}

fn start(client: &Client, words: &[&str]) -> Child {
    client
        .person()
        .std_command("git", client.dir())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

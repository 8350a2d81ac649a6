//! Many clients at once, through an sshd as it comes (MaxStartups 10:30:100).

use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::sync::{Arc, Barrier};

use serde_json::Value;

use crate::support::client::Client;
use crate::support::forge::Forge;

const CLIENTS: usize = 32;
const ROUNDS: usize = 20;
/// So many of them without a connection from before.
const COLD_ROUNDS: usize = 4;

/// Runs `line` in every worktree in the same moment.
fn at_once(clients: &[Client], line: &str) -> Vec<Output> {
    let barrier = Arc::new(Barrier::new(clients.len()));
    let threads: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut words = line.split(' ');
            let mut command = client
                .person()
                .std_command(words.next().unwrap(), client.dir());
            command
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                command.output().unwrap()
            })
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Who won, by index; everybody else must have met a conflict that names them.
fn winner(outputs: &[Output], name: impl Fn(usize) -> String) -> usize {
    let won: Vec<usize> = (0..outputs.len())
        .filter(|&i| outputs[i].status.code() == Some(0))
        .collect();
    let all = || -> String {
        outputs
            .iter()
            .enumerate()
            .map(|(i, output)| {
                let text = String::from_utf8_lossy(&output.stderr);
                format!("{} {:?} {text}\n", name(i), output.status.code())
            })
            .collect()
    };
    assert_eq!(won.len(), 1, "not one winner:\n{}", all());
    let winner = name(won[0]);
    for (i, output) in outputs.iter().enumerate() {
        if i == won[0] {
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{}\n{}", name(i), all());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first = stderr.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("error: ") && first.contains(&winner),
            "{first:?} does not name {winner}"
        );
    }
    won[0]
}

#[test]
fn one_of_32_wins_and_31_learn_who_did() {
    let forge = Forge::with_settings("\twrite = *\n");
    let name = |i: usize| format!("racer{i:02}");
    let clients: Vec<Client> = (0..CLIENTS).map(|i| forge.client(&name(i))).collect();
    // At first every call logs in anew, and sshd turns some away.
    for client in &clients {
        client.ok("git config claim.controlPersist no");
    }
    let mut token = 0;
    for round in 0..ROUNDS {
        if round == COLD_ROUNDS {
            for client in &clients {
                client.ok("git config --unset claim.controlPersist");
            }
        }
        let outputs = at_once(&clients, "git claim ae1c051 --ttl 1h");
        let won = winner(&outputs, name);
        token += 1;
        let reply = clients[won].json("git claims", 0);
        assert_eq!(reply["leases"][0]["holder"], name(won));
        assert_eq!(reply["leases"][0]["token"], token);
        clients[won].ok("git unclaim ae1c051");
    }
    assert_eq!(forge.ledger().integrity(), "ok");
}

/// One person's worktrees share one connection, on which sshd allows 10
/// sessions at once.
#[test]
fn one_of_32_worktrees_of_one_person_wins() {
    let forge = Forge::new();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| forge.client("alice")).collect();
    let outputs = at_once(&clients, "git claim ae1c051");
    let won = winner(&outputs, |_| "you in another session".to_owned());
    clients[won].ok("git unclaim ae1c051");
    // And now that the connection is open.
    let outputs = at_once(&clients, "git claim ae1c051");
    winner(&outputs, |_| "you in another session".to_owned());
    assert_eq!(clients[0].json("git claims", 0)["leases"][0]["token"], 2);
}

/// A queue that never hands one issue to two.
#[test]
fn of_64_who_want_the_next_of_40_issues_each_gets_another_or_nothing() {
    let forge = Forge::with_settings("\twrite = *\n");
    forge.add_issues(40 - 5);
    let clients: Vec<Client> = (0..64)
        .map(|n| forge.client(&format!("worker{}", n % 8)))
        .collect();
    let outputs = at_once(&clients, "git claim --next --ttl 1h --json");
    let of = |code| {
        outputs
            .iter()
            .filter(move |output| output.status.code() == Some(code))
    };
    assert_eq!((of(0).count(), of(3).count()), (40, 24), "{outputs:?}");
    let taken: BTreeSet<String> = of(0)
        .map(|output| {
            let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(reply["token"], 1);
            reply["issue"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(taken.len(), 40);
    let list = clients[0].json("git claims", 0);
    assert_eq!(list["leases"].as_array().unwrap().len(), 40);
}

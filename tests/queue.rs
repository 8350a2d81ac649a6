//! What happens while a request stands in the queue before the ledger: what it
//! had looked at may be otherwise when it is its turn.

use std::fs::{self, File};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::support::clock::Clock;
use crate::support::forge::{Forge, REPO, close_issue};
use crate::support::{issue, programs};

/// A forge whose ledger is somebody else's to change for now.
struct Queue {
    forge: Forge,
    clock: Clock,
    lock: File,
}

impl Queue {
    fn new() -> Queue {
        let forge = Forge::without_sshd("\twrite = *\n");
        let clock = Clock::new(forge.dir());
        let lock = File::create(forge.repos().join("collab.db-queue")).unwrap();
        Queue { forge, clock, lock }
    }

    fn stand_first(&self) {
        flock(&self.lock, FlockOperation::LockExclusive).unwrap();
    }

    fn let_pass(&self) {
        flock(&self.lock, FlockOperation::Unlock).unwrap();
    }

    /// Starts a request of alice's.
    fn ask(&self, words: &str) -> Child {
        Command::new(programs::server())
            .args(["openssh", "--config"])
            .arg(self.forge.config())
            .args(["--as", "alice"])
            .env("SSH_ORIGINAL_COMMAND", format!("collab-lease {words}"))
            .envs(self.clock.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts a request, and waits until it stands in the queue.
    fn queue(&self, words: &str) -> Child {
        let child = self.ask(words);
        while !queues(child.id()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        child
    }
}

/// Whether a process waits for a lock that another one has.
fn queues(pid: u32) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    // 1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"->") && words.get(5) == Some(&pid.to_string().as_str())
    })
}

fn end(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn reply(child: Child) -> Value {
    let output = end(child);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The client's connection broke, and it asks again while the server still works
/// on the first request.
#[test]
fn a_retry_beside_its_first_try_gets_the_same_issue() {
    let queue = Queue::new();
    queue.stand_first();
    let next = format!("next {REPO} --session s --request r1");
    let tries = [queue.queue(&next), queue.queue(&next)];
    queue.let_pass();
    let replies = tries.map(reply);
    for reply in &replies {
        assert_eq!(reply["issue"], issue::CRASH);
        assert_eq!(reply["token"], 1);
    }
    let mut tenures = replies.map(|reply| reply["tenure"].to_string());
    tenures.sort();
    assert_eq!(tenures, ["\"new\"", "\"own\""]);
}

#[test]
fn ones_own_claim_that_runs_out_is_taken_again_only_if_the_issue_is_open() {
    for is_closed in [false, true] {
        let queue = Queue::new();
        let acquire = format!("acquire {REPO} {} --session s --ttl 60", issue::CRASH);
        let taken = reply(queue.ask(&acquire));
        queue.stand_first();
        let again = queue.queue(&acquire);
        queue.clock.turn(3_600);
        if is_closed {
            let repo = queue.forge.repos().join(REPO);
            close_issue(&repo, &format!("refs/issues/{}", issue::CRASH));
        }
        queue.let_pass();
        let output = end(again);
        if is_closed {
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(stderr.contains("is closed"), "{stderr}");
        } else {
            let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(
                (&reply["token"], &reply["tenure"]),
                (&2.into(), &"new".into())
            );
            assert_eq!(reply["title"], taken["title"]);
        }
    }
}

//! What happens while a request stands in the queue before the ledger: what it
//! had looked at may be otherwise when it is its turn.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::clock::Clock;
use crate::support::forge::{Forge, REPO, children, close_issue};
use crate::support::{eventually, issue, programs};

/// A forge whose ledger is somebody else's to change for now.
struct Queue {
    forge: Forge,
    clock: Clock,
    lock: File,
}

impl Queue {
    fn new() -> Queue {
        Queue::before(Forge::without_sshd("\twrite = *\n"))
    }

    /// The one before the ledger of `forge`.
    fn before(forge: Forge) -> Queue {
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
        eventually("the request's wait", || queues(child.id()));
        child
    }

    /// The server of sshd's that stands in the queue, once there is one.
    fn waiting(&self) -> u32 {
        let waiting = || self.forge.servers().into_iter().find(|pid| queues(*pid));
        eventually("the request's wait", || waiting().is_some());
        waiting().unwrap()
    }
}

/// Where the terminal has gone nobody is impatient any more, and what only a
/// command knows means nothing to us.
#[test]
fn a_hangup_does_not_keep_run_from_giving_back() {
    let queue = Queue::before(Forge::new());
    let alice = queue.forge.client("alice");
    let go = alice.dir().join("go");
    let work = "until [ -e go ]; do sleep 0.02; done";
    let mut run = alice.person().std_command("git-claim", alice.dir());
    run.args(["run", "ae1c051b", "-t", "1h", "--", "sh", "-c", work]);
    let mut run = run.spawn().unwrap();
    let is_held = || alice.json("git claims", 0)["leases"] != json!([]);
    eventually("the claim", is_held);
    queue.stand_first();
    fs::write(go, "").unwrap();
    queue.waiting();
    let pid = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
    for signal in [Signal::HUP, Signal::USR1, Signal::HUP] {
        kill_process(pid, signal).unwrap();
    }
    queue.let_pass();
    assert!(run.wait().unwrap().success());
    assert!(!is_held());
}

/// Whether any process has the other end of the pipe that this one writes to.
fn is_read(pid: u32) -> bool {
    let Ok(stdout) = fs::read_link(format!("/proc/{pid}/fd/1")) else {
        return false;
    };
    let processes = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let mut open = processes
        .filter_map(|process| fs::read_dir(process.path().join("fd")).ok())
        .flatten()
        .map_while(Result::ok);
    open.any(|file| {
        let reads = fs::symlink_metadata(file.path()).is_ok_and(|end| end.mode() & 0o400 != 0);
        reads && fs::read_link(file.path()).is_ok_and(|pipe| pipe == stdout)
    })
}

/// Whether a process has ended, be it that nobody has asked how.
fn has_ended(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}

/// What a client asks for that goes away meanwhile, by itself or with its login.
fn asked(client: &Client) -> [(&'static str, Command, String); 4] {
    let person = client.person();
    let ssh = |words: String| {
        let mut ssh = person.std_command("ssh", client.dir());
        ssh.args(["forge", &words]);
        ssh
    };
    let mut claim = person.std_command("git-claim", client.dir());
    claim.args(["ae1c", "--ttl", "1h"]);
    let line = format!("{}\n", json!({"op":"acquire","issue":"ae1c","session":"s"}));
    [
        (
            "a login's only request",
            ssh(format!("collab-lease acquire {REPO} ae1c --session s")),
            String::new(),
        ),
        (
            "one of many over a login that stays",
            client.std_ssh(format!("collab-lease next {REPO} --session s")),
            String::new(),
        ),
        (
            "a line of serve",
            ssh(format!("collab-lease serve {REPO}")),
            line,
        ),
        ("git claim", claim, String::new()),
    ]
}

/// Lets a client go whose request waits, and then the request have its turn;
/// whether it had one.
fn goes_while_it_waits(queue: &Queue, ask: &mut Command, sent: &str) -> bool {
    queue.stand_first();
    let mut client = ask
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(sent.as_bytes()).unwrap();
    let server = queue.waiting();
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("the end of its session", || !is_read(server));
    let waits = queues(server);
    queue.let_pass();
    eventually("the end of the server", || has_ended(server));
    waits
}

/// It may have asked again meanwhile, and been told otherwise.
#[test]
fn a_client_that_has_gone_while_it_waited_gets_nothing() {
    let queue = Queue::before(Forge::new());
    let alice = queue.forge.client("alice");
    let bob = queue.forge.client("bob");
    // A login that stays is there before.
    alice.ok("git claim 862b --ttl 1h");
    for (what, mut ask, sent) in asked(&alice) {
        // A machine that is very busy may let a request run out of time first.
        let waited = (0..3).any(|_| goes_while_it_waits(&queue, &mut ask, &sent));
        assert!(waited, "{what}");
        let left = bob.json("git claims", 0);
        let left = left["leases"].as_array().unwrap();
        assert_eq!(left.len(), 1, "{what}: {left:?}");
        assert_eq!(left[0]["issue"], issue::RETITLED, "{what}");
    }
    let taken = bob.json("git claim ae1c --ttl 1h", 0);
    assert_eq!(taken["token"], 1);
}

/// What was pushed is pushed, whoever is there to hear what it ended.
#[test]
fn a_pusher_that_has_gone_ends_the_claim_that_the_push_is_done_with() {
    let queue = Queue::before(Forge::new());
    queue.forge.set_up_fence();
    let alice = queue.forge.client("alice");
    let name = format!("refs/issues/{}", issue::CRASH);
    alice.ok(&format!("git fetch -q origin {name}:{name}"));
    alice.ok("git claim ae1c --ttl 1h");
    close_issue(alice.dir(), &name);
    queue.stand_first();
    let mut push = alice
        .person()
        .std_command("git", alice.dir())
        .args(["push", "-q", "origin", &name])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hook = queue.waiting();
    let [ssh] = children(push.id())[..] else {
        panic!("git pushes over one ssh");
    };
    kill(ssh);
    push.wait().unwrap();
    queue.let_pass();
    eventually("the end of the hook", || has_ended(hook));
    assert_eq!(alice.json("git claims", 0)["leases"], json!([]));
    let log = alice.json("git claim log ae1c", 0);
    assert_eq!(log["tenures"][0]["how"], "closed");
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
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

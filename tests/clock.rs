//! Clocks that are wrong, or that jump: the server's, which counts, and those of
//! the people who look, which don't.

use serde_json::Value;

use crate::support::client::{Client, stdout};
use crate::support::clock::Clock;
use crate::support::forge::{Forge, REPO, url};
use crate::support::{bound, issue, programs};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// A forge whose clock the test turns.
struct Turned {
    forge: Forge,
    clock: Clock,
}

impl Turned {
    fn new() -> Turned {
        let forge = Forge::with_settings("\twrite = *\n");
        let clock = Clock::new(forge.dir());
        Turned { forge, clock }
    }

    fn client(&self, name: &str) -> Client {
        let command = format!(
            "env {} {} openssh --config {} --as {name}",
            self.clock.assignments(),
            programs::server().display(),
            self.forge.config().display()
        );
        let options = format!("restrict,command=\"{command}\"");
        self.forge
            .person_behind(name, &options)
            .worktree(&url(REPO))
    }
}

/// What the server says to one who only looks.
fn look(client: &Client, words: &str) -> Value {
    let reply = client.verb(words).success();
    serde_json::from_str(&stdout(&reply)).unwrap()
}

#[test]
fn a_clock_set_forward_ends_claims_early_and_leaves_the_rest() {
    let turned = Turned::new();
    let (alice, bob) = (turned.client("alice"), turned.client("bob"));
    alice.ok("git claim ae1c051 --ttl 1h");
    alice.ok("git claim d928666");
    turned.clock.turn(2 * HOUR);
    alice.run("git claim renew ae1c051").code(4);
    assert_eq!(bob.json("git claim ae1c051 --ttl 1h", 0)["token"], 2);
    bob.run("git claim d928666").code(4);
    // And back: it is bob's, and the token goes on from there.
    turned.clock.turn(0);
    alice.run("git claim ae1c051").code(4);
    alice.run("git claim renew ae1c051").code(4);
    bob.ok("git unclaim ae1c051");
    assert_eq!(alice.json("git claim ae1c051", 0)["token"], 3);
}

#[test]
fn a_clock_set_back_lets_live_again_what_nobody_took_or_gave_back() {
    let turned = Turned::new();
    let (alice, bob) = (turned.client("alice"), turned.client("bob"));
    for id in ["ae1c051", "d928666"] {
        alice.ok(&format!("git claim {id} --ttl 1h"));
    }
    turned.clock.turn(2 * HOUR);
    let show = format!("show {REPO} {}", issue::CRASH);
    assert_eq!(look(&bob, &show)["state"], "expired");
    assert_eq!(
        bob.json("git claims", 0)["leases"],
        Value::Array(Vec::new())
    );
    // The one she gives back; the other one was only looked at.
    alice.ok("git unclaim d928666");
    turned.clock.turn(0);
    assert_eq!(look(&bob, &show)["state"], "live");
    let renewed = alice.json("git claim renew ae1c051", 0);
    assert_eq!(renewed["token"], 1);
    assert_eq!(bob.json("git claim d928666", 0)["token"], 2);
}

#[test]
fn the_order_of_claims_is_that_in_which_they_began() {
    let turned = Turned::new();
    let alice = turned.client("alice");
    let ids = [issue::RETITLED, issue::CRASH, issue::UNICODE];
    for (id, off) in ids.iter().zip([HOUR, -HOUR, 0]) {
        turned.clock.turn(off);
        alice.ok(&format!("git claim {id}"));
    }
    let list = alice.json("git claims", 0);
    let listed = list["leases"].as_array().unwrap();
    let listed: Vec<&str> = listed
        .iter()
        .map(|row| row["issue"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ids);
    let log = look(&alice, &format!("log {REPO}"));
    assert_eq!(log["tenures"][0]["issue"], issue::UNICODE);
}

/// What people do and see on a machine whose clock is wrong is what they would
/// on any other.
#[test]
fn the_clock_of_whoever_looks_does_not_count() {
    for off in [-DAY, DAY] {
        let forge = Forge::new();
        let (_, alice) = bound::started(&forge, "alice");
        let bob = forge.client("bob");
        let clock = Clock::new(forge.dir());
        clock.turn(off);
        let types = |client: &Client, line: &str, exit: i32| -> Value {
            let mut words = line.split(' ');
            let mut command = client.command(words.next().unwrap());
            command.args(words).arg("--json").envs(clock.environment());
            serde_json::from_str(&stdout(&command.assert().code(exit))).unwrap()
        };
        let list = types(&bob, "git claims", 0);
        assert_eq!(list["leases"][0]["holder"], "alice", "{off}");
        assert_eq!(types(&bob, "git claim ae1c051", 4)["holder"], "alice");
        assert_eq!(types(&alice, "git claim check", 0)["work_allowed"], true);
        let renewed = types(&alice, "git claim renew ae1c051 --ttl 1h", 0);
        let left = renewed["ttl_left_ms"].as_i64().unwrap();
        assert!((3_590_000..=3_601_000).contains(&left), "{left}");
        assert_eq!(types(&alice, "git claim check", 0)["work_allowed"], true);
    }
}

/// The command runs to its end while the clock of its machine jumps.
#[test]
fn a_worker_is_not_stopped_by_its_clock() {
    let forge = Forge::new();
    let bob = forge.client("bob");
    let clock = Clock::new(forge.dir());
    let [(_, _), (_, file)] = clock.environment();
    let jump = format!("echo {} >{}", 30 * DAY, file.display());
    let mut run = bob.command("git");
    run.args(["claim", "run", "ae1c051", "--ttl", "1h", "--", "sh", "-c"])
        .arg(format!(
            "{jump}; date +%s; git claim renew ae1c051 --ttl 2h"
        ))
        .envs(clock.environment());
    run.assert().success();
    assert_eq!(
        bob.json("git claim log ae1c051", 0)["tenures"][0]["how"],
        "released"
    );
}

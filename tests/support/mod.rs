//! What the end-to-end tests stand on: a forge, people with keys and
//! worktrees, and a look into the ledger.

pub mod before;
pub mod bound;
pub mod broken;
pub mod client;
pub mod clock;
pub mod direct;
pub mod failing_disk;
pub mod forge;
pub mod ledger;
pub mod programs;
pub mod serving;
pub mod session;
pub mod small_disk;
pub mod terminal;
pub mod way;

use std::io::Read as _;
use std::process::Child;
use std::time::{Duration, Instant};

/// Waits for what must happen; how soon is not the test's business.
pub fn eventually(what: &str, happened: impl Fn() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{what} did not happen"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a `--wait --verbose` says on stderr of what it waits for, once it waits.
/// What comes behind that is not read.
pub fn words_of_waiting(waiter: &mut Child) -> String {
    let stderr = waiter.stderr.as_mut().unwrap();
    let mut line = String::new();
    let mut byte = [0];
    while stderr.read(&mut byte).unwrap() == 1 {
        line.push(char::from(byte[0]));
        if line.ends_with('\n') && line.starts_with("waiting") {
            break;
        }
        if line.ends_with('\n') {
            line.clear();
        }
    }
    line
}

/// A random number below `limit`.
pub fn random(limit: u64) -> u64 {
    getrandom::u64().unwrap() % limit
}

/// The six issues of `cases/git-issue.bundle`.
pub mod issue {
    /// Open; a comment's text looks like a trailer that closes it.
    pub const CRASH: &str = "ae1c051b-e411-4fe3-9f28-157f2d8dccc0";
    /// Open; its title is not ASCII.
    pub const UNICODE: &str = "d9286661-44a9-4168-adfe-1536bedd056e";
    /// Closed, and commented on since.
    pub const CLOSED: &str = "ddf35875-8ebc-45c5-a52d-25af90beedd8";
    /// Open; closed once, now in a state of its own.
    pub const REOPENED: &str = "537daeba-8004-48ff-8610-173fd2746dc5";
    /// Open; retitled.
    pub const RETITLED: &str = "862b6f3d-b85f-4e66-80be-0b9fbca77c95";
    /// Open.
    pub const REVIEW: &str = "766dbfeb-37f2-4225-94c3-3be89350adb6";
}

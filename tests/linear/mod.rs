//! Histories of what many clients asked for at once, and whether the answers
//! could have come from one ledger that serves one request after the other.
//!
//! ```text
//! ask      what a client asks for
//! answer   what it is answered, as far as the checker looks at it
//! spec     what one request makes of one issue: the protocol, without I/O
//! check    the checker
//! client   a client that asks at random
//! record   a history in files, which outlives the processes that write it
//! ```
//!
//! Nothing here knows of SQLite, of ssh or of processes: whatever serves the
//! verb can be tried.

pub mod answer;
pub mod ask;
pub mod check;
pub mod client;
pub mod record;
pub mod spec;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use answer::Answer;
use ask::Ask;
use check::Violation;

/// One request of one client, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operation {
    pub ask: Ask,
    /// When it was sent, in nanoseconds.
    pub start: u64,
    /// When the answer was there, and the answer; `None` if the client or the
    /// server was killed before: it may have been done, or may yet be.
    pub answer: Option<(u64, Answer)>,
}

/// A moment on a clock that all processes share, that never jumps and that no
/// test turns: nanoseconds.
pub fn moment() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// How many operations a run has: 20,000, or as many as `make torture` says.
pub fn operations() -> u64 {
    std::env::var("TORTURE_OPERATIONS").map_or(20_000, |count| count.parse().unwrap())
}

/// Ends a test whose history shows what must not be. What led to it can't be had
/// again, so the history is kept.
pub fn give_up(found: &Violation, history: &[Operation]) -> ! {
    let file = std::env::temp_dir().join(format!("git-claim-history-{}", std::process::id()));
    let lines = history
        .iter()
        .map(|op| serde_json::to_string(op).unwrap() + "\n");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    panic!("{found}\nthe history is kept as {}", file.display());
}

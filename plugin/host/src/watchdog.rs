//! Gives a request up that hangs past its deadline.
//!
//! The plugin keeps the deadline wherever it can look at the clock. It cannot
//! while it waits in the ledger's queue, a blocking `flock` on a file that a
//! stopped process may hold, nor in a disk that does not answer; and the client
//! was promised an end. So a small thread waits beside it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use git_claim_api::REQUEST_DEADLINE_MS;

use crate::report::Failure;

/// How much longer than the plugin itself the watchdog waits.
const GRACE: Duration = Duration::from_secs(1);

/// How long a request may take in all.
pub const LIMIT: Duration = Duration::from_millis(REQUEST_DEADLINE_MS as u64).saturating_add(GRACE);

/// The thread only sleeps and prints.
const STACK: usize = 128 * 1024;

/// Runs from its start until the request is answered. Whoever comes first,
/// answer or end of time, wins; the other one stays silent.
#[derive(Debug, Clone)]
pub struct Watchdog {
    stage: Arc<AtomicU8>,
}

/// Nothing was changed.
const LOOKING: u8 = 0;
/// The change is made, or was.
const CHANGING: u8 = 1;
/// Somebody has the end of the request.
const SETTLED: u8 = 2;

impl Watchdog {
    /// Watches nothing, for a request that only looks: it does not queue, and a
    /// thread is a part of its cost.
    pub fn idle() -> Watchdog {
        Watchdog {
            stage: Arc::default(),
        }
    }

    /// Starts to count; at the end the client reads that it has taken too long.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start() -> io::Result<Watchdog> {
        Watchdog::start_with(|failure| failure.print().code())
    }

    /// Starts to count; at the end the process ends with the code that `end`
    /// makes of it.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start_with(end: impl FnOnce(&Failure) -> u8 + Send + 'static) -> io::Result<Watchdog> {
        let watchdog = Watchdog::idle();
        let watching = watchdog.clone();
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .stack_size(STACK)
            .spawn(move || watching.wait(LIMIT, end))?;
        Ok(watchdog)
    }

    /// Claims the end of the request for the caller; `false` if somebody else
    /// has it already.
    pub fn settle(&self) -> bool {
        self.end() != SETTLED
    }

    /// Whether a change may still be made, which from now on it may be.
    pub fn may_change(&self) -> bool {
        let begun =
            self.stage
                .compare_exchange(LOOKING, CHANGING, Ordering::AcqRel, Ordering::Acquire);
        begun != Err(SETTLED)
    }

    /// The stage at which the request comes to its end.
    fn end(&self) -> u8 {
        self.stage.swap(SETTLED, Ordering::AcqRel)
    }

    fn wait(&self, limit: Duration, end: impl FnOnce(&Failure) -> u8) {
        let last = Instant::now() + limit;
        // A thread may wake early.
        while let Some(left) = last.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
        let failure = match self.end() {
            SETTLED => return,
            CHANGING => unsure(),
            _ => busy(),
        };
        std::process::exit(end(&failure).into());
    }
}

/// What a client reads whose request took too long while it was about to be done.
fn unsure() -> Failure {
    Failure::not_now("the ledger has not answered in time; it is not known whether this was done")
        .hint("the same command again tells")
}

/// What a client reads when its request took too long, and nothing was changed.
pub fn busy() -> Failure {
    Failure::not_now("the ledger is busy").hint("try again; repeating the same command is safe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_side_ends_a_request() {
        let watchdog = Watchdog::start().unwrap();
        assert!(watchdog.may_change());
        assert!(watchdog.settle());
        assert!(!watchdog.settle());
    }

    #[test]
    fn what_was_given_up_is_not_changed_and_what_may_be_changed_is_not_known() {
        let watchdog = Watchdog::idle();
        assert_eq!(watchdog.end(), LOOKING);
        assert!(!watchdog.may_change());
        let watchdog = Watchdog::idle();
        assert!(watchdog.may_change() && watchdog.may_change());
        assert_eq!(watchdog.end(), CHANGING);
    }
}

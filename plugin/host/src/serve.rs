//! A connection with many requests on it: what the client sends and is sent, and
//! a look at each request in between that it does not hang.
//!
//! The plugin is at work from when it has read something to when it reads or
//! writes again. As for a single request, only this can be held up by a file
//! that a stopped process has locked, and then the connection ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use git_claim_api::exit::Exit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;

use crate::host::{Input, Output, Stream, reader_has_gone};
use crate::watchdog::LIMIT;

/// How long a read waits for the client before it says that there is nothing
/// for now, so that the plugin can look at what it watches.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// How often the plugin is looked at.
const PATROL: Duration = Duration::from_secs(1);

/// The two directions of the connection.
#[derive(Debug)]
pub struct Line {
    work: Arc<Work>,
}

impl Line {
    /// Takes stdin and stdout over, and starts to look at the plugin.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn open() -> io::Result<Line> {
        let work = Arc::new(Work::new());
        let watched = Arc::clone(&work);
        std::thread::Builder::new()
            .name("watchdog".to_owned())
            .stack_size(128 * 1024)
            .spawn(move || {
                while !watched.is_stuck() {
                    std::thread::sleep(PATROL);
                }
                // Whatever was asked last: its outcome is unknown, and asking
                // again is safe.
                std::process::exit(Exit::NotNow.code().into());
            })?;
        Ok(Line { work })
    }
}

impl Input for Line {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let _rest = self.work.rest();
        let stdin = stdin();
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut polled, Some(&PAUSE)) {
            Ok(0) | Err(Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => Ok(rustix::io::read(stdin, buffer)?),
            Err(error) => Err(error.into()),
        }
    }
}

impl Output for Line {
    fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()> {
        // A client that does not read its replies keeps only itself waiting.
        let _rest = self.work.rest();
        stream.write(data)
    }

    fn is_given_up(&self) -> bool {
        reader_has_gone()
    }
}

/// Since when the plugin has been at work.
#[derive(Debug)]
struct Work {
    begun: Instant,
    /// Milliseconds after `begun`; [`RESTING`] while it is not.
    since: AtomicU64,
}

const RESTING: u64 = u64::MAX;

impl Work {
    fn new() -> Work {
        Work {
            begun: Instant::now(),
            since: AtomicU64::new(0),
        }
    }

    /// It rests until the answer is dropped.
    fn rest(&self) -> Rest<'_> {
        self.since.store(RESTING, Ordering::Release);
        Rest(self)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(RESTING)
    }

    fn is_stuck(&self) -> bool {
        let since = self.since.load(Ordering::Acquire);
        let limit = u64::try_from(LIMIT.as_millis()).unwrap_or(RESTING);
        since != RESTING && self.now().saturating_sub(since) > limit
    }
}

struct Rest<'a>(&'a Work);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.since.store(self.0.now(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_too_long_is_noticed_and_rest_is_not() {
        let long_ago = Instant::now().checked_sub(LIMIT * 2).unwrap();
        let work = Work {
            begun: long_ago,
            since: AtomicU64::new(0),
        };
        assert!(work.is_stuck());
        let rest = work.rest();
        assert!(!work.is_stuck());
        drop(rest);
        assert!(!work.is_stuck());
    }
}

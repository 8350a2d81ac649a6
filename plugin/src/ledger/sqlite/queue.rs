//! The queue before the ledger: a lock on a side file around each change.
//!
//! SQLite's own busy handler polls, so that whoever comes late or sleeps long
//! may starve. The side file stays, empty: to delete it would let two processes
//! lock two files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::file::side_file;
use crate::ledger::{LedgerError, lock_file};

/// A place from which to wait in line.
#[derive(Debug)]
pub struct Queue(File);

/// The turn of whoever holds it, until dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a File);

impl Queue {
    /// Opens the side file of `ledger`, which is created if need be.
    ///
    /// # Errors
    /// [`LedgerError::Unfit`] if it can't be.
    pub fn open(ledger: &Path) -> Result<Queue, LedgerError> {
        let path = queue_file(ledger);
        lock_file::open(&path)
            .map(Queue)
            .map_err(|error| cannot_queue(ledger, &path, &error))
    }

    /// Whether somebody has the turn before `ledger` now.
    pub fn is_somebodys_turn(ledger: &Path) -> bool {
        File::open(queue_file(ledger)).is_ok_and(|file| {
            flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        })
    }

    /// Waits for its turn. Whoever stands before is served within moments,
    /// unless it was stopped: then this blocks past `deadline`, which the
    /// loader's watchdog ends.
    ///
    /// # Errors
    /// [`LedgerError::Busy`] if it is the turn only after `deadline`.
    pub fn wait(&self, deadline: Instant) -> Result<Turn<'_>, LedgerError> {
        lock_file::wait(&self.0, deadline).map_err(|_| LedgerError::Busy)?;
        let turn = Turn(&self.0);
        if Instant::now() < deadline {
            Ok(turn)
        } else {
            Err(LedgerError::Busy)
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // What can fail here ends with the descriptor at the latest.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// `collab.db` queues at `collab.db-queue`.
fn queue_file(ledger: &Path) -> PathBuf {
    side_file(ledger, "-queue")
}

fn cannot_queue(ledger: &Path, side_file: &Path, error: &io::Error) -> LedgerError {
    if error.kind() == io::ErrorKind::StorageFull {
        return LedgerError::Full(ledger.to_owned());
    }
    LedgerError::Unfit {
        path: ledger.to_owned(),
        why: format!("has no queue: {}: {error}", side_file.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use assert_fs::TempDir;

    use super::*;

    #[test]
    fn one_turn_at_a_time() {
        let dir = TempDir::new().unwrap();
        let ledger = dir.path().join("collab.db");
        let soon = || Instant::now() + Duration::from_secs(10);
        let first = Queue::open(&ledger).unwrap();
        let second = Queue::open(&ledger).unwrap();
        let turn = first.wait(soon()).unwrap();
        let held = flock(&second.0, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(held, Err(Errno::WOULDBLOCK));
        assert!(Queue::is_somebodys_turn(&ledger));
        drop(turn);
        assert!(!Queue::is_somebodys_turn(&ledger));
        drop(second.wait(soon()).unwrap());
        assert!(matches!(
            second.wait(Instant::now()),
            Err(LedgerError::Busy)
        ));
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = TempDir::new().unwrap();
        let ledger = dir.path().join("collab.db");
        std::os::unix::fs::symlink("/dev/null", queue_file(&ledger)).unwrap();
        assert!(matches!(
            Queue::open(&ledger),
            Err(LedgerError::Unfit { .. })
        ));
    }
}

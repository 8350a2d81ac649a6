//! The files that SQLite keeps beside a ledger that is open: its write-ahead log
//! and the log's index. Whoever has others open than the rest of the world
//! neither sees what it writes nor is seen.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use super::file::{FileId, side_file};
use super::queue::Queue;

/// Which files they are; `None` for one that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    log: Option<FileId>,
    index: Option<FileId>,
}

impl Beside {
    /// What is beside the ledger at `path` now.
    pub fn of(path: &Path) -> Beside {
        Beside {
            log: FileId::at(&side_file(path, "-wal")),
            index: FileId::at(&side_file(path, "-shm")),
        }
    }

    pub fn is_complete(self) -> bool {
        self.log.is_some() && self.index.is_some()
    }

    /// Whether others have made one of them anew since it was `before`.
    pub fn is_anew(self, before: Beside) -> bool {
        let anew = |now: Option<FileId>, before| now.is_some() && now != before;
        anew(self.log, before.log) || anew(self.index, before.index)
    }
}

/// What others have done to a ledger that another process has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The log or its index was removed: the other's claims are in them.
    Lost,
    /// The file is another one: what is beside it belongs to the one before.
    Replaced,
}

/// How long a process may take between locking the ledger and having its files
/// there, and back.
const BETWEEN: Duration = Duration::from_secs(2);

/// How long if it has its turn: it may be making the ledger, on a slow disk.
const MAKING: Duration = Duration::from_secs(9);

/// What has happened to the ledger at `path` while another process has it open.
/// Only for a process that has not: see [`is_locked`].
///
/// # Errors
/// A file can't be opened.
pub fn mishap(path: &Path) -> io::Result<Option<Mishap>> {
    let began = Instant::now();
    loop {
        let found = look(path)?;
        // Whoever opens or closes it just now looks the same for a moment.
        let is_clear = match began.elapsed() {
            short if short < BETWEEN => false,
            long => long > MAKING || !Queue::is_somebodys_turn(path),
        };
        if found.is_none() || is_clear {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn look(path: &Path) -> io::Result<Option<Mishap>> {
    if !Beside::of(path).is_complete() {
        return Ok(is_locked(path, LEDGER)?.then_some(Mishap::Lost));
    }
    // Whoever has the index open has the ledger open all the while.
    let is_replaced = is_locked(&side_file(path, "-shm"), INDEX)? && !is_locked(path, LEDGER)?;
    Ok(is_replaced.then_some(Mishap::Replaced))
}

/// The bytes on which whoever has a file open keeps a lock, in SQLite's sources
/// `SHARED_FIRST` and `UNIX_SHM_DMS`.
type Bytes = (u64, u64);
const LEDGER: Bytes = (0x4000_0002, 510);
const INDEX: Bytes = (128, 1);

/// Whether another process has the file open. To close it here drops the locks
/// that this process has on it.
fn is_locked(path: &Path, (start, length): Bytes) -> io::Result<bool> {
    let mut lock = Flock::from(FlockType::WriteLock);
    lock.offset_type = FlockOffsetType::Set;
    (lock.start, lock.length) = (start, length);
    match File::open(path) {
        Ok(file) => Ok(fcntl_getlk(file, &lock)?.is_some()),
        // The last one has just closed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

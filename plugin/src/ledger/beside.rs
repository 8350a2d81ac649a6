//! The files that SQLite keeps beside a ledger that is open: its write-ahead log
//! and the log's index. Whoever has others open than the rest of the world
//! neither sees what it writes nor is seen.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use super::file::FileId;

/// Which files they are; `None` for one that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    log: Option<FileId>,
    index: Option<FileId>,
}

impl Beside {
    /// What is beside the ledger at `path` now.
    pub fn of(path: &Path) -> Beside {
        let at = |ending: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(ending);
            FileId::at(Path::new(&name))
        };
        Beside {
            log: at("-wal"),
            index: at("-shm"),
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

/// How long a process may take between locking the ledger and having its files
/// there, and back.
const BETWEEN: Duration = Duration::from_secs(1);

/// Whether the files of the ledger at `path` were removed while another process
/// has it open. Only for one that has not: see [`is_locked`].
///
/// # Errors
/// The file can't be opened.
pub fn are_lost(path: &Path) -> io::Result<bool> {
    let deadline = Instant::now() + BETWEEN;
    while !Beside::of(path).is_complete() && is_locked(path)? {
        if Instant::now() > deadline {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// Whether another process has the ledger open, by the lock that SQLite keeps on
/// it (`SHARED_FIRST` in its sources). To close the file here would drop those
/// of this process.
fn is_locked(path: &Path) -> io::Result<bool> {
    let mut lock = Flock::from(FlockType::WriteLock);
    lock.offset_type = FlockOffsetType::Set;
    lock.start = 0x4000_0002;
    lock.length = 510;
    Ok(fcntl_getlk(File::open(path)?, &lock)?.is_some())
}

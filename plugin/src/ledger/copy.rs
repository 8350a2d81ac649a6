//! From one ledger to another: `backup` and `migrate`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::EtcdFiles;
use rustix::fs::{FlockOperation, flock};

use super::contents::Contents;
use super::sqlite::file::{self, sync_folder_of};
use super::sqlite::queue::Queue;
use super::{Ledger, LedgerError, When, lock_file, sqlite};

/// Puts `contents` into a new file; answers its number of rows.
///
/// # Errors
/// Also where something is there already.
pub fn to_file(contents: &Contents, file: &Path) -> Result<u64, LedgerError> {
    let unfit = |error: io::Error| LedgerError::Unfit {
        path: file.to_owned(),
        why: format!("cannot be made: {error}"),
    };
    into_new_file(file, unfit, || sqlite::fill(file, contents))?;
    Ok(contents.rows.len() as u64)
}

/// Has `file` made by `write`: nobody else's to read, and on the disk, or not
/// there at all.
///
/// # Errors
/// That of `write`, or `unfit` where the file system fails; also where something
/// is there already.
pub fn into_new_file<T>(
    file: &Path,
    unfit: impl Fn(io::Error) -> LedgerError,
    write: impl FnOnce() -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    // SQLite would make it as the umask says; the ledger is nobody else's.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(&unfit)?;
    let synced = write().and_then(|written| {
        File::open(file)
            .and_then(|made| made.sync_all())
            .and_then(|()| sync_folder_of(file))
            .map_err(&unfit)?;
        Ok(written)
    });
    if synced.is_err() {
        // Half a ledger is none.
        let _ = fs::remove_file(file);
    }
    synced
}

/// What is found where a ledger is to be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Nothing, or what an earlier try has left, or the same ledger before it
    /// had moved away from there.
    Free,
    /// The same ledger, in service.
    Itself,
    /// Another one.
    Another,
}

/// Where a ledger is to be put.
pub trait Target {
    /// What is there of the ledger `id`.
    fn found(&self, id: &str) -> Result<Room, LedgerError>;

    /// Puts `contents` where there is room, out of service; answers what can be
    /// read there then.
    fn fill(&self, contents: &Contents) -> Result<Contents, LedgerError>;

    /// Puts what was filled into service.
    fn open(&self) -> Result<(), LedgerError>;
}

/// Moves all of `from`, which is at `at`, to `to`: from its beginning `from`
/// takes no change any more, and says where it goes. `to` is put into service in
/// one last step, once it was compared. What was broken off can be done again.
///
/// # Errors
/// `to` has another ledger, or can't be reached.
#[cfg_attr(not(feature = "etcd"), allow(unused_variables))] // a file takes no `files`
pub fn migrate(
    from: &dyn Ledger,
    at: &LedgerPlace,
    to: &LedgerPlace,
    files: &EtcdFiles,
    when: When<'_>,
) -> Result<u64, LedgerError> {
    // Whoever was broken off may still be at it.
    let _alone = at.file().map(alone).transpose()?;
    match to {
        LedgerPlace::File(path) => {
            file::check(path)?;
            // Nobody else puts a ledger there meanwhile.
            let queue = Queue::open(path)?;
            let _turn = queue.wait(when.deadline)?;
            carry(from, to, &sqlite::Target { path, when }, when)
        }
        #[cfg(feature = "etcd")]
        LedgerPlace::Etcd(place) => {
            let target = super::etcd::Target::new(place, files, at, when)?;
            carry(from, to, &target, when)
        }
        #[cfg(not(feature = "etcd"))]
        LedgerPlace::Etcd(place) => Err(super::without_etcd(place)),
    }
}

/// A lock on a side file of a ledger that is being moved.
fn alone(path: &Path) -> Result<File, LedgerError> {
    let unfit = |why: String| LedgerError::Unfit {
        path: path.to_owned(),
        why,
    };
    let lock = lock_file::open(&file::side_file(path, "-moving"))
        .map_err(|error| unfit(format!("cannot be moved: {error}")))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(unfit("is being moved already".to_owned())),
    }
}

/// Never are both in service: `from` is put back only where it is known that
/// `target` was not opened.
fn carry(
    from: &dyn Ledger,
    to: &LedgerPlace,
    target: &dyn Target,
    when: When<'_>,
) -> Result<u64, LedgerError> {
    let was_in_service = from.retire(when, Some(&to.to_string()))?;
    let put_back = |error| {
        from.retire(when, None)
            .map_or_else(|failed| failed, |_| error)
    };
    let is_open_perhaps = !was_in_service;
    let looked = from
        .contents(when)
        .and_then(|contents| Ok((target.found(&contents.id)?, contents)));
    let (found, contents) = match looked {
        Ok(looked) => looked,
        Err(error) if is_open_perhaps => return Err(error),
        Err(error) => return Err(put_back(error)),
    };
    let rows = contents.rows.len() as u64;
    let unfit = |why: String| LedgerError::Unfit {
        path: PathBuf::from(to.to_string()),
        why,
    };
    match found {
        Room::Free => {}
        // An earlier try came that far, and was not heard of.
        Room::Itself if is_open_perhaps => return Ok(rows),
        Room::Itself | Room::Another => {
            return Err(put_back(unfit("has another ledger already".to_owned())));
        }
    }
    let filled = target.fill(&contents).and_then(|filled| {
        let difference = contents.differs_from(&filled);
        difference.map_or(Ok(()), |what| {
            Err(unfit(format!("differs from what was moved there: {what}")))
        })
    });
    match filled {
        Ok(()) => target.open().map(|()| rows),
        // Another try has begun, and goes on with it.
        Err(LedgerError::Busy) => Err(LedgerError::Busy),
        Err(error) => Err(put_back(error)),
    }
}

/// Why a ledger that has moved to `place` can't be moved from here.
pub fn moved_on(place: &str) -> String {
    format!("has moved to {place}; move it from there")
}

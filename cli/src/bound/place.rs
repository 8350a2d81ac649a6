//! The folder of a worktree while a call of ours works on it. Two calls never
//! make or bind the same one, and who looks for the worktree of a claim does not
//! take one that is not finished for one that is gone.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use git_claim_api::text::escape;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::copy;
use super::journal::Journal;
use super::repository::{Repository, is_absent};
use crate::session;

/// The folder, which no other call of ours works on while this is kept.
#[derive(Debug)]
pub struct Place {
    pub path: PathBuf,
    /// Whether this call has made it.
    pub is_ours: bool,
    #[allow(dead_code)]
    lock: Option<File>,
}

/// Why a folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum NoPlace {
    #[error("another `git claim` is at work in {}", shown(.0))]
    Busy(PathBuf),
    #[error("{} cannot be made: {error}", shown(path))]
    Unmade {
        path: PathBuf,
        error: std::io::Error,
    },
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

impl Place {
    /// The folder `path`, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or somebody else is at work in it.
    pub fn take(path: &Path, journal: &mut Journal) -> Result<Place, NoPlace> {
        let is_ours = journal.make_folder(path).map_err(|error| NoPlace::Unmade {
            path: path.to_owned(),
            error,
        })?;
        let place = |lock| Place {
            path: path.to_owned(),
            is_ours,
            lock,
        };
        // Where the file system has no locks, everybody is alone.
        let Ok(folder) = File::open(path) else {
            return Ok(place(None));
        };
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(NoPlace::Busy(path.to_owned())),
            _ => Ok(place(Some(folder))),
        }
    }
}

/// Whether a call of ours is at work in a folder.
fn is_busy(path: &Path) -> bool {
    File::open(path).is_ok_and(|folder| {
        flock(&folder, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// What has become of the worktree of a claim, as far as this machine can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Somebody may go on there, or is just making it.
    InUse,
    /// Nobody can go on with the claim there.
    Gone,
    /// It cannot be seen.
    Unknown,
}

/// What has become of the worktree of a claim on `issue` in `session`, which
/// was at `path`.
pub fn fate(path: &Path, issue: &str, session: Option<&str>) -> Fate {
    if is_absent(path) {
        return Fate::Gone;
    }
    if is_busy(path) {
        return Fate::InUse;
    }
    match Repository::at(path) {
        Ok(found) if acts_as(&found, issue, session) => Fate::InUse,
        // What git finds may be a repository around it.
        Ok(_) => Fate::Gone,
        Err(_) if is_no_worktree(path) => Fate::Gone,
        Err(_) => Fate::Unknown,
    }
}

/// Whether a worktree acts as a claim's session, or has a record that names it.
pub fn acts_as(worktree: &Repository, issue: &str, session: Option<&str>) -> bool {
    session.is_some_and(|session| {
        session::known(&worktree.git_dir)
            .ok()
            .flatten()
            .is_some_and(|known| known.as_str() == session)
            || copy::is_named(&worktree.git_dir, issue, session)
    })
}

fn is_no_worktree(path: &Path) -> bool {
    let kind = |path: &Path| path.symlink_metadata().map_err(|error| error.kind());
    matches!(
        kind(&path.join(".git")),
        Err(ErrorKind::NotFound | ErrorKind::NotADirectory)
    )
}

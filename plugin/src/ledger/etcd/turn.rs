//! Front ends meet in etcd; the processes of one front end meet here first.
//!
//! Whoever is about to change an issue takes its turn by a lock on an empty
//! file of this machine. Without it 32 processes that want the same issue would
//! have 31 of every 32 transactions refused. It is a courtesy, not a safeguard:
//! where no file can be had, etcd's guards do alone.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, DirBuilder, File};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::Instant;

use git_claim_api::ids::IssueId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::super::lock_file;

/// How many files all issues share.
const FILES: u64 = 64;

/// The turn of whoever holds it, until dropped.
#[derive(Debug)]
pub struct Turn {
    _file: File,
    /// Others were before.
    pub has_waited: bool,
}

/// Waits for the turn at an issue; `None` where there is no queue. Whoever is
/// before has a deadline too.
pub fn take(ledger: &str, repo: &str, issue: &IssueId, deadline: Instant) -> Option<Turn> {
    let mut hasher = DefaultHasher::new();
    (ledger, repo, issue).hash(&mut hasher);
    let name = format!("{:02}", hasher.finish() % FILES);
    let file = lock_file::open(&folder()?.join(name)).ok()?;
    let has_waited = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => false,
        Err(Errno::WOULDBLOCK) => lock_file::wait(&file, deadline).map(|()| true).ok()?,
        Err(_) => return None,
    };
    Some(Turn {
        _file: file,
        has_waited,
    })
}

/// A folder that is this user's alone.
fn folder() -> Option<PathBuf> {
    let user = geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("git-claim-turns-{user}"));
    // It may be there already.
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    let found = fs::symlink_metadata(&folder).ok()?;
    (found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0).then_some(folder)
}

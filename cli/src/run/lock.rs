//! One run of a claim at a time in a worktree: a lock on a file in its git
//! directory, held by the wrapper and by its watchdog until both have ended.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::Context as _;
use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::text::escape;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::client::Client;
use crate::error::{Failure, Result};

/// Locks `issue`, by its full id, in the worktree.
///
/// # Errors
/// Another run has it, or there can be no lock.
pub fn lock(client: &Client, issue: &IssueId) -> Result<File> {
    let folder = client.tokens().folder().to_owned();
    let path = folder.join(format!("{issue}.run"));
    let file = fs::create_dir_all(&folder)
        .and_then(|()| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
        })
        .with_context(|| format!("{} cannot be opened", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Failure::new(
            Exit::Conflict,
            format!(
                "a command of another `git claim run` works on {} in this worktree",
                escape(issue.as_str())
            ),
        )
        .hint("wait until it has ended; `git claim run --next` takes another issue")),
        Err(error) => Err(Failure::error(format!(
            "{} cannot be locked: {error}",
            path.display()
        ))),
    }
}

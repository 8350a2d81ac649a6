//! What the plugin asks of the program that loaded it, as safe Rust: which
//! repository is meant, who may do what there, and where output goes.

use std::io::{self, Write as _};
use std::path::PathBuf;

use git_claim_api::access::Access;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdout;

use crate::post_claim;

/// The answers about repositories and rights, for one request.
pub trait Host {
    /// The permanent id of the repository that the user typed as `name`, the
    /// same for every spelling. `None` also where the user may not know of it.
    fn resolve_repo(&self, name: &str) -> Option<String>;

    /// Whether the request's principal has `access` to this repository.
    fn authorize(&self, repo_id: &str, access: Access) -> bool;

    /// The absolute path of the repository's git directory.
    fn repo_path(&self, repo_id: &str) -> Option<PathBuf>;

    /// A change of a claim in this repository, as JSON, after it is durable.
    fn event(&self, repo_id: &str, json: &str) {
        if let Some(path) = self.repo_path(repo_id) {
            post_claim::tell(&path, json);
        }
    }

    /// Whether issues live at the host, and not in the repository.
    fn has_tracker(&self) -> bool {
        false
    }

    /// One issue of the host's own tracker, as `resolve_issue` of the ABI gives
    /// it. `None`: there is none, or not for the principal.
    ///
    /// # Errors
    /// The tracker could not be read.
    fn resolve_issue(&self, _repo_id: &str, _issue: &str) -> Result<Option<String>, Unreadable> {
        Ok(None)
    }
}

/// The host's own tracker could not be read; the log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// One of a request's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Writes all of `data` to the program's own.
    ///
    /// # Errors
    /// The reader has gone.
    pub fn write(self, data: &[u8]) -> io::Result<()> {
        match self {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(data)?;
                stdout.flush()
            }
            Stream::Stderr => io::stderr().lock().write_all(data),
        }
    }
}

/// Whether nobody has the other end of the program's stdout any more, as when a
/// session of sshd's is over. sshd does not end what ran in it.
pub fn reader_has_gone() -> bool {
    let stdout = stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP;
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(gone)
}

/// Where what a request reads comes from.
pub trait Input {
    /// Reads some of it; 0 at its end.
    ///
    /// # Errors
    /// It cannot be read, or with [`io::ErrorKind::WouldBlock`] there is nothing
    /// for now.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

/// For requests that read nothing.
#[derive(Debug, Clone, Copy)]
pub struct NoInput;

impl Input for NoInput {
    fn read(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

/// Where a request's output goes.
pub trait Output {
    /// Writes all of `data`.
    ///
    /// # Errors
    /// The reader has gone, or the request was given up.
    fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()>;

    /// Whether a change would be for nobody any more: the reader has gone, or was
    /// told that it is too late. Asked right before one is made.
    fn is_given_up(&self) -> bool {
        false
    }
}

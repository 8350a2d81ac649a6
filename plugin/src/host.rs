//! What the plugin asks of the forge that loaded it.

use std::path::PathBuf;

use git_claim_api::access::Access;

/// Why the host did not answer with what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostError {
    /// No such thing, or not the asker's to know.
    NotFound,
    /// The host failed, or broke the contract; a status of the ABI.
    Failed(i32),
}

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What there is to read of what the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// So many bytes were read, at least one.
    Bytes(usize),
    /// Nothing for now; the host does not wait any longer.
    NotYet,
    End,
}

/// How much a line in the host's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
}

/// The forge, during one call.
pub trait Host {
    /// Milliseconds since the Unix epoch, by the server's clock.
    fn now_ms(&self) -> i64;

    fn log(&self, level: Level, line: &str);

    /// The permanent id of the repository that the user named.
    ///
    /// # Errors
    /// [`HostError::NotFound`] also where the user may not know of it.
    fn resolve_repo(&self, name: &str) -> Result<String, HostError>;

    fn authorize(&self, repo: &str, access: Access) -> bool;

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The peer has gone.
    fn write(&self, stream: Stream, data: &[u8]) -> Result<(), HostError>;

    /// Reads some of what the peer sends. A host that cannot is at the end.
    ///
    /// # Errors
    /// The peer has gone.
    fn read(&self, _buffer: &mut [u8]) -> Result<Input, HostError> {
        Ok(Input::End)
    }

    /// Whether the peer has gone or the host is stopping; asked right before a
    /// change is made.
    fn is_cancelled(&self) -> bool;

    /// The repository's git directory; `None` where the host has none on this
    /// disk.
    ///
    /// # Errors
    /// The host's.
    fn repo_path(&self, repo: &str) -> Result<Option<PathBuf>, HostError>;

    /// Whether the host has a tracker of its own.
    fn has_tracker(&self) -> bool;

    /// The issue in the host's own tracker, as JSON.
    ///
    /// # Errors
    /// [`HostError::NotFound`]: there is no such issue, or no tracker.
    fn resolve_issue(&self, repo: &str, issue: &str) -> Result<String, HostError>;

    /// Whether the host wants to be told of changes.
    fn hears_events(&self) -> bool {
        false
    }

    /// Tells the host of a change that is durable, as JSON.
    ///
    /// # Errors
    /// The host's; it changes nothing.
    fn event(&self, _json: &str) -> Result<(), HostError> {
        Ok(())
    }
}

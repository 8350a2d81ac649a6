//! What the plugin answers to the loader itself, which reads it instead of
//! passing it on.

use std::cell::RefCell;
use std::io;

use serde::de::DeserializeOwned;

use crate::host::{Output, Stream};
use crate::report::Failure;

/// An answer, kept.
#[derive(Debug, Default)]
pub struct Kept {
    stdout: RefCell<Vec<u8>>,
    stderr: RefCell<Vec<u8>>,
}

impl Kept {
    /// The reply.
    ///
    /// # Errors
    /// It is not what was asked for.
    pub fn reply<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.stdout.borrow()).map_err(Failure::not_now)
    }

    /// The first line of the plugin's complaint, without its `error: `.
    pub fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr.borrow()).into_owned();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    }
}

impl Output for Kept {
    fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()> {
        let into = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        into.borrow_mut().extend_from_slice(data);
        Ok(())
    }
}

//! What the wrapper and its watchdog say to each other: JSON, one object a line.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::lease::Lease;
use super::processes::Process;

/// From the wrapper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start the command, on a claim that lives until then. `freeze`: stop it,
    /// and do not end it, where the claim runs out.
    Start { lease: Lease, freeze: bool },
    /// The claim lives on.
    Live(Lease),
    /// The claim is lost: the command must end now.
    Lost,
    /// A signal for the command.
    Signal(i32),
}

/// From the watchdog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Started(Process),
    /// With the number of the error.
    NotStarted(Option<i32>),
    /// The command and all its descendants are gone.
    Ended(Ended),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// As a shell says it: its exit code, or 128 + the signal's number.
    pub code: u8,
    /// Whether it was made to end, as the claim ended.
    pub made_to: bool,
}

/// The lines that come out of a pipe in pieces.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Adds what came; the messages that are whole now. What cannot be read is
    /// left out: both ends are the same program.
    pub fn add<T: DeserializeOwned>(&mut self, bytes: &[u8]) -> Vec<T> {
        self.partial.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            messages.extend(serde_json::from_slice(&line).ok());
        }
        messages
    }
}

/// A message as it is sent.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    // Messages of numbers always have a JSON form.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_pieces() {
        let sent = [Order::Signal(15), Order::Lost];
        let bytes: Vec<u8> = sent.iter().flat_map(line).collect();
        let mut lines = Lines::default();
        let mut got: Vec<Order> = Vec::new();
        for byte in bytes {
            got.extend(lines.add::<Order>(&[byte]));
        }
        assert_eq!(got, sent);
    }
}

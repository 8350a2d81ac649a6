//! The lines that a peer sends, each of a bounded length.

use git_claim_api::push::Push;

use crate::host::{Host, HostError, Input};

/// The longest line, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// How much is read at once, in bytes.
const PIECE: usize = 8 * 1024;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// A line without its end.
    Line(Vec<u8>),
    /// Nothing for now.
    NotYet,
    /// Nothing any more; a last line without an end has come before.
    End,
}

/// Why there is no next line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    #[error("a line is longer than {LONGEST} bytes")]
    TooLong,
    #[error("a line is not what it should be: {0}")]
    NotUnderstood(String),
    #[error("the peer has gone")]
    Gone,
}

impl From<HostError> for BadInput {
    fn from(_: HostError) -> BadInput {
        BadInput::Gone
    }
}

/// The input of a call, line by line.
pub struct Lines<'a> {
    host: &'a dyn Host,
    /// What has been read; consumed up to `begin`.
    buffer: Vec<u8>,
    begin: usize,
    /// Up to here there is no end of a line.
    searched: usize,
    ended: bool,
}

impl<'a> Lines<'a> {
    pub fn of(host: &'a dyn Host) -> Lines<'a> {
        Lines {
            host,
            buffer: Vec::new(),
            begin: 0,
            searched: 0,
            ended: false,
        }
    }

    /// The next line, as far as there is one.
    ///
    /// # Errors
    /// It is too long, or the peer has gone.
    pub fn next(&mut self) -> Result<Next, BadInput> {
        loop {
            if let Some(length) = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n')
            {
                let end = self.searched + length;
                let line = self.take(end);
                self.begin = end + 1;
                self.searched = self.begin;
                return line;
            }
            self.searched = self.buffer.len();
            if self.searched - self.begin > LONGEST {
                return Err(BadInput::TooLong);
            }
            if self.ended {
                if self.begin == self.buffer.len() {
                    return Ok(Next::End);
                }
                let line = self.take(self.buffer.len());
                self.begin = self.buffer.len();
                return line;
            }
            match self.fill()? {
                Input::Bytes(_) => {}
                Input::NotYet => return Ok(Next::NotYet),
                Input::End => self.ended = true,
            }
        }
    }

    fn take(&self, end: usize) -> Result<Next, BadInput> {
        let line = &self.buffer[self.begin..end];
        if line.len() > LONGEST {
            return Err(BadInput::TooLong);
        }
        Ok(Next::Line(line.to_vec()))
    }

    /// Reads on, behind what is not consumed yet.
    fn fill(&mut self) -> Result<Input, BadInput> {
        self.buffer.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + PIECE, 0);
        let input = self.host.read(&mut self.buffer[length..]);
        let got = match input {
            Ok(Input::Bytes(got)) => got,
            _ => 0,
        };
        self.buffer.truncate(length + got);
        Ok(input?)
    }
}

/// The push that a hook tells of.
///
/// # Errors
/// [`BadInput`].
pub fn push(host: &dyn Host) -> Result<Push, BadInput> {
    let mut lines = Lines::of(host);
    let mut push = Push::default();
    loop {
        match lines.next()? {
            Next::Line(line) => {
                let fact = serde_json::from_slice(&line);
                push.learn(fact.map_err(|error| BadInput::NotUnderstood(error.to_string()))?);
            }
            Next::NotYet => {}
            Next::End => return Ok(push),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use git_claim_api::access::Access;

    use super::*;
    use crate::host::{Level, Stream};

    /// A host whose peer sends `pieces`; an empty one is a pause.
    struct Peer(RefCell<std::vec::IntoIter<Vec<u8>>>);

    impl Peer {
        fn sends(pieces: &[&[u8]]) -> Peer {
            let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
            Peer(RefCell::new(pieces.into_iter()))
        }
    }

    impl Host for Peer {
        fn now_ms(&self) -> i64 {
            0
        }
        fn log(&self, _: Level, _: &str) {}
        fn resolve_repo(&self, _: &str) -> Result<String, HostError> {
            Err(HostError::NotFound)
        }
        fn authorize(&self, _: &str, _: Access) -> bool {
            false
        }
        fn write(&self, _: Stream, _: &[u8]) -> Result<(), HostError> {
            Ok(())
        }
        fn read(&self, buffer: &mut [u8]) -> Result<Input, HostError> {
            match self.0.borrow_mut().next() {
                None => Ok(Input::End),
                Some(piece) if piece.is_empty() => Ok(Input::NotYet),
                Some(piece) => {
                    buffer[..piece.len()].copy_from_slice(&piece);
                    Ok(Input::Bytes(piece.len()))
                }
            }
        }
        fn is_cancelled(&self) -> bool {
            false
        }
        fn repo_path(&self, _: &str) -> Result<Option<PathBuf>, HostError> {
            Ok(None)
        }
        fn has_tracker(&self) -> bool {
            false
        }
        fn resolve_issue(&self, _: &str, _: &str) -> Result<String, HostError> {
            Err(HostError::NotFound)
        }
    }

    #[test]
    fn lines_come_whole_however_they_were_sent() {
        let peer = Peer::sends(&[b"a", b"", b"b\nc\n\nd", b"", b"e"]);
        let mut lines = Lines::of(&peer);
        let line = |text: &[u8]| Ok(Next::Line(text.to_vec()));
        for expected in [
            Ok(Next::NotYet),
            line(b"ab"),
            line(b"c"),
            line(b""),
            Ok(Next::NotYet),
            line(b"de"),
            Ok(Next::End),
            Ok(Next::End),
        ] {
            assert_eq!(lines.next(), expected);
        }
    }

    #[test]
    fn a_line_may_be_as_long_as_the_limit_and_no_longer() {
        let piece = vec![b'x'; PIECE];
        let mut pieces = vec![piece.as_slice(); LONGEST / PIECE];
        pieces.push(b"\n");
        assert_eq!(
            Lines::of(&Peer::sends(&pieces)).next(),
            Ok(Next::Line(vec![b'x'; LONGEST]))
        );
        pieces.insert(0, b"x");
        let peer = Peer::sends(&pieces);
        assert_eq!(Lines::of(&peer).next(), Err(BadInput::TooLong));
    }
}

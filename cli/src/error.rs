//! What can go wrong in front of a user: of which kind, in which words, and
//! what to do next.

use git_claim_api::exit::Exit;
use serde_json::Value;

/// The result of everything that a command does.
pub type Result<T> = std::result::Result<T, Failure>;

/// What kind of failure this is. The kind decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A command's exit code as the protocol has it.
    Exit(Exit),
    /// A signal ended the call; shells expect 128 + its number.
    Interrupted(u8),
}

impl Kind {
    /// What the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Kind::Exit(exit) => exit.code(),
            Kind::Interrupted(signal) => 128 + signal,
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Exit(Exit::Done) => "done",
            Kind::Exit(Exit::Error) => "error",
            Kind::Exit(Exit::Usage) => "usage",
            Kind::Exit(Exit::Nothing) => "nothing",
            Kind::Exit(Exit::Conflict) => "conflict",
            Kind::Exit(Exit::NotNow) => "not-now",
            Kind::Exit(Exit::NoVerb) => "no-verb",
            Kind::Interrupted(_) => "interrupted",
        }
    }
}

/// A failure, as it is told to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    /// A lower-case fragment: what was wrong.
    pub message: String,
    /// What to do next; a command that works, where there is one.
    pub hint: Option<String>,
    /// The command's own reply in JSON, where it found out what it was asked
    /// for, and that is a failure.
    pub reply: Option<Value>,
}

impl Failure {
    /// A failure with this exit code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure {
            kind: Kind::Exit(exit),
            message: message.into(),
            hint: None,
            reply: None,
        }
    }

    /// Something that this machine or the request itself got wrong (exit 1).
    pub fn error(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Error, message)
    }

    /// A command line that was not understood (exit 2).
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// The server could not be asked, or not now (exit 6).
    pub fn not_now(message: impl Into<String>) -> Failure {
        Failure::new(Exit::NotNow, message)
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::error(format!("{error:#}"))
    }
}

//! What can go wrong in front of a user: of which kind, in which words, and
//! what to do next.

use git_claim_api::exit::Exit;
use serde_json::Value;

use crate::interrupt;

/// The result of everything that a command does.
pub type Result<T> = std::result::Result<T, Failure>;

/// What kind of failure this is. The kind decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A command's exit code as the protocol has it.
    Exit(Exit),
    /// The connection ended before an answer came: what was asked may have been
    /// done (exit 6).
    Unsure,
    /// The same outcomes of `git claim run`, apart from those of its command:
    /// 100 + the code.
    OfRun(Exit),
    /// The claim was lost while the command of `git claim run` ran.
    Lost,
    /// The command of `git claim run` could not be started; as a shell says it.
    NotStarted(u8),
    /// A signal ended the call; shells expect 128 + its number.
    Interrupted(u8),
}

impl Kind {
    /// What the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Kind::Exit(exit) => exit.code(),
            Kind::Unsure => Exit::NotNow.code(),
            Kind::OfRun(exit) => OF_RUN + exit.code(),
            Kind::Lost => OF_RUN + 5,
            Kind::NotStarted(code) => code,
            Kind::Interrupted(signal) => 128 + signal,
        }
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Exit(exit) | Kind::OfRun(exit) => match exit {
                Exit::Done => "done",
                Exit::Error => "error",
                Exit::Usage => "usage",
                Exit::Nothing => "nothing",
                Exit::Conflict => "conflict",
                Exit::NotNow => "not-now",
                Exit::NoVerb => "no-verb",
            },
            Kind::Unsure => "not-now",
            Kind::Lost => "lost",
            Kind::NotStarted(_) => "not-started",
            Kind::Interrupted(_) => "interrupted",
        }
    }

    /// Whether the server could not be asked, or not now; asking again may find
    /// another answer.
    pub fn is_not_now(self) -> bool {
        matches!(self, Kind::Unsure | Kind::Exit(Exit::NotNow))
    }

    /// The kind as `git claim run` has it.
    pub fn of_run(self) -> Kind {
        match self {
            Kind::Exit(exit) => Kind::OfRun(exit),
            Kind::Unsure => Kind::OfRun(Exit::NotNow),
            other => other,
        }
    }
}

/// What `git claim run` adds to the exit codes of its own outcomes.
const OF_RUN: u8 = 100;

/// The exit codes of `git claim run` and what they mean, for the manual.
pub fn codes_of_run() -> Vec<(String, &'static str)> {
    let of_command = [
        ("n", "the command's own exit code"),
        ("126, 127", "the command could not be run, or was not found"),
        ("128 + n", "the signal n ended the command"),
    ];
    let lost = (
        Kind::Lost,
        "the claim was lost while the command ran, and the command was ended",
    );
    let own = Exit::ALL.into_iter().filter(|exit| *exit != Exit::Done);
    let mut own: Vec<_> = own
        .map(|exit| (Kind::OfRun(exit), exit.meaning()))
        .chain([lost])
        .map(|(kind, meaning)| (kind.code().to_string(), meaning))
        .collect();
    own.sort();
    let of_command = of_command.map(|(code, meaning)| (code.to_owned(), meaning));
    of_command.into_iter().chain(own).collect()
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
        Failure::of_kind(Kind::Exit(exit), message)
    }

    /// A failure of this kind.
    pub fn of_kind(kind: Kind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
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

    /// Nobody knows whether it was done (exit 6).
    pub fn unsure(message: impl Into<String>) -> Failure {
        let hint = "it may have been done; trying again is safe, and `git claims --mine` tells";
        Failure::of_kind(Kind::Unsure, message).hint(hint)
    }

    /// The same failure as `git claim run` has it.
    pub fn of_run(mut self) -> Failure {
        self.kind = self.kind.of_run();
        self
    }

    /// The same failure of a command that only looks: where it was stopped,
    /// there is nothing that may have been done.
    pub fn of_looking(mut self) -> Failure {
        if matches!(self.kind, Kind::Interrupted(_)) {
            self.hint = None;
        }
        self
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

/// A program that we ran was ended by this signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("git was ended by signal {0}")]
pub struct Killed(pub i32);

impl Killed {
    /// The signal, if it is one that asks to stop: what hits a program that we
    /// run is meant for us too, which Ctrl-C reaches as well.
    fn asks_to_stop(self) -> Option<u8> {
        let signal = u8::try_from(self.0).ok();
        signal.filter(|_| interrupt::asks_to_stop(self.0))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let signal = error
            .downcast_ref::<Killed>()
            .and_then(|killed| killed.asks_to_stop());
        let kind = match signal {
            Some(signal) => Kind::Interrupted(signal),
            None => Kind::Exit(Exit::Error),
        };
        Failure::of_kind(kind, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looked_and_was_stopped_has_nothing_to_look_after() {
        let stopped = Failure::of_kind(Kind::Interrupted(15), "stopped").hint("look");
        assert_eq!(stopped.of_looking().hint, None);
        let other = Failure::not_now("busy").hint("again");
        assert_eq!(other.clone().of_looking(), other);
    }
}

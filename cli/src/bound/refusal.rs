//! Why work may not begin or go on, with the command that helps.

use git_claim_api::exit::Exit;
use git_claim_api::lock::{self, CONTRACT};
use git_claim_api::text::escape;
use serde::Serialize;
use serde_json::{Value, json};

use super::quote::addressed;
use crate::error::{Failure, Kind};

/// What is wrong; in JSON `reason_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    // What `start` meets before it asks for anything.
    NotAllowed,
    IdentityUnresolved,
    NoBaseCommit,
    DefaultBranch,
    DetachedHead,
    WrongBranch,
    BranchInUse,
    PathTaken,
    WorktreeGone,
    WorktreeBound,
    // What its steps meet.
    Refused,
    NothingToTake,
    BranchFailed,
    WorktreeFailed,
    RecordNotStored,
    PushOptionFailed,
    Interrupted,
    // What is found on looking at a bound claim.
    NotBound,
    IncompleteLockContract,
    ServerUnreachable,
    Held,
    HeldInOtherSession,
    OtherKey,
    Expired,
    Released,
    BindingMismatch,
    ClaimantMismatch,
    ProfileMismatch,
    SessionMismatch,
    TokenMismatch,
    LeaseMismatch,
    ProvenanceMismatch,
    GenerationMismatch,
    WorktreeMoved,
    WorktreeUnregistered,
}

/// A refusal, as people and programs are told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub kind: Kind,
    /// A lower-case fragment.
    pub message: String,
    /// The paths of what a record lacks.
    pub missing: Vec<String>,
    /// A command that works from here.
    pub next: String,
    /// What has to be put right before it does, where that is known.
    pub advice: Option<String>,
}

impl Refusal {
    /// A refusal with exit code 1.
    pub fn new(reason: Reason, message: impl Into<String>, next: impl Into<String>) -> Refusal {
        Refusal {
            reason,
            kind: Kind::Exit(Exit::Error),
            message: message.into(),
            missing: Vec::new(),
            next: next.into(),
            advice: None,
        }
    }

    /// The same with another exit code.
    pub fn exit(mut self, exit: Exit) -> Refusal {
        self.kind = Kind::Exit(exit);
        self
    }

    /// The same with a next command that asks the same server.
    pub fn addressed(self, address: &str) -> Refusal {
        Refusal {
            next: addressed(&self.next, address),
            ..self
        }
    }

    /// What `record` lacks.
    pub fn missing(
        record: Option<&Value>,
        missing: Vec<String>,
        whose: &str,
        next: impl Into<String>,
    ) -> Refusal {
        let message = format!("{whose} record is {}", flaws(record, &missing));
        Refusal {
            missing,
            ..Refusal::new(Reason::IncompleteLockContract, message, next)
        }
    }

    /// A failure on the way. The server's or the connection's own kind of
    /// failure counts, else `reason`; and what it advises, where nobody could be
    /// asked.
    pub fn from_failure(failure: Failure, reason: Reason, next: impl Into<String>) -> Refusal {
        let reason = match failure.kind {
            Kind::Unsure | Kind::Exit(Exit::NotNow | Exit::NoVerb) => Reason::ServerUnreachable,
            Kind::Exit(Exit::Conflict) => Reason::Held,
            Kind::Interrupted(_) => Reason::Interrupted,
            Kind::Exit(_) | Kind::OfRun(_) | Kind::Lost | Kind::NotStarted(_) => reason,
        };
        let advice = failure.hint.filter(|_| reason == Reason::ServerUnreachable);
        Refusal {
            kind: failure.kind,
            advice,
            ..Refusal::new(reason, failure.message, next)
        }
    }
}

/// What is wrong with a record that is not complete: `missing` are the paths of
/// what is.
pub fn flaws(record: Option<&Value>, missing: &[String]) -> String {
    if record.is_some_and(|record| !record.is_object()) {
        return "damaged: nothing in it can be read".to_owned();
    }
    let found = |path: &String| {
        let value = lock::at(record?, path)?;
        (!value.is_null()).then_some(value)
    };
    let (wrong, absent): (Vec<&String>, Vec<&String>) =
        missing.iter().partition(|path| found(path).is_some());
    let contract = wrong
        .iter()
        .find(|path| **path == CONTRACT_FIELD)
        .and_then(|path| found(path));
    let mut words = Vec::new();
    if !absent.is_empty() {
        words.push(format!("it lacks {}", listed(&absent)));
    }
    match contract {
        Some(other) => words.push(format!(
            "its contract is {}, not \"{CONTRACT}\"",
            escape(&other.to_string())
        )),
        None if !wrong.is_empty() => words.push(format!("not readable: {}", listed(&wrong))),
        None => {}
    }
    format!("incomplete: {}", words.join("; "))
}

const CONTRACT_FIELD: &str = "contract";

/// So many paths are named in a sentence.
const NAMED: usize = 4;

fn listed(paths: &[&String]) -> String {
    let named: Vec<&str> = paths.iter().take(NAMED).map(|path| path.as_str()).collect();
    match paths.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let reply = json!({
            "success": false,
            "reason_code": refusal.reason,
            "missing": refusal.missing,
            "work_allowed": false,
            "exact_next_action": refusal.next,
            "message": refusal.message,
            "exit": refusal.kind.code(),
        });
        let next = format!("next: {}", escape(&refusal.next));
        Failure {
            kind: refusal.kind,
            hint: Some(match refusal.advice {
                Some(advice) => format!("{advice}; {next}"),
                None => next,
            }),
            message: refusal.message,
            reply: Some(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_could_be_asked_the_hint_says_what_to_put_right_first() {
        let hint = |failure: Failure| {
            let refusal = Refusal::from_failure(
                failure.hint("`ssh forge` shows what is wrong"),
                Reason::Refused,
                "git claim start 42",
            );
            Failure::from(refusal).hint.unwrap()
        };
        assert_eq!(
            hint(Failure::not_now("forge cannot be reached")),
            "`ssh forge` shows what is wrong; next: git claim start 42"
        );
        assert_eq!(
            hint(Failure::error("issue 42 is closed")),
            "next: git claim start 42"
        );
    }

    #[test]
    fn what_is_wrong_with_a_record_is_told_in_a_sentence_that_can_be_read() {
        let paths = |paths: &[&str]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        let whole = json!({ "contract": "git-claim/lock/2", "a": { "b": 7 } });
        for (record, missing, told) in [
            (None, paths(&["a.b", "c"]), "incomplete: it lacks a.b, c"),
            (
                Some(&whole),
                paths(&["contract"]),
                "incomplete: its contract is \"git-claim/lock/2\", not \"git-claim/lock/1\"",
            ),
            (
                Some(&whole),
                paths(&["a.b", "c"]),
                "incomplete: it lacks c; not readable: a.b",
            ),
            (
                Some(&whole),
                paths(&["1", "2", "3", "4", "5", "6"]),
                "incomplete: it lacks 1, 2, 3, 4 and 2 more",
            ),
            (
                Some(&Value::Null),
                paths(&["contract", "a.b"]),
                "damaged: nothing in it can be read",
            ),
        ] {
            assert_eq!(flaws(record, &missing), told);
        }
    }
}

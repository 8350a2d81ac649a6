//! Why work may not begin or go on, with the command that helps.

use git_claim_api::exit::Exit;
use git_claim_api::text::escape;
use serde::Serialize;
use serde_json::json;

use super::quote::addressed;
use crate::error::{Failure, Kind};

/// What is wrong; in JSON `reason_code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    // What `start` meets before it asks for anything.
    NotAllowed,
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

    /// What a record lacks.
    pub fn missing(missing: Vec<String>, whose: &str, next: impl Into<String>) -> Refusal {
        let message = format!(
            "{whose} record is incomplete: it lacks {}",
            missing.join(", ")
        );
        Refusal {
            missing,
            ..Refusal::new(Reason::IncompleteLockContract, message, next)
        }
    }

    /// A failure on the way. The server's or the connection's own kind of
    /// failure counts, else `reason`.
    pub fn from_failure(failure: Failure, reason: Reason, next: impl Into<String>) -> Refusal {
        let reason = match failure.kind {
            Kind::Unsure | Kind::Exit(Exit::NotNow | Exit::NoVerb) => Reason::ServerUnreachable,
            Kind::Exit(Exit::Conflict) => Reason::Held,
            Kind::Interrupted(_) => Reason::Interrupted,
            Kind::Exit(_) | Kind::OfRun(_) | Kind::Lost | Kind::NotStarted(_) => reason,
        };
        Refusal {
            kind: failure.kind,
            ..Refusal::new(reason, failure.message, next)
        }
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
        Failure {
            kind: refusal.kind,
            hint: Some(format!("next: {}", escape(&refusal.next))),
            message: refusal.message,
            reply: Some(reply),
        }
    }
}

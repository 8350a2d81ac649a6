//! A recovery that is refused, as people and programs are told it.

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::reply::{ClaimReply, RefusalCode};
use git_claim_api::text::escape;
use serde_json::json;

use super::quote::addressed;
use crate::error::Failure;

/// A refused recovery.
#[derive(Debug)]
pub struct Refused {
    code: RefusalCode,
    issue: String,
    /// What it means here.
    why: String,
    /// A command that works from here.
    next: String,
}

impl Refused {
    pub fn new(code: RefusalCode, issue: &IssueId, next: String) -> Refused {
        Refused {
            code,
            issue: issue.to_string(),
            why: code.meaning().to_owned(),
            next,
        }
    }

    /// The same where more is known of why.
    pub fn because(self, why: &str) -> Refused {
        Refused {
            why: why.to_owned(),
            ..self
        }
    }

    pub fn code(&self) -> RefusalCode {
        self.code
    }

    /// The same with another command.
    pub fn next(self, next: String) -> Refused {
        Refused { next, ..self }
    }

    /// The same with a next command that asks the same server.
    pub fn addressed(self, address: &str) -> Refused {
        Refused {
            next: addressed(&self.next, address),
            ..self
        }
    }

    pub fn from_server(reply: &ClaimReply) -> Refused {
        let inspect = || format!("git claim inspect {}", reply.issue);
        let code = reply.refusal_code.unwrap_or(RefusalCode::BindingMismatch);
        Refused {
            code,
            issue: reply.issue.clone(),
            why: code.meaning().to_owned(),
            next: reply.exact_next_action.clone().unwrap_or_else(inspect),
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let exit = match refused.code {
            RefusalCode::HealthyForeignLock => Exit::Conflict,
            _ => Exit::Error,
        };
        let message = format!("recovery is refused: {}", refused.why);
        let reply = json!({
            "status": "refused",
            "issue": refused.issue,
            "refusal_code": refused.code,
            "exact_next_action": refused.next,
            "message": message,
        });
        Failure {
            reply: Some(reply),
            ..Failure::new(exit, message).hint(format!("next: {}", escape(&refused.next)))
        }
    }
}

//! A claim as the one who asks may see it.

use git_claim_api::ids::IssueId;
use git_claim_api::reply::{self, Ending, PastTenure, State, Status};
use git_claim_api::time::rfc3339;

use crate::claim::record::{self, Place};
use crate::claim::{Caller, Claim, Conflict, Ended, Now, Tenure};

/// How much of another principal's session is shown.
const SESSION_SHOWN: usize = 8;

/// Who looks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Viewer<'a> {
    pub caller: &'a Caller,
    /// Whether worktrees, machines and records may be shown.
    pub may_write: bool,
    /// The ledger's id, where records are to be shown.
    pub ledger_id: Option<&'a str>,
    pub now: Now,
}

impl Viewer<'_> {
    /// The claim with its live holder; without one it shows nobody.
    pub fn live(&self, claim: &Claim) -> reply::Claim {
        self.claim(claim, claim.live(self.now))
    }

    /// The claim with the tenure that its row names, be it live or not.
    pub fn recorded(&self, claim: &Claim) -> reply::Claim {
        self.claim(claim, claim.tenure.as_ref())
    }

    fn claim(&self, claim: &Claim, tenure: Option<&Tenure>) -> reply::Claim {
        let unheld = reply::Claim {
            token: claim.token,
            generation: claim.generation,
            ..reply::Claim::default()
        };
        let Some(tenure) = tenure else {
            return unheld;
        };
        let same_principal = tenure.holder == self.caller.name;
        let is_live = tenure.is_live(self.now);
        let bound = tenure.binding.as_ref();
        reply::Claim {
            holder: Some(tenure.holder.clone()),
            session: self.session(tenure),
            mine: is_live && same_principal && tenure.session == self.caller.session,
            same_principal,
            acquired_at: rfc3339(tenure.acquired_at),
            expires_at: tenure.expires_at.and_then(rfc3339),
            heartbeat_at: tenure.heartbeat_at.and_then(rfc3339),
            ttl: tenure.ttl.map(|ttl| ttl.seconds()),
            ttl_left_ms: tenure
                .expires_at
                .map(|end| end.saturating_mul(1_000).saturating_sub(self.now.0).max(0)),
            note: tenure.note.clone(),
            branch: bound.map(|bound| bound.branch.to_string()),
            title: tenure.title.clone(),
            worktree: bound
                .filter(|_| self.may_write)
                .map(|bound| bound.worktree.clone()),
            machine: bound
                .filter(|_| self.may_write)
                .map(|bound| bound.machine.clone()),
            issue_state: None,
            ..unheld
        }
    }

    /// The tenure's session, in full to its own principal alone.
    pub fn session(&self, tenure: &Tenure) -> Option<String> {
        let session = tenure.session.as_ref()?.as_str();
        if tenure.holder == self.caller.name {
            return Some(session.to_owned());
        }
        // Sessions are ASCII.
        Some(session[..session.len().min(SESSION_SHOWN)].to_owned())
    }

    /// A reply about one claim, with nothing but what each of them carries.
    pub fn reply(
        &self,
        status: Status,
        repo: &str,
        issue: &IssueId,
        claim: &Claim,
    ) -> reply::ClaimReply {
        reply::ClaimReply {
            lock: claim
                .live(self.now)
                .and_then(|_| self.lock(repo, issue, claim)),
            ..reply::ClaimReply::new(status, repo, issue.as_str(), self.live(claim), self.time())
        }
    }

    /// The record of a bound claim, as far as it may be shown.
    pub fn lock(&self, repo: &str, issue: &IssueId, claim: &Claim) -> Option<serde_json::Value> {
        let ledger_id = self.ledger_id?;
        let place = Place {
            ledger_id,
            repo,
            issue,
        };
        if self.may_write && claim.is_bound() {
            record::build(place, claim)
        } else {
            None
        }
    }

    /// The reply to a conflict.
    pub fn conflict(
        &self,
        repo: &str,
        issue: &IssueId,
        claim: &Claim,
        conflict: &Conflict,
    ) -> reply::ClaimReply {
        reply::ClaimReply {
            reason: Some(conflict.reason),
            by: conflict.by.clone(),
            why: conflict.why.clone(),
            ..self.reply(Status::Held, repo, issue, claim)
        }
    }

    /// The server's time as replies carry it.
    pub fn time(&self) -> String {
        rfc3339(self.now.floor()).unwrap_or_default()
    }

    /// How the claim stands.
    pub fn state(&self, claim: &Claim) -> State {
        match &claim.tenure {
            None => State::Free,
            Some(tenure) if tenure.is_live(self.now) => State::Live,
            Some(_) => State::Expired,
        }
    }

    /// A tenure that is over, as an entry of `list --ended`.
    pub fn ended_lease(&self, issue: &IssueId, ended: &Ended) -> reply::Lease {
        let claim = Claim {
            token: ended.token,
            generation: 0,
            tenure: Some(ended.tenure.clone()),
        };
        reply::Lease {
            issue: issue.to_string(),
            claim: reply::Claim {
                mine: false,
                ttl_left_ms: None,
                ..self.recorded(&claim)
            },
            ended: Some(ending(ended)),
        }
    }

    /// A tenure in the history.
    pub fn past(&self, issue: &IssueId, token: u64, tenure: &Tenure) -> PastTenure {
        PastTenure {
            issue: issue.to_string(),
            token,
            holder: tenure.holder.clone(),
            session: self.session(tenure),
            acquired_at: rfc3339(tenure.acquired_at),
            expires_at: tenure.expires_at.and_then(rfc3339),
            note: tenure.note.clone(),
            branch: tenure
                .binding
                .as_ref()
                .map(|bound| bound.branch.to_string()),
            ended: None,
        }
    }
}

/// How a tenure ended, for a reply.
pub fn ending(ended: &Ended) -> Ending {
    Ending {
        ended_at: rfc3339(ended.ended_at),
        how: ended.how,
        by: ended.by.clone(),
        why: ended.why.clone(),
    }
}

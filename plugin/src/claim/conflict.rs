//! Why a request is not granted.

use git_claim_api::ids::{Branch, Token};
use git_claim_api::reply::{End, Reason, words};
use git_claim_api::verb::Eviction;

use super::{Caller, Claim, Now, Situation, Tenure};
use git_claim_api::access::Access;

/// Exit 4. The reply shows the claim as it stands beside this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub reason: Reason,
    /// Who ended the caller's own tenure, and why: the reason that they gave, or
    /// what a push has done.
    pub by: Option<String>,
    pub why: Option<String>,
}

impl From<Reason> for Conflict {
    fn from(reason: Reason) -> Conflict {
        Conflict {
            reason,
            by: None,
            why: None,
        }
    }
}

/// Exit 1: what the caller would have to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("ending {holder}'s claim needs admin access to this repository")]
    NeedsAdmin { holder: String },
    #[error(
        "ending {holder}'s claim needs --expected-token, the token of exactly the tenure that is meant; `git claim log <id>` shows it"
    )]
    NeedsExpectedToken { holder: String },
    #[error("this claim is bound to branch '{branch}' already")]
    BoundElsewhere { branch: Branch },
    #[error(
        "{begin}{branch}' is bound by the live claim on issue {issue}",
        begin = words::BRANCH
    )]
    BranchTaken { branch: Branch, issue: String },
    #[error(
        "{begin}{0}' is the repository's default branch; bind a branch of its own",
        begin = words::BRANCH
    )]
    DefaultBranch(Branch),
}

/// The conflict of a caller who does not hold the claim at `now`: another does,
/// or nobody; and how the caller's own tenure ended, if that is news.
pub(super) fn not_the_holder(situation: &Situation, caller: &Caller, now: Now) -> Conflict {
    let claim = &situation.claim;
    if let Some(evicted) = evicted(situation) {
        return evicted;
    }
    match claim.live(now) {
        Some(tenure) if tenure.holder == caller.name && tenure.has_other_key(caller) => {
            Reason::OtherKey.into()
        }
        Some(tenure) if tenure.holder == caller.name => Reason::OtherSession.into(),
        Some(_) => Reason::Held.into(),
        None if claim.tenure.is_some() => Reason::Expired.into(),
        None => match &situation.callers_last {
            Some(last) if last.token == claim.token => match last.how {
                End::Expired => Reason::Expired.into(),
                // A push was the end of it, and nobody is to take it again.
                End::Closed | End::Merged => Conflict {
                    reason: Reason::Released,
                    by: last.by.clone(),
                    why: last.why.clone(),
                },
                _ => Reason::Released.into(),
            },
            _ => Reason::Released.into(),
        },
    }
}

/// That the caller's last tenure was ended by somebody, and by whom and why.
fn evicted(situation: &Situation) -> Option<Conflict> {
    let last = situation.callers_last.as_ref()?;
    matches!(last.how, End::TakenOver | End::Forced | End::Recovered).then(|| Conflict {
        reason: Reason::TakenOver,
        by: last.by.clone(),
        why: last.why.clone(),
    })
}

/// Whether `caller` may end `tenure`, which is live and not this session's: one's
/// own elsewhere with write access, another's as an admin who names the tenure.
///
/// # Errors
/// The decision to answer with instead.
pub(super) fn may_evict(
    claim: &Claim,
    tenure: &Tenure,
    caller: &Caller,
    eviction: &Eviction,
) -> Result<(), NoEviction> {
    if tenure.holder != caller.name {
        if caller.access < Access::Admin {
            return Err(NoEviction::Refused(Refusal::NeedsAdmin {
                holder: tenure.holder.clone(),
            }));
        }
        if eviction.expected_token.is_none() {
            return Err(NoEviction::Refused(Refusal::NeedsExpectedToken {
                holder: tenure.holder.clone(),
            }));
        }
    }
    let meant = eviction.expected_token.map(Token::get);
    if meant.is_some_and(|meant| meant != claim.token) {
        return Err(NoEviction::Conflict(Reason::WrongExpectedToken.into()));
    }
    Ok(())
}

/// Why nobody is evicted.
#[derive(Debug)]
pub(super) enum NoEviction {
    Conflict(Conflict),
    Refused(Refusal),
}

impl<T> From<NoEviction> for super::Decision<T> {
    fn from(no: NoEviction) -> Self {
        match no {
            NoEviction::Conflict(conflict) => super::Decision::Conflict(conflict),
            NoEviction::Refused(refusal) => super::Decision::Refused(refusal),
        }
    }
}

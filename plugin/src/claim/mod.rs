//! What a claim is, and what may become of it: pure functions from a record, a
//! request and the time to a new record and an outcome. No clock, no I/O, no
//! SQL.

mod acquire;
pub mod change;
mod conflict;
pub mod fence;
pub mod record;
mod recover;
mod release;
mod renew;
mod settle;
mod verify;

use git_claim_api::access::Access;
use git_claim_api::ids::{Branch, Oid, RequestId, Session, Ttl};
use git_claim_api::lock::Recovery;
use git_claim_api::reply::End;
use serde::{Deserialize, Serialize};

pub use acquire::{Acquire, acquire};
pub use conflict::{Conflict, Refusal};
pub use recover::{Recover, RecoveryRefusal, recover};
pub use release::{Release, release};
pub use renew::{Renew, renew};
pub use settle::{Settle, settle};
pub use verify::{Verify, verify};

/// The server's time, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(pub i64);

impl Now {
    /// Whole seconds, rounded down: what an end is tested against.
    pub fn floor(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole seconds, rounded up: what an end is computed from, so that the
    /// server never ends a claim before its holder does.
    fn ceil(self) -> i64 {
        self.floor() + i64::from(self.0.rem_euclid(1_000) != 0)
    }

    /// When a claim of `ttl`, taken now, ends: seconds since the epoch.
    fn end_of(self, ttl: Ttl) -> i64 {
        self.ceil().saturating_add_unsigned(ttl.seconds())
    }
}

/// Who asks: the principal that the host named, and the client's session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    /// The key's fingerprint, or what stands for it.
    pub profile: Option<String>,
    pub session: Option<Session>,
    /// The highest right that was asked for and given.
    pub access: Access,
}

/// An issue's row: the number of its last tenure, and the tenure that holds or
/// held it last, unless it was given back. Never held: all zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claim {
    /// The last tenure's number; 0 before the first. It only rises.
    pub token: u64,
    /// Rises by one with every write.
    pub generation: u64,
    /// `None`: given back, or never taken. `Some` may have run out.
    pub tenure: Option<Tenure>,
}

/// One unbroken holding. Times are seconds since the Unix epoch. Its form in
/// JSON is what the ledger on etcd keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    pub holder: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `None`: an older server's row, or a client that names no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// Rises with each tenure that begins in the ledger; `None` in an older
    /// server's row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    pub acquired_at: i64,
    /// `None`: open-ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_at: Option<i64>,
    pub heartbeat_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Random, minted by the server; `None` in an older server's row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<Bound>,
    /// In a tenure that recovery began: what the record was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
}

/// The branch and worktree that a claim is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The client's name for the remote.
    pub remote: String,
    pub branch: Branch,
    /// The client's path, for people to read.
    pub worktree: String,
    /// The client's machine, for people to read.
    pub machine: String,
    /// Where the branch stood when the claim was bound; where the default
    /// branch did, if it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Oid>,
    pub minted: Minted,
}

impl Bound {
    /// The same, minted at `now`.
    pub fn minted_at(mut self, now: Now) -> Bound {
        self.minted.at = now.floor();
        self
    }
}

/// Who made a record, and when; never the caller's to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minted {
    /// `start` or `recover`.
    pub source: String,
    /// The server's program and version.
    pub by: String,
    /// Seconds since the Unix epoch.
    pub at: i64,
}

/// A tenure that is over, as the history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub token: u64,
    pub tenure: Tenure,
    /// Seconds since the Unix epoch.
    pub ended_at: i64,
    pub how: End,
    /// Who ended it, where that was not its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that they gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a decision looks at besides the request: the row and what the
/// history says of the one who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Situation {
    pub claim: Claim,
    /// The last tenure of this issue by the caller's name and session that is
    /// over.
    pub callers_last: Option<Ended>,
}

/// A decision: what to store and what to say.
#[allow(clippy::large_enum_variant)] // made once a request, and not kept
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<T> {
    /// Store `claim`, put `ended` into the history, and say `outcome`.
    Change {
        claim: Claim,
        ended: Option<Ended>,
        outcome: T,
    },
    /// Nothing to store.
    Keep(T),
    /// Exit 4: the claim is another's, or nobody's.
    Conflict(Conflict),
    /// Exit 1: the request can't be granted as it stands.
    Refused(Refusal),
}

impl Tenure {
    /// Whether the tenure still holds at `now`.
    pub fn is_live(&self, now: Now) -> bool {
        self.expires_at.is_none_or(|end| now.floor() < end)
    }

    /// Whether `caller` is the holder: the same name in the same session. A row
    /// without a session belongs to its name.
    pub fn is_held_by(&self, caller: &Caller) -> bool {
        self.holder == caller.name && (self.session.is_none() || self.session == caller.session)
    }

    /// Whether the caller is who the record names, by all that it says.
    fn is_of_principal(&self, caller: &Caller) -> bool {
        let same_profile = self.profile.is_none() || self.profile == caller.profile;
        self.holder == caller.name && same_profile
    }

    /// Whether the claim is bound, and to another key than the caller's.
    fn has_other_key(&self, caller: &Caller) -> bool {
        self.binding.is_some() && self.profile != caller.profile
    }

    /// The tenure, number `token`, as the history keeps it once it has run out.
    pub fn expired(&self, token: u64) -> Ended {
        Ended {
            token,
            tenure: self.clone(),
            // One without an end does not run out.
            ended_at: self.expires_at.unwrap_or(self.acquired_at),
            how: End::Expired,
            by: None,
            why: None,
        }
    }
}

impl Claim {
    /// The tenure that holds the claim at `now`.
    pub fn live(&self, now: Now) -> Option<&Tenure> {
        self.tenure.as_ref().filter(|tenure| tenure.is_live(now))
    }

    /// Whether the tenure that the row names, be it live or not, is bound to a
    /// branch.
    pub fn is_bound(&self) -> bool {
        self.tenure
            .as_ref()
            .is_some_and(|tenure| tenure.binding.is_some())
    }

    /// The same claim after one more write, held by `tenure`.
    fn with(&self, tenure: Option<Tenure>) -> Claim {
        Claim {
            token: self.token,
            generation: self.generation + 1,
            tenure,
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Claims and callers for the tests of decisions.

    use super::*;

    pub fn caller(name: &str, session: &str) -> Caller {
        Caller {
            name: name.to_owned(),
            profile: Some(format!("SHA256:{name}")),
            session: Some(session.parse().unwrap()),
            access: Access::Write,
        }
    }

    pub fn admin(name: &str) -> Caller {
        Caller {
            access: Access::Admin,
            ..caller(name, "desk")
        }
    }

    /// A claim that `caller` took at second 1,000, for `ttl` seconds.
    pub fn claim_of(caller: &Caller, token: u64, ttl: Option<u64>) -> Claim {
        let ttl = ttl.map(|ttl| Ttl::new(ttl).unwrap());
        Claim {
            token,
            generation: token,
            tenure: Some(Tenure {
                holder: caller.name.clone(),
                profile: caller.profile.clone(),
                session: caller.session.clone(),
                seq: Some(1),
                acquired_at: 1_000,
                expires_at: ttl.map(|ttl| Now(1_000_000).end_of(ttl)),
                ttl,
                heartbeat_at: None,
                heartbeat_count: 0,
                note: None,
                title: None,
                lease_id: Some("l1".to_owned()),
                request: None,
                binding: None,
                recovery: None,
            }),
        }
    }

    pub fn bound(mut claim: Claim) -> Claim {
        let tenure = claim.tenure.as_mut().unwrap();
        tenure.binding = Some(bound_to("claim/42", "/w", "m"));
        tenure.heartbeat_at = Some(1_000);
        claim
    }

    pub fn bound_to(branch: &str, worktree: &str, machine: &str) -> Bound {
        Bound {
            remote: "origin".to_owned(),
            branch: branch.parse().unwrap(),
            worktree: worktree.to_owned(),
            machine: machine.to_owned(),
            base: None,
            minted: Minted {
                source: "start".to_owned(),
                by: "git-claim test".to_owned(),
                at: 1_000,
            },
        }
    }

    pub fn situation(claim: Claim) -> Situation {
        Situation {
            claim,
            callers_last: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{caller, claim_of};
    use super::*;

    #[test]
    fn an_end_is_computed_rounded_up_and_tested_rounded_down() {
        let ttl = Ttl::new(10).unwrap();
        assert_eq!(Now(5_000).end_of(ttl), 15);
        assert_eq!(Now(5_001).end_of(ttl), 16);
        let mut claim = claim_of(&caller("ann", "s"), 1, Some(10));
        claim.tenure.as_mut().unwrap().expires_at = Some(16);
        assert!(claim.live(Now(15_999)).is_some());
        assert!(claim.live(Now(16_000)).is_none());
    }

    #[test]
    fn a_time_before_the_epoch_rounds_the_same_way() {
        assert_eq!(Now(-1).floor(), -1);
        assert_eq!(Now(-1).ceil(), 0);
    }

    #[test]
    fn a_row_without_a_session_belongs_to_its_name() {
        let ann = caller("ann", "s");
        let mut claim = claim_of(&ann, 1, None);
        let tenure = claim.tenure.as_mut().unwrap();
        assert!(!tenure.is_held_by(&caller("ann", "other")));
        tenure.session = None;
        assert!(tenure.is_held_by(&caller("ann", "other")));
        assert!(!tenure.is_held_by(&caller("bob", "s")));
    }
}

//! `recover`: make one incomplete or orphaned record canonical again. It takes
//! nothing from anybody: only the caller's own record is touched, and a healthy
//! claim of somebody else's refuses it.

use git_claim_api::ids::{Oid, Session, Ttl};
use git_claim_api::lock::{CONTRACT, Recovery};
use git_claim_api::reply::{End, RecoveryAction, RefusalCode};

use super::record::{self, Place};
use super::{Bound, Caller, Claim, Ended, Now, Tenure};

/// A request to recover, with what only the server can say.
#[derive(Debug)]
pub struct Recover<'a> {
    pub caller: &'a Caller,
    /// The session that the record is to have.
    pub session: &'a Session,
    /// The branch and worktree as the client checked them, minted now.
    pub binding: &'a Bound,
    /// Where the branch stands, by the client.
    pub head: &'a Oid,
    /// The last tenure's number as the caller saw it, who decided by it.
    pub if_token: Option<u64>,
    pub place: Place<'a>,
    pub default_ttl: Ttl,
    /// A fresh random id, in case a tenure begins.
    pub lease_id: &'a str,
    /// The next number in the ledger's order, in case a tenure begins.
    pub seq: u64,
}

/// Why nothing is recovered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryRefusal(pub RefusalCode);

/// What recovery does: the record to store, if it is to change, and the tenure
/// that ends.
pub type Recovered = (RecoveryAction, Option<(Claim, Ended)>);

/// Decides on `ask`.
///
/// # Errors
/// The first refusal that applies.
pub fn recover(claim: &Claim, ask: &Recover<'_>, now: Now) -> Result<Recovered, RecoveryRefusal> {
    let refuse = |code| Err(RecoveryRefusal(code));
    if ask.caller.profile.is_none() {
        return refuse(RefusalCode::IdentityUnresolved);
    }
    let Some(tenure) = &claim.tenure else {
        return refuse(RefusalCode::NoDurableLock);
    };
    let missing = record::missing(ask.place, claim);
    let is_overtaken = ask.if_token.is_some_and(|token| token != claim.token);
    let is_live = tenure.is_live(now);
    if !tenure.is_of_principal(ask.caller) {
        return refuse(if is_live && missing.is_empty() {
            RefusalCode::HealthyForeignLock
        } else {
            RefusalCode::ForeignClaimant
        });
    }
    // Somebody was quicker: the one who asks, elsewhere.
    if is_overtaken {
        return refuse(RefusalCode::AlreadyCanonical);
    }
    let bound = tenure.binding.as_ref();
    // The client has looked whether the recorded worktree is gone, but can
    // only do so on the machine that the record names.
    let is_elsewhere = tenure.session.as_ref().is_some_and(|s| s != ask.session);
    let on_this_machine = bound.is_some_and(|bound| bound.machine == ask.binding.machine);
    if is_live && is_elsewhere && !on_this_machine {
        return refuse(RefusalCode::AlreadyCanonical);
    }
    let is_other_branch = bound.is_some_and(|bound| bound.branch != ask.binding.branch);
    let action = if !missing.is_empty() {
        RecoveryAction::Upgraded
    } else if !is_live {
        RecoveryAction::TakenAgain
    } else if is_elsewhere {
        RecoveryAction::Moved
    } else {
        RecoveryAction::CopyAgain
    };
    if is_other_branch {
        return refuse(RefusalCode::BindingMismatch);
    }
    if action == RecoveryAction::CopyAgain {
        return Ok((action, None));
    }
    let ended = match action {
        RecoveryAction::TakenAgain => tenure.expired(claim.token),
        _ if !is_live => tenure.expired(claim.token),
        _ => Ended {
            token: claim.token,
            tenure: tenure.clone(),
            ended_at: now.floor(),
            how: End::Recovered,
            by: Some(ask.caller.name.clone()),
            why: Some("recovered".to_owned()),
        },
    };
    let recovery = Recovery {
        earlier_contract: if bound.is_some() { CONTRACT } else { "legacy" }.to_owned(),
        missing_fields: missing,
        earlier_generation: claim.generation,
        earlier_session: tenure.session.as_ref().map(ToString::to_string),
        new_session: ask.session.clone(),
        preserved_head: ask.head.to_string(),
    };
    let after = Claim {
        token: claim.token + 1,
        ..claim.with(Some(anew(tenure, recovery, ask, now)))
    };
    Ok((action, Some((after, ended))))
}

/// The tenure that recovery begins.
fn anew(tenure: &Tenure, recovery: Recovery, ask: &Recover<'_>, now: Now) -> Tenure {
    let ttl = tenure.ttl.unwrap_or(ask.default_ttl);
    let base = tenure.binding.as_ref().and_then(|bound| bound.base.clone());
    Tenure {
        holder: ask.caller.name.clone(),
        profile: ask.caller.profile.clone(),
        session: Some(ask.session.clone()),
        seq: Some(ask.seq),
        acquired_at: now.floor(),
        expires_at: Some(now.end_of(ttl)),
        ttl: Some(ttl),
        heartbeat_at: Some(now.floor()),
        heartbeat_count: 0,
        note: tenure.note.clone(),
        title: tenure.title.clone(),
        lease_id: Some(ask.lease_id.to_owned()),
        request: None,
        binding: Some(Bound {
            // Where the branch began, not where it has come to since.
            base: base.or_else(|| ask.binding.base.clone()),
            ..ask.binding.clone()
        }),
        recovery: Some(recovery),
    }
}

#[cfg(test)]
mod tests {
    use git_claim_api::ids::IssueId;
    use git_claim_api::lock::{Reading, read};

    use super::super::testing::*;
    use super::*;

    const NOW: Now = Now(2_000_500);

    struct Asked {
        caller: Caller,
        session: Session,
        binding: Bound,
        head: Oid,
        if_token: Option<u64>,
        issue: IssueId,
    }

    fn asked(name: &str, session: &str) -> Asked {
        Asked {
            caller: caller(name, session),
            session: session.parse().unwrap(),
            binding: bound_to("claim/42", "/w2", "m"),
            head: "a".repeat(40).parse().unwrap(),
            if_token: None,
            issue: "42".parse().unwrap(),
        }
    }

    impl Asked {
        fn decide(&self, claim: &Claim) -> Result<Recovered, RefusalCode> {
            let ask = Recover {
                caller: &self.caller,
                session: &self.session,
                binding: &self.binding,
                head: &self.head,
                if_token: self.if_token,
                place: self.place(),
                default_ttl: Ttl::new(7_200).unwrap(),
                lease_id: "fresh",
                seq: 9,
            };
            recover(claim, &ask, NOW).map_err(|RecoveryRefusal(code)| code)
        }

        fn place(&self) -> Place<'_> {
            Place {
                ledger_id: "l",
                repo: "acme/app.git",
                issue: &self.issue,
            }
        }
    }

    fn sound(session: &str, ttl: u64) -> Claim {
        bound(claim_of(&caller("ann", session), 3, Some(ttl)))
    }

    /// An older server's row.
    fn legacy(name: &str) -> Claim {
        let mut claim = claim_of(&caller(name, "s"), 3, Some(5_000));
        let tenure = claim.tenure.as_mut().unwrap();
        (tenure.session, tenure.profile, tenure.lease_id) = (None, None, None);
        claim
    }

    #[test]
    fn a_lost_copy_of_a_sound_record_changes_nothing() {
        let decided = asked("ann", "s").decide(&sound("s", 5_000)).unwrap();
        assert_eq!(decided, (RecoveryAction::CopyAgain, None));
    }

    #[test]
    fn each_row_of_the_table_begins_a_tenure_and_says_what_was_before() {
        for (claim, session, action, how) in [
            (
                legacy("ann"),
                "s2",
                RecoveryAction::Upgraded,
                End::Recovered,
            ),
            (
                sound("s", 10),
                "s",
                RecoveryAction::TakenAgain,
                End::Expired,
            ),
            (
                sound("s", 5_000),
                "s2",
                RecoveryAction::Moved,
                End::Recovered,
            ),
        ] {
            let asked = asked("ann", session);
            let (done, change) = asked.decide(&claim).unwrap();
            let (after, ended) = change.unwrap();
            assert_eq!((done, ended.how), (action, how));
            assert_eq!((ended.token, after.token), (3, 4));
            assert_eq!(after.generation, claim.generation + 1);
            let Reading::Canonical(lock) = read(&record::build(asked.place(), &after).unwrap())
            else {
                panic!("{action:?} is not canonical");
            };
            let recovery = lock.bootstrap_lock_recovery.unwrap();
            assert_eq!(recovery.new_session.as_str(), session);
            assert_eq!(recovery.earlier_generation, claim.generation);
            assert_eq!(recovery.preserved_head, "a".repeat(40));
            assert_eq!(
                recovery.missing_fields.is_empty(),
                action != RecoveryAction::Upgraded
            );
        }
    }

    #[test]
    fn the_first_refusal_that_applies() {
        let nameless = Asked {
            caller: Caller {
                profile: None,
                ..caller("ann", "s")
            },
            ..asked("ann", "s")
        };
        let other_key = Asked {
            caller: Caller {
                profile: Some("SHA256:other".to_owned()),
                ..caller("ann", "s")
            },
            ..asked("ann", "s")
        };
        let elsewhere = Asked {
            binding: bound_to("claim/42", "/w2", "another machine"),
            ..asked("ann", "s2")
        };
        let unbound = claim_of(&caller("ann", "s2"), 3, Some(5_000));
        let other_branch = Asked {
            binding: bound_to("claim/43", "/w", "m"),
            ..asked("ann", "s")
        };
        let overtaken = Asked {
            if_token: Some(2),
            ..asked("ann", "s")
        };
        for (asked, claim, code) in [
            (&overtaken, sound("s", 10), RefusalCode::AlreadyCanonical),
            (
                &nameless,
                sound("s", 5_000),
                RefusalCode::IdentityUnresolved,
            ),
            (
                &asked("ann", "s"),
                Claim::default(),
                RefusalCode::NoDurableLock,
            ),
            (
                &asked("bob", "s"),
                legacy("ann"),
                RefusalCode::ForeignClaimant,
            ),
            (
                &asked("bob", "s"),
                sound("s", 10),
                RefusalCode::ForeignClaimant,
            ),
            (&other_key, sound("s", 10), RefusalCode::ForeignClaimant),
            (
                &asked("bob", "s"),
                sound("s", 5_000),
                RefusalCode::HealthyForeignLock,
            ),
            (
                &other_key,
                sound("s", 5_000),
                RefusalCode::HealthyForeignLock,
            ),
            (&elsewhere, sound("s", 5_000), RefusalCode::AlreadyCanonical),
            // Incomplete, but alive: it is not for another session to end it.
            (&asked("ann", "s"), unbound, RefusalCode::AlreadyCanonical),
            (
                &other_branch,
                sound("s", 5_000),
                RefusalCode::BindingMismatch,
            ),
            (&other_branch, sound("s", 10), RefusalCode::BindingMismatch),
        ] {
            assert_eq!(asked.decide(&claim), Err(code));
        }
    }
}

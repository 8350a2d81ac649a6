//! `acquire`: take a claim, or extend one's own.

use git_claim_api::ids::Ttl;
use git_claim_api::reply::{self, End, Reason};
use git_claim_api::verb::Take;

use super::conflict::{may_evict, not_the_holder};
use super::{Bound, Caller, Claim, Decision, Ended, Now, Refusal, Situation, Tenure};

/// A request to take a claim, with what only the server can say.
#[derive(Debug)]
pub struct Acquire<'a> {
    pub caller: &'a Caller,
    pub take: &'a Take,
    /// What a bound claim gets without a TTL of its own.
    pub default_ttl: Ttl,
    /// The title in the tracker.
    pub title: Option<&'a str>,
    /// A fresh random id, in case a tenure begins.
    pub lease_id: &'a str,
    /// The next number in the ledger's order, in case a tenure begins.
    pub seq: u64,
    /// Whether this request, by its request id, began a tenure of this issue
    /// that has ended since.
    pub request_ended: bool,
    /// The branch as asked for, with what the server knows of it.
    pub binding: Option<Bound>,
}

/// Decides on `ask`. The outcome says whether a tenure began.
pub fn acquire(situation: &Situation, ask: &Acquire<'_>, now: Now) -> Decision<reply::Tenure> {
    let claim = &situation.claim;
    match claim.live(now) {
        // With another key it is the same person's, but no longer the same
        // claimant's: that is what a take-over with a reason is for.
        Some(tenure)
            if tenure.is_held_by(ask.caller)
                && !(tenure.has_other_key(ask.caller) && ask.take.take_over.is_some()) =>
        {
            extend(claim, tenure, ask, now)
        }
        _ if ask.request_ended => Decision::Conflict(Reason::RequestEnded.into()),
        Some(tenure) => match &ask.take.take_over {
            Some(eviction) => match may_evict(claim, tenure, ask.caller, eviction) {
                Ok(()) => begin(
                    claim,
                    Some(Ended {
                        token: claim.token,
                        tenure: tenure.clone(),
                        ended_at: now.floor(),
                        how: End::TakenOver,
                        by: Some(ask.caller.name.clone()),
                        why: Some(eviction.reason.to_string()),
                    }),
                    ask,
                    now,
                ),
                Err(no) => no.into(),
            },
            None => Decision::Conflict(not_the_holder(situation, ask.caller, now)),
        },
        None if ask.take.if_token.is_some_and(|token| token != claim.token) => {
            Decision::Conflict(Reason::StaleToken.into())
        }
        None => {
            let ended = claim
                .tenure
                .as_ref()
                .map(|tenure| tenure.expired(claim.token));
            begin(claim, ended, ask, now)
        }
    }
}

/// The caller's own live claim: the same token, the end set anew.
fn extend(claim: &Claim, tenure: &Tenure, ask: &Acquire<'_>, now: Now) -> Decision<reply::Tenure> {
    if tenure.has_other_key(ask.caller) {
        return Decision::Conflict(Reason::OtherKey.into());
    }
    let binding = match (&tenure.binding, &ask.binding) {
        (Some(bound), Some(wanted)) if bound.branch != wanted.branch => {
            return Decision::Refused(Refusal::BoundElsewhere {
                branch: bound.branch.clone(),
            });
        }
        // The branch is the same: where it began, and who made the record, stay.
        (Some(bound), Some(wanted)) => Some(Bound {
            base: bound.base.clone(),
            minted: bound.minted.clone(),
            ..wanted.clone()
        }),
        (bound, wanted) => bound.clone().or_else(|| wanted.clone()),
    };
    let ttl = effective_ttl(ask, binding.is_some());
    let after = Tenure {
        profile: ask.caller.profile.clone(),
        session: ask.caller.session.clone(),
        expires_at: ttl.map(|ttl| now.end_of(ttl)),
        ttl,
        heartbeat_at: Some(now.floor()),
        heartbeat_count: tenure.heartbeat_count + 1,
        note: note(ask).or_else(|| tenure.note.clone()),
        title: ask
            .title
            .map(str::to_owned)
            .or_else(|| tenure.title.clone()),
        lease_id: tenure
            .lease_id
            .clone()
            .or_else(|| Some(ask.lease_id.to_owned())),
        seq: tenure.seq.or(Some(ask.seq)),
        binding,
        ..tenure.clone()
    };
    Decision::Change {
        claim: claim.with(Some(after)),
        ended: None,
        outcome: reply::Tenure::Own,
    }
}

/// A new tenure, after `ended` if the row still names one.
fn begin(
    claim: &Claim,
    ended: Option<Ended>,
    ask: &Acquire<'_>,
    now: Now,
) -> Decision<reply::Tenure> {
    let ttl = effective_ttl(ask, ask.binding.is_some());
    let tenure = Tenure {
        holder: ask.caller.name.clone(),
        profile: ask.caller.profile.clone(),
        session: ask.caller.session.clone(),
        seq: Some(ask.seq),
        acquired_at: now.floor(),
        expires_at: ttl.map(|ttl| now.end_of(ttl)),
        ttl,
        heartbeat_at: Some(now.floor()),
        heartbeat_count: 0,
        note: note(ask),
        title: ask.title.map(str::to_owned),
        lease_id: Some(ask.lease_id.to_owned()),
        request: ask.take.request.clone(),
        binding: ask.binding.clone(),
        recovery: None,
    };
    Decision::Change {
        claim: Claim {
            token: claim.token + 1,
            ..claim.with(Some(tenure))
        },
        ended,
        outcome: reply::Tenure::New,
    }
}

/// A bound claim always has an end.
fn effective_ttl(ask: &Acquire<'_>, bound: bool) -> Option<Ttl> {
    ask.take.ttl.or(bound.then_some(ask.default_ttl))
}

fn note(ask: &Acquire<'_>) -> Option<String> {
    ask.take.note.as_ref().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use git_claim_api::verb::Eviction;

    use super::super::testing::*;
    use super::*;

    const NOW: Now = Now(2_000_500);

    fn ask<'a>(caller: &'a Caller, take: &'a Take) -> Acquire<'a> {
        Acquire {
            caller,
            take,
            default_ttl: Ttl::new(7_200).unwrap(),
            title: Some("Crash"),
            lease_id: "fresh",
            seq: 9,
            request_ended: false,
            binding: None,
        }
    }

    fn ttl(seconds: u64) -> Take {
        Take {
            ttl: Some(Ttl::new(seconds).unwrap()),
            ..Take::default()
        }
    }

    fn take_over(expected: Option<u64>) -> Take {
        Take {
            take_over: Some(Eviction {
                reason: "she left".parse().unwrap(),
                expected_token: expected.map(|token| token.try_into().unwrap()),
            }),
            ..Take::default()
        }
    }

    fn conflict(decision: Decision<reply::Tenure>) -> Reason {
        match decision {
            Decision::Conflict(conflict) => conflict.reason,
            other => panic!("no conflict: {other:?}"),
        }
    }

    fn change(decision: Decision<reply::Tenure>) -> (Claim, Option<Ended>, reply::Tenure) {
        match decision {
            Decision::Change {
                claim,
                ended,
                outcome,
            } => (claim, ended, outcome),
            other => panic!("no change: {other:?}"),
        }
    }

    #[test]
    fn the_first_tenure_has_token_one() {
        let ann = caller("ann", "s");
        let (claim, ended, outcome) =
            change(acquire(&Situation::default(), &ask(&ann, &ttl(60)), NOW));
        assert_eq!((claim.token, claim.generation), (1, 1));
        assert_eq!((ended, outcome), (None, reply::Tenure::New));
        let tenure = claim.tenure.unwrap();
        assert_eq!(tenure.acquired_at, 2_000);
        assert_eq!(tenure.expires_at, Some(2_061));
        assert_eq!(tenure.lease_id.as_deref(), Some("fresh"));
    }

    #[test]
    fn ones_own_live_claim_keeps_its_token() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, Some(5_000)));
        let (claim, ended, outcome) = change(acquire(&before, &ask(&ann, &ttl(60)), NOW));
        assert_eq!((claim.token, claim.generation), (3, 4));
        assert_eq!((ended, outcome), (None, reply::Tenure::Own));
        let tenure = claim.tenure.unwrap();
        assert_eq!(tenure.acquired_at, 1_000);
        assert_eq!(tenure.expires_at, Some(2_061));
        assert_eq!(tenure.lease_id.as_deref(), Some("l1"));
    }

    #[test]
    fn without_a_ttl_a_claim_becomes_open_ended_unless_it_is_bound() {
        let ann = caller("ann", "s");
        let take = Take::default();
        let claim = claim_of(&ann, 3, Some(5_000));
        let (after, ..) = change(acquire(&situation(claim.clone()), &ask(&ann, &take), NOW));
        assert_eq!(after.tenure.unwrap().expires_at, None);
        let (after, ..) = change(acquire(&situation(bound(claim)), &ask(&ann, &take), NOW));
        assert_eq!(after.tenure.unwrap().expires_at, Some(2_001 + 7_200));
    }

    #[test]
    fn anothers_live_claim_is_a_conflict() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, None));
        let plain = Take::default();
        for (who, reason) in [
            (caller("bob", "s"), Reason::Held),
            (caller("ann", "t"), Reason::OtherSession),
        ] {
            assert_eq!(conflict(acquire(&before, &ask(&who, &plain), NOW)), reason);
        }
    }

    #[test]
    fn an_expired_claim_goes_to_whoever_asks_and_into_the_history() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, Some(10)));
        for who in [caller("bob", "s"), ann.clone()] {
            let (claim, ended, outcome) =
                change(acquire(&before, &ask(&who, &Take::default()), NOW));
            assert_eq!((claim.token, outcome), (4, reply::Tenure::New));
            let ended = ended.unwrap();
            assert_eq!(
                (ended.token, ended.how, ended.ended_at),
                (3, End::Expired, 1_010)
            );
        }
    }

    #[test]
    fn another_name_is_evicted_by_an_admin_alone_who_names_the_tenure() {
        let before = situation(claim_of(&caller("ann", "s"), 3, None));
        let bob = caller("bob", "s");
        let root = admin("root");
        assert!(matches!(
            acquire(&before, &ask(&bob, &take_over(Some(3))), NOW),
            Decision::Refused(Refusal::NeedsAdmin { .. })
        ));
        assert!(matches!(
            acquire(&before, &ask(&root, &take_over(None)), NOW),
            Decision::Refused(Refusal::NeedsExpectedToken { .. })
        ));
        assert_eq!(
            conflict(acquire(&before, &ask(&root, &take_over(Some(2))), NOW)),
            Reason::WrongExpectedToken
        );
        let (claim, ended, _) = change(acquire(&before, &ask(&root, &take_over(Some(3))), NOW));
        let ended = ended.unwrap();
        assert_eq!((claim.token, ended.how), (4, End::TakenOver));
        assert_eq!(ended.by.as_deref(), Some("root"));
        assert_eq!(ended.why.as_deref(), Some("she left"));
    }

    #[test]
    fn ones_own_claim_elsewhere_is_taken_over_with_write_access() {
        let before = situation(claim_of(&caller("ann", "s"), 3, None));
        let elsewhere = caller("ann", "t");
        let (claim, ended, _) = change(acquire(&before, &ask(&elsewhere, &take_over(None)), NOW));
        assert_eq!((claim.token, ended.unwrap().how), (4, End::TakenOver));
        assert_eq!(
            conflict(acquire(&before, &ask(&elsewhere, &take_over(Some(1))), NOW)),
            Reason::WrongExpectedToken
        );
    }

    #[test]
    fn the_evicted_holder_is_told_who_and_why() {
        let ann = caller("ann", "s");
        let mut before = situation(claim_of(&caller("bob", "s"), 4, None));
        before.callers_last = Some(Ended {
            by: Some("bob".to_owned()),
            why: Some("she left".to_owned()),
            how: End::TakenOver,
            ..claim_of(&ann, 3, None).tenure.unwrap().expired(3)
        });
        let Decision::Conflict(conflict) = acquire(&before, &ask(&ann, &Take::default()), NOW)
        else {
            panic!("no conflict");
        };
        assert_eq!(conflict.reason, Reason::TakenOver);
        assert_eq!(conflict.by.as_deref(), Some("bob"));
        assert_eq!(conflict.why.as_deref(), Some("she left"));
    }

    #[test]
    fn a_bound_claim_is_its_keys() {
        let ann = caller("ann", "s");
        let before = situation(bound(claim_of(&ann, 3, Some(5_000))));
        let other_key = Caller {
            profile: Some("SHA256:other".to_owned()),
            ..ann.clone()
        };
        let plain = Take::default();
        assert_eq!(
            conflict(acquire(&before, &ask(&other_key, &plain), NOW)),
            Reason::OtherKey
        );
        // An honest change of key.
        let take = take_over(None);
        let elsewhere = Caller {
            session: Some("t".parse().unwrap()),
            ..other_key
        };
        change(acquire(&before, &ask(&elsewhere, &take), NOW));
    }

    #[test]
    fn if_token_holds_only_while_nobody_held_it_since() {
        let ann = caller("ann", "s");
        let free = situation(Claim {
            token: 3,
            generation: 6,
            tenure: None,
        });
        let take = |token| Take {
            if_token: Some(token),
            ..Take::default()
        };
        change(acquire(&free, &ask(&ann, &take(3)), NOW));
        for token in [0, 2, 4] {
            assert_eq!(
                conflict(acquire(&free, &ask(&ann, &take(token)), NOW)),
                Reason::StaleToken
            );
        }
        change(acquire(&Situation::default(), &ask(&ann, &take(0)), NOW));
    }

    #[test]
    fn a_new_key_takes_ones_own_claim_over_in_its_own_session() {
        let ann = caller("ann", "s");
        let before = situation(bound(claim_of(&ann, 3, Some(5_000))));
        let new_key = Caller {
            profile: Some("SHA256:new".to_owned()),
            ..ann.clone()
        };
        assert_eq!(
            conflict(acquire(&before, &ask(&new_key, &ttl(60)), NOW)),
            Reason::OtherKey
        );
        let (after, ended, outcome) =
            change(acquire(&before, &ask(&new_key, &take_over(None)), NOW));
        assert_eq!((after.token, outcome), (4, reply::Tenure::New));
        assert_eq!(ended.unwrap().how, End::TakenOver);
        // With the same key it is just one's own.
        let (after, ..) = change(acquire(&before, &ask(&ann, &take_over(None)), NOW));
        assert_eq!(after.token, 3);
    }

    #[test]
    fn a_request_whose_tenure_has_ended_begins_no_second_one() {
        let ann = caller("ann", "s");
        let take = Take::default();
        let retry = Acquire {
            request_ended: true,
            ..ask(&ann, &take)
        };
        assert_eq!(
            conflict(acquire(&Situation::default(), &retry, NOW)),
            Reason::RequestEnded
        );
    }

    #[test]
    fn an_older_servers_row_gets_its_session_and_keeps_its_token() {
        let ann = caller("ann", "s");
        let mut claim = claim_of(&ann, 7, None);
        let tenure = claim.tenure.as_mut().unwrap();
        (tenure.session, tenure.lease_id, tenure.seq) = (None, None, None);
        let (after, _, outcome) = change(acquire(
            &situation(claim),
            &ask(&ann, &Take::default()),
            NOW,
        ));
        assert_eq!((after.token, outcome), (7, reply::Tenure::Own));
        let tenure = after.tenure.unwrap();
        assert_eq!(tenure.session, ann.session);
        assert_eq!(tenure.lease_id.as_deref(), Some("fresh"));
    }
}

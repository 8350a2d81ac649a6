//! `renew`: the heartbeat of a live claim of one's own.

use git_claim_api::ids::{Token, Ttl};
use git_claim_api::reply::Reason;

use super::conflict::not_the_holder;
use super::{Caller, Decision, Now, Situation, Tenure};

/// A request to go on holding a claim.
#[derive(Debug)]
pub struct Renew<'a> {
    pub caller: &'a Caller,
    /// `None` keeps what the claim has.
    pub ttl: Option<Ttl>,
    /// The tenure that is meant.
    pub token: Option<Token>,
}

/// Decides on `ask`.
pub fn renew(situation: &Situation, ask: &Renew<'_>, now: Now) -> Decision<()> {
    let claim = &situation.claim;
    let Some(tenure) = claim
        .live(now)
        .filter(|tenure| tenure.is_held_by(ask.caller))
    else {
        return Decision::Conflict(not_the_holder(situation, ask.caller, now));
    };
    if tenure.has_other_key(ask.caller) {
        return Decision::Conflict(Reason::OtherKey.into());
    }
    if ask.token.is_some_and(|token| token.get() != claim.token) {
        return Decision::Conflict(Reason::StaleToken.into());
    }
    let ttl = ask.ttl.or(tenure.ttl);
    let after = Tenure {
        session: ask.caller.session.clone(),
        expires_at: match ttl {
            Some(ttl) => Some(now.end_of(ttl)),
            // An older server's row has an end without saying how long it was.
            None => tenure.expires_at,
        },
        ttl,
        heartbeat_at: Some(now.floor()),
        heartbeat_count: tenure.heartbeat_count + 1,
        ..tenure.clone()
    };
    Decision::Change {
        claim: claim.with(Some(after)),
        ended: None,
        outcome: (),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Claim, Ended};
    use super::*;
    use git_claim_api::reply::End;

    const NOW: Now = Now(2_000_500);

    fn ask(caller: &Caller, ttl: Option<u64>, token: Option<u64>) -> Renew<'_> {
        Renew {
            caller,
            ttl: ttl.map(|ttl| Ttl::new(ttl).unwrap()),
            token: token.map(|token| Token::new(token).unwrap()),
        }
    }

    fn reason(situation: &Situation, ask: &Renew<'_>) -> Reason {
        match renew(situation, ask, NOW) {
            Decision::Conflict(conflict) => conflict.reason,
            other => panic!("no conflict: {other:?}"),
        }
    }

    #[test]
    fn a_heartbeat_moves_the_end_and_keeps_the_token() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, Some(5_000)));
        for (ttl, end) in [(Some(60), 2_061), (None, 2_001 + 5_000)] {
            let Decision::Change { claim, .. } = renew(&before, &ask(&ann, ttl, Some(3)), NOW)
            else {
                panic!("not renewed");
            };
            assert_eq!((claim.token, claim.generation), (3, 4));
            let tenure = claim.tenure.unwrap();
            assert_eq!(tenure.expires_at, Some(end));
            assert_eq!(
                (tenure.heartbeat_at, tenure.heartbeat_count),
                (Some(2_000), 1)
            );
        }
    }

    #[test]
    fn whoever_does_not_hold_it_learns_why() {
        let ann = caller("ann", "s");
        let bob = caller("bob", "s");
        let live = claim_of(&ann, 3, None);
        let expired = claim_of(&ann, 3, Some(10));
        let free = Claim {
            tenure: None,
            ..live.clone()
        };
        let other_key = Caller {
            profile: None,
            ..ann.clone()
        };
        for (claim, who, token, expected) in [
            (live.clone(), &bob, None, Reason::Held),
            (
                live.clone(),
                &caller("ann", "t"),
                None,
                Reason::OtherSession,
            ),
            (live.clone(), &ann, Some(2), Reason::StaleToken),
            (bound(live), &other_key, None, Reason::OtherKey),
            (expired, &ann, None, Reason::Expired),
            (free, &ann, None, Reason::Released),
            (Claim::default(), &ann, None, Reason::Released),
        ] {
            assert_eq!(
                reason(&situation(claim), &ask(who, Some(60), token)),
                expected
            );
        }
    }

    #[test]
    fn what_a_push_has_done_is_told_until_somebody_takes_it_again() {
        let ann = caller("ann", "s");
        let held = claim_of(&ann, 3, None);
        let after = |claim: &Claim| Situation {
            callers_last: Some(Ended {
                how: End::Closed,
                why: Some("the issue was closed".to_owned()),
                ..held.tenure.clone().unwrap().expired(3)
            }),
            claim: claim.clone(),
        };
        let free = Claim {
            tenure: None,
            ..held.clone()
        };
        let Decision::Conflict(conflict) = renew(&after(&free), &ask(&ann, None, None), NOW) else {
            panic!("no conflict");
        };
        assert_eq!(conflict.reason, Reason::Released);
        assert_eq!(conflict.why.as_deref(), Some("the issue was closed"));
        let bobs = claim_of(&caller("bob", "s"), 4, None);
        assert_eq!(reason(&after(&bobs), &ask(&ann, None, None)), Reason::Held);
    }

    #[test]
    fn a_forced_release_names_who_did_it() {
        let ann = caller("ann", "s");
        let held = claim_of(&ann, 3, None);
        let situation = Situation {
            callers_last: Some(Ended {
                how: End::Forced,
                by: Some("root".to_owned()),
                why: Some("gone".to_owned()),
                ..held.tenure.clone().unwrap().expired(3)
            }),
            claim: Claim {
                tenure: None,
                ..held
            },
        };
        assert_eq!(
            reason(&situation, &ask(&ann, None, None)),
            Reason::TakenOver
        );
    }
}

//! `release`: give a claim back.

use git_claim_api::ids::Token;
use git_claim_api::reply::{End, Reason};
use git_claim_api::verb::Eviction;

use super::conflict::{may_evict, not_the_holder};
use super::{Caller, Decision, Ended, Now, Situation};

/// A request to give a claim back.
#[derive(Debug)]
pub struct Release<'a> {
    pub caller: &'a Caller,
    /// The tenure that is meant.
    pub token: Option<Token>,
    /// End it even if it is another's, or one's own elsewhere.
    pub force: Option<&'a Eviction>,
}

/// Decides on `ask`. The outcome is whether there was anything to release.
pub fn release(situation: &Situation, ask: &Release<'_>, now: Now) -> Decision<bool> {
    let claim = &situation.claim;
    let live = claim.live(now);
    let (how, by, why) = match live {
        Some(tenure) if tenure.is_held_by(ask.caller) && !tenure.has_other_key(ask.caller) => {
            (End::Released, None, None)
        }
        Some(tenure) => match ask.force {
            Some(eviction) => {
                if let Err(no) = may_evict(claim, tenure, ask.caller, eviction) {
                    return no.into();
                }
                (
                    End::Forced,
                    Some(ask.caller.name.clone()),
                    Some(eviction.reason.to_string()),
                )
            }
            None => return Decision::Conflict(not_the_holder(situation, ask.caller, now)),
        },
        None => (End::Released, None, None),
    };
    if ask.token.is_some_and(|token| token.get() != claim.token) {
        return Decision::Conflict(Reason::StaleToken.into());
    }
    match (live, &claim.tenure) {
        (Some(tenure), _) => Decision::Change {
            claim: claim.with(None),
            ended: Some(Ended {
                token: claim.token,
                tenure: tenure.clone(),
                ended_at: now.floor(),
                how,
                by,
                why,
            }),
            outcome: true,
        },
        // One's own that has run out is given up for good: if the clock is set
        // back, it would live again.
        (None, Some(tenure))
            if tenure.is_held_by(ask.caller) && !tenure.has_other_key(ask.caller) =>
        {
            Decision::Change {
                claim: claim.with(None),
                ended: Some(tenure.expired(claim.token)),
                outcome: false,
            }
        }
        (None, _) => Decision::Keep(false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Claim, Refusal};
    use super::*;

    const NOW: Now = Now(2_000_500);

    fn ask(caller: &Caller) -> Release<'_> {
        Release {
            caller,
            token: None,
            force: None,
        }
    }

    fn force(expected: Option<u64>) -> Eviction {
        Eviction {
            reason: "gone".parse().unwrap(),
            expected_token: expected.map(|token| Token::new(token).unwrap()),
        }
    }

    #[test]
    fn a_released_claim_keeps_its_token() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, None));
        let Decision::Change {
            claim,
            ended,
            outcome,
        } = release(&before, &ask(&ann), NOW)
        else {
            panic!("not released");
        };
        assert_eq!((claim.token, claim.tenure, outcome), (3, None, true));
        let ended = ended.unwrap();
        assert_eq!((ended.token, ended.how, ended.by), (3, End::Released, None));
    }

    #[test]
    fn nothing_to_release_is_done_already() {
        let ann = caller("ann", "s");
        for claim in [Claim::default(), claim_of(&caller("bob", "s"), 3, Some(10))] {
            let decision = release(&situation(claim), &ask(&ann), NOW);
            assert_eq!(decision, Decision::Keep(false));
        }
    }

    #[test]
    fn ones_own_that_ran_out_is_given_up_for_good() {
        let ann = caller("ann", "s");
        let before = situation(claim_of(&ann, 3, Some(10)));
        let Decision::Change {
            claim,
            ended,
            outcome,
        } = release(&before, &ask(&ann), NOW)
        else {
            panic!("not given up");
        };
        assert_eq!((claim.token, claim.tenure, outcome), (3, None, false));
        let ended = ended.unwrap();
        assert_eq!((ended.how, ended.ended_at), (End::Expired, 1_010));
        let other_key = Caller {
            profile: None,
            ..ann.clone()
        };
        let bound = situation(bound(claim_of(&ann, 3, Some(10))));
        let decision = release(&bound, &ask(&other_key), NOW);
        assert_eq!(decision, Decision::Keep(false));
    }

    #[test]
    fn a_late_call_cannot_touch_the_next_tenure() {
        let ann = caller("ann", "s");
        let late = Release {
            token: Some(Token::new(2).unwrap()),
            ..ask(&ann)
        };
        for claim in [
            claim_of(&ann, 3, None),
            Claim {
                token: 3,
                ..Claim::default()
            },
        ] {
            assert_eq!(
                release(&situation(claim), &late, NOW),
                Decision::Conflict(Reason::StaleToken.into())
            );
        }
    }

    #[test]
    fn anothers_claim_is_released_by_force_alone() {
        let before = situation(claim_of(&caller("ann", "s"), 3, None));
        let bob = caller("bob", "s");
        let root = admin("root");
        assert_eq!(
            release(&before, &ask(&bob), NOW),
            Decision::Conflict(Reason::Held.into())
        );
        let (named, unnamed, wrong) = (force(Some(3)), force(None), force(Some(2)));
        let by_force = |who, eviction| {
            release(
                &before,
                &Release {
                    force: Some(eviction),
                    ..ask(who)
                },
                NOW,
            )
        };
        assert!(matches!(
            by_force(&bob, &named),
            Decision::Refused(Refusal::NeedsAdmin { .. })
        ));
        assert!(matches!(
            by_force(&root, &unnamed),
            Decision::Refused(Refusal::NeedsExpectedToken { .. })
        ));
        assert_eq!(
            by_force(&root, &wrong),
            Decision::Conflict(Reason::WrongExpectedToken.into())
        );
        let Decision::Change { ended, .. } = by_force(&root, &named) else {
            panic!("not released");
        };
        let ended = ended.unwrap();
        assert_eq!(
            (ended.how, ended.by.as_deref()),
            (End::Forced, Some("root"))
        );
    }
}

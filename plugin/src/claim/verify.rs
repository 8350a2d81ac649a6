//! `verify`: is this token the live one, and the caller's?

use git_claim_api::ids::Token;
use git_claim_api::reply::Reason;

use super::conflict::not_the_holder;
use super::{Caller, Decision, Now, Situation};

/// A token to look at.
#[derive(Debug)]
pub struct Verify<'a> {
    pub caller: &'a Caller,
    pub token: Token,
}

/// Decides on `ask`; never a change.
pub fn verify(situation: &Situation, ask: &Verify<'_>, now: Now) -> Decision<()> {
    let claim = &situation.claim;
    match claim.live(now) {
        Some(tenure) if tenure.is_held_by(ask.caller) => {
            if tenure.has_other_key(ask.caller) {
                Decision::Conflict(Reason::OtherKey.into())
            } else if ask.token.get() != claim.token {
                Decision::Conflict(Reason::StaleToken.into())
            } else {
                Decision::Keep(())
            }
        }
        _ => Decision::Conflict(not_the_holder(situation, ask.caller, now)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn only_the_live_token_of_ones_own_is_valid() {
        let ann = caller("ann", "s");
        let bob = caller("bob", "s");
        let live = claim_of(&ann, 3, Some(5_000));
        let expired = claim_of(&ann, 3, Some(10));
        let conflict = |reason: Reason| Decision::Conflict(reason.into());
        for (claim, who, token, expected) in [
            (&live, &ann, 3, Decision::Keep(())),
            (&live, &ann, 2, conflict(Reason::StaleToken)),
            (&live, &bob, 3, conflict(Reason::Held)),
            (&expired, &ann, 3, conflict(Reason::Expired)),
        ] {
            let ask = Verify {
                caller: who,
                token: Token::new(token).unwrap(),
            };
            assert_eq!(
                verify(&situation(claim.clone()), &ask, Now(2_000_500)),
                expected
            );
        }
    }
}

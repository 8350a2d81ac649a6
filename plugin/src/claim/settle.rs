//! A push that has done with a claim ends it: its issue is closed, or its
//! branch merged.

use git_claim_api::reply::End;

use super::{Claim, Decision, Ended, Now};

/// Which tenure a push has done with, and how.
#[derive(Debug)]
pub struct Settle<'a> {
    /// The tenure that was looked at; a later one is not meant.
    pub token: u64,
    pub lease_id: Option<&'a str>,
    /// [`End::Closed`] or [`End::Merged`].
    pub how: End,
    /// Who pushed.
    pub by: Option<&'a str>,
    pub why: &'a str,
}

/// Decides on `ask`. The outcome is whether there was anything to end.
pub fn settle(claim: &Claim, ask: &Settle<'_>, now: Now) -> Decision<bool> {
    let Some(tenure) = claim
        .live(now)
        .filter(|tenure| claim.token == ask.token && tenure.lease_id.as_deref() == ask.lease_id)
    else {
        return Decision::Keep(false);
    };
    Decision::Change {
        claim: claim.with(None),
        ended: Some(Ended {
            token: claim.token,
            tenure: tenure.clone(),
            ended_at: now.floor(),
            how: ask.how,
            by: ask.by.map(str::to_owned),
            why: Some(ask.why.to_owned()),
        }),
        outcome: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn exactly_the_tenure_that_was_looked_at_is_ended() {
        let ask = Settle {
            token: 3,
            lease_id: Some("l1"),
            how: End::Merged,
            by: Some("carol"),
            why: "branch 'claim/42' was merged",
        };
        let now = Now(2_000_500);
        let live = claim_of(&caller("ann", "s"), 3, None);
        let Decision::Change { claim, ended, .. } = settle(&live, &ask, now) else {
            panic!("not ended");
        };
        assert_eq!((claim.token, claim.tenure), (3, None));
        assert_eq!(ended.unwrap().how, End::Merged);

        let mut other_lease = live.clone();
        other_lease.tenure.as_mut().unwrap().lease_id = Some("l2".to_owned());
        for claim in [
            Claim {
                token: 4,
                ..live.clone()
            },
            other_lease,
            claim_of(&caller("ann", "s"), 3, Some(10)),
            Claim {
                tenure: None,
                ..live
            },
        ] {
            assert_eq!(settle(&claim, &ask, now), Decision::Keep(false));
        }
    }
}

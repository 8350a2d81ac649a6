//! The fence at push: may these refs move, given who pushes, the tokens that
//! they show, and the claims that stand?

use git_claim_api::ids::{Branch, IssueId};
use git_claim_api::push::{ClaimToken, Pusher};

use super::{Claim, Ended, Now, Tenure};

/// A token that a push shows, of a lease that the repository knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// With the issue's full id.
    pub token: ClaimToken,
    /// How the issue's claim stands.
    pub claim: Claim,
    /// How the token's own tenure ended, if the history knows.
    pub ended: Option<Ended>,
}

/// A branch that moves, and the claims that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub branch: Branch,
    /// The live claim that is bound to it.
    pub bound: Option<(IssueId, Claim)>,
    /// Under `strict`: the claim on the issue that it is named after.
    pub named: Option<(IssueId, Claim)>,
}

/// Why a push must not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection<'a> {
    /// It shows a token that is not the live one of a claim of the pusher's.
    Stale {
        shown: &'a Shown,
        why: Stale<'a>,
        /// Who holds the issue now, if anybody does.
        holder: Option<&'a Tenure>,
    },
    /// It moves a bound branch without the claim's token.
    Bound {
        branch: &'a Branch,
        issue: &'a IssueId,
        tenure: &'a Tenure,
        /// What the holder would have to show; `None` where somebody else
        /// pushes.
        token: Option<ClaimToken>,
    },
    /// It moves a branch that is named after an issue, which the pusher does not
    /// hold.
    Unclaimed {
        branch: &'a Branch,
        issue: &'a IssueId,
        holder: Option<&'a Tenure>,
    },
}

/// What became of a tenure whose token is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale<'a> {
    /// It lives, but is somebody else's, or another key's.
    NotThePushers,
    RanOut(Option<i64>),
    /// It ended, as the history says.
    Ended(&'a Ended),
    /// No tenure had this number with this lease.
    NeverSuch,
}

/// Decides on a push; an empty answer lets it pass.
pub fn fence<'a>(
    pusher: Option<&Pusher>,
    shown: &'a [Shown],
    moved: &'a [Moved],
    now: Now,
) -> Vec<Objection<'a>> {
    let stale = shown
        .iter()
        .filter(|shown| !shown.is_live_and_of(pusher, now))
        .map(|shown| Objection::Stale {
            shown,
            why: shown.why(now),
            holder: shown.claim.live(now),
        });
    let moves = moved
        .iter()
        .filter_map(|moved| moved.objection(pusher, shown, now));
    stale.chain(moves).collect()
}

impl Shown {
    /// Whether this is the live token of a claim of the pusher's.
    fn is_live_and_of(&self, pusher: Option<&Pusher>, now: Now) -> bool {
        self.live(now)
            .is_some_and(|tenure| is_pushers(tenure, pusher))
    }

    /// The tenure that the token is of, if it lives.
    fn live(&self, now: Now) -> Option<&Tenure> {
        self.claim.live(now).filter(|tenure| {
            self.claim.token == self.token.token.get()
                && tenure.lease_id.as_deref() == Some(self.token.lease_id.as_str())
        })
    }

    fn why(&self, now: Now) -> Stale<'_> {
        if self.live(now).is_some() {
            return Stale::NotThePushers;
        }
        if let Some(ended) = &self.ended {
            return Stale::Ended(ended);
        }
        match &self.claim.tenure {
            Some(tenure)
                if !tenure.is_live(now)
                    && self.claim.token == self.token.token.get()
                    && tenure.lease_id.as_deref() == Some(self.token.lease_id.as_str()) =>
            {
                Stale::RanOut(tenure.expires_at)
            }
            _ => Stale::NeverSuch,
        }
    }
}

impl Moved {
    fn objection<'a>(
        &'a self,
        pusher: Option<&Pusher>,
        shown: &[Shown],
        now: Now,
    ) -> Option<Objection<'a>> {
        if let Some((issue, claim)) = &self.bound
            && let Some(tenure) = claim.live(now)
        {
            let shows_it = shown.iter().any(|shown| {
                shown.token.issue == *issue
                    && shown.claim.token == claim.token
                    && shown.is_live_and_of(pusher, now)
            });
            return (!shows_it).then(|| Objection::Bound {
                branch: &self.branch,
                issue,
                tenure,
                token: token_of(issue, claim, tenure).filter(|_| is_pushers(tenure, pusher)),
            });
        }
        let (issue, claim) = self.named.as_ref()?;
        let holder = claim.live(now);
        if holder.is_some_and(|tenure| is_pushers(tenure, pusher)) {
            return None;
        }
        Some(Objection::Unclaimed {
            branch: &self.branch,
            issue,
            holder,
        })
    }
}

/// Whether the pusher holds `tenure`: by the name, and where it is bound by the
/// key too. A push tells no session.
fn is_pushers(tenure: &Tenure, pusher: Option<&Pusher>) -> bool {
    pusher.is_some_and(|pusher| {
        tenure.holder == pusher.name
            && (tenure.binding.is_none()
                || tenure.profile.as_deref() == Some(pusher.profile.as_str()))
    })
}

fn token_of(issue: &IssueId, claim: &Claim, tenure: &Tenure) -> Option<ClaimToken> {
    Some(ClaimToken {
        issue: issue.clone(),
        token: claim.token.try_into().ok()?,
        lease_id: tenure.lease_id.clone()?,
    })
}

#[cfg(test)]
mod tests {
    use git_claim_api::reply::End;

    use super::super::testing::*;
    use super::*;

    const NOW: Now = Now(2_000_500);

    fn pusher(name: &str) -> Pusher {
        Pusher {
            name: name.to_owned(),
            profile: format!("SHA256:{name}"),
        }
    }

    fn shown(claim: Claim, token: u64, lease_id: &str) -> Shown {
        Shown {
            token: format!("42:{token}:{lease_id}").parse().unwrap(),
            claim,
            ended: None,
        }
    }

    fn moved(bound: Option<Claim>, named: Option<Claim>) -> Moved {
        let of_42 = |claim| ("42".parse().unwrap(), claim);
        Moved {
            branch: "claim/42".parse().unwrap(),
            bound: bound.map(of_42),
            named: named.map(of_42),
        }
    }

    /// Why the only token of a push by ann is stale; `None` if it is not.
    fn stale(pusher: Option<&Pusher>, shown: Shown) -> Option<String> {
        let shown = [shown];
        match fence(pusher, &shown, &[], NOW).as_slice() {
            [] => None,
            [Objection::Stale { why, .. }] => {
                let why = format!("{why:?}");
                Some(why.split(['(', ' ']).next().unwrap().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_live_token_of_a_claim_of_the_pushers_passes() {
        let ann = pusher("ann");
        let other_key = Pusher {
            profile: "SHA256:x".to_owned(),
            ..ann.clone()
        };
        let live = claim_of(&caller("ann", "s"), 3, None);
        let expired = claim_of(&caller("ann", "s"), 3, Some(10));
        let bobs = claim_of(&caller("bob", "s"), 4, None);
        let over = Ended {
            how: End::TakenOver,
            ..live.tenure.clone().unwrap().expired(3)
        };
        let taken_over = Shown {
            ended: Some(over),
            ..shown(bobs.clone(), 3, "l1")
        };
        for (who, shown, expected) in [
            (Some(&ann), shown(live.clone(), 3, "l1"), None),
            // The key counts on a bound claim alone.
            (Some(&other_key), shown(live.clone(), 3, "l1"), None),
            (
                Some(&other_key),
                shown(bound(live.clone()), 3, "l1"),
                Some("NotThePushers"),
            ),
            (Some(&ann), shown(bound(live.clone()), 3, "l1"), None),
            (
                Some(&pusher("bob")),
                shown(live.clone(), 3, "l1"),
                Some("NotThePushers"),
            ),
            (None, shown(live.clone(), 3, "l1"), Some("NotThePushers")),
            (Some(&ann), shown(expired, 3, "l1"), Some("RanOut")),
            (Some(&ann), taken_over, Some("Ended")),
            (Some(&ann), shown(live.clone(), 2, "l1"), Some("NeverSuch")),
            (Some(&ann), shown(live, 3, "l2"), Some("NeverSuch")),
            (Some(&ann), shown(bobs, 3, "l1"), Some("NeverSuch")),
        ] {
            let why = stale(who, shown.clone());
            assert_eq!(why.as_deref(), expected, "{who:?} {shown:?}");
        }
    }

    #[test]
    fn a_bound_branch_moves_with_its_claims_token_alone() {
        let ann = pusher("ann");
        let claim = bound(claim_of(&caller("ann", "s"), 3, None));
        let branch = [moved(Some(claim.clone()), None)];
        let token = [shown(claim.clone(), 3, "l1")];
        assert_eq!(fence(Some(&ann), &token, &branch, NOW), []);

        let missing = fence(Some(&ann), &[], &branch, NOW);
        let [
            Objection::Bound {
                token: Some(token), ..
            },
        ] = missing.as_slice()
        else {
            panic!("{missing:?}");
        };
        assert_eq!(token.to_string(), "42:3:l1");
        // Nobody else is told how to get past the holder.
        for other in [Some(&pusher("bob")), None] {
            let refused = fence(other, &[], &branch, NOW);
            assert!(
                matches!(refused[..], [Objection::Bound { token: None, .. }]),
                "{refused:?}"
            );
        }
        // Another claim's token does not open it.
        let mut other = shown(claim_of(&caller("ann", "s"), 3, None), 3, "l1");
        other.token.issue = "43".parse().unwrap();
        let refused = fence(Some(&ann), std::slice::from_ref(&other), &branch, NOW);
        assert!(matches!(refused[..], [Objection::Bound { .. }]));
    }

    #[test]
    fn a_branch_whose_claim_has_ended_is_free() {
        let expired = bound(claim_of(&caller("ann", "s"), 3, Some(10)));
        let branch = [moved(Some(expired), None)];
        assert_eq!(fence(Some(&pusher("bob")), &[], &branch, NOW), []);
        assert_eq!(fence(None, &[], &[moved(None, None)], NOW), []);
    }

    #[test]
    fn under_strict_an_issue_s_branch_needs_a_live_claim_of_the_pushers() {
        let live = claim_of(&caller("ann", "s"), 3, None);
        let expired = claim_of(&caller("ann", "s"), 3, Some(10));
        for (who, claim, passes) in [
            (Some(&pusher("ann")), &live, true),
            (Some(&pusher("bob")), &live, false),
            (None, &live, false),
            (Some(&pusher("ann")), &expired, false),
            (Some(&pusher("ann")), &Claim::default(), false),
        ] {
            let branch = [moved(None, Some(claim.clone()))];
            assert_eq!(fence(who, &[], &branch, NOW).is_empty(), passes, "{who:?}");
        }
    }
}

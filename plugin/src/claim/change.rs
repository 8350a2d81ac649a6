//! What happened to a claim, seen from the two sides of a change: how it stood
//! before, and how it stands now.

use git_claim_api::event::{Event, Kind, Side};
use git_claim_api::ids::IssueId;
use git_claim_api::reply::End;
use git_claim_api::time::rfc3339;

use super::{Claim, Ended, Now, Tenure};

/// Where and when something happened, and to whom sessions are shown.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub repo: &'a str,
    pub issue: &'a IssueId,
    pub now: Now,
    /// A tenure's session as it may be shown.
    pub session: &'a dyn Fn(&Tenure) -> Option<String>,
}

/// The events of the change from `before` to `after`, in which `ended` came to
/// its end.
pub fn events(
    scene: Scene<'_>,
    before: &Claim,
    after: &Claim,
    ended: Option<&Ended>,
) -> Vec<Event> {
    let holds_now = after.tenure.as_ref();
    let Some(ended) = ended else {
        let held = before
            .tenure
            .as_ref()
            .filter(|_| before.token == after.token);
        return match (held, holds_now) {
            (_, None) => Vec::new(),
            (None, Some(tenure)) => vec![scene.event(begun(tenure), None, before, after)],
            (Some(_), Some(_)) => vec![scene.event(Kind::Renewed, None, before, after)],
        };
    };
    let over = Claim {
        token: ended.token,
        generation: before.generation,
        tenure: Some(ended.tenure.clone()),
    };
    let kind = match ended.how {
        End::Expired => Kind::Expired,
        End::TakenOver => Kind::TakenOver,
        End::Recovered => Kind::Recovered,
        End::Released | End::Forced | End::Closed | End::Merged => Kind::Released,
    };
    let mut events = vec![scene.event(kind, Some(ended), &over, after)];
    if let (Kind::Expired | Kind::Released, Some(tenure)) = (kind, holds_now) {
        events.push(scene.event(begun(tenure), None, &over, after));
    }
    events
}

fn begun(tenure: &Tenure) -> Kind {
    if tenure.recovery.is_some() {
        Kind::Recovered
    } else {
        Kind::Acquired
    }
}

impl Scene<'_> {
    fn event(&self, event: Kind, ended: Option<&Ended>, before: &Claim, after: &Claim) -> Event {
        Event {
            event,
            repo: self.repo.to_owned(),
            issue: self.issue.to_string(),
            at: rfc3339(self.now.floor()).unwrap_or_default(),
            how: ended.map(|ended| ended.how),
            by: ended.and_then(|ended| ended.by.clone()),
            why: ended.and_then(|ended| ended.why.clone()),
            before: self.side(before),
            after: self.side(after),
        }
    }

    fn side(&self, claim: &Claim) -> Option<Side> {
        let tenure = claim.tenure.as_ref()?;
        Some(Side {
            token: claim.token,
            holder: tenure.holder.clone(),
            session: (self.session)(tenure),
            acquired_at: rfc3339(tenure.acquired_at),
            expires_at: tenure.expires_at.and_then(rfc3339),
            branch: tenure
                .binding
                .as_ref()
                .map(|bound| bound.branch.to_string()),
            note: tenure.note.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn happened(
        before: &Claim,
        after: &Claim,
        ended: Option<&Ended>,
    ) -> Vec<(Kind, Option<u64>, Option<u64>)> {
        let scene = Scene {
            repo: "r.git",
            issue: &"42".parse().unwrap(),
            now: Now(2_000_500),
            session: &|tenure| tenure.session.as_ref().map(ToString::to_string),
        };
        let token = |side: &Option<Side>| side.as_ref().map(|side| side.token);
        events(scene, before, after, ended)
            .iter()
            .map(|event| (event.event, token(&event.before), token(&event.after)))
            .collect()
    }

    #[test]
    fn each_change_has_its_event_with_both_sides() {
        let ann = claim_of(&caller("ann", "s"), 3, Some(10));
        let bob = claim_of(&caller("bob", "s"), 4, None);
        let free = Claim {
            tenure: None,
            ..ann.clone()
        };
        let over = |how| Ended {
            how,
            ..ann.tenure.clone().unwrap().expired(3)
        };
        let released = over(End::Released);
        let (expired, taken) = (over(End::Expired), over(End::TakenOver));
        let (closed, recovered) = (over(End::Closed), over(End::Recovered));
        use Kind::{Acquired, Expired, Recovered, Released, Renewed, TakenOver};
        for (before, after, ended, expected) in [
            (&free, &bob, None, &[(Acquired, None, Some(4))][..]),
            (&ann, &ann, None, &[(Renewed, Some(3), Some(3))]),
            (&ann, &free, Some(&released), &[(Released, Some(3), None)]),
            (&ann, &free, Some(&closed), &[(Released, Some(3), None)]),
            (
                &ann,
                &bob,
                Some(&expired),
                &[(Expired, Some(3), Some(4)), (Acquired, Some(3), Some(4))],
            ),
            (&ann, &bob, Some(&taken), &[(TakenOver, Some(3), Some(4))]),
            (
                &ann,
                &bob,
                Some(&recovered),
                &[(Recovered, Some(3), Some(4))],
            ),
            (&free, &free, None, &[]),
        ] {
            assert_eq!(happened(before, after, ended), expected);
        }
    }
}

//! What has changed in a repository since the last look: the claims that live
//! now against those that lived then, and what the history has got since.

use std::collections::{BTreeMap, HashSet};

use git_claim_api::event::Event;
use git_claim_api::ids::IssueId;
use git_claim_api::reply::End;

use crate::claim::change::{Scene, events};
use crate::claim::{Claim, Ended, Now};
use crate::ledger::{Filter, View};
use crate::server::{Admitted, Call, Failure};
use crate::view::Viewer;

/// How much of the history is looked at: more tenures than end between two
/// looks.
const RECENT: u32 = 1_000;

/// One repository under watch.
pub struct Watch {
    version: u64,
    /// Whether this connection has asked for something itself since.
    touched: bool,
    seen: Seen,
}

/// How everything stood.
struct Seen {
    at: Now,
    live: BTreeMap<IssueId, Claim>,
    /// The tenures that were in the history already.
    past: HashSet<(IssueId, u64)>,
    /// What has come into the history since the look before.
    ended: BTreeMap<IssueId, Vec<Ended>>,
}

impl Seen {
    fn look(admitted: &Admitted<'_>, before: &HashSet<(IssueId, u64)>) -> Result<Seen, Failure> {
        let mut seen = Seen {
            at: Now(0),
            live: BTreeMap::new(),
            past: HashSet::new(),
            ended: BTreeMap::new(),
        };
        let look = &mut |view: &dyn View| {
            seen.at = view.now();
            let live = view.live(&admitted.repo, &Filter::default())?;
            seen.live = live.into_iter().collect();
            for (issue, ended) in view.history(&admitted.repo, None, Some(RECENT))? {
                let tenure = (issue.clone(), ended.token);
                if !before.contains(&tenure) {
                    seen.ended.entry(issue).or_default().push(ended);
                }
                seen.past.insert(tenure);
            }
            Ok(())
        };
        admitted.call.read(look)?;
        for ended in seen.ended.values_mut() {
            ended.sort_by_key(|ended| ended.token);
        }
        Ok(seen)
    }

    /// Whether a claim that lived has run out by itself.
    fn has_run_out(&self, now: Now) -> bool {
        self.live.values().any(|claim| claim.live(now).is_none())
    }
}

impl Watch {
    /// Watches from now on.
    ///
    /// # Errors
    /// The ledger's.
    pub fn begin(admitted: &Admitted<'_>) -> Result<Watch, Failure> {
        // The version first: what changes in between is looked at again.
        let version = admitted.call.version()?.number;
        let mut seen = Seen::look(admitted, &HashSet::new())?;
        seen.ended.clear();
        Ok(Watch {
            version,
            touched: false,
            seen,
        })
    }

    /// Notes a request on the same connection: the ledger's version tells of
    /// others' changes alone.
    pub fn touch(&mut self) {
        self.touched = true;
    }

    /// Whether there can be anything new. Costs next to nothing.
    ///
    /// # Errors
    /// The ledger's.
    pub fn is_due(&self, call: &Call<'_>) -> Result<bool, Failure> {
        let version = call.version()?;
        Ok(self.touched || version.number != self.version || self.seen.has_run_out(version.at))
    }

    /// The events since the last look, as the one who asks may see them.
    ///
    /// # Errors
    /// The ledger's.
    pub fn look(&mut self, admitted: &Admitted<'_>) -> Result<Vec<Event>, Failure> {
        self.version = admitted.call.version()?.number;
        self.touched = false;
        let now = Seen::look(admitted, &self.seen.past)?;
        let before = std::mem::replace(&mut self.seen, now);
        let issues: HashSet<&IssueId> = before
            .live
            .keys()
            .chain(self.seen.live.keys())
            .chain(self.seen.ended.keys())
            .collect();
        let mut issues: Vec<&IssueId> = issues.into_iter().collect();
        issues.sort();
        let caller = admitted.caller(None);
        let viewer = Viewer {
            caller: &caller,
            may_write: false,
            ledger_id: None,
            now: self.seen.at,
        };
        let mut told = Vec::new();
        for issue in issues {
            let scene = Scene {
                repo: &admitted.repo,
                issue,
                now: self.seen.at,
                session: &|tenure| viewer.session(tenure),
            };
            let ended = self.seen.ended.get(issue).map_or(&[][..], Vec::as_slice);
            let (then, now) = (before.live.get(issue), self.seen.live.get(issue));
            told.extend(between(scene, then, ended, now, before.at));
        }
        Ok(told)
    }
}

/// What happened to one issue between two looks, the first of them at `since`.
fn between(
    scene: Scene<'_>,
    then: Option<&Claim>,
    ended: &[Ended],
    now: Option<&Claim>,
    since: Now,
) -> Vec<Event> {
    let mut told = Vec::new();
    // One that ran out by itself is in the history only once somebody else
    // begins; that it ran out was told when it did.
    let is_old = |ended: &&Ended| {
        ended.how == End::Expired
            && ended.ended_at <= since.floor()
            && then.is_none_or(|then| then.token != ended.token)
    };
    let ended: Vec<&Ended> = ended.iter().filter(|ended| !is_old(ended)).collect();
    let mut held = then.cloned();
    let begun = ended.iter().map(|ended| Claim {
        token: ended.token,
        generation: 0,
        tenure: Some(ended.tenure.clone()),
    });
    for next in begun.chain(now.cloned()) {
        match &held {
            // Out of the history: the same one, on its way to its end.
            Some(held) if held.token == next.token && next.generation == 0 => {}
            Some(held) if held.token == next.token => {
                if held.generation != next.generation {
                    told.extend(events(scene, held, &next, None));
                }
            }
            Some(held) => {
                let over = end_of(held, &ended, scene.now);
                let is_one_step = over.as_ref().is_some_and(|over| {
                    matches!(over.how, End::Expired | End::TakenOver | End::Recovered)
                });
                if is_one_step {
                    told.extend(events(scene, held, &next, over.as_ref()));
                } else {
                    told.extend(events(scene, held, &Claim::default(), over.as_ref()));
                    told.extend(events(scene, &Claim::default(), &next, None));
                }
            }
            None => told.extend(events(scene, &Claim::default(), &next, None)),
        }
        held = Some(next);
    }
    if now.is_none()
        && let Some(held) = &held
    {
        let over = end_of(held, &ended, scene.now);
        told.extend(events(scene, held, &Claim::default(), over.as_ref()));
    }
    told
}

/// How a tenure that is over has ended: as the history says, by its own end, or,
/// where an older server keeps no history, by being given back.
fn end_of(claim: &Claim, ended: &[&Ended], now: Now) -> Option<Ended> {
    if let Some(ended) = ended.iter().find(|ended| ended.token == claim.token) {
        return Some((*ended).clone());
    }
    let tenure = claim.tenure.as_ref()?;
    let ran_out = tenure.expired(claim.token);
    Some(if tenure.is_live(now) {
        Ended {
            how: End::Released,
            ended_at: now.floor(),
            ..ran_out
        }
    } else {
        ran_out
    })
}

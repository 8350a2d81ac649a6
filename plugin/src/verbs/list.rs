//! `list`: the live claims, the oldest tenure first, or those that have ended;
//! and, where that is asked for, what is there to be claimed.

use std::time::{Duration, Instant};

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Text};
use git_claim_api::reply::{Lease, ListReply, ReadyIssue};

use crate::claim::Now;
use crate::ledger::Filter;
use crate::server::{Admitted, Answer, Failure};
use crate::tracker::TrackerError;
use crate::verbs::{held, look_at};
use crate::view::Viewer;

/// Which claims, and how many.
#[derive(Debug)]
pub struct Wanted {
    pub holder: Option<Text>,
    pub mine: bool,
    pub ended: bool,
    pub limit: Option<u32>,
    pub after: Option<IssueId>,
    pub ready: bool,
}

pub fn run(
    admitted: &Admitted<'_>,
    wanted: Wanted,
    session: Option<&Session>,
) -> Result<Answer, Failure> {
    let caller = admitted.caller(session);
    let holder = match wanted.holder {
        Some(holder) if wanted.mine && holder.as_str() != caller.name => {
            return Err(Failure::Refused(
                "--mine and another's --holder leave nothing to list".to_owned(),
            ));
        }
        Some(holder) => Some(holder.to_string()),
        None => wanted.mine.then(|| caller.name.clone()),
    };
    if let Some(after) = &wanted.after
        && look_at(admitted, after)?.0.token == 0
    {
        return Err(Failure::Refused(format!(
            "--after {after}: it was never claimed here, so nothing comes after it"
        )));
    }
    let filter = Filter {
        holder,
        after: wanted.after,
        // One more tells whether there is more.
        limit: wanted.limit.map(|limit| limit.saturating_add(1)),
    };
    let (mut live, mut ended, mut now) = (Vec::new(), Vec::new(), Now(0));
    admitted.call.read(&mut |view| {
        now = view.now();
        if wanted.ended {
            ended = view.ended(&admitted.repo, &filter)?;
        } else {
            live = view.live(&admitted.repo, &filter)?;
        }
        Ok(())
    })?;
    let mut is_bound = live.iter().any(|(_, claim)| claim.is_bound());
    is_bound |= ended
        .iter()
        .any(|(_, ended)| ended.tenure.binding.is_some());
    let viewer = Viewer {
        caller: &caller,
        may_write: is_bound && admitted.may(Access::Write),
        ledger_id: None,
        now,
    };
    let mut leases: Vec<Lease> = live
        .iter()
        .map(|(issue, claim)| Lease {
            issue: issue.to_string(),
            claim: viewer.live(claim),
            ended: None,
        })
        .collect();
    mark_closed(admitted, &mut leases);
    leases.extend(
        ended
            .iter()
            .map(|(issue, ended)| viewer.ended_lease(issue, ended)),
    );
    let limit = wanted.limit.map_or(usize::MAX, |limit| limit as usize);
    let more = leases.len() > limit;
    leases.truncate(limit);
    let reply = ListReply {
        leases,
        repo: admitted.repo.clone(),
        now: viewer.time(),
        more,
        ready: match wanted.ready {
            true => ready(admitted, limit)?,
            false => None,
        },
    };
    Answer::new(Exit::Done, &reply)
}

/// How long a list waits for the tracker.
const TRACKER_PATIENCE: Duration = Duration::from_secs(2);

/// Marks the claims whose issue has been closed since. A tracker that can't be
/// read, or that is slow, leaves the list as it is: the claims are true all the
/// same.
fn mark_closed(admitted: &Admitted<'_>, leases: &mut [Lease]) {
    if leases.is_empty() {
        return;
    }
    let warn = |error: TrackerError| admitted.call.warn(&error.to_string());
    let tracker = match admitted.tracker() {
        Ok(tracker) => tracker,
        Err(error) => return warn(error),
    };
    let end = Instant::now() + TRACKER_PATIENCE;
    for lease in leases {
        let Ok(id) = lease.issue.parse() else {
            continue;
        };
        match tracker.resolve(&id) {
            Ok(issue) if !issue.is_open => lease.claim.issue_state = Some("closed".to_owned()),
            Ok(_) | Err(TrackerError::NotFound(_)) => {}
            Err(error) => warn(error),
        }
        if Instant::now() > end {
            return warn(TrackerError::Late(tracker.name()));
        }
    }
}

/// How many open issues a list has at most.
const MOST_READY: usize = 200;

/// The first open issues that nobody holds, in the tracker's order. `None`: it
/// has none, or can't say in so short a time.
fn ready(admitted: &Admitted<'_>, limit: usize) -> Result<Option<Vec<ReadyIssue>>, Failure> {
    let held = held(admitted)?;
    let end = admitted
        .call
        .deadline
        .min(Instant::now() + TRACKER_PATIENCE);
    let mut free = Vec::new();
    let mut look = || {
        let tracker = admitted.tracker_until(end)?;
        for issue in tracker.ready()? {
            let issue = issue?;
            if !held.contains(&issue.id) {
                free.push(ReadyIssue {
                    issue: issue.id.to_string(),
                    title: issue.title,
                });
            }
            if free.len() == limit.min(MOST_READY) {
                break;
            }
            // A part of them would pass for all.
            if Instant::now() > end {
                return Err(TrackerError::Late(tracker.name()));
            }
        }
        Ok(())
    };
    match look() {
        Ok(()) => Ok(Some(free)),
        Err(TrackerError::NoOrder(_) | TrackerError::Late(_)) => Ok(None),
        Err(error) => {
            admitted.call.warn(&error.to_string());
            Ok(None)
        }
    }
}

//! `claim`: one issue with its live claim and its history.

use git_claim_api::ids::IssueId;
use git_claim_api::query::{ClaimHistoryReply, HeldIssue};

use crate::queries::{QueryError, state};
use crate::server::Admitted;
use crate::tracker::TrackerError;
use crate::verbs::{history, look_at, recorded_id};
use crate::view::Viewer;

/// How many tenures an answer has.
const MOST_TENURES: u32 = 200;

pub fn run(admitted: &Admitted<'_>, typed: &IssueId) -> Result<ClaimHistoryReply, QueryError> {
    let resolve = |id| admitted.tracker().and_then(|tracker| tracker.resolve(id));
    let (id, issue) = match recorded_id(admitted, typed)? {
        // The ledger knows the issue: it can be shown without the tracker.
        Some(id) => {
            let issue = resolve(&id).inspect_err(|error| admitted.call.warn(&error.to_string()));
            (id, issue.ok())
        }
        None => {
            let issue = resolve(typed).map_err(unknown_or_unreadable)?;
            (issue.id.clone(), Some(issue))
        }
    };
    // The history first: a tenure that begins in between is then missing from
    // it, rather than live there and over in the claim.
    let log = history::reply(admitted, Some(&id), MOST_TENURES)?;
    let (claim, now) = look_at(admitted, &id)?;
    let caller = admitted.caller(None);
    let viewer = Viewer {
        caller: &caller,
        may_write: false,
        ledger_id: None,
        now,
    };
    let held = claim.live(viewer.now);
    let state = issue.as_ref().map(state);
    let recorded = claim
        .tenure
        .as_ref()
        .and_then(|tenure| tenure.title.clone());
    Ok(ClaimHistoryReply {
        repo: admitted.repo.clone(),
        issue: HeldIssue {
            claim: held.map(|_| viewer.live(&claim)),
            state,
            title: issue.and_then(|issue| issue.title).or(recorded),
            issue: id.to_string(),
        },
        tenures: log.tenures,
        more: log.more,
        now: viewer.time(),
    })
}

/// A tracker that can't be read is no reason to say that there is no such issue.
fn unknown_or_unreadable(error: TrackerError) -> QueryError {
    match error {
        TrackerError::NotFound(_) | TrackerError::Ambiguous { .. } => QueryError::NotFound,
        error => QueryError::Failed(error.to_string()),
    }
}

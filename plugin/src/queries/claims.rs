//! `claims`: the open issues of a repository in the tracker's order, each with
//! its live claim.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use git_claim_api::ids::IssueId;
use git_claim_api::query::{ClaimsReply, HeldIssue, IssueState, Listing};

use crate::claim::{Claim, Now};
use crate::ledger::Filter;
use crate::queries::state;
use crate::server::{Admitted, Failure};
use crate::tracker::{Issue, Tracker, TrackerError};
use crate::view::Viewer;

/// How many issues of the tracker an answer has, and how many claims.
const MOST_ISSUES: usize = 500;
const MOST_CLAIMS: u32 = 1_000;

/// How long the answer waits for what the tracker says of claimed issues that
/// are not among its open ones.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn run(admitted: &Admitted<'_>) -> Result<ClaimsReply, Failure> {
    let caller = admitted.caller(None);
    let Live { claims, more, now } = live(admitted)?;
    let viewer = Viewer {
        caller: &caller,
        may_write: false,
        ledger_id: None,
        now,
    };
    let tracker = match admitted.tracker() {
        Ok(tracker) => Some(tracker),
        Err(error) => {
            admitted.call.warn(&error.to_string());
            None
        }
    };
    let (open, listing) = match &tracker {
        Some(tracker) => open_issues(admitted, tracker),
        None => (Vec::new(), Listing::None),
    };

    let held: HashMap<&IssueId, &Claim> = claims.iter().map(|(id, claim)| (id, claim)).collect();
    let listed: HashSet<&IssueId> = open.iter().map(|issue| &issue.id).collect();
    let mut issues: Vec<HeldIssue> = open
        .iter()
        .map(|issue| HeldIssue {
            issue: issue.id.to_string(),
            title: issue.title.clone(),
            state: Some(IssueState::Open),
            claim: held.get(&issue.id).map(|claim| viewer.live(claim)),
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    for (id, claim) in claims.iter().filter(|(id, _)| !listed.contains(id)) {
        let asked = tracker.as_ref().filter(|_| Instant::now() < end);
        let issue = asked.and_then(|tracker| tracker.resolve(id).ok());
        let recorded = claim.tenure.as_ref().and_then(|held| held.title.clone());
        issues.push(HeldIssue {
            issue: id.to_string(),
            state: issue.as_ref().map(state),
            title: issue.and_then(|issue| issue.title).or(recorded),
            claim: Some(viewer.live(claim)),
        });
    }
    Ok(ClaimsReply {
        repo: admitted.repo.clone(),
        issues,
        listing,
        more,
        now: viewer.time(),
    })
}

/// The live claims, the oldest tenure first.
struct Live {
    claims: Vec<(IssueId, Claim)>,
    /// Whether there are more.
    more: bool,
    now: Now,
}

fn live(admitted: &Admitted<'_>) -> Result<Live, Failure> {
    let filter = Filter {
        // One more tells whether there is more.
        limit: Some(MOST_CLAIMS + 1),
        ..Filter::default()
    };
    let (mut claims, mut now) = (Vec::new(), Now(0));
    admitted.call.read(&mut |view| {
        now = view.now();
        claims = view.live(&admitted.repo, &filter)?;
        Ok(())
    })?;
    let more = claims.len() > MOST_CLAIMS as usize;
    claims.truncate(MOST_CLAIMS as usize);
    Ok(Live { claims, more, now })
}

/// The tracker's open issues, as far as they can be had: the claims are true
/// whatever the tracker says.
fn open_issues(admitted: &Admitted<'_>, tracker: &Tracker<'_>) -> (Vec<Issue>, Listing) {
    let warn = |error: &TrackerError| {
        if !matches!(error, TrackerError::NoOrder(_)) {
            admitted.call.warn(&error.to_string());
        }
    };
    let mut open = Vec::new();
    let ready = match tracker.ready() {
        Ok(ready) => ready,
        Err(error) => {
            warn(&error);
            return (open, Listing::None);
        }
    };
    for issue in ready {
        match issue {
            Ok(_) if open.len() == MOST_ISSUES => return (open, Listing::Some),
            Ok(issue) => open.push(issue),
            Err(error) => {
                warn(&error);
                let listing = if open.is_empty() {
                    Listing::None
                } else {
                    Listing::Some
                };
                return (open, listing);
            }
        }
    }
    (open, Listing::All)
}

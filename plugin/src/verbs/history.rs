//! `log`: every tenure, who, when, how it ended; the newest first.

use std::cmp::Reverse;
use std::collections::HashSet;

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::reply::{LogReply, PastTenure};

use crate::claim::{Claim, Ended, Now, Tenure};
use crate::ledger::{Filter, LedgerError, View};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::full_id;
use crate::view::{Viewer, ending};

/// How many tenures a reply has unless it is told.
const PAGE: u32 = 1_000;

pub fn run(
    admitted: &Admitted<'_>,
    typed: Option<&IssueId>,
    limit: Option<u32>,
) -> Result<Answer, Failure> {
    let issue = match typed {
        Some(typed) => Some(full_id(admitted, typed)?),
        None => None,
    };
    let reply = reply(admitted, issue.as_ref(), limit.unwrap_or(PAGE))?;
    Answer::new(Exit::Done, &reply)
}

/// At most `limit` tenures of the repository, or of one of its issues.
///
/// # Errors
/// The ledger can't be read.
pub fn reply(
    admitted: &Admitted<'_>,
    issue: Option<&IssueId>,
    limit: u32,
) -> Result<LogReply, Failure> {
    let caller = admitted.caller(None);
    let (mut found, mut now) = (Vec::new(), Now(0));
    admitted.call.read(&mut |view| {
        now = view.now();
        found = tenures(view, &admitted.repo, issue, limit)?;
        Ok(())
    })?;
    let viewer = Viewer {
        caller: &caller,
        may_write: false,
        ledger_id: None,
        now,
    };
    // The row of a claim that ran out and the history may both name a tenure.
    let mut seen = HashSet::new();
    found.retain(|entry| seen.insert((entry.issue.clone(), entry.token)));
    found.sort_by_key(|entry| {
        Reverse((
            entry.tenure.seq,
            entry.tenure.acquired_at,
            entry.issue.clone(),
            entry.token,
        ))
    });
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    Ok(LogReply {
        status: "log".to_owned(),
        repo: admitted.repo.clone(),
        tenures: found.iter().map(|entry| entry.reply(&viewer)).collect(),
        now: viewer.time(),
        more,
    })
}

/// One tenure, live or over.
struct Entry {
    issue: IssueId,
    token: u64,
    tenure: Tenure,
    ended: Option<Ended>,
}

impl Entry {
    fn live((issue, claim): (IssueId, Claim)) -> Option<Entry> {
        Some(Entry {
            issue,
            token: claim.token,
            tenure: claim.tenure?,
            ended: None,
        })
    }

    fn over((issue, ended): (IssueId, Ended)) -> Entry {
        Entry {
            issue,
            token: ended.token,
            tenure: ended.tenure.clone(),
            ended: Some(ended),
        }
    }

    fn reply(&self, viewer: &Viewer<'_>) -> PastTenure {
        PastTenure {
            ended: self.ended.as_ref().map(ending),
            ..viewer.past(&self.issue, self.token, &self.tenure)
        }
    }
}

/// The tenures of a repository or an issue, in no order: those that live, those
/// that ran out and are still in their row, and those in the history.
fn tenures(
    view: &dyn View,
    repo: &str,
    issue: Option<&IssueId>,
    limit: u32,
) -> Result<Vec<Entry>, LedgerError> {
    // One more tells whether there is more.
    let enough = Some(limit.saturating_add(1));
    let mut found = Vec::new();
    match issue {
        Some(issue) => {
            let claim = view.claim(repo, issue)?;
            if claim.live(view.now()).is_some() {
                found.extend(Entry::live((issue.clone(), claim)));
            } else if let Some(tenure) = &claim.tenure {
                let ended = tenure.expired(claim.token);
                found.push(Entry::over((issue.clone(), ended)));
            }
        }
        None => {
            let filter = Filter {
                limit: enough,
                ..Filter::default()
            };
            let live = view.live(repo, &Filter::default())?;
            found.extend(live.into_iter().filter_map(Entry::live));
            let ended = view.ended(repo, &filter)?;
            found.extend(ended.into_iter().map(Entry::over));
        }
    }
    let history = view.history(repo, issue, enough)?;
    found.extend(history.into_iter().map(Entry::over));
    Ok(found)
}

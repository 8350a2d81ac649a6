//! `settle`: a push has moved refs; the claims that it has done with end. The
//! host's post-receive hook asks.

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Oid};
use git_claim_api::push::{Push, Update};
use git_claim_api::reply::{End, SettleReply, Settled};
use git_claim_api::verb::RepoArg;

use crate::brought::{Brought, Closing};
use crate::claim::{self, Claim, Decision, Ended, Now, Settle};
use crate::input;
use crate::ledger::{Filter, Verdict};
use crate::repository::Repository;
use crate::server::{Admitted, Answer, Call, Failure};

pub fn run(call: &Call<'_>, repo: &RepoArg) -> Result<Answer, Failure> {
    let push = input::push(call.host())?;
    let admitted = call.admit(repo, Access::Read)?;
    let mut live = Vec::new();
    let mut done = Vec::new();
    if let Some(repository) = admitted.repository() {
        call.read(&mut |view| {
            live = view.live(&admitted.repo, &Filter::default())?;
            Ok(())
        })?;
        if !live.is_empty() {
            done = done_with(&admitted, repository, &push, &live)?;
        }
    }
    let reply = SettleReply {
        status: "settled".to_owned(),
        ended: end(&admitted, &push, &done)?,
    };
    Answer::new(Exit::Done, &reply)
}

/// A tenure that the push has done with.
struct Done<'a> {
    issue: &'a IssueId,
    claim: &'a Claim,
    how: End,
    why: String,
}

/// Which of the live claims the push has done with.
fn done_with<'a>(
    admitted: &Admitted<'_>,
    repository: &Repository,
    push: &Push,
    live: &'a [(IssueId, Claim)],
) -> Result<Vec<Done<'a>>, Failure> {
    let default_branch = repository.default_branch()?;
    let default_ref = default_branch
        .as_deref()
        .map(|name| format!("refs/heads/{name}"));
    let mut done = closed(admitted, push, live, default_ref.as_deref());
    let update = push
        .updates
        .iter()
        .find(|update| Some(&update.reference) == default_ref.as_ref());
    let (Some(update), Some(default_branch)) = (update, default_branch) else {
        return Ok(done);
    };
    let close_trailers = repository.push_settings()?.close_trailers;
    if !close_trailers && !live.iter().any(|(_, claim)| claim.is_bound()) {
        return Ok(done);
    }
    let git = repository.git()?;
    let brought = Brought::by(git, update, admitted.call.deadline)?;
    let closings = if close_trailers {
        brought.closings(git)?
    } else {
        Vec::new()
    };
    for (issue, claim) in live {
        if done.iter().any(|done| done.issue == issue) {
            continue;
        }
        if let Some(branch) = merged(repository, push, claim, &brought)? {
            done.push(Done {
                issue,
                claim,
                how: End::Merged,
                why: format!("branch '{branch}' was merged into '{default_branch}'"),
            });
        } else if let Some(commit) = named(&closings, issue, live) {
            done.push(Done {
                issue,
                claim,
                how: End::Closed,
                why: format!("commit {commit} on '{default_branch}' closes it"),
            });
        }
    }
    Ok(done)
}

/// The claims whose issue the push has closed in the tracker.
fn closed<'a>(
    admitted: &Admitted<'_>,
    push: &Push,
    live: &'a [(IssueId, Claim)],
    default_ref: Option<&str>,
) -> Vec<Done<'a>> {
    let warn = |error| admitted.call.warn(&format!("{}: {error}", admitted.repo));
    let tracker = match admitted.tracker() {
        Ok(tracker) => tracker,
        Err(error) => {
            warn(error);
            return Vec::new();
        }
    };
    let issues: Vec<&IssueId> = live.iter().map(|(issue, _)| issue).collect();
    let closed = tracker.closed_by(&push.updates, &issues, default_ref, &warn);
    live.iter()
        .filter(|(issue, _)| closed.contains(issue))
        .map(|(issue, claim)| Done {
            issue,
            claim,
            how: End::Closed,
            why: "the issue was closed".to_owned(),
        })
        .collect()
}

/// The branch that the claim is bound to, if the push has merged it: its tip
/// came to the default branch, and is not where it began.
fn merged(
    repository: &Repository,
    push: &Push,
    claim: &Claim,
    brought: &Brought,
) -> Result<Option<String>, Failure> {
    let Some(bound) = claim
        .tenure
        .as_ref()
        .and_then(|tenure| tenure.binding.as_ref())
    else {
        return Ok(None);
    };
    let tip = match repository.tip(&bound.branch)? {
        Some(tip) => Some(tip),
        None => deleted_from(push, bound.branch.as_str()).cloned(),
    };
    let is_merged = tip.is_some_and(|tip| bound.base.as_ref() != Some(&tip) && brought.has(&tip));
    Ok(is_merged.then(|| bound.branch.to_string()))
}

/// Where a branch stood that the same push deleted.
fn deleted_from<'a>(push: &'a Push, branch: &str) -> Option<&'a Oid> {
    let update: &Update = push
        .updates
        .iter()
        .find(|update| update.branch() == Some(branch))?;
    update.old.as_ref()
}

/// The commit whose trailer names the issue, and no other that is held.
fn named(closings: &[Closing], issue: &IssueId, live: &[(IssueId, Claim)]) -> Option<git2::Oid> {
    let means = |closing: &&Closing| {
        let typed = &closing.issue;
        typed == issue
            || (typed.stands_for(issue.as_str())
                && !live
                    .iter()
                    .any(|(other, _)| other != issue && typed.stands_for(other.as_str())))
    };
    Some(closings.iter().find(means)?.commit)
}

/// How many tenures end in one change: a transaction of etcd's is limited.
const AT_ONCE: usize = 16;

/// Ends the tenures that are still what they were.
fn end(admitted: &Admitted<'_>, push: &Push, done: &[Done<'_>]) -> Result<Vec<Settled>, Failure> {
    let mut settled = Vec::new();
    for done in done.chunks(AT_ONCE) {
        settled.extend(end_at_once(admitted, push, done)?);
    }
    Ok(settled)
}

fn end_at_once(
    admitted: &Admitted<'_>,
    push: &Push,
    done: &[Done<'_>],
) -> Result<Vec<Settled>, Failure> {
    let call = admitted.call;
    let mut changes: Vec<(&Done<'_>, Claim, Claim, Ended)> = Vec::new();
    let mut now = Now(0);
    call.change(&mut |transaction| {
        changes.clear();
        now = transaction.now();
        for done in done {
            let claim = transaction.claim(&admitted.repo, done.issue)?;
            let tenure = done.claim.tenure.as_ref();
            let pusher = push.pusher.as_ref().map(|pusher| pusher.name.as_str());
            let ask = Settle {
                token: done.claim.token,
                lease_id: tenure.and_then(|tenure| tenure.lease_id.as_deref()),
                how: done.how,
                by: pusher.filter(|name| tenure.is_none_or(|tenure| tenure.holder != *name)),
                why: &done.why,
            };
            if let Decision::Change {
                claim: mut after,
                ended: Some(ended),
                ..
            } = claim::settle(&claim, &ask, now)
            {
                transaction.store(&admitted.repo, done.issue, &mut after, Some(&ended))?;
                changes.push((done, claim, after, ended));
            }
        }
        Ok(if changes.is_empty() {
            Verdict::Discard
        } else {
            Verdict::Commit
        })
    })?;
    let mut settled = Vec::new();
    for (done, before, after, ended) in changes {
        admitted.announce(done.issue, now, &before, &after, Some(&ended));
        settled.push(Settled {
            issue: done.issue.to_string(),
            token: ended.token,
            holder: ended.tenure.holder,
            how: done.how,
            why: done.why.clone(),
        });
    }
    Ok(settled)
}

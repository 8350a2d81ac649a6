//! `fence`: may a push pass? The host's pre-receive hook asks.

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{Branch, IssueId};
use git_claim_api::push::{ClaimToken, Fence, Push, TOKEN_OPTION, Update};
use git_claim_api::reply::{self, End, FenceReply};
use git_claim_api::time::minute;
use git_claim_api::verb::RepoArg;

use crate::claim::fence::{Moved, Objection, Shown, Stale, fence};
use crate::claim::{Ended, Now, Tenure};
use crate::input;
use crate::ledger::{LedgerError, View};
use crate::repository::Repository;
use crate::server::{Answer, Call, Failure};

pub fn run(call: &Call<'_>, repo: &RepoArg) -> Result<Answer, Failure> {
    let push = input::push(call.host())?;
    let admitted = call.admit(repo, Access::Read)?;
    let mode = match admitted.repository().map(Repository::push_settings) {
        Some(settings) => settings?.fence,
        None => Fence::default(),
    };
    let mut objections = Vec::new();
    if mode != Fence::Off {
        let (tokens, unread): (Vec<_>, Vec<_>) = push.tokens().partition(Result::is_ok);
        let tokens: Vec<ClaimToken> = tokens.into_iter().flatten().collect();
        objections.extend(unread.into_iter().filter_map(Result::err).map(|error| {
            reply::Objection {
                error: error.to_string(),
                hint: format!(
                    "a push option reads `{TOKEN_OPTION}<issue>:<token>:<lease id>`; `git claim renew` sets it right"
                ),
            }
        }));
        let (mut shown, mut moved, mut now) = (Vec::new(), Vec::new(), Now(0));
        call.read(&mut |view| {
            now = view.now();
            shown = known(view, &admitted.repo, &tokens)?;
            moved = moves(view, &admitted.repo, &push, mode)?;
            Ok(())
        })?;
        let found = fence(push.pusher.as_ref(), &shown, &moved, now);
        objections.extend(found.iter().map(|objection| worded(objection, &push)));
    }
    let (status, exit) = match (objections.is_empty(), mode) {
        (true, _) => ("passed", Exit::Done),
        (false, Fence::Warn) => ("warned", Exit::Done),
        (false, _) => ("refused", Exit::Conflict),
    };
    let reply = FenceReply {
        status: status.to_owned(),
        objections,
    };
    Answer::new(exit, &reply)
}

/// The tokens whose lease this repository knows; it may be another server's.
fn known(view: &dyn View, repo: &str, tokens: &[ClaimToken]) -> Result<Vec<Shown>, LedgerError> {
    let mut shown = Vec::new();
    for token in tokens {
        let Some(issue) = recorded(view, repo, &token.issue)? else {
            continue;
        };
        let claim = view.claim(repo, &issue)?;
        let is_the_rows = claim
            .tenure
            .as_ref()
            .is_some_and(|tenure| tenure.lease_id.as_ref() == Some(&token.lease_id));
        let ended = view.past_lease(repo, &issue, &token.lease_id)?;
        if is_the_rows || ended.is_some() {
            shown.push(Shown {
                token: ClaimToken {
                    issue,
                    ..token.clone()
                },
                claim,
                ended,
            });
        }
    }
    Ok(shown)
}

/// The branches that move, with the claims that they concern.
fn moves(view: &dyn View, repo: &str, push: &Push, mode: Fence) -> Result<Vec<Moved>, LedgerError> {
    let mut moved = Vec::new();
    // No claim is bound to what is no valid name.
    let branches = push.updates.iter().filter_map(Update::branch);
    for branch in branches.filter_map(|name| name.parse::<Branch>().ok()) {
        let bound = match view.bound_to(repo, &branch)? {
            Some(issue) => {
                let claim = view.claim(repo, &issue)?;
                Some((issue, claim))
            }
            None => None,
        };
        let named = match named_after(&branch).filter(|_| mode == Fence::Strict) {
            Some(typed) => {
                let issue = recorded(view, repo, &typed)?.unwrap_or(typed);
                let claim = view.claim(repo, &issue)?;
                Some((issue, claim))
            }
            None => None,
        };
        if bound.is_some() || named.is_some() {
            moved.push(Moved {
                branch,
                bound,
                named,
            });
        }
    }
    Ok(moved)
}

/// The issue that a branch `claim/<issue>` is named after.
fn named_after(branch: &Branch) -> Option<IssueId> {
    branch.as_str().strip_prefix("claim/")?.parse().ok()
}

/// The full id of an issue that has a row.
fn recorded(view: &dyn View, repo: &str, typed: &IssueId) -> Result<Option<IssueId>, LedgerError> {
    let found = view.issues_like(repo, typed, 2)?;
    if found.contains(typed) {
        return Ok(Some(typed.clone()));
    }
    Ok(match found.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    })
}

/// An objection in the words that the pusher reads.
fn worded(objection: &Objection<'_>, push: &Push) -> reply::Objection {
    match objection {
        Objection::Stale { shown, why, holder } => stale(shown, *why, *holder, push),
        Objection::Bound {
            branch,
            issue,
            tenure,
            token,
        } => reply::Objection {
            error: format!(
                "branch '{branch}' is bound to the claim on issue {issue}, and the push does not \
                 show that claim's token; {}",
                held(tenure)
            ),
            hint: match token {
                Some(token) => format!(
                    "in the worktree that holds the claim: git push -o {TOKEN_OPTION}{token} …"
                ),
                None => format!("push to a branch of your own, or talk to {}", tenure.holder),
            },
        },
        Objection::Unclaimed {
            branch,
            issue,
            holder,
        } => reply::Objection {
            error: format!(
                "branch '{branch}' may only be moved with a live claim on issue {issue}, and you \
                 do not hold it; {}",
                standing(*holder)
            ),
            hint: match holder {
                Some(tenure) => {
                    format!("push to a branch of your own, or talk to {}", tenure.holder)
                }
                None => format!("`git claim {issue}` takes it, if it is open"),
            },
        },
    }
}

fn stale(shown: &Shown, why: Stale<'_>, holder: Option<&Tenure>, push: &Push) -> reply::Objection {
    let ClaimToken { issue, token, .. } = &shown.token;
    let clears = format!("`git unclaim {issue}` clears this worktree's push option");
    if why == Stale::NotThePushers {
        let pusher = match &push.pusher {
            Some(pusher) => format!("you push as {} with {}", pusher.name, pusher.profile),
            None => "the server cannot tell who pushes".to_owned(),
        };
        return reply::Objection {
            error: format!(
                "the token that this push shows for issue {issue} is not yours: {pusher}; {}",
                standing(holder)
            ),
            hint: format!("push as the one who holds it, or {clears}"),
        };
    }
    let ending = match why {
        Stale::RanOut(at) => format!("it ran out{}", at_time(at)),
        Stale::Ended(ended) => over(ended),
        Stale::NeverSuch | Stale::NotThePushers => "there is no such tenure".to_owned(),
    };
    reply::Objection {
        error: format!(
            "the claim on issue {issue} that this push shows (token {token}) is not yours any more: \
             {ending}; {}",
            standing(holder)
        ),
        hint: format!(
            "nothing was pushed, and your commits are still in your clone. Stop working on {issue}; \
             {clears}, `git claim log {issue}` tells what happened"
        ),
    }
}

/// How a tenure came to its end.
fn over(ended: &Ended) -> String {
    let at = at_time(Some(ended.ended_at));
    let by = match &ended.by {
        Some(by) => format!(" by {by}"),
        None => String::new(),
    };
    let why = match &ended.why {
        Some(why) => format!(" ({why})"),
        None => String::new(),
    };
    match ended.how {
        End::Expired => format!("it ran out{at}"),
        End::Released => format!("it was released{at}"),
        End::Forced => format!("it was released by force{at}{by}{why}"),
        End::TakenOver => format!("it was taken over{at}{by}{why}"),
        End::Closed | End::Merged => format!("it was done{at}{why}"),
        End::Recovered => format!("a recovery put another in its place{at}{by}"),
    }
}

fn at_time(seconds: Option<i64>) -> String {
    match seconds.and_then(minute) {
        Some(time) => format!(" at {time}"),
        None => String::new(),
    }
}

/// Who holds an issue, if anybody does.
fn standing(holder: Option<&Tenure>) -> String {
    match holder {
        Some(tenure) => held(tenure),
        None => "nobody holds it now".to_owned(),
    }
}

fn held(tenure: &Tenure) -> String {
    let since = minute(tenure.acquired_at).unwrap_or_default();
    let until = match tenure.expires_at.and_then(minute) {
        Some(end) => format!("until {end}"),
        None => "with no end set".to_owned(),
    };
    format!("{} holds it since {since}, {until}", tenure.holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_named_after_an_issue_by_its_whole_name() {
        for (branch, issue) in [
            ("claim/42", Some("42")),
            ("claim/a1b2-c3", Some("a1b2-c3")),
            ("claim/42/more", None),
            ("claims/42", None),
            ("x/claim/42", None),
        ] {
            let named = named_after(&branch.parse().unwrap());
            assert_eq!(named.as_ref().map(IssueId::as_str), issue, "{branch}");
        }
    }
}

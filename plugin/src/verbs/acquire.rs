//! `acquire`: take a claim on an open issue, or extend one's own.

use git_claim_api::ids::IssueId;
use git_claim_api::reply::{ClaimReply, Status, Tenure, words};
use git_claim_api::verb::Take;

use crate::claim::{self, Acquire, Caller, Decision, Refusal};
use crate::random;
use crate::server::{Admitted, Answer, Failure};
use crate::tracker::Issue;
use crate::verbs::{bound, caller_who_evicts, decide, look_at, recorded_id, settle, within};

pub fn run(admitted: &Admitted<'_>, typed: &IssueId, take: &Take) -> Result<Answer, Failure> {
    // One's own live claim is answered before anything else is looked at, so
    // that a lost reply can always be retried.
    if let Some(issue) = recorded_id(admitted, typed)? {
        let caller = admitted.caller(take.session.as_ref());
        let (claim, now) = look_at(admitted, &issue)?;
        let is_own = claim
            .live(now)
            .is_some_and(|tenure| tenure.is_held_by(&caller));
        if is_own && let Some(answer) = take_issue(admitted, &issue, Known::Own, take)? {
            return Ok(answer);
        }
    }
    let Issue { id, is_open, title } = admitted.tracker()?.resolve(typed)?;
    if !is_open {
        let title = title
            .map(|title| format!(" \"{title}\""))
            .unwrap_or_default();
        return Err(Failure::Refused(format!(
            "issue {id}{title}{}",
            words::CLOSED
        )));
    }
    let known = Known::Open {
        title: title.as_deref(),
    };
    let answer = take_issue(admitted, &id, known, take)?;
    answer.ok_or_else(|| Failure::NotNow("the ledger did not answer".to_owned()))
}

/// What was found out of an issue before the ledger is changed.
#[derive(Clone, Copy, PartialEq)]
enum Known<'a> {
    /// The caller holds it, so nobody asked the tracker.
    Own,
    Open {
        title: Option<&'a str>,
    },
}

/// Takes or extends the claim. `None`: it was the caller's own and is no longer,
/// so it counts again whether the issue is open.
fn take_issue(
    admitted: &Admitted<'_>,
    issue: &IssueId,
    known: Known<'_>,
    take: &Take,
) -> Result<Option<Answer>, Failure> {
    let ttls = admitted.ttls()?;
    within(ttls.longest, take.ttl)?;
    let caller = caller_who_evicts(
        admitted,
        issue,
        take.session.as_ref(),
        take.take_over.as_ref(),
    )?;
    let binding = match &take.binding {
        Some(binding) => Some(bound(admitted, binding, "start")?),
        None => None,
    };
    let lease_id = random::id();
    let mut has_ended = false;
    let outcome = decide(
        admitted,
        issue,
        &caller,
        &mut |transaction, situation, now| {
            let live = situation.claim.live(now);
            has_ended = known == Known::Own && !live.is_some_and(|own| own.is_held_by(&caller));
            if has_ended {
                return Ok(Decision::Keep(Tenure::Own));
            }
            if let Some(binding) = &binding {
                let holder = transaction.bound_to(&admitted.repo, &binding.branch)?;
                if let Some(other) = holder.filter(|other| other != issue) {
                    return Ok(Decision::Refused(Refusal::BranchTaken {
                        branch: binding.branch.clone(),
                        issue: other.to_string(),
                    }));
                }
            }
            let ask = Acquire {
                caller: &caller,
                take,
                default_ttl: ttls.default,
                title: match known {
                    Known::Own => None,
                    Known::Open { title } => title,
                },
                lease_id: &lease_id,
                seq: transaction.next_seq()?,
                request_ended: began_here(transaction, admitted, issue, &caller, take)?,
                binding: binding.clone().map(|bound| bound.minted_at(now)),
            };
            Ok(claim::acquire(situation, &ask, now))
        },
    )?;
    if has_ended {
        return Ok(None);
    }
    let answer = settle(
        admitted,
        issue,
        &caller,
        outcome,
        Status::Acquired,
        |tenure, reply| ClaimReply {
            tenure: Some(tenure),
            ..reply
        },
    )?;
    Ok(Some(answer))
}

/// Whether this request has begun a tenure of this issue before. Where that
/// tenure still lives, it is the caller's own and is answered as such.
fn began_here(
    transaction: &mut dyn crate::ledger::Transaction,
    admitted: &Admitted<'_>,
    issue: &IssueId,
    caller: &Caller,
    take: &Take,
) -> Result<bool, crate::ledger::LedgerError> {
    let Some(request) = &take.request else {
        return Ok(false);
    };
    let begun = transaction.begun_by(
        &admitted.repo,
        &caller.name,
        caller.session.as_ref(),
        request,
    )?;
    Ok(begun.is_some_and(|(begun, _)| begun == *issue))
}

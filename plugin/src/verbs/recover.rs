//! `recover`: see `claim::recover`.

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Oid, Session};
use git_claim_api::reply::{ClaimReply, RefusalCode, Status};
use git_claim_api::verb::Binding;

use crate::claim::record::Place;
use crate::claim::{self, Claim, Now, Recover};
use crate::ledger::Verdict;
use crate::random;
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{bound, full_id};
use crate::view::Viewer;

/// What is to be recovered, and to what.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub session: &'a Session,
    pub binding: &'a Binding,
    pub head: &'a Oid,
    pub if_token: Option<u64>,
    pub dry_run: bool,
}

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    wanted: &Wanted<'_>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(Some(wanted.session));
    let ttls = admitted.ttls()?;
    let call = admitted.call;
    let binding = bound(admitted, wanted.binding, "recover")?;
    let lease_id = random::id();
    let mut ledger_id = String::new();
    let mut decided = None;
    let mut change = None;
    call.change(&mut |transaction| {
        let now = transaction.now();
        ledger_id = transaction.ledger_id()?;
        let binding = binding.clone().minted_at(now);
        let claim = transaction.claim(&admitted.repo, &issue)?;
        let taken_by = transaction
            .bound_to(&admitted.repo, &binding.branch)?
            .filter(|other| *other != issue);
        let ask = Recover {
            caller: &caller,
            session: wanted.session,
            binding: &binding,
            head: wanted.head,
            if_token: wanted.if_token,
            place: Place {
                ledger_id: &ledger_id,
                repo: &admitted.repo,
                issue: &issue,
            },
            default_ttl: ttls.default,
            lease_id: &lease_id,
            seq: transaction.next_seq()?,
        };
        let (outcome, after, verdict) = match claim::recover(&claim, &ask, now) {
            Err(claim::RecoveryRefusal(code)) => (Err(code), claim, Verdict::Discard),
            Ok(_) if taken_by.is_some() => {
                (Err(RefusalCode::BindingMismatch), claim, Verdict::Discard)
            }
            Ok((action, None)) => (Ok(action), claim, Verdict::Discard),
            Ok((action, Some((after, _)))) if wanted.dry_run => {
                (Ok(action), after, Verdict::Discard)
            }
            Ok((action, Some((mut after, ended)))) => {
                transaction.store(&admitted.repo, &issue, &mut after, Some(&ended))?;
                change = Some((claim, ended));
                (Ok(action), after, Verdict::Commit)
            }
        };
        decided = Some((outcome, after, now));
        Ok(verdict)
    })?;
    let Some((outcome, claim, now)) = decided else {
        return Err(Failure::NotNow("the ledger did not answer".to_owned()));
    };
    if let Some((before, ended)) = &change {
        admitted.announce(&issue, now, before, &claim, Some(ended));
    }
    let reply = |status, claim: &Claim, now: Now| {
        Viewer {
            caller: &caller,
            may_write: true,
            ledger_id: Some(&ledger_id),
            now,
        }
        .reply(status, &admitted.repo, &issue, claim)
    };
    match outcome {
        Ok(action) => Answer::new(
            Exit::Done,
            &ClaimReply {
                recovery: Some(action),
                ..reply(Status::Recovered, &claim, now)
            },
        ),
        Err(code) => Answer::new(
            exit_of(code),
            &ClaimReply {
                refusal_code: Some(code),
                exact_next_action: Some(next_action(code, &issue)),
                ..reply(Status::Refused, &claim, now)
            },
        ),
    }
}

fn exit_of(code: RefusalCode) -> Exit {
    match code {
        RefusalCode::HealthyForeignLock => Exit::Conflict,
        _ => Exit::Error,
    }
}

/// A command that works from the state that the refusal reports.
fn next_action(code: RefusalCode, issue: &IssueId) -> String {
    match code {
        RefusalCode::IdentityUnresolved => "git claim whoami".to_owned(),
        RefusalCode::NoDurableLock => format!("git claim start {issue}"),
        RefusalCode::ForeignClaimant | RefusalCode::HealthyForeignLock => {
            format!("git claim log {issue}")
        }
        RefusalCode::AlreadyCanonical => {
            format!("git claim {issue} --take-over --reason '<why>'")
        }
        RefusalCode::BindingMismatch | RefusalCode::WorktreeInvalid | RefusalCode::HeadMismatch => {
            format!("git claim inspect {issue}")
        }
    }
}

//! One file a subverb: load, decide, store, reply.

mod acquire;
mod fence;
pub mod history;
mod host_only;
mod list;
mod next;
mod recover;
mod release;
mod renew;
mod settle;
mod show;
mod verify;
mod whoami;

use std::collections::HashSet;

use git_claim_api::access::Access;
use git_claim_api::duration::short;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Ttl};
use git_claim_api::reply::{ClaimReply, Status};
use git_claim_api::verb::{Binding, Eviction, Request};

use crate::claim::{Bound, Caller, Claim, Decision, Minted, Now, Refusal, Situation};
use crate::ledger::{Filter, LedgerError, Transaction, Verdict, View};
use crate::server::{Admitted, Answer, Call, Failure};
use crate::view::Viewer;

/// Serves `request`.
pub fn run(call: &Call<'_>, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::Acquire { repo, issue, take } => {
            acquire::run(&call.admit(&repo, Access::Write)?, &issue, &take)
        }
        Request::Next { repo, take } => next::run(&call.admit(&repo, Access::Write)?, &take),
        Request::Renew {
            repo,
            issue,
            ttl,
            session,
            token,
        } => {
            let admitted = call.admit(&repo, Access::Write)?;
            renew::run(&admitted, &issue, ttl, session.as_ref(), token)
        }
        Request::Release {
            repo,
            issue,
            session,
            token,
            force,
        } => {
            let admitted = call.admit(&repo, Access::Write)?;
            release::run(&admitted, &issue, session.as_ref(), token, force.as_ref())
        }
        Request::List {
            repo,
            holder,
            mine,
            ended,
            limit,
            after,
            ready,
            session,
        } => {
            let admitted = call.admit(&repo, Access::Read)?;
            let wanted = list::Wanted {
                holder,
                mine,
                ended,
                limit,
                after,
                ready,
            };
            list::run(&admitted, wanted, session.as_ref())
        }
        Request::Show {
            repo,
            issue,
            session,
        } => show::run(&call.admit(&repo, Access::Read)?, &issue, session.as_ref()),
        Request::Log { repo, issue, limit } => {
            history::run(&call.admit(&repo, Access::Read)?, issue.as_ref(), limit)
        }
        Request::Verify {
            repo,
            issue,
            token,
            session,
        } => {
            let admitted = call.admit(&repo, Access::Read)?;
            verify::run(&admitted, &issue, token, session.as_ref())
        }
        Request::Whoami { repo } => whoami::run(call, repo.as_ref()),
        Request::Rename { old, new } => host_only::rename(call, old.as_str(), new.as_str()),
        Request::Backup { file } => host_only::backup(call, file.as_str()),
        Request::Look => host_only::look(call),
        Request::Init => host_only::init(call),
        Request::Migrate { to } => host_only::migrate(call, to.as_str()),
        Request::Fence { repo } => fence::run(call, &repo),
        Request::Settle { repo } => settle::run(call, &repo),
        Request::Recover {
            repo,
            issue,
            session,
            binding,
            head,
            if_token,
            dry_run,
        } => {
            let admitted = call.admit(&repo, Access::Write)?;
            let wanted = recover::Wanted {
                session: &session,
                binding: &binding,
                head: &head,
                if_token,
                dry_run,
            };
            recover::run(&admitted, &issue, &wanted)
        }
        Request::Serve { .. } => Err(Failure::Refused(
            "serve is a connection of its own".to_owned(),
        )),
    }
}

/// What decides on a request inside a change; it may look further.
type Decide<'a, T> =
    dyn FnMut(&mut dyn Transaction, &Situation, Now) -> Result<Decision<T>, LedgerError> + 'a;

/// One issue's claim, as it was when a request was decided.
struct Outcome<T> {
    /// After the change, if there was one.
    claim: Claim,
    decision: Decision<T>,
    /// Which a bound claim's record names.
    ledger_id: Option<String>,
    now: Now,
}

/// Loads an issue's situation, decides, and stores what was decided, all in one
/// change of the ledger.
fn decide<T>(
    admitted: &Admitted<'_>,
    issue: &IssueId,
    caller: &Caller,
    decision: &mut Decide<'_, T>,
) -> Result<Outcome<T>, Failure> {
    let call = admitted.call;
    let mut outcome = None;
    let mut before = Claim::default();
    call.change(&mut |transaction| {
        let situation = situation(transaction, &admitted.repo, issue, caller)?;
        let now = transaction.now();
        let mut decision = decision(transaction, &situation, now)?;
        let mut claim = situation.claim;
        let verdict = match &mut decision {
            Decision::Change {
                claim: after,
                ended,
                ..
            } => {
                transaction.store(&admitted.repo, issue, after, ended.as_ref())?;
                before = std::mem::replace(&mut claim, after.clone());
                Verdict::Commit
            }
            _ => Verdict::Discard,
        };
        // Behind the change it could fail, and what was done be called not done.
        let ledger_id = ledger_id_for(transaction, &claim)?;
        outcome = Some(Outcome {
            claim,
            decision,
            ledger_id,
            now,
        });
        Ok(verdict)
    })?;
    let outcome: Outcome<T> =
        outcome.ok_or_else(|| Failure::NotNow("the ledger did not answer".to_owned()))?;
    if let Decision::Change { claim, ended, .. } = &outcome.decision {
        admitted.announce(issue, outcome.now, &before, claim, ended.as_ref());
    }
    Ok(outcome)
}

/// The ledger's id, which a bound claim's record names; not asked for where
/// there is none to show.
fn ledger_id_for(
    view: &(impl View + ?Sized),
    claim: &Claim,
) -> Result<Option<String>, LedgerError> {
    claim.is_bound().then(|| view.ledger_id()).transpose()
}

/// What a decision on `issue` looks at.
fn situation(
    view: &(impl View + ?Sized),
    repo: &str,
    issue: &IssueId,
    caller: &Caller,
) -> Result<Situation, LedgerError> {
    Ok(Situation {
        claim: view.claim(repo, issue)?,
        callers_last: view.last_of(repo, issue, &caller.name, caller.session.as_ref())?,
    })
}

/// The answer to an outcome: `grant` makes it where the request was granted.
fn settle<T>(
    admitted: &Admitted<'_>,
    issue: &IssueId,
    caller: &Caller,
    outcome: Outcome<T>,
    status: Status,
    grant: impl FnOnce(T, ClaimReply) -> ClaimReply,
) -> Result<Answer, Failure> {
    let viewer = Viewer {
        caller,
        may_write: admitted.may(Access::Write),
        ledger_id: outcome.ledger_id.as_deref(),
        now: outcome.now,
    };
    match outcome.decision {
        Decision::Conflict(conflict) => {
            let mut reply = viewer.conflict(&admitted.repo, issue, &outcome.claim, &conflict);
            // What can't be read says nothing: a conflict needs no tracker.
            let knows_order = admitted.tracker().map(|tracker| tracker.knows_order());
            reply.has_next = knows_order.ok().filter(|knows| !knows);
            Answer::new(Exit::Conflict, &reply)
        }
        Decision::Refused(refusal) => Err(Failure::Refused(refusal.to_string())),
        Decision::Change { outcome: value, .. } | Decision::Keep(value) => {
            let reply = viewer.reply(status, &admitted.repo, issue, &outcome.claim);
            Answer::new(Exit::Done, &grant(value, reply))
        }
    }
}

/// The caller, as an admin if the claim that is to be ended is another name's
/// and they are one. Asked for outside of the change: a host may take its time.
fn caller_who_evicts(
    admitted: &Admitted<'_>,
    issue: &IssueId,
    session: Option<&Session>,
    eviction: Option<&Eviction>,
) -> Result<Caller, Failure> {
    let mut caller = admitted.caller(session);
    if eviction.is_some() {
        let (claim, now) = look_at(admitted, issue)?;
        let is_anothers = claim
            .live(now)
            .is_some_and(|tenure| tenure.holder != caller.name);
        if is_anothers && admitted.may(Access::Admin) {
            caller.access = Access::Admin;
        }
    }
    Ok(caller)
}

/// The issue's claim, and when it was looked at.
pub fn look_at(admitted: &Admitted<'_>, issue: &IssueId) -> Result<(Claim, Now), Failure> {
    let mut found = (Claim::default(), Now(0));
    admitted.call.read(&mut |view| {
        found = (view.claim(&admitted.repo, issue)?, view.now());
        Ok(())
    })?;
    Ok(found)
}

/// The issues that somebody holds now.
fn held(admitted: &Admitted<'_>) -> Result<HashSet<IssueId>, Failure> {
    let call = admitted.call;
    let mut held = HashSet::new();
    call.read(&mut |view| {
        let live = view.live(&admitted.repo, &Filter::default())?;
        held = live.into_iter().map(|(issue, _)| issue).collect();
        Ok(())
    })?;
    Ok(held)
}

/// The full id of an issue that has a row in the ledger, from what was typed.
/// Needs no tracker: a claim outlives trouble with the tracker. Several rows:
/// the tracker's answer counts.
pub fn recorded_id(admitted: &Admitted<'_>, typed: &IssueId) -> Result<Option<IssueId>, Failure> {
    let mut found = Vec::new();
    admitted.call.read(&mut |view| {
        found = view.issues_like(&admitted.repo, typed, 2)?;
        Ok(())
    })?;
    if let Some(exact) = found.iter().find(|issue| *issue == typed) {
        return Ok(Some(exact.clone()));
    }
    Ok(match found.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    })
}

/// The full id of any issue: from the ledger if it has a row there, else from
/// the tracker.
fn full_id(admitted: &Admitted<'_>, typed: &IssueId) -> Result<IssueId, Failure> {
    match recorded_id(admitted, typed)? {
        Some(issue) => Ok(issue),
        None => Ok(admitted.tracker()?.resolve(typed)?.id),
    }
}

/// Refuses a TTL above the server's limit.
fn within(longest: Ttl, ttl: Option<Ttl>) -> Result<(), Failure> {
    match ttl {
        Some(ttl) if ttl > longest => Err(Failure::Refused(format!(
            "a claim may live for {} ({longest} seconds) at most here, not {ttl} seconds",
            short(longest.seconds())
        ))),
        _ => Ok(()),
    }
}

/// The remote's name where a client does not say.
const DEFAULT_REMOTE: &str = "origin";

/// The branch that a claim is to be bound to, with where it stands; to be minted
/// by `source`, at the time of the change.
fn bound(admitted: &Admitted<'_>, binding: &Binding, source: &str) -> Result<Bound, Failure> {
    let mut base = None;
    if let Some(repository) = admitted.repository() {
        if repository.is_default_branch(&binding.branch)? {
            return Err(Failure::Refused(
                Refusal::DefaultBranch(binding.branch.clone()).to_string(),
            ));
        }
        // A branch that is not there yet begins, as far as can be told here,
        // where the default branch stands.
        base = match repository.tip(&binding.branch)? {
            Some(tip) => Some(tip),
            None => repository.head()?,
        };
    }
    let remote = binding.remote.as_ref().map(ToString::to_string);
    Ok(Bound {
        remote: remote.unwrap_or_else(|| DEFAULT_REMOTE.to_owned()),
        branch: binding.branch.clone(),
        worktree: binding.worktree.to_string(),
        machine: binding.machine.to_string(),
        base,
        minted: Minted {
            source: source.to_owned(),
            by: concat!("git-claim ", env!("CARGO_PKG_VERSION")).to_owned(),
            at: 0,
        },
    })
}

//! `next`: take the first open issue that nobody holds, in the tracker's order.

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::reply::{ClaimReply, Status, Tenure};
use git_claim_api::verb::Take;
use serde_json::json;

use crate::claim::{self, Acquire, Caller, Claim, Decision, Now};
use crate::ledger::{LedgerError, Verdict, View};
use crate::random;
use crate::server::{Admitted, Answer, Failure, Ttls};
use crate::tracker::Issue;
use crate::verbs::{acquire, held, situation, within};
use crate::view::Viewer;

/// How many issues a first change of the ledger chooses from, and how often
/// that number doubles where all were taken in the meantime.
const FIRST_BATCH: usize = 16;
const MAX_DOUBLINGS: u32 = 6;

pub fn run(admitted: &Admitted<'_>, take: &Take) -> Result<Answer, Failure> {
    if take.binding.is_some() || take.take_over.is_some() || take.if_token.is_some() {
        return Err(Failure::Refused(
            "next takes an issue that nobody holds: it binds no branch and takes nothing over"
                .to_owned(),
        ));
    }
    let ttls = admitted.ttls()?;
    within(ttls.longest, take.ttl)?;
    let caller = admitted.caller(take.session.as_ref());
    let call = admitted.call;
    // Most of what is first in order is held already. What the ledger says of
    // it may be over by now; the change below looks again.
    let held = held(admitted)?;
    // A retry gets the issue that its first try began, or a conflict. Looked for
    // behind the above: what has begun since is not among the held.
    let mut earlier = None;
    call.read(&mut |view| {
        earlier = begun_by(view, admitted, &caller, take)?;
        Ok(())
    })?;
    if let Some(issue) = earlier {
        return acquire::run(admitted, &issue, take);
    }
    let tracker = admitted.tracker()?;
    let mut ready = tracker
        .ready()?
        .filter(|issue| !issue.as_ref().is_ok_and(|issue| held.contains(&issue.id)));
    let lease_id = random::id();
    let mut taken = Taken::None;
    for batch in 0.. {
        // The tracker is not read while others wait for the ledger. Whoever
        // meets many others who take too, brings more along the next time.
        let size = FIRST_BATCH << batch.min(MAX_DOUBLINGS);
        let candidates = ready.by_ref().take(size).collect::<Result<Vec<_>, _>>()?;
        if candidates.is_empty() {
            break;
        }
        taken = take_first(admitted, &candidates, &caller, take, ttls, &lease_id)?;
        if !matches!(taken, Taken::None) {
            break;
        }
    }
    let (issue, claim, now) = match taken {
        Taken::Now(issue, claim, now) => (issue, claim, now),
        Taken::Earlier(issue) => return acquire::run(admitted, &issue, take),
        Taken::None => {
            let reply = json!({ "status": Status::None, "repo": admitted.repo });
            return Answer::new(Exit::Nothing, &reply);
        }
    };
    let viewer = Viewer {
        caller: &caller,
        may_write: true,
        ledger_id: None,
        now,
    };
    let reply = ClaimReply {
        tenure: Some(Tenure::New),
        ..viewer.reply(Status::Acquired, &admitted.repo, &issue, &claim)
    };
    Answer::new(Exit::Done, &reply)
}

/// The issue that this very request has begun a tenure of.
fn begun_by(
    view: &(impl View + ?Sized),
    admitted: &Admitted<'_>,
    caller: &Caller,
    take: &Take,
) -> Result<Option<IssueId>, LedgerError> {
    let Some(request) = &take.request else {
        return Ok(None);
    };
    let session = caller.session.as_ref();
    let begun = view.begun_by(&admitted.repo, &caller.name, session, request)?;
    Ok(begun.map(|(issue, _)| issue))
}

/// What became of a try to take one of several issues.
#[allow(clippy::large_enum_variant)] // made once a request, and not kept
enum Taken {
    /// Others hold all of them.
    None,
    Now(IssueId, Claim, Now),
    /// The same request, sent twice, was served in the meantime.
    Earlier(IssueId),
}

/// Takes the first of `candidates` that nobody holds, in one change of the
/// ledger.
fn take_first(
    admitted: &Admitted<'_>,
    candidates: &[Issue],
    caller: &Caller,
    take: &Take,
    ttls: Ttls,
    lease_id: &str,
) -> Result<Taken, Failure> {
    let call = admitted.call;
    let mut taken = Taken::None;
    let mut change = None;
    call.change(&mut |transaction| {
        taken = Taken::None;
        change = None;
        if let Some(issue) = begun_by(transaction, admitted, caller, take)? {
            taken = Taken::Earlier(issue);
            return Ok(Verdict::Discard);
        }
        let now = transaction.now();
        for issue in candidates {
            let situation = situation(transaction, &admitted.repo, &issue.id, caller)?;
            if situation.claim.live(now).is_some() {
                continue;
            }
            let ask = Acquire {
                caller,
                take,
                default_ttl: ttls.default,
                title: issue.title.as_deref(),
                lease_id,
                seq: transaction.next_seq()?,
                request_ended: false,
                binding: None,
            };
            let decision = claim::acquire(&situation, &ask, now);
            if let Decision::Change {
                mut claim, ended, ..
            } = decision
            {
                transaction.store(&admitted.repo, &issue.id, &mut claim, ended.as_ref())?;
                change = Some((situation.claim, ended));
                taken = Taken::Now(issue.id.clone(), claim, now);
                return Ok(Verdict::Commit);
            }
        }
        Ok(Verdict::Discard)
    })?;
    if let (Taken::Now(issue, claim, now), Some((before, ended))) = (&taken, &change) {
        admitted.announce(issue, *now, before, claim, ended.as_ref());
    }
    Ok(taken)
}

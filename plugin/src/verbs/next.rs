//! `next`: take the first open issue that nobody holds, in the tracker's order,
//! in one change of the ledger.

use git_claim_api::exit::Exit;
use git_claim_api::reply::{ClaimReply, Status, Tenure};
use git_claim_api::verb::Take;
use serde_json::json;

use crate::claim::{self, Acquire, Decision};
use crate::ledger::Verdict;
use crate::random;
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{acquire, situation, within};
use crate::view::Viewer;

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
    if let Some(request) = &take.request {
        // A retry gets the issue that its first try began, or a conflict.
        let mut begun = None;
        admitted.call.ledger().read(&mut |view| {
            begun = view.begun_by(
                &admitted.repo,
                &caller.name,
                caller.session.as_ref(),
                request,
            )?;
            Ok(())
        })?;
        if let Some((issue, _)) = begun {
            return acquire::run(admitted, &issue, take);
        }
    }
    let candidates = admitted.tracker()?.ready()?;
    let lease_id = random::id();
    let call = admitted.call;
    call.still_wanted()?;
    let mut taken = None;
    call.ledger().change(call.deadline, &mut |transaction| {
        let now = call.time();
        for issue in &candidates {
            let situation = situation(transaction, &admitted.repo, &issue.id, &caller)?;
            if situation.claim.live(now).is_some() {
                continue;
            }
            let ask = Acquire {
                caller: &caller,
                take,
                default_ttl: ttls.default,
                title: issue.title.as_deref(),
                lease_id: &lease_id,
                seq: transaction.next_seq()?,
                request_ended: false,
                binding: None,
            };
            if let Decision::Change { claim, ended, .. } = claim::acquire(&situation, &ask, now) {
                transaction.store(&admitted.repo, &issue.id, &claim, ended.as_ref())?;
                taken = Some((issue.id.clone(), claim, now));
                return Ok(Verdict::Commit);
            }
        }
        taken = None;
        Ok(Verdict::Discard)
    })?;
    let Some((issue, claim, now)) = taken else {
        let reply = json!({ "status": Status::None, "repo": admitted.repo });
        return Answer::new(Exit::Nothing, &reply);
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

//! `show`: the whole record of one issue, and what is missing from it.

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session};
use git_claim_api::reply::{ClaimReply, Status};

use crate::claim::record::{self, Place};
use crate::claim::{Claim, Now};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::full_id;
use crate::view::Viewer;

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    session: Option<&Session>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(session);
    let (mut claim, mut now, mut ledger_id) = (Claim::default(), Now(0), String::new());
    admitted.call.read(&mut |view| {
        claim = view.claim(&admitted.repo, &issue)?;
        now = view.now();
        ledger_id = view.ledger_id()?;
        Ok(())
    })?;
    let viewer = Viewer {
        caller: &caller,
        may_write: claim.is_bound() && admitted.may(Access::Write),
        ledger_id: Some(&ledger_id),
        now,
    };
    let place = Place {
        ledger_id: &ledger_id,
        repo: &admitted.repo,
        issue: &issue,
    };
    let reply = ClaimReply {
        claim: viewer.recorded(&claim),
        state: Some(viewer.state(&claim)),
        missing: Some(record::missing(place, &claim)),
        lock: viewer.lock(&admitted.repo, &issue, &claim),
        ..viewer.reply(Status::Shown, &admitted.repo, &issue, &claim)
    };
    Answer::new(Exit::Done, &reply)
}

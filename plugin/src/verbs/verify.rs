//! `verify`: is this token the live one, and the caller's?

use git_claim_api::ids::{IssueId, Session, Token};
use git_claim_api::reply::Status;

use crate::claim::{self, Now, Situation, Verify};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{Outcome, full_id, ledger_id_for, settle, situation};

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    token: Token,
    session: Option<&Session>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(session);
    let mut found = Situation::default();
    let (mut now, mut ledger_id) = (Now(0), None);
    admitted.call.read(&mut |view| {
        now = view.now();
        found = situation(view, &admitted.repo, &issue, &caller)?;
        ledger_id = ledger_id_for(view, &found.claim)?;
        Ok(())
    })?;
    let ask = Verify {
        caller: &caller,
        token,
    };
    let outcome = Outcome {
        decision: claim::verify(&found, &ask, now),
        claim: found.claim,
        ledger_id,
        now,
    };
    settle(
        admitted,
        &issue,
        &caller,
        outcome,
        Status::Valid,
        |(), reply| reply,
    )
}

//! `verify`: is this token the live one, and the caller's?

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Token};
use git_claim_api::reply::Status;

use crate::claim::{self, Situation, Verify};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{Outcome, denial, full_id, situation};

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    token: Token,
    session: Option<&Session>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(session);
    let mut found = Situation::default();
    admitted.call.ledger().read(&mut |view| {
        found = situation(view, &admitted.repo, &issue, &caller)?;
        Ok(())
    })?;
    let now = admitted.call.time();
    let ask = Verify {
        caller: &caller,
        token,
    };
    let outcome = Outcome {
        decision: claim::verify(&found, &ask, now),
        claim: found.claim,
        now,
    };
    match denial(admitted, &issue, &caller, outcome) {
        Ok(denial) => denial,
        Err(granted) => {
            let reply = granted.reply(admitted, &caller, Status::Valid, &issue);
            Answer::new(Exit::Done, &reply)
        }
    }
}

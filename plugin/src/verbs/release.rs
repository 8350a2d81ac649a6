//! `release`: give a claim back.

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Token};
use git_claim_api::reply::{ClaimReply, Status};
use git_claim_api::verb::Eviction;

use crate::claim::{self, Release};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{caller_who_evicts, decide, denial, full_id};

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    session: Option<&Session>,
    token: Option<Token>,
    force: Option<&Eviction>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = caller_who_evicts(admitted, &issue, session, force)?;
    let outcome = decide(admitted, &issue, &caller, &mut |_, situation, now| {
        let ask = Release {
            caller: &caller,
            token,
            force,
        };
        Ok(claim::release(situation, &ask, now))
    })?;
    match denial(admitted, &issue, &caller, outcome) {
        Ok(denial) => denial,
        Err(granted) => {
            let reply = ClaimReply {
                was_held: Some(granted.value),
                ..granted.reply(admitted, &caller, Status::Released, &issue)
            };
            Answer::new(Exit::Done, &reply)
        }
    }
}

//! `release`: give a claim back.

use git_claim_api::ids::{IssueId, Session, Token};
use git_claim_api::reply::{ClaimReply, Status};
use git_claim_api::verb::Eviction;

use crate::claim::{self, Release};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{caller_who_evicts, decide, full_id, settle};

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
    settle(
        admitted,
        &issue,
        &caller,
        outcome,
        Status::Released,
        |was_held, reply| ClaimReply {
            was_held: Some(was_held),
            ..reply
        },
    )
}

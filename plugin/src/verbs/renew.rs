//! `renew`: the heartbeat.

use git_claim_api::ids::{IssueId, Session, Token, Ttl};
use git_claim_api::reply::Status;

use crate::claim::{self, Renew};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{decide, full_id, settle, within};

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    ttl: Option<Ttl>,
    session: Option<&Session>,
    token: Option<Token>,
) -> Result<Answer, Failure> {
    within(admitted.ttls()?.longest, ttl)?;
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(session);
    let outcome = decide(admitted, &issue, &caller, &mut |_, situation, now| {
        let ask = Renew {
            caller: &caller,
            ttl,
            token,
        };
        Ok(claim::renew(situation, &ask, now))
    })?;
    settle(
        admitted,
        &issue,
        &caller,
        outcome,
        Status::Renewed,
        |(), reply| reply,
    )
}

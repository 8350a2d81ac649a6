//! `renew`: the heartbeat.

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Token, Ttl};
use git_claim_api::reply::Status;

use crate::claim::{self, Renew};
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{decide, denial, full_id, within};

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
    match denial(admitted, &issue, &caller, outcome) {
        Ok(denial) => denial,
        Err(granted) => {
            let reply = granted.reply(admitted, &caller, Status::Renewed, &issue);
            Answer::new(Exit::Done, &reply)
        }
    }
}

//! The heartbeats: a claim is renewed at a third of its time to live for as
//! long as it is wanted.

use std::time::Duration;

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Token, Ttl};
use git_claim_api::reply::{ClaimReply, Reason, Status};
use git_claim_api::verb::{Request, Take};

use super::guard::Orders;
use super::lease::{Lease, next_heartbeat, span};
use crate::answer::Reply;
use crate::bound::keep;
use crate::client::{Client, request_id};
use crate::clock::Moment;
use crate::error::{Failure, Kind, Result};
use crate::output::Output;
use crate::output::people::{self, Doing};

/// A claim that is held.
#[derive(Debug)]
pub struct Claim {
    pub issue: IssueId,
    pub token: Token,
    pub ttl: Ttl,
    /// From before the request was sent that it was last had by.
    pub sent: Moment,
    /// Why the last heartbeat did not get through.
    pub trouble: Option<Failure>,
}

/// What a heartbeat has found out.
enum Beat {
    Lives(Moment),
    /// It could not be asked: nothing has changed.
    Unheard(Failure),
    /// It ran out, and nobody has taken it yet.
    RanOut(Failure),
    Lost(Failure),
}

/// How long a claim that ran out is asked for again.
const LEAST_PATIENCE: Duration = Duration::from_secs(60);

/// Keeps a claim alive, and the watchdog informed, until it is lost. With
/// `resume` a claim that ran out is taken again if nobody had it since.
pub async fn beat(
    claim: &mut Claim,
    orders: &Orders,
    resume: bool,
    client: &mut Client,
    output: &mut Output,
) -> Failure {
    let mut next = next_heartbeat(claim.sent, claim.ttl);
    loop {
        next.reached().await;
        let mut beat = renew(claim, client, output).await;
        if resume && matches!(beat, Beat::RanOut(_)) {
            beat = take_again(claim, client, output).await;
        }
        match beat {
            Beat::Lives(sent) => {
                claim.trouble = None;
                claim.sent = sent;
                orders.live(Lease::of(sent, claim.ttl));
                next = next_heartbeat(sent, claim.ttl);
            }
            Beat::Unheard(failure) => {
                let patience = span(claim.ttl).max(LEAST_PATIENCE);
                if resume && (orders.lease().end + patience).is_past() {
                    return lost(&failure);
                }
                output.detail(&format!("no heartbeat: {}", failure.message));
                claim.trouble = Some(failure);
                next = Moment::now() + (span(claim.ttl) / 10).min(Duration::from_secs(5));
            }
            Beat::RanOut(failure) | Beat::Lost(failure) => return lost(&failure),
        }
    }
}

/// The claim is lost, and that is why.
pub fn lost(why: &Failure) -> Failure {
    let message = format!(
        "the claim was lost while the command ran, so it was ended: {}",
        why.message
    );
    Failure {
        hint: why.hint.clone(),
        ..Failure::of_kind(Kind::Lost, message)
    }
}

async fn renew(claim: &Claim, client: &mut Client, output: &mut Output) -> Beat {
    let asked: Result<_> = async {
        let request = Request::Renew {
            repo: client.repo()?,
            issue: claim.issue.clone(),
            ttl: Some(claim.ttl),
            session: Some(client.session()?),
            token: Some(claim.token),
        };
        let within = Some(patience(claim.ttl, client.has_line().await));
        let sent = Moment::now();
        let reply = client.ask_within(within, &request, output).await?;
        if reply.exit == Exit::Done
            && let Err(failure) = keep::go_on(client, &reply, output)
        {
            // The claim lives all the same.
            output.detail(&failure.message);
        }
        Ok((read(&reply, Status::Renewed)?, sent))
    }
    .await;
    match asked {
        Ok((Ok(_), sent)) => Beat::Lives(sent),
        Ok((Err(beat), _)) => beat,
        Err(failure) => unheard(failure),
    }
}

/// Begins a new tenure, if nobody has begun one.
async fn take_again(claim: &mut Claim, client: &mut Client, output: &mut Output) -> Beat {
    let asked: Result<_> = async {
        let take = Take {
            ttl: Some(claim.ttl),
            session: Some(client.session()?),
            request: Some(request_id()?),
            if_token: Some(claim.token.get()),
            ..Take::default()
        };
        let request = Request::Acquire {
            repo: client.repo()?,
            issue: claim.issue.clone(),
            take,
        };
        let taken = client.take(&request, output).await?;
        if let Err(error) = client.tokens().keep(&taken.reply) {
            // The command's terminal is not ours to write on.
            output.detail(&format!("{error:#}"));
        }
        Ok((read(&taken.reply, Status::Acquired)?, taken.sent))
    }
    .await;
    match asked {
        Ok((Ok(reply), sent)) => match Token::new(reply.claim.token) {
            Ok(token) => {
                claim.token = token;
                Beat::Lives(sent)
            }
            Err(why) => Beat::Lost(Failure::error(why.to_string())),
        },
        Ok((Err(Beat::RanOut(failure) | Beat::Lost(failure)), _)) => Beat::Lost(failure),
        Ok((Err(beat), _)) => beat,
        Err(failure) => unheard(failure),
    }
}

/// How long one heartbeat may take: another must fit in behind it. A connection
/// that stands already may have died without a word, and has nothing else to
/// wait for than the reply.
fn patience(ttl: Ttl, has_line: bool) -> Duration {
    let parts = if has_line { 6 } else { 3 };
    (span(ttl) / parts).max(Duration::from_secs(1))
}

/// Only the server says that a claim is lost.
fn unheard(failure: Failure) -> Beat {
    match failure.kind {
        Kind::Exit(Exit::Conflict) => Beat::Lost(failure),
        _ => Beat::Unheard(failure),
    }
}

fn read(reply: &Reply, expected: Status) -> Result<std::result::Result<ClaimReply, Beat>> {
    let read: ClaimReply = reply.read()?;
    if reply.exit == Exit::Done && read.status == expected {
        return Ok(Ok(read));
    }
    if reply.exit != Exit::Conflict {
        return Err(reply.nonsense("its status does not fit its exit code"));
    }
    let ran_out = read.reason == Some(Reason::Expired) && read.claim.holder.is_none();
    let failure = people::conflict(&read, Doing::Renew);
    Ok(Err(if ran_out {
        Beat::RanOut(failure)
    } else {
        Beat::Lost(failure)
    }))
}

//! `git claim run`: hold a claim while a command runs.

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Token, Ttl};
use git_claim_api::reply::{ClaimReply, State, Status, Tenure};
use git_claim_api::verb::{Request, Take};

use crate::args::{issue_id, ttl};
use crate::client::{Client, Taken, request_id};
use crate::completion::offer::Offer;
use crate::error::{Failure, Kind, Result};
use crate::interrupt::{self, Signals};
use crate::noted;
use crate::output::Output;
use crate::output::people::{self, Doing};
use crate::run::guard::{Guard, Work};
use crate::run::heart::{self, Claim};
use crate::run::lease::Lease;
use crate::run::lock::lock;

/// Hold a claim while a command runs
///
/// The claim is renewed for as long as the command runs, and released when it
/// has ended, unless you held it before. The exit code is the command's, or 100
/// plus the code that `git claim` would have: 103 nothing to take, 104 held by
/// somebody else, 106 the server could not be asked. 105: the claim was lost
/// while the command ran; then the command was ended, with all that it had
/// started.
///
/// The command finds GIT_CLAIM_ISSUE, GIT_CLAIM_TOKEN, GIT_CLAIM_SESSION and
/// GIT_CLAIM_EXPIRES in its environment. When it ends, so does what it left
/// running, which is known by GIT_CLAIM_RUN.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "git claim run [OPTIONS] <ID> [--] <COMMAND> [ARG]...\n       git claim run [OPTIONS] --next [--] <COMMAND> [ARG]..."
)]
pub struct Args {
    /// The issue's id; not with --next
    #[arg(value_name = "ID", required = true, add = Offer::FreeOrCommand)]
    pub first: OsString,

    /// The command with its arguments, which nobody looks at
    #[arg(value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments, trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<OsString>,

    /// Take the first open issue that nobody holds
    #[arg(long)]
    pub next: bool,

    /// How long the claim lives behind the last heartbeat: 10m unless given
    #[arg(short, long, value_name = "DURATION", value_hint = ValueHint::Other, value_parser = ttl)]
    pub ttl: Option<Ttl>,

    /// Leave the claim held when the command has ended
    #[arg(long)]
    pub keep: bool,

    /// Go on with a claim that ran out, if nobody has had it since
    ///
    /// For machines that sleep: the command is stopped when the claim runs out,
    /// and goes on under a new token, or is ended.
    #[arg(long)]
    pub resume: bool,
}

/// How long a claim lives whose holder is not heard of any more.
const DEFAULT_TTL: u64 = 600;

impl Args {
    /// What is to be claimed (`None`: the next), and what is to be run.
    fn split(self) -> Result<(Option<IssueId>, Vec<OsString>)> {
        if self.next {
            let mut command = vec![self.first];
            command.extend(self.rest);
            return Ok((None, command));
        }
        let id = self.first.to_string_lossy();
        let id = issue_id(&id).map_err(|why| Failure::usage(why.to_string()))?;
        if self.rest.is_empty() {
            return Err(
                Failure::usage(format!("there is no command to run on issue {id}")).hint(format!(
                    "`git claim run {id} -- make test` runs one; \
                     `git claim run --next -- {id}` runs {id} on the first open issue"
                )),
            );
        }
        Ok((Some(id), self.rest))
    }
}

/// A claim that was had for the command.
struct Had {
    claim: Claim,
    lock: File,
    lease: Lease,
    /// The time to live that it had before, if it was held already.
    before: Option<Option<Ttl>>,
    reply: ClaimReply,
}

/// The exit code of the command.
pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<u8> {
    work(args, client, output).await.map_err(Failure::of_run)
}

async fn work(args: Args, client: &mut Client, output: &mut Output) -> Result<u8> {
    let (keep, freeze, ttl) = (args.keep, args.resume, args.ttl);
    let (issue, command) = args.split()?;
    let mut signals = Signals::for_command_too()?;
    client.keep_line()?;
    let Had {
        mut claim,
        lock,
        lease,
        before,
        reply,
    } = interrupt::or_stop(take(issue, ttl, client, output)).await?;
    output.remark(&people::claimed(&reply, false));
    let work = Work {
        command,
        environment: vec![
            ("GIT_CLAIM_ISSUE", claim.issue.to_string()),
            ("GIT_CLAIM_TOKEN", claim.token.to_string()),
            ("GIT_CLAIM_SESSION", client.session()?.to_string()),
            (
                "GIT_CLAIM_EXPIRES",
                reply.claim.expires_at.unwrap_or_default(),
            ),
        ],
        freeze,
    };
    let after = match (keep, before) {
        (_, Some(ttl)) => After::AsBefore(ttl),
        (true, None) => After::Kept,
        (false, None) => After::Released,
    };
    client.ask_nobody();
    let (mut guard, orders) = match Guard::start(&work, lock, lease).await {
        Ok(started) => started,
        Err(failure) => {
            let _ = leave(&claim, after, client, output).await;
            return Err(failure);
        }
    };
    let ended = {
        let mut ended = std::pin::pin!(guard.ended(&orders, &mut signals));
        let heart = heart::beat(&mut claim, &orders, freeze, client, output);
        tokio::select! {
            biased;
            ended = &mut ended => Ok(ended),
            lost = heart => {
                orders.lost();
                ended.await;
                Err(lost)
            }
        }
    };
    let ended = match ended {
        Ok(Some(ended)) if !ended.made_to => ended,
        Ok(ended) => {
            let why = claim.trouble.clone().unwrap_or_else(|| match ended {
                Some(_) => Failure::error("this process could not run in time to renew it"),
                None => Failure::error("the process that watched the command was ended"),
            });
            // Others need not wait until it runs out.
            let _ = leave(&claim, after, client, output).await;
            return Err(heart::lost(&why));
        }
        Err(lost) => return Err(lost),
    };
    signals.forget().await;
    tokio::select! {
        left = leave(&claim, after, client, output) => left?,
        _ = signals.impatient() => output.warning("stopped before the claim was given back; it runs out by itself"),
    }
    Ok(ended.code)
}

async fn take(
    issue: Option<IssueId>,
    ttl: Option<Ttl>,
    client: &mut Client,
    output: &mut Output,
) -> Result<Had> {
    let default = Ttl::new(DEFAULT_TTL).map_err(|why| Failure::error(why.to_string()))?;
    let Some(issue) = issue else {
        let take = take_for(client, ttl.unwrap_or(default))?;
        let request = Request::Next {
            repo: client.repo()?,
            take,
        };
        let taken = client.take(&request, output).await?;
        if taken.reply.exit == Exit::Nothing {
            return Err(Failure::new(Exit::Nothing, "nothing left to take"));
        }
        let (claim, reply) = held(&taken, client, output)?;
        return match lock(client, &claim.issue) {
            Ok(lock) => Ok(had(claim, reply, lock, None)),
            Err(failure) => {
                let _ = leave(&claim, After::Released, client, output).await;
                Err(failure)
            }
        };
    };
    // The lock first: another run on the same claim must not find it changed.
    let request = Request::Show {
        repo: client.repo()?,
        issue,
        session: Some(client.session()?),
    };
    let shown: ClaimReply = client.ask(&request, output).await?.read()?;
    let before = (shown.claim.mine && shown.state == Some(State::Live))
        .then(|| shown.claim.ttl.and_then(|ttl| Ttl::new(ttl).ok()));
    let issue: IssueId = shown
        .issue
        .parse()
        .map_err(|why| Failure::error(format!("the server names no issue: {why}")))?;
    let lock = lock(client, &issue)?;
    let take = take_for(client, ttl.or(before.flatten()).unwrap_or(default))?;
    let request = Request::Acquire {
        repo: client.repo()?,
        issue,
        take,
    };
    let taken = client.take(&request, output).await?;
    let (claim, reply) = held(&taken, client, output)?;
    let before = before.filter(|_| reply.tenure == Some(Tenure::Own));
    Ok(had(claim, reply, lock, before))
}

fn take_for(client: &Client, ttl: Ttl) -> Result<Take> {
    Ok(Take {
        ttl: Some(ttl),
        session: Some(client.session()?),
        request: Some(request_id()?),
        ..Take::default()
    })
}

/// The claim that was answered, if it was had.
fn held(taken: &Taken, client: &Client, output: &Output) -> Result<(Claim, ClaimReply)> {
    let reply: ClaimReply = taken.reply.read()?;
    if taken.reply.exit == Exit::Conflict {
        return Err(people::conflict(&reply, Doing::Claim));
    }
    let nonsense = |why: &str| taken.reply.nonsense(why);
    if reply.status != Status::Acquired {
        return Err(nonsense("its status does not fit its exit code"));
    }
    noted::held(client, &taken.reply, output);
    let ttl = reply.claim.ttl.and_then(|ttl| Ttl::new(ttl).ok());
    let claim = Claim {
        issue: reply
            .issue
            .parse()
            .map_err(|_| nonsense("it names no issue"))?,
        token: Token::new(reply.claim.token).map_err(|_| nonsense("it has no token"))?,
        ttl: ttl.ok_or_else(|| nonsense("the claim has no end"))?,
        sent: taken.sent,
        trouble: None,
    };
    Ok((claim, reply))
}

fn had(claim: Claim, reply: ClaimReply, lock: File, before: Option<Option<Ttl>>) -> Had {
    let lease = Lease::of(claim.sent, claim.ttl);
    Had {
        claim,
        lock,
        lease,
        before,
        reply,
    }
}

/// What becomes of the claim when the command has ended.
#[derive(Debug, Clone, Copy)]
enum After {
    Released,
    /// Its time to live begins anew.
    Kept,
    /// It was held before: as long as it was to live then; `None`: no end.
    AsBefore(Option<Ttl>),
}

/// Leaves the claim. That the server can't be asked is no failure of the
/// command's: the claim runs out by itself.
///
/// # Errors
/// It had been lost.
async fn leave(
    claim: &Claim,
    after: After,
    client: &mut Client,
    output: &mut Output,
) -> Result<()> {
    let (repo, session) = (client.repo()?, Some(client.session()?));
    let (issue, token) = (claim.issue.clone(), Some(claim.token));
    let request = match after {
        After::Released => Request::Release {
            repo,
            issue,
            session,
            token,
            force: None,
        },
        After::Kept => Request::Renew {
            repo,
            issue,
            ttl: Some(claim.ttl),
            session,
            token,
        },
        After::AsBefore(Some(ttl)) => Request::Renew {
            repo,
            issue,
            ttl: Some(ttl),
            session,
            token,
        },
        After::AsBefore(None) => Request::Acquire {
            repo,
            issue,
            take: Take {
                session,
                if_token: Some(claim.token.get()),
                ..Take::default()
            },
        },
    };
    let left = Lease::of(claim.sent, claim.ttl).end.left();
    let within = Some(left.max(Duration::from_secs(1)));
    match client.ask_within(within, &request, output).await {
        Ok(reply) if reply.exit == Exit::Conflict => {
            let claim: ClaimReply = reply.read()?;
            if claim.is_done() {
                // What it was held for has come about, by the command's own push
                // as a rule.
                return Ok(());
            }
            let conflict = people::conflict(&claim, Doing::Renew);
            let message = format!(
                "the claim was lost while the command ran: {}",
                conflict.message
            );
            Err(Failure {
                hint: conflict.hint,
                ..Failure::of_kind(Kind::Lost, message)
            })
        }
        Ok(reply) => {
            noted::over(client, &reply, output);
            Ok(())
        }
        Err(failure) => {
            output.warning(&format!(
                "the claim could not be given back, and runs out by itself: {}",
                failure.message
            ));
            Ok(())
        }
    }
}

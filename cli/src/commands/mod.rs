//! One file a command: its arguments, and what it does.

pub mod claim;
pub mod claims;
pub mod completions;
pub mod help;
pub mod log;
pub mod renew;
pub mod unclaim;
pub mod whoami;

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Text, Token};
use git_claim_api::reply::{ClaimReply, Status};
use git_claim_api::verb::{Eviction, Request};

use crate::answer::Reply;
use crate::args::{Command, Invocation};
use crate::client::Client;
use crate::error::{Failure, Result};
use crate::output::{Output, people};

/// Runs the command of an invocation.
pub fn run(invocation: Invocation, output: &mut Output) -> Result<Exit> {
    let global = invocation.global;
    match invocation.command {
        Command::Help(args) => help::run(&args, output),
        Command::Completions(args) => completions::run(&args, output),
        command => Client::with(&global, output, async |client, output| match command {
            Command::Claim(args) => claim::run(args, client, output).await,
            Command::Renew(args) => renew::run(args, client, output).await,
            Command::Log(args) => log::run(args, client, output).await,
            Command::Whoami(args) => whoami::run(&args, client, output).await,
            Command::Claims(args) => claims::run(args, client, output).await,
            Command::Unclaim(args) => unclaim::run(args, client, output).await,
            Command::Help(_) | Command::Completions(_) => Ok(Exit::Done),
        }),
    }
}

/// The issue that a command is about.
///
/// # Errors
/// None was named: what a worktree is bound to is not known to this version.
fn named(id: Option<IssueId>, command: &str) -> Result<IssueId> {
    id.ok_or_else(|| {
        Failure::error("no claim is bound to this worktree, and no issue was named").hint(format!(
            "`{command} <id>` names one (a shell takes #43 for a comment: write 43 or '#43'); \
             `git claims --mine` lists yours"
        ))
    })
}

/// A take-over or force, if it was asked for; clap has checked that a reason
/// goes with it.
fn eviction(wanted: bool, reason: Option<Text>, expected_token: Option<Token>) -> Option<Eviction> {
    let reason = reason.filter(|_| wanted)?;
    Some(Eviction {
        reason,
        expected_token,
    })
}

/// The token of this session's claim on `issue`: the one that was kept, else
/// the one that the server knows. `None`: there is no such claim, and the
/// server's answer to the request itself says why.
async fn own_token(
    client: &mut Client,
    issue: &IssueId,
    output: &mut Output,
) -> Result<Option<Token>> {
    if let Some(token) = client.tokens().find(issue) {
        return Ok(Some(token));
    }
    let request = Request::Show {
        repo: client.repo()?,
        issue: issue.clone(),
        session: Some(client.session()?),
    };
    let shown: ClaimReply = client.ask(&request, output).await?.read()?;
    if !shown.claim.mine {
        return Ok(None);
    }
    Ok(Token::new(shown.claim.token).ok())
}

/// A reply about one claim: as JSON where that was asked for, as a failure
/// where it is a conflict, else handed to `told` for the sentence.
fn answer(
    reply: &Reply,
    expected: Status,
    doing: people::Doing,
    output: &mut Output,
    told: impl FnOnce(&ClaimReply) -> String,
) -> Result<Exit> {
    let claim: ClaimReply = reply.read()?;
    let fits = match reply.exit {
        Exit::Done => claim.status == expected,
        Exit::Conflict => claim.status == Status::Held,
        Exit::Nothing => claim.status == Status::None,
        _ => false,
    };
    if !fits {
        return Err(reply.nonsense("its status does not fit its exit code"));
    }
    if output.json() {
        output.reply(&reply.line)?;
        return Ok(reply.exit);
    }
    if reply.exit == Exit::Conflict {
        return Err(people::conflict(&claim, doing));
    }
    output.sentence(&told(&claim))?;
    Ok(reply.exit)
}

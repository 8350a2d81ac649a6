//! One file a command: its arguments, and what it does.

pub mod check;
pub mod claim;
pub mod claims;
pub mod completions;
pub mod help;
pub mod inspect;
pub mod install_hook;
pub mod log;
pub mod recover;
pub mod renew;
pub mod run;
mod several;
pub mod start;
pub mod unclaim;
pub mod whoami;

use std::process::ExitCode;

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Text, Token};
use git_claim_api::reply::{ClaimReply, Status};
use git_claim_api::verb::{Eviction, Request};

use crate::answer::Reply;
use crate::args::{Command, Global, Invocation};
use crate::bound::repository::Repository;
use crate::bound::survey::bound_issue;
use crate::client::Client;
use crate::error::{Failure, Kind, Result};
use crate::interrupt;
use crate::output::{Output, people};

/// Runs the command of an invocation.
///
/// # Errors
/// Everything but the exit code of a reply, or of the command that `git claim
/// run` ran.
pub fn run(invocation: Invocation, output: &mut Output) -> Result<ExitCode> {
    let global = invocation.global;
    let exit = match invocation.command {
        Command::Run(args) => {
            let code = Client::with(&global, output, async |client, output| {
                run::run(args, client, output).await
            });
            return code.map(ExitCode::from).map_err(Failure::of_run);
        }
        Command::Help(args) => help::run(&args, output),
        Command::Completions(args) => completions::run(&args, output),
        Command::InstallHook(args) => install_hook::run(&args, output),
        // It undoes what it made before it stops.
        Command::Start(args) => Client::with(&global, output, async |client, output| {
            start::run(args, client, output).await
        }),
        Command::Recover(args) => Client::with(&global, output, async |client, output| {
            recover::run(args, client, output).await
        }),
        Command::Check(args) if args.hook.is_some() => {
            let Some((remote, issue)) = check::concerned_by_hook(&args.words)? else {
                return Ok(Exit::Done.into());
            };
            let global = Global {
                remote: Some(remote),
                ..global
            };
            Client::with(&global, output, async |client, output| {
                interrupt::or_stop(check::run_hook(issue, client, output)).await
            })
            .map_err(Failure::of_looking)
        }
        command => {
            let (only_looks, is_endless) = (command.only_looks(), command.is_endless());
            let exit = Client::with(&global, output, async |client, output| {
                interrupt::or_stop(ask(command, client, output)).await
            });
            match exit {
                // That is how one ends it.
                Err(failure) if is_endless && matches!(failure.kind, Kind::Interrupted(_)) => {
                    return Ok(failure.kind.code().into());
                }
                Err(failure) if only_looks => Err(failure.of_looking()),
                exit => exit,
            }
        }
    };
    exit.map(ExitCode::from)
}

/// Runs a command that asks the server, and can stop anywhere.
async fn ask(command: Command, client: &mut Client, output: &mut Output) -> Result<Exit> {
    match command {
        Command::Claim(args) => claim::run(args, client, output).await,
        Command::Renew(args) => renew::run(args, client, output).await,
        Command::Check(_) => check::run(client, output).await,
        Command::Inspect(args) => inspect::run(args, client, output).await,
        Command::Log(args) => log::run(args, client, output).await,
        Command::Whoami(args) => whoami::run(&args, client, output).await,
        Command::Claims(args) => claims::run(args, client, output).await,
        Command::Unclaim(args) => unclaim::run(args, client, output).await,
        Command::Start(_)
        | Command::Recover(_)
        | Command::Run(_)
        | Command::InstallHook(_)
        | Command::Help(_)
        | Command::Completions(_) => Ok(Exit::Done),
    }
}

/// The issue that a command is about: the one that was named, else the one that
/// this worktree is bound to.
///
/// # Errors
/// There is neither.
fn named(id: Option<IssueId>, client: &Client, command: &str) -> Result<IssueId> {
    if let Some(id) = id {
        return Ok(id);
    }
    bound_issue(&Repository::of(client.git())?, client).map_err(|refusal| {
        Failure::error(format!("{}, and no issue was named", refusal.message)).hint(format!(
            "`{command} <id>` names one (a shell takes #43 for a comment: write 43 or '#43'); \
             `git claims --mine` lists yours"
        ))
    })
}

/// A take-over or force, if `option` asked for it.
///
/// # Errors
/// `--no-reason` took the reason back.
fn eviction(
    option: &str,
    wanted: bool,
    reason: Option<Text>,
    expected_token: Option<Token>,
) -> Result<Option<Eviction>> {
    match reason {
        _ if !wanted => Ok(None),
        None => Err(Failure::usage(format!("{option} needs --reason <text>"))),
        Some(reason) => Ok(Some(Eviction {
            reason,
            expected_token,
        })),
    }
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
    client.log_in_once()?;
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
    if reply.exit == Exit::Nothing && expected == Status::Acquired {
        return nothing(reply, output);
    }
    let claim: ClaimReply = reply.read()?;
    let fits = match reply.exit {
        Exit::Done => claim.status == expected,
        Exit::Conflict => claim.status == Status::Held,
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

/// `next` found nothing to take: a reply about no claim.
fn nothing(reply: &Reply, output: &mut Output) -> Result<Exit> {
    #[derive(serde::Deserialize)]
    struct Nothing {
        status: Status,
    }
    if reply.read::<Nothing>()?.status != Status::None {
        return Err(reply.nonsense("its status does not fit its exit code"));
    }
    if output.json() {
        output.reply(&reply.line)?;
    } else {
        output.sentence("nothing left to take")?;
    }
    Ok(reply.exit)
}

//! A command that is given several issues: the same for each, over one
//! connection.

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;

use super::named;
use crate::client::Client;
use crate::error::{Failure, Kind, Result};
use crate::output::{Output, json};

/// How often in a row the server may give no answer before the rest is left
/// alone: each may take as long as `claim.timeout`.
const IN_VAIN: usize = 2;

/// Does `one` for each of the `ids`, in this order; without any for the issue
/// that this worktree is bound to. One that fails keeps no other from being
/// done. The highest exit code counts.
///
/// # Errors
/// That of the only one.
pub async fn each(
    ids: Vec<IssueId>,
    command: &str,
    client: &mut Client,
    output: &mut Output,
    mut one: impl AsyncFnMut(IssueId, &mut Client, &mut Output) -> Result<Exit>,
) -> Result<Exit> {
    if let [] | [_] = ids[..] {
        let issue = named(ids.into_iter().next(), client, command)?;
        return one(issue, client, output).await;
    }
    client.keep_line()?;
    let mut highest = Exit::Done;
    let mut in_vain = 0;
    for issue in ids {
        let done = match in_vain < IN_VAIN {
            true => one(issue.clone(), client, output).await,
            false => Err(left_alone()),
        };
        let exit = match done {
            Ok(exit) => {
                in_vain = 0;
                exit
            }
            Err(failure) => {
                let exit = exit(failure.kind);
                in_vain = match exit {
                    Exit::NotNow | Exit::NoVerb => in_vain + 1,
                    _ => 0,
                };
                tell(&issue, &failure, output)?;
                exit
            }
        };
        highest = highest.max(exit);
    }
    Ok(highest)
}

/// What a call for the one issue would have ended with.
fn exit(kind: Kind) -> Exit {
    match kind {
        Kind::Exit(exit) | Kind::OfRun(exit) => exit,
        Kind::Unsure => Exit::NotNow,
        Kind::Lost | Kind::NotStarted(_) | Kind::Interrupted(_) => Exit::Error,
    }
}

fn left_alone() -> Failure {
    Failure::not_now("not asked, as the server gave no answer before").hint("trying again is safe")
}

/// Says what went wrong with one of several: among the replies where they are
/// JSON, so that there is a line for each.
fn tell(issue: &IssueId, failure: &Failure, output: &Output) -> Result<()> {
    if output.json() {
        return output.value(&json::failure_about(issue, failure));
    }
    output.failure(&Failure {
        message: format!("{issue}: {}", failure.message),
        ..failure.clone()
    });
    Ok(())
}

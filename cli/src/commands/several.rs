//! A command that is given several issues: the same for each, over one
//! connection.

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, MIN_PREFIX};

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
    let mut gives_no_answer = None;
    for issue in ids {
        let done = match gives_no_answer {
            None => one(issue.clone(), client, output).await,
            Some(exit) => Err(left_alone(exit)),
        };
        let exit = match done {
            Ok(exit) => {
                in_vain = 0;
                exit
            }
            Err(failure) => {
                let exit = exit(failure.kind);
                in_vain = match exit {
                    Exit::NotNow => in_vain + 1,
                    // It never will.
                    Exit::NoVerb => IN_VAIN,
                    _ => 0,
                };
                gives_no_answer = (in_vain >= IN_VAIN).then_some(exit);
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

fn left_alone(exit: Exit) -> Failure {
    match exit {
        Exit::NoVerb => Failure::new(exit, "not asked, as the server cannot answer"),
        exit => Failure::new(exit, "not asked, as the server gave no answer before")
            .hint("trying again is safe"),
    }
}

/// Whether a message says which issue it is about. Only an id that no word could
/// be is known for one.
fn is_named_in(message: &str, issue: &IssueId) -> bool {
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let typed = issue.as_str();
    let is_it = |word: &str| match typed.len() >= MIN_PREFIX {
        true => word.starts_with(typed),
        false => word == typed,
    };
    typed.contains(|c: char| c.is_ascii_digit()) && message.split(|c| !is_of_id(c)).any(is_it)
}

/// Says what went wrong with one of several: among the replies where they are
/// JSON, so that there is a line for each.
fn tell(issue: &IssueId, failure: &Failure, output: &Output) -> Result<()> {
    if output.json() {
        return output.value(&json::failure_about(issue, failure));
    }
    let message = match is_named_in(&failure.message, issue) {
        true => failure.message.clone(),
        false => format!("{issue}: {}", failure.message),
    };
    output.failure(&Failure {
        message,
        ..failure.clone()
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_named_in;

    #[test]
    fn an_issue_is_named_once() {
        for (message, issue, is_named) in [
            ("issue 43 is claimed by bob", "43", true),
            ("there is no issue '43'", "43", true),
            ("issue 430 is claimed by bob", "43", false),
            ("you do not hold ae1c051b: bob has it", "ae1c", true),
            ("the server cannot be reached (43.5 s)", "43", false),
            ("no answer came", "no", false),
        ] {
            let issue = issue.parse().unwrap();
            assert_eq!(is_named_in(message, &issue), is_named, "{message}");
        }
    }
}

//! What a server's words mean: one of ours, an error of ours, or a program that
//! never heard of the verb.

use git_claim_api::VERB;
use git_claim_api::exit::Exit;
use git_claim_api::reply::{ClaimReply, Status, is_ours};
use git_claim_api::text::escape;
use serde::de::DeserializeOwned;

use crate::error::{Failure, Result};
use crate::output::table::fit;

/// What came back from a command that was run on a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// `None`: it ended without an exit code, by a signal or with the
    /// connection.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// A reply of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The JSON object as it came, with what a terminal would obey escaped.
    pub line: String,
    /// `Done`, `Nothing` or `Conflict`; `Error` where `recover` was refused.
    pub exit: Exit,
}

impl Reply {
    /// The reply as the type that the command expects.
    ///
    /// # Errors
    /// It is another.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.line).map_err(|error| self.nonsense(&error.to_string()))
    }

    /// A reply that cannot be what was asked for: nothing may be believed of it.
    pub fn nonsense(&self, why: &str) -> Failure {
        nonsense(why)
    }
}

/// What a server says cannot be meant.
pub fn nonsense(why: &str) -> Failure {
    Failure::not_now(format!(
        "the server's reply makes no sense: {}",
        escape(why)
    ))
    .hint(
        "`git claim whoami --json` shows the server's version; this is git-claim's ".to_owned()
            + env!("CARGO_PKG_VERSION"),
    )
}

/// Reads an answer of `host`.
///
/// # Errors
/// Everything but a reply of ours.
pub fn read(answer: &Answer, host: &str) -> Result<Reply> {
    let exit = answer.code.and_then(Exit::from_code);
    if let Some(line) = reply_line(&answer.stdout) {
        return match exit {
            // A refusal is a reply too, where the command is asked for one.
            Some(exit @ Exit::Error) if is_refusal(&line) => Ok(Reply { line, exit }),
            Some(exit @ (Exit::Done | Exit::Nothing | Exit::Conflict)) => Ok(Reply { line, exit }),
            _ => Err(lost(host)),
        };
    }
    let stderr = String::from_utf8_lossy(&answer.stderr);
    let error = stderr
        .lines()
        .find_map(|line| line.strip_prefix("error: "))
        .map(|message| escape(message.trim()));
    match (exit, error) {
        (Some(exit @ (Exit::Error | Exit::Conflict | Exit::NotNow)), Some(message)) => {
            return Err(server_error(exit, message, &stderr));
        }
        // Our own server says nothing else with these.
        (Some(Exit::NotNow), None) => {
            return Err(Failure::not_now(format!("{host} cannot answer now")));
        }
        _ => {}
    }
    match answer.code {
        // Shells and ssh say with 129 and above that something was killed; ssh
        // itself says 255.
        None | Some(129..) => Err(lost(host)),
        Some(_) => Err(no_verb(host, &stderr)),
    }
}

/// The last line of stdout, if it is a reply of ours: a chatty login shell may
/// have spoken before.
fn reply_line(stdout: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(stdout).ok()?;
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    let value = serde_json::from_str(line).ok()?;
    // Outside of its strings JSON has nothing unsafe but these two blanks, and
    // inside of them an escape is the same text.
    is_ours(&value).then(|| escape(&line.replace(['\t', '\r'], " ")))
}

fn is_refusal(line: &str) -> bool {
    let reply: Option<ClaimReply> = serde_json::from_str(line).ok();
    reply.is_some_and(|reply| reply.status == Status::Refused)
}

fn server_error(exit: Exit, message: String, stderr: &str) -> Failure {
    let hint = stderr.lines().find_map(|line| line.strip_prefix("hint: "));
    let mut failure = Failure::new(exit, message);
    failure.hint = match hint {
        Some(hint) => Some(escape(hint.trim())),
        None if exit == Exit::NotNow => Some("trying again is safe".to_owned()),
        None => None,
    };
    failure
}

/// The connection ended before the whole answer was there.
fn lost(host: &str) -> Failure {
    Failure::unsure(format!(
        "the connection to {host} ended before an answer came"
    ))
}

/// How much of a server's own words is shown, in columns: they may repeat all
/// that was asked.
const MOST_SAID: usize = 80;

/// The table of hosts.md: each forge in its own words.
fn no_verb(host: &str, stderr: &str) -> Failure {
    let words: Vec<&str> = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let said = words.first().map_or_else(
        || "it gave no reason".to_owned(),
        |line| format!("it said: {}", fit(&escape(line), MOST_SAID).trim_end()),
    );
    Failure::new(
        Exit::NoVerb,
        format!("{host} answers, but does not speak {VERB} ({said})"),
    )
    .hint(
        "its admin can add git-claim-server; a lease server elsewhere is set with \
         `git config remote.<name>.claimUrl <url>`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: Option<i32>, stdout: &str, stderr: &str) -> Answer {
        Answer {
            code,
            stdout: stdout.into(),
            stderr: stderr.into(),
        }
    }

    const REFUSED: &str =
        "{\"status\":\"refused\",\"repo\":\"r\",\"issue\":\"1\",\"token\":0,\"now\":\"\"}\n";
    const HELD: &str = "{\"status\":\"held\"}\n";

    #[test]
    fn replies_of_ours() {
        for (code, stdout, exit) in [
            (0, "{\"status\":\"acquired\"}\n", Exit::Done),
            (0, "{\"leases\":[]}", Exit::Done),
            (4, HELD, Exit::Conflict),
            (3, "{\"status\":\"none\"}\n", Exit::Nothing),
            (1, REFUSED, Exit::Error),
            (0, "Welcome!\n{\"leases\":[]}\n", Exit::Done),
        ] {
            let reply = read(&answer(Some(code), stdout, ""), "h").unwrap();
            assert_eq!(reply.exit, exit, "{stdout}");
            assert!(reply.line.starts_with('{'));
        }
    }

    #[test]
    fn everything_else_has_its_exit_code() {
        let error = "error: repository not found\n";
        for (code, stdout, stderr, exit) in [
            (Some(1), "", error, 1),
            (Some(4), "", "error: x\n", 4),
            (Some(6), "", "warning: y\nerror: busy\n", 6),
            (Some(6), "", "", 6),
            // "What 'no such verb' looks like"
            (
                Some(128),
                "",
                "fatal: unrecognized command 'collab-lease'\n",
                7,
            ),
            (Some(127), "", "bash: collab-lease: command not found\n", 7),
            (Some(25), "", "FATAL: unknown git/gitolite command: x\n", 7),
            (Some(1), "", "Forgejo: Invalid repository path\n", 7),
            (Some(1), "", "ERROR: Disallowed command\n", 7),
            (
                Some(128),
                "Hi bob! You've successfully authenticated\n",
                "",
                7,
            ),
            (Some(0), "Welcome\n", "", 7),
            (Some(0), "{\"message\":\"hi\"}\n", "", 7),
            (Some(0), "", "", 7),
            (Some(5), "", "error: x\n", 7),
            // The connection, or the server, died.
            (None, "", "", 6),
            (None, "{\"status\":\"acquired\"}\n", "", 6),
            (Some(137), "", "", 6),
            (Some(255), "", "client_loop: send disconnect\n", 6),
            (Some(255), HELD, "", 6),
            (Some(1), HELD, "", 6),
        ] {
            let failure = read(&answer(code, stdout, stderr), "h").unwrap_err();
            assert_eq!(failure.kind.code(), exit, "{code:?} {stdout} {stderr}");
        }
    }

    #[test]
    fn a_servers_words_are_escaped() {
        let failure = read(&answer(Some(1), "", "error: \x1b[2Jx\n"), "h").unwrap_err();
        assert_eq!(failure.message, "\\u001b[2Jx");
        let failure = read(&answer(Some(9), "", "\x1b[2Jx\n"), "h").unwrap_err();
        assert!(failure.message.contains("\\u001b[2Jx"), "{failure:?}");
    }

    #[test]
    fn of_a_long_answer_only_the_beginning_is_shown() {
        let said = |stderr: &str| {
            let failure = read(&answer(Some(128), "", stderr), "h").unwrap_err();
            let (_, said) = failure.message.split_once("it said: ").unwrap();
            said.to_owned()
        };
        let long = format!("fatal: {}", "x".repeat(1_000));
        assert_eq!(said(&long), format!("{}…)", &long[..79]));
        assert_eq!(said(&format!("fatal: no\n{long}")), "fatal: no)");
    }
}

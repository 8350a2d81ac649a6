//! ssh's own words, and what they say about whether anything was asked.

use std::fmt;

use git_claim_api::text::escape;

use super::command::destination;
use crate::error::Failure;
use crate::url::Ssh;

/// What one types to see for oneself how logging in goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// What git runs for ssh, fit for a terminal.
    pub program: String,
    /// Whether somebody has set it.
    pub is_set: bool,
    pub destination: String,
}

impl Login {
    /// Plain ssh.
    pub fn plain(ssh: &Ssh) -> Login {
        Login {
            program: "ssh".to_owned(),
            is_set: false,
            destination: destination(ssh, "-p"),
        }
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.destination)
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The server had too many connections at once. Nothing was asked.
    TurnedAway(String),
    /// The server did not take the key. Nothing was asked.
    Denied { words: String, hint: String },
    /// Nothing was asked, and asking again would not help.
    Unreachable { words: String, hint: String },
    /// The connection ended; what was asked may have been heard.
    Lost(String),
}

impl Trouble {
    /// What ssh said when it could not connect. Nothing was asked.
    pub fn connecting(said: &str, login: &Login) -> Trouble {
        let words = last_words(said);
        let has = |text: &str| said.contains(text);
        if has("exchange_identification") && (has("closed") || has("reset")) {
            return Trouble::TurnedAway(words);
        }
        if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
            return Trouble::Unreachable {
                words: format!("its host key has changed ({words})"),
                hint: format!(
                    "somebody may be in between: ask the server's admin whether the key is new \
                     before `{login}` again"
                ),
            };
        }
        if has("Host key verification failed") {
            return Trouble::Unreachable {
                words,
                hint: format!("`{login}` once shows the key, to check and accept it"),
            };
        }
        if has("Too many authentication failures") {
            return Trouble::Unreachable {
                words,
                hint: "ssh offers more keys than the server lets one try: `IdentityFile` and \
                       `IdentitiesOnly yes` for that host in ~/.ssh/config name the one"
                    .to_owned(),
            };
        }
        if has("Permission denied (") {
            let hint = match login.is_set {
                true => format!("`{login}` is what git is set to run, and shows what is wrong"),
                false => key_hint(std::env::var_os(AGENT).is_some_and(|it| !it.is_empty())),
            };
            return Trouble::Denied { words, hint };
        }
        Trouble::Unreachable {
            words,
            hint: format!("`{login}` shows what is wrong"),
        }
    }

    /// What ssh said when it had run a command and exited with 255: it may
    /// have failed before it asked or after.
    pub fn running(said: &str, login: &Login) -> Trouble {
        const BEFORE: &[&str] = &[
            "exchange_identification",
            "Host key verification failed",
            "Permission denied (",
            "Too many authentication failures",
            "Could not resolve hostname",
            "connect to host",
        ];
        if BEFORE.iter().any(|text| said.contains(text)) {
            Trouble::connecting(said, login)
        } else {
            Trouble::Lost(last_words(said))
        }
    }

    /// The failure to show.
    pub fn told(self, host: &str) -> Failure {
        match self {
            Trouble::TurnedAway(words) => {
                Failure::not_now(format!("{host} turned us away: {words}"))
                    .hint("it has too many connections at once; trying again is safe")
            }
            Trouble::Denied { words, hint } => {
                Failure::not_now(format!("{host} does not let us in: {words}")).hint(hint)
            }
            Trouble::Unreachable { words, hint } => {
                Failure::not_now(format!("{host} cannot be reached: {words}")).hint(hint)
            }
            Trouble::Lost(words) => {
                let words = match words.is_empty() {
                    true => String::new(),
                    false => format!(": {words}"),
                };
                Failure::unsure(format!(
                    "the connection to {host} ended before an answer came{words}"
                ))
            }
        }
    }
}

/// The last two lines that say something: what went wrong, and the line before
/// it that often says why.
fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        // They become parts of one sentence.
        .map(|line| line.strip_suffix('.').unwrap_or(line))
        .filter(|line| !line.is_empty() && !line.starts_with('@') && !line.starts_with("Warning: "))
        .collect();
    let last = &lines[lines.len().saturating_sub(2)..];
    match last.is_empty() {
        true => "ssh gave no reason".to_owned(),
        false => escape(&last.join("; ")),
    }
}

/// Where ssh finds the agent.
const AGENT: &str = "SSH_AUTH_SOCK";

/// What may be wrong with the key of whoever was not let in.
fn key_hint(has_agent: bool) -> String {
    let what = match has_agent {
        true => "is it loaded (`ssh-add -l`)?",
        false => "if it has a passphrase, `eval \"$(ssh-agent)\" && ssh-add` loads it",
    };
    format!("`git claim` uses the key that you push with: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OpenSSH 9.2 says it.
    const TURNED_AWAY: &str = "kex_exchange_identification: Connection closed by remote host\r\n\
                               Connection closed by 127.0.0.1 port 2222\r\n";
    const RESET: &str = "kex_exchange_identification: read: Connection reset by peer\r\n";
    const UNKNOWN_KEY: &str = "No ED25519 host key is known for [h]:22 and you have requested strict checking.\r\n\
                               Host key verification failed.\r\n";
    const DENIED: &str = "git@h: Permission denied (publickey).\r\n";
    const REFUSED: &str = "ssh: connect to host h port 22: Connection refused\r\n";
    const CHANGED: &str = "@@@@@@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n@@@@@@@@\r\n\
                           Host key for h has changed and you have requested strict checking.\r\nHost key verification failed.\r\n";

    fn login(program: Option<&str>) -> Login {
        Login {
            program: program.unwrap_or("ssh").to_owned(),
            is_set: program.is_some(),
            destination: "h".to_owned(),
        }
    }

    #[test]
    fn a_command_that_is_set_is_the_one_to_try() {
        for said in [UNKNOWN_KEY, DENIED, REFUSED] {
            let failure = Trouble::running(said, &login(Some("ssh -i key"))).told("h");
            let hint = failure.hint.unwrap();
            assert!(hint.contains("`ssh -i key h`"), "{hint}");
            assert!(!hint.contains("ssh-add"), "{hint}");
        }
    }

    #[test]
    fn an_agent_that_does_not_run_is_not_asked() {
        assert!(key_hint(true).contains("`ssh-add -l`"));
        let hint = key_hint(false);
        assert!(hint.contains("ssh-agent") && !hint.contains("-l"), "{hint}");
    }

    #[test]
    fn only_those_who_were_turned_away_try_again() {
        for said in [TURNED_AWAY, RESET] {
            assert!(
                matches!(
                    Trouble::connecting(said, &login(None)),
                    Trouble::TurnedAway(_)
                ),
                "{said}"
            );
            assert!(matches!(
                Trouble::running(said, &login(None)),
                Trouble::TurnedAway(_)
            ));
        }
        for said in [
            UNKNOWN_KEY,
            DENIED,
            REFUSED,
            CHANGED,
            "",
            "kex_exchange_identification: banner line contains invalid characters\r\n",
        ] {
            assert!(
                !matches!(
                    Trouble::connecting(said, &login(None)),
                    Trouble::TurnedAway(_)
                ),
                "{said}"
            );
        }
    }

    #[test]
    fn each_failure_keeps_sshs_words_and_says_what_to_do() {
        for (said, words, hint) in [
            (
                UNKNOWN_KEY,
                "strict checking; Host key verification failed",
                "`ssh h` once",
            ),
            (
                DENIED,
                "Permission denied (publickey)",
                "that you push with",
            ),
            (REFUSED, "Connection refused", "`ssh h` shows"),
            (CHANGED, "has changed", "ask the server's admin"),
            (TURNED_AWAY, "Connection closed by", "too many connections"),
        ] {
            let failure = Trouble::connecting(said, &login(None)).told("h");
            assert_eq!(failure.kind.code(), 6);
            assert!(failure.message.contains(words), "{failure:?}");
            assert!(failure.hint.as_ref().unwrap().contains(hint), "{failure:?}");
            assert!(!failure.message.contains('\r'));
        }
    }

    #[test]
    fn what_broke_later_may_have_been_heard() {
        for said in [
            "",
            "client_loop: send disconnect: Broken pipe\r\n",
            "Timeout, server h not responding.\r\n",
        ] {
            assert!(
                matches!(Trouble::running(said, &login(None)), Trouble::Lost(_)),
                "{said}"
            );
        }
    }
}

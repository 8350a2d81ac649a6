//! A push, as a hook on the server tells it to the plugin: JSON lines, one
//! fact each, so that a push of any size is read piece by piece.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{Invalid, IssueId, Oid, Token};

/// What a push option that carries a fencing token begins with.
pub const TOKEN_OPTION: &str = "claim-token=";

/// The branches that are named after an issue.
pub const CLAIM_BRANCHES: &str = "refs/heads/claim/";

const BRANCHES: &str = "refs/heads/";

/// One line of what a hook tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// Whom the forge says pushes. Absent: it could not say.
    Pusher(Pusher),
    /// A push option, as the client wrote it.
    Option(String),
    /// A ref that moves, or has moved.
    Update(Update),
}

/// A principal who pushes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pusher {
    pub name: String,
    /// The key, or what stands for it.
    pub profile: String,
}

/// A ref that moves: it is created where `old` is absent, deleted where `new` is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<Oid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<Oid>,
}

impl Update {
    /// The branch's short name, if it is a branch.
    pub fn branch(&self) -> Option<&str> {
        self.reference.strip_prefix(BRANCHES)
    }
}

/// One line of a hook's standard input: `<old> <new> <ref>`.
impl FromStr for Update {
    type Err = Invalid;

    fn from_str(line: &str) -> Result<Self, Invalid> {
        let mut words = line.splitn(3, ' ');
        let (Some(old), Some(new), Some(reference)) = (words.next(), words.next(), words.next())
        else {
            return Err(Invalid::new(
                "a ref update",
                line,
                "it must read `<old> <new> <ref>`",
            ));
        };
        Ok(Update {
            reference: reference.to_owned(),
            old: object(old)?,
            new: object(new)?,
        })
    }
}

/// The object that a hook names; all zeros stand for none.
fn object(hex: &str) -> Result<Option<Oid>, Invalid> {
    let oid: Oid = hex.parse()?;
    Ok(oid.as_str().bytes().any(|b| b != b'0').then_some(oid))
}

/// A whole push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Push {
    pub pusher: Option<Pusher>,
    pub options: Vec<String>,
    pub updates: Vec<Update>,
}

impl Push {
    /// Adds what a line says.
    pub fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Pusher(pusher) => self.pusher = Some(pusher),
            Fact::Option(option) => self.options.push(option),
            Fact::Update(update) => self.updates.push(update),
        }
    }

    /// The push as lines; [`Push::learn`] undoes it.
    pub fn facts(&self) -> impl Iterator<Item = Fact> + '_ {
        let pusher = self.pusher.clone().map(Fact::Pusher);
        let options = self.options.iter().cloned().map(Fact::Option);
        let updates = self.updates.iter().cloned().map(Fact::Update);
        pusher.into_iter().chain(options).chain(updates)
    }

    /// The fencing tokens that the push shows, and what is wrong with those
    /// that are none.
    pub fn tokens(&self) -> impl Iterator<Item = Result<ClaimToken, Invalid>> + '_ {
        self.options
            .iter()
            .filter_map(|option| option.strip_prefix(TOKEN_OPTION))
            .map(str::parse)
    }

    /// Whether the push may not pass unless the ledger can be asked: it shows a
    /// token, or moves a branch that is named after an issue.
    pub fn needs_the_ledger(&self) -> bool {
        self.tokens().next().is_some()
            || self
                .updates
                .iter()
                .any(|update| update.reference.starts_with(CLAIM_BRANCHES))
    }
}

/// A fencing token as a push shows it: `<issue>:<token>:<lease_id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimToken {
    pub issue: IssueId,
    pub token: Token,
    pub lease_id: String,
}

impl FromStr for ClaimToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = || {
            Invalid::new(
                "a claim's token",
                text,
                "it must read `<issue>:<token>:<lease id>`",
            )
        };
        let mut parts = text.split(':');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(issue), Some(token), Some(lease_id), None) if !lease_id.is_empty() => {
                Ok(ClaimToken {
                    issue: issue.parse().map_err(|_| bad())?,
                    token: token.parse().map_err(|_| bad())?,
                    lease_id: lease_id.to_owned(),
                })
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.issue, self.token, self.lease_id)
    }
}

/// What a push meets that must not pass: `claim.fence`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fence {
    /// It is not looked at.
    Off,
    /// It passes with a warning.
    Warn,
    /// It is refused.
    #[default]
    On,
    /// It is refused, and a branch named after an issue needs its claim.
    Strict,
}

impl FromStr for Fence {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "off" => Ok(Fence::Off),
            "warn" => Ok(Fence::Warn),
            "on" => Ok(Fence::On),
            "strict" => Ok(Fence::Strict),
            _ => Err(Invalid::new(
                "a setting of the fence",
                text,
                "it knows `on`, `off`, `warn` and `strict`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000";
    const ONE: &str = "1111111111111111111111111111111111111111";

    #[test]
    fn lines_of_a_hook_are_read() {
        let update: Update = format!("{ZERO} {ONE} refs/heads/a b").parse().unwrap();
        assert_eq!(update.reference, "refs/heads/a b");
        assert_eq!((&update.old, update.new.is_some()), (&None, true));
        let line = format!("{ONE} {ZERO} refs/tags/v1");
        let update: Update = line.parse().unwrap();
        assert_eq!((update.branch(), &update.new), (None, &None));
        for bad in ["", "x", ONE, &format!("{ONE} {ONE}"), "x y refs/heads/a"] {
            assert!(bad.parse::<Update>().is_err(), "{bad}");
        }
    }

    #[test]
    fn facts_read_back_as_the_push_that_they_tell_of() {
        let push = Push {
            pusher: Some(Pusher {
                name: "ann".to_owned(),
                profile: "SHA256:a".to_owned(),
            }),
            options: vec!["claim-token=42:7:l1".to_owned(), "ci.skip".to_owned()],
            updates: vec![format!("{ZERO} {ONE} refs/heads/main").parse().unwrap()],
        };
        let mut told = Push::default();
        for fact in push.facts() {
            let line = serde_json::to_string(&fact).unwrap();
            told.learn(serde_json::from_str(&line).unwrap());
        }
        assert_eq!(told, push);
    }

    #[test]
    fn tokens_are_read_and_written() {
        let token: ClaimToken = "42:7:l1".parse().unwrap();
        assert_eq!((token.issue.as_str(), token.token.get()), ("42", 7));
        assert_eq!(token.to_string(), "42:7:l1");
        for bad in ["", "42", "42:7", "42:7:", "42:0:l", ":7:l", "42:7:l:x"] {
            assert!(bad.parse::<ClaimToken>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_shows_a_token_or_moves_an_issue_s_branch_needs_the_ledger() {
        let push = |option: &str, reference: &str| Push {
            options: vec![option.to_owned()],
            updates: vec![format!("{ZERO} {ONE} {reference}").parse().unwrap()],
            ..Push::default()
        };
        assert!(push("claim-token=?", "refs/heads/a").needs_the_ledger());
        assert!(push("x", "refs/heads/claim/42").needs_the_ledger());
        assert!(!push("x", "refs/heads/claims").needs_the_ledger());
        assert!(!push("x", "refs/tags/claim/42").needs_the_ledger());
    }

    #[test]
    fn the_fence_has_four_settings() {
        for (text, fence) in [
            ("off", Fence::Off),
            ("warn", Fence::Warn),
            ("on", Fence::On),
            ("strict", Fence::Strict),
        ] {
            assert_eq!(text.parse(), Ok(fence));
        }
        assert!("onn".parse::<Fence>().is_err());
        assert_eq!(Fence::default(), Fence::On);
    }
}

//! What a client asks for.

use serde::{Deserialize, Serialize};

/// Who may end anybody's claim.
pub const ADMIN: &str = "root";

/// A principal in a session: who a holder is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Client {
    pub name: String,
    /// At most 8 characters, so that everybody is shown all of it.
    pub session: String,
}

impl Client {
    pub fn is_admin(&self) -> bool {
        self.name == ADMIN
    }
}

/// A request; `id` is both its request id and the note that it leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub client: Client,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Acquire {
        issue: String,
        id: String,
        ttl: Option<u64>,
        if_token: Option<u64>,
        take_over: Option<Eviction>,
    },
    Next {
        id: String,
        ttl: Option<u64>,
    },
    Renew {
        issue: String,
        ttl: u64,
        token: Option<u64>,
    },
    Release {
        issue: String,
        token: Option<u64>,
        force: Option<Eviction>,
    },
    Verify {
        issue: String,
        token: u64,
    },
    Show {
        issue: String,
    },
    List,
}

/// Ending a claim that is not one's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The tenure that is meant.
    pub expected: Option<u64>,
}

impl Ask {
    /// The issue, where the client names one.
    pub fn issue(&self) -> Option<&str> {
        match &self.what {
            What::Acquire { issue, .. }
            | What::Renew { issue, .. }
            | What::Release { issue, .. }
            | What::Verify { issue, .. }
            | What::Show { issue } => Some(issue),
            What::Next { .. } | What::List => None,
        }
    }

    /// The request's own id, where a repetition shall begin nothing.
    pub fn id(&self) -> Option<&str> {
        match &self.what {
            What::Acquire { id, .. } | What::Next { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The words behind the verb.
    pub fn words(&self, repo: &str) -> String {
        let option = |name: &str, value: Option<u64>| {
            value.map_or_else(String::new, |value| format!(" --{name} {value}"))
        };
        let evict = |how: &str, eviction: &Option<Eviction>| match eviction {
            Some(eviction) => format!(
                " --{how} --reason because{}",
                option("expected-token", eviction.expected)
            ),
            None => String::new(),
        };
        let words = match &self.what {
            What::Acquire {
                issue,
                id,
                ttl,
                if_token,
                take_over,
            } => format!(
                "acquire {repo} {issue} --note {id} --request {id}{}{}{}",
                option("ttl", *ttl),
                option("if-token", *if_token),
                evict("take-over", take_over)
            ),
            What::Next { id, ttl } => {
                format!(
                    "next {repo} --note {id} --request {id}{}",
                    option("ttl", *ttl)
                )
            }
            What::Renew { issue, ttl, token } => {
                format!(
                    "renew {repo} {issue} --ttl {ttl}{}",
                    option("token", *token)
                )
            }
            What::Release {
                issue,
                token,
                force,
            } => format!(
                "release {repo} {issue}{}{}",
                option("token", *token),
                evict("force", force)
            ),
            What::Verify { issue, token } => format!("verify {repo} {issue} --token {token}"),
            What::Show { issue } => format!("show {repo} {issue}"),
            What::List => format!("list {repo}"),
        };
        format!("{words} --session {}", self.client.session)
    }
}

//! A change of a claim, as the server's hooks and watchers are told of it.

use serde::{Deserialize, Serialize};

use crate::reply::End;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Acquired,
    Renewed,
    /// Given back by its holder or by force, or ended by a push; `how` tells.
    Released,
    /// Noticed that it had run out.
    Expired,
    TakenOver,
    Recovered,
}

/// One change, with how the claim stood before and after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub event: Kind,
    pub repo: String,
    /// The full id.
    pub issue: String,
    /// When, or when it was noticed: RFC 3339.
    pub at: String,
    /// How the tenure before ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<End>,
    /// Who ended it, where that was not its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that they gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Null: nobody held it.
    pub before: Option<Side>,
    /// Null: nobody holds it.
    pub after: Option<Side>,
}

/// A tenure, as one side of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    pub token: u64,
    pub holder: String,
    pub session: Option<String>,
    pub acquired_at: Option<String>,
    /// Null: open-ended.
    pub expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

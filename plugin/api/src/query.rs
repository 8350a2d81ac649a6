//! The read-only questions of the ABI's `query`: their names, what goes with
//! them, and the answers, one JSON object each. As in the verb's replies, keys
//! may be added, never changed.

use serde::{Deserialize, Serialize};

use crate::reply::{Claim, PastTenure};

/// The open issues of a repository, and who holds them.
pub const CLAIMS: &str = "claims";
/// One issue, who holds it, and its history.
pub const CLAIM: &str = "claim";

/// Every question that `describe` names.
pub const QUERIES: [&str; 2] = [CLAIMS, CLAIM];

/// What goes with [`CLAIMS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimsParams {
    /// As in a git URL.
    pub repo: String,
}

/// What goes with [`CLAIM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimParams {
    /// As in a git URL.
    pub repo: String,
    /// The issue's id, or a prefix as people type it.
    pub issue: String,
}

/// Whether an issue is open, as its tracker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IssueState {
    Open,
    Closed,
}

/// How many of the open issues that nobody holds an answer has. Those that
/// somebody holds do not depend on the tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listing {
    /// All that the tracker has to offer.
    All,
    /// The first ones.
    Some,
    /// None: the tracker knows no order, or can't be read.
    None,
}

/// An issue and who holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldIssue {
    /// The full id.
    pub issue: String,
    pub title: Option<String>,
    /// `None`: the tracker can't say.
    pub state: Option<IssueState>,
    /// The live claim; `None` where nobody holds the issue.
    pub claim: Option<Claim>,
}

/// The answer to [`CLAIMS`]: the tracker's open issues in its order, then those
/// that are held without being among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsReply {
    /// The repository's canonical name.
    pub repo: String,
    pub issues: Vec<HeldIssue>,
    pub listing: Listing,
    /// Whether there are more live claims than these.
    pub more: bool,
    /// The server's time.
    pub now: String,
}

/// The answer to [`CLAIM`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimHistoryReply {
    /// The repository's canonical name.
    pub repo: String,
    #[serde(flatten)]
    pub issue: HeldIssue,
    /// Every tenure, the newest first; the live one too.
    pub tenures: Vec<PastTenure>,
    /// Whether there are older ones.
    pub more: bool,
    /// The server's time.
    pub now: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_issue_has_no_claim_and_an_unknown_state_is_null() {
        let issue = HeldIssue {
            issue: "42".to_owned(),
            title: None,
            state: None,
            claim: None,
        };
        let reply = ClaimHistoryReply {
            repo: "r.git".to_owned(),
            issue,
            tenures: Vec::new(),
            more: false,
            now: "2026-09-05T12:00:00Z".to_owned(),
        };
        let json = serde_json::to_value(&reply).unwrap();
        assert_eq!(json["issue"], "42");
        assert_eq!(json["claim"], serde_json::Value::Null);
        assert_eq!(json["state"], serde_json::Value::Null);
        assert_eq!(
            serde_json::from_value::<ClaimHistoryReply>(json).unwrap(),
            reply
        );
    }

    #[test]
    fn a_parameter_that_nothing_reads_is_refused() {
        let params = r#"{"repo":"r.git","issue":"42"}"#;
        assert!(serde_json::from_str::<ClaimParams>(params).is_ok());
        assert!(serde_json::from_str::<ClaimsParams>(params).is_err());
    }
}

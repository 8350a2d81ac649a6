//! The read-only questions of the ABI's `query`, one file each. They are
//! answered to a viewer who may read, and to nobody else; who may not learns
//! nothing, not even that a repository exists.

mod claim;
mod claims;

use git_claim_api::access::Access;
use git_claim_api::query::{self, ClaimParams, ClaimsParams};
use git_claim_api::text::json_line;
use git_claim_api::verb::RepoArg;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::server::{Call, Failure};
use crate::tracker::Issue;

/// Why a question has no answer.
#[derive(Debug)]
pub enum QueryError {
    /// What goes with the question is not what it takes.
    Params(String),
    /// No such question, repository or issue, or not the viewer's to know.
    NotFound,
    /// Not now.
    Failed(String),
    /// The viewer has gone.
    Gone,
}

impl From<Failure> for QueryError {
    fn from(failure: Failure) -> QueryError {
        match failure {
            // Whatever it is, the viewer asked for something that isn't there.
            Failure::Refused(_) => QueryError::NotFound,
            Failure::NotNow(why) | Failure::Lasting { why, .. } => QueryError::Failed(why),
            Failure::Gone => QueryError::Gone,
        }
    }
}

/// Answers the question `name`, as a line of JSON.
///
/// # Errors
/// [`QueryError`].
pub fn run(call: &Call<'_>, name: &str, params: &[u8]) -> Result<String, QueryError> {
    match name {
        query::CLAIMS => {
            let ClaimsParams { repo } = parse(params)?;
            let admitted = call.admit(&repository(&repo)?, Access::Read)?;
            line(&claims::run(&admitted)?)
        }
        query::CLAIM => {
            let ClaimParams { repo, issue } = parse(params)?;
            let admitted = call.admit(&repository(&repo)?, Access::Read)?;
            let issue = issue.parse().map_err(|_| QueryError::NotFound)?;
            line(&claim::run(&admitted, &issue)?)
        }
        _ => Err(QueryError::NotFound),
    }
}

fn parse<T: DeserializeOwned>(params: &[u8]) -> Result<T, QueryError> {
    serde_json::from_slice(params).map_err(|error| QueryError::Params(error.to_string()))
}

/// What can't be a repository's name is no repository.
fn repository(name: &str) -> Result<RepoArg, QueryError> {
    name.parse().map_err(|_| QueryError::NotFound)
}

fn line(reply: &impl Serialize) -> Result<String, QueryError> {
    json_line(reply).map_err(|error| QueryError::Failed(format!("the reply has no form: {error}")))
}

fn state(issue: &Issue) -> query::IssueState {
    if issue.is_open {
        query::IssueState::Open
    } else {
        query::IssueState::Closed
    }
}

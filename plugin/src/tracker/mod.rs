//! Where issues live: does this one exist, what is its full id, is it open?
//!
//! What can't be read is an error with the reason, never "not found" and never
//! "open".

mod git_issue;

use git_claim_api::ids::IssueId;
use git_claim_api::text::escape;

use crate::host::{Host, HostError};
use crate::repository::{Repository, RepositoryError};

/// One issue, as its tracker knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The full id.
    pub id: IssueId,
    pub is_open: bool,
    pub title: Option<String>,
}

/// Why a tracker has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    #[error("there is no issue '{0}'")]
    NotFound(IssueId),
    #[error("'{typed}' could be {}; give more of the id", .first.join(", "))]
    Ambiguous {
        typed: IssueId,
        /// The first matches.
        first: Vec<String>,
    },
    #[error("the tracker {tracker} cannot be read: {why}")]
    Broken { tracker: &'static str, why: String },
    #[error("claim.tracker is '{}'; this version knows git-issue and none", escape(.0))]
    Unknown(String),
    #[error(
        "this repository keeps issues of {0}, which this version can't read; set claim.tracker in the repository's config"
    )]
    Unsupported(&'static str),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("this repository has no tracker that could say which issue is next")]
    NoOrder,
}

/// A repository's tracker.
pub enum Tracker<'a> {
    /// The host's own, through the ABI.
    Host {
        host: &'a dyn Host,
        repo: &'a str,
    },
    GitIssue(&'a git2::Repository),
    /// Every valid id is open.
    None,
}

impl<'a> Tracker<'a> {
    /// The tracker of `repo`: the host's own, the one that its config names, or
    /// the one whose data is there.
    ///
    /// # Errors
    /// A tracker that this version can't read, or a repository that can't be.
    pub fn of(
        host: &'a dyn Host,
        repo: &'a str,
        repository: Option<&'a Repository>,
    ) -> Result<Tracker<'a>, TrackerError> {
        let configured = match repository {
            Some(repository) => repository.settings()?.tracker,
            None => None,
        };
        match (configured.as_deref(), repository) {
            (Some("none"), _) => Ok(Tracker::None),
            (Some("git-issue"), Some(repository)) => Ok(Tracker::GitIssue(repository.git()?)),
            (Some(other), _) => Err(TrackerError::Unknown(other.to_owned())),
            (None, Some(repository)) => Tracker::found(host, repo, repository),
            (None, None) if host.has_tracker() => Ok(Tracker::Host { host, repo }),
            (None, None) => Ok(Tracker::None),
        }
    }

    fn found(
        host: &'a dyn Host,
        repo: &'a str,
        repository: &'a Repository,
    ) -> Result<Tracker<'a>, TrackerError> {
        if host.has_tracker() {
            return Ok(Tracker::Host { host, repo });
        }
        let git = repository.git()?;
        if has_ref(git, "refs/issues/*")? {
            return Ok(Tracker::GitIssue(git));
        }
        if has_ref(git, "refs/bugs/*")? {
            return Err(TrackerError::Unsupported("git-bug"));
        }
        if git.revparse_single("HEAD:.beads/issues.jsonl").is_ok() {
            return Err(TrackerError::Unsupported("beads"));
        }
        Ok(Tracker::None)
    }

    /// The name in `claim.tracker`.
    pub fn name(&self) -> &'static str {
        match self {
            Tracker::Host { .. } => "host",
            Tracker::GitIssue(_) => git_issue::NAME,
            Tracker::None => "none",
        }
    }

    /// The issue that `typed` stands for.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn resolve(&self, typed: &IssueId) -> Result<Issue, TrackerError> {
        match self {
            Tracker::Host { host, repo } => resolve_at_host(*host, repo, typed),
            Tracker::GitIssue(git) => git_issue::resolve(git, typed),
            Tracker::None => Ok(Issue {
                id: typed.clone(),
                is_open: true,
                title: None,
            }),
        }
    }

    /// The open issues in the order in which one should take them.
    ///
    /// # Errors
    /// [`TrackerError`]; a tracker without an order.
    pub fn ready(&self) -> Result<Vec<Issue>, TrackerError> {
        match self {
            Tracker::GitIssue(git) => git_issue::ready(git),
            Tracker::Host { .. } | Tracker::None => Err(TrackerError::NoOrder),
        }
    }
}

fn has_ref(git: &git2::Repository, glob: &str) -> Result<bool, RepositoryError> {
    Ok(git.references_glob(glob)?.next().is_some())
}

/// One issue of the host's own tracker, in the form of `resolve_issue`.
#[derive(serde::Deserialize)]
struct HostIssue {
    id: IssueId,
    state: String,
    #[serde(default)]
    title: Option<String>,
}

fn resolve_at_host(host: &dyn Host, repo: &str, typed: &IssueId) -> Result<Issue, TrackerError> {
    let broken = |why: String| TrackerError::Broken {
        tracker: "host",
        why,
    };
    let json = match host.resolve_issue(repo, typed.as_str()) {
        Err(HostError::NotFound) => return Err(TrackerError::NotFound(typed.clone())),
        Err(HostError::Failed(status)) => {
            return Err(broken(format!("it answered with status {status}")));
        }
        Ok(json) => json,
    };
    let issue: HostIssue =
        serde_json::from_str(&json).map_err(|error| broken(format!("no issue: {error}")))?;
    let is_open = match issue.state.as_str() {
        "open" => true,
        "closed" => false,
        other => return Err(broken(format!("no state is called '{}'", escape(other)))),
    };
    Ok(Issue {
        id: issue.id,
        is_open,
        title: issue.title,
    })
}

//! git-issue: an issue is a chain of commits with empty trees under
//! `refs/issues/<uuid>`. State and title are trailers of its commits.

use git_claim_api::ids::{IssueId, MIN_PREFIX};
use git2::{Repository, Sort};

use super::{Issue, TrackerError};

pub const NAME: &str = "git-issue";

const REFS: &str = "refs/issues/";

/// How many matches an error about an ambiguous prefix names.
const NAMED: usize = 3;

/// How many characters of an id people see.
const SHOWN: usize = 7;

/// The issue that `typed` stands for: its full id, or a unique prefix.
pub fn resolve(git: &Repository, typed: &IssueId) -> Result<Issue, TrackerError> {
    match git.find_reference(&format!("{REFS}{typed}")) {
        Ok(reference) => return read(git, typed.clone(), &reference),
        Err(error) if error.code() == git2::ErrorCode::NotFound => {}
        Err(error) => return Err(broken(&error)),
    }
    if typed.as_str().len() < MIN_PREFIX {
        return Err(TrackerError::NotFound(typed.clone()));
    }
    let mut matches = Vec::new();
    for name in git
        .references_glob(&format!("{REFS}{typed}*"))
        .map_err(|error| broken(&error))?
        .names()
    {
        let name = name.map_err(|error| broken(&error))?;
        if let Some(id) = name.strip_prefix(REFS)
            && typed.stands_for(id)
        {
            matches.push(id.to_owned());
        }
    }
    matches.sort();
    match matches.as_slice() {
        [] => Err(TrackerError::NotFound(typed.clone())),
        [id] => {
            let reference = git
                .find_reference(&format!("{REFS}{id}"))
                .map_err(|error| broken(&error))?;
            read(git, full_id(id)?, &reference)
        }
        many => Err(TrackerError::Ambiguous {
            typed: typed.clone(),
            first: many.iter().take(NAMED).map(|id| shown(id, typed)).collect(),
        }),
    }
}

/// The open issues, the oldest first.
pub fn ready(git: &Repository) -> Result<Vec<Issue>, TrackerError> {
    let mut open = Vec::new();
    for reference in git
        .references_glob(&format!("{REFS}*"))
        .map_err(|error| broken(&error))?
    {
        let reference = reference.map_err(|error| broken(&error))?;
        let Some(id) = reference
            .name()
            .ok()
            .and_then(|name| name.strip_prefix(REFS))
        else {
            continue;
        };
        let id = full_id(id)?;
        let chain = Chain::read(git, &reference)?;
        if chain.is_open {
            let begun = chain.begun;
            open.push((begun, chain.issue(id)));
        }
    }
    open.sort_by(|(a_begun, a), (b_begun, b)| a_begun.cmp(b_begun).then_with(|| a.id.cmp(&b.id)));
    Ok(open.into_iter().map(|(_, issue)| issue).collect())
}

fn read(
    git: &Repository,
    id: IssueId,
    reference: &git2::Reference<'_>,
) -> Result<Issue, TrackerError> {
    Ok(Chain::read(git, reference)?.issue(id))
}

/// What the commits of an issue say.
struct Chain {
    is_open: bool,
    title: Option<String>,
    /// When its first commit was made: seconds since the epoch.
    begun: i64,
}

impl Chain {
    /// Walks from the newest commit to the root: the first trailer of a kind
    /// counts, along all parents where a merge joined two chains.
    fn read(git: &Repository, reference: &git2::Reference<'_>) -> Result<Chain, TrackerError> {
        let tip = reference.peel_to_commit().map_err(|error| broken(&error))?;
        let mut walk = git.revwalk().map_err(|error| broken(&error))?;
        walk.set_sorting(Sort::TOPOLOGICAL | Sort::TIME)
            .map_err(|error| broken(&error))?;
        walk.push(tip.id()).map_err(|error| broken(&error))?;
        let mut state = None;
        let mut title = None;
        let mut root = None;
        for oid in walk {
            let oid = oid.map_err(|error| broken(&error))?;
            let commit = git.find_commit(oid).map_err(|error| broken(&error))?;
            let message = String::from_utf8_lossy(commit.message_bytes());
            let trailers = git2::message_trailers_strs(&message).map_err(|error| broken(&error))?;
            for (key, value) in trailers.iter() {
                match key {
                    "State" if state.is_none() => state = Some(value.trim().to_owned()),
                    "Title" if title.is_none() => title = Some(value.trim().to_owned()),
                    _ => {}
                }
            }
            let subject = message.lines().next().unwrap_or_default().trim().to_owned();
            root = Some((subject, commit.time().seconds()));
        }
        let (subject, begun) = root.unwrap_or_default();
        Ok(Chain {
            is_open: state.as_deref() != Some("closed"),
            title: title.or(Some(subject)).filter(|title| !title.is_empty()),
            begun,
        })
    }

    fn issue(self, id: IssueId) -> Issue {
        Issue {
            id,
            is_open: self.is_open,
            title: self.title,
        }
    }
}

fn full_id(id: &str) -> Result<IssueId, TrackerError> {
    id.parse().map_err(|error| TrackerError::Broken {
        tracker: NAME,
        why: format!("{error}"),
    })
}

/// As much of an id as people see, and more than what was typed.
fn shown(id: &str, typed: &IssueId) -> String {
    let length = SHOWN.max(typed.as_str().len() + 2);
    id.chars().take(length).collect()
}

fn broken(error: &git2::Error) -> TrackerError {
    TrackerError::Broken {
        tracker: NAME,
        why: error.message().to_owned(),
    }
}

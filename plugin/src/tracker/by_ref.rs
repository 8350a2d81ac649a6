//! What the trackers that keep one ref an issue have in common: ids by prefix,
//! and the oldest first.

use std::collections::HashSet;
use std::time::Instant;

use git_claim_api::ids::{IssueId, MIN_PREFIX};
use git_claim_api::push::Update;
use git2::{Oid, Repository};

use super::objects::Objects;
use super::refs::Refs;
use super::unreadable::Unreadable;
use super::{Issue, TrackerError};

/// The most that is read for one issue, in bytes.
pub const MAX_ISSUE: usize = 16 * 1024 * 1024;

/// How many matches an error about an ambiguous prefix names.
const NAMED: usize = 3;

/// How many characters of an id people see.
const SHOWN: usize = 7;

/// How a tracker writes an issue into commits.
pub struct Format {
    pub name: &'static str,
    /// Like `refs/issues/`.
    pub refs: &'static str,
    /// What the commits from this one on say.
    pub read: fn(&Objects<'_>, Oid) -> Result<Recorded, Unreadable>,
    /// When the issue was begun, if it is open.
    pub begun_if_open: fn(&Objects<'_>, Oid) -> Result<Option<Begun>, Unreadable>,
}

/// What an issue's commits say.
pub struct Recorded {
    pub is_open: bool,
    pub title: Option<String>,
}

/// When an issue was begun: what is smaller is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Begun {
    /// The count that a tracker with a logical clock keeps; else 0.
    pub count: u64,
    /// Seconds since the epoch.
    pub time: i64,
}

/// A tracker that keeps one ref an issue.
pub struct ByRef<'a> {
    git: &'a Repository,
    pub format: &'static Format,
    deadline: Instant,
}

impl<'a> ByRef<'a> {
    pub fn new(git: &'a Repository, format: &'static Format, deadline: Instant) -> ByRef<'a> {
        ByRef {
            git,
            format,
            deadline,
        }
    }

    /// Whether the repository has such issues.
    ///
    /// # Errors
    /// Its refs can't be read.
    pub fn exists(&self) -> Result<bool, TrackerError> {
        self.refs().exist().map_err(|error| self.broken(&error))
    }

    /// The issue that `typed` stands for: its full id, or a unique prefix.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn resolve(&self, typed: &IssueId) -> Result<Issue, TrackerError> {
        let found = self.refs().find(typed);
        if let Some(tip) = found.map_err(|error| self.broken_issue(typed, &error))? {
            return self.issue(typed.clone(), Some(tip));
        }
        if typed.as_str().len() < MIN_PREFIX {
            return Err(TrackerError::NotFound(typed.clone()));
        }
        let mut matches = self
            .refs()
            .starting_with(typed.as_str())
            .map_err(|error| self.broken(&error))?;
        matches.retain(|id, _| typed.stands_for(id.as_str()));
        let first = shown(&matches.keys().take(NAMED).collect::<Vec<_>>());
        let mut matches = matches.into_iter();
        match (matches.next(), matches.next()) {
            (None, _) => Err(TrackerError::NotFound(typed.clone())),
            (Some((id, tip)), None) => self.issue(id, tip),
            _ => Err(TrackerError::Ambiguous {
                typed: typed.clone(),
                first,
            }),
        }
    }

    /// The open issues, the oldest first.
    ///
    /// No ref tells an issue's age: its root commit does, so each issue has to
    /// be looked at before the first one can be named. That look is kept short
    /// (a closed git-issue issue costs its newest commit), keeps nothing but
    /// ages, and what more an issue says is read when it is asked for.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn ready(
        &self,
    ) -> Result<impl Iterator<Item = Result<Issue, TrackerError>> + '_, TrackerError> {
        let refs = self.refs().starting_with("");
        let objects = self.objects()?;
        let mut open = Vec::new();
        for (id, tip) in refs.map_err(|error| self.broken(&error))? {
            if Instant::now() > self.deadline {
                return Err(TrackerError::Late(self.format.name));
            }
            let look = || {
                let Some(tip) = self.tip(&id, tip)? else {
                    return Ok(None);
                };
                objects.refill();
                let begun = (self.format.begun_if_open)(&objects, tip)?;
                Ok(begun.map(|begun| (begun, tip)))
            };
            let found = look().map_err(|error| self.broken_issue(&id, &error))?;
            if let Some((begun, tip)) = found {
                open.push((begun, id, tip));
            }
        }
        open.sort_unstable();
        Ok(open
            .into_iter()
            .map(|(_, id, tip)| self.issue(id, Some(tip))))
    }

    /// Whether an update closed the issue: it was open before, is closed behind
    /// it, and has not been opened again since.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn is_closed_by(&self, id: &IssueId, updates: &[Update]) -> Result<bool, TrackerError> {
        let name = format!("{}{id}", self.format.refs);
        let update = updates.iter().find(|update| update.reference == name);
        let Some((old, new)) = update
            .and_then(|update| Some((oid(update.old.as_ref()?)?, oid(update.new.as_ref()?)?)))
        else {
            return Ok(false);
        };
        Ok(self.issue(id.clone(), Some(old))?.is_open
            && !self.issue(id.clone(), Some(new))?.is_open
            && !self.issue(id.clone(), None)?.is_open)
    }

    fn issue(&self, id: IssueId, tip: Option<Oid>) -> Result<Issue, TrackerError> {
        let objects = self.objects()?;
        let read = match self.tip(&id, tip) {
            // Deleted since it was listed.
            Ok(None) => return Err(TrackerError::NotFound(id)),
            Ok(Some(tip)) => (self.format.read)(&objects, tip),
            Err(error) => Err(error),
        };
        match read {
            Ok(recorded) => Ok(Issue::new(id, recorded.is_open, recorded.title)),
            Err(error) => Err(self.broken_issue(&id, &error)),
        }
    }

    fn tip(&self, id: &IssueId, known: Option<Oid>) -> Result<Option<Oid>, Unreadable> {
        match known {
            Some(tip) => Ok(Some(tip)),
            None => self.refs().find(id),
        }
    }

    fn refs(&self) -> Refs<'a> {
        Refs::new(self.git, self.format.refs)
    }

    fn objects(&self) -> Result<Objects<'a>, TrackerError> {
        Objects::new(self.git, MAX_ISSUE).map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &Unreadable) -> TrackerError {
        TrackerError::Broken {
            tracker: self.format.name,
            why: error.to_string(),
        }
    }

    fn broken_issue(&self, id: &IssueId, error: &Unreadable) -> TrackerError {
        TrackerError::Broken {
            tracker: self.format.name,
            why: format!("issue {id}: {error}"),
        }
    }
}

/// As much of each id as people see, or as it takes to tell them apart.
fn shown(ids: &[&IssueId]) -> Vec<String> {
    let cut = |length: usize| -> Vec<String> {
        ids.iter()
            .map(|id| id.as_str().chars().take(length).collect())
            .collect()
    };
    (SHOWN..=IssueId::MAX_LENGTH)
        .map(cut)
        .find(|shown| shown.iter().collect::<HashSet<_>>().len() == shown.len())
        .unwrap_or_default()
}

fn oid(oid: &git_claim_api::ids::Oid) -> Option<Oid> {
    oid.as_str().parse().ok()
}

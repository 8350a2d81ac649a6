//! What a push has brought to the default branch: the commits that can be
//! reached from where it stands now and not from where it stood before.

use std::collections::BTreeSet;
use std::time::Instant;

use git_claim_api::ids::{IssueId, Oid};
use git_claim_api::push::Update;
use git2::Repository;

use crate::repository::RepositoryError;

/// The trailers that close an issue, in lower case.
const CLOSING: [&str; 3] = ["closes", "fixes", "fixes-issue"];

/// How often the clock is looked at: every so many commits.
const STEP: usize = 256;

/// The commits of a push to the default branch.
#[derive(Debug)]
pub struct Brought {
    commits: BTreeSet<git2::Oid>,
}

/// A commit's word that an issue is done with.
#[derive(Debug, PartialEq, Eq)]
pub struct Closing {
    /// As it stands there.
    pub issue: IssueId,
    pub commit: git2::Oid,
}

impl Brought {
    /// What `update` brought; nothing where the branch was made or deleted by it.
    ///
    /// # Errors
    /// The repository can't be read, or not until `deadline`.
    pub fn by(
        git: &Repository,
        update: &Update,
        deadline: Instant,
    ) -> Result<Brought, RepositoryError> {
        let mut commits = BTreeSet::new();
        // A branch that was not there before has brought nobody's work in.
        if let (Some(old), Some(new)) = (&update.old, &update.new) {
            let mut walk = git.revwalk()?;
            walk.push(new.as_str().parse()?)?;
            walk.hide(old.as_str().parse()?)?;
            for commit in walk {
                commits.insert(commit?);
                if commits.len().is_multiple_of(STEP) && Instant::now() > deadline {
                    return Err(RepositoryError::Git(format!(
                        "there are too many commits in {} to look at",
                        update.reference
                    )));
                }
            }
        }
        Ok(Brought { commits })
    }

    /// Whether the commit came with the push.
    pub fn has(&self, commit: &Oid) -> bool {
        commit
            .as_str()
            .parse()
            .is_ok_and(|commit: git2::Oid| self.commits.contains(&commit))
    }

    /// The issues that the commits' trailers close.
    ///
    /// # Errors
    /// A commit can't be read.
    pub fn closings(&self, git: &Repository) -> Result<Vec<Closing>, RepositoryError> {
        let mut closings = Vec::new();
        for oid in &self.commits {
            let commit = git.find_commit(*oid)?;
            // No issue's id is anything but ASCII. What git can't read as a
            // message has no trailers.
            let message = String::from_utf8_lossy(commit.message_bytes());
            let issues = closed_by(&message).unwrap_or_default();
            closings.extend(issues.into_iter().map(|issue| Closing {
                issue,
                commit: *oid,
            }));
        }
        Ok(closings)
    }
}

/// The issues that a message's trailers close.
fn closed_by(message: &str) -> Result<Vec<IssueId>, git2::Error> {
    let trailers = git2::message_trailers_strs(message)?;
    let values = trailers
        .iter()
        .filter(|(key, _)| CLOSING.contains(&key.to_ascii_lowercase().as_str()))
        .map(|(_, value)| value);
    Ok(values
        .flat_map(|value| value.split([',', ' ']))
        .filter_map(|word| word.trim_start_matches('#').parse().ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::closed_by;

    #[test]
    fn trailers_close_and_other_text_does_not() {
        for (message, expected) in [
            ("Mend it\n\nCloses: 42\n", &["42"][..]),
            ("Mend it\n\nfixes: #42, #43\n", &["42", "43"]),
            ("Mend it\n\nFixes-Issue: a1b2\nCloses: 7\n", &["a1b2", "7"]),
            ("Closes: 42\n", &[]),
            ("Mend it, closes: 42\n\nCloses 42\n", &[]),
            ("Mend it\n\nCloses: 42\n\nAnd more text.\n", &[]),
            ("Mend it\n\nSee-Also: 42\n", &[]),
            ("", &[]),
        ] {
            let found = closed_by(message).unwrap();
            let found: Vec<&str> = found.iter().map(|issue| issue.as_str()).collect();
            assert_eq!(found, expected, "{message:?}");
        }
    }
}

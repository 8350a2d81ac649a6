//! beads: all issues in one file of the default branch, one JSON object a line.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use git_claim_api::ids::IssueId;
use git2::{BranchType, Oid, Repository};
use serde::Deserialize;

use super::objects::Objects;
use super::unreadable::{Unreadable, without_place};
use super::{Issue, TrackerError};

pub const NAME: &str = "beads";

const FOLDER: &str = ".beads";
const FILE: &str = "issues.jsonl";

/// The most that is read, the folders above the file included, in bytes.
const MAX_FILE: usize = 128 * 1024 * 1024;

/// How many branches are looked at where `HEAD` names none that is there.
const MAX_BRANCHES: usize = 100;

/// The entry of a tree that is a regular file, executable or not.
const REGULAR: i32 = 0o100_000;
const KIND: i32 = 0o170_000;

/// The file as it is at `HEAD`, read once when first asked for.
pub struct Beads<'a> {
    git: &'a Repository,
    read: OnceCell<BTreeMap<IssueId, Bead>>,
}

/// A line of the file.
#[derive(Deserialize)]
struct Line {
    /// What else than an issue newer versions keep in the file.
    #[serde(rename = "_type")]
    kind: Option<String>,
    id: Option<String>,
    title: Option<String>,
    status: Option<String>,
    #[serde(default)]
    priority: i64,
    dependencies: Option<Vec<Dependency>>,
    #[serde(default)]
    is_template: bool,
}

#[derive(Deserialize)]
struct Dependency {
    depends_on_id: String,
    #[serde(rename = "type")]
    kind: String,
}

#[cfg_attr(test, derive(Debug, PartialEq))]
struct Bead {
    title: Option<String>,
    priority: i64,
    is_open: bool,
    /// Blocked, put off, or no work at all, by its own status.
    is_put_off: bool,
    /// What has to be closed before.
    blockers: Vec<String>,
}

impl<'a> Beads<'a> {
    pub fn new(git: &'a Repository) -> Beads<'a> {
        Beads {
            git,
            read: OnceCell::new(),
        }
    }

    /// Whether the repository has such a file.
    ///
    /// # Errors
    /// What `HEAD` names can't be read.
    pub fn exists(&self) -> Result<bool, TrackerError> {
        let found = || match self.head()? {
            Some(commit) => Ok(file(&Objects::new(self.git, MAX_FILE)?, commit)?.is_some()),
            None if self.is_on_a_branch()? => Err(self.astray()),
            None => Ok(false),
        };
        found().map_err(|error| broken(&error))
    }

    /// Whether the file is on a branch, for where `HEAD` names none that is there:
    /// what issues there are can't be told then.
    fn is_on_a_branch(&self) -> Result<bool, Unreadable> {
        let objects = Objects::new(self.git, MAX_FILE)?;
        let branches = self.git.branches(Some(BranchType::Local))?;
        for branch in branches.take(MAX_BRANCHES) {
            let tip = branch?.0.get().target();
            if tip.is_some_and(|tip| file(&objects, tip).is_ok_and(|file| file.is_some())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `HEAD` names a branch that is not there.
    fn astray(&self) -> Unreadable {
        let named = self.git.find_reference("HEAD").ok();
        let named = named
            .as_ref()
            .and_then(|head| head.symbolic_target().ok().flatten());
        Unreadable(format!(
            "HEAD names '{}', which is not there; in the server's repository \
             `git symbolic-ref HEAD refs/heads/<branch>` names the default branch",
            named.unwrap_or("no branch")
        ))
    }

    /// The issue `id`. Ids are short, and match whole.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn resolve(&self, id: &IssueId) -> Result<Issue, TrackerError> {
        match self.beads()?.get(id) {
            Some(bead) => Ok(bead.issue(id)),
            None => Err(TrackerError::NotFound(id.clone())),
        }
    }

    /// The open issues that nothing blocks, by priority, then by id.
    ///
    /// As in beads itself, an issue that is not in the file any more blocks
    /// nothing.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn ready(
        &self,
    ) -> Result<impl Iterator<Item = Result<Issue, TrackerError>> + '_, TrackerError> {
        let beads = self.beads()?;
        let open: HashSet<&str> = beads
            .iter()
            .filter(|(_, bead)| bead.is_open)
            .map(|(id, _)| id.as_str())
            .collect();
        let mut ready: Vec<_> = beads
            .iter()
            .filter(|(_, bead)| {
                bead.is_open
                    && !bead.is_put_off
                    && !bead.blockers.iter().any(|id| open.contains(id.as_str()))
            })
            .collect();
        // By id they are in order already.
        ready.sort_by_key(|(_, bead)| bead.priority);
        Ok(ready.into_iter().map(|(id, bead)| Ok(bead.issue(id))))
    }

    fn beads(&self) -> Result<&BTreeMap<IssueId, Bead>, TrackerError> {
        if let Some(beads) = self.read.get() {
            return Ok(beads);
        }
        let beads = self.read_file().map_err(|error| broken(&error))?;
        Ok(self.read.get_or_init(|| beads))
    }

    /// Which of `issues` were open at the commit `before` and are closed now.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn closed_since(
        &self,
        issues: &[&IssueId],
        before: Oid,
    ) -> Result<Vec<IssueId>, TrackerError> {
        let now = self.beads()?;
        let closed = |id: &IssueId| now.get(id).is_some_and(|bead| !bead.is_open);
        let mut closed: Vec<&IssueId> = issues.iter().copied().filter(|id| closed(id)).collect();
        if !closed.is_empty() {
            let before = self.read_at(before).map_err(|error| broken(&error))?;
            closed.retain(|id| before.get(id).is_some_and(|bead| bead.is_open));
        }
        Ok(closed.into_iter().cloned().collect())
    }

    fn read_file(&self) -> Result<BTreeMap<IssueId, Bead>, Unreadable> {
        match self.head()? {
            Some(commit) => self.read_at(commit),
            None => Err(self.astray()),
        }
    }

    fn read_at(&self, commit: Oid) -> Result<BTreeMap<IssueId, Bead>, Unreadable> {
        let objects = Objects::new(self.git, MAX_FILE)?;
        let (oid, mode) = file(&objects, commit)?.ok_or_else(missing)?;
        if mode & KIND != REGULAR {
            return Err(Unreadable(format!("{FOLDER}/{FILE} is no regular file")));
        }
        parse(objects.blob(oid)?.content())
    }

    /// The commit that `HEAD` names, if there is any.
    fn head(&self) -> Result<Option<Oid>, Unreadable> {
        let head = match self.git.head() {
            Ok(head) => head,
            Err(error)
                if matches!(
                    error.code(),
                    git2::ErrorCode::UnbornBranch | git2::ErrorCode::NotFound
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        match head.target() {
            Some(commit) => Ok(Some(commit)),
            None => Err(Unreadable("HEAD leads nowhere".to_owned())),
        }
    }
}

fn missing() -> Unreadable {
    Unreadable(format!("there is no {FOLDER}/{FILE} at HEAD"))
}

/// The file's object and mode at `commit`.
fn file(objects: &Objects<'_>, commit: Oid) -> Result<Option<(Oid, i32)>, Unreadable> {
    let root = objects.tree(objects.commit(commit)?.tree_id())?;
    let Some(folder) = root.get_name(FOLDER) else {
        return Ok(None);
    };
    if folder.kind() != Some(git2::ObjectType::Tree) {
        return Ok(None);
    }
    let folder = objects.tree(folder.id())?;
    Ok(folder
        .get_name(FILE)
        .map(|entry| (entry.id(), entry.filemode())))
}

fn parse(file: &[u8]) -> Result<BTreeMap<IssueId, Bead>, Unreadable> {
    let mut beads = BTreeMap::new();
    for (line, number) in file.split(|byte| *byte == b'\n').zip(1_u64..) {
        let damaged = |why: &dyn std::fmt::Display| {
            Unreadable(format!("{FOLDER}/{FILE} line {number}: {why}"))
        };
        let line = line.trim_ascii_end();
        if line.is_empty() {
            continue;
        }
        let line: Line =
            serde_json::from_slice(line).map_err(|error| damaged(&without_place(&error)))?;
        if line.kind.is_some_and(|kind| kind != "issue") {
            continue;
        }
        let id = line.id.ok_or_else(|| damaged(&"it has no id"))?;
        let id: IssueId = id.parse().map_err(|error| damaged(&error))?;
        // beads writes no status where it is the usual one.
        let status = line.status.unwrap_or_default();
        let bead = Bead {
            title: line.title,
            priority: line.priority,
            is_open: !matches!(status.as_str(), "closed" | "tombstone"),
            is_put_off: matches!(status.as_str(), "blocked" | "deferred" | "pinned")
                || line.is_template,
            blockers: line
                .dependencies
                .unwrap_or_default()
                .into_iter()
                .filter(|dependency| dependency.kind == "blocks")
                .map(|dependency| dependency.depends_on_id)
                .collect(),
        };
        if beads.contains_key(&id) {
            return Err(damaged(&format_args!("issue {id} is in the file already")));
        }
        beads.insert(id, bead);
    }
    Ok(beads)
}

impl Bead {
    fn issue(&self, id: &IssueId) -> Issue {
        Issue::new(id.clone(), self.is_open, self.title.clone())
    }
}

fn broken(error: &Unreadable) -> TrackerError {
    TrackerError::Broken {
        tracker: NAME,
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::fuzz::harness::{QUICK, fuzz, same};
    use crate::fuzz::issues::beads_pieces;

    /// Which issues the lines hold, and whether they are open: read by their words
    /// alone.
    fn written(lines: &[&[u8]]) -> serde_json::Result<BTreeMap<String, bool>> {
        let mut issues = BTreeMap::new();
        for line in lines.iter().filter(|line| !line.trim_ascii().is_empty()) {
            let line: Value = serde_json::from_slice(line)?;
            let word = |key: &str| line.get(key).and_then(Value::as_str);
            if matches!(word("_type"), None | Some("issue")) {
                let is_open = !matches!(word("status"), Some("closed" | "tombstone"));
                issues.insert(word("id").unwrap_or_default().to_owned(), is_open);
            }
        }
        Ok(issues)
    }

    #[test]
    fn a_file_of_beads_says_what_its_lines_say_in_any_order() {
        let git = Repository::from_odb(git2::Odb::new().unwrap()).unwrap();
        fuzz("beads", QUICK, beads_pieces(), |input| {
            let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
            let turned: Vec<&[u8]> = lines.iter().rev().copied().collect();
            let read = parse(input).ok();
            same(&parse(&turned.join(&b'\n')).ok(), &read)?;
            let Some(read) = read else {
                return Ok(());
            };
            let open: BTreeMap<String, bool> = read
                .iter()
                .map(|(id, bead)| (id.to_string(), bead.is_open))
                .collect();
            // What is no text counts where nobody looks at it.
            if let Ok(written) = written(&lines) {
                same(&open, &written)?;
            }
            let beads = Beads {
                git: &git,
                read: OnceCell::from(read),
            };
            let mut last = None;
            for issue in beads.ready().unwrap() {
                let id = issue.unwrap().id;
                let bead = &beads.beads().unwrap()[&id];
                let blocked = bead.blockers.iter().any(|id| open.get(id) == Some(&true));
                prop_assert!(bead.is_open && !bead.is_put_off && !blocked, "{id}");
                let place = Some((bead.priority, id));
                prop_assert!(last < place);
                last = place;
            }
            Ok(())
        });
    }

    #[test]
    fn a_broken_line_is_named_by_its_number() {
        for (file, why) in [
            ("{\"id\":\"a-1\"}\n\nnot json\n", "line 3: expected"),
            ("{\"title\":\"x\"}", "line 1: it has no id"),
            ("{\"id\":\"a/b\"}", "line 1: 'a/b' is not an issue id"),
            (
                "{\"id\":\"a\"}\n{\"id\":\"a\"}\n",
                "line 2: issue a is in the file already",
            ),
            ("<<<<<<< HEAD\n", "line 1: expected"),
            ("{\"id\":\"a\",\"status\":1}", "line 1: invalid type"),
            ("{\"id\":\"a\"", "line 1: EOF"),
            ("[]x", "line 1: "),
        ] {
            let error = parse(file.as_bytes()).err().unwrap().to_string();
            let expected = format!(".beads/issues.jsonl {why}");
            assert!(error.starts_with(&expected), "{file}: {error}");
            // Nothing else there is called a line.
            assert_eq!(error.matches("line ").count(), 1, "{error}");
        }
    }

    #[test]
    fn what_is_no_issue_is_left_out() {
        let beads =
            parse(b"{\"_type\":\"memory\",\"key\":\"k\"}\n{\"_type\":\"issue\",\"id\":\"a\"}")
                .unwrap();
        assert_eq!(beads.len(), 1);
    }
}

//! The worktree's copy of the record, as the server sent it:
//! `claims/<remote>/<issue>.json` in the worktree's own git directory, so that
//! it disappears with the worktree.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use git_claim_api::ids::IssueId;
use serde_json::Value;

use crate::hex::random;
use crate::token::file_name;

const FOLDER: &str = "claims";
const SUFFIX: &str = ".json";

/// The copies of one remote's records in one worktree.
#[derive(Debug, Clone)]
pub struct Copies {
    folder: PathBuf,
}

impl Copies {
    pub fn of(git_dir: &Path, remote: &str) -> Copies {
        Copies {
            folder: git_dir.join(FOLDER).join(file_name(remote)),
        }
    }

    /// The file of an issue's copy.
    pub fn path(&self, issue: &IssueId) -> PathBuf {
        self.folder.join(format!("{issue}{SUFFIX}"))
    }

    /// The issues that have a copy here, whatever is in it.
    pub fn issues(&self) -> Vec<IssueId> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut issues: Vec<IssueId> = entries
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(SUFFIX)?
                    .parse()
                    .ok()
            })
            .collect();
        issues.sort();
        issues
    }

    /// The copy; null if it is damaged or cannot be read, `None` if there is
    /// none.
    pub fn load(&self, issue: &IssueId) -> Option<Value> {
        match fs::read(self.path(issue)) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(_) => Some(Value::Null),
        }
    }

    /// Stores a record: whole and on the disk, or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, issue: &IssueId, record: &Value) -> Result<()> {
        let path = self.path(issue);
        self.write(&path, record)
            .with_context(|| format!("the record cannot be stored in {}", path.display()))
    }

    fn write(&self, path: &Path, record: &Value) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut bytes = serde_json::to_vec(record)?;
        bytes.push(b'\n');
        let temporary = path.with_extension(format!("json.{}", random::<4>()?));
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(&bytes)?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, path))
            .and_then(|()| File::open(&self.folder)?.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        Ok(written?)
    }

    /// Removes a copy; one that is not there is fine.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, issue: &IssueId) -> Result<()> {
        let path = self.path(issue);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{} cannot be removed", path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether any remote's copy of an issue's record has the word `session` in it.
pub fn is_named(git_dir: &Path, issue: &str, session: &str) -> bool {
    let remotes = fs::read_dir(git_dir.join(FOLDER)).into_iter();
    remotes.flatten().flatten().any(|remote| {
        let copy = remote.path().join(format!("{issue}{SUFFIX}"));
        fs::read_to_string(copy).is_ok_and(|copy| copy.contains(session))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use assert_fs::TempDir;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_stored_whole_and_for_its_owner_alone() {
        let dir = TempDir::new().unwrap();
        let copies = Copies::of(dir.path(), "a/../b");
        let issue = "42".parse().unwrap();
        assert_eq!(copies.load(&issue), None);
        for record in [json!({ "a": 1 }), json!({ "b": "ü" })] {
            copies.store(&issue, &record).unwrap();
            assert_eq!(copies.load(&issue), Some(record));
        }
        let path = copies.path(&issue);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(copies.issues(), std::slice::from_ref(&issue));
        copies.remove(&issue).unwrap();
        copies.remove(&issue).unwrap();
        assert_eq!(copies.issues(), []);
    }

    #[test]
    fn a_damaged_copy_is_one_that_says_nothing() {
        let dir = TempDir::new().unwrap();
        let copies = Copies::of(dir.path(), "origin");
        let issue = "42".parse().unwrap();
        copies.store(&issue, &json!({})).unwrap();
        for damage in ["", "{", "\0\0\0"] {
            fs::write(copies.path(&issue), damage).unwrap();
            assert_eq!(copies.load(&issue), Some(Value::Null));
        }
        copies.remove(&issue).unwrap();
        fs::create_dir(copies.path(&issue)).unwrap();
        assert_eq!(copies.load(&issue), Some(Value::Null));
    }
}

//! What a call made, so that it can be unmade if the call fails: exactly that,
//! in reverse, and what was there before stays as it was.

use std::fs::{self, Permissions};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use git_claim_api::ids::{Branch, Oid};
use git_claim_api::text::escape;

use super::repository::Repository;
use crate::hex::random;

/// The list. Each entry is made before the thing itself, so that what was half
/// made is unmade too.
#[derive(Debug, Default)]
pub struct Journal {
    made: Vec<Made>,
}

#[derive(Debug)]
enum Made {
    /// Removed again unless somebody else has put something into it.
    Folder(PathBuf),
    /// Removed again if it still is where it began, and nobody works on it.
    Branch { branch: Branch, at: Oid },
    /// In a folder that was made, or found empty with these permissions.
    Worktree {
        path: PathBuf,
        found: Option<Permissions>,
    },
    /// Put back where it was.
    Aside { from: PathBuf, to: PathBuf },
    /// Put back to what it held.
    File {
        path: PathBuf,
        before: Option<Vec<u8>>,
        /// What this call left in it; somebody else's later word stays.
        after: Option<Vec<u8>>,
    },
}

impl Journal {
    /// Makes `path` and what lies above it. `false`: it was there already.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_folder(&mut self, path: &Path) -> Result<bool> {
        if let Some(parent) = path.parent()
            && !parent.exists()
        {
            self.make_folder(parent)?;
        }
        match fs::create_dir(path) {
            Ok(()) => {
                self.made.push(Made::Folder(path.to_owned()));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A folder that others will make, if it is not there yet.
    pub fn folder(&mut self, path: &Path) {
        if !path.exists() {
            self.made.push(Made::Folder(path.to_owned()));
        }
    }

    /// A branch that is about to be made.
    pub fn branch(&mut self, branch: &Branch, at: &Oid, repository: &Repository) {
        // A git that is stopped leaves the folders of its lock.
        let name = branch.as_str();
        for (slash, _) in name.match_indices('/') {
            for refs in ["refs/heads", "logs/refs/heads"] {
                self.folder(&repository.common_dir.join(refs).join(&name[..slash]));
            }
        }
        self.made.push(Made::Branch {
            branch: branch.clone(),
            at: at.clone(),
        });
    }

    /// What was entered last is not this call's after all.
    pub fn forget_last(&mut self) {
        self.made.pop();
    }

    /// A worktree that is about to be made in the empty folder `path`;
    /// `is_ours`: this call made the folder.
    ///
    /// # Errors
    /// The folder cannot be looked at.
    pub fn worktree(&mut self, path: &Path, is_ours: bool) -> Result<()> {
        self.made.push(Made::Worktree {
            path: path.to_owned(),
            found: match is_ours {
                true => None,
                false => Some(fs::metadata(path)?.permissions()),
            },
        });
        Ok(())
    }

    /// A file that is about to be written in the place of whatever is there:
    /// what cannot be read, or is no file, goes aside.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn file_over_anything(&mut self, path: &Path) -> Result<()> {
        if self.file(path).is_ok() {
            return Ok(());
        }
        let mut to = path.to_owned().into_os_string();
        to.push(format!(".{}", random::<4>().map_err(Error::other)?));
        let to = PathBuf::from(to);
        fs::rename(path, &to)?;
        self.made.push(Made::Aside {
            from: path.to_owned(),
            to,
        });
        self.file(path)
    }

    /// A file that is about to be written.
    ///
    /// # Errors
    /// What it holds cannot be read.
    pub fn file(&mut self, path: &Path) -> Result<()> {
        self.made.push(Made::File {
            path: path.to_owned(),
            before: content(path)?,
            after: None,
        });
        Ok(())
    }

    /// The file that was entered last has been written.
    ///
    /// # Errors
    /// What it holds cannot be read.
    pub fn written(&mut self) -> Result<()> {
        if let Some(Made::File { path, after, .. }) = self.made.last_mut() {
            *after = content(path)?;
        }
        Ok(())
    }

    /// Unmakes all of it. Answers what could not be unmade.
    pub fn undo(&mut self, repository: &Repository) -> Vec<String> {
        let mut troubles = Vec::new();
        while let Some(made) = self.made.pop() {
            if let Err(trouble) = unmake(&made, repository) {
                troubles.push(trouble);
            }
        }
        troubles
    }
}

fn unmake(made: &Made, repository: &Repository) -> std::result::Result<(), String> {
    let at = |path: &Path, done: Result<()>| {
        done.map_err(|error| format!("{}: {error}", escape(&path.to_string_lossy())))
    };
    match made {
        Made::Folder(path) => match fs::remove_dir(path) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(())
            }
            done => at(path, done),
        },
        Made::Branch { branch, at } => remove(branch, at, repository),
        Made::Worktree { path, found } => {
            let registration = repository.registration(path);
            if found.is_none() || registration.is_some() {
                at(path, empty(path))?;
            }
            if let Some(folder) = registration {
                at(&folder, fs::remove_dir_all(&folder))?;
            }
            match found {
                // git takes the folder along where it fails itself.
                Some(permissions) if !path.exists() => at(path, {
                    fs::create_dir(path)
                        .and_then(|()| fs::set_permissions(path, permissions.clone()))
                }),
                _ => Ok(()),
            }
        }
        Made::Aside { from, to } => at(from, fs::rename(to, from)),
        Made::File {
            path,
            before,
            after,
        } => at(path, restore(path, before.as_deref(), after.as_deref())),
    }
}

/// Removes a branch that is where it was made. What somebody has moved since,
/// or works on, is theirs now.
fn remove(branch: &Branch, at: &Oid, repository: &Repository) -> std::result::Result<(), String> {
    let is_ours = || {
        let worktrees = repository.worktrees().unwrap_or_default();
        repository.tip(branch).as_ref() == Some(at)
            && !worktrees.iter().any(|worktree| worktree.is_on(branch))
    };
    if !is_ours() {
        return Ok(());
    }
    let name = format!("refs/heads/{branch}");
    match repository.ask(&["update-ref", "-d", &name, at.as_str()]) {
        Err(error) if is_ours() => Err(format!("branch {branch}: {error:#}")),
        _ => Ok(()),
    }
}

/// Removes all that lies in a folder.
fn empty(folder: &Path) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn restore(path: &Path, before: Option<&[u8]>, after: Option<&[u8]>) -> Result<()> {
    let now = content(path)?;
    let is_ours = after.is_none() || after == now.as_deref();
    match before {
        _ if !is_ours || now.as_deref() == before => Ok(()),
        None => fs::remove_file(path),
        Some(bytes) => fs::write(path, bytes),
    }
}

fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;

    use super::*;

    #[test]
    fn what_was_there_before_stays_as_it_was() {
        let dir = TempDir::new().unwrap();
        let nowhere = Repository {
            git_dir: dir.path().to_owned(),
            common_dir: dir.path().to_owned(),
            top: dir.path().to_owned(),
        };
        let file = |name: &str| dir.path().join(name);
        fs::write(file("kept"), "before").unwrap();
        fs::write(file("theirs"), "before").unwrap();
        let mut journal = Journal::default();
        assert!(!journal.make_folder(dir.path()).unwrap());
        assert!(journal.make_folder(&file("a/b")).unwrap());
        journal.file(&file("a/b/new")).unwrap();
        fs::write(file("a/b/new"), "x").unwrap();
        journal.file(&file("kept")).unwrap();
        fs::write(file("kept"), "after").unwrap();
        journal.written().unwrap();
        journal.file(&file("theirs")).unwrap();
        fs::write(file("theirs"), "after").unwrap();
        journal.written().unwrap();
        fs::write(file("theirs"), "later").unwrap();
        assert_eq!(journal.undo(&nowhere), Vec::<String>::new());
        assert!(!file("a").exists());
        assert_eq!(fs::read(file("kept")).unwrap(), b"before");
        assert_eq!(fs::read(file("theirs")).unwrap(), b"later");
    }

    #[test]
    fn a_folder_that_somebody_else_uses_stays() {
        let dir = TempDir::new().unwrap();
        let nowhere = Repository {
            git_dir: dir.path().to_owned(),
            common_dir: dir.path().to_owned(),
            top: dir.path().to_owned(),
        };
        let mut journal = Journal::default();
        journal.make_folder(&dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/theirs"), "x").unwrap();
        assert_eq!(journal.undo(&nowhere), Vec::<String>::new());
        assert!(dir.path().join("a/theirs").exists());
    }
}

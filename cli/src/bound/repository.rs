//! The repository around a bound claim: its branches and its registered
//! worktrees.
//!
//! Asked of git itself, all of it: libgit2 opens neither reftable nor SHA-256
//! repositories, runs no hooks, and does not know `git -c`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use git_claim_api::ids::{Branch, Oid};
use rustix::fs::{FlockOperation, flock};

use crate::git::Git;

/// The variables that say where a repository is. What else git hands down, the
/// settings of `git -c` above all, goes on to count.
const PLACE: [&str; 6] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_IMPLICIT_WORK_TREE",
];

/// A repository, seen from one of its worktrees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The worktree's own git directory.
    pub git_dir: PathBuf,
    /// What all its worktrees share.
    pub common_dir: PathBuf,
    /// The worktree's top; a bare repository itself.
    pub top: PathBuf,
}

/// What a worktree has checked out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// A branch's short name.
    Branch(String),
    Detached,
    /// It is no worktree, but the bare repository.
    Bare,
}

/// A worktree as git has it registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    pub path: PathBuf,
    pub head: Head,
    /// Nothing of it is where it is registered.
    pub is_gone: bool,
}

impl Repository {
    /// The repository that a command runs in.
    ///
    /// # Errors
    /// It can't be read.
    pub fn of(git: &Git) -> Result<Repository> {
        Repository::from_places(&git.git_dir, &git.common_dir, &git.top)
    }

    /// The repository of the worktree whose top is `path`.
    ///
    /// # Errors
    /// There is none.
    pub fn at(path: &Path) -> Result<Repository> {
        let mut command = git();
        command.arg("-C").arg(path).args([
            "rev-parse",
            "--path-format=absolute",
            "--absolute-git-dir",
            "--git-common-dir",
        ]);
        let places = words(&mut command)?;
        let mut places = places.lines();
        match (places.next(), places.next()) {
            (Some(own), Some(common)) => {
                Repository::from_places(Path::new(own), Path::new(common), path)
            }
            _ => bail!("git does not say where the repository is"),
        }
    }

    fn from_places(git_dir: &Path, common_dir: &Path, top: &Path) -> Result<Repository> {
        let real = |path: &Path| {
            fs::canonicalize(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        Ok(Repository {
            git_dir: real(git_dir)?,
            common_dir: real(common_dir)?,
            top: real(top)?,
        })
    }

    /// `git` for this worktree, wherever the command itself runs.
    pub fn command(&self) -> Command {
        let mut command = git();
        command.arg("--git-dir").arg(&self.git_dir);
        command
    }

    /// What git answers.
    ///
    /// # Errors
    /// What git says.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        words(self.command().args(arguments))
    }

    /// What git answers, if it does.
    fn find(&self, arguments: &[&str]) -> Option<String> {
        let text = self.ask(arguments).ok()?;
        let text = text.trim_end_matches('\n');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Where a branch stands; `None` if there is none.
    pub fn tip(&self, branch: &Branch) -> Option<Oid> {
        self.commit(&format!("refs/heads/{branch}"))
    }

    /// The commit that a revision names, if it does.
    pub fn commit(&self, revision: &str) -> Option<Oid> {
        if revision.starts_with('-') {
            return None;
        }
        let commit = format!("{revision}^{{commit}}");
        self.find(&["rev-parse", "-q", "--verify", &commit])?
            .parse()
            .ok()
    }

    /// What this worktree has checked out.
    pub fn head(&self) -> Head {
        match self.find(&["symbolic-ref", "-q", "HEAD"]) {
            Some(name) => branch_or_detached(&name),
            None => Head::Detached,
        }
    }

    /// The remote's default branch, as the last fetch or clone left it.
    pub fn known_default(&self, remote: &str) -> Option<String> {
        let name = format!("refs/remotes/{remote}/HEAD");
        let target = self.find(&["symbolic-ref", "-q", &name])?;
        let branch = target.strip_prefix(&format!("refs/remotes/{remote}/"))?;
        Some(branch.to_owned())
    }

    /// The same as the remote itself says.
    ///
    /// # Errors
    /// It cannot be asked, or has none.
    pub async fn ask_default(&self, remote: &str) -> Result<String> {
        let mut command = self.command();
        command.args(["ls-remote", "--symref", "--", remote, "HEAD"]);
        let text = wait_for(command).await?;
        text.lines()
            .find_map(|line| line.strip_prefix("ref: refs/heads/")?.split('\t').next())
            .map(str::to_owned)
            .context("the remote has no default branch")
    }

    /// Every registered worktree, the main one first.
    ///
    /// # Errors
    /// What git says.
    pub fn worktrees(&self) -> Result<Vec<Worktree>> {
        Ok(parse(&self.ask(&[
            "worktree",
            "list",
            "--porcelain",
            "-z",
        ])?))
    }

    /// Whether this worktree is registered where it is. The main one always is.
    ///
    /// # Errors
    /// What git says.
    pub fn is_registered(&self) -> Result<bool> {
        if self.git_dir == self.common_dir {
            return Ok(true);
        }
        let worktrees = self.worktrees()?;
        Ok(worktrees
            .iter()
            .any(|worktree| same(&worktree.path, &self.top)))
    }

    /// The folder that sibling folders are named after: the main worktree.
    ///
    /// # Errors
    /// What git says.
    pub fn main_folder(&self) -> Result<PathBuf> {
        if self.git_dir == self.common_dir {
            return Ok(self.top.clone());
        }
        // A submodule's git directory is not beside its worktree.
        for file in ["config.worktree", "config"] {
            let file = self.common_dir.join(file);
            let file = file.to_string_lossy();
            if let Some(top) = self.find(&["config", "--file", &file, "core.worktree"]) {
                return Ok(fs::canonicalize(self.common_dir.join(top))?);
            }
        }
        let main = self.worktrees()?.into_iter().next();
        Ok(main.context("git names no worktree")?.path)
    }

    /// Makes a branch.
    ///
    /// # Errors
    /// What git says; it is there already, for one.
    pub fn make_branch(&self, branch: &Branch, at: &Oid) -> Result<()> {
        self.ask(&["branch", "--no-track", "--", branch.as_str(), at.as_str()])?;
        Ok(())
    }

    /// Checks `branch` out in a new worktree in the empty folder `path`.
    ///
    /// # Errors
    /// What git says.
    pub async fn make_worktree(&self, path: &Path, branch: &Branch, over: Over) -> Result<()> {
        let mut command = self.command();
        command.args(["worktree", "add", "--quiet"]);
        if over == Over::Gone {
            command.arg("--force");
        }
        command.arg("--").arg(path).arg(branch.as_str());
        wait_for(command).await?;
        Ok(())
    }

    /// Waits until no other call of ours changes this repository's shared
    /// configuration or recovers in it; as long as the answer is kept.
    ///
    /// # Errors
    /// The lock cannot be had.
    pub fn alone(&self) -> Result<Alone> {
        let objects = self.common_dir.join("objects");
        let folder = File::open(&objects)
            .with_context(|| format!("{} cannot be opened", objects.display()))?;
        // Where the file system has no locks, git's own lock files still keep
        // the configuration whole.
        let _ = flock(&folder, FlockOperation::LockExclusive);
        Ok(Alone(folder))
    }
}

/// No other call of ours changes what the worktrees share while this is kept.
#[derive(Debug)]
pub struct Alone(#[allow(dead_code)] File);

/// Whether a registration of the branch may be in the way of a new worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Nothing,
    /// That of a worktree that is gone.
    Gone,
}

/// Whether two paths lead to the same place.
pub fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    one == other || real(one) == real(other)
}

fn git() -> Command {
    let mut command = Command::new("git");
    for variable in PLACE {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

fn words(command: &mut Command) -> Result<String> {
    heard(command.output().context("git cannot be run")?)
}

/// The same for what may take its time; it is ended if nobody waits any longer.
async fn wait_for(command: Command) -> Result<String> {
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    heard(command.output().await.context("git cannot be run")?)
}

fn heard(output: Output) -> Result<String> {
    if output.status.success() {
        return String::from_utf8(output.stdout).context("git's answer is not UTF-8");
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let told = words
        .lines()
        .rfind(|line| line.starts_with("fatal: ") || line.starts_with("error: "))
        .or(words.lines().last())
        .unwrap_or("git failed");
    bail!("git: {}", git_claim_api::text::escape(told))
}

/// Reads `git worktree list --porcelain -z`.
fn parse(text: &str) -> Vec<Worktree> {
    let mut worktrees: Vec<Worktree> = Vec::new();
    for line in text.split('\0') {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key == "worktree" {
            let path = PathBuf::from(value);
            worktrees.push(Worktree {
                is_gone: !path.exists(),
                path,
                head: Head::Detached,
            });
        }
        let Some(worktree) = worktrees.last_mut() else {
            continue;
        };
        match key {
            "branch" => worktree.head = branch_or_detached(value),
            "bare" => worktree.head = Head::Bare,
            "prunable" => worktree.is_gone = true,
            _ => {}
        }
    }
    worktrees
}

fn branch_or_detached(name: &str) -> Head {
    match name.strip_prefix("refs/heads/") {
        Some(branch) => Head::Branch(branch.to_owned()),
        None => Head::Detached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktrees_as_git_lists_them() {
        let text = "worktree /\0bare\0\0\
                    worktree /tmp\0HEAD 1\0branch refs/heads/claim/42\0locked why\0\0\
                    worktree /no such\nplace\0HEAD 1\0detached\0prunable gone\0\0";
        let worktree = |path: &str, head, is_gone| Worktree {
            path: path.into(),
            head,
            is_gone,
        };
        assert_eq!(
            parse(text),
            [
                worktree("/", Head::Bare, false),
                worktree("/tmp", Head::Branch("claim/42".into()), false),
                worktree("/no such\nplace", Head::Detached, true),
            ]
        );
        assert_eq!(parse(""), []);
    }
}

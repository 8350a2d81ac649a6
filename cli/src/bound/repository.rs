//! The repository around a bound claim: its branches and its registered
//! worktrees.
//!
//! Asked of git itself, all of it: libgit2 opens neither reftable nor SHA-256
//! repositories, runs no hooks, and does not know `git -c`.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use git_claim_api::ids::{Branch, Oid};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::error::Killed;
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
    /// Somebody wants git to keep it registered, even where it cannot be seen.
    pub is_locked: bool,
}

impl Worktree {
    pub fn is_on(&self, branch: &Branch) -> bool {
        matches!(&self.head, Head::Branch(name) if name == branch.as_str())
    }
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
        // One question at a time, as their names may have line breaks in them.
        let place = |which: &str| {
            let mut command = git();
            command.arg("-C").arg(path);
            command.args(["rev-parse", "--path-format=absolute", which]);
            let place = words(&mut command)?;
            Ok::<_, anyhow::Error>(PathBuf::from(place.strip_suffix('\n').unwrap_or(&place)))
        };
        Repository::from_places(
            &place("--absolute-git-dir")?,
            &place("--git-common-dir")?,
            path,
        )
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

    /// Whether a plain `git fetch` from `remote` writes the ref `name`.
    pub fn fetches_to(&self, remote: &str, name: &str) -> bool {
        let key = format!("remote.{remote}.fetch");
        let refspecs = self.find(&["config", "--get-all", &key]);
        refspecs.unwrap_or_default().lines().any(|refspec| {
            let to = refspec.rsplit_once(':').map_or("", |(_, to)| to);
            match to.split_once('*') {
                Some((before, after)) => name.starts_with(before) && name.ends_with(after),
                None => to == name,
            }
        })
    }

    /// The same as the remote itself says.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn ask_default(&self, remote: &str) -> Result<Option<String>> {
        let mut command = self.command();
        command.args(["ls-remote", "--symref", "--", remote, "HEAD"]);
        let text = wait_for(command).await?;
        let default = text
            .lines()
            .find_map(|line| line.strip_prefix("ref: refs/heads/")?.split('\t').next());
        Ok(default.map(str::to_owned))
    }

    /// The branches that the remote has.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn ask_branches(&self, remote: &str) -> Result<Vec<String>> {
        let mut command = self.command();
        command.args(["ls-remote", "--heads", "--", remote]);
        let text = wait_for(command).await?;
        let names = text.lines().filter_map(|line| {
            let (_, name) = line.split_once('\t')?;
            name.strip_prefix("refs/heads/")
        });
        Ok(names.map(str::to_owned).collect())
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

    /// Whether git can remove it, as it is not the main one.
    pub fn is_linked(&self) -> bool {
        self.git_dir != self.common_dir
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

    /// The branches whose names begin with `<name>/`, and those that `name`
    /// begins with: git keeps none of them beside it.
    pub fn in_the_way_of(&self, branch: &Branch) -> Option<String> {
        let name = branch.as_str();
        let above = name.match_indices('/').map(|(at, _)| &name[..at]);
        let mut patterns: Vec<String> = above.map(|above| format!("refs/heads/{above}")).collect();
        patterns.push(format!("refs/heads/{name}/"));
        let mut arguments = vec!["for-each-ref", "--format=%(refname:lstrip=2)"];
        arguments.extend(patterns.iter().map(String::as_str));
        let found = self.find(&arguments)?;
        // A pattern finds what is below it too.
        found
            .lines()
            .find(|other| {
                let is_below = |one: &str, other: &str| {
                    one.strip_prefix(other)
                        .is_some_and(|rest| rest.starts_with('/'))
                };
                is_below(name, other) || is_below(other, name)
            })
            .map(str::to_owned)
    }

    /// Whether a rebase or something of the kind has put HEAD elsewhere for a
    /// while.
    pub fn is_at_work(&self) -> bool {
        ["rebase-merge", "rebase-apply", "BISECT_LOG"]
            .iter()
            .any(|name| self.git_dir.join(name).exists())
    }

    /// Makes a branch.
    ///
    /// # Errors
    /// What git says; it is there already, for one.
    pub async fn make_branch(&self, branch: &Branch, at: &Oid) -> Result<()> {
        let mut command = self.command();
        command.args(["branch", "--no-track", "--", branch.as_str(), at.as_str()]);
        wait_for(command).await.map(drop)
    }

    /// Checks `branch` out in a new worktree in the empty folder `path`.
    ///
    /// # Errors
    /// What git says, or [`HookFailed`].
    pub async fn make_worktree(&self, path: &Path, branch: &Branch, over: Over) -> Result<()> {
        let mut command = self.command();
        command.args(["worktree", "add", "--quiet"]);
        if over == Over::Gone {
            command.arg("--force");
        }
        command.arg("--").arg(path).arg(branch.as_str());
        match wait_for(command).await {
            // Whatever else fails, git takes the worktree away again.
            Err(error) if !error.is::<Killed>() && self.registration(path).is_some() => {
                Err(HookFailed::saying(&error.to_string()).into())
            }
            done => done.map(drop),
        }
    }

    /// git's own folder for the linked worktree at `path`.
    pub fn registration(&self, path: &Path) -> Option<PathBuf> {
        let folders = fs::read_dir(self.common_dir.join("worktrees")).ok()?;
        folders.flatten().map(|entry| entry.path()).find(|folder| {
            registered_at(folder).is_some_and(|place| same(&place, &path.join(".git")))
        })
    }

    /// Where this linked worktree is registered, if that is elsewhere and a
    /// worktree is there: then this one is a copy of it.
    pub fn original(&self) -> Option<PathBuf> {
        let place = registered_at(&self.git_dir)?;
        let top = place.parent()?;
        let found = Repository::at(top).ok()?;
        (!same(top, &self.top) && found.git_dir == self.git_dir).then(|| top.to_owned())
    }

    /// Whether git has made all of it: one that was killed while it checked the
    /// branch out leaves its own lock and no index.
    pub fn is_whole(&self) -> bool {
        !self.git_dir.join("locked").exists() || self.git_dir.join("index").exists()
    }

    /// Waits until no other call of ours changes this repository's shared
    /// configuration; as long as the answer is kept.
    ///
    /// # Errors
    /// The lock cannot be had.
    pub fn alone(&self) -> Result<Alone> {
        let folder = self.lockable("objects")?;
        // Where the file system has no locks, git's own lock files still keep
        // the configuration whole.
        let _ = flock(&folder, FlockOperation::LockExclusive);
        Ok(Alone(folder))
    }

    /// Waits until no other call of ours recovers in this repository. That may
    /// take a while, as it asks a server: Ctrl-C ends the wait.
    ///
    /// # Errors
    /// The lock cannot be had.
    pub async fn alone_to_recover(&self) -> Result<Alone> {
        let folder = self.lockable("refs")?;
        while flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(Alone(folder))
    }

    /// A folder that every repository has.
    fn lockable(&self, name: &str) -> Result<File> {
        let folder = self.common_dir.join(name);
        File::open(&folder).with_context(|| format!("{} cannot be opened", folder.display()))
    }
}

/// Between two looks whether something is over.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// No other call of ours changes what the worktrees share while this is kept.
#[derive(Debug)]
pub struct Alone(#[allow(dead_code)] File);

/// The worktree has been made, but the user's hook post-checkout did not like
/// it, and will not the next time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the hook post-checkout failed{0}")]
pub struct HookFailed(String);

impl HookFailed {
    fn saying(words: &str) -> HookFailed {
        HookFailed(match words.strip_prefix(GIT_SAYS) {
            Some(SILENCE) | None => String::new(),
            Some(said) => format!(": {said}"),
        })
    }
}

/// Whether a registration of the branch may be in the way of a new worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Nothing,
    /// That of a worktree that is gone.
    Gone,
}

/// Whether there is nothing at `path`. What cannot be seen may be there.
pub fn is_absent(path: &Path) -> bool {
    matches!(
        path.symlink_metadata().map_err(|error| error.kind()),
        Err(ErrorKind::NotFound | ErrorKind::NotADirectory)
    )
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

/// The `.git` file of the linked worktree whose git directory is `folder`.
fn registered_at(folder: &Path) -> Option<PathBuf> {
    let place = fs::read_to_string(folder.join("gitdir")).ok()?;
    Some(folder.join(place.strip_suffix('\n').unwrap_or(&place)))
}

fn words(command: &mut Command) -> Result<String> {
    // Ctrl-C is for what may take its time; this is over soon, and what cleans
    // up behind it needs it too.
    command.process_group(0);
    heard(command.output().context("git cannot be run")?)
}

/// The same for what may take its time, as it asks somebody or runs hooks; it
/// is ended if nobody waits any longer.
async fn wait_for(command: Command) -> Result<String> {
    let mut command = tokio::process::Command::from(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Waited(
        command
            .kill_on_drop(true)
            .spawn()
            .context("git cannot be run")?,
    );
    let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
    let (stdout, stderr, status) = tokio::try_join!(all_of(stdout), all_of(stderr), child.0.wait())
        .context("git cannot be heard")?;
    heard(Output {
        status,
        stdout,
        stderr,
    })
}

async fn all_of(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// A git that somebody waits for.
struct Waited(tokio::process::Child);

impl Drop for Waited {
    /// Asks it to end, so that it removes its lock files; the runtime kills what
    /// does not.
    fn drop(&mut self) {
        let pid = self
            .0
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok()) {
            let end = Instant::now() + LAST_WORDS;
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(BETWEEN_LOOKS);
            }
        }
    }
}

/// How long git may take to remove its lock files.
const LAST_WORDS: Duration = Duration::from_secs(2);

fn heard(output: Output) -> Result<String> {
    if output.status.success() {
        return String::from_utf8(output.stdout).context("git's answer is not UTF-8");
    }
    if let Some(signal) = output.status.signal() {
        bail!(Killed(signal));
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let told = words
        .lines()
        .rfind(|line| line.starts_with("fatal: ") || line.starts_with("error: "))
        .or(words.lines().last())
        .unwrap_or(SILENCE);
    bail!("{GIT_SAYS}{}", git_claim_api::text::escape(told))
}

/// How git's own words are told.
const GIT_SAYS: &str = "git: ";

/// What it says where it says nothing.
const SILENCE: &str = "it failed";

/// Reads `git worktree list --porcelain -z`.
fn parse(text: &str) -> Vec<Worktree> {
    let mut worktrees: Vec<Worktree> = Vec::new();
    for line in text.split('\0') {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if key == "worktree" {
            let path = PathBuf::from(value);
            worktrees.push(Worktree {
                is_gone: is_absent(&path),
                is_locked: false,
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
            "locked" => worktree.is_locked = true,
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
        let worktree = |path: &str, head, is_gone, is_locked| Worktree {
            path: path.into(),
            head,
            is_gone,
            is_locked,
        };
        assert_eq!(
            parse(text),
            [
                worktree("/", Head::Bare, false, false),
                worktree("/tmp", Head::Branch("claim/42".into()), false, true),
                worktree("/no such\nplace", Head::Detached, true, false),
            ]
        );
        assert_eq!(parse(""), []);
    }
}

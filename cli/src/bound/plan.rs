//! Where a claim is to be bound: the branch, what it begins at, the worktree.
//! Decided before anything is asked of the server, so that nothing is touched
//! where it cannot be.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use git_claim_api::ids::{Branch, IssueId, Oid, Ttl};
use git_claim_api::text::escape;
use tokio::time::timeout;

use super::copy::Copies;
use super::quote::quote;
use super::refusal::{Reason, Refusal};
use super::repository::{Head, Repository, Worktree, same};
use crate::error::Failure;

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    pub ttl: Option<Ttl>,
    pub branch: Option<Branch>,
    pub base: Option<String>,
    pub worktree: Option<PathBuf>,
    pub here: bool,
}

impl Wish {
    /// The command line that wishes the same for `issue`, or for the next one.
    pub fn command(&self, issue: Option<&IssueId>) -> String {
        let path = self.worktree.as_ref().map(|path| path.to_string_lossy());
        let id = issue.map_or("--next".to_owned(), |issue| quote(issue.as_str()));
        let options = [
            ("-t", self.ttl.map(|ttl| ttl.to_string())),
            ("--branch", self.branch.as_ref().map(ToString::to_string)),
            ("--base", self.base.clone()),
            ("--worktree", path.map(|path| path.into_owned())),
        ];
        let mut line = format!("git claim start {id}");
        for (option, value) in options {
            if let Some(value) = value {
                line += &format!(" {option} {}", quote(&value));
            }
        }
        if self.here {
            line += " --here";
        }
        line
    }
}

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    pub branch: Branch,
    /// Where the branch begins, if it is to be made.
    pub base: Option<Oid>,
    pub target: Target,
}

/// The worktree.
#[derive(Debug)]
pub enum Target {
    /// It is there, registered and on the branch.
    Reuse(Repository),
    Make(PathBuf),
}

impl Target {
    pub fn path(&self) -> &Path {
        match self {
            Target::Reuse(worktree) => &worktree.top,
            Target::Make(path) => path,
        }
    }
}

/// The repository and the remote that a plan is for.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    pub repository: &'a Repository,
    pub remote: &'a str,
    pub issue: &'a IssueId,
    /// The branch that one's own live claim is bound to already.
    pub bound_to: Option<&'a Branch>,
    /// How long the remote may take to answer.
    pub patience: Duration,
    pub wish: &'a Wish,
}

type Planned<T> = Result<T, Refusal>;

impl Ground<'_> {
    /// Makes the plan for a wish.
    ///
    /// # Errors
    /// What is in the way.
    pub async fn plan(&self) -> Planned<Plan> {
        let wish = self.wish;
        if wish.here {
            return self.plan_here().await;
        }
        let branch = match wish.branch.as_ref().or(self.bound_to) {
            Some(branch) => branch.clone(),
            None => self.default_branch_name()?,
        };
        let target = self.target(&branch)?;
        let base = match self.repository.tip(&branch) {
            Some(_) => None,
            None => Some(self.base().await?),
        };
        if self.repository.known_default(self.remote).as_deref() == Some(branch.as_str()) {
            return Err(self.is_the_default(&branch));
        }
        Ok(Plan {
            branch,
            base,
            target,
        })
    }

    fn default_branch_name(&self) -> Planned<Branch> {
        format!("claim/{}", self.issue)
            .parse()
            .map_err(|why| self.refuse(Reason::WrongBranch, format!("{why}")))
    }

    /// The present worktree, on the branch that it has checked out.
    async fn plan_here(&self) -> Planned<Plan> {
        let (issue, wish) = (self.issue, self.wish);
        let current = match self.repository.head() {
            Head::Branch(name) => name.parse::<Branch>().map_err(|why| {
                Refusal::new(
                    Reason::WrongBranch,
                    why.to_string(),
                    self.with(|wish| wish.here = false),
                )
            })?,
            Head::Detached | Head::Bare => {
                return Err(Refusal::new(
                    Reason::DetachedHead,
                    "no branch is checked out here",
                    format!("git switch -c claim/{issue}"),
                ));
            }
        };
        if let Some(wanted) = wish.branch.as_ref().filter(|branch| **branch != current) {
            let create = match self.repository.tip(wanted) {
                Some(_) => "",
                None => "-c ",
            };
            return Err(Refusal::new(
                Reason::WrongBranch,
                format!("branch {current} is checked out here, not {wanted}"),
                format!("git switch {create}{}", quote(wanted.as_str())),
            ));
        }
        let default = match self.repository.known_default(self.remote) {
            Some(default) => default,
            None => self.ask_default().await?,
        };
        if default == current.as_str() {
            return Err(self.is_the_default(&current));
        }
        let is_registered = self.repository.is_registered();
        if !is_registered.map_err(|error| self.not_read(error))? {
            return Err(Refusal::new(
                Reason::WorktreeUnregistered,
                "git does not know this worktree where it is; was it moved by hand?",
                "git worktree repair",
            ));
        }
        let worktrees = self.repository.worktrees();
        let worktrees = worktrees.map_err(|error| self.not_read(error))?;
        self.is_free(self.repository, &worktrees)?;
        Ok(Plan {
            branch: current,
            base: None,
            target: Target::Reuse(self.repository.clone()),
        })
    }

    /// The worktree for `branch`, which is not the present one unless it is
    /// named.
    fn target(&self, branch: &Branch) -> Planned<Target> {
        let wish = self.wish;
        let worktrees = self.repository.worktrees();
        let worktrees = worktrees.map_err(|error| self.not_read(error))?;
        let on_branch = worktrees
            .iter()
            .find(|worktree| worktree.head == Head::Branch(branch.to_string()));
        let path = match &wish.worktree {
            Some(path) => self.absolute(path)?,
            None => match on_branch.filter(|worktree| self.is_bound_in(worktree)) {
                Some(worktree) => worktree.path.clone(),
                None => self.sibling()?,
            },
        };
        match worktrees
            .iter()
            .find(|worktree| same(&worktree.path, &path))
        {
            Some(worktree) if worktree.is_gone => Err(self.is_gone(worktree, branch)),
            Some(worktree) if worktree.head == Head::Branch(branch.to_string()) => {
                let found = Repository::at(&worktree.path);
                let found = found.map_err(|error| self.not_read(error))?;
                self.is_free(&found, &worktrees)?;
                Ok(Target::Reuse(found))
            }
            Some(worktree) => Err(Refusal::new(
                Reason::PathTaken,
                format!("{} is a worktree on another branch", shown(&worktree.path)),
                self.elsewhere(&path, branch),
            )),
            None => match on_branch {
                Some(worktree) if worktree.is_gone => Err(self.is_gone(worktree, branch)),
                Some(worktree) => Err(Refusal::new(
                    Reason::BranchInUse,
                    format!(
                        "branch {branch} is checked out in {}",
                        shown(&worktree.path)
                    ),
                    match self.is_free_at(worktree) {
                        true => self.with(|wish| {
                            wish.branch = Some(branch.clone());
                            wish.worktree = Some(worktree.path.clone());
                            wish.base = None;
                        }),
                        false => self.with_another_branch(&worktrees),
                    },
                )),
                None if is_taken(&path) => Err(Refusal::new(
                    Reason::PathTaken,
                    format!("{} is there already, and is no worktree", shown(&path)),
                    self.elsewhere(&path, branch),
                )),
                None => Ok(Target::Make(path)),
            },
        }
    }

    /// Whether a worktree has a copy of this issue's record.
    fn is_bound_in(&self, worktree: &Worktree) -> bool {
        Repository::at(&worktree.path).is_ok_and(|found| {
            Copies::of(&found.git_dir, self.remote)
                .issues()
                .contains(self.issue)
        })
    }

    /// One worktree, one bound claim: the push option carries one token.
    fn is_free(&self, worktree: &Repository, worktrees: &[Worktree]) -> Planned<()> {
        match self.other_claim(worktree) {
            None => Ok(()),
            Some(other) => Err(Refusal::new(
                Reason::WorktreeBound,
                format!("{} is bound to the claim on {other}", shown(&worktree.top)),
                self.with_another_branch(worktrees),
            )),
        }
    }

    /// Another issue that a worktree is bound to.
    fn other_claim(&self, worktree: &Repository) -> Option<IssueId> {
        let bound = Copies::of(&worktree.git_dir, self.remote).issues();
        bound.into_iter().find(|other| other != self.issue)
    }

    fn is_free_at(&self, worktree: &Worktree) -> bool {
        Repository::at(&worktree.path).is_ok_and(|found| self.other_claim(&found).is_none())
    }

    /// The same on a branch that no worktree has, in a place of its own: what is
    /// bound to the one that was wished for is somebody's work.
    fn with_another_branch(&self, worktrees: &[Worktree]) -> String {
        let usual = format!("claim/{}", self.issue);
        let is_in_use = |name: &str| {
            worktrees
                .iter()
                .any(|worktree| worktree.head == Head::Branch(name.to_owned()))
        };
        let free = std::iter::once(usual.clone())
            .chain((2..).map(|n| format!("{usual}-{n}")))
            .find(|name| !is_in_use(name));
        self.with(|wish| {
            wish.branch = free.and_then(|name| name.parse().ok());
            wish.worktree = None;
            wish.here = false;
        })
    }

    /// `<folder>.claims/<issue>` beside the repository's own folder.
    fn sibling(&self) -> Planned<PathBuf> {
        let main = self.repository.main_folder();
        let mut main = main.map_err(|error| self.not_read(error))?;
        // `app/.bare` and `app/.git` are called `app`.
        let is_hidden = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        while is_hidden(&main) && main.pop() {}
        let name = main.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".git").unwrap_or(&name);
        let folder = main.with_file_name(format!("{name}.claims"));
        Ok(folder.join(self.issue.as_str()))
    }

    /// `path` from the root, links undone as far as it is there.
    fn absolute(&self, path: &Path) -> Planned<PathBuf> {
        let bad = |why: String| self.refuse(Reason::PathTaken, why);
        let mut rest = std::path::absolute(path).map_err(|error| bad(error.to_string()))?;
        let mut missing = Vec::new();
        loop {
            if let Ok(real) = std::fs::canonicalize(&rest) {
                return Ok(missing
                    .iter()
                    .rev()
                    .fold(real, |path, part| path.join(part)));
            }
            match rest.components().next_back() {
                Some(Component::Normal(name)) => missing.push(name.to_owned()),
                _ => return Err(bad(format!("{} leads nowhere", shown(path)))),
            }
            rest.pop();
        }
    }

    async fn base(&self) -> Planned<Oid> {
        if let Some(base) = &self.wish.base {
            return self.repository.commit(base).ok_or_else(|| {
                Refusal::new(
                    Reason::NoBaseCommit,
                    format!("'{}' names no commit here", escape(base)),
                    self.with(|wish| wish.base = None),
                )
            });
        }
        let default = match self.repository.known_default(self.remote) {
            Some(default) => default,
            None => self.ask_default().await?,
        };
        let name = format!("refs/remotes/{}/{default}", self.remote);
        self.repository.commit(&name).ok_or_else(|| {
            Refusal::new(
                Reason::NoBaseCommit,
                format!(
                    "the remote's default branch, {}, is not here yet",
                    escape(&default)
                ),
                format!("git fetch {}", quote(self.remote)),
            )
        })
    }

    async fn ask_default(&self) -> Planned<String> {
        let asked = self.repository.ask_default(self.remote);
        let why = match timeout(self.patience, asked).await {
            Ok(Ok(default)) => return Ok(default),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {}s", self.patience.as_secs()),
        };
        let failure = Failure::not_now(format!(
            "the remote cannot be asked for its default branch: {why}"
        ));
        Err(Refusal::from_failure(
            failure,
            Reason::ServerUnreachable,
            self.again(),
        ))
    }

    fn is_the_default(&self, branch: &Branch) -> Refusal {
        Refusal::new(
            Reason::DefaultBranch,
            format!("{branch} is the default branch: it is everybody's, and no claim's"),
            self.with(|wish| (wish.branch, wish.here) = (None, false)),
        )
    }

    fn is_gone(&self, worktree: &Worktree, branch: &Branch) -> Refusal {
        let path = quote(&worktree.path.to_string_lossy());
        let next = match (self.bound_to, self.repository.tip(branch)) {
            (Some(_), Some(tip)) => format!(
                "git claim recover {} --expected-head {tip} --worktree {path}",
                self.issue
            ),
            // Nobody's claim is bound to it: git itself forgets what is gone.
            _ => format!("git worktree remove --force {path}"),
        };
        Refusal::new(
            Reason::WorktreeGone,
            format!(
                "the worktree of branch {branch}, {}, is gone",
                shown(&worktree.path)
            ),
            next,
        )
    }

    /// The same issue and branch in a folder that is free.
    fn elsewhere(&self, path: &Path, branch: &Branch) -> String {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let free = (2..)
            .map(|n| path.with_file_name(format!("{name}-{n}")))
            .find(|path| !path.exists())
            .unwrap_or_default();
        self.with(|wish| {
            wish.branch = Some(branch.clone());
            wish.worktree = Some(free);
        })
    }

    fn again(&self) -> String {
        self.wish.command(Some(self.issue))
    }

    /// The command line of a wish that is changed.
    fn with(&self, change: impl FnOnce(&mut Wish)) -> String {
        let mut wish = self.wish.clone();
        change(&mut wish);
        wish.command(Some(self.issue))
    }

    fn refuse(&self, reason: Reason, message: String) -> Refusal {
        Refusal::new(reason, message, self.again())
    }

    fn not_read(&self, error: anyhow::Error) -> Refusal {
        self.refuse(Reason::WorktreeFailed, format!("{error:#}"))
    }
}

/// Whether something is at `path` that no worktree could be made in.
fn is_taken(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.symlink_metadata().is_ok(),
    }
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

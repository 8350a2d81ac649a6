//! Where a claim is to be bound: the branch, what it begins at, the worktree.
//! Decided before anything is asked of the server, so that nothing is touched
//! where it cannot be.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use git_claim_api::ids::{Branch, IssueId, Oid, Ttl};
use git_claim_api::text::escape;
use tokio::time::timeout;

use super::copy::Copies;
use super::path_text;
use super::quote::quote;
use super::refusal::{Reason, Refusal};
use super::repository::{Head, Repository, Worktree, is_absent, same};
use super::site::{self, free_path, is_taken};
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

    /// The same for whatever issue is next: what was named for one alone is
    /// left out.
    pub fn next_one(&self) -> String {
        let wish = Wish {
            branch: None,
            worktree: None,
            here: false,
            ..self.clone()
        };
        wish.command(None)
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
        if self.repository.known_default(self.remote).as_deref() == Some(branch.as_str()) {
            return Err(self.is_the_default(&branch));
        }
        self.is_the_bound_one(&branch)?;
        let target = self.target(&branch)?;
        let base = match self.repository.tip(&branch) {
            Some(_) => None,
            None => {
                if let Some(other) = self.repository.in_the_way_of(&branch) {
                    return Err(Refusal::new(
                        Reason::BranchFailed,
                        format!("git keeps no branch {branch} beside {}", escape(&other)),
                        self.on_another_branch(&branch),
                    ));
                }
                Some(self.base().await?)
            }
        };
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
        let wish = self.wish;
        let current = match self.repository.head() {
            Head::Branch(name) => name.parse::<Branch>().map_err(|why| {
                Refusal::new(
                    Reason::WrongBranch,
                    why.to_string(),
                    self.with(|wish| wish.here = false),
                )
            })?,
            Head::Bare => {
                return Err(Refusal::new(
                    Reason::DetachedHead,
                    "this is no worktree, but a bare repository",
                    self.with(|wish| wish.here = false),
                ));
            }
            Head::Detached => {
                return Err(Refusal::new(
                    Reason::DetachedHead,
                    "no branch is checked out here",
                    self.checkout(&self.default_branch_name()?),
                ));
            }
        };
        if let Some(wanted) = wish.branch.as_ref().filter(|branch| **branch != current) {
            return Err(Refusal::new(
                Reason::WrongBranch,
                format!("branch {current} is checked out here, not {wanted}"),
                self.checkout(wanted),
            ));
        }
        let default = match self.repository.known_default(self.remote) {
            Some(default) => Some(default),
            None => self.asked(self.repository.ask_default(self.remote)).await?,
        };
        if default.as_deref() == Some(current.as_str()) {
            return Err(self.is_the_default(&current));
        }
        self.is_the_bound_one(&current)?;
        let is_registered = self.repository.is_registered();
        if !is_registered.map_err(|error| self.not_read(error))? {
            return Err(is_unregistered(self.repository, &self.again()));
        }
        self.is_free(self.repository)?;
        self.is_recordable(&self.repository.top)?;
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
        let on_branch = worktrees.iter().find(|worktree| worktree.is_on(branch));
        let path = match &wish.worktree {
            Some(path) => self.absolute(path)?,
            None => match on_branch.filter(|worktree| self.is_bound_in(worktree)) {
                Some(worktree) => worktree.path.clone(),
                None => site::usual(self.repository, self.issue)
                    .map_err(|error| self.not_read(error))?,
            },
        };
        match worktrees
            .iter()
            .find(|worktree| same(&worktree.path, &path))
        {
            Some(worktree) if worktree.is_gone => Err(self.is_gone(worktree, branch)),
            Some(worktree) if worktree.is_on(branch) => self.reuse(worktree, &worktrees),
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
                        false => self.on_another_branch(branch),
                    },
                )),
                None if is_taken(&path) => Err(Refusal::new(
                    Reason::PathTaken,
                    format!("{} is there already, and is no worktree", shown(&path)),
                    self.elsewhere(&path, branch),
                )),
                None => {
                    self.is_recordable(&path)?;
                    Ok(Target::Make(path))
                }
            },
        }
    }

    /// Not every path can be told to the server.
    fn is_recordable(&self, path: &Path) -> Planned<()> {
        match path_text(path) {
            Ok(_) => Ok(()),
            Err(failure) => Err(Refusal::new(
                Reason::PathTaken,
                failure.message,
                self.with(|wish| {
                    wish.here = false;
                    wish.worktree = site::another(self.repository, self.issue, path);
                }),
            )),
        }
    }

    /// A worktree that is there, if it can be gone on with.
    fn reuse(&self, worktree: &Worktree, worktrees: &[Worktree]) -> Planned<Target> {
        let path = quote(&worktree.path.to_string_lossy());
        let found = Repository::at(&worktree.path).map_err(|error| self.not_read(error))?;
        if found.common_dir != self.repository.common_dir {
            // This clone was made by copying another one's folder.
            return Err(Refusal::new(
                Reason::PathTaken,
                format!("{} is a worktree of another clone", shown(&worktree.path)),
                match self.bound_to {
                    Some(_) => there(&worktree.path, &format!("git claim inspect {}", self.issue)),
                    None => self.with(|wish| {
                        wish.branch = self.free_branch(worktrees, None);
                        wish.worktree = None;
                    }),
                },
            ));
        }
        if !found.is_whole() {
            return Err(Refusal::new(
                Reason::WorktreeFailed,
                format!(
                    "git has not made all of the worktree {}",
                    shown(&worktree.path)
                ),
                format!("git worktree remove --force --force {path}"),
            ));
        }
        self.is_free(&found)?;
        Ok(Target::Reuse(found))
    }

    /// Whether a worktree has a copy of this issue's record.
    fn is_bound_in(&self, worktree: &Worktree) -> bool {
        Repository::at(&worktree.path).is_ok_and(|found| {
            Copies::of(&found.git_dir, self.remote)
                .issues()
                .contains(self.issue)
        })
    }

    /// One's own live claim stays on the branch that it is bound to.
    fn is_the_bound_one(&self, branch: &Branch) -> Planned<()> {
        match self.bound_to {
            Some(bound) if bound != branch => Err(Refusal::new(
                Reason::BindingMismatch,
                format!("your claim on {} is bound to branch {bound}", self.issue),
                self.with(|wish| (wish.branch, wish.here) = (None, false)),
            )),
            _ => Ok(()),
        }
    }

    /// One worktree, one bound claim: the push option carries one token.
    fn is_free(&self, worktree: &Repository) -> Planned<()> {
        let Some(other) = self.other_claim(worktree) else {
            return Ok(());
        };
        let worktrees = self.repository.worktrees();
        let worktrees = worktrees.map_err(|error| self.not_read(error))?;
        Err(Refusal::new(
            Reason::WorktreeBound,
            format!("{} is bound to the claim on {other}", shown(&worktree.top)),
            self.with(|wish| {
                wish.branch = self.free_branch(&worktrees, None);
                wish.worktree = None;
                wish.here = false;
            }),
        ))
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
    /// bound to `branch` is somebody's work, or it cannot be had.
    pub fn on_another_branch(&self, branch: &Branch) -> String {
        let worktrees = self.repository.worktrees().unwrap_or_default();
        self.with(|wish| {
            wish.branch = self.free_branch(&worktrees, Some(branch));
            wish.worktree = None;
            wish.here = false;
        })
    }

    /// A branch's name for this issue that nobody uses.
    fn free_branch(&self, worktrees: &[Worktree], but: Option<&Branch>) -> Option<Branch> {
        let usual = format!("claim/{}", self.issue);
        let others = (2..100).flat_map(|n| {
            let more = format!("-{n}");
            [
                format!("{usual}{more}"),
                format!("claim-{}{more}", self.issue),
            ]
        });
        std::iter::once(usual.clone())
            .chain(others)
            .filter_map(|name| name.parse::<Branch>().ok())
            .find(|branch| {
                let is_usual = branch.as_str() == usual;
                Some(branch) != but
                    && !worktrees.iter().any(|worktree| worktree.is_on(branch))
                    && (is_usual || self.repository.tip(branch).is_none())
                    && self.repository.in_the_way_of(branch).is_none()
            })
    }

    /// The command that checks `branch` out here, made if it is not there.
    fn checkout(&self, branch: &Branch) -> String {
        if self.repository.is_at_work() {
            return "git status".to_owned();
        }
        let worktrees = self.repository.worktrees().unwrap_or_default();
        let is_elsewhere = worktrees.iter().any(|worktree| worktree.is_on(branch));
        let name = quote(branch.as_str());
        match self.repository.tip(branch) {
            Some(_) if is_elsewhere => self.with(|wish| wish.here = false),
            Some(_) => format!("git switch {name}"),
            None => format!("git switch -c {name}"),
        }
    }

    /// `path` from the root, links undone as far as it is there.
    fn absolute(&self, path: &Path) -> Planned<PathBuf> {
        let bad = |why: String| {
            Refusal::new(
                Reason::PathTaken,
                why,
                self.with(|wish| wish.worktree = None),
            )
        };
        let mut rest =
            std::path::absolute(path).map_err(|error| bad(format!("{}: {error}", shown(path))))?;
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
            None => match self.asked(self.repository.ask_default(self.remote)).await? {
                Some(default) => default,
                None => {
                    let theirs = self
                        .asked(self.repository.ask_branches(self.remote))
                        .await?;
                    return Err(self.nothing_to_begin_at(&theirs));
                }
            },
        };
        let name = format!("refs/remotes/{}/{default}", self.remote);
        if let Some(commit) = self.repository.commit(&name) {
            return Ok(commit);
        }
        // A bare clone keeps the remote's branches as its own.
        let own = format!("refs/heads/{default}");
        match self.repository.commit(&own) {
            Some(commit) if !self.repository.fetches_to(self.remote, &name) => Ok(commit),
            _ => Err(Refusal::new(
                Reason::NoBaseCommit,
                format!(
                    "the remote's default branch, {}, is not here yet",
                    escape(&default)
                ),
                self.fetch(&default),
            )),
        }
    }

    /// Fetches a branch, whatever the clone fetches by itself.
    fn fetch(&self, branch: &str) -> String {
        let remote = self.remote;
        let refspec = format!("+refs/heads/{branch}:refs/remotes/{remote}/{branch}");
        format!("git fetch {} {}", quote(remote), quote(&refspec))
    }

    /// The remote, which has the branches `theirs`, has no default branch.
    fn nothing_to_begin_at(&self, theirs: &[String]) -> Refusal {
        let from = |base: &str| self.with(|wish| wish.base = Some(base.to_owned()));
        let push = format!("git push -u {} HEAD", quote(self.remote));
        let has_begun = self.repository.commit("HEAD").is_some();
        let next = match (theirs.first(), self.repository.head()) {
            (Some(_), _) if has_begun => from("HEAD"),
            (Some(branch), _) => {
                let here = format!("refs/remotes/{}/{branch}", self.remote);
                match self.repository.commit(&here) {
                    Some(_) => from(&format!("{}/{branch}", self.remote)),
                    None => self.fetch(branch),
                }
            }
            (None, Head::Branch(_)) if has_begun => push,
            (None, _) if has_begun => from("HEAD"),
            (None, _) => format!("git commit --allow-empty -m Begin && {push}"),
        };
        let why = match theirs.is_empty() {
            true => "it is empty",
            false => "its HEAD names a branch that is not there",
        };
        Refusal::new(
            Reason::NoBaseCommit,
            format!("the remote has no default branch to begin at: {why}"),
            next,
        )
    }

    /// What the remote itself says, if it does so in time.
    async fn asked<T>(&self, asked: impl Future<Output = anyhow::Result<T>>) -> Planned<T> {
        let why = match timeout(self.patience, asked).await {
            Ok(Ok(answer)) => return Ok(answer),
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
        let at = shown(&worktree.path);
        let path = quote(&worktree.path.to_string_lossy());
        if let Some(next) = unlock(worktree) {
            return Refusal::new(
                Reason::WorktreeGone,
                format!("the worktree of branch {branch}, {at}, is not there, but locked"),
                next,
            );
        }
        let next = match (self.bound_to, self.repository.tip(branch)) {
            (Some(_), Some(tip)) => format!(
                "git claim recover {} --expected-head {tip} --worktree {}",
                self.issue,
                quote(&free_path(&worktree.path).to_string_lossy())
            ),
            // Nobody's claim is bound to it: git itself forgets what is gone.
            _ if is_absent(&worktree.path) => format!("git worktree remove --force {path}"),
            _ => "git worktree prune".to_owned(),
        };
        Refusal::new(
            Reason::WorktreeGone,
            format!("the worktree of branch {branch}, {at}, is gone"),
            next,
        )
    }

    /// The same issue and branch in a folder that is free.
    fn elsewhere(&self, path: &Path, branch: &Branch) -> String {
        self.with(|wish| {
            wish.branch = Some(branch.clone());
            wish.worktree = site::another(self.repository, self.issue, path);
        })
    }

    /// The same in another place than `path`, in which nothing can be made.
    pub fn in_another_place(&self, path: &Path) -> String {
        self.with(|wish| wish.worktree = site::another(self.repository, self.issue, path))
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

/// The refusal of a worktree that git knows elsewhere or nowhere; `again`: what
/// was typed.
pub fn is_unregistered(worktree: &Repository, again: &str) -> Refusal {
    let (message, next) = match worktree.original() {
        Some(original) => (
            format!("this is a copy of the worktree {}", shown(&original)),
            there(&original, again),
        ),
        None => (
            "git does not know this worktree where it is; was it moved by hand?".to_owned(),
            "git worktree repair".to_owned(),
        ),
    };
    Refusal::new(Reason::WorktreeUnregistered, message, next)
}

/// The command that helps where a worktree is not to be seen, and somebody has
/// said that this does not mean that it is gone.
pub fn unlock(worktree: &Worktree) -> Option<String> {
    let path = quote(&worktree.path.to_string_lossy());
    (worktree.is_gone && worktree.is_locked).then(|| format!("git worktree unlock {path}"))
}

/// `line`, a command of ours, as it is typed for another worktree.
pub fn there(worktree: &Path, line: &str) -> String {
    let path = quote(&worktree.to_string_lossy());
    format!("git -C {path}{}", line.strip_prefix("git").unwrap_or(line))
}

fn shown(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

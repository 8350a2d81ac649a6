//! What there is to see before a record is recovered, and whether that is
//! refused. Nothing is written here.

use std::path::{Path, PathBuf};

use git_claim_api::ids::{Branch, IssueId, Oid, Session};
use git_claim_api::lock::{self, Claimant, Reading, org_and_repo};
use git_claim_api::reply::{ClaimReply, RefusalCode, State, Status, WhoamiReply};
use git_claim_api::verb::Request;
use serde_json::Value;

use super::binding;
use super::copy::Copies;
use super::place::{Fate, fate};
use super::plan::{is_unregistered, there, unlock};
use super::quote::quote;
use super::refused::Refused;
use super::repository::{Head, Repository, Worktree, same};
use super::site::{self, free_path, is_taken};
use super::survey::{self, Survey, bound_worktree, branch_of, full, worktree_of};
use crate::client::Client;
use crate::error::{Failure, Result};
use crate::output::Output;
use crate::session;
use crate::token::Tokens;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub issue: IssueId,
    /// Where the branch must be.
    pub head: Oid,
    /// The worktree, if it was named.
    pub worktree: Option<PathBuf>,
}

impl Wanted {
    /// The command line that asks for it.
    pub fn command(&self) -> String {
        let worktree = self.worktree.as_deref().map(Path::to_string_lossy);
        let place = worktree.map(|path| format!(" --worktree {}", quote(&path)));
        format!(
            "git claim recover {} --expected-head {}{}",
            self.issue,
            self.head,
            place.unwrap_or_default()
        )
    }

    /// The same with another worktree.
    fn command_in(&self, worktree: &Path) -> String {
        Wanted {
            worktree: Some(worktree.to_owned()),
            ..self.clone()
        }
        .command()
    }
}

/// The worktree that the record is to be of.
pub enum Target {
    There(Repository),
    /// It is to be built, in a folder that is free.
    Build(PathBuf),
    /// It can be neither.
    Invalid(String),
}

/// What there is to see before anything is decided.
pub struct Looked {
    pub present: Repository,
    /// The issue by its full id.
    pub wanted: Wanted,
    shown: ClaimReply,
    pub branch: Option<Branch>,
    tip: Option<Oid>,
    pub target: Target,
    /// The copy, with the server's record beside it.
    survey: Option<Survey>,
    /// Whether the worktree of the recorded session is gone for good.
    is_gone: bool,
    /// It is not to be seen, but locked; what unlocks it.
    unlock: Option<String>,
    /// The token of the tenure that is to be recovered, as it is kept here.
    kept: Option<u64>,
}

impl Looked {
    /// Looks at what is wanted.
    ///
    /// # Errors
    /// Something cannot be looked at.
    pub async fn take(
        mut wanted: Wanted,
        present: Repository,
        client: &mut Client,
        output: &mut Output,
    ) -> Result<Looked> {
        let request = survey::show(client, &wanted.issue, client.known_session()?.as_ref())?;
        let shown = survey::ask(client, &request, output).await?;
        let issue = full(&shown)?;
        wanted.issue = issue.clone();
        let worktrees = present.worktrees()?;
        let with_copy = bound_worktree(&present, client.remote(), &issue)?;
        let recorded = shown.claim.branch.clone();
        let copied = match &with_copy {
            Some(worktree) => Copies::of(&worktree.git_dir, client.remote())
                .load(&issue)
                .as_ref()
                .and_then(branch_of),
            None => None,
        };
        // Where nothing is recorded, what is worked on here; the default branch
        // is nobody's.
        let default = present.known_default(client.remote());
        let current = match present.head() {
            Head::Branch(name) if Some(&name) != default.as_ref() => Some(name),
            Head::Branch(_) | Head::Detached | Head::Bare => None,
        };
        let branch: Option<Branch> = recorded
            .or(copied)
            .or(current)
            .and_then(|name| name.parse().ok());
        // Where the copy is lost, the worktree is still its session's.
        let bound = with_copy
            .or_else(|| worktree_of(&worktrees, issue.as_str(), shown.claim.session.as_deref()));
        let target = target(&wanted, &present, bound, branch.as_ref(), &worktrees);
        let survey = match &target {
            Target::There(worktree) => {
                Some(Survey::take(client, worktree.clone(), issue.clone(), output).await?)
            }
            Target::Build(_) | Target::Invalid(_) => None,
        };
        let kept = survey
            .as_ref()
            .and_then(|survey| held_token(survey, client.remote()));
        let path = shown.claim.worktree.as_deref().map(Path::new);
        let unlock = worktrees
            .iter()
            .filter(|worktree| path.is_some_and(|path| same(&worktree.path, path)))
            .find_map(unlock);
        Ok(Looked {
            is_gone: unlock.is_none() && is_gone(&shown, &worktrees),
            unlock,
            kept,
            tip: branch.as_ref().and_then(|branch| present.tip(branch)),
            present,
            wanted,
            shown,
            branch,
            target,
            survey,
        })
    }

    /// The session that the record is to have; none is made yet.
    pub fn session(&self, client: &Client) -> Result<Session> {
        if let Some(session) = client.given_session() {
            return Ok(session.clone());
        }
        let known = self
            .survey
            .as_ref()
            .and_then(|survey| survey.session.clone());
        match known {
            Some(session) => Ok(session),
            None => Ok(session::random_session()?),
        }
    }

    pub fn request(&self, session: &Session, dry_run: bool, client: &Client) -> Result<Request> {
        let path = match &self.target {
            Target::There(worktree) => &worktree.top,
            Target::Build(path) => path,
            Target::Invalid(_) => &self.present.top,
        };
        // Without a branch nothing can be bound: the server says what else is
        // wrong, and the client that this is.
        let branch = match &self.branch {
            Some(branch) => branch.clone(),
            None => format!("claim/{}", self.wanted.issue)
                .parse()
                .map_err(|why| Failure::error(format!("{why}")))?,
        };
        Ok(Request::Recover {
            repo: client.repo()?,
            issue: self.wanted.issue.clone(),
            session: session.clone(),
            binding: binding(client, &branch, path)?,
            head: self.wanted.head.clone(),
            if_token: Some(self.meant().unwrap_or(self.shown.claim.token)),
            dry_run,
        })
    }

    /// The tenure that is meant, where another session may have held the issue
    /// since. What this worktree's own session holds is always meant.
    fn meant(&self) -> Option<u64> {
        let survey = self.survey.as_ref()?;
        let recorded = survey.copy.as_ref().and_then(session_of);
        let known = survey.session.as_ref().map(ToString::to_string);
        let last = &self.shown.claim.session;
        let is_own = last.is_some() && (*last == recorded || *last == known);
        self.kept.filter(|_| !is_own)
    }

    /// The first refusal that applies, of the server's and of what only the
    /// client can see.
    pub fn refused(&self, whoami: &WhoamiReply, decision: &ClaimReply) -> Option<Refused> {
        let server = (decision.status == Status::Refused).then(|| self.refused_by_server(decision));
        let rank = |refused: &Refused| {
            RefusalCode::ALL
                .iter()
                .position(|code| *code == refused.code())
        };
        // What the client has found comes first, as it knows more.
        self.refused_here(whoami)
            .into_iter()
            .chain(server)
            .min_by_key(rank)
    }

    fn refused_here(&self, whoami: &WhoamiReply) -> Vec<Refused> {
        let id = &self.wanted.issue;
        let refused = |code, next: &str| Refused::new(code, id, next.to_owned());
        let inspect = format!("git claim inspect {id}");
        let survey = self.survey.as_ref();
        let mut refusals = Vec::new();
        if whoami.key.is_none() {
            let next = "git claim whoami";
            refusals.push(refused(RefusalCode::IdentityUnresolved, next));
        }
        if self.is_overtaken() {
            let next = format!("git claim start {id}");
            let refused = refused(RefusalCode::NoDurableLock, &next);
            refusals.push(refused.because("another session has held the issue since"));
        }
        if self.copy_is_foreign(whoami) {
            refusals.push(refused(RefusalCode::ForeignClaimant, &inspect));
        }
        if self.lives_elsewhere() && !self.is_gone {
            let take_over = format!("git claim {id} --take-over --reason '<why>'");
            let next = self.unlock.as_ref().unwrap_or(&take_over);
            let refused = refused(RefusalCode::AlreadyCanonical, next);
            refusals.push(refused.because("the claim lives in another session of yours"));
        }
        if survey.is_some_and(Survey::both_sides_are_sound) {
            refusals.push(refused(RefusalCode::AlreadyCanonical, &inspect));
        }
        if self.copy_is_of_another_binding(whoami) || self.branch.is_none() {
            refusals.push(refused(RefusalCode::BindingMismatch, &inspect));
        }
        if let Some(next) = self.worktree_is_invalid() {
            refusals.push(refused(RefusalCode::WorktreeInvalid, &next));
        }
        match &self.tip {
            Some(tip) if *tip == self.wanted.head => {}
            Some(tip) => {
                let wanted = Wanted {
                    head: tip.clone(),
                    ..self.wanted.clone()
                };
                refusals.push(refused(RefusalCode::HeadMismatch, &wanted.command()));
            }
            None => refusals.push(refused(RefusalCode::HeadMismatch, &inspect)),
        }
        refusals
    }

    /// Whether the claim lives in another session of the caller's.
    fn lives_elsewhere(&self) -> bool {
        let session = self
            .survey
            .as_ref()
            .and_then(|survey| survey.session.as_ref());
        let claim = &self.shown.claim;
        self.shown.state == Some(State::Live)
            && claim.same_principal
            && claim.session.is_some()
            && claim.session.as_deref() != session.map(Session::as_str)
    }

    /// Whether nothing of the tenure that is meant is left, as another session
    /// has held the issue since.
    fn is_overtaken(&self) -> bool {
        self.shown.state != Some(State::Live)
            && self.shown.claim.same_principal
            && self
                .meant()
                .is_some_and(|token| token != self.shown.claim.token)
    }

    /// Whether the copy names another claimant than the one who asks.
    fn copy_is_foreign(&self, whoami: &WhoamiReply) -> bool {
        let copy = self.survey.as_ref().and_then(|survey| survey.copy.as_ref());
        let (username, profile) = match copy.map(lock::read) {
            None => return false,
            Some(Reading::Canonical(lock)) => {
                let Claimant { username, profile } = lock.work_lease.claimant;
                (Some(username), Some(profile))
            }
            Some(Reading::Incomplete { found, .. }) => (found.username, found.profile),
        };
        username.is_some_and(|name| name != whoami.name)
            || profile.is_some_and(|profile| Some(profile) != whoami.key)
    }

    /// Whether the copy is of another repository, issue or branch.
    fn copy_is_of_another_binding(&self, whoami: &WhoamiReply) -> bool {
        let copy = self.survey.as_ref().and_then(|survey| survey.copy.as_ref());
        let branch = self.branch.as_ref().map(Branch::as_str);
        match copy.map(lock::read) {
            None => false,
            Some(Reading::Canonical(lock)) => {
                let place = whoami.repo.as_deref().map(org_and_repo);
                place != Some((lock.org.as_str(), lock.repo.as_str()))
                    || lock.issue_number != self.wanted.issue
                    || Some(lock.branch_name.as_str()) != branch
            }
            Some(Reading::Incomplete { found, .. }) => {
                found.branch.is_some() && found.branch.as_deref() != branch
            }
        }
    }

    /// What helps, if there is no worktree for the record.
    fn worktree_is_invalid(&self) -> Option<String> {
        match &self.target {
            Target::Invalid(next) => Some(next.clone()),
            Target::Build(_) => None,
            Target::There(worktree) => {
                let branch = self.branch.as_ref()?;
                let is_registered = self.survey.as_ref().is_some_and(|s| s.is_registered);
                if !is_registered {
                    return Some(is_unregistered(worktree, &self.wanted.command()).next);
                }
                if worktree.head() == Head::Branch(branch.to_string()) {
                    return None;
                }
                // Its worktree may be gone, and this is just where one types.
                let recorded = self.shown.claim.worktree.as_deref();
                match recorded.filter(|_| self.is_gone && self.wanted.worktree.is_none()) {
                    Some(path) => Some(self.wanted.command_in(&free_path(Path::new(path)))),
                    None if worktree.is_at_work() => Some(there(&worktree.top, "git status")),
                    None => Some(there(
                        &worktree.top,
                        &format!("git switch {}", quote(branch.as_str())),
                    )),
                }
            }
        }
    }

    /// The command line that asks for the same in another place than `path`, in
    /// which nothing can be made.
    pub fn in_another_place(&self, path: &Path) -> String {
        let (repository, issue) = (&self.present, &self.wanted.issue);
        let place =
            site::another(repository, issue, path).or_else(|| site::usual(repository, issue).ok());
        self.wanted.command_in(place.as_deref().unwrap_or(path))
    }

    /// What the server has refused. It does not know what can be seen here.
    pub fn refused_by_server(&self, reply: &ClaimReply) -> Refused {
        let id = &self.wanted.issue;
        let refused = Refused::from_server(reply);
        let is_free = self.shown.state != Some(State::Live);
        let next = match refused.code() {
            // Whose it was, it has run out.
            RefusalCode::ForeignClaimant if is_free => format!("git claim start {id}"),
            // The branch is the recorded one, so another claim has it now.
            RefusalCode::BindingMismatch if self.branch.is_some() => {
                let refused = refused.because("another claim is bound to the branch");
                return refused.next(format!("git claim start {id}"));
            }
            _ => return refused,
        };
        refused.next(next)
    }
}

/// The session that a record names.
fn session_of(record: &Value) -> Option<String> {
    match lock::read(record) {
        Reading::Canonical(lock) => Some(lock.work_lease.task_session_id.to_string()),
        Reading::Incomplete { found, .. } => found.session,
    }
}

/// The token of the tenure that a worktree is bound to: its record's, else the
/// one that is kept beside it.
fn held_token(survey: &Survey, remote: &str) -> Option<u64> {
    let recorded = match lock::read(survey.copy.as_ref()?) {
        Reading::Canonical(lock) => Some(lock.work_lease.token.get()),
        Reading::Incomplete { found, .. } => found.token,
    };
    recorded.or_else(|| {
        let tokens = Tokens::of(&survey.worktree.git_dir, remote);
        Some(tokens.find(&survey.issue)?.get())
    })
}

fn target(
    wanted: &Wanted,
    present: &Repository,
    bound: Option<Repository>,
    branch: Option<&Branch>,
    worktrees: &[Worktree],
) -> Target {
    let inspect = || Target::Invalid(format!("git claim inspect {}", wanted.issue));
    let on_branch =
        branch.and_then(|branch| worktrees.iter().find(|worktree| worktree.is_on(branch)));
    let found = |path: &Path| match Repository::at(path) {
        Ok(found) if found.common_dir != present.common_dir => inspect(),
        Ok(found) if found.is_whole() => Target::There(found),
        Ok(_) => Target::Invalid(format!(
            "git worktree remove --force --force {}",
            quote(&path.to_string_lossy())
        )),
        Err(_) => inspect(),
    };
    let Some(path) = &wanted.worktree else {
        return match (bound, on_branch.filter(|worktree| !worktree.is_gone)) {
            (Some(worktree), _) => found(&worktree.top),
            (None, Some(worktree)) => found(&worktree.path),
            (None, None) => Target::There(present.clone()),
        };
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let path = match (path.parent().map(std::fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    };
    let registered = worktrees
        .iter()
        .find(|worktree| same(&worktree.path, &path));
    if registered.is_some_and(|worktree| !worktree.is_gone) {
        return found(&path);
    }
    if let Some(next) = registered.into_iter().chain(on_branch).find_map(unlock) {
        return Target::Invalid(next);
    }
    let elsewhere = |path: &Path| Target::Invalid(wanted.command_in(path));
    match on_branch {
        Some(other) if !other.is_gone => elsewhere(&other.path),
        _ if is_taken(&path) => elsewhere(&free_path(&path)),
        _ => Target::Build(path),
    }
}

/// Whether the worktree of the recorded session is known to be gone: not where
/// the record says, nor anywhere that git has moved it to.
fn is_gone(shown: &ClaimReply, worktrees: &[Worktree]) -> bool {
    let Some(path) = &shown.claim.worktree else {
        return false;
    };
    let (issue, session) = (shown.issue.as_str(), shown.claim.session.as_deref());
    shown.claim.machine.as_deref() == Some(&session::machine_name())
        && fate(Path::new(path), issue, session) == Fate::Gone
        && worktree_of(worktrees, issue, session).is_none()
}

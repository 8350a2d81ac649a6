//! `git claim recover`: make one incomplete or orphaned record canonical again.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{Branch, IssueId, Oid, Session};
use git_claim_api::lock::{self, Claimant, Reading, org_and_repo};
use git_claim_api::reply::{ClaimReply, RefusalCode, State, Status, WhoamiReply};
use git_claim_api::text::escape;
use git_claim_api::verb::Request;
use serde_json::json;

use super::start::{make_worktree, store};
use crate::answer::Reply;
use crate::args::issue_id;
use crate::bound::journal::Journal;
use crate::bound::quote::{addressed, quote};
use crate::bound::repository::{Head, Over, Repository, Worktree, same};
use crate::bound::survey::{self, Survey, bound_worktree, branch_of, full};
use crate::bound::{binding, push_option};
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::{Failure, Kind, Result};
use crate::output::{Output, people};
use crate::session;

/// Make the record of your bound claim sound again
///
/// Writes a lost copy anew, completes what an older server left incomplete,
/// takes a claim that ran out again for the same branch, or builds a worktree
/// that is gone. It takes nothing from anybody, and never moves the branch.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id, add = Offer::Own)]
    pub id: IssueId,

    /// Where the branch must be, as a full object id
    #[arg(long, value_name = "OID", value_hint = ValueHint::Other)]
    pub expected_head: Oid,

    /// The worktree; built anew if it is gone
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub worktree: Option<PathBuf>,

    /// Say what would be done, and write nothing anywhere
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let present = Repository::of(client.git())?;
    // Two that recover in one repository do so one after the other.
    let alone = match args.dry_run {
        true => None,
        false => Some(present.alone()?),
    };
    let whoami = who_asks(&args.id, client, output).await?;
    let looked = Looked::take(&args, present, client, output).await?;
    let session = looked.session(client)?;
    let would = looked.request(&args, &session, true, client)?;
    let would = client.ask(&would, output).await?;
    let decision: ClaimReply = would.read()?;
    if let Some(refused) = looked.refused(&args, &whoami, &decision) {
        return Err(refused.addressed(client.address()).into());
    }
    let Some(alone) = alone else {
        return say(&would, &decision, &args, output);
    };
    let mut journal = Journal::default();
    let worktree = match looked.prepare(&session, &mut journal).await {
        Ok(worktree) => worktree,
        Err(error) => {
            looked.unmake(&mut journal, output);
            return Err(Failure::from(error));
        }
    };
    let request = looked.request(&args, &session, false, client)?;
    let reply = match client.ask(&request, output).await {
        Ok(reply) => reply,
        Err(failure) => {
            // It may have been done: the worktree is what the next try needs.
            if !failure.kind.is_not_now() {
                looked.unmake(&mut journal, output);
            }
            return Err(failure.hint(format!("next: {}", looked.again(&args, client))));
        }
    };
    let recovered: ClaimReply = reply.read()?;
    if recovered.status != Status::Recovered {
        looked.unmake(&mut journal, output);
        return Err(Refused::from_server(&recovered)
            .addressed(client.address())
            .into());
    }
    let stored = store(
        &worktree,
        client.remote(),
        &looked.issue,
        &recovered,
        &mut journal,
    );
    // The server has done its part, and says so to whoever asks again.
    stored.map_err(|error| {
        Failure::from(error).hint(format!("next: {}", looked.again(&args, client)))
    })?;
    let survey = Survey::take(client, worktree.clone(), looked.issue.clone(), output).await?;
    let lock = survey.judge()?;
    let option = push_option::of(&lock);
    if push_option::is_taken_everywhere(&client.git().config, client.remote(), &whoami) {
        push_option::set(&worktree, &option, &mut journal, &alone)?;
    } else {
        push_option::keep_true(&worktree, &option, &alone)?;
    }
    say(&reply, &recovered, &args, output)
}

/// Whom the server takes the caller for.
async fn who_asks(
    issue: &IssueId,
    client: &mut Client,
    output: &mut Output,
) -> Result<WhoamiReply> {
    let here = Request::Whoami {
        repo: Some(client.repo()?),
    };
    let failure = match client.ask(&here, output).await {
        Ok(reply) => return reply.read(),
        Err(failure) => failure,
    };
    let is_refused = |failure: &Failure| failure.kind == Kind::Exit(Exit::Error);
    let anywhere = Request::Whoami { repo: None };
    // Who is somebody is told so, whatever they may see.
    if is_refused(&failure)
        && client
            .ask(&anywhere, output)
            .await
            .as_ref()
            .is_err_and(is_refused)
    {
        let next = "git claim whoami".to_owned();
        return Err(Refused::new(RefusalCode::IdentityUnresolved, issue, next)
            .addressed(client.address())
            .into());
    }
    Err(failure)
}

/// The worktree that the record is to be of.
enum Target {
    There(Repository),
    /// It is to be built, in a folder that is free.
    Build(PathBuf),
    /// It can be neither.
    Invalid(String),
}

/// What there is to see before anything is decided.
struct Looked {
    present: Repository,
    issue: IssueId,
    shown: ClaimReply,
    branch: Option<Branch>,
    tip: Option<Oid>,
    target: Target,
    /// The copy, with the server's record beside it.
    survey: Option<Survey>,
    /// Whether the worktree of the recorded session is gone for good.
    is_gone: bool,
}

impl Looked {
    async fn take(
        args: &Args,
        present: Repository,
        client: &mut Client,
        output: &mut Output,
    ) -> Result<Looked> {
        let request = survey::show(client, &args.id, client.known_session()?.as_ref())?;
        let shown = survey::ask(client, &request, output).await?;
        let issue = full(&shown)?;
        let worktrees = present.worktrees()?;
        let with_copy = bound_worktree(&present, client.remote(), &issue)?;
        let recorded = shown.claim.branch.clone();
        let copied = match &with_copy {
            Some(worktree) => crate::bound::copy::Copies::of(&worktree.git_dir, client.remote())
                .load(&issue)?
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
        let target = target(args, &present, with_copy, branch.as_ref(), &worktrees);
        let survey = match &target {
            Target::There(worktree) => {
                Some(Survey::take(client, worktree.clone(), issue.clone(), output).await?)
            }
            Target::Build(_) | Target::Invalid(_) => None,
        };
        Ok(Looked {
            is_gone: is_gone(&shown, &worktrees),
            tip: branch.as_ref().and_then(|branch| present.tip(branch)),
            present,
            issue,
            shown,
            branch,
            target,
            survey,
        })
    }

    /// The session that the record is to have; none is made yet.
    fn session(&self, client: &Client) -> Result<Session> {
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

    fn request(
        &self,
        args: &Args,
        session: &Session,
        dry_run: bool,
        client: &Client,
    ) -> Result<Request> {
        let path = match &self.target {
            Target::There(worktree) => &worktree.top,
            Target::Build(path) => path,
            Target::Invalid(_) => &self.present.top,
        };
        // Without a branch nothing can be bound: the server says what else is
        // wrong, and the client that this is.
        let branch = match &self.branch {
            Some(branch) => branch.clone(),
            None => format!("claim/{}", self.issue)
                .parse()
                .map_err(|why| Failure::error(format!("{why}")))?,
        };
        Ok(Request::Recover {
            repo: client.repo()?,
            issue: self.issue.clone(),
            session: session.clone(),
            binding: binding(client, &branch, path)?,
            head: args.expected_head.clone(),
            if_token: Some(self.shown.claim.token),
            dry_run,
        })
    }

    /// The first refusal that applies, of the server's and of what only the
    /// client can see.
    fn refused(&self, args: &Args, whoami: &WhoamiReply, decision: &ClaimReply) -> Option<Refused> {
        let id = &self.issue;
        let inspect = format!("git claim inspect {id}");
        let mut refusals: Vec<Refused> = Vec::new();
        let mut refuse = |code, next: String| refusals.push(Refused::new(code, id, next));
        if whoami.key.is_none() {
            refuse(
                RefusalCode::IdentityUnresolved,
                "git claim whoami".to_owned(),
            );
        }
        if self.copy_is_foreign(whoami) {
            refuse(RefusalCode::ForeignClaimant, format!("git claim log {id}"));
        }
        let session = self
            .survey
            .as_ref()
            .and_then(|survey| survey.session.as_ref());
        let lives_elsewhere = self.shown.state == Some(State::Live)
            && self.shown.claim.same_principal
            && self.shown.claim.session.is_some()
            && self.shown.claim.session.as_deref() != session.map(Session::as_str);
        if lives_elsewhere && !self.is_gone {
            let next = format!("git claim {id} --take-over --reason '<why>'");
            refuse(RefusalCode::AlreadyCanonical, next);
        }
        if self
            .survey
            .as_ref()
            .is_some_and(Survey::both_sides_are_sound)
        {
            refuse(RefusalCode::AlreadyCanonical, inspect.clone());
        }
        if self.copy_is_of_another_binding(whoami) || self.branch.is_none() {
            refuse(RefusalCode::BindingMismatch, inspect.clone());
        }
        if let Some(next) = self.worktree_is_invalid(args) {
            refuse(RefusalCode::WorktreeInvalid, next);
        }
        match &self.tip {
            Some(tip) if *tip == args.expected_head => {}
            Some(tip) => {
                let next = format!("git claim recover {id} --expected-head {tip}");
                let place = args
                    .worktree
                    .as_ref()
                    .map(|path| format!(" --worktree {}", quote(&path.to_string_lossy())));
                refuse(RefusalCode::HeadMismatch, next + &place.unwrap_or_default());
            }
            None => refuse(RefusalCode::HeadMismatch, inspect),
        }
        if decision.status == Status::Refused {
            refusals.push(Refused::from_server(decision));
        }
        let rank = |refused: &Refused| {
            RefusalCode::ALL
                .iter()
                .position(|code| *code == refused.code)
        };
        // What the client has found comes first, as it knows more.
        refusals.into_iter().min_by_key(rank)
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
                    || lock.issue_number != self.issue
                    || Some(lock.branch_name.as_str()) != branch
            }
            Some(Reading::Incomplete { found, .. }) => {
                found.branch.is_some() && found.branch.as_deref() != branch
            }
        }
    }

    /// What helps, if there is no worktree for the record.
    fn worktree_is_invalid(&self, args: &Args) -> Option<String> {
        let id = &self.issue;
        match &self.target {
            Target::Invalid(next) => Some(next.clone()),
            Target::Build(_) => None,
            Target::There(worktree) => {
                let branch = self.branch.as_ref()?;
                let is_registered = self.survey.as_ref().is_some_and(|s| s.is_registered);
                if !is_registered {
                    return Some("git worktree repair".to_owned());
                }
                if worktree.head() == Head::Branch(branch.to_string()) {
                    return None;
                }
                // Its worktree may be gone, and this is just where one types.
                let recorded = self.shown.claim.worktree.as_deref();
                match recorded.filter(|_| self.is_gone && args.worktree.is_none()) {
                    Some(path) => Some(format!(
                        "git claim recover {id} --expected-head {} --worktree {}",
                        args.expected_head,
                        quote(path)
                    )),
                    None => Some(format!(
                        "git -C {} switch {}",
                        quote(&worktree.top.to_string_lossy()),
                        quote(branch.as_str())
                    )),
                }
            }
        }
    }

    /// The worktree with the session, built if it is to be.
    async fn prepare(
        &self,
        session: &Session,
        journal: &mut Journal,
    ) -> anyhow::Result<Repository> {
        match (&self.target, &self.branch) {
            (Target::Build(path), Some(branch)) => {
                make_worktree(&self.present, path, branch, Over::Gone, session, journal).await
            }
            (Target::There(worktree), _) => {
                if session::known(&worktree.git_dir)?.is_none() {
                    journal.file(&session::file(&worktree.git_dir))?;
                    session::adopt(&worktree.git_dir, session)?;
                }
                Ok(worktree.clone())
            }
            (Target::Build(_) | Target::Invalid(_), _) => {
                anyhow::bail!("there is no worktree to recover")
            }
        }
    }

    fn unmake(&self, journal: &mut Journal, output: &mut Output) {
        for trouble in journal.undo(&self.present) {
            output.warning(&format!("this could not be undone: {trouble}"));
        }
    }

    fn again(&self, args: &Args, client: &Client) -> String {
        let line = format!(
            "git claim recover {} --expected-head {}",
            self.issue, args.expected_head
        );
        let place = args
            .worktree
            .as_ref()
            .map(|path| format!(" --worktree {}", quote(&path.to_string_lossy())));
        addressed(&(line + &place.unwrap_or_default()), client.address())
    }
}

fn target(
    args: &Args,
    present: &Repository,
    with_copy: Option<Repository>,
    branch: Option<&Branch>,
    worktrees: &[Worktree],
) -> Target {
    let on_branch = branch.and_then(|branch| {
        worktrees
            .iter()
            .find(|worktree| worktree.head == Head::Branch(branch.to_string()))
    });
    let there = |path: &Path| match Repository::at(path) {
        Ok(found) if found.common_dir == present.common_dir => Target::There(found),
        _ => Target::Invalid(format!("git claim inspect {}", args.id)),
    };
    let Some(path) = &args.worktree else {
        return match (with_copy, on_branch.filter(|worktree| !worktree.is_gone)) {
            (Some(worktree), _) => Target::There(worktree),
            (None, Some(worktree)) => there(&worktree.path),
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
        return there(&path);
    }
    if path.exists() {
        return Target::Invalid(format!("git claim inspect {}", args.id));
    }
    match on_branch {
        Some(other) if !other.is_gone => Target::Invalid(format!(
            "git claim recover {} --expected-head {} --worktree {}",
            args.id,
            args.expected_head,
            quote(&other.path.to_string_lossy())
        )),
        _ => Target::Build(path),
    }
}

/// Whether the worktree of the recorded session is known to be gone: not where
/// the record says, nor anywhere that git has moved it to.
fn is_gone(shown: &ClaimReply, worktrees: &[Worktree]) -> bool {
    let Some(path) = &shown.claim.worktree else {
        return false;
    };
    let is_its = |worktree: &Worktree| {
        Repository::at(&worktree.path)
            .ok()
            .and_then(|found| session::known(&found.git_dir).ok().flatten())
            .is_some_and(|session| Some(session.as_str()) == shown.claim.session.as_deref())
    };
    !Path::new(path).exists()
        && shown.claim.machine.as_deref() == Some(&session::machine_name())
        && !worktrees
            .iter()
            .filter(|worktree| !worktree.is_gone)
            .any(is_its)
}

/// A refused recovery.
#[derive(Debug)]
struct Refused {
    code: RefusalCode,
    issue: String,
    next: String,
}

impl Refused {
    fn new(code: RefusalCode, issue: &IssueId, next: String) -> Refused {
        Refused {
            code,
            issue: issue.to_string(),
            next,
        }
    }

    /// The same with a next command that asks the same server.
    fn addressed(self, address: &str) -> Refused {
        Refused {
            next: addressed(&self.next, address),
            ..self
        }
    }

    fn from_server(reply: &ClaimReply) -> Refused {
        let inspect = || format!("git claim inspect {}", reply.issue);
        Refused {
            code: reply.refusal_code.unwrap_or(RefusalCode::BindingMismatch),
            issue: reply.issue.clone(),
            next: reply.exact_next_action.clone().unwrap_or_else(inspect),
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let exit = match refused.code {
            RefusalCode::HealthyForeignLock => Exit::Conflict,
            _ => Exit::Error,
        };
        let message = format!("recovery is refused: {}", refused.code.meaning());
        let reply = json!({
            "status": "refused",
            "issue": refused.issue,
            "refusal_code": refused.code,
            "exact_next_action": refused.next,
            "message": message,
        });
        Failure {
            reply: Some(reply),
            ..Failure::new(exit, message).hint(format!("next: {}", escape(&refused.next)))
        }
    }
}

fn say(reply: &Reply, recovered: &ClaimReply, args: &Args, output: &Output) -> Result<Exit> {
    if output.json() {
        output.reply(&reply.line)?;
    } else {
        output.sentence(&people::recovered(
            recovered,
            &args.expected_head,
            args.dry_run,
        ))?;
    }
    Ok(Exit::Done)
}

//! A bound claim as it stands on both sides, and whether all of it is as it
//! should be. Looking changes nothing, here or on the server.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::ids::{Branch, IssueId, Session, Token};
use git_claim_api::lock::{self, Lock, Reading};
use git_claim_api::reply::{Claim, ClaimReply, Reason as Conflict, State, Status};
use git_claim_api::text::escape;
use git_claim_api::verb::Request;
use serde_json::Value;

use super::copy::Copies;
use super::place::{Fate, acts_as, fate};
use super::plan::{is_unregistered, there, unlock};
use super::quote::quote;
use super::refusal::{Reason, Refusal};
use super::repository::{Head, Repository, Worktree, same};
use super::site::free_path;
use crate::client::Client;
use crate::error::{Failure, Kind, Result};
use crate::output::Output;
use crate::session;
use crate::token::Tokens;

/// What there is to see.
#[derive(Debug)]
pub struct Survey {
    pub issue: IssueId,
    /// The worktree that is looked at.
    pub worktree: Repository,
    pub head: Head,
    pub is_registered: bool,
    /// Whom the worktree acts as.
    pub session: Option<Session>,
    /// The worktree's copy; null if it is damaged.
    pub copy: Option<Value>,
    /// What the server shows, or why it could not be asked.
    pub server: std::result::Result<ClaimReply, Failure>,
    /// What the server says of the copy's token, or of the last one where nobody
    /// holds the claim, in the hands of whoever asks.
    pub verified: Option<ClaimReply>,
    /// The session was named by the caller: it need not be the worktree's.
    is_given_session: bool,
    /// See [`Client::address`].
    address: String,
    /// See [`Client::shown_by`].
    shown_by: String,
}

impl Survey {
    /// Looks at `issue` in `worktree`.
    ///
    /// # Errors
    /// The worktree cannot be looked at.
    pub async fn take(
        client: &mut Client,
        worktree: Repository,
        issue: IssueId,
        output: &mut Output,
    ) -> Result<Survey> {
        client.log_in_once()?;
        let session = match client.given_session() {
            Some(session) => Some(session.clone()),
            None => session::known(&worktree.git_dir)?,
        };
        let server = ask(client, &show(client, &issue, session.as_ref())?, output).await;
        // What was typed may be a prefix; the copy has the full id.
        let issue = match &server {
            Ok(shown) => full(shown)?,
            Err(_) => issue,
        };
        let copy = Copies::of(&worktree.git_dir, client.remote()).load(&issue);
        let token = match (copy.as_ref().map(lock::read), &server) {
            (Some(Reading::Canonical(copy)), Ok(_)) => Some(copy.work_lease.token),
            // How the last claim ended may be told with its token.
            (_, Ok(shown)) if shown.state == Some(State::Free) => {
                Token::new(shown.claim.token).ok()
            }
            _ => None,
        };
        let verified = match token {
            Some(token) => {
                let request = Request::Verify {
                    repo: client.repo()?,
                    issue: issue.clone(),
                    token,
                    session: session.clone(),
                };
                Some(ask(client, &request, output).await)
            }
            None => None,
        };
        // One answer that does not come is as bad as two.
        let (server, verified) = match verified {
            Some(Err(failure)) => (Err(failure), None),
            Some(Ok(verified)) => (server, Some(verified)),
            None => (server, None),
        };
        Ok(Survey {
            head: worktree.head(),
            is_registered: worktree.is_registered()?,
            worktree,
            issue,
            session,
            copy,
            server,
            verified,
            is_given_session: client.given_session().is_some(),
            address: client.address().to_owned(),
            shown_by: client.shown_by(),
        })
    }

    /// The server's record, as far as it was shown.
    pub fn record(&self) -> Option<&Value> {
        self.server.as_ref().ok()?.lock.as_ref()
    }

    /// The branch that the record is about: the server's word, else the copy's.
    pub fn branch(&self) -> Option<Branch> {
        let shown = self.server.as_ref().ok();
        shown
            .and_then(|shown| shown.claim.branch.clone())
            .or_else(|| branch_of(self.copy.as_ref()?))?
            .parse()
            .ok()
    }

    /// The record, if work may go on.
    ///
    /// # Errors
    /// The first thing that is not as it should be.
    pub fn judge(&self) -> std::result::Result<Box<Lock>, Refusal> {
        self.judged()
            .map_err(|refusal| refusal.addressed(&self.address))
    }

    fn judged(&self) -> std::result::Result<Box<Lock>, Refusal> {
        let Some(copy) = &self.copy else {
            return Err(self.is_not_bound());
        };
        let copy = match lock::read(copy) {
            Reading::Canonical(copy) => copy,
            Reading::Incomplete { missing, .. } => {
                return Err(self.is_incomplete_here(copy, missing));
            }
        };
        let shown = match &self.server {
            Ok(shown) => shown,
            Err(failure) => return Err(self.is_not_served(failure, "git claim check")),
        };
        self.is_held(&copy, shown)?;
        let record = match shown.lock.as_ref().map(lock::read) {
            Some(Reading::Canonical(record)) => record,
            Some(Reading::Incomplete { missing, .. }) => {
                return Err(self.is_incomplete_there(shown, missing));
            }
            None => {
                let missing = shown.missing.clone().unwrap_or_default();
                return Err(self.is_incomplete_there(shown, missing));
            }
        };
        self.agrees(&copy, &record)?;
        self.is_in_place(&copy)?;
        Ok(record)
    }

    /// What the copy lacks; but who else has the claim now matters more.
    fn is_incomplete_here(&self, copy: &Value, missing: Vec<String>) -> Refusal {
        let mend = |next| Refusal::missing(Some(copy), missing, "this worktree's", next);
        let Ok(shown) = &self.server else {
            return mend(self.recover());
        };
        let claim = &shown.claim;
        match shown.state {
            Some(State::Live) if !claim.same_principal => self.is_held_by_another(claim),
            Some(State::Live) if self.is_of_another_session(claim) => self.is_held_elsewhere(shown),
            Some(State::Live | State::Expired) if claim.same_principal => mend(self.recover()),
            _ => self.done().unwrap_or_else(|| mend(self.start())),
        }
    }

    fn is_incomplete_there(&self, shown: &ClaimReply, missing: Vec<String>) -> Refusal {
        Refusal::missing(shown.lock.as_ref(), missing, "the server's", self.recover())
    }

    /// Whether another session than this worktree's has or had a claim. An older
    /// server's row, without a session, belongs to its name.
    fn is_of_another_session(&self, claim: &Claim) -> bool {
        let session = self.session.as_ref().map(Session::as_str);
        claim.session.is_some() && claim.session.as_deref() != session
    }

    /// Why there is no copy, by what the server says.
    fn is_not_bound(&self) -> Refusal {
        let id = &self.issue;
        let shown = match &self.server {
            Ok(shown) => shown,
            Err(failure) => {
                let again = format!("git claim inspect {id}");
                return self.is_not_served(failure, &again);
            }
        };
        let claim = &shown.claim;
        let not_bound = |message, next| Refusal::new(Reason::NotBound, message, next);
        match shown.state {
            Some(State::Live) if !claim.same_principal => self.is_held_by_another(claim),
            Some(State::Live) if self.is_of_another_session(claim) => self.is_held_elsewhere(shown),
            Some(State::Live | State::Expired)
                if claim.same_principal && claim.branch.is_some() =>
            {
                let message = format!("this worktree has no record of your claim on {id}");
                not_bound(message, self.recover())
            }
            Some(State::Live) => not_bound(
                format!("your claim on {id} is a plain one: no branch is bound to it"),
                self.start(),
            ),
            Some(State::Expired) => not_bound(
                format!("no claim on {id} is bound to this worktree, and the last one has run out"),
                self.start(),
            ),
            Some(State::Free) | None => self.done().unwrap_or_else(|| {
                not_bound(
                    format!("no claim on {id} is bound to this worktree, and nobody holds it"),
                    self.start(),
                )
            }),
        }
    }

    /// That the server has released the claim, as a push was the end of the work.
    fn done(&self) -> Option<Refusal> {
        let verified = self.verified.as_ref().filter(|reply| reply.is_done())?;
        let message = format!(
            "the claim on {} is released: {}",
            self.issue,
            escape(verified.why.as_deref()?)
        );
        Some(Refusal::new(Reason::Released, message, self.leave()))
    }

    /// What the server does not answer. Asking again is of use only if it could
    /// not answer now.
    fn is_not_served(&self, failure: &Failure, again: &str) -> Refusal {
        let next = match failure.kind {
            Kind::Exit(Exit::Error) => self.shown_by.clone(),
            // Its hint says who can do what.
            Kind::Exit(Exit::NoVerb) => "git claim whoami".to_owned(),
            _ => again.to_owned(),
        };
        Refusal::from_failure(failure.clone(), Reason::Refused, next)
    }

    fn is_held_by_another(&self, claim: &Claim) -> Refusal {
        let id = &self.issue;
        let holder = escape(claim.holder.as_deref().unwrap_or_default());
        let message = format!("{id} is claimed by {holder}");
        Refusal::new(Reason::Held, message, format!("git claim log {id}")).exit(Exit::Conflict)
    }

    fn is_held_elsewhere(&self, shown: &ClaimReply) -> Refusal {
        let message = format!("{} is claimed by you in another session", self.issue);
        let next = way_to_own(&self.worktree, shown);
        Refusal::new(Reason::HeldInOtherSession, message, next).exit(Exit::Conflict)
    }

    /// Whether both records are complete and say the same, wherever the
    /// worktree may be.
    pub fn both_sides_are_sound(&self) -> bool {
        let records = (
            self.copy.as_ref().map(lock::read),
            self.record().map(lock::read),
        );
        match (records, &self.server) {
            ((Some(Reading::Canonical(copy)), Some(Reading::Canonical(record))), Ok(shown)) => {
                self.is_held(&copy, shown).is_ok() && self.agrees(&copy, &record).is_ok()
            }
            _ => false,
        }
    }

    /// Whether the claim is live, and this very worktree's.
    fn is_held(&self, copy: &Lock, shown: &ClaimReply) -> std::result::Result<(), Refusal> {
        let id = &self.issue;
        let claim = &shown.claim;
        let has_run_out = claim.ttl_left_ms.is_some_and(|left| left <= 0);
        match shown.state {
            Some(State::Live) if !has_run_out => {}
            Some(State::Live | State::Expired) => {
                // What another session has held since is no longer this record's.
                let is_its = claim.same_principal
                    && (claim.session.is_none()
                        || claim.session.as_deref()
                            == Some(copy.work_lease.task_session_id.as_str()));
                let next = match is_its {
                    true => self.recover(),
                    false => self.start(),
                };
                let message = format!("the claim on {id} has run out");
                return Err(Refusal::new(Reason::Expired, message, next));
            }
            Some(State::Free) | None => {
                return Err(self.done().unwrap_or_else(|| {
                    let message = format!("nobody holds {id} any more");
                    Refusal::new(Reason::Released, message, self.start())
                }));
            }
        }
        let holder = escape(claim.holder.as_deref().unwrap_or_default());
        if !claim.same_principal {
            return Err(self.is_held_by_another(claim));
        }
        let session = copy.work_lease.task_session_id.as_str();
        let is_legacy = claim.session.is_none();
        if !claim.mine && !is_legacy && claim.session.as_deref() != Some(session) {
            return Err(self.is_held_elsewhere(shown));
        }
        if self.session.as_ref() != Some(&copy.work_lease.task_session_id) {
            let message = "this worktree's session is not the one that the record names";
            let next = match self.is_given_session {
                // Who is somebody else here by the caller's own word.
                true => format!("git claim check --session {}", quote(session)),
                false if claim.mine => self.recover(),
                false => self.start(),
            };
            return Err(Refusal::new(Reason::SessionMismatch, message, next));
        }
        let conflict = self
            .verified
            .as_ref()
            .and_then(|verified| (verified.status != Status::Valid).then_some(verified.reason));
        match conflict {
            Some(Some(Conflict::OtherKey)) => {
                let message = format!("{id} was claimed by {holder} with another key");
                let next = "git claim whoami";
                Err(Refusal::new(Reason::OtherKey, message, next).exit(Exit::Conflict))
            }
            // What else is wrong with the token, the records tell better.
            _ => Ok(()),
        }
    }

    /// Whether the copy says what the server says.
    fn agrees(&self, copy: &Lock, record: &Lock) -> std::result::Result<(), Refusal> {
        let differs = |reason, what: &str| {
            Err(Refusal::new(
                reason,
                format!("this worktree's record and the server's differ in {what}"),
                match reason {
                    Reason::ClaimantMismatch | Reason::ProfileMismatch => self.start(),
                    _ => self.recover(),
                },
            ))
        };
        let place = |lock: &Lock| {
            (
                lock.remote.clone(),
                lock.org.clone(),
                lock.repo.clone(),
                lock.issue_number.clone(),
                lock.branch_name.clone(),
                lock.worktree_path.clone(),
            )
        };
        let (mine, theirs) = (&copy.work_lease, &record.work_lease);
        if place(copy) != place(record) || copy.issue_number != self.issue {
            let message = "this worktree's record and the server's differ in the repository, \
                           issue, branch or worktree";
            return Err(Refusal::new(Reason::BindingMismatch, message, self.start()));
        }
        if mine.claimant.username != theirs.claimant.username {
            return differs(Reason::ClaimantMismatch, "the claimant");
        }
        if mine.claimant.profile != theirs.claimant.profile {
            return differs(Reason::ProfileMismatch, "the claimant's key");
        }
        if mine.task_session_id != theirs.task_session_id {
            return differs(Reason::SessionMismatch, "the session");
        }
        if mine.token != theirs.token {
            return differs(Reason::TokenMismatch, "the token");
        }
        if mine.lease_id != theirs.lease_id || mine.acquired_at != theirs.acquired_at {
            return differs(Reason::LeaseMismatch, "the lease");
        }
        if copy.lock_provenance != record.lock_provenance {
            return differs(Reason::ProvenanceMismatch, "where it comes from");
        }
        // The server may be ahead: a heartbeat may be under way.
        if copy.lock_generation > record.lock_generation {
            return differs(
                Reason::GenerationMismatch,
                "the generation: the server's is behind",
            );
        }
        Ok(())
    }

    /// Whether the worktree is where the record says, and on its branch.
    fn is_in_place(&self, copy: &Lock) -> std::result::Result<(), Refusal> {
        let branch = &copy.branch_name;
        match &self.head {
            Head::Branch(name) if name == branch.as_str() => {}
            Head::Branch(name) => {
                let message = format!("{} is checked out, not {branch}", escape(name));
                let next = self.back_to(branch);
                return Err(Refusal::new(Reason::WrongBranch, message, next));
            }
            Head::Detached | Head::Bare => {
                let message = format!("HEAD is detached, not on {branch}");
                let next = self.back_to(branch);
                return Err(Refusal::new(Reason::DetachedHead, message, next));
            }
        }
        if self.worktree.tip(branch).is_none() {
            return Err(Refusal::new(
                Reason::WrongBranch,
                format!("branch {branch} is gone: HEAD names it, and it has no commit"),
                "git status",
            ));
        }
        if !self.is_registered {
            return Err(is_unregistered(&self.worktree, "git claim check"));
        }
        if !same(Path::new(&copy.worktree_path), &self.worktree.top) {
            return Err(Refusal::new(
                Reason::WorktreeMoved,
                format!(
                    "this worktree is not where the record says, {}",
                    escape(&copy.worktree_path)
                ),
                self.start(),
            ));
        }
        Ok(())
    }

    /// The command that checks the claim's branch out here again.
    fn back_to(&self, branch: &Branch) -> String {
        if self.worktree.is_at_work() {
            return "git status".to_owned();
        }
        let worktrees = self.worktree.worktrees().unwrap_or_default();
        let elsewhere = worktrees.iter().find(|worktree| worktree.is_on(branch));
        let name = quote(branch.as_str());
        match (elsewhere, self.worktree.tip(branch)) {
            (Some(other), _) if other.is_gone => {
                format!("git switch --ignore-other-worktrees {name}")
            }
            // It keeps its files, and lets go of the branch.
            (Some(other), _) => there(&other.path, "git switch --detach"),
            (None, Some(_)) => format!("git switch {name}"),
            (None, None) => format!("git switch -c {name}"),
        }
    }

    /// Ends what was for a work that is done: git keeps a worktree in which
    /// something is not committed, and every branch.
    fn leave(&self) -> String {
        let worktree = &self.worktree;
        let main = worktree.main_folder();
        match main.ok().filter(|_| worktree.is_linked()) {
            Some(main) => {
                let path = quote(&worktree.top.to_string_lossy());
                there(&main, &format!("git worktree remove {path}"))
            }
            None => format!("git unclaim {}", self.issue),
        }
    }

    /// Takes what is free, and writes the record of what is one's own anew.
    fn start(&self) -> String {
        format!("git claim start {}", self.issue)
    }

    /// The recovery of this record, as it is to be typed.
    fn recover(&self) -> String {
        let tip = self.branch().and_then(|branch| self.worktree.tip(&branch));
        match tip {
            Some(tip) => format!("git claim recover {} --expected-head {tip}", self.issue),
            None => self.start(),
        }
    }
}

/// The command that helps where one's own claim lives in another session. It
/// ends only what nobody can go on with.
pub fn way_to_own(present: &Repository, shown: &ClaimReply) -> String {
    let (id, claim) = (&shown.issue, &shown.claim);
    let look = format!("git claim inspect {id}");
    let session = claim.session.as_deref();
    let worktrees = present.worktrees().unwrap_or_default();
    if let Some(worktree) = worktree_of(&worktrees, id, session) {
        return there(&worktree.top, &look);
    }
    let is_here = claim.machine.as_deref() == Some(&session::machine_name());
    let Some(path) = claim.worktree.as_deref().map(Path::new).filter(|_| is_here) else {
        // It may well live: who knows better can take it over.
        return format!("git claim log {id}");
    };
    let registered = worktrees.iter().find(|worktree| same(&worktree.path, path));
    if let Some(next) = registered.and_then(unlock) {
        return next;
    }
    match fate(path, id, session) {
        Fate::InUse => there(path, &look),
        Fate::Unknown => format!("git claim log {id}"),
        Fate::Gone => {
            let branch: Option<Branch> = claim.branch.as_ref().and_then(|name| name.parse().ok());
            let tip = branch.as_ref().and_then(|branch| present.tip(branch));
            let (Some(branch), Some(tip)) = (branch, tip) else {
                return format!(
                    "git unclaim {id} --force --reason 'its worktree is gone' --expected-token {}",
                    claim.token
                );
            };
            let on_branch = worktrees
                .iter()
                .find(|worktree| worktree.is_on(&branch) && !worktree.is_gone);
            let place = on_branch.map_or_else(|| free_path(path), |found| found.path.clone());
            format!(
                "git claim recover {id} --expected-head {tip} --worktree {}",
                quote(&place.to_string_lossy())
            )
        }
    }
}

/// The worktree of this repository that acts as a claim's session.
pub fn worktree_of(
    worktrees: &[Worktree],
    issue: &str,
    session: Option<&str>,
) -> Option<Repository> {
    worktrees
        .iter()
        .filter(|worktree| !worktree.is_gone)
        .filter_map(|worktree| Repository::at(&worktree.path).ok())
        .find(|worktree| acts_as(worktree, issue, session))
}

/// Whether the copy in a worktree is the record of this very claim, made there.
pub fn is_recorded_in(
    worktree: &Repository,
    remote: &str,
    shown: &ClaimReply,
    held: &Session,
) -> Result<bool> {
    let copy = Copies::of(&worktree.git_dir, remote).load(&full(shown)?);
    Ok(match copy.as_ref().map(lock::read) {
        Some(Reading::Canonical(copy)) => {
            copy.work_lease.token.get() == shown.claim.token
                && copy.work_lease.task_session_id == *held
                && same(Path::new(&copy.worktree_path), &worktree.top)
        }
        Some(Reading::Incomplete { .. }) | None => false,
    })
}

/// The branch that a record names, however much else of it is missing.
pub fn branch_of(record: &Value) -> Option<String> {
    match lock::read(record) {
        Reading::Canonical(lock) => Some(lock.branch_name.to_string()),
        Reading::Incomplete { found, .. } => found.branch,
    }
}

/// A reply about one claim, a conflict included.
pub async fn ask(
    client: &mut Client,
    request: &Request,
    output: &mut Output,
) -> Result<ClaimReply> {
    client.ask(request, output).await?.read()
}

/// A request for the server's record.
pub fn show(client: &Client, issue: &IssueId, session: Option<&Session>) -> Result<Request> {
    Ok(Request::Show {
        repo: client.repo()?,
        issue: issue.clone(),
        session: session.cloned(),
    })
}

/// The full id that a reply names.
pub fn full(reply: &ClaimReply) -> Result<IssueId> {
    reply.issue.parse().map_err(|why| Failure {
        kind: Kind::Exit(Exit::NotNow),
        ..Failure::error(format!("the server's reply is not understood: {why}"))
    })
}

/// The worktree that has a copy of the record of `issue`: the present one
/// first. `None`: no registered worktree has.
pub fn bound_worktree(
    present: &Repository,
    remote: &str,
    issue: &IssueId,
) -> Result<Option<Repository>> {
    let has_copy =
        |worktree: &Repository| Copies::of(&worktree.git_dir, remote).path(issue).exists();
    if has_copy(present) {
        return Ok(Some(present.clone()));
    }
    let registered = present.worktrees()?.into_iter();
    Ok(registered
        .filter(|worktree| !worktree.is_gone)
        .filter_map(|worktree| Repository::at(&worktree.path).ok())
        .find(has_copy))
}

/// The claim that is bound to a worktree, as it stands.
///
/// # Errors
/// There is none, or more than one; with what has become of the one that was.
pub async fn bound(
    client: &mut Client,
    worktree: Repository,
    output: &mut Output,
) -> Result<Survey> {
    let refusal = match bound_issue(&worktree, client) {
        Ok(issue) => return Survey::take(client, worktree, issue, output).await,
        Err(refusal) => refusal,
    };
    if let Some(issue) = likely_issue(&worktree, client.remote()) {
        let survey = Survey::take(client, worktree, issue, output).await?;
        if survey.server.is_ok() {
            survey.judge()?;
        }
    }
    Err(refusal.into())
}

/// The issue whose claim is bound to a worktree.
///
/// # Errors
/// There is none, or more than one.
pub fn bound_issue(
    worktree: &Repository,
    client: &Client,
) -> std::result::Result<IssueId, Refusal> {
    only_issue(worktree, client.remote()).map_err(|refusal| refusal.addressed(client.address()))
}

fn only_issue(worktree: &Repository, remote: &str) -> std::result::Result<IssueId, Refusal> {
    let mut issues = Copies::of(&worktree.git_dir, remote).issues().into_iter();
    match (issues.next(), issues.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => {
            let next = match likely_issue(worktree, remote) {
                Some(id) => format!("git claim inspect {}", quote(id.as_str())),
                None => "git claims --mine".to_owned(),
            };
            let message = "no claim is bound to this worktree";
            Err(Refusal::new(Reason::NotBound, message, next))
        }
        (Some(one), Some(other)) => Err(Refusal::new(
            Reason::WorktreeBound,
            format!("more than one claim is bound to this worktree: {one}, {other}"),
            format!("git claim inspect {one}"),
        )),
    }
}

/// The issue that a worktree without a record is for: the record may be lost, and
/// the branch still says whose it was, or the token that is kept beside it.
fn likely_issue(worktree: &Repository, remote: &str) -> Option<IssueId> {
    if !Copies::of(&worktree.git_dir, remote).issues().is_empty() {
        return None;
    }
    let by_branch = match worktree.head() {
        Head::Branch(name) => name
            .strip_prefix("claim/")
            .and_then(|id| id.parse::<IssueId>().ok()),
        Head::Detached | Head::Bare => None,
    };
    by_branch.or_else(|| Tokens::of(&worktree.git_dir, remote).only_one())
}

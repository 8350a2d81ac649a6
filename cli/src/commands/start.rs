//! `git claim start`: claim an issue for one branch in one worktree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueHint;
use git_claim_api::duration::short;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{Branch, IssueId, RequestId, Session, Text, Token, Ttl};
use git_claim_api::lock::Lock;
use git_claim_api::reply::{ClaimReply, Reason as Conflict, State, Status, WhoamiReply, words};
use git_claim_api::text::escape;
use git_claim_api::verb::{Eviction, Request, Take};
use serde_json::json;

use crate::args::{issue_id, ttl};
use crate::bound::journal::Journal;
use crate::bound::making::{make_worktree, store};
use crate::bound::place::{NoPlace, Place};
use crate::bound::plan::{Ground, Plan, Target, Wish};
use crate::bound::quote::{quote, without_hooks};
use crate::bound::refusal::{Reason, Refusal};
use crate::bound::repository::{HookFailed, Over, Repository};
use crate::bound::survey::{self, Survey, full};
use crate::bound::{binding, push_option};
use crate::client::{self, Client};
use crate::completion::offer::Offer;
use crate::error::{Failure, Killed, Kind, Result};
use crate::hex::random;
use crate::interrupt;
use crate::noted;
use crate::output::{Output, people};
use crate::session;

/// Claim an issue for a branch and a worktree of its own
///
/// Claims the issue, makes the branch and a worktree for it, keeps the record
/// of the claim there, and reads it back from the server and from the disk.
/// Only when all of it is sound does it say that work may begin; else it undoes
/// what it made, and names the command that helps. Repeating it does no harm.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "git claim start [OPTIONS] <ID>\n       git claim start [OPTIONS] --next"
)]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id, add = Offer::Free, required_unless_present = "next")]
    pub id: Option<IssueId>,

    /// Take the first open issue that nobody holds
    #[arg(long, conflicts_with = "id")]
    pub next: bool,

    /// How long the claim lives unless it is renewed; without it, as long as
    /// the server thinks right
    #[arg(short, long, value_name = "DURATION", value_hint = ValueHint::Other, value_parser = ttl)]
    pub ttl: Option<Ttl>,

    /// The branch, made if it is not there; without it `claim/<id>`
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub branch: Option<Branch>,

    /// Where a new branch begins; without it the remote's default branch
    #[arg(long, value_name = "REV", value_hint = ValueHint::Other, conflicts_with = "here")]
    pub base: Option<String>,

    /// The worktree's folder; without it `<repository>.claims/<id>` beside the
    /// repository
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath, conflicts_with = "here")]
    pub worktree: Option<PathBuf>,

    /// Bind the present worktree and the branch that is checked out in it
    #[arg(long)]
    pub here: bool,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let mut work = Work::new(args, client)?;
    let outcome = interrupt::or_stop(work.steps(client, output)).await;
    let failure = match outcome {
        Ok(done) => {
            noted::seen(client.memory().keep(&done.reply), output);
            say(&done, output)?;
            return Ok(Exit::Done);
        }
        Err(failure) => failure,
    };
    let refusal = match work.refusal.take() {
        Some(refusal) => refusal,
        None => Refusal::from_failure(failure, Reason::Refused, work.again()),
    };
    let refusal = work.undo(refusal, client, output).await;
    Err(refusal.addressed(client.address()).into())
}

/// How far the server was asked to give the claim.
enum Asked {
    Not,
    /// The answer is not known. `was_mine`: it was held before this call.
    Sent {
        request: Box<Request>,
        was_mine: bool,
    },
    /// It is held. `begun`: by this call.
    Taken {
        token: u64,
        begun: bool,
    },
}

/// One's own claim in another session, which moves into the worktree's.
#[derive(Debug, Clone)]
struct Moved {
    from: Session,
    token: Token,
    ttl: Option<Ttl>,
    note: Option<Text>,
}

/// One call: what it is to do, and what it has made so far.
struct Work {
    args: Args,
    repository: Repository,
    journal: Journal,
    session: Option<Session>,
    asked: Asked,
    issue: Option<IssueId>,
    /// The branch that one's own live claim is bound to already.
    bound_to: Option<Branch>,
    moved: Option<Moved>,
    /// Kept until all is unmade.
    place: Option<Place>,
    refusal: Option<Refusal>,
    /// The session was named by the caller.
    is_given_session: bool,
    remote: String,
    patience: Duration,
}

/// All of it is sound.
struct Done {
    lock: Box<Lock>,
    reply: ClaimReply,
    push_option: String,
    is_carried: bool,
    /// What has the server look at claims when somebody pushes, where it does not.
    setup: Option<String>,
    is_own: bool,
}

impl Work {
    fn new(args: Args, client: &Client) -> Result<Work> {
        Ok(Work {
            repository: Repository::of(client.git())?,
            journal: Journal::default(),
            session: None,
            asked: Asked::Not,
            issue: args.id.clone(),
            bound_to: None,
            moved: None,
            place: None,
            refusal: None,
            is_given_session: client.given_session().is_some(),
            remote: client.remote().to_owned(),
            patience: client.timeout(),
            args,
        })
    }

    /// The steps, in their order. A refusal is kept beside the failure.
    async fn steps(&mut self, client: &mut Client, output: &mut Output) -> Result<Done> {
        match self.all(client, output).await {
            Ok(done) => Ok(done),
            Err(refusal) => {
                self.refusal = Some(refusal.clone());
                Err(refusal.into())
            }
        }
    }

    async fn all(
        &mut self,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<Done, Refusal> {
        let whoami = self.ask_who(client, output).await?;
        let (issue, before) = match self.args.id.clone() {
            Some(id) => self.look(&id, client, output).await?,
            None => self.take_next(client, output).await?,
        };
        self.issue = Some(issue.clone());
        self.bound_to = before
            .as_ref()
            .filter(|shown| shown.state == Some(State::Live) && shown.claim.same_principal)
            .and_then(|shown| shown.claim.branch.as_ref()?.parse().ok());
        let wish = self.wish();
        let plan = self.ground(&issue, &wish).plan().await?;
        let session = self.session_for(&plan, client)?;
        self.moved = self
            .to_move(before.as_ref(), &plan, client, output)
            .await
            .map_err(|failure| self.stopped(failure, Reason::Refused))?;
        // The folder first: from here on everybody sees that a call is at work
        // there, whatever becomes of it. Where a conflict is foreseen, nothing
        // is touched before it has not come.
        let is_anothers = self.is_anothers(before.as_ref());
        if !is_anothers {
            self.take_place(plan.target.path(), &issue)?;
        }
        let reply = self
            .claim(&issue, &plan, &session, before, client, output)
            .await?;
        if is_anothers {
            self.take_place(plan.target.path(), &issue)?;
        }
        let worktree = self.make(&plan, &session).await?;
        self.store(&worktree, &issue, &reply, client)?;
        let lock = self.read_back(&worktree, &issue, client, output).await?;
        let push_option = push_option::of(&lock);
        let is_carried =
            push_option::is_taken_everywhere(&client.git().config, client.remote(), &whoami);
        if is_carried {
            let set = worktree.alone().and_then(|alone| {
                push_option::set(&worktree, &push_option, &mut self.journal, &alone)
            });
            set.map_err(|error| self.failed(Reason::PushOptionFailed, error))?;
        }
        let is_own = !matches!(self.asked, Asked::Taken { begun: true, .. });
        Ok(Done {
            lock,
            reply,
            push_option,
            is_carried,
            setup: (whoami.push_options == Some(false)).then(|| client.setup()),
            is_own,
        })
    }

    async fn ask_who(
        &self,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<WhoamiReply, Refusal> {
        let whoami: Result<WhoamiReply> = async {
            client.log_in_once()?;
            let request = Request::Whoami {
                repo: Some(client.repo()?),
            };
            client.ask(&request, output).await?.read()
        }
        .await;
        let whoami = whoami.map_err(|failure| self.not_served(failure, client.shown_by()))?;
        if !matches!(whoami.access.as_deref(), Some("write" | "admin")) {
            return Err(Refusal::new(
                Reason::NotAllowed,
                "you may see the claims in this repository, but not take any; its admin can let you",
                "git claim whoami",
            ));
        }
        if whoami.key.is_none() {
            return Err(Refusal::new(
                Reason::IdentityUnresolved,
                "the server is not told your key, and a bound claim is a name's and a key's",
                "git claim whoami",
            ));
        }
        let longest = Ttl::new(whoami.max_ttl).ok();
        match (self.args.ttl, longest) {
            (Some(wanted), Some(longest)) if wanted > longest => {
                let wish = Wish {
                    ttl: Some(longest),
                    ..self.wish()
                };
                Err(Refusal::new(
                    Reason::Refused,
                    format!(
                        "a claim may live for {} at most here",
                        short(whoami.max_ttl)
                    ),
                    wish.command(self.issue.as_ref()),
                ))
            }
            _ => Ok(whoami),
        }
    }

    /// The issue's full id, and its claim as it is now.
    async fn look(
        &self,
        id: &IssueId,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<(IssueId, Option<ClaimReply>), Refusal> {
        let shown = async {
            let session = client.known_session()?;
            let request = survey::show(client, id, session.as_ref())?;
            let shown = survey::ask(client, &request, output).await?;
            Ok((full(&shown)?, Some(shown)))
        };
        shown
            .await
            .map_err(|failure| self.not_served(failure, "git claims".to_owned()))
    }

    /// Takes the first free issue, for a session that nobody has yet.
    async fn take_next(
        &mut self,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<(IssueId, Option<ClaimReply>), Refusal> {
        let session = match (client.given_session(), self.args.here) {
            (Some(session), _) => session.clone(),
            (None, true) => self.session_of(&self.repository)?,
            (None, false) => self.fresh_session()?,
        };
        self.session = Some(session.clone());
        let repo = client
            .repo()
            .map_err(|f| self.stopped(f, Reason::Refused))?;
        let request = Request::Next {
            repo,
            take: Take {
                ttl: self.args.ttl,
                session: Some(session),
                request: Some(self.request_id()?),
                ..Take::default()
            },
        };
        let reply = self.take(request, None, client, output).await?;
        let issue = full(&reply).map_err(|failure| self.stopped(failure, Reason::Refused))?;
        Ok((issue, None))
    }

    fn ground<'a>(&'a self, issue: &'a IssueId, wish: &'a Wish) -> Ground<'a> {
        Ground {
            repository: &self.repository,
            remote: &self.remote,
            issue,
            bound_to: self.bound_to.as_ref(),
            patience: self.patience,
            wish,
        }
    }

    /// What was typed, changed by what the ground knows.
    fn instead(&self, change: impl FnOnce(&Ground<'_>) -> String) -> String {
        match &self.issue {
            Some(issue) => change(&self.ground(issue, &self.wish())),
            None => self.again(),
        }
    }

    fn wish(&self) -> Wish {
        Wish {
            ttl: self.args.ttl,
            branch: self.args.branch.clone(),
            base: self.args.base.clone(),
            worktree: self.args.worktree.clone(),
            here: self.args.here,
        }
    }

    /// One's own live claim that this call may move into the worktree's
    /// session: a plain one of the worktree where this was typed, or the one
    /// that the record in the very worktree names, whose session was lost.
    async fn to_move(
        &self,
        before: Option<&ClaimReply>,
        plan: &Plan,
        client: &mut Client,
        output: &mut Output,
    ) -> Result<Option<Moved>> {
        let Some(shown) = before.filter(|shown| shown.state == Some(State::Live)) else {
            return Ok(None);
        };
        let claim = &shown.claim;
        let held = claim.session.as_deref().and_then(|held| held.parse().ok());
        let (Some(from), Ok(token), true) = (held, Token::new(claim.token), claim.same_principal)
        else {
            return Ok(None);
        };
        let is_plain_here =
            claim.branch.is_none() && client.known_session()?.as_ref() == Some(&from);
        let is_the_worktrees = client.given_session().is_none()
            && claim.machine.as_deref() == Some(&session::machine_name())
            && match &plan.target {
                Target::Reuse(worktree) => {
                    survey::is_recorded_in(worktree, client.remote(), shown, &from)?
                }
                Target::Make(_) => false,
            };
        if self.session.as_ref() == Some(&from) || !(is_plain_here || is_the_worktrees) {
            return Ok(None);
        }
        // With another key it is for a take-over with a reason of the caller's.
        let verify = Request::Verify {
            repo: client.repo()?,
            issue: full(shown)?,
            token,
            session: Some(from.clone()),
        };
        let verified = survey::ask(client, &verify, output).await?;
        Ok((verified.status == Status::Valid).then(|| Moved {
            from,
            token,
            ttl: claim.ttl.and_then(|seconds| Ttl::new(seconds).ok()),
            note: claim.note.as_ref().and_then(|note| note.parse().ok()),
        }))
    }

    /// Whether a claim was another's a moment ago, and is not to be moved.
    fn is_anothers(&self, before: Option<&ClaimReply>) -> bool {
        let session = self.session.as_ref().map(Session::as_str);
        self.moved.is_none()
            && before.is_some_and(|shown| {
                let is_own = shown.claim.same_principal
                    && (shown.claim.session.is_none() || shown.claim.session.as_deref() == session);
                shown.state == Some(State::Live) && !is_own
            })
    }

    fn take_place(&mut self, path: &Path, issue: &IssueId) -> std::result::Result<(), Refusal> {
        match Place::take(path, &mut self.journal) {
            Ok(place) => {
                self.place = Some(place);
                Ok(())
            }
            Err(why) => {
                let next = match why {
                    NoPlace::Busy(_) => format!("git claim inspect {issue}"),
                    NoPlace::Unmade { .. } => self.instead(|ground| ground.in_another_place(path)),
                };
                Err(Refusal::new(Reason::WorktreeFailed, why.to_string(), next))
            }
        }
    }

    /// The session that the claim is taken with: the one that was given, else
    /// the worktree's own, else a new one for a worktree that has none yet.
    fn session_for(
        &mut self,
        plan: &Plan,
        client: &Client,
    ) -> std::result::Result<Session, Refusal> {
        let session = match (client.given_session(), &self.session, &plan.target) {
            (Some(session), ..) => session.clone(),
            // `--next` has claimed with it already.
            (None, Some(session), _) => session.clone(),
            (None, None, Target::Make(_)) => self.fresh_session()?,
            (None, None, Target::Reuse(worktree)) => self.session_of(worktree)?,
        };
        self.session = Some(session.clone());
        Ok(session)
    }

    async fn claim(
        &mut self,
        issue: &IssueId,
        plan: &Plan,
        session: &Session,
        before: Option<ClaimReply>,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<ClaimReply, Refusal> {
        let moved = self.moved.as_ref();
        // What lives goes on to live as long as it did.
        let own_ttl = before
            .as_ref()
            .filter(|shown| shown.state == Some(State::Live))
            .filter(|shown| shown.claim.session.as_deref() == Some(session.as_str()))
            .and_then(|shown| Ttl::new(shown.claim.ttl?).ok());
        let made: Result<Request> = (|| {
            Ok(Request::Acquire {
                repo: client.repo()?,
                issue: issue.clone(),
                take: Take {
                    ttl: self
                        .args
                        .ttl
                        .or(moved.and_then(|moved| moved.ttl))
                        .or(own_ttl),
                    note: moved.and_then(|moved| moved.note.clone()),
                    take_over: match moved {
                        Some(moved) => Some(Eviction {
                            reason: reason("start in", plan.target.path())?,
                            expected_token: Some(moved.token),
                        }),
                        None => None,
                    },
                    session: Some(session.clone()),
                    binding: Some(binding(client, &plan.branch, plan.target.path())?),
                    request: Some(self.request_id()?),
                    ..Take::default()
                },
            })
        })();
        let request = made.map_err(|failure| self.stopped(failure, Reason::Refused))?;
        self.take(request, before, client, output).await
    }

    /// Asks for the claim. An answer that is lost is asked for once more: the
    /// request's id makes it the same request.
    async fn take(
        &mut self,
        request: Request,
        before: Option<ClaimReply>,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<ClaimReply, Refusal> {
        let held_before = match &self.asked {
            Asked::Taken { begun, .. } => Some(*begun),
            _ => None,
        };
        // Whatever the answer says of the tenure, a request that is answered
        // twice has begun what was not there before.
        let was_mine = before.as_ref().is_some_and(|shown| {
            shown.state == Some(State::Live)
                && shown.claim.same_principal
                && shown.claim.session.as_deref() == self.session.as_ref().map(Session::as_str)
        });
        if held_before.is_none() {
            self.asked = Asked::Sent {
                request: Box::new(request.clone()),
                was_mine,
            };
        }
        let mut answer = client.ask(&request, output).await;
        if answer.as_ref().is_err_and(|f| f.kind.is_not_now()) {
            client.hang_up();
            answer = client.ask(&request, output).await;
        }
        let reply = match answer {
            Ok(reply) => reply,
            Err(failure) => {
                if !failure.kind.is_not_now() && held_before.is_none() {
                    self.asked = Asked::Not;
                }
                return Err(self.not_granted(failure, &request));
            }
        };
        let claim: Result<ClaimReply> = match reply.exit {
            Exit::Nothing => Err(Failure::new(Exit::Nothing, "nothing left to take")),
            _ => reply.read(),
        };
        let claim = match claim {
            Ok(claim) => claim,
            Err(failure) => {
                self.asked = Asked::Not;
                return Err(Refusal {
                    next: "git claims".to_owned(),
                    ..self.stopped(failure, Reason::NothingToTake)
                });
            }
        };
        if claim.status == Status::Acquired {
            self.asked = Asked::Taken {
                token: claim.claim.token,
                begun: held_before.unwrap_or(!was_mine),
            };
            return Ok(claim);
        }
        if held_before.is_none() {
            self.asked = Asked::Not;
        }
        let (reason, next) = match claim.reason {
            Some(Conflict::OtherKey) => (Reason::OtherKey, "git claim whoami".to_owned()),
            _ if claim.claim.same_principal => {
                // Its folder may be the very one, and is not in use by this call.
                self.place = None;
                (
                    Reason::HeldInOtherSession,
                    survey::way_to_own(&self.repository, &claim),
                )
            }
            _ if claim.has_next == Some(false) => (Reason::Held, "git claims".to_owned()),
            _ => (Reason::Held, self.wish().next_one()),
        };
        let told = people::conflict(&claim, people::Doing::Claim);
        Err(Refusal::new(reason, told.message, next).exit(Exit::Conflict))
    }

    /// What the server does not grant, with a way round it.
    fn not_granted(&self, failure: Failure, request: &Request) -> Refusal {
        let branch = match request {
            Request::Acquire { take, .. } => take.binding.as_ref().map(|binding| &binding.branch),
            _ => None,
        };
        let next = match (failure.kind, branch) {
            (kind, _) if kind != Kind::Exit(Exit::Error) => self.again(),
            _ if failure.message.ends_with(words::CLOSED) => self.wish().next_one(),
            (_, Some(branch)) if failure.message.starts_with(words::BRANCH) => {
                self.instead(|ground| ground.on_another_branch(branch))
            }
            _ => "git claims".to_owned(),
        };
        Refusal::from_failure(failure, Reason::Refused, next)
    }

    /// The branch and the worktree.
    async fn make(
        &mut self,
        plan: &Plan,
        session: &Session,
    ) -> std::result::Result<Repository, Refusal> {
        if let Some(at) = &plan.base {
            self.journal.branch(&plan.branch, at, &self.repository);
            if let Err(error) = self.repository.make_branch(&plan.branch, at).await {
                // Where git was killed, it may be there all the same.
                if !error.is::<Killed>() {
                    self.journal.forget_last();
                }
                let next = self.instead(|ground| ground.on_another_branch(&plan.branch));
                return Err(self.failed_with(Reason::BranchFailed, error, next));
            }
        }
        match (&plan.target, &self.place) {
            (Target::Make(_), Some(place)) => {
                let made = make_worktree(
                    &self.repository,
                    place,
                    &plan.branch,
                    Over::Nothing,
                    session,
                    &mut self.journal,
                );
                made.await.map_err(|error| {
                    let next = match error.is::<HookFailed>() {
                        true => without_hooks(&self.again()),
                        false => self.instead(|ground| ground.in_another_place(plan.target.path())),
                    };
                    self.failed_with(Reason::WorktreeFailed, error, next)
                })
            }
            (Target::Make(path), None) => {
                let error = anyhow::anyhow!("{} was not made", path.display());
                Err(self.failed(Reason::WorktreeFailed, error))
            }
            (Target::Reuse(worktree), _) => {
                self.give_session(worktree, session)?;
                Ok(worktree.clone())
            }
        }
    }

    fn store(
        &mut self,
        worktree: &Repository,
        issue: &IssueId,
        reply: &ClaimReply,
        client: &Client,
    ) -> std::result::Result<(), Refusal> {
        let stored = store(worktree, client.remote(), issue, reply, &mut self.journal);
        stored.map_err(|error| self.failed(Reason::RecordNotStored, error))
    }

    /// What both sides have now, which must be canonical and the same.
    async fn read_back(
        &self,
        worktree: &Repository,
        issue: &IssueId,
        client: &mut Client,
        output: &mut Output,
    ) -> std::result::Result<Box<Lock>, Refusal> {
        let survey = Survey::take(client, worktree.clone(), issue.clone(), output).await;
        let survey = survey.map_err(|failure| self.stopped(failure, Reason::Refused))?;
        survey.judge().map_err(|refusal| Refusal {
            next: self.again(),
            ..refusal
        })
    }

    /// The session of a worktree that is there, or the one that it will have.
    fn session_of(&self, worktree: &Repository) -> std::result::Result<Session, Refusal> {
        let known = session::known(&worktree.git_dir)
            .map_err(|error| self.failed(Reason::RecordNotStored, error))?;
        match known {
            Some(session) => Ok(session),
            None => self.fresh_session(),
        }
    }

    /// A worktree that is there goes on with the session that the claim was
    /// taken with: it has none, or `--next` could not know yet that it would be
    /// this one.
    fn give_session(
        &mut self,
        worktree: &Repository,
        session: &Session,
    ) -> std::result::Result<(), Refusal> {
        let is_by_next = self.args.next && !self.is_given_session;
        let known = session::known(&worktree.git_dir);
        if matches!(known, Ok(Some(known)) if known == *session || !is_by_next) {
            return Ok(());
        }
        let given = self
            .journal
            .file(&session::file(&worktree.git_dir))
            .map_err(anyhow::Error::from)
            .and_then(|()| session::replace(&worktree.git_dir, session));
        given.map_err(|error| self.failed(Reason::RecordNotStored, error))
    }

    fn fresh_session(&self) -> std::result::Result<Session, Refusal> {
        session::random_session().map_err(|error| self.failed(Reason::Refused, error))
    }

    fn request_id(&self) -> std::result::Result<RequestId, Refusal> {
        let id = random::<12>().map_err(anyhow::Error::from);
        id.and_then(|id| Ok(id.parse()?))
            .map_err(|error| self.failed(Reason::Refused, error))
    }

    /// A step of this machine's that did not work.
    fn failed(&self, reason: Reason, error: anyhow::Error) -> Refusal {
        self.failed_with(reason, error, self.again())
    }

    /// The same with a command that helps.
    fn failed_with(&self, reason: Reason, error: anyhow::Error, next: String) -> Refusal {
        let failure = Failure::from(error);
        let next = match failure.kind {
            // Whoever stopped it can have it again.
            Kind::Interrupted(_) => self.again(),
            _ => next,
        };
        Refusal::from_failure(failure, reason, next)
    }

    /// The server's or the connection's failure.
    fn stopped(&self, failure: Failure, reason: Reason) -> Refusal {
        Refusal::from_failure(failure, reason, self.again())
    }

    /// The same, where asking again is of use only if the server could not
    /// answer now.
    fn not_served(&self, failure: Failure, otherwise: String) -> Refusal {
        match failure.kind {
            Kind::Exit(Exit::Error) => Refusal::from_failure(failure, Reason::Refused, otherwise),
            // Its hint says who can do what.
            Kind::Exit(Exit::NoVerb) => {
                Refusal::from_failure(failure, Reason::Refused, "git claim whoami")
            }
            _ => self.stopped(failure, Reason::Refused),
        }
    }

    /// The same once more.
    fn again(&self) -> String {
        self.wish().command(self.issue.as_ref())
    }

    /// Unmakes what this call made, and gives back what it took.
    async fn undo(
        mut self,
        mut refusal: Refusal,
        client: &mut Client,
        output: &mut Output,
    ) -> Refusal {
        for trouble in self.journal.undo(&self.repository) {
            output.warning(&format!("this could not be undone: {trouble}"));
        }
        if let Err(failure) = self.give_back(client, output).await {
            let session = self.session.as_ref().map(ToString::to_string);
            refusal.message = format!(
                "{}; the claim may still be held: {}",
                refusal.message, failure.message
            );
            if let (Some(session), Some(issue)) = (session, &self.issue) {
                refusal.next = format!("{} --session {session}", self.wish().command(Some(issue)));
            }
        }
        refusal
    }

    async fn give_back(&mut self, client: &mut Client, output: &mut Output) -> Result<()> {
        let token = match std::mem::replace(&mut self.asked, Asked::Not) {
            Asked::Not | Asked::Taken { begun: false, .. } => return Ok(()),
            Asked::Taken { token, begun: true } => token,
            Asked::Sent { was_mine: true, .. } => return Ok(()),
            Asked::Sent { request, .. } => {
                // Whether it arrived is not known: asked again, it is the same
                // request, and its answer is.
                client.hang_up();
                let reply = survey::ask(client, &request, output).await?;
                if reply.status != Status::Acquired {
                    return Ok(());
                }
                self.issue = Some(full(&reply)?);
                reply.claim.token
            }
        };
        let Some(issue) = self.issue.clone() else {
            return Ok(());
        };
        client.hang_up();
        match self.moved.take() {
            Some(moved) => self.move_back(issue, moved, token, client, output).await,
            None => {
                let request = Request::Release {
                    repo: client.repo()?,
                    issue,
                    session: self.session.clone(),
                    token: Token::new(token).ok(),
                    force: None,
                };
                client.ask(&request, output).await?;
                Ok(())
            }
        }
    }

    /// The claim was held before: it goes back to the session that had it.
    async fn move_back(
        &self,
        issue: IssueId,
        moved: Moved,
        token: u64,
        client: &mut Client,
        output: &mut Output,
    ) -> Result<()> {
        let request = Request::Acquire {
            repo: client.repo()?,
            issue: issue.clone(),
            take: Take {
                ttl: moved.ttl,
                note: moved.note,
                session: Some(moved.from),
                request: Some(client::request_id()?),
                take_over: Some(Eviction {
                    reason: reason("start failed in", &self.repository.top)?,
                    expected_token: Token::new(token).ok(),
                }),
                ..Take::default()
            },
        };
        let back = survey::ask(client, &request, output).await?;
        if back.status != Status::Acquired {
            return Err(Failure::error("it could not be put back"));
        }
        Ok(client.tokens().put(&issue, back.claim.token)?)
    }
}

/// Why a claim moves, for its history.
fn reason(what: &str, path: &Path) -> Result<Text> {
    format!("{what} {}", path.to_string_lossy())
        .parse()
        .map_err(|why| Failure::error(format!("the worktree's path cannot be recorded: {why}")))
}

fn say(done: &Done, output: &mut Output) -> Result<()> {
    let lock = &done.lock;
    if output.json() {
        let reply = json!({
            "success": true,
            "work_allowed": true,
            "missing": [],
            "issue": lock.issue_number,
            "branch": lock.branch_name,
            "worktree": lock.worktree_path,
            "token": lock.work_lease.token,
            "tenure": if done.is_own { "own" } else { "new" },
            "expires_at": lock.work_lease.expires_at,
            "push_option": done.push_option,
            "push_option_set": done.is_carried,
            "lock": lock,
        });
        return output.value(&reply);
    }
    output.sentence(&people::started(&done.reply, lock, done.is_own))?;
    let push = if done.is_carried {
        format!(
            "`git push -u {} HEAD` carries the claim's token",
            escape(&quote(&done.lock.remote))
        )
    } else if let Some(setup) = &done.setup {
        format!("push as ever: the server looks at no claims until {setup} is run there")
    } else {
        format!("push with `git push -o {}`", done.push_option)
    };
    output.sentence(&format!(
        "{push}\nwork may begin: cd {}",
        escape(&quote(&lock.worktree_path))
    ))
}

//! One request from its words to its reply: parse, find the repository, ask
//! whether the user may, hand over to a verb, print one line.

use std::path::Path;
use std::time::{Duration, Instant};

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session, Ttl};
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::PluginSettings;
use git_claim_api::text::{escape, json_line};
use git_claim_api::verb::{BadCommand, RepoArg, Request};
use serde::Serialize;

use crate::claim::change::{self, Scene};
use crate::claim::{Caller, Claim, Ended, Now};
use crate::host::{Host, HostError, Level, Stream};
use crate::input::BadInput;
use crate::ledger::{self, Clock, Ledger, LedgerError, Transaction, Verdict, Version, View, When};
use crate::queries::{self, QueryError};
use crate::repository::{Repository, RepositoryError};
use crate::serve;
use crate::tracker::{self, Tracker, TrackerError};
use crate::verbs;

/// How long a copy of the whole ledger may take.
const LEISURE: Duration = Duration::from_secs(60 * 60);

/// Who asks, as the host authenticated them.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The principal's permanent name.
    pub name: &'a str,
    /// The key's fingerprint, or what stands for it.
    pub key: Option<&'a str>,
    /// Whether the host itself asks.
    pub is_host: bool,
}

/// Why a request has no reply of its own.
#[derive(Debug)]
pub enum Failure {
    /// Exit 1: the request can't be served as it is.
    Refused(String),
    /// Exit 6: not now; nothing was changed.
    NotNow(String),
    /// The same for what does not pass by itself.
    Lasting { why: String, remedy: Remedy },
    /// The peer has gone; there is nobody to tell.
    Gone,
}

/// Who mends what does not pass by itself, in words for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Issues are kept in the repository, where people push them.
    Push,
    Admin,
    /// It may pass, where it was the matter of another server's.
    AdminPerhaps,
    /// One issue is read quickly.
    ById,
}

impl Remedy {
    pub fn hint(self) -> &'static str {
        match self {
            Remedy::Push => {
                "trying again does not help before somebody mends the issues, by a push or on the server"
            }
            Remedy::Admin => {
                "trying again does not help before the server's administrator has mended it"
            }
            Remedy::AdminPerhaps => {
                "trying again is safe; if it stays so, the server's administrator has to mend it"
            }
            Remedy::ById => "trying again does not help; claim one by its id",
        }
    }
}

impl Failure {
    fn lasting(error: &dyn std::fmt::Display, remedy: Remedy) -> Failure {
        Failure::Lasting {
            why: error.to_string(),
            remedy,
        }
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Failure {
        match error {
            LedgerError::Taken(_) => Failure::Refused(error.to_string()),
            LedgerError::Busy => Failure::NotNow(format!("{error}; try again")),
            LedgerError::Again | LedgerError::Unsure { .. } => Failure::NotNow(error.to_string()),
            LedgerError::Full(_)
            | LedgerError::Unfit { .. }
            | LedgerError::Damaged { .. }
            | LedgerError::Quota(_) => Failure::lasting(&error, Remedy::Admin),
            LedgerError::Unreachable { .. }
            | LedgerError::Etcd { .. }
            | LedgerError::Sqlite { .. } => Failure::lasting(&error, Remedy::AdminPerhaps),
        }
    }
}

impl From<TrackerError> for Failure {
    fn from(error: TrackerError) -> Failure {
        match error {
            TrackerError::NotFound(_)
            | TrackerError::Ambiguous { .. }
            | TrackerError::NoOrder(_)
            | TrackerError::Unknown(_)
            | TrackerError::Unusable { .. }
            | TrackerError::Several(_) => Failure::Refused(error.to_string()),
            TrackerError::Broken { tracker, .. } => {
                Failure::lasting(&error, tracker::mended_by(tracker))
            }
            TrackerError::Late(_) => Failure::lasting(&error, Remedy::ById),
            TrackerError::Repository(error) => error.into(),
        }
    }
}

impl From<BadInput> for Failure {
    fn from(error: BadInput) -> Failure {
        match error {
            BadInput::Gone => Failure::Gone,
            _ => Failure::Refused(error.to_string()),
        }
    }
}

impl From<RepositoryError> for Failure {
    fn from(error: RepositoryError) -> Failure {
        Failure::lasting(&error, Remedy::Admin)
    }
}

/// A reply and the exit code that goes with it.
#[derive(Debug)]
pub struct Answer {
    pub exit: Exit,
    pub json: String,
}

impl Answer {
    /// `reply` as one line of JSON.
    ///
    /// # Errors
    /// It has no JSON form.
    pub fn new(exit: Exit, reply: &impl Serialize) -> Result<Answer, Failure> {
        match json_line(reply) {
            Ok(json) => Ok(Answer { exit, json }),
            Err(error) => Err(Failure::NotNow(format!("the reply has no form: {error}"))),
        }
    }
}

/// What all requests of one instance share.
pub struct Server<'a> {
    pub ledger: &'a dyn Ledger,
    pub settings: &'a PluginSettings,
    pub host: &'a dyn Host,
}

impl Server<'_> {
    /// Runs one request and prints its reply or its error. `None`: the peer
    /// has gone before the reply was out.
    pub fn exec(&self, command: &[u8], asker: Asker<'_>, deadline: Instant) -> Option<Exit> {
        let answered = match Request::parse(command) {
            Ok(Request::Serve { repo }) => match serve::run(self, &repo, asker) {
                Ok(exit) => return Some(exit),
                Err(failure) => Err(failure),
            },
            Ok(request) => self.answer(request, asker, deadline),
            Err(error) => Err(Failure::Refused(error.to_string())),
        };
        let (stream, line, exit) = match answered {
            Ok(answer) => (Stream::Stdout, answer.json, answer.exit),
            Err(Failure::Refused(why)) => (Stream::Stderr, error_line(&why), Exit::Error),
            Err(Failure::NotNow(why)) => {
                self.host.log(Level::Warn, &escape(&why));
                (Stream::Stderr, error_line(&why), Exit::NotNow)
            }
            Err(Failure::Lasting { why, remedy }) => {
                self.host.log(Level::Warn, &escape(&why));
                let lines = format!("{}\nhint: {}", error_line(&why), remedy.hint());
                (Stream::Stderr, lines, Exit::NotNow)
            }
            Err(Failure::Gone) => return None,
        };
        self.host
            .write(stream, format!("{line}\n").as_bytes())
            .ok()?;
        Some(exit)
    }

    /// Answers one read-only question, as a line of JSON.
    ///
    /// # Errors
    /// [`QueryError`]; what is wrong with the server is in the host's log.
    pub fn query(
        &self,
        name: &str,
        params: &[u8],
        asker: Asker<'_>,
        deadline: Instant,
    ) -> Result<String, QueryError> {
        let call = self.call(asker, deadline);
        let answer = queries::run(&call, name, params);
        if let Err(QueryError::Failed(why) | QueryError::Params(why)) = &answer {
            call.warn(why);
        }
        answer
    }

    /// Serves one request and prints nothing.
    ///
    /// # Errors
    /// There is no reply.
    pub fn answer(
        &self,
        request: Request,
        asker: Asker<'_>,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        if request.is_host_only() && !asker.is_host {
            let unknown = BadCommand::UnknownSubverb(request.subverb().to_owned());
            return Err(Failure::Refused(unknown.to_string()));
        }
        verbs::run(&self.call(asker, deadline), request)
    }

    /// A request that begins now.
    pub fn call<'a>(&'a self, asker: Asker<'a>, deadline: Instant) -> Call<'a> {
        Call {
            server: self,
            asker,
            deadline,
            now: Now(self.host.now_ms()),
        }
    }
}

fn error_line(why: &str) -> String {
    format!("error: {}", escape(why))
}

/// One request under way.
pub struct Call<'a> {
    server: &'a Server<'a>,
    asker: Asker<'a>,
    /// After this nothing is changed any more.
    pub deadline: Instant,
    /// When the request began.
    pub now: Now,
}

/// What unknown and unauthorised repositories have in common: one answer.
fn not_found() -> Failure {
    Failure::Refused("repository not found".to_owned())
}

impl<'a> Call<'a> {
    /// Looks at the ledger.
    ///
    /// # Errors
    /// As [`Ledger::read`].
    pub fn read(
        &self,
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        self.server.ledger.read(self.when(), look)
    }

    /// Changes the ledger, for a peer that is still there: one that has gone may
    /// have asked again by now, and been told otherwise. What the host itself asks
    /// for is done whoever has gone.
    ///
    /// # Errors
    /// As [`Ledger::change`]; the peer has gone, and nothing was changed.
    pub fn change(
        &self,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), Failure> {
        let mut is_cancelled = false;
        self.server.ledger.change(self.when(), &mut |transaction| {
            let verdict = work(transaction)?;
            is_cancelled = verdict == Verdict::Commit
                && !self.asker.is_host
                && self.server.host.is_cancelled();
            Ok(if is_cancelled {
                Verdict::Discard
            } else {
                verdict
            })
        })?;
        if is_cancelled {
            Err(Failure::Gone)
        } else {
            Ok(())
        }
    }

    /// The ledger's version.
    ///
    /// # Errors
    /// As [`Ledger::version`].
    pub fn version(&self) -> Result<Version, LedgerError> {
        self.server.ledger.version(self.when())
    }

    /// Copies the ledger.
    ///
    /// # Errors
    /// As [`Ledger::backup`].
    pub fn backup(&self, file: &Path) -> Result<u64, LedgerError> {
        self.server.ledger.backup(self.at_leisure(), file)
    }

    /// Makes an empty ledger.
    ///
    /// # Errors
    /// As [`Ledger::create`].
    pub fn create(&self) -> Result<(), LedgerError> {
        self.server.ledger.create(self.when())
    }

    /// Moves the ledger.
    ///
    /// # Errors
    /// As [`ledger::migrate`].
    pub fn migrate(&self, to: &LedgerPlace) -> Result<u64, LedgerError> {
        let settings = self.settings();
        let (at, files) = (&settings.ledger, &settings.etcd);
        ledger::migrate(self.server.ledger, at, to, files, self.at_leisure())
    }

    /// For what the administrator asks, which takes as long as the ledger is
    /// large.
    fn at_leisure(&self) -> When<'_> {
        When {
            deadline: Instant::now() + LEISURE,
            ..self.when()
        }
    }

    fn when(&self) -> When<'_> {
        When {
            clock: self,
            deadline: self.deadline,
        }
    }

    /// The server's settings.
    pub fn settings(&self) -> &'a PluginSettings {
        self.server.settings
    }

    /// The host.
    pub fn host(&self) -> &'a dyn Host {
        self.server.host
    }

    /// The principal that asks.
    pub fn asker(&self) -> Asker<'a> {
        self.asker
    }

    /// Finds the repository and makes sure that the user has `need` there.
    ///
    /// # Errors
    /// "repository not found", also for those who may not know of it.
    pub fn admit(&self, name: &RepoArg, need: Access) -> Result<Admitted<'_>, Failure> {
        let host = self.server.host;
        let repo = match host.resolve_repo(name.as_str()) {
            Ok(repo) => repo,
            Err(HostError::NotFound) => return Err(not_found()),
            Err(HostError::Failed(status)) => return Err(host_failed(status)),
        };
        if !host.authorize(&repo, need) {
            // Only who may see the repository is told what is missing.
            if need > Access::Read && host.authorize(&repo, Access::Read) {
                return Err(Failure::Refused(format!(
                    "{} may see the claims in {repo}, but not take any; ask its admin for {} access",
                    self.asker.name,
                    need.name()
                )));
            }
            return Err(not_found());
        }
        let repository = match host.repo_path(&repo) {
            Ok(path) => path.map(Repository::at),
            Err(HostError::NotFound) => None,
            Err(HostError::Failed(status)) => return Err(host_failed(status)),
        };
        Ok(Admitted {
            call: self,
            repo,
            repository,
            access: need,
        })
    }

    /// A line for the admin.
    pub fn warn(&self, line: &str) {
        self.server.host.log(Level::Warn, &escape(line));
    }
}

impl Clock for Call<'_> {
    fn now(&self) -> Now {
        Now(self.server.host.now_ms())
    }
}

fn host_failed(status: i32) -> Failure {
    Failure::NotNow(format!("the host could not answer (status {status})"))
}

/// A request in a repository that the user may use.
pub struct Admitted<'a> {
    pub call: &'a Call<'a>,
    /// The repository's permanent id.
    pub repo: String,
    repository: Option<Repository>,
    /// The right that was asked for and given.
    access: Access,
}

impl Admitted<'_> {
    /// Whether the user has `access` here.
    pub fn may(&self, access: Access) -> bool {
        self.access >= access || self.call.server.host.authorize(&self.repo, access)
    }

    /// The user in `session`, with the right that was asked for.
    pub fn caller(&self, session: Option<&Session>) -> Caller {
        Caller {
            name: self.call.asker.name.to_owned(),
            profile: self.call.asker.key.map(str::to_owned),
            session: session.cloned(),
            access: self.access,
        }
    }

    /// Tells the host of a change that is durable.
    pub fn announce(
        &self,
        issue: &IssueId,
        now: Now,
        before: &Claim,
        after: &Claim,
        ended: Option<&Ended>,
    ) {
        let host = self.call.server.host;
        if !host.hears_events() {
            return;
        }
        let scene = Scene {
            repo: &self.repo,
            issue,
            now,
            session: &|tenure| tenure.session.as_ref().map(ToString::to_string),
        };
        for event in change::events(scene, before, after, ended) {
            let told = json_line(&event).map(|json| host.event(&json));
            if !matches!(told, Ok(Ok(()))) {
                let line = format!("{}: a hook was not told of a change: {told:?}", self.repo);
                self.call.warn(&line);
            }
        }
    }

    /// The repository on this disk.
    pub fn repository(&self) -> Option<&Repository> {
        self.repository.as_ref()
    }

    /// The repository's tracker.
    ///
    /// # Errors
    /// None that can be read.
    pub fn tracker(&self) -> Result<Tracker<'_>, TrackerError> {
        self.tracker_until(self.call.deadline)
    }

    /// The same for answers that are of use until `deadline` alone.
    ///
    /// # Errors
    /// None that can be read.
    pub fn tracker_until(&self, deadline: Instant) -> Result<Tracker<'_>, TrackerError> {
        Tracker::of(
            self.call.server.host,
            &self.repo,
            self.repository.as_ref(),
            deadline,
        )
    }

    /// The limits that hold here: the longest TTL, and what a bound claim gets.
    ///
    /// # Errors
    /// A setting that is none.
    pub fn ttls(&self) -> Result<Ttls, Failure> {
        let own = match &self.repository {
            Some(repository) => repository.settings()?,
            None => crate::repository::RepositorySettings::default(),
        };
        let settings = self.call.settings();
        let of = |seconds: u64| Ttl::new(seconds).map_err(|e| Failure::NotNow(e.to_string()));
        let longest = match own.max_ttl {
            Some(ttl) => ttl,
            None => of(settings.max_ttl)?,
        };
        let default = match own.default_ttl {
            Some(ttl) => ttl,
            None => of(settings.default_ttl)?,
        };
        Ok(Ttls {
            longest,
            default: default.min(longest),
        })
    }
}

/// The limits on times to live in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttls {
    pub longest: Ttl,
    pub default: Ttl,
}

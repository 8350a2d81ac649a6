//! One call's view of the world: the repository it runs in, the remote it
//! asks, who it asks as.

use std::time::Duration;

use git_claim_api::ids::{RequestId, Session};
use git_claim_api::text::escape;
use git_claim_api::verb::{RepoArg, Request};

use crate::answer::{self, Reply};
use crate::args::Global;
use crate::bound::quote::quote;
use crate::clock::Moment;
use crate::error::{Failure, Kind, Result};
use crate::git::Git;
use crate::hex::random;
use crate::output::Output;
use crate::remote::{self, Source};
use crate::seen::Memory;
use crate::sense;
use crate::session;
use crate::settings::{self, Settings};
use crate::token::Tokens;
use crate::transport::{News, Transport};

/// What a command asks through.
#[derive(Debug)]
pub struct Client {
    git: Git,
    remote: String,
    /// Where the remote is.
    url: String,
    source: Source,
    /// `--session` or `GIT_CLAIM_SESSION`.
    given_session: Option<Session>,
    /// The options of the command line that say whom to ask, and as whom.
    address: String,
    repo: String,
    transport: Transport,
}

impl Client {
    /// Runs `command` with a client. Whatever ends it, no connection stays open
    /// that is not meant to.
    pub fn with<T>(
        global: &Global,
        output: &mut Output,
        command: impl AsyncFnOnce(&mut Client, &mut Output) -> Result<T>,
    ) -> Result<T> {
        let mut client = Client::open(global, output)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::error(format!("no event loop can be had: {error}")))?;
        runtime.block_on(async {
            let outcome = command(&mut client, output).await;
            client.transport.close().await;
            outcome
        })
    }

    fn open(global: &Global, output: &mut Output) -> Result<Client> {
        let given_session = match &global.session {
            Some(session) => Some(session.clone()),
            None => session_of_environment()?,
        };
        let mut address = String::new();
        for (option, value) in [
            ("-r", global.remote.clone()),
            (
                "--session",
                global.session.as_ref().map(ToString::to_string),
            ),
        ] {
            if let Some(value) = value {
                address += &format!(" {option} {}", quote(&value));
            }
        }
        let git = Git::discover()?;
        output.configure(&git.config);
        for key in settings::unknown(&git.config) {
            output.warning(&format!(
                "the setting {} is not known and has no effect",
                escape(&key)
            ));
        }
        let settings = Settings::read(&git.config)?;
        let remote = remote::choose(&git, global.remote.as_deref())?;
        let (transport, repo) = Transport::to(&remote, &git, settings)?;
        Ok(Client {
            git,
            source: remote.source,
            url: remote.url,
            remote: remote.name,
            given_session,
            address,
            repo,
            transport,
        })
    }

    /// The repository that the command runs in.
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// The name of the remote that is asked.
    pub fn remote(&self) -> &str {
        &self.remote
    }

    /// `-r` and `--session` as they were typed, for the next command: without
    /// them it might act on another server, or as somebody else.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The command that shows which server is asked.
    pub fn shown_by(&self) -> String {
        self.source.shown_by(&self.remote)
    }

    /// What has the server look at claims when somebody pushes: a command, to be
    /// typed there. Behind which forge it stands is not known here, and it would
    /// believe another's word about who pushes.
    pub fn setup(&self) -> String {
        let repo = escape(&quote(&self.repo));
        match self.transport.is_local() {
            true => format!("`git-claim-server setup --kind local {repo}`"),
            false => format!(
                "`git-claim-server setup {repo}` (with `--kind` for gitolite, Forgejo or Gitea)"
            ),
        }
    }

    /// `--session` or `GIT_CLAIM_SESSION`.
    pub fn given_session(&self) -> Option<&Session> {
        self.given_session.as_ref()
    }

    /// The repository, as the server is told it.
    pub fn repo(&self) -> Result<RepoArg> {
        self.repo
            .parse()
            .map_err(|why| Failure::error(format!("the remote's URL cannot be used: {why}")))
    }

    /// The session to act as; the worktree's own is made if there is none yet.
    pub fn session(&self) -> Result<Session> {
        if let Some(session) = &self.given_session {
            return Ok(session.clone());
        }
        session::own(&self.git.git_dir).map_err(|error| {
            Failure::from(error).hint("`--session <s>` or GIT_CLAIM_SESSION names one without it")
        })
    }

    /// The session to act as, if there is one: what only looks makes none.
    pub fn known_session(&self) -> Result<Option<Session>> {
        match &self.given_session {
            Some(session) => Ok(Some(session.clone())),
            None => Ok(session::known(&self.git.git_dir)?),
        }
    }

    /// The tokens that this worktree keeps.
    pub fn tokens(&self) -> Tokens {
        Tokens::of(&self.git.git_dir, &self.remote)
    }

    /// What was seen of the remote that is asked.
    pub fn memory(&self) -> Memory {
        Memory::of(&self.git, &self.remote)
    }

    /// How long a server may take to answer.
    pub fn timeout(&self) -> Duration {
        self.transport.timeout()
    }

    /// From now on all requests share one connection, where the server serves
    /// many on one; else each goes on to be a call of its own.
    ///
    /// # Errors
    /// The remote's URL names no repository.
    pub fn keep_line(&mut self) -> Result<()> {
        let repo = self.repo()?;
        self.transport.keep_line(repo);
        Ok(())
    }

    /// The same for a command that asks more than once, where somebody may have
    /// to type a passphrase for each request.
    ///
    /// # Errors
    /// The remote's URL names no repository.
    pub fn log_in_once(&mut self) -> Result<()> {
        match self.transport.may_ask_each_time() {
            true => self.keep_line(),
            false => Ok(()),
        }
    }

    /// From now on nobody is asked for a passphrase: the terminal is another's.
    pub fn ask_nobody(&mut self) {
        self.transport.ask_nobody();
    }

    /// Whether the next request goes over a connection that stands already.
    pub async fn has_line(&mut self) -> bool {
        self.transport.has_line().await
    }

    /// Asks to be told of changes from now on, over the connection that is kept.
    /// Answers whether that is done.
    pub async fn watch(&mut self) -> bool {
        self.transport.watch().await
    }

    /// Whether changes are told of.
    pub fn watches(&self) -> bool {
        self.transport.watches()
    }

    /// The next change. Can be given up and called again.
    pub async fn news(&mut self) -> News {
        self.transport.news().await
    }

    /// Ends the connection: the next request begins another.
    pub fn hang_up(&mut self) {
        self.transport.hang_up();
    }

    /// Asks the server.
    ///
    /// # Errors
    /// Everything but a reply.
    pub async fn ask(&mut self, request: &Request, output: &mut Output) -> Result<Reply> {
        self.ask_within(None, request, output).await
    }

    /// The same in a time that may be shorter than `claim.timeout`.
    ///
    /// # Errors
    /// Everything but a reply.
    pub async fn ask_within(
        &mut self,
        within: Option<Duration>,
        request: &Request,
        output: &mut Output,
    ) -> Result<Reply> {
        output.detail(&format!(
            "asking {} over {}: {}",
            self.transport.host(),
            self.transport.kind(),
            escape(&request.command())
        ));
        let answer = self.transport.ask(request, within, output).await?;
        output.server_words(&answer.stderr);
        let reply = answer::read(&answer, self.transport.host())
            .map_err(|failure| self.hinted(failure, request))?;
        if let Err(failure) = sense::check(request, &reply) {
            self.transport.distrust();
            return Err(failure);
        }
        Ok(reply)
    }

    /// A refusal of the server's that has no hint, with what one can do here.
    fn hinted(&self, failure: Failure, request: &Request) -> Failure {
        if failure.hint.is_some() {
            return failure;
        }
        if failure.message == "repository not found" {
            let shown_by = self.source.shown_by(&self.remote);
            return failure.hint(format!(
                "{} may not exist, or you may not claim there; `{shown_by}` shows what is asked",
                escape(&self.url)
            ));
        }
        if failure.message.starts_with("there is no issue '") {
            let lists = match request {
                Request::Acquire { .. } => "`git claims --ready` lists what is free",
                _ => "`git claims` lists what is claimed",
            };
            return failure.hint(format!(
                "a short id is typed in full, of a long one at least its first 4 characters; {lists}"
            ));
        }
        if failure
            .message
            .starts_with("nothing says which issue is next")
        {
            return failure.hint(
                "`git claim <id>` takes one; issues that you have made here are not there before they are pushed",
            );
        }
        if failure.message.starts_with("issue ") && failure.message.ends_with(" is closed") {
            return failure.hint("`git claim --next` takes the first open issue");
        }
        failure
    }

    /// Asks for a claim. Where the connection ends before the answer, it asks
    /// once more: by its request id the server knows the two for one.
    ///
    /// # Errors
    /// Everything but a reply.
    pub async fn take(&mut self, request: &Request, output: &mut Output) -> Result<Taken> {
        let sent = Moment::now();
        match self.ask(request, output).await {
            Err(failure) if failure.kind == Kind::Unsure => {
                output.detail(&format!("{}; asking once more", failure.message));
                let sent = Moment::now();
                let reply = self.ask(request, output).await?;
                Ok(Taken { reply, sent })
            }
            Err(failure) => Err(failure),
            Ok(reply) => Ok(Taken { reply, sent }),
        }
    }
}

/// The answer to a request for a claim.
#[derive(Debug)]
pub struct Taken {
    pub reply: Reply,
    /// From before the request was sent: a claim's end is counted from here.
    pub sent: Moment,
}

/// A name for one request, however often it is sent.
pub fn request_id() -> Result<RequestId> {
    random::<12>()
        .map_err(|error| Failure::error(format!("there are no random numbers: {error}")))?
        .parse()
        .map_err(|why| Failure::error(format!("{why}")))
}

/// GIT_CLAIM_SESSION.
///
/// # Errors
/// It is no session.
pub fn session_of_environment() -> Result<Option<Session>> {
    match std::env::var("GIT_CLAIM_SESSION") {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|why| Failure::usage(format!("GIT_CLAIM_SESSION: {why}"))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage("GIT_CLAIM_SESSION is not UTF-8"))
        }
    }
}

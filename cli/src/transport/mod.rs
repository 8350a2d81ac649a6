//! The ways to a server: how a command gets there, and what comes back.

mod command;
mod folder;
mod line;
mod local;
mod mux;
mod terminal;
mod words;

use std::time::Duration;

use git_claim_api::exit::Exit;
use git_claim_api::text::escape;
use git_claim_api::verb::{RepoArg, Request};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::answer::{self, Answer};
use crate::error::{Failure, Result};
use crate::git::Git;
use crate::output::Output;
use crate::pause::between;
use crate::remote::{Remote, claim_url_of, typed};
use crate::settings::Settings;
use crate::url::Location;
use command::SshCommand;
pub use line::News;
use line::{End, Line};
use local::Local;
use mux::Mux;
use terminal::Echo;
use words::Trouble;

/// More than any reply needs; a server that sends more is not listened to.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

/// How long somebody may take to type a passphrase.
const TYPING: Duration = Duration::from_secs(24 * 60 * 60);

/// The way to one server.
#[derive(Debug)]
pub struct Transport {
    host: String,
    timeout: Duration,
    route: Route,
    /// Whether ssh may ask for a passphrase.
    may_ask: bool,
    /// The repository that the server is to serve on one connection; `None`:
    /// each request is a call of its own.
    serves: Option<RepoArg>,
    line: Option<Line>,
}

#[derive(Debug)]
enum Route {
    Mux(Mux),
    Command(SshCommand),
    Local(Local),
}

impl Route {
    /// Runs a command on the server to its end.
    async fn ask(&mut self, command: &str) -> std::result::Result<Answer, Trouble> {
        match self {
            Route::Mux(mux) => mux.ask(command).await,
            Route::Command(ssh) => ssh.ask(command).await,
            Route::Local(local) => local.ask(command).await,
        }
    }

    /// Runs one that goes on.
    async fn open(&mut self, command: &str) -> std::result::Result<Line, Trouble> {
        match self {
            Route::Mux(mux) => mux.open(command).await,
            Route::Command(ssh) => ssh.open(command).await,
            Route::Local(local) => local.open(command),
        }
    }

    /// One that went on has ended.
    fn ended(&mut self, code: Option<i32>) {
        if let Route::Mux(mux) = self {
            mux.ended(code);
        }
    }

    /// What came of one that was to go on, and ended at once.
    fn judge(&mut self, answer: Answer) -> std::result::Result<Answer, Trouble> {
        self.ended(answer.code);
        match self {
            Route::Command(ssh) => ssh.judge(answer),
            Route::Mux(_) | Route::Local(_) => Ok(answer),
        }
    }
}

/// What came of the first request on a new line.
enum First {
    Answered(Line, Answer),
    /// The server ended it, as it would have ended a call.
    Ended(Answer),
    Nonsense(String),
}

impl Transport {
    /// The way to `remote`, and the repository's name there.
    ///
    /// # Errors
    /// There is none.
    pub fn to(remote: &Remote, git: &Git, settings: Settings) -> Result<(Transport, String)> {
        let without = &git.local_variables;
        match &remote.location {
            Location::Ssh(ssh) => {
                let route = match SshCommand::configured(ssh, &git.config, without) {
                    Some(command) => Route::Command(command),
                    None => match folder::sockets() {
                        Some(folder) => {
                            Route::Mux(Mux::new(ssh.clone(), folder, settings.persist, without))
                        }
                        // Nowhere to keep a socket: one plain connection a call.
                        None => Route::Command(SshCommand::plain(ssh, without).strict()),
                    },
                };
                let transport = Transport {
                    host: escape(&ssh.host),
                    timeout: settings.timeout,
                    route,
                    may_ask: true,
                    serves: None,
                    line: None,
                };
                Ok((transport, ssh.path.clone()))
            }
            Location::Local(path) => {
                let path = git.absolute(path);
                let Some(repo) = path.to_str() else {
                    return Err(Failure::error("the repository's path is not UTF-8"));
                };
                let transport = Transport {
                    host: "git-claim-server".to_owned(),
                    timeout: settings.timeout,
                    route: Route::Local(Local::new(without)),
                    may_ask: false,
                    serves: None,
                    line: None,
                };
                Ok((transport, repo.to_owned()))
            }
            Location::Other(scheme) => Err(unusable(remote, scheme)),
        }
    }

    /// Who is asked, fit for a terminal.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How, for `--verbose`.
    pub fn kind(&self) -> &'static str {
        match self.route {
            _ if self.line.is_some() => "the connection of the request before",
            Route::Mux(_) => "a shared ssh connection",
            Route::Command(_) => "the ssh command that git would run",
            Route::Local(_) => "a pipe on this machine",
        }
    }

    /// From now on requests about `repo` share one connection, where the server
    /// serves many on one.
    pub fn keep_line(&mut self, repo: RepoArg) {
        self.serves = Some(repo);
    }

    /// From now on nobody is asked for a passphrase: the terminal is another's.
    pub fn ask_nobody(&mut self) {
        self.may_ask = false;
    }

    /// Whether the server is a program on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.route, Route::Local(_))
    }

    /// Whether each call would log in anew, and somebody may have to type each
    /// time.
    pub fn may_ask_each_time(&self) -> bool {
        matches!(self.route, Route::Command(_)) && command::somebody_can_type()
    }

    /// Whether there is a connection that the next request goes over, as far as
    /// can be seen from here.
    pub async fn has_line(&mut self) -> bool {
        let Some(mut line) = self.line.take() else {
            return false;
        };
        match line.look().await {
            Ok(()) => self.line = Some(line),
            Err(end) => self.ended(&end),
        }
        self.line.is_some()
    }

    /// Asks the server; `within` shortens the time that it may take.
    ///
    /// # Errors
    /// The server could not be asked, or did not answer in time. What may have
    /// been heard is never sent again.
    pub async fn ask(
        &mut self,
        request: &Request,
        within: Option<Duration>,
        output: &mut Output,
    ) -> Result<Answer> {
        if let Some(repo) = self.serves.clone() {
            if let Some(answer) = self.ask_on_line(request, within).await? {
                return Ok(answer);
            }
            if let Some(answer) = self.ask_on_new_line(repo, request, within, output).await? {
                return Ok(answer);
            }
            output.detail(&format!("{} serves one request a call", self.host));
            self.serves = None;
        }
        let command = request.command();
        self.reach(within, output, async |route| route.ask(&command).await)
            .await
    }

    /// Asks over the connection that is there; `None`: there is none.
    async fn ask_on_line(
        &mut self,
        request: &Request,
        within: Option<Duration>,
    ) -> Result<Option<Answer>> {
        let limit = self.limit(within);
        if !self.has_line().await {
            return Ok(None);
        }
        // Whoever gives up in between leaves nothing behind on which the reply
        // to something else is yet to come.
        let Some(mut line) = self.line.take() else {
            return Ok(None);
        };
        let end = match timeout(limit, line.ask(request)).await {
            Err(_) => return Err(self.too_late(limit)),
            Ok(Ok(answer)) => {
                self.line = Some(line);
                return Ok(Some(answer));
            }
            Ok(Err(end)) => end,
        };
        self.ended(&end);
        Err(match end {
            End::Unserved(_) => Trouble::Lost(String::new()).told(&self.host),
            End::Broken { why, .. } => Trouble::Lost(why).told(&self.host),
            End::Nonsense(why) => answer::nonsense(&why),
        })
    }

    /// Asks over a new connection; `None`: the server serves none such.
    async fn ask_on_new_line(
        &mut self,
        repo: RepoArg,
        request: &Request,
        within: Option<Duration>,
        output: &mut Output,
    ) -> Result<Option<Answer>> {
        let command = Request::Serve { repo }.command();
        let first = self.reach(within, output, async |route| {
            let mut line = route.open(&command).await?;
            match line.ask(request).await {
                Ok(answer) => Ok(First::Answered(line, answer)),
                Err(End::Unserved(answer)) => route.judge(answer).map(First::Ended),
                Err(End::Broken { code, why }) => {
                    route.ended(code);
                    Err(Trouble::Lost(why))
                }
                Err(End::Nonsense(why)) => Ok(First::Nonsense(why)),
            }
        });
        match first.await? {
            First::Answered(line, answer) => {
                self.line = Some(line);
                Ok(Some(answer))
            }
            First::Ended(answer) if knows_no_serve(answer.code) => Ok(None),
            First::Ended(answer) => Ok(Some(answer)),
            First::Nonsense(why) => {
                self.distrust();
                Err(answer::nonsense(&why))
            }
        }
    }

    /// Takes leave of a line.
    fn ended(&mut self, end: &End) {
        match end {
            End::Unserved(answer) => self.route.ended(answer.code),
            End::Broken { code, .. } => self.route.ended(*code),
            End::Nonsense(_) => self.distrust(),
        }
    }

    /// What the server said over the line made no sense: it is asked by calls of
    /// their own from now on.
    pub fn distrust(&mut self) {
        self.line = None;
        self.serves = None;
    }

    /// Asks to be told of changes, over the line that is there. Answers whether
    /// that is done; if not, nothing is different from before.
    pub async fn watch(&mut self) -> bool {
        let Some(mut line) = self.line.take() else {
            return false;
        };
        match timeout(self.timeout, line.watch()).await {
            Ok(Ok(watches)) => {
                self.line = Some(line);
                watches
            }
            Ok(Err(end)) => {
                self.ended(&end);
                false
            }
            Err(_) => {
                self.hang_up();
                false
            }
        }
    }

    /// Whether changes are told of.
    pub fn watches(&self) -> bool {
        self.line.as_ref().is_some_and(Line::watches)
    }

    /// The next change. Can be given up and called again.
    pub async fn news(&mut self) -> News {
        let Some(line) = &mut self.line else {
            return News::Over;
        };
        let news = line.news().await;
        if news == News::Over {
            self.line = None;
        }
        news
    }

    fn limit(&self, within: Option<Duration>) -> Duration {
        within.map_or(self.timeout, |within| within.min(self.timeout))
    }

    /// Tries until the server is reached, as long as nothing was asked yet.
    async fn reach<T>(
        &mut self,
        within: Option<Duration>,
        output: &mut Output,
        mut attempt: impl AsyncFnMut(&mut Route) -> std::result::Result<T, Trouble>,
    ) -> Result<T> {
        let limit = self.limit(within);
        let mut deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(50);
        loop {
            let trouble = match timeout_at(deadline, attempt(&mut self.route)).await {
                Err(_) => return Err(self.too_late(limit)),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(trouble)) => trouble,
            };
            match trouble {
                // Nothing was asked yet, so the same may be asked again.
                Trouble::TurnedAway(_) if Instant::now() + pause < deadline => {
                    output.detail(&format!("{} turned us away; trying again", self.host));
                    sleep(between(pause / 2, pause)).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Trouble::Denied { .. }
                    if let Route::Mux(mux) = &mut self.route
                        && self.may_ask
                        && command::somebody_can_type() =>
                {
                    output.remark("ssh may ask for your key's passphrase; `ssh-add` once keeps it");
                    // Typing takes as long as it takes.
                    let typing = within.unwrap_or(TYPING);
                    match timeout(typing, mux.connect_by_hand()).await {
                        Err(_) => return Err(self.too_late(typing)),
                        Ok(Err(trouble)) => return Err(trouble.told(&self.host)),
                        Ok(Ok(())) => deadline = Instant::now() + limit,
                    }
                }
                trouble => {
                    if matches!(trouble, Trouble::Lost(_)) {
                        self.hang_up();
                    }
                    return Err(trouble.told(&self.host));
                }
            }
        }
    }

    /// How long the server may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Nobody shall use the present connection again.
    pub fn hang_up(&mut self) {
        self.line = None;
        if let Route::Mux(mux) = &mut self.route {
            mux.give_up();
        }
    }

    fn too_late(&mut self, limit: Duration) -> Failure {
        self.hang_up();
        Failure::not_now(format!(
            "no answer from {} within {}s",
            self.host,
            limit.as_secs_f32().ceil()
        ))
        .hint(
            "it may still have been done; trying again is safe. `git config claim.timeout <duration>` sets the time",
        )
    }

    /// Closes what is not meant to stay open.
    pub async fn close(&mut self) {
        if let Some(line) = self.line.take()
            && matches!(self.route, Route::Local(_))
        {
            // It is ours to end, and shall leave its ledger tidy.
            line.close().await;
        }
        if let Route::Mux(mux) = &mut self.route {
            mux.close().await;
        }
    }
}

fn unusable(remote: &Remote, scheme: &str) -> Failure {
    let name = escape(&remote.name);
    let scheme = escape(scheme);
    Failure::error(format!(
        "claims are asked for over ssh, and not over {scheme} (remote '{name}')"
    ))
    .hint(format!(
        "`git remote set-url --push {} <ssh url>`, if one can push there over ssh; else \
         `git config {} <ssh url>` names a server that keeps its claims",
        typed(&remote.name),
        claim_url_of(&remote.name)
    ))
}

/// Whether a server that ends like this, before it has answered anything, may
/// still answer calls: it does so where it knows no `serve`. Without an exit code
/// or with one of a shell's own it was killed, or the connection broke.
fn knows_no_serve(code: Option<i32>) -> bool {
    let not_now = i32::from(Exit::NotNow.code());
    code.is_some_and(|code| code != not_now && code <= 128)
}

/// Everything that comes out of both pipes, until both are closed.
async fn read_both(
    stdout: Option<impl AsyncRead + Unpin>,
    stderr: Option<impl AsyncRead + Unpin>,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    tokio::try_join!(read_all(stdout), read_all(stderr))
}

async fn read_all(pipe: Option<impl AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(MOST_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// Starts a program of this machine that goes on; it is killed when nobody
/// listens any longer.
fn open(command: &mut tokio::process::Command) -> std::io::Result<Line> {
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = async move { child.wait().await.ok().and_then(|status| status.code()) };
    Ok(Line::to(input, output, errors, ended))
}

/// Runs a program of this machine to its end; it is killed if nobody waits any
/// longer.
async fn run(command: &mut tokio::process::Command) -> std::io::Result<Answer> {
    let _echo = Echo::keep();
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let (stdout, stderr) = read_both(child.stdout.take(), child.stderr.take()).await?;
    let status = child.wait().await?;
    Ok(Answer {
        code: status.code(),
        stdout,
        stderr,
    })
}

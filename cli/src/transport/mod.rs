//! The ways to a server: how a command gets there, and what comes back.

mod command;
mod folder;
mod local;
mod mux;
mod words;

use std::time::Duration;

use git_claim_api::text::escape;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::Answer;
use crate::error::{Failure, Result};
use crate::git::Git;
use crate::output::Output;
use crate::pause::between;
use crate::remote::Remote;
use crate::settings::Settings;
use crate::url::Location;
use command::SshCommand;
use local::Local;
use mux::Mux;
use words::Trouble;

/// More than any reply needs; a server that sends more is not listened to.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

/// The way to one server.
#[derive(Debug)]
pub struct Transport {
    host: String,
    timeout: Duration,
    route: Route,
    /// The command that git would run, for where somebody must type.
    typed: Option<SshCommand>,
}

#[derive(Debug)]
enum Route {
    Mux(Mux),
    Command(SshCommand),
    Local(Local),
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
                let typed = matches!(route, Route::Mux(_)).then(|| SshCommand::plain(ssh, without));
                let transport = Transport {
                    host: escape(&ssh.host),
                    timeout: settings.timeout,
                    route,
                    typed,
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
                    typed: None,
                };
                Ok((transport, repo.to_owned()))
            }
            Location::Http => Err(unusable(remote, "claims are not asked for over http")),
            Location::Other(scheme) => Err(unusable(
                remote,
                &format!("claims are not asked for over '{}'", escape(scheme)),
            )),
        }
    }

    /// Who is asked, fit for a terminal.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How, for `--verbose`.
    pub fn kind(&self) -> &'static str {
        match self.route {
            Route::Mux(_) => "a shared ssh connection",
            Route::Command(_) => "the ssh command that git would run",
            Route::Local(_) => "a pipe on this machine",
        }
    }

    /// Runs a command of the verb on the server; `within` shortens the time
    /// that it may take.
    ///
    /// # Errors
    /// The server could not be asked, or did not answer in time. What may have
    /// been heard is never sent again.
    pub async fn ask(
        &mut self,
        command: &str,
        within: Option<Duration>,
        output: &mut Output,
    ) -> Result<Answer> {
        let limit = within.map_or(self.timeout, |within| within.min(self.timeout));
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(50);
        loop {
            let attempt = async {
                match &mut self.route {
                    Route::Mux(mux) => mux.ask(command).await,
                    Route::Command(ssh) => ssh.ask(command).await,
                    Route::Local(local) => local.ask(command).await,
                }
            };
            let trouble = match timeout_at(deadline, attempt).await {
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
                Trouble::Denied(_) if self.typed.is_some() && command::somebody_can_type() => {
                    output.detail("ssh may need a passphrase; running it as git would");
                    if let Some(typed) = self.typed.take() {
                        // Typing takes as long as it takes.
                        self.timeout = Duration::from_secs(24 * 60 * 60);
                        self.route = Route::Command(typed);
                        return Box::pin(self.ask(command, within, output)).await;
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
        if let Route::Mux(mux) = &mut self.route {
            mux.close().await;
        }
    }
}

fn unusable(remote: &Remote, message: &str) -> Failure {
    let name = escape(&remote.name);
    Failure::error(format!("{message} (remote '{name}')")).hint(format!(
        "`git config remote.{name}.claimUrl <ssh url>` names the server that keeps its claims"
    ))
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

/// Runs a program of this machine to its end; it is killed if nobody waits any
/// longer.
async fn run(command: &mut tokio::process::Command) -> std::io::Result<Answer> {
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

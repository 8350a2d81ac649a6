//! Behind a forced command of OpenSSH: the verb is handled, git's own three
//! commands go on to git, and nothing else is served.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use git_claim_api::exit::Exit;
use git_claim_api::verb::RepoArg;
use git_claim_api::{VERB, words};
use rustix::process::geteuid;

use crate::environment::{git_protocol, is_dropped};
use crate::principal::{self, Name, Principal};
use crate::report::Failure;
use crate::repos::Repo;
use crate::request::Job;
use crate::settings::Settings;
use crate::site::{self, Site};
use crate::ssh_key::Fingerprint;

/// The variable in which sshd hands a forced command what the client asked for.
pub const ORIGINAL_COMMAND: &str = "SSH_ORIGINAL_COMMAND";

/// Whom a hook behind a push is to take for the pusher.
pub const PRINCIPAL: &str = "GIT_CLAIM_PRINCIPAL";
/// The same of the pusher's profile.
pub const KEY: &str = "GIT_CLAIM_KEY";

const NOT_SERVED: &str = "only git and collab-lease are served here";

/// What the admin wrote into the forced command.
#[derive(Debug, Default)]
pub struct Forced {
    pub config: Option<PathBuf>,
    pub name: Option<Name>,
    pub key: Option<Fingerprint>,
}

/// Serves one request.
///
/// # Errors
/// It cannot be served; nothing was printed.
pub fn run(forced: &Forced) -> Result<u8, Failure> {
    let settings = Settings::load(forced.config.as_deref()).map_err(Failure::set_up_wrongly)?;
    let principal = principal::of_openssh(
        forced.name.as_ref(),
        forced.key.as_ref(),
        std::env::var_os(principal::USER_AUTH).as_deref(),
        &settings,
    )
    .map_err(Failure::refused)?;
    let command = std::env::var_os(ORIGINAL_COMMAND);
    match Wanted::parse(command.as_deref().map(OsStr::as_bytes))? {
        Wanted::Claims(command) => serve(&settings, &principal, command),
        Wanted::Git { service, repo } => Err(pass_on(&settings, &principal, service, &repo)),
        Wanted::Login => {
            greet(&principal);
            Ok(Exit::Error.code())
        }
    }
}

/// What a person sees who only tries whether their key works. Nobody is left to
/// tell when stderr is gone.
fn greet(principal: &Principal) {
    let line = format!(
        "Hello {}, your key works. There is no shell: {NOT_SERVED}.\n",
        principal.name
    );
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Hands the client's `command` to the plugin, as `principal`.
///
/// # Errors
/// It cannot be served; nothing was printed.
pub fn serve(settings: &Settings, principal: &Principal, command: &[u8]) -> Result<u8, Failure> {
    let site = Site::new(settings, principal)?;
    let job = Job {
        settings,
        ledger: settings.ledger().map_err(Failure::set_up_wrongly)?,
        command,
        user: principal.name.as_str(),
        key: &principal.profile,
        of_host: false,
    };
    job.run(&site)
}

/// What a client asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// The verb, as the raw command.
    Claims(&'a [u8]),
    /// One of git's own commands on one repository.
    Git {
        service: &'static str,
        repo: RepoArg,
    },
    /// A shell.
    Login,
}

/// Whether the first word of `command` is the verb.
pub fn asks_for_claims(command: &[u8]) -> bool {
    command
        .split(|byte| *byte == b' ')
        .find(|word| !word.is_empty())
        .is_some_and(|word| word == VERB.as_bytes())
}

/// The commands that git itself sends, without the `git-` in front.
const SERVICES: [&str; 3] = ["upload-pack", "receive-pack", "upload-archive"];

impl Wanted<'_> {
    fn parse(command: Option<&[u8]>) -> Result<Wanted<'_>, Failure> {
        let Some(command) = command else {
            return Ok(Wanted::Login);
        };
        if asks_for_claims(command) {
            return Ok(Wanted::Claims(command));
        }
        let not_served = || Failure::refused(NOT_SERVED);
        let words = words::split(command).map_err(|_| not_served())?;
        let (service, repo) = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["git", service, repo] => (service, repo),
            [command, repo] => (command.strip_prefix("git-").ok_or_else(not_served)?, repo),
            _ => return Err(not_served()),
        };
        let service = SERVICES
            .into_iter()
            .find(|known| *known == service)
            .ok_or_else(not_served)?;
        let repo = repo.parse().map_err(Failure::refused)?;
        Ok(Wanted::Git { service, repo })
    }
}

/// Becomes the git command; returns only if that fails.
fn pass_on(settings: &Settings, principal: &Principal, service: &str, repo: &RepoArg) -> Failure {
    let repo = match site::repos(settings) {
        Ok(repos) => repos.resolve(repo.as_str()),
        Err(failure) => return failure,
    };
    let Some(repo) = repo else {
        return Failure::repository_not_found();
    };
    let protocol = std::env::var_os("GIT_PROTOCOL");
    let kept: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| !is_dropped(name))
        .collect();
    tell_of_owner(&repo);
    // The folder that was found, whatever has its name when git looks.
    let error = Command::new("git")
        .args([service, "."])
        .current_dir(repo.found())
        .env_clear()
        .envs(kept)
        .envs(
            protocol
                .as_deref()
                .and_then(git_protocol)
                .map(|value| ("GIT_PROTOCOL", value)),
        )
        .env(PRINCIPAL, principal.name.as_str())
        .env(KEY, &principal.profile)
        .exec();
    Failure::not_now(format!("git cannot be run: {error}"))
}

/// git refuses the repository of another user, and speaks of `.` then. Nobody is
/// left to tell when stderr is gone.
fn tell_of_owner(repo: &Repo) {
    let is_own = repo
        .found()
        .metadata()
        .is_ok_and(|folder| folder.uid() == geteuid().as_raw());
    let is_allowed = || {
        let config = git2::Config::open_default();
        config.is_ok_and(|config| config.get_string("safe.directory").is_ok())
    };
    if is_own || is_allowed() {
        return;
    }
    let path = repo.path.display();
    let text = format!(
        "warning: {path} belongs to another user\n\
         hint: if that is right, for the account that serves it: \
         git config --global --add safe.directory {path}\n"
    );
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served() {
        let git = |service, repo: &str| Wanted::Git {
            service,
            repo: repo.parse().unwrap(),
        };
        for (command, wanted) in [
            ("git-upload-pack 'r.git'", git("upload-pack", "r.git")),
            ("git upload-pack 'r.git'", git("upload-pack", "r.git")),
            (
                "git-receive-pack '/my repo.git'",
                git("receive-pack", "/my repo.git"),
            ),
            ("git-upload-archive r.git", git("upload-archive", "r.git")),
            (
                "collab-lease acquire r.git 1",
                Wanted::Claims(b"collab-lease acquire r.git 1"),
            ),
            ("collab-lease", Wanted::Claims(b"collab-lease")),
            // The plugin says what is wrong with the rest of it.
            ("  collab-lease \"x", Wanted::Claims(b"  collab-lease \"x")),
        ] {
            assert_eq!(
                Wanted::parse(Some(command.as_bytes())),
                Ok(wanted),
                "{command}"
            );
        }
        assert_eq!(Wanted::parse(None), Ok(Wanted::Login));
    }

    #[test]
    fn nothing_else_is_served() {
        for command in [
            "",
            " ",
            "sh",
            "id",
            "git",
            "git-upload-pack",
            "git upload-pack",
            "git-upload-pack a b",
            "git upload-pack a b",
            "git-upload-pack --strict r.git",
            "git-shell r.git",
            "git-lfs-authenticate r.git",
            "git config r.git",
            "git -c r.git",
            "upload-pack r.git",
            "git-git-upload-pack r.git",
            "git-upload-pack r.git; id",
            "git-upload-pack $(id)",
            "git-upload-pack 'r.git'\nid",
            "collab-leases r.git",
            "collab-lease;id",
            "./collab-lease list r.git",
            "/usr/bin/collab-lease list r.git",
            "scp -t /tmp",
        ] {
            let refused = Wanted::parse(Some(command.as_bytes()));
            assert_eq!(refused, Err(Failure::refused(NOT_SERVED)), "{command}");
        }
        let option = Wanted::parse(Some(b"git-upload-pack '--help'")).unwrap_err();
        assert!(option.error.contains("is not a repository"), "{option:?}");
    }
}

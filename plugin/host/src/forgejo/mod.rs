//! In front of Forgejo's or Gitea's own command in authorized_keys: claims are
//! served, and everything else goes on to the forge untouched.
//!
//! The forge says who is asking, what they may do and which issues there are.
//! What it says is checked: it is another program, and may be of another
//! version than the one that this was written for.

pub mod api;
mod hook;
pub mod settings;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use git_claim_api::access::Access;
use git_claim_api::verb::Request;

use self::api::{Api, KeyId, RepoName, Served};
pub use self::hook::{pusher, repo_of_hook};
use crate::host::{Host, Unreadable};
use crate::log::{Level, log};
use crate::openssh::{ORIGINAL_COMMAND, asks_for_claims};
use crate::principal::Principal;
use crate::report::Failure;
use crate::repos::Repos;
use crate::request::Job;
use crate::rights::{Rights, most_needed};
use crate::settings::Settings;

/// Serves one request, where `original` is the command that the forge would
/// have put into authorized_keys by itself.
///
/// # Errors
/// It cannot be served; nothing was printed.
pub fn run(config: Option<&Path>, original: &[OsString]) -> Result<u8, Failure> {
    let asked = std::env::var_os(ORIGINAL_COMMAND);
    match asked.as_deref().map(OsStr::as_bytes) {
        Some(command) if asks_for_claims(command) => serve(config, original, command),
        // Settings that are broken must not stop git.
        _ => Err(pass_on(original)),
    }
}

/// Becomes the forge's own command; returns only if that fails.
fn pass_on(original: &[OsString]) -> Failure {
    match original {
        [program, args @ ..] => {
            let error = Command::new(program).args(args).exec();
            Failure::not_now(format!("{}: {error}", program.to_string_lossy()))
        }
        [] => Failure::not_now("the forge's own command is missing behind `--`"),
    }
}

fn serve(config: Option<&Path>, original: &[OsString], command: &[u8]) -> Result<u8, Failure> {
    let request = Request::parse(command).map_err(Failure::refused)?;
    let settings = Settings::load(config).map_err(Failure::set_up_wrongly)?;
    settings
        .without_rules("the forge's own rights")
        .map_err(Failure::set_up_wrongly)?;
    let key = KeyId::of_command(original).ok_or_else(|| {
        Failure::not_now("the forge's own command does not end in `serv key-<number>`")
            .hint("see SSH_AUTHORIZED_KEYS_COMMAND_TEMPLATE in the forge's app.ini")
    })?;
    let api = Api::new(&settings.forgejo, key)?;
    let (principal, repo) = match request.repo() {
        Some(typed) => {
            let known = Known::find(&api, typed.as_str(), most_needed(&request), &settings)?;
            (known.served.principal.clone(), Some(known))
        }
        None => (api.owner()?, None),
    };
    let job = Job {
        settings: &settings,
        ledger: settings.ledger().map_err(Failure::set_up_wrongly)?,
        command,
        user: principal.name.as_str(),
        key: &principal.profile,
        of_host: false,
    };
    job.run(&Site { api: &api, repo })
}

/// The answers about the one repository of a request.
struct Site<'a> {
    api: &'a Api<'a>,
    repo: Option<Known>,
}

/// A repository that the key's owner may at least see.
struct Known {
    /// As the request spells it.
    typed: String,
    id: String,
    name: RepoName,
    served: Served,
    /// Its git directory, if the forge's repositories are on this disk.
    path: Option<PathBuf>,
    rights: RefCell<Rights>,
}

impl Known {
    fn find(
        api: &Api<'_>,
        typed: &str,
        need: Access,
        settings: &Settings,
    ) -> Result<Known, Failure> {
        let name = RepoName::parse(typed).ok_or_else(Failure::repository_not_found)?;
        let mut served = None;
        let mut rights = Rights::default();
        rights.find(need, |access| {
            served = api.served(&name, access)?;
            Ok::<_, Failure>(served.is_some())
        })?;
        let served: Served = served.ok_or_else(Failure::repository_not_found)?;
        Ok(Known {
            typed: typed.to_owned(),
            // The forge's number for it: it stays when the name changes.
            id: served.repo_id.to_string(),
            path: on_disk(settings, &served.name),
            served,
            name,
            rights: RefCell::new(rights),
        })
    }
}

/// Where the forge keeps the repository, if `claim.reposDir` says where it
/// keeps them.
fn on_disk(settings: &Settings, name: &RepoName) -> Option<PathBuf> {
    let repos = Repos::new(settings.repos_dir.as_deref()?).ok()?;
    Some(repos.by_id(&name.folder())?.path)
}

impl Site<'_> {
    fn repo(&self, id: &str) -> Option<&Known> {
        self.repo.as_ref().filter(|known| known.id == id)
    }
}

impl Host for Site<'_> {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        let known = self.repo.as_ref().filter(|known| known.typed == name)?;
        Some(known.id.clone())
    }

    fn authorize(&self, repo_id: &str, access: Access) -> bool {
        let Some(known) = self.repo(repo_id) else {
            return false;
        };
        // Another repository may have the name by now, or the key another owner.
        let ask = |access| {
            let served = self.api.served(&known.name, access)?;
            Ok::<_, Failure>(served.is_some_and(|served| served.is_as(&known.served)))
        };
        match known.rights.borrow_mut().may(access, ask) {
            Ok(may) => may,
            Err(failure) => {
                log(Level::Error, &failure.error);
                false
            }
        }
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        self.repo(repo_id)?.path.clone()
    }

    fn has_tracker(&self) -> bool {
        self.api.has_issues()
    }

    fn resolve_issue(&self, repo_id: &str, issue: &str) -> Result<Option<String>, Unreadable> {
        match self.repo(repo_id) {
            Some(known) => self.api.issue(&known.served, issue),
            None => Ok(None),
        }
    }
}

/// The principal behind a key of the forge.
fn principal(name: &str, key: KeyId) -> Option<Principal> {
    Some(Principal {
        name: name.parse().ok()?,
        profile: format!("forgejo-key:{key}"),
    })
}

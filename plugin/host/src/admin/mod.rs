//! What the administrator of a server runs by hand. Whoever can read and write
//! the ledger's file may run it; no right in the settings counts here.

pub mod backup;
pub mod check;
pub mod init;
pub mod migrate;
pub mod rename;
pub mod setup;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::verb::Request;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;

use crate::host::Host;
use crate::kept::Kept;
use crate::login;
use crate::report::Failure;
use crate::repos::Repos;
use crate::request::Job;
use crate::settings::Settings;

/// The host's side of the administrator's own requests: everything is allowed.
struct AdminHost<'a>(Option<&'a Repos>);

impl Host for AdminHost<'_> {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        Some(self.0?.resolve(name)?.id)
    }

    fn authorize(&self, _repo_id: &str, _access: Access) -> bool {
        true
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        Some(self.0?.by_id(repo_id)?.path)
    }
}

/// Runs a request of the host's own and reads its reply. `repos` is where a
/// repository in it is found.
fn ask<T: DeserializeOwned>(
    settings: &Settings,
    repos: Option<&Repos>,
    request: &Request,
) -> Result<T, Failure> {
    let ledger = settings.ledger().map_err(Failure::not_now)?;
    ask_at(settings, ledger, &AdminHost(repos), request)
}

/// The same of the ledger at `ledger`, with what `host` says of the repository.
fn ask_at<T: DeserializeOwned>(
    settings: &Settings,
    ledger: LedgerPlace,
    host: &dyn Host,
    request: &Request,
) -> Result<T, Failure> {
    if let Some(file) = ledger.file() {
        check_user(file)?;
    }
    let command = request.command();
    let job = Job {
        settings,
        ledger,
        command: command.as_bytes(),
        user: &format!("admin:{}", login::name()),
        key: "",
        of_host: true,
    };
    let kept = Kept::default();
    let exit = job.run_to(host, &kept)?;
    if exit == Exit::Done.code() {
        return kept.reply();
    }
    let complaint = kept.complaint();
    Err(if exit == Exit::NotNow.code() {
        Failure::not_now(complaint)
    } else {
        Failure::refused(complaint)
    })
}

/// Refuses to open a ledger as another user than the one it belongs to: files
/// that root leaves beside it would lock the server out.
fn check_user(ledger: &Path) -> Result<(), Failure> {
    let existing = [Some(ledger), ledger.parent()]
        .into_iter()
        .flatten()
        .find_map(|path| path.metadata().ok());
    let Some(existing) = existing else {
        // Opening it says what is wrong.
        return Ok(());
    };
    let owner = existing.uid();
    if owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "{}: it belongs to {}, and you are {}",
        ledger.display(),
        login::name_of(owner),
        login::name()
    ))
    .hint(format!(
        "run this as that user, say with `runuser -u {} -- …`",
        login::name_of(owner)
    )))
}

/// Shows the administrator a line of success. Nobody is left to tell when
/// stdout is gone.
fn say(line: &str) {
    use std::io::Write as _;
    let line = format!("{}\n", git_claim_api::text::escape(line));
    let _ = io::stdout().lock().write_all(line.as_bytes());
}

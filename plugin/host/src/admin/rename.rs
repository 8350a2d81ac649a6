//! `git-claim-server rename`: a repository was moved, and its claims and their
//! history go with it.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::reply::HostReply;
use git_claim_api::verb::Request;

use super::{ask, say};
use crate::report::Failure;
use crate::repos::Repos;
use crate::settings::Settings;

/// Carries all rows of the repository `old` to `new`.
///
/// # Errors
/// The ledger cannot be written, or `new` has rows of its own.
pub fn run(config: Option<&Path>, old: &str, new: &str) -> Result<u8, Failure> {
    let settings = Settings::load(config).map_err(|error| Failure::no_settings(&error))?;
    let new = id_of(&settings, new);
    let request = Request::Rename {
        old: old.parse().map_err(Failure::refused)?,
        new: new.parse().map_err(Failure::refused)?,
    };
    let reply: HostReply = ask(&settings, None, &request)?;
    if reply.rows == 0 {
        return Err(Failure::refused(format!("the ledger has nothing of {old}"))
            .hint("give the id as replies show it in `repo`"));
    }
    say(&format!(
        "the claims of {old} are {new}'s now ({} rows)",
        reply.rows
    ));
    Ok(Exit::Done.code())
}

/// The id of the repository `name` if it has been moved already; else the name
/// is taken as the id that it will have.
fn id_of(settings: &Settings, name: &str) -> String {
    let repos = settings
        .repos_dir
        .as_deref()
        .and_then(|repos_dir| Repos::new(repos_dir).ok());
    match repos.and_then(|repos| repos.resolve(name)) {
        Some(repo) => repo.id,
        None => name.to_owned(),
    }
}

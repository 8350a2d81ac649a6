//! `git-claim-server backup`: a copy of the ledger that is whole, while the
//! server goes on.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::reply::HostReply;
use git_claim_api::verb::Request;

use super::{ask, say};
use crate::report::Failure;
use crate::settings::Settings;

/// Copies the ledger to `file`.
///
/// # Errors
/// The ledger cannot be read, or `file` not be made.
pub fn run(config: Option<&Path>, file: &Path) -> Result<u8, Failure> {
    let settings = Settings::load(config).map_err(|error| Failure::no_settings(&error))?;
    let file = std::path::absolute(file).map_err(Failure::refused)?;
    let path = file
        .to_str()
        .ok_or_else(|| Failure::refused(format!("{}: not UTF-8", file.display())))?;
    let request = Request::Backup {
        file: path.parse().map_err(Failure::refused)?,
    };
    let reply: HostReply = ask(&settings, None, &request)?;
    say(&format!("copied {} rows to {path}", reply.rows));
    Ok(Exit::Done.code())
}

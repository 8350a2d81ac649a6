//! `git-claim-server migrate`: the ledger from one place to another.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::reply::HostReply;
use git_claim_api::verb::Request;

use super::{AdminHost, ask_at, say};
use crate::report::Failure;
use crate::settings::{Settings, ledger_place};

/// Moves the ledger at `from` to `to`.
///
/// # Errors
/// Either can't be reached, or `to` has another ledger.
pub fn run(config: Option<&Path>, from: &str, to: &str) -> Result<u8, Failure> {
    let settings = Settings::load(config).map_err(|error| Failure::no_settings(&error))?;
    let from = ledger_place(from).map_err(Failure::refused)?;
    let to = ledger_place(to).map_err(Failure::refused)?;
    if let Some(file) = from.file()
        && !file.exists()
    {
        return Err(Failure::refused(format!("{from}: there is no ledger")));
    }
    let request = Request::Migrate {
        to: to.to_string().parse().map_err(Failure::refused)?,
    };
    let reply: HostReply = ask_at(&settings, from.clone(), &AdminHost(None), &request)?;
    say(&format!("moved {} rows from {from} to {to}", reply.rows));
    say(&format!("set claim.ledger = {to} on every front end"));
    Ok(Exit::Done.code())
}

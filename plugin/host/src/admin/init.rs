//! `git-claim-server init`: an empty ledger in an etcd cluster. None is made by
//! the first claim there: whoever asks the wrong cluster would begin a second
//! one.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::reply::HostReply;
use git_claim_api::verb::Request;

use super::{ask, say};
use crate::report::Failure;
use crate::settings::Settings;

/// Makes the ledger that the settings name.
///
/// # Errors
/// It is there already, or the cluster can't be reached.
pub fn run(config: Option<&Path>) -> Result<u8, Failure> {
    let settings = Settings::load(config).map_err(|error| Failure::no_settings(&error))?;
    let ledger = settings.ledger().map_err(Failure::not_now)?;
    let _: HostReply = ask(&settings, None, &Request::Init)?;
    say(&format!("made the ledger {ledger}"));
    Ok(Exit::Done.code())
}

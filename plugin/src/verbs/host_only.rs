//! What only the host itself may ask for: `rename`, `backup`, `look`,
//! `init` and `migrate`.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::reply::HostReply;

use crate::ledger::Verdict;
use crate::server::{Answer, Call, Failure};

/// Carries a repository's claims and history to another id.
pub fn rename(call: &Call<'_>, old: &str, new: &str) -> Result<Answer, Failure> {
    let mut rows = 0;
    call.change(&mut |transaction| {
        rows = transaction.rename(old, new)?;
        Ok(Verdict::Commit)
    })?;
    done(rows)
}

/// Copies the ledger to a new file.
pub fn backup(call: &Call<'_>, file: &str) -> Result<Answer, Failure> {
    let file = Path::new(file);
    if !file.is_absolute() {
        return Err(Failure::Refused(
            "a backup is named by an absolute path".to_owned(),
        ));
    }
    done(call.backup(file)?)
}

/// Looks whether the ledger can be used; changes nothing.
pub fn look(call: &Call<'_>) -> Result<Answer, Failure> {
    call.version()?;
    done(0)
}

/// Makes an empty ledger.
pub fn init(call: &Call<'_>) -> Result<Answer, Failure> {
    call.create()?;
    done(0)
}

/// Moves the ledger to another place.
pub fn migrate(call: &Call<'_>, to: &str) -> Result<Answer, Failure> {
    let to: LedgerPlace = to
        .parse()
        .map_err(|error| Failure::Refused(format!("{error}")))?;
    if to.file().is_some_and(|file| !file.is_absolute()) {
        return Err(Failure::Refused(
            "a ledger's file is named by an absolute path".to_owned(),
        ));
    }
    if to == call.settings().ledger {
        return Err(Failure::Refused("the ledger is there already".to_owned()));
    }
    done(call.migrate(&to)?)
}

fn done(rows: u64) -> Result<Answer, Failure> {
    let reply = HostReply {
        status: "done".to_owned(),
        rows,
    };
    Answer::new(Exit::Done, &reply)
}

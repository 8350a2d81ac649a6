//! What only the host itself may ask for: `rename` and `backup`.

use std::path::Path;

use git_claim_api::exit::Exit;
use git_claim_api::reply::HostReply;

use crate::ledger::Verdict;
use crate::server::{Answer, Call, Failure};

/// Carries a repository's claims and history to another id.
pub fn rename(call: &Call<'_>, old: &str, new: &str) -> Result<Answer, Failure> {
    let mut rows = 0;
    call.ledger().change(call.deadline, &mut |transaction| {
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
    done(call.ledger().backup(file)?)
}

fn done(rows: u64) -> Result<Answer, Failure> {
    let reply = HostReply {
        status: "done".to_owned(),
        rows,
    };
    Answer::new(Exit::Done, &reply)
}

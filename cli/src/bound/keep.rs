//! The copy and the push option of the present worktree, kept true by what the
//! server answers to other commands.

use git_claim_api::lock::{self, Reading};
use git_claim_api::reply::{ClaimReply, Status};

use super::copy::Copies;
use super::push_option;
use super::repository::Repository;
use super::survey::full;
use crate::answer::Reply;
use crate::client::Client;
use crate::error::Result;
use crate::output::Output;

/// A claim goes on: if it is the one that this worktree is bound to, its record
/// is stored as it is now.
pub fn go_on(client: &Client, reply: &Reply, output: &Output) -> Result<()> {
    let claim: ClaimReply = reply.read()?;
    let Some(record) = claim
        .lock
        .as_ref()
        .filter(|_| matches!(claim.status, Status::Acquired | Status::Renewed))
    else {
        return Ok(());
    };
    let issue = full(&claim)?;
    let copies = Copies::of(&client.git().git_dir, client.remote());
    let Some(copy) = copies.load(&issue) else {
        return Ok(());
    };
    match (lock::read(&copy), lock::read(record)) {
        (Reading::Canonical(copy), Reading::Canonical(lock))
            if copy.work_lease.lease_id == lock.work_lease.lease_id =>
        {
            copies.store(&issue, record)?;
            let worktree = Repository::of(client.git())?;
            let alone = worktree.alone()?;
            Ok(push_option::keep_true(
                &worktree,
                &push_option::of(&lock),
                &alone,
            )?)
        }
        _ => {
            output.warning(&format!(
                "the record in this worktree is not this claim's; `git claim inspect {issue}` shows why"
            ));
            Ok(())
        }
    }
}

/// A claim is over, or somebody else's: this worktree is bound to it no more.
/// Answers whether it was.
pub fn let_go(client: &Client, reply: &Reply) -> Result<bool> {
    let claim: ClaimReply = reply.read()?;
    let is_over = match claim.status {
        Status::Released => true,
        Status::Held => claim.claim.holder.is_some() && !claim.claim.same_principal,
        _ => false,
    };
    let issue = full(&claim)?;
    let copies = Copies::of(&client.git().git_dir, client.remote());
    if !is_over || copies.load(&issue).is_none() {
        return Ok(false);
    }
    // The option first: it is what stops pushes.
    push_option::clear(&Repository::of(client.git())?, &issue)?;
    copies.remove(&issue)?;
    Ok(true)
}

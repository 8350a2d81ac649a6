//! A worktree with its claim: made, and given the record.

use anyhow::Result;
use git_claim_api::ids::{Branch, IssueId, Session};
use git_claim_api::reply::ClaimReply;

use super::copy::Copies;
use super::journal::Journal;
use super::place::Place;
use super::push_option;
use super::repository::{Over, Repository};
use crate::session;
use crate::token::Tokens;

/// A worktree of `branch` in `place`, with the session that its claim was taken
/// with.
pub async fn make_worktree(
    repository: &Repository,
    place: &Place,
    branch: &Branch,
    over: Over,
    session: &Session,
    journal: &mut Journal,
) -> Result<Repository> {
    journal.folder(&repository.common_dir.join("worktrees"));
    journal.worktree(&place.path, place.is_ours)?;
    repository.make_worktree(&place.path, branch, over).await?;
    let worktree = Repository::at(&place.path)?;
    push_option::clear_inherited(&worktree)?;
    session::adopt(&worktree.git_dir, session)?;
    Ok(worktree)
}

/// Keeps the record that a reply carries in the worktree, and its token.
pub fn store(
    worktree: &Repository,
    remote: &str,
    issue: &IssueId,
    reply: &ClaimReply,
    journal: &mut Journal,
) -> Result<()> {
    let copies = Copies::of(&worktree.git_dir, remote);
    let file = copies.path(issue);
    if let Some(folder) = file.parent() {
        journal.make_folder(folder)?;
    }
    journal.file_over_anything(&file)?;
    // A server that sends no record is told by what reads it back.
    copies.store(issue, &reply.lock.clone().unwrap_or_default())?;
    let tokens = Tokens::of(&worktree.git_dir, remote);
    journal.file_over_anything(&tokens.path(issue))?;
    tokens.put(issue, reply.claim.token)
}

//! Bound claims, on the client's side: one issue, one branch, one worktree.
//!
//! The server makes the record; here its copy is kept ([`copy`]), compared
//! with the server's and with the worktree ([`survey`]), and given to pushes
//! ([`push_option`]). [`plan`] decides where a claim is to be bound, and a
//! [`journal`] unmakes what a call made before it failed. Other commands [`keep`]
//! both true.

pub mod copy;
pub mod journal;
pub mod keep;
pub mod making;
pub mod place;
pub mod plan;
pub mod push_option;
pub mod quote;
pub mod recovery;
pub mod refusal;
pub mod refused;
pub mod repository;
pub mod site;
pub mod survey;

use git_claim_api::ids::{Branch, Text};
use git_claim_api::text::escape;
use git_claim_api::verb::Binding;

use crate::client::Client;
use crate::error::{Failure, Result};
use crate::session;
use std::path::Path;

/// What the server is told of the branch and the worktree.
///
/// # Errors
/// A path or a remote's name that no record can hold.
pub fn binding(client: &Client, branch: &Branch, worktree: &Path) -> Result<Binding> {
    let remote: Text = client
        .remote()
        .parse()
        .map_err(|why| Failure::error(format!("the remote's name cannot be recorded: {why}")))?;
    let machine: Text = session::machine_name()
        .parse()
        .map_err(|why| Failure::error(format!("the machine's name cannot be recorded: {why}")))?;
    Ok(Binding {
        remote: Some(remote),
        branch: branch.clone(),
        worktree: path_text(worktree)?,
        machine,
    })
}

/// A path as a record holds it.
///
/// # Errors
/// One that no record can hold.
pub fn path_text(path: &Path) -> Result<Text> {
    path.to_str()
        .ok_or_else(|| Failure::error(format!("{} is not UTF-8", escape(&path.to_string_lossy()))))?
        .parse()
        .map_err(|why| Failure::error(format!("the worktree's path cannot be recorded: {why}")))
}

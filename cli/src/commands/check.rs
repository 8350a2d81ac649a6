//! `git claim check`: the gate before a push or a pull request.

use std::io::Read as _;

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::lock::Lock;
use serde_json::json;

use crate::bound::copy::Copies;
use crate::bound::push_option;
use crate::bound::repository::{Head, Repository};
use crate::bound::survey::{self, Survey, branch_of};
use crate::client::Client;
use crate::commands::whoami;
use crate::error::{Failure, Result};
use crate::git::Git;
use crate::output::{Output, people};

/// Check that the claim that this worktree is bound to is sound
///
/// Succeeds only if the record here is complete and the server's, the claim is
/// live and this session's, and the worktree is where the record says, on its
/// branch. Else it says what is wrong, and which command helps.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run as this git hook: pushes of branches that no claim is bound to pass
    #[arg(long, value_enum, value_name = "HOOK")]
    pub hook: Option<Hook>,

    /// What git hands to the hook: the remote and its URL
    #[arg(value_name = "WORD", num_args = 0..=2, requires = "hook", hide = true, value_hint = ValueHint::Other)]
    pub words: Vec<String>,
}

/// A hook that the check can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hook {
    PrePush,
}

pub async fn run(client: &mut Client, output: &mut Output) -> Result<Exit> {
    let worktree = Repository::of(client.git())?;
    let survey = survey::bound(client, worktree, output).await?;
    let lock = survey.judge()?;
    let option = push_option::of(&lock);
    let is_set = push_option::claim_options(&survey.worktree)? == [option.as_str()];
    let is_missed = !is_set && is_missed(client, output).await;
    say(&survey, &lock, &option, is_set, output)?;
    if is_missed && !output.json() {
        output.warning(&format!(
            "a push from here does not show the claim's token, and may be refused; \
             `git claim start {}` has it shown",
            lock.issue_number
        ));
    }
    Ok(Exit::Done)
}

/// Whether the server looks at the tokens of pushes, and any push from here could
/// show one. It may do so only since the claim was bound.
async fn is_missed(client: &mut Client, output: &mut Output) -> bool {
    // The claim is sound, whoever does not answer to this.
    let Ok((whoami, _)) = whoami::asked(client, output).await else {
        return false;
    };
    push_option::is_taken_everywhere(&client.git().config, client.remote(), &whoami)
}

/// What a push that git is about to make concerns, if it concerns a claim at
/// all: the remote and the issue. Nobody is asked before that is known, so that
/// no other push is ever in the way.
///
/// # Errors
/// git did not say what is pushed.
pub fn concerned_by_hook(words: &[String]) -> Result<Option<(String, IssueId)>> {
    let mut refs = String::new();
    std::io::stdin()
        .read_to_string(&mut refs)
        .map_err(|error| Failure::error(format!("the refs cannot be read: {error}")))?;
    // A URL that is no remote's has no claims.
    let Some(remote) = words.first() else {
        return Ok(None);
    };
    let worktree = Repository::of(&Git::discover()?)?;
    let issue = concerned(&worktree, remote, &pushed(&refs));
    Ok(issue.map(|issue| (remote.clone(), issue)))
}

/// The check as a hook: one that is content says nothing.
pub async fn run_hook(issue: IssueId, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let worktree = Repository::of(client.git())?;
    let survey = Survey::take(client, worktree, issue, output).await?;
    survey.judge()?;
    Ok(Exit::Done)
}

/// The branches that a push moves on the server, from what git tells a
/// pre-push hook: `<local ref> <local oid> <remote ref> <remote oid>` a line.
fn pushed(refs: &str) -> Vec<&str> {
    refs.lines()
        .filter_map(|line| line.split(' ').nth(2)?.strip_prefix("refs/heads/"))
        .collect()
}

/// The issue whose claim a push of these branches concerns.
fn concerned(worktree: &Repository, remote: &str, pushed: &[&str]) -> Option<IssueId> {
    let copies = Copies::of(&worktree.git_dir, remote);
    copies.issues().into_iter().find(|issue| {
        let recorded = copies.load(issue);
        match recorded.as_ref().and_then(branch_of) {
            Some(branch) => pushed.contains(&branch.as_str()),
            // A damaged record may be of any branch that is worked on here.
            None => {
                let current = match worktree.head() {
                    Head::Branch(name) => name,
                    Head::Detached | Head::Bare => String::new(),
                };
                let usual = format!("claim/{issue}");
                pushed
                    .iter()
                    .any(|branch| *branch == current || *branch == usual)
            }
        }
    })
}

fn say(survey: &Survey, lock: &Lock, option: &str, is_set: bool, output: &Output) -> Result<()> {
    if output.json() {
        return output.value(&json!({
            "success": true,
            "work_allowed": true,
            "missing": [],
            "issue": lock.issue_number,
            "branch": lock.branch_name,
            "worktree": lock.worktree_path,
            "token": lock.work_lease.token,
            "expires_at": lock.work_lease.expires_at,
            "push_option": option,
            "push_option_set": is_set,
        }));
    }
    match &survey.server {
        Ok(shown) => output.sentence(&people::sound(shown)),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::pushed;

    #[test]
    fn it_is_the_servers_branch_that_moves() {
        let refs = "refs/heads/a 1 refs/heads/b 2\n(delete) 0 refs/heads/c 3\n\
                    HEAD 1 refs/tags/v1 0\nnonsense\n\n";
        assert_eq!(pushed(refs), ["b", "c"]);
    }
}

//! The push option that carries a claim's token, in the worktree's own
//! configuration: a plain `git push` from there shows it to the server.

use std::path::PathBuf;

use anyhow::Result;
use git_claim_api::ids::IssueId;
use git_claim_api::lock::Lock;
use git_claim_api::reply::WhoamiReply;

use super::journal::Journal;
use super::repository::{Alone, Repository};
use crate::git::Config;

const KEY: &str = "push.pushOption";
/// What every claim's option begins with.
const PREFIX: &str = "claim-token=";
const EXTENSION: &str = "extensions.worktreeConfig";

/// The option of a record: `claim-token=<issue>:<token>:<lease_id>`.
pub fn of(lock: &Lock) -> String {
    format!(
        "claim-token={}:{}:{}",
        lock.issue_number, lock.work_lease.token, lock.work_lease.lease_id
    )
}

/// Whether every push from here goes to the server that was asked, and it takes
/// push options. Any other would refuse the push.
pub fn is_taken_everywhere(config: &Config, remote: &str, whoami: &WhoamiReply) -> bool {
    let names: Vec<&str> = config
        .subsections("remote")
        .map(|(name, ..)| name)
        .collect();
    // A push may also go to a URL that is no remote's.
    let strays = config
        .subsections("branch")
        .filter(|(_, key, _)| matches!(*key, "remote" | "pushremote"))
        .map(|(_, _, value)| value)
        .chain(config.all("remote.pushdefault"))
        .any(|value| value != "." && !names.contains(&value));
    let urls = |key: &str| {
        config
            .subsections("remote")
            .filter(move |(_, name, url)| *name == key && !url.is_empty())
            .map(|(name, _, url)| (name, url))
            .collect::<Vec<_>>()
    };
    let (push_urls, fetch_urls) = (urls("pushurl"), urls("url"));
    let is_pushed_to = |name: &str| push_urls.iter().any(|(other, _)| *other == name);
    let mut targets: Vec<&str> = push_urls.iter().map(|(_, url)| *url).collect();
    targets.extend(
        fetch_urls
            .iter()
            .filter(|(name, _)| !is_pushed_to(name))
            .map(|(_, url)| *url),
    );
    targets.sort_unstable();
    targets.dedup();
    whoami.push_options == Some(true)
        && targets.len() == 1
        && !strays
        && config.get(&format!("remote.{remote}.claimurl")).is_none()
}

/// Makes `value` the claim's option of the worktree.
///
/// # Errors
/// The configuration cannot be written.
pub fn set(
    worktree: &Repository,
    value: &str,
    journal: &mut Journal,
    _alone: &Alone,
) -> Result<()> {
    enable(worktree, journal)?;
    if claim_options(worktree)? == [value] {
        return Ok(());
    }
    let file = file(worktree);
    journal.file(&file)?;
    worktree.ask(&[
        "config",
        "--file",
        &file.to_string_lossy(),
        "--replace-all",
        KEY,
        value,
        &format!("^{PREFIX}"),
    ])?;
    Ok(journal.written()?)
}

/// The same where the worktree has such an option already.
///
/// # Errors
/// The configuration cannot be read or written.
pub fn keep_true(worktree: &Repository, value: &str, alone: &Alone) -> Result<()> {
    if claim_options(worktree)?.is_empty() {
        return Ok(());
    }
    set(worktree, value, &mut Journal::default(), alone)
}

/// Removes the option of an issue's claim.
///
/// # Errors
/// The configuration cannot be read or written.
pub fn clear(worktree: &Repository, issue: &IssueId) -> Result<()> {
    unset(worktree, format!("claim-token={issue}:"))
}

/// Removes what git has copied into a new worktree from the one that it was
/// made from.
///
/// # Errors
/// The configuration cannot be read or written.
pub fn clear_inherited(worktree: &Repository) -> Result<()> {
    unset(worktree, PREFIX.to_owned())
}

fn unset(worktree: &Repository, prefix: String) -> Result<()> {
    if !claim_options(worktree)?
        .iter()
        .any(|value| value.starts_with(&prefix))
    {
        return Ok(());
    }
    let pattern = format!("^{}", prefix.replace('.', "\\."));
    let file = file(worktree);
    worktree.ask(&[
        "config",
        "--file",
        &file.to_string_lossy(),
        "--unset-all",
        KEY,
        &pattern,
    ])?;
    Ok(())
}

/// The claims' options in the worktree's own configuration.
///
/// # Errors
/// It cannot be read.
pub fn claim_options(worktree: &Repository) -> Result<Vec<String>> {
    let file = file(worktree);
    if !file.exists() {
        return Ok(Vec::new());
    }
    let config = worktree.ask(&["config", "--file", &file.to_string_lossy(), "-z", "--list"])?;
    let config = Config::parse(&config);
    Ok(config
        .all("push.pushoption")
        .filter(|value| value.starts_with(PREFIX))
        .map(str::to_owned)
        .collect())
}

fn file(worktree: &Repository) -> PathBuf {
    worktree.git_dir.join("config.worktree")
}

/// Lets worktrees have a configuration of their own. What every worktree would
/// then read of the main one alone moves into that one's.
fn enable(worktree: &Repository, journal: &mut Journal) -> Result<()> {
    let shared = worktree.common_dir.join("config");
    let own = worktree.common_dir.join("config.worktree");
    let (shared_name, own_name) = (shared.to_string_lossy(), own.to_string_lossy());
    let get = |key: &str| {
        worktree
            .ask(&["config", "--file", &shared_name, "--get", key])
            .map(|value| value.trim_end().to_owned())
    };
    if get(EXTENSION)
        .is_ok_and(|value| matches!(&*value.to_lowercase(), "true" | "yes" | "on" | "1"))
    {
        return Ok(());
    }
    let to_move: Vec<(&str, String)> = ["core.bare", "core.worktree"]
        .into_iter()
        .filter_map(|key| Some((key, get(key).ok()?)))
        .filter(|(key, value)| *key != "core.bare" || value == "true")
        .collect();
    if !to_move.is_empty() {
        journal.file(&own)?;
        for (key, value) in &to_move {
            worktree.ask(&["config", "--file", &own_name, key, value])?;
        }
        journal.written()?;
    }
    // In this order nothing is ever unset that is not read elsewhere.
    journal.file(&shared)?;
    worktree.ask(&["config", "--file", &shared_name, EXTENSION, "true"])?;
    for (key, _) in &to_move {
        worktree.ask(&["config", "--file", &shared_name, "--unset-all", key])?;
    }
    Ok(journal.written()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whoami(push_options: Option<bool>) -> WhoamiReply {
        serde_json::from_value(serde_json::json!({
            "status": "whoami", "name": "ann", "key": null, "access": "write", "repo": "r.git",
            "protocol": 1, "version": "0", "tracker": null, "max_ttl": 1, "default_ttl": 1,
            "push_options": push_options, "now": "",
        }))
        .unwrap()
    }

    #[test]
    fn it_is_set_only_where_every_push_can_carry_it() {
        let origin = "remote.origin.url\nhost:r\0";
        let taken = |config: &str, options| {
            is_taken_everywhere(&Config::parse(config), "origin", &whoami(options))
        };
        assert!(taken(origin, Some(true)));
        assert!(!taken(origin, Some(false)));
        assert!(!taken(origin, None));
        for more in [
            "remote.origin.pushurl\nhost:r\0remote.origin.pushurl\nother:r\0",
            "remote.origin.url\nother:r\0",
            "remote.up.url\nother:r\0",
            "remote.origin.claimurl\nlease:r\0",
            "remote.pushdefault\nother:r\0",
            "branch.x.pushremote\nother:r\0",
        ] {
            assert!(!taken(&format!("{origin}{more}"), Some(true)), "{more}");
        }
        for more in [
            "remote.origin.pushurl\nhost:r\0",
            "branch.x.remote\n.\0",
            "branch.x.remote\norigin\0",
        ] {
            assert!(taken(&format!("{origin}{more}"), Some(true)), "{more}");
        }
    }
}

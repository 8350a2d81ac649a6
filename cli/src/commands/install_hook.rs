//! `git claim install-hook`: the check in front of every push.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use git_claim_api::exit::Exit;
use git_claim_api::text::escape;
use serde_json::json;

use crate::error::{Failure, Result};
use crate::git::Git;
use crate::hex::random;
use crate::output::Output;

/// Have `git claim check` run before every push, as git's pre-push hook
///
/// A hook that is there already goes on to run, before the check, under the
/// name pre-push.local. Pushes of branches that no claim is bound to pass.
#[derive(Debug, clap::Args)]
pub struct Args {}

const NAME: &str = "pre-push";

/// What the hook that was there before is called.
const CHAINED: &str = "pre-push.local";

/// What every version of our hook says of itself.
const MARK: &str = "# Installed by `git claim install-hook`.";

const HOOK: &str = r##"#!/bin/sh
# Installed by `git claim install-hook`.
# Runs the hook that was here before, pre-push.local, and then the check of the
# claim that this worktree is bound to.
refs=$(cat; echo .)
refs=${refs%.}
before=$(dirname "$0")/pre-push.local
if [ -x "$before" ]; then
    printf %s "$refs" | "$before" "$@" || exit
fi
ls "$(git rev-parse --git-dir)"/claims/*/*.json >/dev/null 2>&1 || exit 0
printf %s "$refs" | git claim check --hook pre-push -- "$@"
"##;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Installed,
    Chained,
    Already,
}

pub fn run(_args: &Args, output: &mut Output) -> Result<Exit> {
    let git = Git::discover()?;
    output.configure(&git.config);
    let folder = git.line(&["rev-parse", "--path-format=absolute", "--git-path", "hooks"])?;
    let folder = PathBuf::from(folder);
    let done = install(&folder)?;
    let file = folder.join(NAME);
    if output.json() {
        let status = match done {
            Done::Already => "already-installed",
            Done::Installed | Done::Chained => "installed",
        };
        output.value(&json!({
            "status": status,
            "hook": file,
            "chained": folder.join(CHAINED).exists(),
        }))?;
        return Ok(Exit::Done);
    }
    let shown = escape(&file.to_string_lossy());
    output.sentence(&match done {
        Done::Already => format!("the hook is in place: {shown}"),
        Done::Installed => format!("installed {shown}"),
        Done::Chained => format!("installed {shown}; the hook that was there runs as {CHAINED}"),
    })?;
    Ok(Exit::Done)
}

fn install(folder: &Path) -> Result<Done> {
    let (file, chained) = (folder.join(NAME), folder.join(CHAINED));
    let there = file.symlink_metadata().is_ok();
    let content = fs::read(&file).unwrap_or_default();
    if content == HOOK.as_bytes() {
        return Ok(Done::Already);
    }
    let is_ours = String::from_utf8_lossy(&content).contains(MARK);
    let to_chain = there && !is_ours;
    if to_chain && chained.symlink_metadata().is_ok() {
        return Err(Failure::error(format!(
            "{} and {} are both there already",
            escape(&file.to_string_lossy()),
            escape(&chained.to_string_lossy())
        ))
        .hint("put what they do into one of them, and remove the other"));
    }
    let write = || -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        let temporary = folder.join(format!("{NAME}.{}", random::<4>()?));
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o777)
            .open(&temporary)?
            .write_all(HOOK.as_bytes())?;
        if to_chain {
            fs::rename(&file, &chained)?;
        }
        fs::rename(&temporary, &file)?;
        Ok(())
    };
    write().with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(match to_chain {
        true => Done::Chained,
        false => Done::Installed,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use assert_fs::TempDir;

    use super::*;

    #[test]
    fn a_hook_that_was_there_is_kept_and_ours_is_put_in_place_once() {
        let dir = TempDir::new().unwrap();
        let folder = dir.path().join("hooks");
        assert_eq!(install(&folder).unwrap(), Done::Installed);
        assert_eq!(install(&folder).unwrap(), Done::Already);
        let mode = fs::metadata(folder.join(NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0o111);
        // An earlier version of ours is replaced, not chained.
        fs::write(folder.join(NAME), format!("#!/bin/sh\n{MARK}\n")).unwrap();
        assert_eq!(install(&folder).unwrap(), Done::Installed);
        fs::write(folder.join(NAME), "theirs").unwrap();
        assert_eq!(install(&folder).unwrap(), Done::Chained);
        assert_eq!(fs::read(folder.join(CHAINED)).unwrap(), b"theirs");
        fs::write(folder.join(NAME), "theirs again").unwrap();
        assert_eq!(install(&folder).unwrap_err().kind.code(), 1);
        assert_eq!(fs::read(folder.join(NAME)).unwrap(), b"theirs again");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }
}

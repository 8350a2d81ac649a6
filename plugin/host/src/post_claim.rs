//! `hooks/post-claim` of a repository: each change of a claim, as JSON on
//! stdin. It runs apart from the request, which does not wait for it and does
//! not fail with it.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Access, AtFlags, CWD, MemfdFlags, memfd_create};

use crate::environment::is_dropped;
use crate::log::{Level, log};

/// The hook's place in a git directory.
const HOOK: &str = "hooks/post-claim";

/// Runs the hook `$0`, and after `$1` seconds ends it with all that it has
/// started. A shell stays behind to count, as this process is gone by then; what
/// a shell starts in the background reads nothing unless it is told to.
const RUN_AND_COUNT: &str = r#"
exec 3<&0
"$0" <&3 3<&- &
hook=$!
exec 3<&-
left=$1
while [ "$left" -gt 0 ]; do
    sleep 1
    kill -0 "$hook" 2>/dev/null || exit 0
    left=$((left - 1))
done
kill -KILL 0
"#;

/// How long the hook may take, in seconds.
const LIMIT: u32 = 10;

/// Those that have not been waited for: a request that serves for hours must
/// not collect them.
static RUNNING: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Tells the hook in `git_dir` of `event`, if there is one that can be run.
pub fn tell(git_dir: &Path, event: &str) {
    let hook = git_dir.join(HOOK);
    let is_there = hook.is_file()
        && rustix::fs::accessat(CWD, &hook, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    if !is_there {
        return;
    }
    match start(git_dir, &hook, event, LIMIT) {
        Ok(child) => {
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            running.push(child);
        }
        Err(error) => log(Level::Warn, &format!("{}: {error}", hook.display())),
    }
}

fn start(git_dir: &Path, hook: &Path, event: &str, limit: u32) -> io::Result<Child> {
    // Not a pipe, which would have to be fed by somebody.
    let mut input = File::from(memfd_create("event", MemfdFlags::CLOEXEC)?);
    input.write_all(event.as_bytes())?;
    input.write_all(b"\n")?;
    input.rewind()?;
    let kept = std::env::vars_os().filter(|(name, _)| !is_dropped(name));
    Command::new("/bin/sh")
        .args(["-c", RUN_AND_COUNT])
        .arg(hook)
        .arg(limit.to_string())
        .current_dir(git_dir)
        .env_clear()
        .envs(kept)
        .env("GIT_DIR", git_dir)
        .stdin(input)
        // sshd would wait for whoever holds the client's.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::time::{Duration, Instant};

    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    fn hook(folder: &TempDir, script: &str, mode: u32) {
        let hook = folder.child(HOOK);
        hook.write_str(&format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(hook.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn until_so(what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end, "{what} has not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn the_hook_reads_the_event_in_its_repository() {
        let folder = TempDir::new().unwrap();
        hook(
            &folder,
            "cat >got.tmp && pwd >>got.tmp && mv got.tmp got",
            0o755,
        );
        tell(folder.path(), r#"{"event":"acquired"}"#);
        let got = folder.child("got");
        until_so("the event", || got.path().exists());
        let got = std::fs::read_to_string(got.path()).unwrap();
        let here = folder.path().canonicalize().unwrap();
        assert_eq!(
            got,
            format!("{{\"event\":\"acquired\"}}\n{}\n", here.display())
        );
    }

    #[test]
    fn a_file_that_is_not_executable_is_no_hook() {
        let folder = TempDir::new().unwrap();
        tell(folder.path(), "{}");
        hook(&folder, "touch ran", 0o644);
        assert!(start(folder.path(), &folder.path().join("none"), "{}", LIMIT).is_ok());
        tell(folder.path(), "{}");
        assert!(!folder.child("ran").path().exists());
    }

    #[test]
    fn a_hook_that_does_not_end_is_ended_with_all_that_it_has_started() {
        let folder = TempDir::new().unwrap();
        let script = "trap '' TERM HUP INT
            rm -f hook child
            sh -c 'echo $$ >child.tmp; mv child.tmp child; while :; do sleep 0.1; done' &
            echo $$ >hook.tmp; mv hook.tmp hook
            while :; do sleep 0.1; done";
        hook(&folder, script, 0o755);
        // On a slow machine it has not even begun when the first is over.
        let pids = [1, 4, 16].into_iter().find_map(|limit| {
            let counting = start(folder.path(), &folder.path().join(HOOK), "{}", limit);
            let ended = counting.unwrap().wait().unwrap();
            assert_eq!(ended.signal(), Some(9));
            let pid = |name| std::fs::read_to_string(folder.child(name).path()).ok();
            Some([pid("hook")?, pid("child")?])
        });
        for pid in pids.unwrap() {
            until_so("the end", || {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
                stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
            });
        }
    }

    #[test]
    fn nobody_counts_any_more_when_the_hook_has_ended() {
        let folder = TempDir::new().unwrap();
        hook(&folder, "exit 3", 0o755);
        let mut counting = start(folder.path(), &folder.path().join(HOOK), "{}", LIMIT).unwrap();
        assert_eq!(counting.wait().unwrap().code(), Some(0));
    }
}

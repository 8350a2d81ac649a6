//! Connections that break and processes that are ended, at a point of the
//! test's choice.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::client::Client;

/// Kills the `git claim` that a script runs below, and what it has started; and
/// nobody else, should there be none.
pub const KILL: &str = "\
pids=; p=$PPID
while [ \"$p\" -gt 1 ]; do
    pids=\"$p $pids\"
    case $(cat /proc/$p/comm) in git-claim) kill -9 $pids; break ;; esac
    p=$(sed -n 's/^PPid:[^0-9]*//p' /proc/$p/status)
done";

/// A command line with `--json` over an ssh that runs `script` first, in which
/// `$n` is the number of the connection.
pub fn ssh_command(client: &Client, script: &str, line: &str) -> Command {
    let home = client.person().home();
    fs::create_dir_all(home.join("test")).unwrap();
    let _ = fs::remove_file(home.join("test/count"));
    client.person().make_program(
        "counted-ssh",
        &format!(
            "n=$(($(cat \"$HOME/test/count\" 2>/dev/null || echo 0) + 1))\n\
             echo $n >\"$HOME/test/count\"\n{script}\nexec ssh \"$@\""
        ),
    );
    // git would not wait for ours where Ctrl-C ends it.
    let words = line.strip_prefix("git claim ").unwrap();
    let mut command = client.person().std_command("git-claim", client.dir());
    command
        .args(words.split_whitespace())
        .arg("--json")
        .env("GIT_SSH_COMMAND", home.join("bin/counted-ssh"))
        .env("GIT_SSH_VARIANT", "ssh")
        // Who is turned away tries again until then.
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "claim.timeout")
        .env("GIT_CONFIG_VALUE_0", "10s")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn with_ssh(client: &Client, script: &str, line: &str) -> Output {
    ssh_command(client, script, line).output().unwrap()
}

/// Starts a command, waits until it has reached a point, and types Ctrl-C: the
/// signal hits it and all that it has started.
pub fn interrupted(main: &Client, mut command: Command) -> Value {
    let reached = main.person().home().join("test/reached");
    let mut child = command.process_group(0).spawn().unwrap();
    while !reached.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it is over");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    fs::remove_file(&reached).unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = match output.stdout.is_empty() {
        false => &output.stdout,
        true => &output.stderr,
    };
    serde_json::from_slice(said).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

//! Requests to the server without sshd, and what is said to them.

use std::process::{Command, Output};

use super::forge::Forge;
use super::programs;

/// One request of alice's, as sshd would hand it to the server.
pub fn server(forge: &Forge, request: &str) -> Command {
    let mut command = Command::new(programs::server());
    command
        .args(["openssh", "--config"])
        .arg(forge.config())
        .args(["--as", "alice"])
        .env("SSH_ORIGINAL_COMMAND", format!("collab-lease {request}"));
    command
}

/// The reply of a request that must succeed.
pub fn reply(mut command: Command) -> serde_json::Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A refusal: exit 6, one clear line and perhaps a hint, nothing that looks like a claim.
pub fn refused(output: &Output, said: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert_eq!(output.stdout, b"", "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    let hints = stderr.lines().skip(1);
    assert!(
        hints.into_iter().all(|line| line.starts_with("hint: ")),
        "{stderr}"
    );
    assert!(stderr.contains(said), "{said:?} is not in {stderr:?}");
}

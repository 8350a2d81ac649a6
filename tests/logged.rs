//! What the server tells the system's log: lines that nobody else has written into,
//! and nothing that is a secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_fs::TempDir;

use crate::support::forge::{Forge, REPO, git};
use crate::support::programs;

/// Runs `"$@"` where `/dev/log` is the socket `$2`; `$1` is an empty folder.
const WITH_LOG: &str = r#"
set -eu
mount -t tmpfs tmpfs "$1"
for name in null urandom; do
    : >"$1/$name"
    mount --bind "/dev/$name" "$1/$name"
done
: >"$1/log"
mount --bind "$2" "$1/log"
mount --rbind "$1" /dev
shift 2
exec "$@"
"#;

/// A system whose log a test reads.
struct Log {
    dir: TempDir,
    socket: UnixDatagram,
}

impl Log {
    /// `None`, with a line about it, where one may not be made: that takes root.
    fn new() -> Option<Log> {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("dev")).unwrap();
        let socket = UnixDatagram::bind(dir.path().join("log")).unwrap();
        socket.set_nonblocking(true).unwrap();
        let log = Log { dir, socket };
        let output = log.command(Path::new("true")).output().unwrap();
        if output.status.success() {
            return Some(log);
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !programs::is_root() || std::env::var_os("CI").is_none(),
            "{why}"
        );
        eprintln!("skipped: {why}");
        None
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", WITH_LOG])
            .arg("sh")
            .arg(self.dir.path().join("dev"))
            .arg(self.dir.path().join("log"))
            .arg(program)
            .stdin(Stdio::null());
        command
    }

    /// What has been logged since the last time.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut bytes = [0; 64 * 1024];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            lines.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
        }
        lines
    }
}

/// The lines that a request has left, each of which has to be one.
fn logged(log: &Log, output: &Output) -> Vec<String> {
    let lines = log.lines();
    for line in &lines {
        let (priority, rest) = line.split_once("git-claim-server[").unwrap();
        assert!(["<27>", "<28>", "<30>"].contains(&priority), "{line:?}");
        assert!(rest.contains("]: "), "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
    // It goes nowhere else.
    let seen = String::from_utf8_lossy(&output.stderr);
    assert!(!seen.contains("git-claim-server["), "{seen}");
    lines
}

fn server(log: &Log, kind: &str, config: &Path) -> Command {
    let mut server = log.command(&programs::server());
    server.args([kind, "--config"]).arg(config);
    server
}

#[test]
fn what_others_say_stays_within_its_line() {
    let Some(log) = Log::new() else { return };
    let forge = Forge::without_sshd("\twrite = *\n");
    let repo = forge.repos().join(REPO);
    let list = |variable: &str, value: &str| {
        let output = server(&log, "openssh", &forge.config())
            .args(["--as", "alice"])
            .env(
                "SSH_ORIGINAL_COMMAND",
                format!("collab-lease list {REPO} --ready"),
            )
            .env(variable, value)
            .output()
            .unwrap();
        logged(&log, &output)
    };
    let has = |lines: &[String], part: &str| {
        assert!(
            lines.iter().any(|line| line.contains(part)),
            "{part}: {lines:?}"
        );
    };
    let forged = "x\n<0>kernel: panic\u{1b}[31m\u{9b}2J\u{202e}";
    let shown = r"x\u000a<0>kernel: panic\u001b[31m\u009b2J\u202e";

    // A variable of the client's, where sshd lets it through.
    has(&list("SSH_USER_AUTH", &format!("/nowhere/{forged}")), shown);

    // What was committed to a tracker: a line that is broken, and quoted.
    git(&repo, &["config", "claim.tracker", "beads"]);
    let tree = TempDir::new().unwrap();
    let clone = tree.path().join("clone");
    git(
        tree.path(),
        &[
            "clone",
            "-q",
            repo.to_str().unwrap(),
            clone.to_str().unwrap(),
        ],
    );
    fs::create_dir(clone.join(".beads")).unwrap();
    let issue = serde_json::json!({ "id": "a-1", "title": "t", "status": forged });
    fs::write(
        clone.join(".beads/issues.jsonl"),
        format!("{issue}\n{{\"id\":{forged}"),
    )
    .unwrap();
    git(&clone, &["add", "."]);
    git(&clone, &["commit", "-qm", "issues"]);
    git(&clone, &["push", "-q"]);
    has(&list("X", "x"), "beads");

    // What an admin's program answers.
    let program = forge.dir().join("tracker");
    fs::write(&program, format!("#!/bin/sh\ncat <<'END'\n{forged}\nEND\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    git(&repo, &["config", "claim.tracker", "command"]);
    git(
        &repo,
        &["config", "claim.trackerCommand", program.to_str().unwrap()],
    );
    has(&list("X", "x"), "command");

    // A name in the repository's config.
    git(&repo, &["config", "claim.tracker", forged]);
    has(&list("X", "x"), "kernel: panic");
}

/// A file as secrets want it.
fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    fs::write(&file, format!("{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

#[test]
fn no_secret_and_no_note_is_told() {
    const WORD: &str = "hunter2";
    let Some(log) = Log::new() else { return };
    let forge = Forge::without_sshd("\twrite = *\n");
    let ask = |kind: &str, words: &[&str], request: &str| {
        let output = server(&log, kind, &forge.config())
            .args(words)
            .env("SSH_ORIGINAL_COMMAND", request)
            .env("SECRET", format!("{WORD}-environment"))
            .output()
            .unwrap();
        let lines = logged(&log, &output);
        let told = [
            String::from_utf8_lossy(&output.stderr).into_owned(),
            lines.join("\n"),
        ];
        for text in &told {
            assert!(!text.contains(WORD), "{request}: {text}");
        }
        assert!(!lines.is_empty(), "{request}: {output:?}");
        output.status.code()
    };
    let alice = ["--as", "alice"];
    let take = format!("collab-lease acquire {REPO} ae1c051 --note {WORD}-note --session {WORD}");
    assert_eq!(ask("openssh", &alice, &take), Some(0));
    let take = take.replace("ae1c051", "537daeb");
    git(
        &forge.repos().join(REPO),
        &["config", "claim.maxTtl", "nonsense"],
    );
    assert_eq!(ask("openssh", &alice, &format!("{take} --ttl 5")), Some(6));

    // The settings' own secrets: one that is not what it should be, and some for a
    // forge that can't be reached.
    let password = secret(forge.dir(), "password", &format!("{WORD}-password"));
    forge.configure(&format!(
        "\twrite = *\n\tledger = etcd://127.0.0.1:1/claims\n\tetcdPassword = {}\n",
        password.display()
    ));
    assert_eq!(ask("openssh", &alice, &take), Some(6));
    let token = secret(forge.dir(), "token", &format!("{WORD}-token"));
    forge.configure(&format!(
        "[claimForgejo]\n\turl = http://127.0.0.1:1/\n\tinternalTokenFile = {token}\n\
         \tapiTokenFile = {token}\n",
        token = token.display()
    ));
    let original = ["--", "/bin/true", "serv", "key-1"];
    assert_eq!(ask("forgejo", &original, &take), Some(6));
}

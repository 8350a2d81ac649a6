//! `make install` puts everything where git, man and the shells find it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_cmd::Command;
use assert_fs::TempDir;

use crate::support::client::{Person, stderr, stdout};
use crate::support::forge::git;
use crate::support::programs;

const FILES: &[(&str, u32)] = &[
    ("bin/collab-lease", 0o755),
    ("bin/git-claim", 0o755),
    ("bin/git-claim-server", 0o755),
    ("bin/git-claims", 0o755),
    ("bin/git-unclaim", 0o755),
    ("include/git_claim_plugin.h", 0o644),
    ("lib/git-claim/libgit_claim_plugin.so", 0o644),
    ("share/bash-completion/completions/git-claim", 0o644),
    ("share/bash-completion/completions/git-claims", 0o644),
    ("share/bash-completion/completions/git-unclaim", 0o644),
    ("share/fish/vendor_conf.d/git-claim.fish", 0o644),
    ("share/fish/vendor_conf.d/git-claims.fish", 0o644),
    ("share/fish/vendor_conf.d/git-unclaim.fish", 0o644),
    ("share/man/man1/git-claim-check.1", 0o644),
    ("share/man/man1/git-claim-completions.1", 0o644),
    ("share/man/man1/git-claim-help.1", 0o644),
    ("share/man/man1/git-claim-inspect.1", 0o644),
    ("share/man/man1/git-claim-install-hook.1", 0o644),
    ("share/man/man1/git-claim-log.1", 0o644),
    ("share/man/man1/git-claim-recover.1", 0o644),
    ("share/man/man1/git-claim-renew.1", 0o644),
    ("share/man/man1/git-claim-run.1", 0o644),
    ("share/man/man1/git-claim-start.1", 0o644),
    ("share/man/man1/git-claim-whoami.1", 0o644),
    ("share/man/man1/git-claim.1", 0o644),
    ("share/man/man1/git-claims.1", 0o644),
    ("share/man/man1/git-unclaim.1", 0o644),
    ("share/man/man3/git-claim-plugin.3", 0o644),
    ("share/man/man7/gitclaim-workflow.7", 0o644),
    ("share/man/man8/collab-lease.8", 0o644),
    // A link.
    ("share/man/man8/git-claim-server.8", 0o777),
    ("share/zsh/site-functions/_git-claim", 0o644),
    ("share/zsh/site-functions/_git-claims", 0o644),
    ("share/zsh/site-functions/_git-unclaim", 0o644),
];

/// Runs `make TARGET` for what was built for these tests.
pub fn make(target: &str, destination: &Path) {
    let built = programs::folder();
    let mut make = Command::new("sh");
    make.current_dir(programs::source())
        // An administrator's umask must not lock everybody else out.
        .args(["-c", "umask 077 && exec make \"$@\"", "make", target])
        .arg("PREFIX=/usr")
        .arg(format!("DESTDIR={}", destination.display()))
        .arg(format!(
            "CARGO_TARGET_DIR={}",
            built.parent().unwrap().display()
        ))
        .arg(format!(
            "TARGET={}",
            built.file_name().unwrap().to_str().unwrap()
        ))
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .assert()
        .success();
}

pub fn files(folder: &Path, top: &Path, found: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
        if entry.file_type().unwrap().is_dir() {
            assert_eq!(mode, 0o755, "{}", entry.path().display());
            files(&entry.path(), top, found);
        } else {
            let path = entry.path();
            let path = path.strip_prefix(top).unwrap().to_str().unwrap();
            found.push((path.to_owned(), mode));
        }
    }
}

#[test]
fn everything_is_put_in_place_and_taken_away_again() {
    let dir = TempDir::new().unwrap();
    make("install", dir.path());
    let top = dir.path().join("usr");
    let mut found = Vec::new();
    files(&top, &top, &mut found);
    found.sort();
    let wanted: Vec<(String, u32)> = FILES
        .iter()
        .map(|(f, mode)| ((*f).to_owned(), *mode))
        .collect();
    assert_eq!(found, wanted);

    // What was installed works by itself: git finds the commands, the command
    // its server, the server its plugin.
    let there = dir.path().join("there.git");
    fs::create_dir(&there).unwrap();
    git(&there, &["init", "-q", "--bare"]);
    let person = Person::new("ann", dir.path().join("ann"));
    person.make_home();
    let client = person.worktree(there.to_str().unwrap());
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", top.join("bin").display());
    for line in ["claim 42 --ttl 1h", "claims", "unclaim 42"] {
        let mut command = client.git(line.split(' '));
        command.env("PATH", &path).assert().success();
    }

    make("uninstall", dir.path());
    let mut found = Vec::new();
    files(&top, &top, &mut found);
    assert_eq!(found, []);
    // Of the folders only the one that is ours alone.
    assert!(!top.join("lib/git-claim").exists());
}

/// What a command shows of the manual that is installed below `top`.
fn shown(person: &Person, top: &Path, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = person.command(words.next().unwrap(), person.home());
    command
        .args(words)
        .env("MANPATH", top.join("share/man"))
        .env("MANWIDTH", "80")
        .env("MANPAGER", "cat")
        .env("GIT_PAGER", "cat")
        .env("MAN_DISABLE_SECCOMP", "1");
    without_overstrikes(&stdout(&command.assert().success()))
}

#[test]
fn help_is_the_manual() {
    let dir = TempDir::new().unwrap();
    make("install", dir.path());
    let top = dir.path().join("usr");
    let person = Person::new("ann", dir.path().join("ann"));
    person.make_home();
    for (line, page) in [
        ("git claim --help", "git-claim(1)"),
        ("git claims --help", "git-claims(1)"),
        ("git unclaim --help", "git-unclaim(1)"),
        ("git-unclaim --help", "git-unclaim(1)"),
        ("git claim help", "git-claim(1)"),
        ("git claim help run", "git-claim-run(1)"),
        ("git claim help workflow", "gitclaim-workflow(7)"),
        ("git claim run --help", "git-claim-run(1)"),
        ("git claim heartbeat --help", "git-claim-renew(1)"),
        ("git help git-claim-run", "git-claim-run(1)"),
        // What is no command is a guide's name to git: `gitclaim-workflow`.
        ("git help claim-workflow", "gitclaim-workflow(7)"),
        ("man git-claim-server", "collab-lease(8)"),
    ] {
        let shown = shown(&person, &top, line);
        let title = shown.split_whitespace().next().unwrap();
        assert_eq!(title.to_lowercase(), page, "{line}");
        assert!(shown.contains("SYNOPSIS"), "{line}: {shown}");
    }
}

#[test]
fn where_no_page_is_installed_help_is_the_long_text() {
    let dir = TempDir::new().unwrap();
    let person = Person::new("ann", dir.path().join("ann"));
    person.make_home();
    for (line, first) in [
        (
            "git claim help",
            "Claim an issue, so that nobody else works on it",
        ),
        (
            "git-claim --help",
            "Claim an issue, so that nobody else works on it",
        ),
        ("git claim help run", "Hold a claim while a command runs"),
        ("git claim run --help", "Hold a claim while a command runs"),
        ("git claim run -h", "Hold a claim while a command runs"),
    ] {
        let shown = shown(&person, dir.path(), line);
        assert_eq!(shown.lines().next(), Some(first), "{line}");
    }
    // A guide has no other text.
    let mut help = person.command("git", person.home());
    help.args(["claim", "help", "workflow"])
        .env("MANPATH", dir.path());
    let words = stderr(&help.assert().code(1));
    assert!(
        words.contains("`man gitclaim-workflow` finds no page"),
        "{words}"
    );
}

/// The text of a page that was made for a printer: `X`, backspace, `X` is bold.
fn without_overstrikes(page: &str) -> String {
    let mut text = String::new();
    for c in page.chars() {
        if c == '\x08' {
            text.pop();
        } else {
            text.push(c);
        }
    }
    text
}

#[test]
fn shells_load_the_completions() {
    let dir = TempDir::new().unwrap();
    make("install", dir.path());
    let share = dir.path().join("usr/share");
    for name in ["git-claim", "git-claims", "git-unclaim"] {
        let bash = share.join("bash-completion/completions").join(name);
        quiet(
            Command::new("bash")
                .args(["--norc", "-euc", "source \"$1\"", "bash"])
                .arg(bash),
        );
        if let Some(zsh) = programs::find("zsh") {
            let script =
                "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -D; autoload +XUz _$2";
            let folder = share.join("zsh/site-functions");
            quiet(
                Command::new(zsh)
                    .args(["-fc", script, "zsh"])
                    .arg(folder)
                    .arg(name),
            );
        }
        if let Some(fish) = programs::find("fish") {
            let file = share.join(format!("fish/vendor_conf.d/{name}.fish"));
            quiet(
                Command::new(fish)
                    .args(["--no-config", "-c", "source $argv[1]"])
                    .arg(file)
                    .env("HOME", dir.path()),
            );
        }
    }
}

/// A shell that loads a completion says nothing about it.
fn quiet(command: &mut Command) {
    let assert = command.assert().success().stderr("");
    assert_eq!(stdout(&assert), "");
}

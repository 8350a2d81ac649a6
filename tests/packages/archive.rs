//! `make dist`: the source of one commit.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use assert_fs::TempDir;
use predicates::str::contains;

use super::{make, only_file, version};
use crate::support::forge::git;
use crate::support::programs;

/// Two clones of the source tree as it stands here, with one commit.
fn clones(dir: &Path) -> [PathBuf; 2] {
    let repository = dir.join("source.git");
    git(dir, &["init", "-q", "--bare", "source.git"]);
    for words in [
        &["add", "--all"][..],
        &["commit", "-q", "--message", "All of it"],
    ] {
        Command::new("git")
            .args(["-c", "user.name=ann", "-c", "user.email=ann@example.org"])
            .arg("--git-dir")
            .arg(&repository)
            .arg("--work-tree")
            .arg(programs::source())
            .args(words)
            .assert()
            .success();
    }
    ["one", "two/deeper"].map(|name| {
        let clone = dir.join(name);
        git(dir, &["clone", "-q", "source.git", name]);
        clone
    })
}

fn archive(clone: &Path, umask: &str, zone: &str) -> PathBuf {
    let made = clone
        .join("../made-by-")
        .with_file_name(zone.replace('/', "-"));
    let words = ["dist".to_owned(), format!("DISTDIR={}", made.display())];
    make(clone, umask, zone, &words).assert().success();
    only_file(&made, ".tar.gz")
}

#[test]
fn the_archive_of_a_commit_is_the_same_bytes_everywhere() {
    let dir = TempDir::new().unwrap();
    let [one, two] = clones(dir.path());
    git(&two, &["config", "core.autocrlf", "true"]);
    git(&two, &["config", "tar.umask", "user"]);
    let first = archive(&one, "022", "UTC");
    let second = archive(&two, "077", "Asia/Tokyo");
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());

    // It holds what the commit holds, in a folder with the version's name.
    let listed = Command::new("tar")
        .arg("-tzf")
        .arg(&first)
        .assert()
        .success();
    let listed = String::from_utf8_lossy(&listed.get_output().stdout).into_owned();
    let top = format!("git-claim-{}/", version());
    let mut found: Vec<&str> = listed
        .lines()
        .map(|line| line.strip_prefix(&top).unwrap())
        .filter(|line| !line.is_empty() && !line.ends_with('/'))
        .collect();
    found.sort_unstable();
    let committed = git(&one, &["ls-tree", "-r", "--name-only", "HEAD"]);
    let mut committed: Vec<&str> = committed.lines().collect();
    committed.sort_unstable();
    assert_eq!(found, committed);
    assert!(found.contains(&"Cargo.lock") && found.contains(&"LICENSE-MIT"));
}

#[test]
fn changes_that_no_commit_has_make_no_archive() {
    let dir = TempDir::new().unwrap();
    let [one, _] = clones(dir.path());
    fs::write(one.join("README.md"), "changed\n").unwrap();
    make(&one, "022", "UTC", &["dist".to_owned()])
        .assert()
        .failure()
        .stderr(contains("error: there are changes that no commit has\n"));
}

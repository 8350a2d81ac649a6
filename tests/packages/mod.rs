//! What is handed out: Debian packages, the archive of the source, the crates, and
//! what they are built of.

mod archive;
mod crates;
mod debian;
mod debs;
mod licences;

use std::path::{Path, PathBuf};

use assert_cmd::Command;

use crate::hosts::machine::source;

/// `make` in the source tree at `top`, where the world outside is as given:
/// neither an umask, nor a time zone, nor a language may leave a trace.
fn make(top: &Path, umask: &str, zone: &str, words: &[String]) -> Command {
    let mut command = Command::new("sh");
    command
        .current_dir(top)
        .args(["-c", "umask $0 && exec make \"$@\"", umask])
        .args(words)
        .env("TZ", zone)
        .env("LC_ALL", "C")
        .env_remove("SOURCE_DATE_EPOCH")
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL");
    command
}

/// The only file in `folder` whose name ends in `end`.
fn only_file(folder: &Path, end: &str) -> PathBuf {
    let found = files_ending_in(folder, end);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

fn files_ending_in(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(end))
        .collect();
    found.sort();
    found
}

/// The version in the workspace's manifest.
fn version() -> String {
    let manifest = source("Cargo.toml");
    let (_, rest) = manifest.split_once("\nversion = \"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[test]
fn the_changelogs_begin_with_the_version_that_is_built() {
    let changes = source("CHANGELOG.md");
    let newest = changes
        .lines()
        .find(|line| line.starts_with("## "))
        .unwrap();
    assert!(
        newest.starts_with(&format!("## [{}]", version())),
        "{newest}"
    );
    let debian = source("packaging/changelog");
    let newest = format!("git-claim ({}-1) ", version());
    assert!(debian.starts_with(&newest), "{debian}");
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
}

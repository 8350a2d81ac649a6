//! Bound claims: worktrees to start from, and what is on both sides.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use assert_cmd::assert::Assert;
use serde_json::{Value, json};

use super::client::Client;
use super::forge::{Forge, REPO, git};
use super::issue;

/// The branch of a claim that did not name one.
pub fn branch(issue: &str) -> String {
    format!("claim/{issue}")
}

/// A worktree of `name`'s that has fetched.
pub fn fetched(forge: &Forge, name: &str) -> Client {
    let client = forge.client(name);
    client.git(["fetch", "-q", "origin"]).assert().success();
    client
        .git(["remote", "set-head", "origin", "main"])
        .assert()
        .success();
    client
        .git(["switch", "-q", "-C", "main", "origin/main"])
        .assert()
        .success();
    client
}

/// [`fetched`], with [`issue::CRASH`] started: the main worktree and the bound
/// one.
pub fn started(forge: &Forge, name: &str) -> (Client, Client) {
    let main = fetched(forge, name);
    let reply = main.json("git claim start ae1c051b --ttl 2h", 0);
    assert_eq!(reply["success"], true, "{reply}");
    let bound = main.at(sibling(&main, issue::CRASH));
    (main, bound)
}

/// Where `git claim start` makes a worktree by itself.
pub fn sibling(main: &Client, issue: &str) -> PathBuf {
    let name = main.dir().file_name().unwrap().to_str().unwrap();
    main.dir()
        .with_file_name(format!("{name}.claims"))
        .join(issue)
}

/// The forge's git takes push options.
pub fn take_push_options(forge: &Forge) {
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "receive.advertisePushOptions", "true"]);
}

/// The git directory of a worktree.
pub fn git_dir(client: &Client) -> PathBuf {
    git(client.dir(), &["rev-parse", "--absolute-git-dir"]).into()
}

/// The file of the copy of [`issue::CRASH`]'s record.
pub fn copy_file(client: &Client) -> PathBuf {
    git_dir(client).join(format!("claims/origin/{}.json", issue::CRASH))
}

/// The copy itself.
pub fn copy(client: &Client) -> Value {
    serde_json::from_slice(&fs::read(copy_file(client)).unwrap()).unwrap()
}

/// Puts another copy in place.
pub fn set_copy(client: &Client, record: &Value) {
    fs::write(copy_file(client), serde_json::to_vec(record).unwrap()).unwrap();
}

/// The copy with what is at `path` replaced, or removed.
pub fn with(record: &Value, path: &str, value: Option<Value>) -> Value {
    let mut record = record.clone();
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = parents
        .split('.')
        .filter(|key| !key.is_empty())
        .fold(&mut record, |value, key| &mut value[key])
        .as_object_mut()
        .unwrap();
    match value {
        Some(value) => parent.insert(last.to_owned(), value),
        None => parent.remove(last),
    };
    record
}

/// A branch's tip.
pub fn tip(client: &Client, branch: &str) -> String {
    git(client.dir(), &["rev-parse", branch])
}

/// One more commit in a worktree.
pub fn commit(client: &Client, file: &str) -> String {
    fs::write(client.dir().join(file), file).unwrap();
    client.git(["add", file]).assert().success();
    client.git(["commit", "-qm", file]).assert().success();
    tip(client, "HEAD")
}

/// Nobody holds the issue.
pub fn is_free(client: &Client) {
    let leases = client.json("git claims", 0);
    assert_eq!(leases["leases"], json!([]));
}

/// Types the command that a refusal names.
pub fn next(client: &Client, refused: &Value) -> Assert {
    let line = refused["exact_next_action"].as_str().unwrap();
    client.command("sh").args(["-c", line]).assert()
}

/// A refusal's code; it allows no work.
pub fn reason(refused: &Value) -> &str {
    assert_eq!(refused["success"], false, "{refused}");
    assert_eq!(refused["work_allowed"], false, "{refused}");
    refused["reason_code"].as_str().unwrap()
}

/// Types a line, and then the command that each refusal names, until one is
/// refused no more. What was typed, in order: never the same twice.
pub fn lead_out(client: &Client, line: &str) -> Vec<String> {
    let mut typed: Vec<String> = Vec::new();
    let mut line = line.to_owned();
    loop {
        assert!(!typed.contains(&line), "{line} again: {typed:#?}");
        typed.push(line.clone());
        let is_ours = ["git claim", "git unclaim", " claim "]
            .iter()
            .any(|words| line.contains(words));
        let json = if is_ours { " --json" } else { "" };
        let mut command = client.command("sh");
        command.args(["-c", &format!("{line}{json}")]);
        let output = command.output().unwrap();
        if output.status.success() {
            return typed;
        }
        let reply: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{typed:#?}: {error}: {output:?}"));
        line = reply["exact_next_action"].as_str().unwrap().to_owned();
    }
}

/// Types a line until it works, and what it names in between: it is no use to be
/// led anywhere else. All that was typed.
pub fn get_through(client: &Client, line: &str) -> Vec<String> {
    let mut typed = Vec::new();
    for _ in 0..5 {
        let more = lead_out(client, line);
        let is_through = more.len() == 1;
        typed.extend(more);
        if is_through {
            return typed;
        }
    }
    panic!("{line} never works: {typed:#?}");
}

/// A hook of git's in place.
pub fn write_hook(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Every file below `folder` with what it holds, for a comparison. Folders are
/// entries too.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    walk(folder, &mut |path| {
        let content = match path.is_file() {
            true => fs::read(path).unwrap(),
            false => Vec::new(),
        };
        found.insert(path.to_owned(), content);
    });
    found
}

/// The same with the times of change, by the nanosecond.
pub fn times(folder: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let mut found = BTreeMap::new();
    walk(folder, &mut |path| {
        let metadata = path.symlink_metadata().unwrap();
        found.insert(path.to_owned(), (metadata.mtime(), metadata.mtime_nsec()));
    });
    found
}

fn walk(folder: &Path, seen: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        seen(&path);
        if path.is_dir() && !path.is_symlink() {
            walk(&path, seen);
        }
    }
}

//! What an input stands for in the trackers that keep an issue in commits.

use git2::{ObjectType, Odb, Oid};
use proptest::prelude::*;

use super::harness::of;

/// What messages of git-issue are made of.
pub fn git_issue_pieces() -> impl Strategy<Value = Vec<u8>> {
    of(
        &[
            "Title",
            "\n\n",
            "State: ",
            "closed",
            "open",
            "Title: ",
            "x",
            "\n",
            "\0",
            ": ",
            "raw ",
            "tree ",
            "parent ",
            "merge ",
            "é",
            "Labels: a, b",
        ],
        24,
    )
}

/// The messages of an issue's commits, divided by NUL, the oldest first. One
/// that begins with `raw ` is a commit as it stands behind that, and one that
/// begins with `merge ` joins the two before it. Gives the newest.
pub fn git_issue(odb: &Odb<'_>, input: &[u8]) -> Oid {
    let mut commits: Vec<Oid> = Vec::new();
    for message in input.split(|byte| *byte == 0) {
        let newest = commits.last().copied();
        commits.push(if let Some(raw) = message.strip_prefix(b"raw ") {
            odb.write(ObjectType::Commit, raw).unwrap()
        } else if let Some(message) = message.strip_prefix(b"merge ") {
            let joined = &commits[commits.len().saturating_sub(2)..];
            git_issue_commit(odb, joined, message)
        } else {
            git_issue_commit(odb, newest.as_slice(), message)
        });
    }
    commits[commits.len() - 1]
}

/// One commit of an issue's.
pub fn git_issue_commit(odb: &Odb<'_>, parents: &[Oid], message: &[u8]) -> Oid {
    let tree = odb.write(ObjectType::Tree, b"").unwrap();
    let raw = commit(tree, parents, message);
    odb.write(ObjectType::Commit, &raw).unwrap()
}

/// What packs of git-bug are made of.
pub fn git_bug_pieces() -> impl Strategy<Value = Vec<u8>> {
    of(
        &[
            "{\"ops\":[",
            "{\"type\":1,\"title\":\"x\"}",
            "{\"type\":4,\"status\":2}",
            ",",
            "]}",
            "\0",
            "\u{1}",
            "version-4",
            " ",
            "edit-clock-1",
            "create-clock-",
            "99",
            "{\"type\":2,\"title\":null}",
            "\"version\":3",
            "null",
        ],
        24,
    )
}

/// The blobs `ops` of an issue's commits, divided by NUL, the oldest first; what
/// stands behind a `\x01` are names in the commit's tree, divided by blanks. Gives
/// the newest.
pub fn git_bug(odb: &Odb<'_>, input: &[u8]) -> Oid {
    let mut newest = None;
    for pack in input.split(|byte| *byte == 0) {
        let mut parts = pack.splitn(2, |byte| *byte == 1);
        let ops = parts.next().unwrap();
        let names = parts.next().unwrap_or_default();
        newest = Some(git_bug_commit(odb, newest.as_slice(), ops, names));
    }
    newest.unwrap()
}

/// One commit of an issue's.
pub fn git_bug_commit(odb: &Odb<'_>, parents: &[Oid], ops: &[u8], names: &[u8]) -> Oid {
    let empty = odb.write(ObjectType::Blob, b"").unwrap();
    let ops = odb.write(ObjectType::Blob, ops).unwrap();
    let names = names.split(|byte| *byte == b' ');
    let names = names.filter(|name| !name.is_empty());
    let entries = [(&b"ops"[..], ops)].into_iter();
    let mut tree = Vec::new();
    for (name, oid) in entries.chain(names.map(|name| (name, empty))) {
        tree.extend_from_slice(b"100644 ");
        tree.extend_from_slice(name);
        tree.push(0);
        tree.extend_from_slice(oid.as_bytes());
    }
    let tree = odb.write(ObjectType::Tree, &tree).unwrap();
    let raw = commit(tree, parents, b"");
    odb.write(ObjectType::Commit, &raw).unwrap()
}

/// A commit over `tree`, with `message` behind `parents`.
pub fn commit(tree: Oid, parents: &[Oid], message: &[u8]) -> Vec<u8> {
    let mut raw = format!("tree {tree}\n");
    for parent in parents {
        raw.push_str(&format!("parent {parent}\n"));
    }
    raw.push_str("author t <t@e> 1700000000 +0000\ncommitter t <t@e> 1700000000 +0000\n\n");
    let mut raw = raw.into_bytes();
    raw.extend_from_slice(message);
    raw
}

/// What a file of beads is made of.
pub fn beads_pieces() -> impl Strategy<Value = Vec<u8>> {
    of(
        &[
            "{\"id\":",
            "\"a-1\"",
            "\"a-2\"",
            ",\"status\":\"open\"",
            ",\"status\":\"closed\"",
            ",\"priority\":",
            "0",
            "-9",
            "}",
            "\n",
            ",\"dependencies\":[{\"depends_on_id\":",
            ",\"type\":\"blocks\"}]",
            ",\"title\":null",
            ",\"_type\":\"memory\"",
            ",\"is_template\":true",
        ],
        24,
    )
}

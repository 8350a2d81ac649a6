//! git-bug: an issue is a chain of commits under `refs/bugs/<64 hex>`. Each
//! commit's tree has a blob `ops` with operations in JSON, and empty blobs
//! whose names tell the format's version and git-bug's logical clocks.

use git2::{Commit, Oid};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::by_ref::{Begun, Format, Recorded};
use super::chain::Chain;
use super::objects::Objects;
use super::unreadable::Unreadable;

pub const FORMAT: Format = Format {
    name: "git-bug",
    refs: "refs/bugs/",
    read,
    begun_if_open,
};

/// The newest format that is understood. Formats before 4 tell theirs in the
/// JSON, and the operations that count here have not changed since.
const NEWEST: u64 = 4;

/// One blob `ops`.
#[derive(Deserialize)]
struct OpsBlob {
    #[serde(default)]
    version: u64,
    /// git-bug writes `null` for none.
    ops: Option<Vec<Operation>>,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "type")]
    kind: u64,
    timestamp: Option<i64>,
    title: Option<String>,
    status: Option<u64>,
}

const CREATE: u64 = 1;
const SET_TITLE: u64 = 2;
const SET_STATUS: u64 = 4;

const OPEN: u64 = 1;
const CLOSED: u64 = 2;
const MERGED: u64 = 3;

/// What one commit adds.
struct Pack {
    ops: Vec<Operation>,
    created: Option<u64>,
    edited: Option<u64>,
    /// Of the blob; git-bug's order where two were written at once.
    hash: [u8; 32],
    /// When it was committed: seconds since the epoch.
    time: i64,
}

fn read(objects: &Objects<'_>, tip: Oid) -> Result<Recorded, Unreadable> {
    Ok(replay(objects, tip)?.0)
}

fn begun_if_open(objects: &Objects<'_>, tip: Oid) -> Result<Option<Begun>, Unreadable> {
    let (recorded, begun) = replay(objects, tip)?;
    Ok(recorded.is_open.then_some(begun))
}

/// All operations, the oldest first; the newest of a kind counts.
fn replay(objects: &Objects<'_>, tip: Oid) -> Result<(Recorded, Begun), Unreadable> {
    let mut packs = Vec::new();
    for commit in Chain::from(objects, tip) {
        packs.push(pack(objects, &commit?)?);
    }
    packs.reverse();
    // git-bug's own order. Along a chain its clock only rises, so this moves
    // nothing but what was written at once and joined later.
    if packs.iter().all(|pack| pack.edited.is_some()) {
        packs.sort_by_key(|pack| (pack.edited, pack.hash));
    }
    let mut begun = None;
    let mut is_open = true;
    let mut title = None;
    for pack in packs {
        for op in pack.ops {
            match (op.kind, begun) {
                (CREATE, None) => {
                    begun = Some(Begun {
                        count: pack.created.unwrap_or(0),
                        time: op.timestamp.unwrap_or(pack.time),
                    });
                    title = op.title;
                }
                (CREATE, Some(_)) => return Err(unreadable("it is created twice")),
                (_, None) => return Err(unreadable("it does not begin with its creation")),
                (SET_TITLE, _) => title = op.title,
                (SET_STATUS, _) => {
                    is_open = match op.status {
                        Some(OPEN) => true,
                        Some(CLOSED | MERGED) => false,
                        other => {
                            let other = other.map_or("missing".to_owned(), |n| n.to_string());
                            return Err(Unreadable(format!("no status is known as {other}")));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    let begun = begun.ok_or_else(|| unreadable("it has no operations"))?;
    Ok((Recorded { is_open, title }, begun))
}

fn pack(objects: &Objects<'_>, commit: &Commit<'_>) -> Result<Pack, Unreadable> {
    let mut ops = None;
    let (mut created, mut edited) = (None, None);
    let tree = objects.tree(commit.tree_id())?;
    for entry in &tree {
        let name = entry.name().unwrap_or_default();
        if name == "ops" {
            ops = Some(entry.id());
        } else if let Some(version) = name.strip_prefix("version-") {
            known(number(version)?)?;
        } else if let Some(clock) = name.strip_prefix("create-clock-") {
            created = Some(number(clock)?);
        } else if let Some(clock) = name.strip_prefix("edit-clock-") {
            edited = Some(number(clock)?);
        }
    }
    let ops = ops.ok_or_else(|| Unreadable(format!("commit {} has no ops", commit.id())))?;
    let blob = objects.blob(ops)?;
    let read: OpsBlob = serde_json::from_slice(blob.content())
        .map_err(|error| Unreadable(format!("the ops of commit {}: {error}", commit.id())))?;
    known(read.version)?;
    Ok(Pack {
        ops: read.ops.unwrap_or_default(),
        created,
        edited,
        hash: Sha256::digest(blob.content()).into(),
        time: commit.time().seconds(),
    })
}

fn known(version: u64) -> Result<(), Unreadable> {
    if version > NEWEST {
        return Err(Unreadable(format!(
            "its format {version} is newer than {NEWEST}, the newest that this version knows"
        )));
    }
    Ok(())
}

fn number(text: &str) -> Result<u64, Unreadable> {
    text.parse()
        .map_err(|_| Unreadable(format!("'{text}' should be a version or a clock")))
}

fn unreadable(why: &str) -> Unreadable {
    Unreadable(why.to_owned())
}

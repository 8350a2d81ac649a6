//! The canonical claim record, `git-claim/lock/1`: its one shape, and its one
//! reader. The server builds it (the plugin's `claim::record`), the client
//! stores what it was sent; whoever looks at either goes through [`read`].

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Branch, IssueId, Session, Token};
use crate::time::parse_rfc3339;

/// The name of the shape.
pub const CONTRACT: &str = "git-claim/lock/1";

/// How a canonical record's life is kept.
pub const LIFECYCLE: &str = "heartbeat-v1";

/// A complete record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    pub contract: String,
    /// The client's name for the remote.
    pub remote: String,
    /// The repository's path before its last segment; empty if there is none.
    pub org: String,
    /// The path's last segment without `.git`.
    pub repo: String,
    /// The issue's full id.
    pub issue_number: IssueId,
    pub branch_name: Branch,
    /// The client's path, for people to read.
    pub worktree_path: String,
    pub lock_generation: u64,
    pub lock_provenance: Provenance,
    pub work_lease: WorkLease,
    /// In a record that recovery upgraded or took again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_lock_recovery: Option<Recovery>,
}

/// Where a record comes from; minted by the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// `start` or `recover`.
    pub source: String,
    /// The server's program and version.
    pub minted_by: String,
    /// RFC 3339.
    pub minted_at: String,
    pub ledger_id: String,
}

/// Who holds it, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkLease {
    pub lease_id: String,
    pub token: Token,
    pub claimant: Claimant,
    pub task_session_id: Session,
    pub acquired_at: String,
    pub expires_at: String,
    pub last_heartbeat_at: String,
    pub heartbeat_count: u64,
    pub lifecycle_version: String,
}

/// A principal: the same name with another profile is another claimant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    pub username: String,
    /// The key, or what stands for it.
    pub profile: String,
}

/// What a recovered record was before, so that it never reads as an original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// `git-claim/lock/1`, or `legacy` for an older server's row.
    pub earlier_contract: String,
    pub missing_fields: Vec<String>,
    pub earlier_generation: u64,
    pub earlier_session: Option<String>,
    pub new_session: Session,
    /// The branch's head, which recovery left where it was.
    pub preserved_head: String,
}

/// When a record says that its claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Seconds since the Unix epoch.
    Recorded(i64),
    /// An assignment, marked as such: `"expires_at": "open-ended"`.
    OpenEnded,
    /// Not "not yet expired": the record is incomplete.
    Missing,
    /// Likewise.
    Unparseable,
}

/// The mark of an open-ended claim.
pub const OPEN_ENDED: &str = "open-ended";

/// What a record turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Complete, and in every field what it should be.
    Canonical(Box<Lock>),
    /// Something is missing, null or unparseable.
    Incomplete {
        /// The paths of what is.
        missing: Vec<String>,
        /// What could be read all the same.
        found: Found,
    },
}

/// What an incomplete record still says; nothing of it grants anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub contract: Option<String>,
    pub username: Option<String>,
    pub profile: Option<String>,
    pub branch: Option<String>,
    pub session: Option<String>,
    pub token: Option<u64>,
    pub generation: Option<u64>,
    pub expiry: Option<Expiry>,
}

/// What a required field must be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// Text that may be empty.
    AnyText,
    Number,
    Time,
    /// A time, and never open-ended.
    End,
    /// This very text.
    Fixed(&'static str),
    /// Text of one of the checked types.
    Parsed(fn(&str) -> bool),
}

/// Every required field: its path, and what it must be.
const REQUIRED: [(&str, Kind); 22] = [
    ("contract", Kind::Fixed(CONTRACT)),
    ("remote", Kind::Text),
    ("org", Kind::AnyText),
    ("repo", Kind::Text),
    (
        "issue_number",
        Kind::Parsed(|text| text.parse::<IssueId>().is_ok()),
    ),
    (
        "branch_name",
        Kind::Parsed(|text| text.parse::<Branch>().is_ok()),
    ),
    ("worktree_path", Kind::Text),
    ("lock_generation", Kind::Number),
    ("lock_provenance.source", Kind::Text),
    ("lock_provenance.minted_by", Kind::Text),
    ("lock_provenance.minted_at", Kind::Time),
    ("lock_provenance.ledger_id", Kind::Text),
    ("work_lease.lease_id", Kind::Text),
    ("work_lease.token", Kind::Number),
    ("work_lease.claimant.username", Kind::Text),
    ("work_lease.claimant.profile", Kind::Text),
    (
        "work_lease.task_session_id",
        Kind::Parsed(|text| text.parse::<Session>().is_ok()),
    ),
    ("work_lease.acquired_at", Kind::Time),
    ("work_lease.expires_at", Kind::End),
    ("work_lease.last_heartbeat_at", Kind::Time),
    ("work_lease.heartbeat_count", Kind::Number),
    ("work_lease.lifecycle_version", Kind::Fixed(LIFECYCLE)),
];

/// Where older writers put the claimant. Read where the present place is
/// empty; never written.
const OLDER_CLAIMANT: [(&str, &str); 2] = [
    ("work_lease.claimant.username", "claimant.username"),
    ("work_lease.claimant.profile", "claimant.profile"),
];

/// Reads a record, whoever wrote it.
pub fn read(record: &Value) -> Reading {
    let record = &with_claimant_in_place(record);
    let missing: Vec<String> = REQUIRED
        .iter()
        .filter(|(path, kind)| !is_kind(at(record, path), *kind))
        .map(|(path, _)| (*path).to_owned())
        .collect();
    if missing.is_empty() {
        match serde_json::from_value(record.clone()) {
            Ok(lock) => return Reading::Canonical(Box::new(lock)),
            // All that is required is there, so it is what is not.
            Err(_) => {
                return Reading::Incomplete {
                    missing: vec!["bootstrap_lock_recovery".to_owned()],
                    found: found(record),
                };
            }
        }
    }
    Reading::Incomplete {
        missing,
        found: found(record),
    }
}

/// When the record says that its claim ends.
pub fn expiry(record: &Value) -> Expiry {
    match at(record, "work_lease.expires_at") {
        None | Some(Value::Null) => Expiry::Missing,
        Some(Value::String(text)) if text == OPEN_ENDED => Expiry::OpenEnded,
        Some(Value::String(text)) => match parse_rfc3339(text) {
            Some(seconds) => Expiry::Recorded(seconds),
            None => Expiry::Unparseable,
        },
        Some(_) => Expiry::Unparseable,
    }
}

/// The record with an older writer's claimant where it belongs, if nothing
/// stands there.
fn with_claimant_in_place(record: &Value) -> Value {
    let mut record = record.clone();
    if !matches!(at(&record, "work_lease.claimant"), None | Some(Value::Null)) {
        return record;
    }
    let older = OLDER_CLAIMANT.map(|(_, path)| at(&record, path).cloned());
    if let [Some(username), Some(profile)] = older
        && let Some(lease) = record.get_mut("work_lease").and_then(Value::as_object_mut)
    {
        lease.insert(
            "claimant".to_owned(),
            serde_json::json!({ "username": username, "profile": profile }),
        );
    }
    record
}

/// What stands at the path of a field.
pub fn at<'a>(record: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(record, |value, key| value.get(key))
}

fn is_kind(value: Option<&Value>, kind: Kind) -> bool {
    let text = value.and_then(Value::as_str);
    match kind {
        Kind::Text => text.is_some_and(|text| !text.is_empty()),
        Kind::AnyText => text.is_some(),
        Kind::Number => value.and_then(Value::as_u64).is_some(),
        Kind::Time | Kind::End => text.is_some_and(|text| parse_rfc3339(text).is_some()),
        Kind::Fixed(fixed) => text == Some(fixed),
        Kind::Parsed(parses) => text.is_some_and(parses),
    }
}

fn found(record: &Value) -> Found {
    let text = |path: &str| {
        at(record, path)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let number = |path: &str| at(record, path).and_then(Value::as_u64);
    let claimant = |(path, older): (&str, &str)| text(path).or_else(|| text(older));
    Found {
        contract: text("contract"),
        username: claimant(OLDER_CLAIMANT[0]),
        profile: claimant(OLDER_CLAIMANT[1]),
        branch: text("branch_name"),
        session: text("work_lease.task_session_id"),
        token: number("work_lease.token"),
        generation: number("lock_generation"),
        expiry: Some(expiry(record)),
    }
}

/// A repository's id as the record names it: what stands before the last
/// segment, and the last segment without `.git`.
pub fn org_and_repo(id: &str) -> (&str, &str) {
    let (org, repo) = id.rsplit_once('/').unwrap_or(("", id));
    (org, repo.strip_suffix(".git").unwrap_or(repo))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical() -> Value {
        json!({
            "contract": "git-claim/lock/1",
            "remote": "origin", "org": "acme", "repo": "app", "issue_number": "42",
            "branch_name": "claim/42", "worktree_path": "/home/ann/app.claims/42",
            "lock_generation": 3,
            "lock_provenance": {
                "source": "start", "minted_by": "git-claim 0.1.0",
                "minted_at": "2026-09-05T12:00:00Z", "ledger_id": "l"
            },
            "work_lease": {
                "lease_id": "x", "token": 7,
                "claimant": { "username": "ann", "profile": "SHA256:k" },
                "task_session_id": "s1",
                "acquired_at": "2026-09-05T12:00:00Z", "expires_at": "2026-09-05T14:00:00Z",
                "last_heartbeat_at": "2026-09-05T12:00:00Z", "heartbeat_count": 0,
                "lifecycle_version": "heartbeat-v1"
            }
        })
    }

    fn missing(record: &Value) -> Vec<String> {
        match read(record) {
            Reading::Canonical(_) => Vec::new(),
            Reading::Incomplete { missing, .. } => missing,
        }
    }

    /// `record` with the value at `path` replaced, or removed.
    fn with(mut record: Value, path: &str, value: Option<Value>) -> Value {
        let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = parents
            .split('.')
            .filter(|key| !key.is_empty())
            .fold(&mut record, |value, key| &mut value[key]);
        let parent = parent.as_object_mut().unwrap();
        match value {
            Some(value) => parent.insert(last.to_owned(), value),
            None => parent.remove(last),
        };
        record
    }

    #[test]
    fn a_complete_record_reads_back_as_it_was() {
        let Reading::Canonical(lock) = read(&canonical()) else {
            panic!("{:?}", missing(&canonical()));
        };
        assert_eq!(serde_json::to_value(&lock).unwrap(), canonical());
    }

    #[test]
    fn every_missing_null_or_wrong_field_is_named_by_its_path() {
        for (path, _) in REQUIRED {
            for value in [
                None,
                Some(json!(null)),
                Some(json!([])),
                Some(json!("\u{1}~^")),
            ] {
                let is_free_text = value == Some(json!("\u{1}~^"))
                    && matches!(
                        REQUIRED.iter().find(|(p, _)| *p == path),
                        Some((_, Kind::Text | Kind::AnyText))
                    );
                let record = with(canonical(), path, value.clone());
                let expected: &[&str] = if is_free_text { &[] } else { &[path] };
                assert_eq!(missing(&record), expected, "{path} {value:?}");
            }
        }
    }

    #[test]
    fn a_record_without_a_lifecycle_version_is_incomplete() {
        let record = with(canonical(), "work_lease.lifecycle_version", None);
        assert_eq!(missing(&record), ["work_lease.lifecycle_version"]);
    }

    #[test]
    fn an_older_claimant_counts_only_where_the_present_place_is_empty() {
        let older = json!({ "username": "bob", "profile": "SHA256:b" });
        let both = with(canonical(), "claimant", Some(older.clone()));
        let Reading::Canonical(lock) = read(&both) else {
            panic!()
        };
        assert_eq!(lock.work_lease.claimant.username, "ann");
        let alone = with(
            with(canonical(), "claimant", Some(older)),
            "work_lease.claimant",
            None,
        );
        let Reading::Canonical(lock) = read(&alone) else {
            panic!()
        };
        assert_eq!(lock.work_lease.claimant.username, "bob");
        // Read, never written.
        assert_eq!(serde_json::to_value(&lock).unwrap().get("claimant"), None);
    }

    #[test]
    fn expiry_is_explicit() {
        for (value, expected) in [
            (
                Some(json!("2026-09-05T12:00:00Z")),
                Expiry::Recorded(1_788_609_600),
            ),
            (Some(json!("open-ended")), Expiry::OpenEnded),
            (Some(json!(null)), Expiry::Missing),
            (None, Expiry::Missing),
            (Some(json!("soon")), Expiry::Unparseable),
            (Some(json!(7)), Expiry::Unparseable),
        ] {
            let record = with(canonical(), "work_lease.expires_at", value);
            assert_eq!(expiry(&record), expected);
            let is_complete = missing(&record).is_empty();
            assert_eq!(is_complete, matches!(expected, Expiry::Recorded(_)));
        }
    }

    #[test]
    fn anything_at_all_can_be_read() {
        for record in [
            json!(null),
            json!([]),
            json!("x"),
            json!({}),
            json!({ "work_lease": 7 }),
        ] {
            assert_eq!(missing(&record).len(), REQUIRED.len(), "{record}");
        }
    }

    #[test]
    fn repositories_are_split_at_their_last_segment() {
        assert_eq!(org_and_repo("acme/app.git"), ("acme", "app"));
        assert_eq!(org_and_repo("a/b/c"), ("a/b", "c"));
        assert_eq!(org_and_repo("app.git"), ("", "app"));
    }
}

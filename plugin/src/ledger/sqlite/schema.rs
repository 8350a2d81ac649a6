//! The tables, and how an older file becomes one of ours.
//!
//! `leases` is shared with older servers, which know its first six columns
//! alone; everything behind them is nullable. `PRAGMA user_version` is the
//! schema's version: 0 is an older server's file or an empty one.

use rusqlite::{Connection, OptionalExtension, Transaction, ffi, params};

use crate::ledger::LedgerError;
use crate::random;

/// The version that this code reads and writes.
pub const VERSION: i64 = 1;

/// The version of a ledger that has moved away: the same tables, and `moved`
/// says where to.
pub const MOVED: i64 = -1;

/// The columns that every server knows.
const SHARED_COLUMNS: [&str; 6] = [
    "repo",
    "issue_id",
    "holder",
    "token",
    "acquired_at",
    "expires_at",
];

/// The columns behind them. They belong to the tenure with `written_token`: an
/// older server that begins a tenure raises `token` alone, and what stands here
/// is then of no account.
const RECORD_COLUMNS: [(&str, &str); 21] = [
    ("written_token", "INTEGER"),
    ("generation", "INTEGER"),
    ("session", "TEXT"),
    ("profile", "TEXT"),
    ("seq", "INTEGER"),
    ("ttl", "INTEGER"),
    ("heartbeat_at", "INTEGER"),
    ("heartbeat_count", "INTEGER"),
    ("note", "TEXT"),
    ("title", "TEXT"),
    ("lease_id", "TEXT"),
    ("request", "TEXT"),
    ("branch", "TEXT"),
    ("remote", "TEXT"),
    ("worktree", "TEXT"),
    ("machine", "TEXT"),
    ("base", "TEXT"),
    ("source", "TEXT"),
    ("minted_by", "TEXT"),
    ("minted_at", "INTEGER"),
    ("recovery", "TEXT"),
];

const LEASES: &str = "
    CREATE TABLE leases (
        repo TEXT NOT NULL,
        issue_id TEXT NOT NULL,
        holder TEXT,
        token INTEGER NOT NULL,
        acquired_at INTEGER,
        expires_at INTEGER,
        PRIMARY KEY (repo, issue_id)
    )";

/// The planner takes an index on `(repo, expires_at)` of held rows for the list
/// of live claims; it ignores one on `(repo)` alone.
const BEHIND_LEASES: &str = "
    CREATE INDEX leases_live ON leases (repo, expires_at) WHERE holder IS NOT NULL;
    CREATE INDEX leases_request ON leases (repo, request) WHERE request IS NOT NULL;
    CREATE INDEX leases_branch ON leases (repo, branch) WHERE branch IS NOT NULL;
    CREATE TABLE tenures (
        id INTEGER PRIMARY KEY,
        repo TEXT NOT NULL,
        issue_id TEXT NOT NULL,
        token INTEGER NOT NULL,
        holder TEXT NOT NULL,
        session TEXT,
        profile TEXT,
        seq INTEGER,
        acquired_at INTEGER NOT NULL,
        expires_at INTEGER,
        ttl INTEGER,
        heartbeat_at INTEGER,
        heartbeat_count INTEGER,
        note TEXT,
        title TEXT,
        lease_id TEXT,
        request TEXT,
        branch TEXT,
        remote TEXT,
        worktree TEXT,
        machine TEXT,
        base TEXT,
        source TEXT,
        minted_by TEXT,
        minted_at INTEGER,
        recovery TEXT,
        ended_at INTEGER NOT NULL,
        how TEXT NOT NULL,
        ended_by TEXT,
        why TEXT,
        UNIQUE (repo, issue_id, token)
    );
    CREATE INDEX tenures_repo ON tenures (repo);
    CREATE INDEX tenures_request ON tenures (repo, request) WHERE request IS NOT NULL;
    CREATE TABLE ledger (
        id TEXT NOT NULL,
        next_seq INTEGER NOT NULL
    );";

/// What a file turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    Current,
    /// Empty, or an older server's.
    ToMake,
}

/// Looks which schema `connection` has; writes nothing.
///
/// # Errors
/// The reason why the file can't serve: a newer schema, or tables that are
/// no ledger's.
pub fn look(connection: &Connection) -> Result<Result<Schema, String>, rusqlite::Error> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        VERSION | MOVED => return Ok(Ok(Schema::Current)),
        0 => {}
        newer => {
            return Ok(Err(format!(
                "has schema version {newer}, and this program knows {VERSION} at most; use a newer git-claim"
            )));
        }
    }
    let tables: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table'",
        [],
        |row| row.get(0),
    )?;
    if tables == 0 {
        return Ok(Ok(Schema::ToMake));
    }
    let columns = columns_of_leases(connection)?;
    if !SHARED_COLUMNS
        .iter()
        .all(|column| columns.iter().any(|there| there == column))
    {
        return Ok(Err("is a database, but not a ledger of claims".to_owned()));
    }
    Ok(Ok(Schema::ToMake))
}

/// Makes the current schema out of an empty file or an older server's, in the
/// caller's transaction. Tokens and holders stay as they are.
///
/// # Errors
/// SQLite's; a random id that can't be made.
pub fn make(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    let leases_exist = transaction
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'leases'",
            [],
            |_| Ok(()),
        )
        .optional()?
        .is_some();
    if !leases_exist {
        transaction.execute_batch(LEASES)?;
    }
    let there = columns_of_leases(transaction)?;
    for (column, kind) in RECORD_COLUMNS {
        if !there.iter().any(|name| name == column) {
            transaction.execute_batch(&format!("ALTER TABLE leases ADD COLUMN {column} {kind}"))?;
        }
    }
    transaction.execute_batch(BEHIND_LEASES)?;
    transaction.execute(
        "INSERT INTO ledger (id, next_seq) VALUES (?1, 1)",
        params![random::id()],
    )?;
    transaction.pragma_update(None, "user_version", VERSION)
}

/// Where the ledger went, if it is not here any more.
///
/// # Errors
/// SQLite's.
pub fn moved_to(connection: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let version: i64 = connection
        .prepare_cached("PRAGMA user_version")?
        .query_row([], |row| row.get(0))?;
    if version == MOVED {
        return connection
            .query_row("SELECT place FROM moved", [], |row| row.get(0))
            .map(Some);
    }
    Ok(None)
}

/// Says that the ledger went to `place`, or that it is here.
///
/// # Errors
/// SQLite's.
pub fn set_moved(connection: &Connection, place: Option<&str>) -> Result<(), rusqlite::Error> {
    connection.execute_batch("DROP TABLE IF EXISTS moved")?;
    if let Some(place) = place {
        connection.execute_batch("CREATE TABLE moved (place TEXT NOT NULL)")?;
        connection.execute("INSERT INTO moved VALUES (?1)", params![place])?;
    }
    let version = if place.is_some() { MOVED } else { VERSION };
    connection.pragma_update(None, "user_version", version)
}

fn columns_of_leases(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    connection
        .prepare("SELECT name FROM pragma_table_info('leases')")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// Why a write comes to nothing; SQLite does not tell them apart.
pub const DISK_FAILS: &str = "the disk fails or is full, or a quota is used up";

/// SQLite says the same of a disk that can't read what is on it.
const CORRUPT: &str = "is corrupt, or can't be read from its disk; restore a backup";

fn is_of_reading(error: &rusqlite::Error) -> bool {
    let codes = [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ];
    error
        .sqlite_error()
        .is_some_and(|error| codes.contains(&error.extended_code))
}

/// A SQLite error as the ledger's own.
pub fn ledger_error(path: &std::path::Path, error: rusqlite::Error) -> LedgerError {
    use rusqlite::ErrorCode;

    let unfit = |why: &str| LedgerError::Unfit {
        path: path.to_owned(),
        why: why.to_owned(),
    };
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LedgerError::Busy,
        Some(ErrorCode::DiskFull) => LedgerError::Full(path.to_owned()),
        Some(ErrorCode::NotADatabase) => {
            unfit("is corrupt: it is not a database; restore a backup")
        }
        Some(ErrorCode::DatabaseCorrupt) => unfit(CORRUPT),
        Some(ErrorCode::ReadOnly) => unfit("cannot be written"),
        Some(ErrorCode::CannotOpen) => {
            unfit("cannot be opened, or not its -wal and -shm beside it")
        }
        Some(ErrorCode::SystemIoFailure) if is_of_reading(&error) => {
            unfit("cannot be read: its files are cut short, or the disk fails")
        }
        Some(ErrorCode::SystemIoFailure) => unfit(&format!("cannot be written: {DISK_FAILS}")),
        _ => LedgerError::Sqlite {
            path: path.to_owned(),
            source: error,
        },
    }
}

//! All that a file holds, at once: for `backup` and `migrate`.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};

use super::file::{side_file, sync_folder_of};
use super::rows::{self, ENDED, LEASE, TENURE};
use super::schema::{self, ledger_error};
use super::transaction::SqliteTransaction;
use crate::claim::Now;
use crate::ledger::contents::Contents;
use crate::ledger::copy::{self, Room, to_file};
use crate::ledger::{LedgerError, Transaction as _, When};

/// All that a ledger's tables hold.
///
/// # Errors
/// SQLite's; a row is damaged.
pub fn contents(connection: &Connection, path: &Path, now: Now) -> Result<Contents, LedgerError> {
    let sql = |error| ledger_error(path, error);
    let look = SqliteTransaction {
        connection,
        path,
        now,
    };
    let id = connection
        .query_row("SELECT id FROM ledger", [], |row| row.get(0))
        .map_err(sql)?;
    let repos: Vec<String> = connection
        .prepare("SELECT DISTINCT repo FROM leases UNION SELECT DISTINCT repo FROM tenures")
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
        .map_err(sql)?;
    let mut contents = Contents {
        id,
        at: now.floor(),
        ..Contents::default()
    };
    for repo in repos {
        let query = format!("SELECT {LEASE}, {TENURE} FROM leases WHERE repo = ?1");
        let rows = look.rows(&repo, &query, params![repo], rows::lease)?;
        let query = format!("SELECT {ENDED}, {TENURE} FROM tenures WHERE repo = ?1 ORDER BY id");
        let past = look.rows(&repo, &query, params![repo], rows::ended)?;
        let of = |repo: &String| repo.clone();
        let rows = rows.into_iter().map(|(issue, row)| (of(&repo), issue, row));
        contents.rows.extend(rows);
        let past = past
            .into_iter()
            .map(|(issue, ended)| (of(&repo), issue, ended));
        contents.past.extend(past);
    }
    contents.past.sort_by_key(|(.., ended)| ended.ended_at);
    Ok(contents)
}

/// Puts `contents` into an empty file.
///
/// # Errors
/// SQLite's.
pub fn fill(path: &Path, contents: &Contents) -> Result<(), LedgerError> {
    let sql = |error| ledger_error(path, error);
    let mut connection = Connection::open(path).map_err(sql)?;
    let transaction = connection.transaction().map_err(sql)?;
    schema::make(&transaction).map_err(sql)?;
    let next_seq = contents.last_seq() + 1;
    transaction
        .execute(
            "UPDATE ledger SET id = ?1, next_seq = ?2",
            params![contents.id, next_seq.cast_signed()],
        )
        .map_err(sql)?;
    let mut change = SqliteTransaction {
        connection: &transaction,
        path,
        now: Now(0),
    };
    for (repo, issue, claim) in &contents.rows {
        change.execute(
            "INSERT INTO leases (repo, issue_id, token, generation, written_token)
             VALUES (?1, ?2, ?3, ?4, ?3)",
            params![
                repo,
                issue.as_str(),
                claim.token.cast_signed(),
                claim.generation.cast_signed()
            ],
        )?;
        if claim.tenure.is_some() {
            change.store(repo, issue, &mut claim.clone(), None)?;
        }
    }
    for (repo, issue, ended) in &contents.past {
        change.store_ended(repo, issue, ended)?;
    }
    transaction.commit().map_err(sql)?;
    connection.close().map_err(|(_, error)| sql(error))
}

/// The id of the ledger in a file, and whether it is in service.
fn whose(path: &Path) -> Result<(String, bool), LedgerError> {
    let sql = |error| ledger_error(path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sql)?;
    let moved = schema::moved_to(&connection).map_err(sql)?;
    let id = connection
        .query_row("SELECT id FROM ledger", [], |row| row.get(0))
        .map_err(sql)?;
    Ok((id, moved.is_none()))
}

/// All that a file of [`fill`]'s holds.
fn filled(path: &Path, now: Now) -> Result<Contents, LedgerError> {
    let sql = |error| ledger_error(path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sql)?;
    contents(&connection, path, now)
}

/// A file, which is there once it has its name.
pub struct Target<'a> {
    pub path: &'a Path,
    pub when: When<'a>,
}

impl Target<'_> {
    fn unfit(&self, why: String) -> LedgerError {
        LedgerError::Unfit {
            path: self.path.to_owned(),
            why,
        }
    }
}

impl copy::Target for Target<'_> {
    fn found(&self, id: &str) -> Result<Room, LedgerError> {
        if !self.path.exists() {
            return Ok(Room::Free);
        }
        let (there, is_in_service) = whose(self.path)?;
        Ok(match (there == id, is_in_service) {
            (false, _) => Room::Another,
            (true, true) => Room::Itself,
            (true, false) => Room::Free,
        })
    }

    fn fill(&self, contents: &Contents) -> Result<Contents, LedgerError> {
        if side_file(self.path, "-wal").exists() {
            return Err(self.unfit("is still in use".to_owned()));
        }
        let now = self.when.clock.now();
        let new = side_file(self.path, "-new");
        // What an earlier try has left.
        let _ = fs::remove_file(&new);
        to_file(&contents.clone().moved_to(now), &new)?;
        filled(&new, now)
    }

    fn open(&self) -> Result<(), LedgerError> {
        let named = fs::rename(side_file(self.path, "-new"), self.path);
        named
            .and_then(|()| sync_folder_of(self.path))
            .map_err(|error| self.unfit(format!("cannot be put in place: {error}")))
    }
}

//! The ledger in one SQLite file: WAL with `synchronous=FULL`, every change in
//! one `BEGIN IMMEDIATE`, changes queued before the file.

mod beside;
mod connection;
mod copy;
pub mod file;
#[cfg(test)]
mod fuzz;
pub mod queue;
mod rows;
mod schema;
mod transaction;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rusqlite::{Connection, TransactionBehavior, params};

use super::contents::Contents;
use super::copy::{into_new_file, moved_on};
use super::{Ledger, LedgerError, Transaction, Verdict, Version, View, When};
use connection::{Handle, is_another, is_gone, not_committed};
use copy::contents;
use file::{FileId, Found};
use queue::Queue;
use schema::ledger_error;
use transaction::{SqliteTransaction, compile};

pub use copy::{Target, fill};

/// One ledger file. Connections are opened as threads need them and kept.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    /// The file that was opened first. Another one in its place would be read
    /// with the write-ahead log of this one.
    file: OnceLock<FileId>,
    idle: Mutex<Vec<Handle>>,
}

impl SqliteLedger {
    /// Opens the ledger at `path`, an absolute path, and brings an older
    /// server's file up to date. Where there is none, the first change makes it.
    ///
    /// # Errors
    /// [`LedgerError`]; a file that may not be used is not touched.
    pub fn open(path: &Path) -> Result<SqliteLedger, LedgerError> {
        let ledger = SqliteLedger {
            path: path.to_owned(),
            file: OnceLock::new(),
            idle: Mutex::default(),
        };
        let found = ledger.found()?;
        if found != Found::Nothing {
            let handle = ledger.handle(found)?;
            ledger.keep(handle);
        }
        Ok(ledger)
    }

    /// What is at the path: what was there before, as it must be.
    fn found(&self) -> Result<Found, LedgerError> {
        let found = file::check(&self.path)?;
        match (found, self.file.get()) {
            (Found::Nothing, Some(_)) => Err(is_gone(&self.path)),
            (Found::Ledger(file), Some(known)) if file != *known => Err(is_another(&self.path)),
            _ => Ok(found),
        }
    }

    /// A connection that nobody uses now, to what was found at the path.
    fn handle(&self, found: Found) -> Result<Handle, LedgerError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        if let Some(handle) = idle {
            handle.is_in_place()?;
            return Ok(handle);
        }
        let handle = Handle::open(&self.path, found)?;
        if *self.file.get_or_init(|| handle.file) == handle.file {
            Ok(handle)
        } else {
            Err(is_another(&self.path))
        }
    }

    fn keep(&self, handle: Handle) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(handle);
    }

    /// Lends a connection to `look`, which writes nothing. A ledger that nobody
    /// has changed yet is not made for it: it looks at an empty one in memory.
    fn look<T>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let found = self.found()?;
        if found == Found::Nothing {
            let sql = |error| ledger_error(&self.path, error);
            let mut empty = Connection::open_in_memory().map_err(sql)?;
            let transaction = empty.transaction().map_err(sql)?;
            schema::make(&transaction).map_err(sql)?;
            return look(&transaction);
        }
        self.with(found, |handle| {
            let transaction = handle
                .connection
                .transaction()
                .map_err(|error| ledger_error(&self.path, error))?;
            self.must_be_here(&transaction)?;
            look(&transaction)
        })
    }

    /// Refuses a ledger that has moved away.
    fn must_be_here(&self, connection: &Connection) -> Result<(), LedgerError> {
        let moved =
            schema::moved_to(connection).map_err(|error| ledger_error(&self.path, error))?;
        match moved {
            None => Ok(()),
            Some(place) => Err(LedgerError::Unfit {
                path: self.path.clone(),
                why: format!("has moved to {place}; set claim.ledger to that"),
            }),
        }
    }

    /// Lends a connection to `work`, to what was found at the path. One that
    /// failed is closed, not kept.
    fn with<T>(
        &self,
        found: Found,
        work: impl FnOnce(&mut Handle) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let mut handle = self.handle(found)?;
        let outcome = work(&mut handle)?;
        self.keep(handle);
        Ok(outcome)
    }
}

impl Ledger for SqliteLedger {
    fn read(
        &self,
        when: When<'_>,
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        self.look(|connection| {
            look(&SqliteTransaction {
                connection,
                path: &self.path,
                now: when.clock.now(),
            })
        })
    }

    fn change(
        &self,
        when: When<'_>,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), LedgerError> {
        let sql = |error| ledger_error(&self.path, error);
        let deadline = when.deadline;
        self.with(self.found()?, |handle| {
            let queue = match &mut handle.queue {
                Some(queue) => queue,
                none => none.insert(Queue::open(&self.path)?),
            };
            compile(&handle.connection).map_err(sql)?;
            let turn = queue.wait(deadline)?;
            let left = deadline.saturating_duration_since(Instant::now());
            handle.connection.busy_timeout(left).map_err(sql)?;
            let transaction = handle
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(sql)?;
            if Instant::now() >= deadline {
                return Err(LedgerError::Busy);
            }
            self.must_be_here(&transaction)?;
            // By the time of the decision, not of the request: others may have
            // been served in between.
            let verdict = work(&mut SqliteTransaction {
                connection: &transaction,
                path: &self.path,
                now: when.clock.now(),
            })?;
            if verdict == Verdict::Commit {
                transaction
                    .commit()
                    .map_err(|error| not_committed(&self.path, error))?;
            } else {
                transaction.rollback().map_err(sql)?;
            }
            drop(turn);
            // Only what is in the files that others read has been kept.
            handle.is_in_place()
        })
    }

    fn backup(&self, _: When<'_>, file: &Path) -> Result<u64, LedgerError> {
        let unfit = |error: &dyn std::error::Error| LedgerError::Unfit {
            path: self.path.clone(),
            why: format!("cannot be copied to {}: {error}", file.display()),
        };
        let copy = |handle: &mut Handle| {
            let sql = |error| ledger_error(&self.path, error);
            let rows: i64 = handle
                .connection
                .query_row("SELECT count(*) FROM leases", [], |row| row.get(0))
                .map_err(sql)?;
            handle
                .connection
                .execute("VACUUM INTO ?1", params![file.to_string_lossy()])
                // SQLite does not say which of the two files it is about.
                .map_err(|error| unfit(&error))?;
            Ok(rows.cast_unsigned())
        };
        into_new_file(
            file,
            |error| unfit(&error),
            || self.with(self.found()?, copy),
        )
    }

    fn create(&self, _: When<'_>) -> Result<(), LedgerError> {
        Err(LedgerError::Unfit {
            path: self.path.clone(),
            why: "is a file: it is made with the first claim".to_owned(),
        })
    }

    fn contents(&self, when: When<'_>) -> Result<Contents, LedgerError> {
        self.with(self.found()?, |handle| {
            let sql = |error| ledger_error(&self.path, error);
            let transaction = handle.connection.transaction().map_err(sql)?;
            contents(&transaction, &self.path, when.clock.now())
        })
    }

    fn retire(&self, when: When<'_>, to: Option<&str>) -> Result<bool, LedgerError> {
        let sql = |error| ledger_error(&self.path, error);
        self.with(self.found()?, |handle| {
            let queue = Queue::open(&self.path)?;
            let turn = queue.wait(when.deadline)?;
            let transaction = handle
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(sql)?;
            let was = schema::moved_to(&transaction).map_err(sql)?;
            let is_elsewhere = |was: &&String| to.is_some_and(|to| to != *was);
            if let Some(elsewhere) = was.as_ref().filter(is_elsewhere) {
                return Err(LedgerError::Unfit {
                    path: self.path.clone(),
                    why: moved_on(elsewhere),
                });
            }
            schema::set_moved(&transaction, to).map_err(sql)?;
            transaction.commit().map_err(sql)?;
            drop(turn);
            Ok(was.is_none())
        })
    }

    fn version(&self, when: When<'_>) -> Result<Version, LedgerError> {
        let at = when.clock.now();
        let found = self.found()?;
        if found == Found::Nothing {
            return Ok(Version { number: 0, at });
        }
        self.with(found, |handle| {
            self.must_be_here(&handle.connection)?;
            let version: u32 = handle
                .connection
                .query_row("PRAGMA data_version", [], |row| row.get(0))
                .map_err(|error| ledger_error(&self.path, error))?;
            // It counts for one connection alone.
            Ok(Version {
                number: (handle.serial << 32) | u64::from(version),
                at,
            })
        })
    }
}

//! One connection to the file: opened so that it is the file that others find, and
//! closed so that nothing of theirs is lost.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::beside::{self, Beside, Mishap};
use super::file::{FileId, Found};
use super::queue::Queue;
use super::schema::{self, Schema, ledger_error};
use crate::ledger::LedgerError;

/// How long opening may wait for others that open or close the same file.
const OPENING: Duration = Duration::from_secs(10);

/// How many connections this process has opened.
static OPENED: Mutex<u64> = Mutex::new(0);

/// One connection, and its place in the queue once it has changed something.
#[derive(Debug)]
pub struct Handle {
    pub connection: Connection,
    /// Tells it from every other connection of this process, from 1.
    pub serial: u64,
    pub queue: Option<Queue>,
    path: PathBuf,
    /// The ledger's file that the connection has open.
    pub file: FileId,
    /// What it has open beside it.
    beside: Beside,
}

impl Handle {
    /// Connects to what was found at `path`, or makes it.
    ///
    /// # Errors
    /// It may not be used, or not in time.
    pub fn open(path: &Path, found: Found) -> Result<Handle, LedgerError> {
        let deadline = Instant::now() + OPENING;
        if found == Found::Nothing {
            return Handle::create(path, deadline);
        }
        // Whoever opens while the last one closes may be told "busy" at once,
        // past any busy handler.
        loop {
            match Handle::open_existing(path, deadline) {
                Err(LedgerError::Busy) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome => return outcome,
            }
        }
    }

    /// Creates the file under the queue's lock, so that it has one creator.
    fn create(path: &Path, deadline: Instant) -> Result<Handle, LedgerError> {
        let queue = Queue::open(path)?;
        let turn = queue.wait(deadline)?;
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match created {
            // Closed later, it would drop the locks that SQLite has on it by then.
            Ok(file) => drop(file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                return Err(LedgerError::Full(path.to_owned()));
            }
            Err(error) => {
                return Err(LedgerError::Unfit {
                    path: path.to_owned(),
                    why: format!("cannot be created: {error}"),
                });
            }
        }
        drop(turn);
        Handle::open_existing(path, deadline)
    }

    fn open_existing(path: &Path, deadline: Instant) -> Result<Handle, LedgerError> {
        let sql = |error| ledger_error(path, error);
        let serial = serial(path)?;
        let before = FileId::at(path);
        let mut connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(sql)?;
        // Whichever of two was opened, here it is looked for again.
        let file = match FileId::at(path) {
            Some(file) if before == Some(file) => file,
            _ => return Err(LedgerError::Busy),
        };
        connection.busy_timeout(OPENING).map_err(sql)?;
        let mut queue = None;
        // A backup is a file without a write-ahead log.
        if looked_at(&connection, path)? == Schema::ToMake || !has_log(&connection).map_err(sql)? {
            queue = Some(prepare(&mut connection, path, deadline)?);
            // The first look is what opens the log.
            looked_at(&connection, path)?;
        }
        // A power cut must not take back what was acknowledged: with NORMAL it
        // would, and the same token would be handed out twice.
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(sql)?;
        // They stay until the last connection is closed.
        let beside = Beside::of(path);
        if !beside.is_complete() {
            return Err(log_is_lost(path));
        }
        Ok(Handle {
            connection,
            serial,
            queue,
            path: path.to_owned(),
            file,
            beside,
        })
    }

    /// Whether the files that are open are those that others find. What is
    /// written to one that was removed is gone with this process.
    ///
    /// # Errors
    /// They are not.
    pub fn is_in_place(&self) -> Result<(), LedgerError> {
        match FileId::at(&self.path) {
            None => Err(is_gone(&self.path)),
            Some(file) if file != self.file => Err(is_another(&self.path)),
            Some(_) if Beside::of(&self.path) != self.beside => Err(log_is_lost(&self.path)),
            Some(_) => Ok(()),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The last one writes its log into the file and removes the one that is
        // there. That must not be what others have written since.
        if Beside::of(&self.path).is_anew(self.beside) {
            let _ = self
                .connection
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

/// The number of a new connection to the ledger at `path`.
fn serial(path: &Path) -> Result<u64, LedgerError> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    // Where this process has none yet, it can be asked whether others have.
    if *opened == 0 {
        let mishap = beside::mishap(path)
            .map_err(|error| unfit(path, &format!("cannot be opened: {error}")))?;
        match mishap {
            None => {}
            Some(Mishap::Lost) => return Err(log_is_lost(path)),
            Some(Mishap::Replaced) => return Err(is_another(path)),
        }
    }
    *opened += 1;
    Ok(*opened)
}

/// What was written may be on the disk all the same where the disk has failed.
pub fn not_committed(path: &Path, error: rusqlite::Error) -> LedgerError {
    if error.sqlite_error_code() != Some(ErrorCode::SystemIoFailure) {
        return ledger_error(path, error);
    }
    LedgerError::Unsure {
        ledger: path.display().to_string(),
        why: schema::DISK_FAILS.to_owned(),
    }
}

fn unfit(path: &Path, why: &str) -> LedgerError {
    LedgerError::Unfit {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

pub fn is_gone(path: &Path) -> LedgerError {
    unfit(
        path,
        "was removed while it was in use; put it back, or stop what uses it",
    )
}

pub fn is_another(path: &Path) -> LedgerError {
    unfit(
        path,
        "was replaced while it was in use; stop what uses it, remove its -wal and -shm, and put the file there again",
    )
}

fn log_is_lost(path: &Path) -> LedgerError {
    unfit(
        path,
        "has lost its -wal or -shm file while it was in use; stop what uses it, and look what it holds",
    )
}

fn looked_at(connection: &Connection, path: &Path) -> Result<Schema, LedgerError> {
    let looked = schema::look(connection).map_err(|error| ledger_error(path, error))?;
    looked.map_err(|why| LedgerError::Unfit {
        path: path.to_owned(),
        why,
    })
}

/// Whether the file is kept with a write-ahead log.
fn has_log(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    Ok(mode == "wal")
}

/// Turns the write-ahead log on and makes the schema, unless another process did
/// so first; gives the place in the queue from which it was done.
fn prepare(
    connection: &mut Connection,
    path: &Path,
    deadline: Instant,
) -> Result<Queue, LedgerError> {
    let sql = |error| ledger_error(path, error);
    let queue = Queue::open(path)?;
    let turn = queue.wait(deadline)?;
    let schema = looked_at(connection, path)?;
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
        .map_err(sql)?;
    if schema == Schema::ToMake {
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sql)?;
        schema::make(&transaction).map_err(sql)?;
        transaction.commit().map_err(sql)?;
    }
    drop(turn);
    Ok(queue)
}

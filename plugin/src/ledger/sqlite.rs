//! The ledger in one SQLite file: WAL with `synchronous=FULL`, every change in
//! one `BEGIN IMMEDIATE`, changes queued before the file.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};
use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Params, Row, ToSql, TransactionBehavior,
    named_params, params,
};

use super::beside::{self, Beside, Mishap};
use super::contents::Contents;
use super::copy::{into_new_file, moved_on};
use super::file::{self, FileId, Found};
use super::queue::Queue;
use super::rows::{self, Damage, ENDED, LEASE, TENURE, TENURE_COLUMNS};
use super::schema::{self, Schema, ledger_error};
use super::{
    Filter, Ledger, LedgerError, RECENT_TENURES, Transaction, Verdict, Version, View, When,
};
use crate::claim::{Claim, Ended, Now};

/// How long opening may wait for others that open or close the same file.
const OPENING: Duration = Duration::from_secs(10);

/// How many connections this process has opened.
static OPENED: Mutex<u64> = Mutex::new(0);

/// One ledger file. Connections are opened as threads need them and kept.
#[derive(Debug)]
pub struct SqliteLedger {
    path: PathBuf,
    /// The file that was opened first. Another one in its place would be read
    /// with the write-ahead log of this one.
    file: OnceLock<FileId>,
    idle: Mutex<Vec<Handle>>,
}

/// One connection, and its place in the queue once it has changed something.
#[derive(Debug)]
struct Handle {
    connection: Connection,
    /// Tells it from every other connection of this process, from 1.
    serial: u64,
    queue: Option<Queue>,
    path: PathBuf,
    /// The ledger's file that the connection has open.
    file: FileId,
    /// What it has open beside it.
    beside: Beside,
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

impl Handle {
    fn open(path: &Path, found: Found) -> Result<Handle, LedgerError> {
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
    fn is_in_place(&self) -> Result<(), LedgerError> {
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
fn not_committed(path: &Path, error: rusqlite::Error) -> LedgerError {
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

fn is_gone(path: &Path) -> LedgerError {
    unfit(
        path,
        "was removed while it was in use; put it back, or stop what uses it",
    )
}

fn is_another(path: &Path) -> LedgerError {
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

    fn id(&self, _: When<'_>) -> Result<String, LedgerError> {
        self.look(|connection| {
            connection
                .query_row("SELECT id FROM ledger", [], |row| row.get(0))
                .map_err(|error| ledger_error(&self.path, error))
        })
    }
}

/// Compiles what most changes ask, and keeps it with the connection: while it has
/// its turn, all others wait.
fn compile(connection: &Connection) -> Result<(), rusqlite::Error> {
    for statement in [&claim_query(), NEXT_SEQ, USE_SEQ, &update_statement()] {
        connection.prepare_cached(statement)?;
    }
    Ok(())
}

/// The row of an issue.
fn claim_query() -> String {
    format!("SELECT {LEASE}, {TENURE} FROM leases WHERE repo = ?1 AND issue_id = ?2")
}

/// The number of the next tenure, and that it is taken.
const NEXT_SEQ: &str = "SELECT next_seq FROM ledger";
const USE_SEQ: &str = "UPDATE ledger SET next_seq = ?1 + 1 WHERE next_seq = ?1";

/// A transaction, read or write.
struct SqliteTransaction<'a> {
    connection: &'a Connection,
    path: &'a Path,
    now: Now,
}

impl SqliteTransaction<'_> {
    fn sql(&self, error: rusqlite::Error) -> LedgerError {
        ledger_error(self.path, error)
    }

    /// The rows of a query, each read by `read`.
    fn rows<T>(
        &self,
        repo: &str,
        query: &str,
        params: impl Params,
        read: fn(&Row<'_>) -> Result<T, Damage>,
    ) -> Result<Vec<T>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached(query)
            .map_err(|error| self.sql(error))?;
        let mut rows = statement.query(params).map_err(|error| self.sql(error))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|error| self.sql(error))? {
            out.push(read(row).map_err(|damage| damage.of(repo, row))?);
        }
        Ok(out)
    }

    fn execute(&self, statement: &str, params: impl Params) -> Result<usize, LedgerError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute(params))
            .map_err(|error| self.sql(error))
    }

    /// Where an issue's last tenure stands in the list, be it live or not.
    fn place_of(&self, repo: &str, issue: &IssueId) -> Result<Option<Place>, LedgerError> {
        self.connection
            .prepare_cached("SELECT seq, acquired_at FROM leases WHERE repo = ?1 AND issue_id = ?2")
            .and_then(|mut statement| {
                statement
                    .query_row(params![repo, issue.as_str()], |row| {
                        Ok(Place {
                            seq: row.get::<_, Option<i64>>(0)?.map_or(0, i64::cast_unsigned),
                            acquired_at: row.get::<_, Option<i64>>(1)?.unwrap_or(0),
                            issue: issue.clone(),
                        })
                    })
                    .optional()
            })
            .map_err(|error| self.sql(error))
    }
}

/// A place in the list of live claims: in the order in which the tenures began;
/// before them those of an older server, which knew whole seconds alone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    seq: u64,
    acquired_at: i64,
    issue: IssueId,
}

impl Place {
    fn of(issue: &IssueId, claim: &Claim) -> Place {
        let tenure = claim.tenure.as_ref();
        Place {
            seq: tenure.and_then(|tenure| tenure.seq).unwrap_or(0),
            acquired_at: tenure.map_or(0, |tenure| tenure.acquired_at),
            issue: issue.clone(),
        }
    }
}

fn truncate<T>(list: &mut Vec<T>, limit: Option<u32>) {
    if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
        list.truncate(limit);
    }
}

/// SQLite's "no limit".
fn sql_limit(limit: Option<u32>) -> i64 {
    limit.map_or(-1, i64::from)
}

impl View for SqliteTransaction<'_> {
    fn now(&self) -> Now {
        self.now
    }

    fn claim(&self, repo: &str, issue: &IssueId) -> Result<Claim, LedgerError> {
        let key = params![repo, issue.as_str()];
        let found = self.rows(repo, &claim_query(), key, rows::lease)?;
        Ok(found
            .into_iter()
            .next()
            .map(|(_, claim)| claim)
            .unwrap_or_default())
    }

    fn last_of(
        &self,
        repo: &str,
        issue: &IssueId,
        name: &str,
        session: Option<&Session>,
    ) -> Result<Option<Ended>, LedgerError> {
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures
             WHERE repo = :repo AND issue_id = :issue AND holder = :name AND session IS :session
               AND token > (SELECT token FROM leases WHERE repo = :repo AND issue_id = :issue) - :recent
             ORDER BY token DESC LIMIT 1"
        );
        let params = named_params! {
            ":repo": repo,
            ":issue": issue.as_str(),
            ":name": name,
            ":session": session.map(Session::as_str),
            ":recent": RECENT_TENURES.cast_signed(),
        };
        let found = self.rows(repo, &query, params, rows::ended)?;
        Ok(found.into_iter().next().map(|(_, ended)| ended))
    }

    fn begun_by(
        &self,
        repo: &str,
        name: &str,
        session: Option<&Session>,
        request: &RequestId,
    ) -> Result<Option<(IssueId, u64)>, LedgerError> {
        let read = |row: &Row<'_>| -> Result<(IssueId, u64), Damage> {
            let issue: String = row.get(0)?;
            let token: i64 = row.get(1)?;
            Ok((issue.parse()?, token.cast_unsigned()))
        };
        let found = self.rows(
            repo,
            "SELECT issue_id, token FROM leases
             WHERE repo = :repo AND request = :request AND session IS :session
               AND holder = :name AND written_token = token
             UNION ALL
             SELECT issue_id, token FROM tenures
             WHERE repo = :repo AND request = :request AND session IS :session AND holder = :name
             LIMIT 1",
            named_params! {
                ":repo": repo,
                ":request": request.as_str(),
                ":session": session.map(Session::as_str),
                ":name": name,
            },
            read,
        )?;
        Ok(found.into_iter().next())
    }

    fn past_lease(
        &self,
        repo: &str,
        issue: &IssueId,
        lease_id: &str,
    ) -> Result<Option<Ended>, LedgerError> {
        // The issue's own tenures, by the index of the table's key.
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures
             WHERE repo = ?1 AND issue_id = ?2 AND lease_id = ?3"
        );
        let params = params![repo, issue.as_str(), lease_id];
        let found = self.rows(repo, &query, params, rows::ended)?;
        Ok(found.into_iter().next().map(|(_, ended)| ended))
    }

    fn bound_to(&self, repo: &str, branch: &Branch) -> Result<Option<IssueId>, LedgerError> {
        let query = format!("SELECT {LEASE}, {TENURE} FROM leases WHERE repo = ?1 AND branch = ?2");
        let found = self.rows(repo, &query, params![repo, branch.as_str()], rows::lease)?;
        Ok(found
            .into_iter()
            .find(|(_, claim)| {
                claim
                    .live(self.now)
                    .and_then(|tenure| tenure.binding.as_ref())
                    .is_some_and(|bound| bound.branch == *branch)
            })
            .map(|(issue, _)| issue))
    }

    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError> {
        let read = |row: &Row<'_>| -> Result<IssueId, Damage> {
            let issue: String = row.get(0)?;
            Ok(issue.parse()?)
        };
        // Ids are ASCII, so what begins with `typed` lies below `typed` and DEL.
        let found = self.rows(
            repo,
            "SELECT issue_id FROM leases
             WHERE repo = ?1 AND issue_id >= ?2 AND issue_id < ?2 || char(127)
             ORDER BY issue_id LIMIT ?3",
            params![repo, typed.as_str(), most],
            read,
        )?;
        Ok(found
            .into_iter()
            .filter(|issue| typed.stands_for(issue.as_str()))
            .collect())
    }

    fn live(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Claim)>, LedgerError> {
        // Two ranges of one index: an OR would read every row that ever was held.
        let held = format!(
            "SELECT {LEASE}, {TENURE} FROM leases
             WHERE repo = :repo AND holder IS NOT NULL AND (:name IS NULL OR holder = :name)"
        );
        let query = format!("{held} AND expires_at IS NULL UNION ALL {held} AND expires_at > :now");
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":now": self.now.floor(),
        };
        let mut found: Vec<(Place, Claim)> = self
            .rows(repo, &query, params, rows::lease)?
            .into_iter()
            .map(|(issue, claim)| (Place::of(&issue, &claim), claim))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(after) = &filter.after
            && let Some(place) = self.place_of(repo, after)?
        {
            found.retain(|(found, _)| *found > place);
        }
        truncate(&mut found, filter.limit);
        Ok(found
            .into_iter()
            .map(|(place, claim)| (place.issue, claim))
            .collect())
    }

    fn ended(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        // What stands before `after` is needed to find the place behind it.
        let enough = filter.limit.filter(|_| filter.after.is_none());
        let ran_out = format!(
            "SELECT {LEASE}, {TENURE} FROM leases
             WHERE repo = :repo AND holder IS NOT NULL AND expires_at <= :now
               AND (:name IS NULL OR holder = :name)
             ORDER BY expires_at DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":now": self.now.floor(),
            ":limit": sql_limit(enough),
        };
        let mut found: Vec<(IssueId, Ended)> = self
            .rows(repo, &ran_out, params, rows::lease)?
            .into_iter()
            .filter_map(|(issue, claim)| {
                let ended = claim.tenure.as_ref()?.expired(claim.token);
                Some((issue, ended))
            })
            .collect();
        let given_back = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures AS t
             WHERE repo = :repo AND (:name IS NULL OR holder = :name)
               AND EXISTS (SELECT 1 FROM leases AS l
                           WHERE l.repo = t.repo AND l.issue_id = t.issue_id
                             AND l.token = t.token AND l.holder IS NULL)
             ORDER BY id DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":limit": sql_limit(enough),
        };
        found.extend(self.rows(repo, &given_back, params, rows::ended)?);
        Ok(filter.of_ended(found))
    }

    fn history(
        &self,
        repo: &str,
        issue: Option<&IssueId>,
        limit: Option<u32>,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        let (of_issue, order) = match issue {
            Some(_) => ("AND issue_id = :issue", "token"),
            None => ("AND :issue IS NULL", "id"),
        };
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures WHERE repo = :repo {of_issue}
             ORDER BY {order} DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":issue": issue.map(IssueId::as_str),
            ":limit": sql_limit(limit),
        };
        self.rows(repo, &query, params, rows::ended)
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn store(
        &mut self,
        repo: &str,
        issue: &IssueId,
        claim: &mut Claim,
        ended: Option<&Ended>,
    ) -> Result<(), LedgerError> {
        if let Some(ended) = ended {
            self.store_ended(repo, issue, ended)?;
        }
        let changed = match &claim.tenure {
            None => self.execute(
                "UPDATE leases SET holder = NULL, expires_at = NULL, generation = ?3,
                                   request = NULL, branch = NULL
                 WHERE repo = ?1 AND issue_id = ?2 AND token = ?4",
                params![
                    repo,
                    issue.as_str(),
                    claim.generation.cast_signed(),
                    claim.token.cast_signed()
                ],
            )?,
            Some(tenure) => {
                if let Some(seq) = tenure.seq {
                    self.execute(USE_SEQ, params![seq.cast_signed()])?;
                }
                let values = rows::values(tenure);
                let token = claim.token.cast_signed();
                let generation = claim.generation.cast_signed();
                let issue = issue.as_str();
                let key: [&dyn ToSql; 5] = [&repo, &issue, &token, &generation, &token];
                let all: Vec<&dyn ToSql> = key
                    .into_iter()
                    .chain(values.iter().map(|value| &**value))
                    .collect();
                match self.execute(&update_statement(), &*all)? {
                    0 => self.execute(&insert_statement(), &*all)?,
                    changed => changed,
                }
            }
        };
        if changed == 1 {
            Ok(())
        } else {
            Err(LedgerError::Damaged {
                repo: repo.to_owned(),
                issue: issue.to_string(),
                what: format!("its token is above {} already", claim.token),
            })
        }
    }

    fn next_seq(&mut self) -> Result<u64, LedgerError> {
        let next: i64 = self
            .connection
            .prepare_cached(NEXT_SEQ)
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| self.sql(error))?;
        Ok(next.cast_unsigned())
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<u64, LedgerError> {
        let taken: bool = self
            .connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM leases WHERE repo = ?1)
                     OR EXISTS (SELECT 1 FROM tenures WHERE repo = ?1)",
                params![new],
                |row| row.get(0),
            )
            .map_err(|error| self.sql(error))?;
        if taken {
            return Err(LedgerError::Taken(new.to_owned()));
        }
        self.execute(
            "UPDATE tenures SET repo = ?2 WHERE repo = ?1",
            params![old, new],
        )?;
        let rows = self.execute(
            "UPDATE leases SET repo = ?2 WHERE repo = ?1",
            params![old, new],
        )?;
        Ok(rows as u64)
    }
}

impl SqliteTransaction<'_> {
    fn store_ended(&self, repo: &str, issue: &IssueId, ended: &Ended) -> Result<(), LedgerError> {
        let values = rows::values(&ended.tenure);
        let token = ended.token.cast_signed();
        let how = ended.how.name();
        let issue = issue.as_str();
        let key: [&dyn ToSql; 7] = [
            &repo,
            &issue,
            &token,
            &ended.ended_at,
            &how,
            &ended.by,
            &ended.why,
        ];
        let all: Vec<&dyn ToSql> = key
            .into_iter()
            .chain(values.iter().map(|value| &**value))
            .collect();
        // A token that is there already was an older server's, which may have
        // begun again at 1: what was written first stays.
        let statement = format!(
            "INSERT INTO tenures (repo, {ENDED}, {TENURE}) VALUES ({}) ON CONFLICT DO NOTHING",
            placeholders(all.len())
        );
        self.execute(&statement, &*all)?;
        Ok(())
    }
}

/// The columns of a row that [`SqliteTransaction::store`] writes, behind its key.
fn stored_columns() -> String {
    format!("token, generation, written_token, {TENURE}")
}

/// Writes a row that is there, unless its token is above the new one.
fn update_statement() -> String {
    let assignments = stored_columns()
        .split(',')
        .zip(3..)
        .map(|(column, number)| format!("{} = ?{number}", column.trim()))
        .collect::<Vec<_>>()
        .join(", ");
    format!("UPDATE leases SET {assignments} WHERE repo = ?1 AND issue_id = ?2 AND token <= ?3")
}

/// Writes the row of an issue that has none.
fn insert_statement() -> String {
    format!(
        "INSERT INTO leases (repo, issue_id, {}) VALUES ({}) ON CONFLICT DO NOTHING",
        stored_columns(),
        placeholders(5 + TENURE_COLUMNS)
    )
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

/// All that a ledger's tables hold.
fn contents(connection: &Connection, path: &Path, now: Now) -> Result<Contents, LedgerError> {
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
///
/// # Errors
/// It can't be read.
pub fn whose(path: &Path) -> Result<(String, bool), LedgerError> {
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
///
/// # Errors
/// It can't be read.
pub fn filled(path: &Path, now: Now) -> Result<Contents, LedgerError> {
    let sql = |error| ledger_error(path, error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sql)?;
    contents(&connection, path, now)
}

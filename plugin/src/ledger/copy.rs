//! From one ledger to another: `backup` and `migrate`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::EtcdFiles;

use super::contents::Contents;
use super::{EtcdLedger, Ledger, LedgerError, SqliteLedger, When, sqlite};

/// Puts `contents` into a new file; answers its number of rows.
///
/// # Errors
/// Also where something is there already.
pub fn to_file(contents: &Contents, file: &Path) -> Result<u64, LedgerError> {
    let unfit = |error: io::Error| LedgerError::Unfit {
        path: file.to_owned(),
        why: format!("cannot be made: {error}"),
    };
    into_new_file(file, unfit, || sqlite::fill(file, contents))?;
    Ok(contents.rows.len() as u64)
}

/// Has `file` made by `write`: nobody else's to read, and on the disk, or not
/// there at all.
///
/// # Errors
/// That of `write`, or `unfit` where the file system fails; also where something
/// is there already.
pub fn into_new_file<T>(
    file: &Path,
    unfit: impl Fn(io::Error) -> LedgerError,
    write: impl FnOnce() -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    // SQLite would make it as the umask says; the ledger is nobody else's.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(&unfit)?;
    let synced = write().and_then(|written| {
        File::open(file)
            .and_then(|made| made.sync_all())
            .map_err(&unfit)?;
        Ok(written)
    });
    if synced.is_err() {
        // Half a ledger is none.
        let _ = fs::remove_file(file);
    }
    synced
}

/// Moves all of `from` to `to`: from its beginning `from` takes no change any
/// more, and in the end it says where it went. What was not finished can be done
/// again; `from` is put back into service where it can't be done at all.
///
/// # Errors
/// `to` has another ledger, or can't be reached.
pub fn migrate(
    from: &dyn Ledger,
    to: &LedgerPlace,
    files: &EtcdFiles,
    when: When<'_>,
) -> Result<u64, LedgerError> {
    from.retire(when, Some(&to.to_string()))?;
    let moved = from.contents(when).and_then(|contents| {
        let target: Box<dyn Ledger> = match to {
            LedgerPlace::File(path) => {
                let contents = contents.clone().moved_to(when.clock.now());
                replace(&contents, path)?;
                Box::new(SqliteLedger::open(path)?)
            }
            LedgerPlace::Etcd(place) => {
                let target = EtcdLedger::open(place, files)?;
                target.load(&contents, when.deadline)?;
                Box::new(target)
            }
        };
        match contents.differs_from(&target.contents(when)?) {
            None => Ok(contents.rows.len() as u64),
            Some(what) => Err(LedgerError::Unfit {
                path: PathBuf::from(to.to_string()),
                why: format!("differs from what was moved there: {what}"),
            }),
        }
    });
    if moved.is_err() {
        from.retire(when, None)?;
    }
    moved
}

/// Puts `contents` at `path`, where there is nothing, or the same ledger before
/// it had moved away.
fn replace(contents: &Contents, path: &Path) -> Result<(), LedgerError> {
    let unfit = |why: String| LedgerError::Unfit {
        path: path.to_owned(),
        why,
    };
    if path.exists() && sqlite::moved_away(path)?.as_deref() != Some(contents.id.as_str()) {
        return Err(unfit("is there already".to_owned()));
    }
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    if beside("-wal").exists() {
        return Err(unfit("is still in use".to_owned()));
    }
    let new = beside("-new");
    // What an earlier try has left.
    let _ = fs::remove_file(&new);
    to_file(contents, &new)?;
    fs::rename(&new, path).map_err(|error| unfit(format!("cannot be put in place: {error}")))
}

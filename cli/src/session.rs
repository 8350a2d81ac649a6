//! The session of a worktree: made once, kept in the worktree's git directory,
//! and bound to that very directory, so that a copied clone is a session of
//! its own.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use git_claim_api::ids::Session;
use git_claim_api::text::is_unsafe;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hex::{hex, random};

const FILE: &str = "claim-session";

/// The file's content. Who reads it ignores what it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    session: Session,
    /// A hash of the machine's id.
    machine: String,
    /// The git directory's device and inode.
    device: u64,
    inode: u64,
}

impl Record {
    fn fits(&self, place: &Place) -> bool {
        self.machine == place.machine && self.device == place.device && self.inode == place.inode
    }
}

/// Where a session belongs.
struct Place {
    machine: String,
    device: u64,
    inode: u64,
}

impl Place {
    fn of(git_dir: &Path) -> Result<Place> {
        let metadata = fs::metadata(git_dir)
            .with_context(|| format!("{} cannot be read", git_dir.display()))?;
        Ok(Place {
            machine: machine(),
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// What tells this machine from others: not its id itself, which is nobody
/// else's business.
fn machine() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let id = match id.trim() {
        "" => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        id => id.to_owned(),
    };
    let hash = Sha256::digest(format!("git-claim machine {id}"));
    hex(&hash[..8])
}

/// The worktree's session, if it has one.
///
/// # Errors
/// The git directory cannot be read.
pub fn known(git_dir: &Path) -> Result<Option<Session>> {
    let place = Place::of(git_dir)?;
    Ok(read(git_dir)?
        .filter(|record| record.fits(&place))
        .map(|record| record.session))
}

/// The worktree's session, made now if it has none.
///
/// # Errors
/// The git directory cannot be read or written.
pub fn own(git_dir: &Path) -> Result<Session> {
    if let Some(session) = known(git_dir)? {
        return Ok(session);
    }
    let place = Place::of(git_dir)?;
    // Two first calls agree on one session. Where the file system has no locks
    // the hard link below still decides; only a copied clone could differ then.
    let directory =
        File::open(git_dir).with_context(|| format!("{} cannot be opened", git_dir.display()))?;
    let _ = flock(&directory, FlockOperation::LockExclusive);
    match read(git_dir)? {
        Some(record) if record.fits(&place) => return Ok(record.session),
        // A copy of another worktree's, or unreadable.
        _ => remove(&git_dir.join(FILE))?,
    }
    let record = Record {
        session: random_session()?,
        machine: place.machine,
        device: place.device,
        inode: place.inode,
    };
    match publish(git_dir, &record)
        .with_context(|| format!("the session cannot be kept in {}", git_dir.display()))?
    {
        Published::Ours => Ok(record.session),
        Published::Others => known(git_dir)?
            .with_context(|| format!("{} cannot be used", git_dir.join(FILE).display())),
    }
}

/// The record; `None` if there is none, or none that can be read.
fn read(git_dir: &Path) -> Result<Option<Record>> {
    let path = git_dir.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}

enum Published {
    Ours,
    Others,
}

/// Puts a whole file in place, unless there is one.
fn publish(git_dir: &Path, record: &Record) -> Result<Published> {
    let temporary: PathBuf = git_dir.join(format!("{FILE}.{}", record.session));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = file
        .write_all(&serde_json::to_vec(record)?)
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| fs::hard_link(&temporary, git_dir.join(FILE)));
    remove(&temporary)?;
    match written {
        Ok(()) => Ok(Published::Ours),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Published::Others),
        Err(error) => Err(error.into()),
    }
}

/// Gives a worktree that has none yet the session that its claim was taken
/// with.
///
/// # Errors
/// It has another, or its git directory cannot be read or written.
pub fn adopt(git_dir: &Path, session: &Session) -> Result<()> {
    let place = Place::of(git_dir)?;
    let record = Record {
        session: session.clone(),
        machine: place.machine,
        device: place.device,
        inode: place.inode,
    };
    publish(git_dir, &record)
        .with_context(|| format!("the session cannot be kept in {}", git_dir.display()))?;
    match known(git_dir)? {
        Some(kept) if kept == *session => Ok(()),
        _ => bail!("{} has a session of its own", git_dir.display()),
    }
}

/// Gives a worktree another session in place of its own.
///
/// # Errors
/// Its git directory cannot be read or written.
pub fn replace(git_dir: &Path, session: &Session) -> Result<()> {
    remove(&file(git_dir))?;
    adopt(git_dir, session)
}

/// The file that holds a worktree's session.
pub fn file(git_dir: &Path) -> PathBuf {
    git_dir.join(FILE)
}

/// This machine, for people and to be told from others.
pub fn machine_name() -> String {
    let uname = rustix::system::uname();
    let name: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(|c| !is_unsafe(*c))
        .take(64)
        .collect();
    format!("{name} {}", machine()).trim_start().to_owned()
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// A session that nobody has.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_session() -> Result<Session> {
    Ok(random::<12>()?.parse()?)
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;

    use super::*;

    #[test]
    fn a_session_is_made_once() {
        let dir = TempDir::new().unwrap();
        assert_eq!(known(dir.path()).unwrap(), None);
        let session = own(dir.path()).unwrap();
        assert_eq!(own(dir.path()).unwrap(), session);
        assert_eq!(known(dir.path()).unwrap(), Some(session));
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
    }

    #[test]
    fn first_calls_at_once_agree() {
        let dir = TempDir::new().unwrap();
        let sessions: Vec<Session> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| own(dir.path()).unwrap()))
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        assert!(sessions.iter().all(|session| *session == sessions[0]));
    }

    #[test]
    fn a_copy_is_another_session() {
        let original = TempDir::new().unwrap();
        let session = own(original.path()).unwrap();
        let copy = TempDir::new().unwrap();
        fs::copy(original.path().join(FILE), copy.path().join(FILE)).unwrap();
        assert_eq!(known(copy.path()).unwrap(), None);
        assert_ne!(own(copy.path()).unwrap(), session);
        assert_eq!(own(original.path()).unwrap(), session);
    }

    #[test]
    fn a_session_is_adopted_where_there_is_none() {
        let dir = TempDir::new().unwrap();
        let session = random_session().unwrap();
        adopt(dir.path(), &session).unwrap();
        adopt(dir.path(), &session).unwrap();
        assert_eq!(known(dir.path()).unwrap(), Some(session.clone()));
        adopt(dir.path(), &random_session().unwrap()).unwrap_err();
        assert_eq!(own(dir.path()).unwrap(), session);
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let dir = TempDir::new().unwrap();
        for damage in ["", "{", "{\"session\":\"a b\"}"] {
            fs::write(dir.path().join(FILE), damage).unwrap();
            let session = own(dir.path()).unwrap();
            assert_eq!(known(dir.path()).unwrap(), Some(session));
        }
    }
}

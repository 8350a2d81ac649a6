//! Whether a file may be a ledger: looked at before SQLite touches it.
//!
//! Nothing here opens the database file itself: closing any descriptor of it
//! would drop the POSIX locks that SQLite holds on it in this process.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs};

use crate::ledger::LedgerError;

/// `collab.db-wal` beside `collab.db`: what is kept with a ledger.
pub fn side_file(ledger: &Path, ending: &str) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Has what was made, named and removed in the folder of `path` stay so where the
/// power is cut.
///
/// # Errors
/// The folder can't be opened or synced.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    File::open(folder)?.sync_all()
}

/// What is there at a ledger's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Ledger(FileId),
}

/// What tells one file from another at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Which file is at `path`, if there is one.
    pub fn at(path: &Path) -> Option<FileId> {
        Some(FileId::of(&fs::symlink_metadata(path).ok()?))
    }

    fn of(metadata: &fs::Metadata) -> FileId {
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Looks whether `path` is, or could become, a ledger.
///
/// # Errors
/// [`LedgerError::Unfit`], with what is wrong and what to do about it.
pub fn check(path: &Path) -> Result<Found, LedgerError> {
    let unfit = |why: String| LedgerError::Unfit {
        path: path.to_owned(),
        why,
    };
    let directory = match path.parent() {
        Some(directory) if path.is_absolute() => directory,
        _ => return Err(unfit("is not named by an absolute path".to_owned())),
    };
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(unfit("is not in a directory".to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(unfit("is in a directory that does not exist".to_owned()));
        }
        Err(error) => return Err(unfit(format!("cannot be reached: {error}"))),
    }
    refuse_network(directory).map_err(&unfit)?;
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(unfit(format!("cannot be looked at: {error}"))),
    };
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = if kind.is_symlink() {
            "a symbolic link"
        } else if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a named pipe"
        } else {
            "a device or a socket"
        };
        return Err(unfit(format!("is not a regular file but {what}")));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(unfit(format!(
            "may be written by others (mode {mode:04o}); make it 0600"
        )));
    }
    if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK) {
        return Err(unfit(format!(
            "cannot be read and written by this user: {error}"
        )));
    }
    Ok(Found::Ledger(FileId::of(&metadata)))
}

/// SQLite's locks and its shared memory do not work across machines.
fn refuse_network(directory: &Path) -> Result<(), String> {
    let magic = statfs(directory)
        .map_err(|error| format!("is on a file system that cannot be asked: {error}"))?
        .f_type;
    // The field's type differs between targets; the magic numbers have 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = magic as u32;
    if let Some(name) = network_name(magic) {
        return Err(format!(
            "is on a network file system ({name}); put it on a local disk of the server"
        ));
    }
    if magic == FUSE
        && let Some(kind) = fuse_kind(directory)
        && FUSE_NETWORK.contains(&kind.as_str())
    {
        return Err(format!(
            "is on a network file system ({kind}); put it on a local disk of the server"
        ));
    }
    Ok(())
}

const FUSE: u32 = 0x6573_5546;

/// Types of FUSE mounts that reach over a network, as mountinfo names them.
const FUSE_NETWORK: [&str; 9] = [
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.davfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.curlftpfs",
    "fuse.gcsfuse",
];

/// The network file systems among statfs(2)'s magic numbers (linux/magic.h and
/// the file systems' own sources).
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "nfs",
        0x0000_517b => "smb",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x7375_7245 => "coda",
        0x0bd0_0bd0 => "lustre",
        0x0000_564c => "ncp",
        0x7461_636f => "ocfs2",
        0x0116_1970 => "gfs2",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        _ => return None,
    })
}

/// The type of the FUSE mount that `directory` is on, as `fuse.sshfs`.
fn fuse_kind(directory: &Path) -> Option<String> {
    let directory = fs::canonicalize(directory).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts
        .lines()
        .filter_map(mount_point_and_kind)
        .filter(|(point, _)| directory.starts_with(point))
        // The innermost mount; the later one where two are on one point.
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

/// The mount point and the type in one line of proc_pid_mountinfo(5).
fn mount_point_and_kind(line: &str) -> Option<(String, String)> {
    let (mount, source) = line.split_once(" - ")?;
    let point = mount.split(' ').nth(4)?;
    let kind = source.split(' ').next()?;
    // mountinfo writes blanks in octal.
    Some((point.replace("\\040", " "), kind.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    fn refusal(path: &Path) -> String {
        check(path).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_ledger_is_named() {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.child(name).to_path_buf();
        assert_eq!(check(&at("new.db")).unwrap(), Found::Nothing);
        dir.child("dir.db").create_dir_all().unwrap();
        assert!(refusal(&at("dir.db")).contains("but a directory"));
        symlink("/dev/null", at("link.db")).unwrap();
        assert!(refusal(&at("link.db")).contains("but a symbolic link"));
        assert!(refusal(&at("no/x.db")).contains("does not exist"));
        assert!(refusal(Path::new("x.db")).contains("absolute path"));
        dir.child("open.db").write_str("x").unwrap();
        for mode in [0o666, 0o620, 0o602] {
            fs::set_permissions(at("open.db"), fs::Permissions::from_mode(mode)).unwrap();
            assert!(refusal(&at("open.db")).contains("may be written by others"));
        }
        fs::set_permissions(at("open.db"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(check(&at("open.db")), Ok(Found::Ledger(_))));
    }

    #[test]
    fn network_file_systems_are_known_by_number() {
        for (magic, name) in [(0x6969, "nfs"), (0xff53_4d42, "cifs"), (0x0102_1997, "9p")] {
            assert_eq!(network_name(magic), Some(name));
        }
        // ext4, tmpfs, btrfs, overlayfs and FUSE itself.
        for magic in [0xef53, 0x0102_1994, 0x9123_683e, 0x794c_7630, FUSE] {
            assert_eq!(network_name(magic), None);
        }
    }

    #[test]
    fn mountinfo_names_point_and_type() {
        let line = "36 35 98:0 /mnt1 /my\\040mnt rw,noatime master:1 - fuse.sshfs host:/ rw";
        assert_eq!(
            mount_point_and_kind(line),
            Some(("/my mnt".to_owned(), "fuse.sshfs".to_owned()))
        );
        assert_eq!(mount_point_and_kind("nonsense"), None);
    }
}

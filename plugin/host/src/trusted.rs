//! Files that the loader obeys, its settings and the plugin: opened first, and
//! then what was opened is checked, so that nobody can swap it in between.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

/// Why a file is not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    #[error("{}: not an absolute path", .0.display())]
    Relative(PathBuf),
    #[error("{}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: io::Error },
    #[error("{}: not a regular file", .0.display())]
    NotRegular(PathBuf),
    #[error("{}: it belongs to user {owner}, neither to root nor to the user that runs this", path.display())]
    Foreign { path: PathBuf, owner: u32 },
    #[error("{}: others may write it (mode {mode:o}); run `chmod go-w` on it", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{}: it was moved while it was opened", .0.display())]
    Moved(PathBuf),
}

impl Untrusted {
    /// Whether there simply is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Untrusted::Unreadable { reason, .. } if reason.kind() == io::ErrorKind::NotFound)
    }
}

/// An open file that only root or this process's user can have written or put
/// in place.
#[derive(Debug)]
pub struct TrustedFile {
    file: File,
    path: PathBuf,
}

impl TrustedFile {
    /// Opens `path` and checks what was opened, and every directory above it
    /// once links are resolved.
    ///
    /// # Errors
    /// See [`Untrusted`].
    pub fn open(path: &Path) -> Result<TrustedFile, Untrusted> {
        if !path.is_absolute() {
            return Err(Untrusted::Relative(path.to_owned()));
        }
        let unreadable = |reason: io::Error| Untrusted::Unreadable {
            path: path.to_owned(),
            reason,
        };
        // NONBLOCK: a FIFO would hold the request for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(path, flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| unreadable(errno.into()))?;
        let opened = file.metadata().map_err(unreadable)?;
        // The kernel's own name of what was opened; `canonicalize(path)` could
        // be another file's by now.
        let real = std::fs::read_link(descriptor(&file)).map_err(unreadable)?;
        if !opened.is_file() {
            return Err(Untrusted::NotRegular(real));
        }
        check_owner(&real, &opened)?;
        if opened.permissions().mode() & OTHERS_WRITE != 0 {
            return Err(writable(&real, &opened));
        }
        for directory in real.ancestors().skip(1) {
            check_directory(directory)?;
        }
        // In directories that nobody else can change, the name now stands for
        // good for what was opened.
        match std::fs::symlink_metadata(&real) {
            Ok(now) if (now.dev(), now.ino()) == (opened.dev(), opened.ino()) => {
                Ok(TrustedFile { file, path: real })
            }
            _ => Err(Untrusted::Moved(real)),
        }
    }

    /// Where it lies, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A path that means this very open file, for code that opens by name.
    pub fn descriptor(&self) -> PathBuf {
        descriptor(&self.file)
    }
}

/// A path that means what is open, whatever has its name by now, in this process
/// alone.
pub fn descriptor(open: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

fn writable(path: &Path, metadata: &Metadata) -> Untrusted {
    Untrusted::Writable {
        path: path.to_owned(),
        mode: metadata.permissions().mode() & 0o7777,
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), Untrusted> {
    let owner = metadata.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(Untrusted::Foreign {
        path: path.to_owned(),
        owner,
    })
}

fn check_directory(directory: &Path) -> Result<(), Untrusted> {
    let metadata =
        std::fs::symlink_metadata(directory).map_err(|reason| Untrusted::Unreadable {
            path: directory.to_owned(),
            reason,
        })?;
    check_owner(directory, &metadata)?;
    let mode = metadata.permissions().mode();
    // In a sticky directory of root's, as /tmp is, others can add names but not
    // replace ours, and ours was checked.
    let shared = metadata.uid() == 0 && mode & STICKY != 0;
    if mode & OTHERS_WRITE != 0 && !shared {
        return Err(writable(directory, &metadata));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A folder with a file in it, both as they should be.
    fn folder() -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let file = folder.child("sub/file");
        file.write_str("text").unwrap();
        chmod(folder.path(), 0o755);
        chmod(folder.child("sub").path(), 0o755);
        chmod(file.path(), 0o644);
        let path = file.path().to_owned();
        (folder, path)
    }

    #[test]
    fn ones_own_file_is_taken_and_its_links_are_resolved() {
        let (folder, file) = folder();
        let link = folder.child("link");
        std::os::unix::fs::symlink(&file, link.path()).unwrap();
        let opened = TrustedFile::open(link.path()).unwrap();
        assert_eq!(opened.path(), file.canonicalize().unwrap());
        assert_eq!(
            std::fs::read_to_string(opened.descriptor()).unwrap(),
            "text"
        );
    }

    #[test]
    fn what_others_could_have_written_is_refused() {
        for (what, mode) in [("sub/file", 0o664), ("sub/file", 0o646)] {
            let (folder, file) = folder();
            chmod(folder.child(what).path(), mode);
            let refused = TrustedFile::open(&file).unwrap_err();
            assert!(matches!(refused, Untrusted::Writable { .. }), "{refused}");
        }
        for (what, mode) in [("sub", 0o775), ("sub", 0o757), (".", 0o777)] {
            let (folder, file) = folder();
            chmod(folder.child(what).path(), mode);
            let refused = TrustedFile::open(&file).unwrap_err();
            assert!(matches!(refused, Untrusted::Writable { .. }), "{refused}");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let (folder, _) = folder();
        let refused = TrustedFile::open(folder.path()).unwrap_err();
        assert!(matches!(refused, Untrusted::NotRegular(_)), "{refused}");
        let refused = TrustedFile::open(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(refused, Untrusted::NotRegular(_)), "{refused}");
        let refused = TrustedFile::open(Path::new("file")).unwrap_err();
        assert!(matches!(refused, Untrusted::Relative(_)), "{refused}");
        assert!(
            TrustedFile::open(folder.child("none").path())
                .unwrap_err()
                .is_missing()
        );
    }
}

//! The folder for the sockets of shared connections. Whoever can write there
//! could be us to the server, so nobody else may.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A socket's path has at most 107 bytes, and ssh makes it under a longer name
/// first: what is left for the folder.
const LONGEST: usize = 60;

/// The first of the possible folders that is ours alone; made if need be.
/// `None` if there is none.
pub fn sockets() -> Option<PathBuf> {
    let absolute = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let runtime = absolute("XDG_RUNTIME_DIR")
        .filter(|path| is_ours_alone(path))
        .map(|path| path.join("git-claim"));
    let cache = absolute("HOME").map(|home| home.join(".cache/git-claim"));
    let user = rustix::process::getuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("git-claim-{user}"));
    [runtime, cache, Some(temporary)]
        .into_iter()
        .flatten()
        .find(|path| path.as_os_str().as_bytes().len() <= LONGEST && make(path))
}

/// Whether there is such a folder now, ours alone.
fn make(path: &Path) -> bool {
    let parent = path.parent().is_none_or(|parent| {
        parent.is_dir()
            || DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .is_ok()
    });
    // It may be there already; what counts is what is there.
    let _ = DirBuilder::new().mode(0o700).create(path);
    parent && is_ours_alone(path)
}

fn is_ours_alone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| {
        metadata.is_dir()
            && metadata.uid() == rustix::process::geteuid().as_raw()
            && metadata.mode() & 0o077 == 0
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use assert_fs::TempDir;

    use super::*;

    #[test]
    fn only_a_folder_of_ours_alone_will_do() {
        let dir = TempDir::new().unwrap();
        let fresh = dir.path().join("a/b");
        assert!(make(&fresh));
        assert!(make(&fresh), "again");
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!make(&fresh), "others may look in");
        let link = dir.path().join("link");
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&fresh, &link).unwrap();
        assert!(!make(&link), "a link may lead anywhere");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(!make(&file));
    }
}

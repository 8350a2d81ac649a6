//! The folder for the sockets of shared connections. Whoever can write there
//! could be us to the server, so nobody else may.

use std::fs::{self, DirBuilder};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// A socket's path has at most 107 bytes, and ssh makes it under a longer name
/// first: what is left for the folder.
const LONGEST: usize = 60;

/// The first of the possible folders that is ours alone; made if need be, but
/// in a place that is there: where HOME or TMPDIR leads nowhere, nothing is
/// made. `None` if there is none.
pub fn sockets() -> Option<PathBuf> {
    let absolute = |variable: &str| {
        std::env::var_os(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let runtime = absolute("XDG_RUNTIME_DIR")
        .filter(|path| is_ours_alone(path))
        .map(|path| path.join("git-claim"));
    let cache = || absolute("HOME").and_then(cache_of);
    let user = rustix::process::getuid().as_raw();
    let temporary = || Some(std::env::temp_dir().join(format!("git-claim-{user}")));
    let will_do = |path: &PathBuf| is_sayable(path) && make(path);
    // One after the other: nothing is made beside the one that will do.
    runtime
        .filter(will_do)
        .or_else(|| cache().filter(will_do))
        .or_else(|| temporary().filter(will_do))
}

/// Whether a path can be told to ssh, which reads `%` and `${` in it as words of
/// its own.
fn is_sayable(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.len() <= LONGEST && !bytes.contains(&b'%') && !bytes.windows(2).any(|two| two == b"${")
}

/// Our folder in the cache of `home`; the cache itself is made if need be.
fn cache_of(home: PathBuf) -> Option<PathBuf> {
    let cache = home.join(".cache");
    let _ = DirBuilder::new().mode(0o700).create(&cache);
    cache.is_dir().then(|| cache.join("git-claim"))
}

/// Whether there is such a folder now, ours alone.
fn make(path: &Path) -> bool {
    // It may be there already; what counts is what is there.
    let _ = DirBuilder::new().mode(0o700).create(path);
    is_ours_alone(path)
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
        let fresh = dir.path().join("a");
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

    #[test]
    fn what_ssh_would_read_otherwise_will_not_do() {
        for (path, expected) in [
            ("/run/user/1/git-claim", true),
            ("/home/a b/ü/$x", true),
            ("/home/50%/git-claim", false),
            ("/home/${HOME}/git-claim", false),
            (
                "/home/a-name-that-is-so-long-that-no-socket-has-a-place-in-it",
                false,
            ),
        ] {
            assert_eq!(is_sayable(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn nothing_is_made_where_there_is_nothing() {
        let dir = TempDir::new().unwrap();
        let missing = dir.path().join("missing");
        assert!(!make(&missing.join("git-claim")));
        assert_eq!(cache_of(missing.clone()), None);
        assert!(!missing.exists());
        let cache = cache_of(dir.path().to_owned()).unwrap();
        assert_eq!(cache, dir.path().join(".cache/git-claim"));
        assert!(make(&cache) && cache.is_dir());
    }
}

//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder with the programs and the plugin: `$PROGRAMS`, else that which `make
/// test` built.
///
/// # Panics
/// If the server's part is not there: cargo builds only the commands by itself.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = match std::env::var_os("PROGRAMS") {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(env!("CARGO_BIN_EXE_git-claim"))
                .parent()
                .expect("a program lies in a folder")
                .to_owned(),
        };
        for name in ["git-claim-server", "collab-lease", "libgit_claim_plugin.so"] {
            assert!(
                folder.join(name).is_file(),
                "{name} is missing in {}; run `make test`",
                folder.display()
            );
        }
        folder
    })
}

/// The loader for the server.
pub fn server() -> PathBuf {
    folder().join("git-claim-server")
}

/// The plugin.
pub fn plugin() -> PathBuf {
    folder().join("libgit_claim_plugin.so")
}

/// The top of the source tree.
pub fn source() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the package lies in the workspace")
}

/// A program of the system, looked for also where administrators keep theirs.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// [`find`] for what `make test` installs.
///
/// # Panics
/// If it is not there.
pub fn need(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is not installed; `make test` installs it"))
}

/// Whether the tests run as root, whom no file mode stops.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Compiles `tests/support/<name>.c` to a library in `folder` that programs load
/// before C's own.
pub fn preloaded(folder: &Path, name: &str) -> PathBuf {
    let library = folder.join(name).with_extension("so");
    let compiled = Command::new(need("cc"))
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ])
        .arg(&library)
        .arg(
            source()
                .join("tests/support")
                .join(name)
                .with_extension("c"),
        )
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    library
}

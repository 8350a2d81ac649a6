//! A disk that fails at a call of the test's choice, for the real programs: a
//! library that is loaded before C's own. The programs know nothing of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::programs;

/// What fails, and how.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Of `open read write truncate sync unlink`.
    pub calls: &'static str,
    /// The first of these calls that fails, from 1.
    pub from: usize,
    pub times: usize,
    /// As what; 0 kills the process there.
    pub errno: i32,
}

/// A disk under the files whose paths begin with `below`.
pub struct FailingDisk {
    library: PathBuf,
    below: PathBuf,
    fails: PathBuf,
    seen: PathBuf,
}

impl FailingDisk {
    /// One that fails, with what it needs in `folder`.
    pub fn new(folder: &Path, below: &Path) -> FailingDisk {
        let disk = FailingDisk {
            library: programs::preloaded(folder, "failing_disk"),
            below: below.to_owned(),
            fails: folder.join("failing_disk.fails"),
            seen: folder.join("failing_disk.seen"),
        };
        disk.fails(true);
        disk
    }

    /// Whether it is to fail at all from now on; what was called before does not
    /// count.
    pub fn fails(&self, fails: bool) {
        if fails {
            fs::write(&self.fails, "").unwrap();
        } else {
            fs::remove_file(&self.fails).unwrap();
        }
    }

    /// Lets `command` run on it with `fault`.
    pub fn under<'a>(&self, command: &'a mut Command, fault: Fault) -> &'a mut Command {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAILING_IF", &self.fails)
            .env("FAILING_BELOW", &self.below)
            .env("FAILING_CALLS", fault.calls)
            .env("FAILING_FROM", fault.from.to_string())
            .env("FAILING_TIMES", fault.times.to_string())
            .env("FAILING_WITH", fault.errno.to_string())
            .env("FAILING_SEEN", &self.seen)
    }

    /// Whether it has failed since the last look.
    pub fn has_failed(&self) -> bool {
        fs::remove_file(&self.seen).is_ok()
    }
}

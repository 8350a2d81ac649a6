//! A clock that tests turn, for the real programs: a library that is loaded
//! before C's own. The programs know nothing of it.

use std::fs;
use std::path::{Path, PathBuf};

use super::programs;

/// A time of day that is off, for whatever runs with [`Clock::environment`].
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// One that is right, kept in `folder`.
    pub fn new(folder: &Path) -> Clock {
        let clock = Clock {
            library: programs::preloaded(folder, "turned_clock"),
            file: folder.join("turned_clock"),
        };
        clock.turn(0);
        clock
    }

    /// Lets it be off by so many seconds from now on.
    pub fn turn(&self, seconds: i64) {
        // Renamed into its place: nobody reads half of it.
        let new = self.file.with_extension("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// What makes a program go by it.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("TURNED_CLOCK", &self.file)]
    }

    /// The same as a shell takes it before a command.
    pub fn assignments(&self) -> String {
        self.environment()
            .map(|(name, value)| format!("{name}={}", value.display()))
            .join(" ")
    }
}

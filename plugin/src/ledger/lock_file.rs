//! Empty files by which processes of one machine wait in line. The kernel hands
//! a blocking `flock` on in turn.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Opens the file, which is created if need be. A link in its place is not
/// followed.
///
/// # Errors
/// It can't be opened.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Waits for the lock. Where it blocks past `deadline`, nothing but a signal ends
/// that; the loader's watchdog does.
///
/// # Errors
/// There is no lock to be had, or not in time.
pub fn wait(file: &File, deadline: Instant) -> Result<(), Errno> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

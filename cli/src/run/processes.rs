//! A command with all that descends from it, as `/proc` shows them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The variable whose value only one run's processes inherit: what left the
/// family is still known by it.
pub const MARK: &str = "GIT_CLAIM_RUN";

/// One process: its number may be given to another later, but not with the
/// same start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// In ticks since the machine was started.
    start: u64,
}

/// A line of the table of processes.
struct Entry {
    process: Process,
    parent: i32,
}

impl Process {
    /// The process that has this number now.
    pub fn with(pid: Pid) -> Option<Process> {
        entry(pid.as_raw_nonzero().get()).map(|entry| entry.process)
    }

    /// Sends a signal to this very process; one that has ended needs none.
    pub fn signal(self, signal: Signal) {
        // The file stands for whoever has the number now; if that is still
        // this process afterwards, it was.
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        let Ok(file) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        if Process::with(pid) == Some(self) {
            let _ = pidfd_send_signal(file, signal);
        }
    }
}

/// What belongs to one run.
#[derive(Debug)]
pub struct Family {
    /// Whose descendants belong to it; they themselves do not.
    ancestor: Process,
    /// The command: it belongs to the family, whoever its parent is now.
    command: Process,
    mark: Vec<u8>,
}

impl Family {
    pub fn new(ancestor: Process, command: Process, mark: &OsStr) -> Family {
        let mut entry = format!("{MARK}=").into_bytes();
        entry.extend_from_slice(mark.as_bytes());
        Family {
            ancestor,
            command,
            mark: entry,
        }
    }

    /// Those that live; not those that have ended and wait for their parent.
    pub fn members(&self) -> Vec<Process> {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let table: HashMap<i32, Entry> = numbers()
            .filter_map(|pid| Some((pid, entry(pid)?)))
            .collect();
        let belongs = |entry: &Entry| {
            entry.process == self.command
                || descends(&table, entry, self.ancestor)
                || is_marked(entry.process, &self.mark)
        };
        table
            .values()
            .filter(|entry| entry.process.pid != own && entry.process != self.ancestor)
            .filter(|entry| belongs(entry))
            .map(|entry| entry.process)
            .collect()
    }

    /// Asks all to end; those that were stopped go on, so that they can.
    pub fn ask_to_end(&self) {
        for process in self.members() {
            process.signal(Signal::TERM);
            process.signal(Signal::CONT);
        }
    }

    /// Ends all that there are now. What they start meanwhile needs another
    /// call.
    pub fn kill(&self) {
        for process in self.members() {
            process.signal(Signal::KILL);
        }
    }

    /// Stops all, until none is left that was started meanwhile.
    pub fn stop(&self) {
        let mut before = Vec::new();
        // Whoever starts processes faster than that is stopped later.
        for _ in 0..10 {
            let mut members = self.members();
            for process in &members {
                process.signal(Signal::STOP);
            }
            members.sort_by_key(|process| process.pid);
            if members == before {
                return;
            }
            before = members;
        }
    }

    /// Lets all go on.
    pub fn go_on(&self) {
        for process in self.members() {
            process.signal(Signal::CONT);
        }
    }
}

fn descends(table: &HashMap<i32, Entry>, of: &Entry, ancestor: Process) -> bool {
    let mut at = of;
    // Nothing is deeper than there are processes, though the table may have
    // changed while it was read.
    for _ in 0..table.len() {
        let Some(parent) = table.get(&at.parent) else {
            return false;
        };
        if parent.process == ancestor {
            return true;
        }
        at = parent;
    }
    false
}

/// Whether a process was started with the mark in its environment.
fn is_marked(process: Process, mark: &[u8]) -> bool {
    fs::read(format!("/proc/{}/environ", process.pid)).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark)
    })
}

fn numbers() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// What `/proc` says of a process that lives.
fn entry(pid: i32) -> Option<Entry> {
    read_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn read_stat(pid: i32, stat: &str) -> Option<Entry> {
    // The program's name is in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    // Fields 3 and 4 are read, the start is number 22.
    let start = fields.nth(17)?.parse().ok()?;
    Some(Entry {
        process: Process { pid, start },
        parent,
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_name_in_the_table_may_hold_anything() {
        let stat = "7 (a) Z (b) S 3 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let entry = read_stat(7, stat).unwrap();
        assert_eq!((entry.parent, entry.process.start), (3, 4_242));
        assert!(read_stat(7, "7 (a) Z 3 7 7 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 42 1").is_none());
        for broken in ["", "7", "7 (a", "7 (a) S", "7 (a) S x 7"] {
            assert!(read_stat(7, broken).is_none(), "{broken}");
        }
    }

    fn process(child: &Child) -> Process {
        Process::with(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()).unwrap()
    }

    fn myself() -> Process {
        Process::with(rustix::process::getpid()).unwrap()
    }

    #[test]
    fn the_marked_and_the_descendants_belong_to_it() {
        let mut marked = Command::new("sleep")
            .arg("1000")
            .env(MARK, "this-very-run")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let stranger = process(&other);
        // Nobody descends from a process that never was.
        let nobody = Process {
            pid: 1,
            start: u64::MAX,
        };
        let family = Family::new(nobody, nobody, OsStr::new("this-very-run"));
        // Until it has become `sleep` it is a copy of the test.
        while family.members().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(family.members(), [process(&marked)]);
        let mine = Family::new(myself(), nobody, OsStr::new("another"));
        let members = mine.members();
        assert!(members.contains(&process(&marked)) && members.contains(&stranger));
        family.kill();
        marked.wait().unwrap();
        assert_eq!(family.members(), []);
        stranger.signal(Signal::KILL);
        other.wait().unwrap();
    }
}

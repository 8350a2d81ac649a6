//! An admin's program that answers for a tracker elsewhere. It is run without
//! a shell, with a clean environment and a limit of time and output, and
//! answers in JSON lines.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use git_claim_api::ids::IssueId;
use git_claim_api::words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::unreadable::Unreadable;
use super::{Issue, TrackerError, reported};

pub const NAME: &str = "command";

/// How long the program may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long before the end of the request it must be done, so that the client
/// still hears why.
const MARGIN: Duration = Duration::from_millis(500);

const MAX_LINE: usize = 64 * 1024;
const MAX_OUTPUT: u64 = 32 * 1024 * 1024;

/// How many matches an error about an ambiguous id names.
const NAMED: usize = 3;

/// Where programs that the program starts are found.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The program and where it is run.
pub struct Program<'a> {
    words: Vec<String>,
    repo: &'a str,
    git_dir: &'a Path,
    deadline: Instant,
}

impl<'a> Program<'a> {
    /// The program of `claim.trackerCommand`: an absolute path, and words that
    /// it is always given.
    ///
    /// # Errors
    /// What is wrong with `setting`.
    pub fn new(
        setting: &str,
        repo: &'a str,
        git_dir: &'a Path,
        deadline: Instant,
    ) -> Result<Program<'a>, String> {
        let words = words::split(setting.as_bytes()).map_err(|error| error.to_string())?;
        if !words
            .first()
            .is_some_and(|program| program.starts_with('/'))
        {
            return Err("it must begin with the absolute path of a program".to_owned());
        }
        Ok(Program {
            words,
            repo,
            git_dir,
            deadline,
        })
    }

    /// `resolve ID`: one line is the issue, none says that there is no such
    /// issue, several that the id is not enough.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn resolve(&self, typed: &IssueId) -> Result<Issue, TrackerError> {
        let mut answers = self.run(&["resolve", typed.as_str()], None)?;
        let Some(issue) = answers.next().transpose()? else {
            return Err(TrackerError::NotFound(typed.clone()));
        };
        let mut first = vec![issue.id.to_string()];
        for other in answers {
            first.push(other?.id.to_string());
            if first.len() == NAMED {
                break;
            }
        }
        if first.len() > 1 {
            return Err(TrackerError::Ambiguous {
                typed: typed.clone(),
                first,
            });
        }
        Ok(issue)
    }

    /// `ready`: the open issues, one a line, in the order in which one should
    /// take them. The program is ended once enough was read.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn ready(
        &self,
    ) -> Result<impl Iterator<Item = Result<Issue, TrackerError>> + use<>, TrackerError> {
        let answers = self.run(&["ready"], Some("open"))?;
        Ok(answers.filter(|answer| !answer.as_ref().is_ok_and(|issue| !issue.is_open)))
    }

    fn run(
        &self,
        question: &[&str],
        default_state: Option<&'static str>,
    ) -> Result<Answers, TrackerError> {
        let [program, words @ ..] = self.words.as_slice() else {
            return Err(broken(&Unreadable("it names no program".to_owned())));
        };
        let mut command = Command::new(program);
        command
            .args(words)
            .args(question)
            .current_dir(self.git_dir)
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .env("GIT_DIR", self.git_dir)
            .env("GIT_CLAIM_REPO", self.repo)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        // The server's own: where a program keeps its credentials.
        if let Some(home) = std::env::var_os("HOME") {
            command.env("HOME", home);
        }
        let end = self
            .deadline
            .checked_sub(MARGIN)
            .unwrap_or(self.deadline)
            .min(Instant::now() + LIMIT);
        let mut run = || {
            let mut group = Group {
                child: command.spawn()?,
                is_over: false,
            };
            let output = group.child.stdout.take();
            let output = output.ok_or_else(|| io::Error::other("it has no output"))?;
            Ok((group, output))
        };
        let (group, output) =
            run().map_err(|error: io::Error| broken(&Unreadable(format!("{program}: {error}"))))?;
        Ok(Answers {
            lines: BufReader::new(Output { output, end }).take(MAX_OUTPUT),
            number: 0,
            end,
            group: Some(group),
            default_state,
        })
    }
}

/// A program and all that it started; none of it outlives this.
struct Group {
    child: Child,
    is_over: bool,
}

impl Group {
    /// Waits for the program to end.
    fn status(&mut self, end: Instant) -> Result<(), io::Error> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        wait_for(&process, end)?;
        let status = self.end()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("it ended with {status}")))
    }

    fn end(&mut self) -> Result<ExitStatus, io::Error> {
        self.is_over = true;
        // Before the wait, while the group's number is still its own; the kill
        // fails only where nobody is left.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_over {
            // How it ended is of no interest any more.
            let _ = self.end();
        }
    }
}

/// What the program says, until its time is up.
struct Output {
    output: ChildStdout,
    end: Instant,
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait_for(&self.output, self.end)?;
        self.output.read(buffer)
    }
}

/// Waits until there is something to read.
fn wait_for(source: &impl AsFd, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(source, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "it took too long and was ended",
                ));
            }
            Err(rustix::io::Errno::INTR) => {}
            done => return done.map(drop).map_err(io::Error::from),
        }
    }
}

/// The issues in the program's answer. Its last one is an error if the program
/// failed after all.
struct Answers {
    lines: io::Take<BufReader<Output>>,
    number: u64,
    end: Instant,
    /// `None` once it is over.
    group: Option<Group>,
    default_state: Option<&'static str>,
}

impl Answers {
    /// The next line that isn't empty; nothing at the end.
    fn line(&mut self) -> Result<Vec<u8>, Unreadable> {
        loop {
            let mut line = Vec::new();
            (&mut self.lines)
                .take(MAX_LINE as u64)
                .read_until(b'\n', &mut line)?;
            self.number += 1;
            if line.len() == MAX_LINE || self.lines.limit() == 0 {
                return Err(Unreadable("it says too much".to_owned()));
            }
            if line.is_empty() || !line.trim_ascii().is_empty() {
                return Ok(line);
            }
        }
    }

    fn read(&mut self) -> Result<Option<Issue>, Unreadable> {
        let line = self.line()?;
        if line.is_empty() {
            if let Some(mut group) = self.group.take() {
                group.status(self.end)?;
            }
            return Ok(None);
        }
        reported::issue(&line, self.default_state)
            .map(Some)
            .map_err(|error| Unreadable(format!("line {}: {error}", self.number)))
    }
}

impl Iterator for Answers {
    type Item = Result<Issue, TrackerError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.group.as_ref()?;
        let answer = self.read().map_err(|error| broken(&error)).transpose();
        if !matches!(answer, Some(Ok(_))) {
            self.group = None;
        }
        answer
    }
}

fn broken(error: &Unreadable) -> TrackerError {
    TrackerError::Broken {
        tracker: NAME,
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;

    use super::*;

    /// Whether a process still runs; one that waits to be collected does not.
    fn runs(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
    }

    /// Waits for a kill to have arrived.
    fn has_ended(pid: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while runs(pid) && Instant::now() < end {
            std::thread::yield_now();
        }
        !runs(pid)
    }

    /// Asks a script that starts another process first, with its id in `child`.
    fn ask(script: &str, patience: Duration) -> (Result<Issue, TrackerError>, String) {
        let folder = TempDir::new().unwrap();
        let script = format!("sleep 1000 >/dev/null & echo $! >child; {script}");
        let setting = format!("/bin/sh -c {}", words::quote(&script));
        let deadline = Instant::now() + MARGIN + patience;
        let program = Program::new(&setting, "r.git", folder.path(), deadline).unwrap();
        let answer = program.resolve(&"42".parse().unwrap());
        let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
        (answer, child.trim().to_owned())
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_that_it_started() {
        for script in [
            "wait",
            "echo '{\"id\":\"42\",\"state\":\"open\"}'; exec >&-; wait",
            "trap '' TERM; wait",
        ] {
            let (answer, child) = ask(script, Duration::from_secs(1));
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("took too long and was ended"), "{error}");
            assert!(has_ended(&child));
        }
    }

    #[test]
    fn nothing_that_a_program_started_outlives_its_answer() {
        for script in [
            "echo '{\"id\":\"42\",\"state\":\"open\"}'",
            "echo nonsense",
            "while :; do echo nonsense; done",
        ] {
            let (_, child) = ask(script, Duration::from_secs(60));
            assert!(has_ended(&child), "{script}");
        }
    }
}

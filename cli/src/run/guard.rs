//! The wrapper's side: it starts the watchdog, tells it until when the claim
//! lives, and hears from it how the command ended.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Pid;
use tokio::time::sleep;

use super::lease::Lease;
use super::message::{Ended, Lines, Order, Report, line};
use super::processes::{Family, MARK, Process};
use super::watchdog::{ARGUMENT, FILES};
use crate::error::{Failure, Kind, Result};
use crate::hex::random;
use crate::interrupt::Signals;

/// A command to be run while a claim is held.
#[derive(Debug)]
pub struct Work {
    /// Never empty.
    pub command: Vec<OsString>,
    pub environment: Vec<(&'static str, String)>,
    /// Whether it is stopped, and not ended, where its claim runs out.
    pub freeze: bool,
}

/// What is said to the watchdog.
#[derive(Debug)]
pub struct Orders {
    /// Not tokio's, which writes only once it has seen that there is room.
    socket: UnixStream,
    lease: Cell<Lease>,
    freeze: bool,
}

impl Orders {
    /// The claim lives on.
    pub fn live(&self, lease: Lease) {
        self.lease.set(lease);
        self.tell(&Order::Live(lease));
    }

    /// Until when the claim lives, as far as is known.
    pub fn lease(&self) -> Lease {
        self.lease.get()
    }

    /// The claim is lost.
    pub fn lost(&self) {
        self.tell(&Order::Lost);
    }

    /// A watchdog that does not hear is found out by [`Guard::ended`].
    fn tell(&self, order: &Order) {
        let _ = (&self.socket).write_all(&line(order));
    }

    /// Waits until the watchdog must have ended everything.
    async fn overdue(&self) {
        if self.freeze {
            return std::future::pending().await;
        }
        loop {
            let lease = self.lease.get();
            let overdue = lease.kill_at + lease.kill_at.until(lease.end) / 2;
            overdue.reached().await;
            if lease == self.lease.get() {
                return;
            }
        }
    }
}

/// The watchdog of a running command.
#[derive(Debug)]
pub struct Guard {
    watchdog: Child,
    reports: Reports,
    family: Family,
}

/// What the watchdog says.
#[derive(Debug)]
struct Reports {
    socket: tokio::net::UnixStream,
    lines: Lines,
    /// What came with what was heard last: a command that ends at once is
    /// started and over in one piece.
    heard: VecDeque<Report>,
}

impl Guard {
    /// Starts the watchdog, and by it the command.
    ///
    /// # Errors
    /// The command cannot be run, or the watchdog can't.
    pub async fn start(work: &Work, lock: File, lease: Lease) -> Result<(Guard, Orders)> {
        let mark = random::<12>().map_err(unwatched)?;
        let (watchdog, socket) = launch(work, &mark, &lock).map_err(unwatched)?;
        // From here on the watchdog holds it.
        drop(lock);
        let ancestor = i32::try_from(watchdog.id())
            .ok()
            .and_then(Pid::from_raw)
            .and_then(Process::with)
            .ok_or_else(|| unwatched(io::ErrorKind::NotFound.into()))?;
        socket.set_nonblocking(true).map_err(unwatched)?;
        let orders = Orders {
            socket: socket.try_clone().map_err(unwatched)?,
            lease: Cell::new(lease),
            freeze: work.freeze,
        };
        let mut guard = Guard {
            watchdog,
            reports: Reports::from(socket).map_err(unwatched)?,
            family: Family::new(ancestor, ancestor, OsStr::new(&mark)),
        };
        orders.tell(&Order::Start {
            lease,
            freeze: work.freeze,
        });
        match guard.reports.next().await {
            Some(Report::Started(command)) => {
                guard.family = Family::new(ancestor, command, OsStr::new(&mark));
                Ok((guard, orders))
            }
            Some(Report::NotStarted(error)) => {
                let _ = guard.watchdog.wait();
                Err(not_started(&work.command[0], error))
            }
            _ => {
                guard.end_everything().await;
                Err(unwatched(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }

    /// Waits until the command and its descendants have ended, and passes
    /// signals on meanwhile. `None`: the watchdog itself was ended or stopped,
    /// and so they were ended from here.
    pub async fn ended(&mut self, orders: &Orders, signals: &mut Signals) -> Option<Ended> {
        loop {
            tokio::select! {
                biased;
                report = self.reports.next() => match report {
                    Some(Report::Ended(ended)) => {
                        let _ = self.watchdog.wait();
                        return Some(ended);
                    }
                    Some(_) => {}
                    None => break,
                },
                number = signals.for_command() => orders.tell(&Order::Signal(number)),
                () = orders.overdue() => break,
            }
        }
        self.end_everything().await;
        None
    }

    /// What the watchdog would do, done without it.
    async fn end_everything(&mut self) {
        while !self.family.members().is_empty() {
            self.family.kill();
            sleep(Duration::from_millis(20)).await;
        }
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
    }
}

impl Reports {
    /// `socket` does not block.
    fn from(socket: UnixStream) -> io::Result<Reports> {
        Ok(Reports {
            socket: tokio::net::UnixStream::from_std(socket)?,
            lines: Lines::default(),
            heard: VecDeque::new(),
        })
    }

    /// The next one; `None`: the watchdog has ended. Can be given up and
    /// called again.
    async fn next(&mut self) -> Option<Report> {
        let mut bytes = [0; 4_096];
        loop {
            if let Some(report) = self.heard.pop_front() {
                return Some(report);
            }
            self.socket.readable().await.ok()?;
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(length) => self.heard.extend(self.lines.add(&bytes[..length])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }
}

/// Starts our own program as the watchdog, and hands it the command's files and
/// the lock through the socket that is its stdin.
fn launch(work: &Work, mark: &str, lock: &File) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let watchdog = Command::new(std::env::current_exe()?)
        .arg(ARGUMENT)
        .args(&work.command)
        .envs(work.environment.iter().map(|(name, value)| (name, value)))
        .env(MARK, mark)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let files = [input.as_fd(), output.as_fd(), errors.as_fd(), lock.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(
        &ours,
        &[IoSlice::new(b"\n")],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok((watchdog, ours))
}

/// A command that cannot be run, with the exit code of a shell.
fn not_started(program: &OsStr, error: Option<i32>) -> Failure {
    let error = io::Error::from_raw_os_error(error.unwrap_or_else(|| Errno::INVAL.raw_os_error()));
    let code = match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    let program = git_claim_api::text::escape(&program.to_string_lossy());
    Failure::of_kind(
        Kind::NotStarted(code),
        format!("'{program}' cannot be run: {error}"),
    )
}

fn unwatched(error: io::Error) -> Failure {
    Failure::error(format!(
        "the command cannot be watched, so it is not run: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_come_in_one_piece_are_all_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let ended = Ended {
            code: 0,
            made_to: false,
        };
        let said = [Report::NotStarted(None), Report::Ended(ended)];
        let heard = runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let bytes: Vec<u8> = said.iter().flat_map(line).collect();
            theirs.write_all(&bytes).unwrap();
            drop(theirs);
            let mut reports = Reports::from(ours).unwrap();
            [
                reports.next().await,
                reports.next().await,
                reports.next().await,
            ]
        });
        let [first, second] = said;
        assert_eq!(heard, [Some(first), Some(second), None]);
    }
}

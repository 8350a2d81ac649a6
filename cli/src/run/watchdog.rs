//! The watchdog: a process that starts the command and sees to it that neither
//! the command nor what descends from it outlives the claim, even if the
//! wrapper is stopped or killed. It never asks the server; it is told until
//! when the claim lives, and believes that until it hears more.

use std::ffi::OsString;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use git_claim_api::exit::Exit;
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    set_child_subreaper, setsid, wait,
};
use rustix::time::Timespec;
use tokio::runtime::Builder;

use super::lease::Lease;
use super::message::{Ended, Lines, Order, Report, line};
use super::processes::{Family, MARK, Process};
use crate::clock::Moment;
use crate::interrupt::Signals;

/// Our program is the watchdog where this is its first argument.
pub const ARGUMENT: &str = "--watchdog";

/// How many files come with the first message: the command's standard ones, and
/// the lock.
pub const FILES: usize = 4;

/// How long the command may take to end where the claim's own end leaves it the
/// time.
const GRACE: Duration = Duration::from_secs(2);

/// How often those that should be gone are looked for.
const LOOK: Duration = Duration::from_millis(25);

/// Runs the watchdog of `command`; the wrapper is at the other end of stdin.
pub fn main(command: &[OsString]) -> ExitCode {
    match watch(command) {
        Ok(()) => Exit::Done.into(),
        Err(error) => {
            eprintln!("error: the watchdog of `git claim run` failed: {error}");
            Exit::Error.into()
        }
    }
}

fn watch(command: &[OsString]) -> io::Result<()> {
    // Whoever ends the wrapper's group must not end the one who then acts.
    let outside = SigSet::thread_get_mask()?;
    SigSet::all().thread_block()?;
    set_child_subreaper(Some(getpid()))?;
    let mut wrapper = Wrapper::inherited()?;
    let [input, output, errors, _lock] = wrapper.files()?;
    let Some(Order::Start { lease, freeze }) = wrapper.first()? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(input)
        .stdout(output)
        .stderr(errors);
    let started = start(&mut command, &outside)?;
    // With it go our copies of the command's files.
    drop(command);
    let child = match started {
        Ok(child) => child,
        Err(error) => return wrapper.report(&Report::NotStarted(error.raw_os_error())),
    };
    // The command stays in the terminal's session, with the wrapper; the end of
    // that session is not ours.
    let _ = setsid();
    let child = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidData)?;
    let process = |pid| Process::with(pid).ok_or(io::ErrorKind::NotFound);
    // It is not reaped before we do it, so its number is its own.
    let command = process(child).or_else(|_| process(getpid()))?;
    wrapper.report(&Report::Started(command))?;
    let mark = std::env::var_os(MARK).unwrap_or_default();
    let watch = Watch {
        family: Family::new(process(getpid())?, command, &mark),
        child,
        wrapper: Some(wrapper),
        lease,
        freeze,
        phase: Phase::Running,
        code: None,
        made_to: false,
    };
    watch.until_the_end()
}

/// Starts the command with the signals that the wrapper was started with. What
/// the terminal sends to all of its foreground until the watchdog blocks them
/// again is caught: it is the command's alone, to which no handler is passed on.
fn start(command: &mut Command, outside: &SigSet) -> io::Result<io::Result<Child>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    let _caught = Signals::of_others().map_err(|failure| io::Error::other(failure.message))?;
    outside.thread_set_mask()?;
    let started = command.spawn();
    SigSet::all().thread_block()?;
    Ok(started)
}

/// The command that is watched, and how things stand with it.
struct Watch {
    family: Family,
    child: Pid,
    /// `None`: it has ended.
    wrapper: Option<Wrapper>,
    lease: Lease,
    /// Whether a command whose claim has run out is stopped first, as the claim
    /// may be had again.
    freeze: bool,
    phase: Phase,
    /// The exit code, once the command has ended.
    code: Option<u8>,
    made_to: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// All are stopped: the claim has run out.
    Frozen,
    /// All have been asked to end, and are ended at this moment.
    Ending {
        kill_at: Moment,
    },
}

impl Watch {
    fn until_the_end(mut self) -> io::Result<()> {
        loop {
            self.reap();
            for order in self.orders() {
                self.obey(order);
            }
            self.look_at_the_clock();
            if let Some(code) = self.code
                && self.is_over()
            {
                let made_to = self.made_to;
                if let Some(wrapper) = &mut self.wrapper {
                    wrapper.report(&Report::Ended(Ended { code, made_to }))?;
                }
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Whether nothing is left, now that the command itself has ended. What it
    /// left behind must not outlive the claim either.
    fn is_over(&mut self) -> bool {
        if self.family.members().is_empty() {
            return true;
        }
        if self.phase == Phase::Running {
            self.end_by(Moment::now() + GRACE);
        }
        false
    }

    /// Takes the exit codes of the command, and of orphans that fell to us.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.child {
                self.code = Some(code(status));
            }
        }
    }

    /// What the wrapper has said. If it has ended, nobody renews the claim any
    /// more, and nobody would know how the command ended.
    fn orders(&mut self) -> Vec<Order> {
        let Some(wrapper) = &mut self.wrapper else {
            return Vec::new();
        };
        match wrapper.hear() {
            Ok(orders) => orders,
            Err(_) => {
                self.wrapper = None;
                vec![Order::Lost]
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match (order, self.phase) {
            (Order::Live(lease), Phase::Running) => self.lease = lease,
            (Order::Live(lease), Phase::Frozen) => {
                self.lease = lease;
                self.phase = Phase::Running;
                self.family.go_on();
            }
            (Order::Lost, Phase::Running) => {
                self.made_to = true;
                self.end_by(Moment::now() + GRACE);
            }
            // Stopped, it could not end by itself, and the claim is over.
            (Order::Lost, Phase::Frozen) => {
                self.made_to = true;
                let kill_at = Moment::now();
                self.phase = Phase::Ending { kill_at };
            }
            (Order::Signal(number), _) if self.code.is_none() => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    let _ = kill_process(self.child, signal);
                }
            }
            // What has been asked to end is not asked to stay.
            (Order::Live(_) | Order::Lost, Phase::Ending { .. })
            | (Order::Start { .. } | Order::Signal(_), _) => {}
        }
    }

    fn look_at_the_clock(&mut self) {
        match self.phase {
            Phase::Running if self.freeze && self.lease.kill_at.is_past() => {
                self.family.stop();
                self.phase = Phase::Frozen;
            }
            Phase::Running if !self.freeze && self.lease.ask_at.is_past() => {
                self.made_to = self.code.is_none();
                self.end_by(self.lease.kill_at);
            }
            Phase::Ending { kill_at } if kill_at.is_past() => self.family.kill(),
            _ => {}
        }
    }

    /// Asks all to end, and has them ended then, or when the claim ends.
    fn end_by(&mut self, moment: Moment) {
        let kill_at = moment.min(self.lease.kill_at);
        self.phase = Phase::Ending { kill_at };
        self.family.ask_to_end();
    }

    /// Until the wrapper says something, the command ends, or it is time.
    fn sleep(&self) -> io::Result<()> {
        let wake_at = match self.phase {
            Phase::Running if self.freeze => Some(self.lease.kill_at),
            Phase::Running => Some(self.lease.ask_at),
            Phase::Frozen => None,
            Phase::Ending { .. } => Some(Moment::now() + LOOK),
        };
        let timer = wake_at.map(Moment::timer).transpose()?;
        let command = match self.code {
            None => Some(pidfd_open(self.child, PidfdFlags::empty())?),
            Some(_) => None,
        };
        let mut files: Vec<PollFd<'_>> = Vec::new();
        files.extend(timer.iter().map(|file| PollFd::new(file, PollFlags::IN)));
        files.extend(command.iter().map(|file| PollFd::new(file, PollFlags::IN)));
        let socket = self.wrapper.iter().map(|wrapper| &wrapper.socket);
        files.extend(socket.map(|file| PollFd::new(file, PollFlags::IN)));
        // A stopped command wakes nobody: an orphan may have to be reaped.
        let longest = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        match poll(&mut files, Some(&longest)) {
            Err(error) if error != Errno::INTR => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// As a shell says it.
fn code(status: WaitStatus) -> u8 {
    let number = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(u8::MAX)
}

/// The other end of the socket.
struct Wrapper {
    socket: UnixStream,
    lines: Lines,
}

impl Wrapper {
    /// The socket that is our stdin.
    fn inherited() -> io::Result<Wrapper> {
        let socket = rustix::stdio::stdin().try_clone_to_owned()?;
        Ok(Wrapper {
            socket: socket.into(),
            lines: Lines::default(),
        })
    }

    /// The files that come with the first byte.
    fn files(&self) -> io::Result<[OwnedFd; FILES]> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        files
            .try_into()
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The first order; waits for it.
    fn first(&mut self) -> io::Result<Option<Order>> {
        loop {
            let orders = self.read()?;
            if let Some(order) = orders.first() {
                self.socket.set_nonblocking(true)?;
                return Ok(Some(*order));
            }
        }
    }

    /// All orders that have come.
    ///
    /// # Errors
    /// The wrapper has ended.
    fn hear(&mut self) -> io::Result<Vec<Order>> {
        let mut orders = Vec::new();
        loop {
            match self.read() {
                Ok(more) => orders.extend(more),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(orders),
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self) -> io::Result<Vec<Order>> {
        let mut bytes = [0; 4_096];
        match self.socket.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => Ok(self.lines.add(&bytes[..length])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Says something; a wrapper that has ended needs to know nothing.
    fn report(&mut self, report: &Report) -> io::Result<()> {
        let _ = self.socket.write_all(&line(report));
        Ok(())
    }
}

//! Ctrl-C and its like: the work stops at once, what it made is cleaned up by
//! whoever made it, and the exit code says which signal it was.

use std::fs::{self, File};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Signal as Number, getpgrp};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use crate::error::{Failure, Kind, Result};

/// What asks to stop.
const STOPPING: [Number; 3] = [Number::INT, Number::TERM, Number::HUP];

/// What a terminal sends to everyone in the foreground.
const OF_TERMINAL: [Number; 2] = [Number::INT, Number::QUIT];

/// Whether a signal of this number asks to stop.
pub fn asks_to_stop(number: i32) -> bool {
    STOPPING.iter().any(|signal| signal.as_raw() == number)
}

/// A signal that was there before something ended is heard of within this time.
const ECHO: Duration = Duration::from_millis(10);

/// Runs `work` until it is done or a signal asks to stop; `work` is dropped
/// then.
pub async fn or_stop<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut signals = Signals::listen(&STOPPING)?;
    let number = tokio::select! {
        // A command may know better what a signal means.
        biased;
        done = work => match done {
            Err(failure) if failure.kind.is_not_now() => {
                // Ctrl-C hits the connection's own program as well as us, and it
                // may be the first to end.
                match timeout(ECHO, signals.any()).await {
                    Ok(number) => number,
                    Err(_) => return Err(failure),
                }
            }
            done => return done,
        },
        number = signals.any() => number,
    };
    Err(Failure {
        kind: Kind::Interrupted(u8::try_from(number).unwrap_or_default()),
        message: "stopped before an answer came".to_owned(),
        hint: Some("what was asked may still have been done; `git claims --mine` tells".to_owned()),
        reply: None,
    })
}

/// Signals as they come.
#[derive(Debug)]
pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Those that a command of ours may want to hear of too.
    ///
    /// # Errors
    /// There are none to be had.
    pub fn for_command_too() -> Result<Signals> {
        let [interrupt, terminate, hangup] = STOPPING;
        Signals::listen(&[
            interrupt,
            terminate,
            hangup,
            Number::QUIT,
            Number::USR1,
            Number::USR2,
        ])
    }

    /// Those that would end or stop whoever does not listen.
    ///
    /// # Errors
    /// There are none to be had.
    pub fn of_others() -> Result<Signals> {
        let [interrupt, terminate, hangup] = STOPPING;
        Signals::listen(&[interrupt, terminate, hangup, Number::QUIT, Number::TSTP])
    }

    /// Listens to those that are not ignored: whoever called us with `nohup`
    /// means it, for us and for what we start.
    fn listen(numbers: &[Number]) -> Result<Signals> {
        let ignored = ignored();
        let mut signals = Vec::new();
        for number in numbers.iter().map(|number| number.as_raw()) {
            if ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            let stream = signal(SignalKind::from_raw(number))
                .map_err(|error| Failure::error(format!("signals cannot be received: {error}")))?;
            signals.push((number, stream));
        }
        Ok(Signals(signals))
    }

    /// The next signal's number.
    pub async fn any(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Forgets what was meant for a command that has ended.
    pub async fn forget(&mut self) {
        while timeout(ECHO, self.any()).await.is_ok() {}
    }

    /// The next one by which somebody does not want to wait any longer: where the
    /// terminal has gone nobody does, and others only a command knows.
    pub async fn impatient(&mut self) -> i32 {
        loop {
            let number = self.any().await;
            let is_meant = [Number::INT, Number::TERM, Number::QUIT];
            if is_meant.iter().any(|signal| signal.as_raw() == number) {
                return number;
            }
        }
    }

    /// The next signal that our command has not got already: it is in our own
    /// process group, so what comes from the terminal comes to both.
    pub async fn for_command(&mut self) -> i32 {
        loop {
            let number = self.any().await;
            let of_terminal = OF_TERMINAL.iter().any(|signal| signal.as_raw() == number);
            if !(of_terminal && is_in_foreground()) {
                return number;
            }
        }
    }
}

/// Whether the terminal's keys are ours.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}

/// The set of signals that are ignored, the first in the lowest bit.
fn ignored() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let set = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        })
        .unwrap_or(0)
}

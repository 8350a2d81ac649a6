//! The holder's own clock: it never jumps, and it goes on while the machine
//! sleeps.

use std::io;
use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use serde::{Deserialize, Serialize};

/// A moment: the time since the machine was started. The same moment for every
/// process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(
            u64::try_from(now.tv_sec).unwrap_or(0),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        ))
    }

    /// How long it is until then; zero if it is past.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }

    /// How long it is from this to a later one.
    pub fn until(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }

    /// Whether it has come.
    pub fn is_past(self) -> bool {
        Moment::now() >= self
    }

    /// A timer's file, readable from this moment on.
    ///
    /// # Errors
    /// There are no timers to be had.
    pub fn timer(self) -> io::Result<rustix::fd::OwnedFd> {
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let none = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: self.0.subsec_nanos().into(),
        };
        let time = Itimerspec {
            it_interval: none,
            it_value: value,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &time)?;
        Ok(timer)
    }

    /// Waits until then. tokio's own timers stand still while the machine
    /// sleeps, so the clock is looked at now and then.
    pub async fn reached(self) {
        while !self.is_past() {
            tokio::time::sleep(self.left().min(LOOK)).await;
        }
    }
}

/// How late a moment may be noticed that came while the machine slept.
const LOOK: Duration = Duration::from_millis(500);

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_comes_and_stays_past() {
        let now = Moment::now();
        assert!(now.is_past());
        assert_eq!(now.left(), Duration::ZERO);
        let later = now + Duration::from_secs(1_000);
        assert!(!later.is_past());
        assert!(later.left() > Duration::from_secs(900));
        assert_eq!(later - Duration::from_secs(1_000), now);
    }

    #[tokio::test]
    async fn nobody_is_woken_too_early() {
        let moment = Moment::now() + Duration::from_millis(20);
        moment.reached().await;
        assert!(moment.is_past());
        Moment::now().reached().await;
    }
}

//! Waiting before another try, with jitter.

use std::time::{Duration, Instant};

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(200);

/// How long those who meet at one issue spread out, at first.
const CROWD: Duration = Duration::from_millis(16);

/// Sleeps a random time that may be longer with each `round`, from 1; never
/// past `deadline`.
pub fn pause(round: u32, deadline: Instant) {
    let most = Duration::from_millis(10)
        .saturating_mul(1 << round.min(10))
        .min(LONGEST);
    sleep(most.mul_f64(random_part()), deadline);
}

/// Sleeps after a try that others were faster than. Whoever has lost often
/// waits less than who has just come, so that nobody loses for ever.
pub fn between_rounds(round: u32, deadline: Instant) {
    let most = CROWD / round.min(8);
    sleep(most.mul_f64(random_part()), deadline);
}

/// Sleeps, but not past `deadline`.
fn sleep(time: Duration, deadline: Instant) {
    std::thread::sleep(time.min(deadline.saturating_duration_since(Instant::now())));
}

/// A random number from 0 to 1.
fn random_part() -> f64 {
    let mut byte = [0; 2];
    // Without the kernel's randomness there is no jitter.
    let _ = getrandom::fill(&mut byte);
    f64::from(u16::from_le_bytes(byte)) / f64::from(u16::MAX)
}

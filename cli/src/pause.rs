//! Pauses that are not the same for all: those who had to wait together do not
//! come back together.

use std::time::Duration;

/// A random time from `least` to `most`.
pub fn between(least: Duration, most: Duration) -> Duration {
    let mut bytes = [0; 2];
    // Without random bytes the pause is just not random.
    let _ = getrandom::fill(&mut bytes);
    let span = most.saturating_sub(least);
    least + span * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

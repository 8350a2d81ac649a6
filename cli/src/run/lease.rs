//! Until when the holder may count on a claim, by its own clock.

use std::time::Duration;

use git_claim_api::ids::Ttl;
use serde::{Deserialize, Serialize};

use crate::clock::Moment;

/// The end of a claim, and what must have happened before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The command is asked to end.
    pub ask_at: Moment,
    /// It is ended.
    pub kill_at: Moment,
    /// The claim may be another's.
    pub end: Moment,
}

impl Lease {
    /// The lease of a claim that was asked for or renewed by a request sent at
    /// `sent`: the server began to count later.
    pub fn of(sent: Moment, ttl: Ttl) -> Lease {
        let ttl = span(ttl);
        let end = sent + ttl;
        Lease {
            ask_at: end - (ttl / 4).min(Duration::from_secs(12)),
            kill_at: end - (ttl / 8).min(Duration::from_secs(2)),
            end,
        }
    }
}

/// When a claim is renewed that was asked for at `sent`.
pub fn next_heartbeat(sent: Moment, ttl: Ttl) -> Moment {
    sent + span(ttl) / 3
}

/// How long a claim lives.
pub fn span(ttl: Ttl) -> Duration {
    Duration::from_secs(ttl.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_happens_before_the_end() {
        let sent = Moment::now();
        for seconds in [1, 2, 3, 60, 600, 86_400] {
            let ttl = Ttl::new(seconds).unwrap();
            let lease = Lease::of(sent, ttl);
            assert_eq!(lease.end, sent + span(ttl));
            // Two heartbeats may be missed.
            assert!(sent + span(ttl) / 3 * 2 < lease.ask_at, "{seconds}");
            assert!(lease.ask_at < lease.kill_at, "{seconds}");
            assert!(lease.kill_at + Duration::from_millis(100) < lease.end);
        }
    }
}

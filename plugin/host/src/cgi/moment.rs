//! Times as people read them, beside what programs read.

use git_claim_api::duration::short;
use git_claim_api::time::{parse_rfc3339, rfc3339};

/// A time, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// The time that a reply gives, if it gives one.
    pub fn of(reply: Option<&str>) -> Option<Moment> {
        Some(Moment(parse_rfc3339(reply?)?))
    }

    /// For programs: RFC 3339.
    pub fn exact(self) -> String {
        rfc3339(self.0).unwrap_or_default()
    }

    /// For people: to the minute, in UTC.
    pub fn shown(self) -> String {
        let exact = self.exact();
        match (exact.get(..10), exact.get(11..16)) {
            (Some(day), Some(minute)) => format!("{day} {minute}"),
            _ => exact,
        }
    }

    /// How far away it is: `2h 5m ago`, `in 3m`.
    pub fn from(self, now: Moment) -> String {
        let apart = short(self.0.abs_diff(now.0));
        if self > now {
            format!("in {apart}")
        } else {
            format!("{apart} ago")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;

    #[test]
    fn a_time_is_shown_to_the_minute_and_told_exactly() {
        let moment = |text| Moment::of(Some(text)).unwrap();
        let noon = moment("2026-09-05T12:00:30Z");
        assert_eq!(noon.shown(), "2026-09-05 12:00");
        assert_eq!(noon.exact(), "2026-09-05T12:00:30Z");
        assert_eq!(noon.from(moment("2026-09-05T14:05:30Z")), "2h 5m ago");
        assert_eq!(noon.from(moment("2026-09-05T11:57:30Z")), "in 3m");
        assert_eq!(noon.from(noon), "0s ago");
        assert_eq!(Moment::of(None), None);
        assert_eq!(Moment::of(Some("soon")), None);
    }
}

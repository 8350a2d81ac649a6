//! Times for people: on their own clock's face, counted by the server's clock.

use chrono::{DateTime, Datelike as _, Local, TimeZone};
use git_claim_api::duration::short;
use git_claim_api::text::escape;
use git_claim_api::time::parse_rfc3339;

/// A server's time in the local zone: `14:05` on the day of `now`, else
/// `Sep 5 14:05`, and in another year with it.
pub fn moment(time: &str, now: &str) -> String {
    moment_in(&Local, time, now)
}

fn moment_in<Zone: TimeZone>(zone: &Zone, time: &str, now: &str) -> String
where
    Zone::Offset: std::fmt::Display,
{
    let at = |text: &str| {
        let utc = DateTime::from_timestamp(parse_rfc3339(text)?, 0)?;
        Some(utc.with_timezone(zone))
    };
    let Some(moment) = at(time) else {
        return escape(time);
    };
    let format = match at(now) {
        Some(now) if now.date_naive() == moment.date_naive() => "%H:%M",
        Some(now) if now.year() == moment.year() => "%b %-d %H:%M",
        _ => "%b %-d %Y %H:%M",
    };
    moment.format(format).to_string()
}

/// How long from `time` to `now`, both the server's; `None` if unknown.
pub fn since(time: Option<&str>, now: &str) -> Option<String> {
    let seconds = parse_rfc3339(now)? - parse_rfc3339(time?)?;
    Some(short(u64::try_from(seconds).unwrap_or(0)))
}

/// What is left of a claim, never more than there is: `in 1h 59m`.
pub fn left(milliseconds: i64) -> String {
    let milliseconds = u64::try_from(milliseconds).unwrap_or(0);
    format!("in {}", short(milliseconds / 1_000))
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

    use super::*;

    #[test]
    fn a_moment_says_no_more_than_it_must() {
        let zone = FixedOffset::east_opt(2 * 3_600).unwrap();
        let now = "2026-09-05T12:00:00Z";
        for (time, shown) in [
            ("2026-09-05T12:05:00Z", "14:05"),
            ("2026-09-05T22:05:00Z", "Sep 6 00:05"),
            ("2026-09-04T21:59:00Z", "Sep 4 23:59"),
            ("2027-01-01T00:00:00Z", "Jan 1 2027 02:00"),
            ("\x1b[2J", "\\u001b[2J"),
        ] {
            assert_eq!(moment_in(&zone, time, now), shown);
        }
    }

    #[test]
    fn spans_are_counted_by_the_servers_clock() {
        let now = "2026-09-05T12:00:00Z";
        assert_eq!(
            since(Some("2026-09-05T11:59:40Z"), now).as_deref(),
            Some("20s")
        );
        assert_eq!(
            since(Some("2026-09-05T12:00:01Z"), now).as_deref(),
            Some("0s")
        );
        assert_eq!(since(None, now), None);
        assert_eq!(left(7_199_999), "in 1h 59m");
        assert_eq!(left(7_200_999), "in 2h");
        assert_eq!(left(-5), "in 0s");
    }
}

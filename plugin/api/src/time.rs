//! Times as the protocol writes them: RFC 3339, UTC, whole seconds.

use chrono::{DateTime, SecondsFormat, Utc};

/// `seconds` since the Unix epoch as RFC 3339 in UTC; `None` past the year
/// 9999, which the format cannot write.
pub fn rfc3339(seconds: i64) -> Option<String> {
    const END_OF_9999: i64 = 253_402_300_799;
    if !(0..=END_OF_9999).contains(&seconds) {
        return None;
    }
    let time = DateTime::<Utc>::from_timestamp(seconds, 0)?;
    Some(time.to_rfc3339_opts(SecondsFormat::Secs, true))
}

/// The same to the minute, for people whose zone is not known.
pub fn minute(seconds: i64) -> Option<String> {
    let time = rfc3339(seconds)?;
    let (day, time) = time.split_once('T')?;
    Some(format!("{day} {} UTC", time.get(..5)?))
}

/// The seconds since the epoch that an RFC 3339 time stands for.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp())
}

/// The seconds since the epoch that a `Date:` of HTTP stands for.
pub fn parse_http_date(text: &str) -> Option<i64> {
    Some(DateTime::parse_from_rfc2822(text).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::{minute, parse_http_date, parse_rfc3339, rfc3339};

    #[test]
    fn a_date_of_http_is_read() {
        let date = "Sat, 05 Sep 2026 12:00:00 GMT";
        assert_eq!(parse_http_date(date), Some(1_788_609_600));
        assert_eq!(parse_http_date("now"), None);
    }

    #[test]
    fn whole_seconds_in_utc() {
        assert_eq!(
            rfc3339(1_788_609_600).as_deref(),
            Some("2026-09-05T12:00:00Z")
        );
        assert_eq!(
            minute(1_788_609_659).as_deref(),
            Some("2026-09-05 12:00 UTC")
        );
        assert_eq!(minute(-1), None);
        assert_eq!(rfc3339(-1), None);
        assert_eq!(rfc3339(i64::MAX), None);
        assert_eq!(
            parse_rfc3339("2026-09-05T14:00:00+02:00"),
            Some(1_788_609_600)
        );
        assert_eq!(parse_rfc3339("yesterday"), None);
    }
}

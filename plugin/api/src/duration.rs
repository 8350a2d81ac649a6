//! Durations as people type them: `300`, `90s`, `30m`, `1h30m`, `2d`.

use crate::ids::{Invalid, Ttl};

/// A time to live as a person writes it: whole seconds, or numbers with the
/// units `s`, `m`, `h`, `d` and `w`.
///
/// # Errors
/// Empty, zero, negative, an unknown unit, a fraction, or too long for a claim.
pub fn parse_ttl(text: &str) -> Result<Ttl, Invalid> {
    let seconds = parse_seconds(text)?;
    Ttl::new(seconds)
}

/// The same as whole seconds, zero allowed: for waits and timeouts.
///
/// # Errors
/// As [`parse_ttl`], but for zero.
pub fn parse_seconds(text: &str) -> Result<u64, Invalid> {
    let bad = || {
        Invalid::new(
            "a duration",
            text,
            "use whole seconds, or units as in 90s, 30m, 1h30m, 2d",
        )
    };
    // humantime also takes months, years and fractions of a second: too coarse
    // or too fine for a claim.
    if !text
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h' | 'd' | 'w'))
        || text.contains("ms")
    {
        return Err(bad());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| bad());
    }
    let duration = humantime::parse_duration(text).map_err(|_| bad())?;
    Ok(duration.as_secs())
}

/// `seconds` as a person reads them, in the two largest units: `1h 59m`.
pub fn short(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let Some(first) = UNITS.iter().position(|(size, _)| seconds >= *size) else {
        return "0s".to_owned();
    };
    let (size, unit) = UNITS[first];
    let mut out = format!("{}{unit}", seconds / size);
    if let Some((next_size, next_unit)) = UNITS.get(first + 1) {
        let rest = seconds % size / next_size;
        if rest > 0 {
            out.push_str(&format!(" {rest}{next_unit}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{parse_ttl, short};

    #[test]
    fn durations_that_people_type() {
        for (text, seconds) in [
            ("300", 300),
            ("90s", 90),
            ("30m", 1_800),
            ("1h30m", 5_400),
            ("2d", 172_800),
            ("1w", 604_800),
            ("1", 1),
        ] {
            assert_eq!(parse_ttl(text).unwrap().seconds(), seconds, "{text}");
        }
    }

    #[test]
    fn durations_that_are_refused() {
        for text in [
            "",
            "0",
            "0s",
            "-1",
            "-5m",
            "1.5h",
            "h",
            "m30",
            "5x",
            "5 m",
            "1month",
            "1y",
            "500ms",
            "1us",
            "99999999999999999999",
            "9999999999d",
            "1h-",
            "+5",
            "٣",
        ] {
            assert!(parse_ttl(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn two_units_are_enough() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m 1s"),
            (7_199, "1h 59m"),
            (7_200, "2h"),
            (90_000, "1d 1h"),
            (172_805, "2d"),
        ] {
            assert_eq!(short(seconds), shown);
        }
    }
}

//! Text from outside, on its way to a terminal, a log or JSON.

use std::fmt::Write as _;

/// Whether `c` can change what a terminal or a reader sees of the text around
/// it: C0, DEL and C1 controls, line and paragraph separators, and the
/// bidirectional controls of Unicode (UAX #9).
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061C}'
            | '\u{200E}' | '\u{200F}'
            | '\u{2028}' | '\u{2029}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2066}'..='\u{2069}'
            | '\u{FEFF}')
}

/// `text` with every unsafe character written as `\uXXXX`, which is also what
/// JSON takes inside a string.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// `value` as one line of JSON in which nothing unsafe stands unescaped.
///
/// # Errors
/// What serde_json answers for a value that has no JSON form.
pub fn json_line<T: serde::Serialize>(value: &T) -> Result<String, serde_json::Error> {
    // serde_json escapes C0 alone. Outside of strings compact JSON is ASCII, so
    // what is left to escape can only stand inside one.
    Ok(escape(&serde_json::to_string(value)?))
}

#[cfg(test)]
mod tests {
    use super::{escape, json_line};

    #[test]
    fn controls_are_escaped_and_letters_are_not() {
        for (raw, shown) in [
            ("plain – ünï 漢字", "plain – ünï 漢字"),
            ("a\nb", "a\\u000ab"),
            ("\x1b[31mred", "\\u001b[31mred"),
            ("del\x7f c1\u{9b}", "del\\u007f c1\\u009b"),
            ("\u{202e}gnp.exe", "\\u202egnp.exe"),
            ("a\u{2028}b\u{feff}", "a\\u2028b\\ufeff"),
        ] {
            assert_eq!(escape(raw), shown);
        }
    }

    #[test]
    fn escaped_json_reads_back_as_the_same_text() {
        let text = "tab\t del\x7f c1\u{9b} bidi\u{202e} quote\" backslash\\ é";
        let line = json_line(&text).unwrap();
        assert!(!line.chars().any(super::is_unsafe), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
    }
}

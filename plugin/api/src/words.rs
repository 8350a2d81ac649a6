//! One command line to words and back, as SSH carries it: bare words, POSIX
//! single quotes, percent-encoded free text.
//!
//! Not the shell's grammar: nothing is expanded, a `#` is a character like any
//! other, and what quoting by git or a shell would never produce is refused.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The longest command line that is looked at, in bytes.
pub const MAX_COMMAND: usize = 64 * 1024;

/// Why a command line is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadWords {
    #[error("the command is not UTF-8")]
    NotUtf8,
    #[error("the command holds a control character")]
    Control,
    #[error("the command is longer than 64 KiB")]
    TooLong,
    #[error("the command is empty")]
    Empty,
    #[error("a word in the command is empty")]
    EmptyWord,
    #[error("a single quote is never closed")]
    Unclosed,
    #[error("double quotes are not understood; use single quotes or percent-encoding")]
    DoubleQuote,
    #[error("a backslash is not understood outside of single quotes")]
    Backslash,
    #[error("a character needs single quotes around it")]
    Bare,
    #[error("free text is percent-encoded UTF-8, and a word of it is not")]
    Percent,
}

/// Splits a command line into its words and undoes single quotes.
///
/// # Errors
/// Anything but bare words of `[A-Za-z0-9._/+=,@:%~-]` and single-quoted ones,
/// divided by blanks.
pub fn split(line: &[u8]) -> Result<Vec<String>, BadWords> {
    if line.len() > MAX_COMMAND {
        return Err(BadWords::TooLong);
    }
    let line = std::str::from_utf8(line).map_err(|_| BadWords::NotUtf8)?;
    if line.chars().any(char::is_control) {
        return Err(BadWords::Control);
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' => words.extend(finish(word.take())?),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        None => return Err(BadWords::Unclosed),
                        Some('\'') => break,
                        Some(c) => word.push(c),
                    }
                }
            }
            // The two escapes that quoting by git produces: a quote and an
            // exclamation mark, each outside of the quotes around it.
            '\\' => match chars.next() {
                Some(c @ ('\'' | '!')) => word.get_or_insert_default().push(c),
                _ => return Err(BadWords::Backslash),
            },
            '"' => return Err(BadWords::DoubleQuote),
            c if is_bare(c) || c == '~' => word.get_or_insert_default().push(c),
            _ => return Err(BadWords::Bare),
        }
    }
    words.extend(finish(word)?);
    if words.is_empty() {
        return Err(BadWords::Empty);
    }
    Ok(words)
}

/// A word that has ended, if one had begun.
fn finish(word: Option<String>) -> Result<Option<String>, BadWords> {
    match word {
        Some(word) if word.is_empty() => Err(BadWords::EmptyWord),
        word => Ok(word),
    }
}

/// Whether `c` travels without quotes.
fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '.' | '_' | '/' | '+' | '=' | ',' | '@' | ':' | '%' | '-')
}

/// `word` as it travels: bare if it can be, else in single quotes as git's
/// `sq_quote` writes them.
pub fn quote(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_bare) {
        return word.to_owned();
    }
    let mut out = String::with_capacity(word.len() + 2);
    out.push('\'');
    for c in word.chars() {
        match c {
            '\'' | '!' => {
                out.push_str("'\\");
                out.push(c);
                out.push('\'');
            }
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// What of free text stays as it is: the bare characters without `%`.
const FREE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'.')
    .remove(b'_')
    .remove(b'/')
    .remove(b'+')
    .remove(b'=')
    .remove(b',')
    .remove(b'@')
    .remove(b':')
    .remove(b'-');

/// Free text as a bare word: percent-encoded UTF-8, a leading `-` too.
pub fn encode(text: &str) -> String {
    let encoded = utf8_percent_encode(text, FREE).to_string();
    match encoded.strip_prefix('-') {
        Some(rest) => format!("%2D{rest}"),
        None => encoded,
    }
}

/// Free text that travelled percent-encoded.
///
/// # Errors
/// A `%` without two hex digits behind it, or what comes out is not UTF-8.
pub fn decode(word: &str) -> Result<String, BadWords> {
    let is_escape =
        |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    if !word.split('%').skip(1).all(is_escape) {
        return Err(BadWords::Percent);
    }
    let text = percent_decode_str(word)
        .decode_utf8()
        .map_err(|_| BadWords::Percent)?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, BadWords> {
        split(line.as_bytes())
    }

    #[test]
    fn what_clients_send() {
        for (line, expected) in [
            ("collab-lease whoami", vec!["collab-lease", "whoami"]),
            ("a  b ", vec!["a", "b"]),
            (
                "git-upload-pack '/srv/my repo.git'",
                vec!["git-upload-pack", "/srv/my repo.git"],
            ),
            ("x 'it'\\''s'", vec!["x", "it's"]),
            ("x 'wow'\\!", vec!["x", "wow!"]),
            ("x a'b'c", vec!["x", "abc"]),
            ("x '#43' ~ann/r.git", vec!["x", "#43", "~ann/r.git"]),
            ("x '\"\\$(id)'", vec!["x", "\"\\$(id)"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (line, error) in [
            ("", BadWords::Empty),
            ("   ", BadWords::Empty),
            ("x ''", BadWords::EmptyWord),
            ("x 'open", BadWords::Unclosed),
            ("x \"y\"", BadWords::DoubleQuote),
            ("x a\\ b", BadWords::Backslash),
            ("x \\", BadWords::Backslash),
            ("x\ty", BadWords::Control),
            ("x 'a\nb'", BadWords::Control),
            ("x 'a\0'", BadWords::Control),
            ("x '\u{9b}'", BadWords::Control),
            ("x #43", BadWords::Bare),
            ("x $(id)", BadWords::Bare),
            ("x `id`", BadWords::Bare),
            ("x;y", BadWords::Bare),
            ("x|y", BadWords::Bare),
            ("x é", BadWords::Bare),
            ("x *", BadWords::Bare),
        ] {
            assert_eq!(words(line), Err(error), "{line:?}");
        }
        assert_eq!(split(b"x \xff"), Err(BadWords::NotUtf8));
        assert_eq!(split(&vec![b'a'; MAX_COMMAND + 1]), Err(BadWords::TooLong));
    }

    #[test]
    fn percent_encoding_that_is_refused() {
        for bad in ["%", "%4", "a%zz", "%ff", "%e2%82", "100%"] {
            assert_eq!(decode(bad), Err(BadWords::Percent), "{bad}");
        }
        assert_eq!(encode("-x y%é"), "%2Dx%20y%25%C3%A9");
    }
}

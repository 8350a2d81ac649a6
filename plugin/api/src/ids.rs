//! The values that words of a request turn into. Each is checked once, where
//! it is made; one that exists is valid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{escape, is_unsafe};

/// A value from outside that cannot be what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not {what}: {why}", shown(.given))]
pub struct Invalid {
    what: &'static str,
    given: String,
    why: &'static str,
}

impl Invalid {
    pub(crate) fn new(what: &'static str, given: &str, why: &'static str) -> Self {
        Invalid {
            what,
            given: given.to_owned(),
            why,
        }
    }
}

/// What was given, fit for one line of an error message.
fn shown(given: &str) -> String {
    const MOST: usize = 80;
    let escaped = escape(given);
    match escaped.char_indices().nth(MOST) {
        None => escaped,
        Some((end, _)) => format!("{}…", &escaped[..end]),
    }
}

/// Gives a checked text type its conversions; `check` answers why a text is
/// refused.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str) -> Result<(), &'static str> = $check;
                match check(text) {
                    Ok(()) => Ok($name(text.to_owned())),
                    Err(why) => Err(Invalid::new($what, text, why)),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked_text! {
    /// An issue's id, or what a user typed for one: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`
    /// that git would take as part of a ref.
    IssueId, "an issue id", |text| {
        plain_id(text, IssueId::MAX_LENGTH)?;
        if text.contains("..") || text.ends_with('.') || text.ends_with(".lock") {
            return Err("git would not take it in a ref (`..`, or `.` or `.lock` at the end)");
        }
        Ok(())
    }
}

checked_text! {
    /// One working context of a principal: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
    Session, "a session", |text| plain_id(text, 64)
}

checked_text! {
    /// A client's name for one request, so that a retry is known as one; the
    /// same characters as a session.
    RequestId, "a request id", |text| plain_id(text, 64)
}

checked_text! {
    /// Free text: a note, a reason, a path to show. One line, not empty, at
    /// most 1,024 bytes, no control characters and no bidirectional controls.
    Text, "text", |text| {
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() > 1_024 {
            return Err("it is longer than 1024 bytes");
        }
        if text.contains('\n') {
            return Err("it is more than one line");
        }
        if text.chars().any(is_unsafe) {
            return Err("it holds control characters");
        }
        Ok(())
    }
}

checked_text! {
    /// A branch's short name, by the rules of `git check-ref-format --branch`.
    Branch, "a branch name", |text| {
        if text.is_empty() || text.len() > 255 {
            return Err("it must have 1 to 255 bytes");
        }
        let refused = |c: char| {
            is_unsafe(c) || c == ' ' || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\')
        };
        if text.chars().any(refused) {
            return Err("git refuses a character in it");
        }
        if text == "@" || text == "HEAD" || text.starts_with('-') || text.starts_with("refs/") {
            return Err("git would not take it as a short branch name");
        }
        if text.contains("..") || text.contains("@{") || text.ends_with('.') {
            return Err("git refuses `..`, `@{` and a `.` at the end");
        }
        let part_is_bad = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
        if text.split('/').any(part_is_bad) {
            return Err("git refuses a part that is empty, begins with `.` or ends with `.lock`");
        }
        Ok(())
    }
}

checked_text! {
    /// A git object id in full: 40 or 64 lower-case hex digits.
    Oid, "an object id", |text| {
        let hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if hex && matches!(text.len(), 40 | 64) {
            Ok(())
        } else {
            Err("give all 40 or 64 hex digits")
        }
    }
}

/// `[A-Za-z0-9][A-Za-z0-9._-]*`, at most `most` characters.
fn plain_id(text: &str, most: usize) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.len() > most {
        return Err("it is too long");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("it must begin with a letter or a digit");
    }
    if !text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
    {
        return Err("only letters, digits, `.`, `_` and `-` are allowed");
    }
    Ok(())
}

impl IssueId {
    /// The most characters that an id has.
    pub const MAX_LENGTH: usize = 128;

    /// Whether this, as a user typed it, may stand for `full`: the same id, or
    /// a prefix of at least 4 characters of a long one (hex or UUID).
    pub fn stands_for(&self, full: &str) -> bool {
        self.0 == full
            || (self.0.len() >= MIN_PREFIX && is_long_id(full) && full.starts_with(&self.0))
    }
}

/// The shortest prefix that may stand for a long id.
pub const MIN_PREFIX: usize = 4;

/// Whether a tracker's id is one that people shorten: a UUID, or at least 32
/// hex digits.
pub fn is_long_id(id: &str) -> bool {
    id.len() >= 32 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// How many characters of a long id are shown.
const SHOWN: usize = 8;

/// An id as people are shown it, and type it: the beginning of a long one.
pub fn short_id(id: &str) -> &str {
    match is_long_id(id) {
        true => &id[..SHOWN],
        false => id,
    }
}

/// The number of a tenure: the fencing token. 1 at first, and it only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

impl Token {
    /// A token; the ledger keeps it as a signed 64-bit integer.
    ///
    /// # Errors
    /// Zero, or above `i64::MAX`.
    pub fn new(value: u64) -> Result<Self, Invalid> {
        if value == 0 || i64::try_from(value).is_err() {
            return Err(Invalid::new(
                "a token",
                &value.to_string(),
                "tokens are whole numbers from 1",
            ));
        }
        Ok(Token(value))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Token {
    type Error = Invalid;

    fn try_from(value: u64) -> Result<Self, Invalid> {
        Token::new(value)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

impl FromStr for Token {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let value = decimal(text)
            .ok_or_else(|| Invalid::new("a token", text, "tokens are whole numbers from 1"))?;
        Token::new(value)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a claim lives after it was taken or renewed, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ttl(u32);

impl Ttl {
    /// A time to live of `seconds`. The server's own limit is checked by the
    /// server; here only what no server could mean is refused.
    ///
    /// # Errors
    /// Zero, or more than `u32::MAX` seconds (136 years).
    pub fn new(seconds: u64) -> Result<Self, Invalid> {
        match u32::try_from(seconds) {
            Ok(seconds) if seconds > 0 => Ok(Ttl(seconds)),
            _ => Err(Invalid::new(
                "a time to live",
                &seconds.to_string(),
                "it must be at least one second, and less than a lifetime",
            )),
        }
    }

    /// Whole seconds, at least 1.
    pub fn seconds(self) -> u64 {
        self.0.into()
    }
}

impl TryFrom<u64> for Ttl {
    type Error = Invalid;

    fn try_from(seconds: u64) -> Result<Self, Invalid> {
        Ttl::new(seconds)
    }
}

impl From<Ttl> for u64 {
    fn from(ttl: Ttl) -> u64 {
        ttl.seconds()
    }
}

impl FromStr for Ttl {
    type Err = Invalid;

    /// The form on the wire: whole seconds in decimal digits.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let seconds = decimal(text).ok_or_else(|| {
            Invalid::new("a time to live", text, "it must be whole seconds from 1")
        })?;
        Ttl::new(seconds)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Decimal digits alone (`u64::from_str` would also take a `+`).
pub(crate) fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken<T: FromStr>(text: &str) -> bool {
        text.parse::<T>().is_ok()
    }

    #[test]
    fn issue_ids() {
        for good in ["1", "42", "a1b2", "bd-a1b2.3", "A_b", &"a".repeat(128)] {
            assert!(taken::<IssueId>(good), "{good}");
        }
        for bad in [
            "",
            "-1",
            ".a",
            "#42",
            "a b",
            "a..b",
            "a.",
            "a.lock",
            "a/b",
            "é",
            "a\n",
            &"a".repeat(129),
        ] {
            assert!(!taken::<IssueId>(bad), "{bad:?}");
        }
    }

    #[test]
    fn sessions_are_bounded() {
        assert!(taken::<Session>(&"s".repeat(64)));
        for bad in ["", "-s", "_s", "s p", &"s".repeat(65)] {
            assert!(!taken::<Session>(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_prefix_stands_for_long_ids_alone() {
        let long = "ae1c05119bd34b3d8f3fb2a1c0de8a11";
        let id = |text: &str| text.parse::<IssueId>().unwrap();
        assert!(id("ae1c").stands_for(long));
        assert!(id(long).stands_for(long));
        assert!(!id("ae1").stands_for(long));
        assert!(!id("4").stands_for("42"));
        assert!(!id("4242").stands_for("42424"));
        assert!(!id("bd-a").stands_for("bd-a1b2.3"));
    }

    #[test]
    fn branches_follow_git() {
        for good in ["claim/42", "main", "a.b", "ünï", "a@b", "feature/x-y"] {
            assert!(taken::<Branch>(good), "{good}");
        }
        for bad in [
            "",
            "@",
            "HEAD",
            "-x",
            "refs/heads/x",
            "a..b",
            "a.",
            "a/",
            "/a",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "a@{b",
            "a\x7f",
        ] {
            assert!(!taken::<Branch>(bad), "{bad:?}");
        }
    }

    #[test]
    fn tokens_and_ttls_are_positive_whole_numbers() {
        assert_eq!("7".parse::<Token>().unwrap().get(), 7);
        for bad in [
            "",
            "0",
            "-1",
            "+1",
            "1.0",
            "0x1",
            "9223372036854775808",
            " 1",
        ] {
            assert!(!taken::<Token>(bad), "{bad:?}");
        }
        assert_eq!("300".parse::<Ttl>().unwrap().seconds(), 300);
        for bad in ["", "0", "-1", "+1", "5m", "4294967296"] {
            assert!(!taken::<Ttl>(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_error_shows_what_was_given_safely_and_briefly() {
        let error = "\x1b[2J".parse::<Session>().unwrap_err().to_string();
        assert!(
            error.starts_with("'\\u001b[2J' is not a session: "),
            "{error}"
        );
        let error = "x y"
            .repeat(1_000)
            .parse::<Session>()
            .unwrap_err()
            .to_string();
        assert!(error.len() < 200, "{error}");
    }
}

//! Why a tracker's data can't be read, before it is known whose it was.

use git_claim_api::text::escape;

/// The reason, which may quote what was found.
#[derive(Debug, thiserror::Error)]
#[error("{}", escape(.0))]
pub struct Unreadable(pub String);

/// What is wrong with one of many lines, without the number that a parser gives
/// it, which is always the first.
pub fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

impl From<git2::Error> for Unreadable {
    fn from(error: git2::Error) -> Self {
        Unreadable(error.message().to_owned())
    }
}

impl From<std::io::Error> for Unreadable {
    fn from(error: std::io::Error) -> Self {
        Unreadable(error.to_string())
    }
}

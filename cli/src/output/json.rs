//! Errors as JSON.

use git_claim_api::text::json_line;
use serde_json::json;

use crate::error::Failure;

/// A failure as one line.
pub fn failure(failure: &Failure) -> String {
    let value = json!({
        "error": {
            "kind": failure.kind.name(),
            "message": failure.message,
            "hint": failure.hint,
        },
        "exit": failure.kind.code(),
    });
    // A value of strings and numbers always has a JSON form.
    json_line(&value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let line = failure(&Failure::not_now("a\nb").hint("c"));
        assert_eq!(
            line,
            r#"{"error":{"hint":"c","kind":"not-now","message":"a\nb"},"exit":6}"#
        );
    }
}

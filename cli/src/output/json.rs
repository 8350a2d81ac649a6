//! Errors as JSON.

use git_claim_api::ids::IssueId;
use git_claim_api::text::json_line;
use serde_json::{Value, json};

use crate::error::Failure;

/// A failure as one line.
pub fn failure(failure: &Failure) -> String {
    // A value of strings and numbers always has a JSON form.
    json_line(&value(failure)).unwrap_or_default()
}

/// A failure of one of several issues, with the id as it was typed.
pub fn failure_about(issue: &IssueId, failure: &Failure) -> Value {
    let mut value = value(failure);
    value["issue"] = issue.as_str().into();
    value
}

fn value(failure: &Failure) -> Value {
    json!({
        "error": {
            "kind": failure.kind.name(),
            "message": failure.message,
            "hint": failure.hint,
        },
        "exit": failure.kind.code(),
    })
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

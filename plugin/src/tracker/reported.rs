//! One issue as a forge or an admin's program reports it:
//! `{"id":…,"state":"open","title":…}`.

use git_claim_api::ids::IssueId;
use git_claim_api::text::escape;
use serde::Deserialize;

use super::Issue;
use super::unreadable::{Unreadable, without_place};

#[derive(Deserialize)]
struct Reported {
    id: IssueId,
    state: Option<String>,
    title: Option<String>,
}

/// Reads one issue from JSON. A list of open issues may leave the state out:
/// then `default` is `Some`.
///
/// # Errors
/// No JSON, no id or none that can be one, a state that is unknown or missing.
pub fn issue(json: &[u8], default: Option<&str>) -> Result<Issue, Unreadable> {
    let reported: Reported = serde_json::from_slice(json).map_err(|error| {
        Unreadable(format!(
            "it answered with no issue: {}",
            without_place(&error)
        ))
    })?;
    let is_open = match reported.state.as_deref().or(default) {
        Some("open") => true,
        Some("closed") => false,
        Some(other) => {
            let other = escape(other);
            return Err(Unreadable(format!("no state is called '{other}'")));
        }
        None => {
            return Err(Unreadable(format!("it told no state of {}", reported.id)));
        }
    };
    Ok(Issue::new(reported.id, is_open, reported.title))
}

#[cfg(test)]
mod tests {
    use super::issue;

    #[test]
    fn a_state_is_one_of_two() {
        for (json, default, is_open) in [
            (
                r#"{"id":"42","state":"open","title":"x","more":1}"#,
                None,
                true,
            ),
            (r#"{"id":"42","state":"closed"}"#, None, false),
            (r#"{"id":"42","state":"closed"}"#, Some("open"), false),
            (r#"{"id":"42"}"#, Some("open"), true),
        ] {
            assert_eq!(issue(json.as_bytes(), default).unwrap().is_open, is_open);
        }
        for json in [
            r#"{"id":"42"}"#,
            r#"{"id":"42","state":"Open"}"#,
            r#"{"id":"42","state":null}"#,
            r#"{"id":"a b","state":"open"}"#,
            r#"{"state":"open"}"#,
            r#"[{"id":"42","state":"open"}]"#,
            "",
        ] {
            assert!(issue(json.as_bytes(), None).is_err(), "{json}");
        }
    }
}

//! Whether a reply can be the answer to what was asked. A server that answers
//! for another issue, or grants a claim that is over or another's, is not
//! believed: nobody may work on its word.

use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session};
use git_claim_api::reply::{Claim, ClaimReply, Status};
use git_claim_api::time::parse_rfc3339;
use git_claim_api::verb::Request;

use crate::answer::Reply;
use crate::error::Result;

/// Checks the reply to `request`.
///
/// # Errors
/// It makes no sense.
pub fn check(request: &Request, reply: &Reply) -> Result<()> {
    let Some((typed, session)) = about(request) else {
        return Ok(());
    };
    if reply.exit == Exit::Nothing {
        return Ok(());
    }
    let answered: ClaimReply = reply.read()?;
    if let Some(typed) = typed
        && !typed.stands_for(&answered.issue)
    {
        let other = &answered.issue;
        return Err(reply.nonsense(&format!("it is about issue {other}, not {typed}")));
    }
    if matches!(answered.status, Status::Acquired | Status::Renewed) {
        granted(&answered.claim, &answered.now, session).map_err(|why| reply.nonsense(why))?;
    }
    Ok(())
}

/// The issue that a request about one claim names, if it names one, and the
/// session that asks. `None`: it is not about one claim.
fn about(request: &Request) -> Option<(Option<&IssueId>, Option<&Session>)> {
    match request {
        Request::Acquire { issue, take, .. } => Some((Some(issue), take.session.as_ref())),
        Request::Next { take, .. } => Some((None, take.session.as_ref())),
        Request::Renew { issue, session, .. }
        | Request::Release { issue, session, .. }
        | Request::Show { issue, session, .. }
        | Request::Verify { issue, session, .. } => Some((Some(issue), session.as_ref())),
        Request::Recover { issue, session, .. } => Some((Some(issue), Some(session))),
        Request::List { .. }
        | Request::Log { .. }
        | Request::Whoami { .. }
        | Request::Serve { .. }
        | Request::Rename { .. }
        | Request::Backup { .. }
        | Request::Look
        | Request::Init
        | Request::Migrate { .. }
        | Request::Fence { .. }
        | Request::Settle { .. } => None,
    }
}

/// `Err`: why it makes none.
type Sense = std::result::Result<(), &'static str>;

/// A claim that was granted at `now` is the asking session's, and lives.
fn granted(claim: &Claim, now: &str, session: Option<&Session>) -> Sense {
    if !claim.mine {
        return Err("it grants a claim that it says is not yours");
    }
    if let (Some(session), Some(holder)) = (session, &claim.session)
        && session.as_str() != holder
    {
        return Err("it grants the claim to another session");
    }
    if claim.token == 0 {
        return Err("it grants a claim without a token");
    }
    let Some(end) = &claim.expires_at else {
        return Ok(());
    };
    match (parse_rfc3339(end), parse_rfc3339(now)) {
        (None, _) => Err("the claim's end is no time"),
        (_, None) => Err("its own time is none"),
        // Both are whole seconds: the last part of one may be left.
        (Some(end), Some(now)) if end == now && claim.ttl_left_ms > Some(0) => Ok(()),
        (Some(end), Some(now)) if end <= now => Err("it grants a claim that is over already"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use git_claim_api::verb::Take;
    use serde_json::{Value, json};

    use super::*;

    fn reply(exit: Exit, change: &Value) -> Reply {
        let mut value = json!({
            "status": "acquired",
            "repo": "r.git",
            "issue": "42",
            "holder": "ann",
            "mine": true,
            "session": "s1",
            "token": 1,
            "expires_at": "2026-09-05T12:00:01Z",
            "ttl_left_ms": 1_000,
            "now": "2026-09-05T12:00:00Z",
        });
        for (key, changed) in change.as_object().unwrap() {
            value[key] = changed.clone();
        }
        let line = value.to_string();
        Reply { line, exit }
    }

    fn take() -> Take {
        Take {
            session: Some("s1".parse().unwrap()),
            ..Take::default()
        }
    }

    fn acquire() -> Request {
        Request::Acquire {
            repo: "r.git".parse().unwrap(),
            issue: "42".parse().unwrap(),
            take: take(),
        }
    }

    fn next() -> Request {
        Request::Next {
            repo: "r.git".parse().unwrap(),
            take: take(),
        }
    }

    #[test]
    fn what_can_be_is_believed() {
        for change in [
            json!({}),
            json!({"expires_at": null}),
            json!({"session": null}),
            json!({"expires_at": "2026-09-05T12:00:00Z", "ttl_left_ms": 5}),
            json!({"status": "held", "mine": false, "token": 0, "expires_at": "x"}),
        ] {
            check(&acquire(), &reply(Exit::Done, &change)).unwrap();
        }
        check(&next(), &reply(Exit::Done, &json!({"issue": "43"}))).unwrap();
        let nothing = Reply {
            line: r#"{"status":"none"}"#.to_owned(),
            exit: Exit::Nothing,
        };
        check(&next(), &nothing).unwrap();
    }

    #[test]
    fn what_cannot_be_is_no_claim() {
        for change in [
            json!({"issue": "43"}),
            json!({"issue": "43", "status": "held"}),
            json!({"issue": "421"}),
            json!({"mine": false}),
            json!({"mine": false, "status": "renewed"}),
            json!({"session": "s2"}),
            json!({"token": 0}),
            json!({"expires_at": "soon"}),
            json!({"now": "now"}),
            json!({"expires_at": "2026-09-05T11:59:59Z"}),
            json!({"expires_at": "2026-09-05T12:00:00Z", "ttl_left_ms": 0}),
        ] {
            let failure = check(&acquire(), &reply(Exit::Done, &change)).unwrap_err();
            assert_eq!(failure.kind.code(), 6, "{change}");
            let words = "the server's reply makes no sense: ";
            assert!(failure.message.starts_with(words), "{failure:?}");
        }
        let other = reply(Exit::Done, &json!({"mine": false}));
        check(&next(), &other).unwrap_err();
    }
}

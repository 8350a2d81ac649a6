//! Replies in sentences. What a server sent is escaped here.

use std::path::Path;

use git_claim_api::duration::short;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{self, Oid, Session};
use git_claim_api::lock::Lock;
use git_claim_api::reply::{ClaimReply, Reason, RecoveryAction, State, Tenure, WhoamiReply};
use git_claim_api::text::escape;

use super::time::{left, moment, since};
use crate::error::Failure;
use crate::session::machine_name;

/// What a request wanted, for the words of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Claim,
    Renew,
    Release,
}

/// An id as people type it: the beginning of a long one.
pub fn short_id(id: &str) -> String {
    escape(ids::short_id(id))
}

/// `acquire` or `next` went well.
pub fn claimed(reply: &ClaimReply, took_over: bool) -> String {
    let mut sentence = format!("claimed {} {}", subject(reply), until(reply));
    if reply.tenure == Some(Tenure::Own) {
        sentence.push_str("; it was yours already");
        if reply.claim.ttl.is_none() {
            sentence.push_str(", and has no end");
        }
    } else if took_over {
        sentence.push_str("; who held it is told by whom and why it was taken over");
    }
    sentence
}

/// `start` went well.
pub fn started(reply: &ClaimReply, lock: &Lock, is_own: bool) -> String {
    let again = if is_own { "; it was yours already" } else { "" };
    format!(
        "claimed {} {}{again}\nbranch {} in {}",
        subject(reply),
        until(reply),
        lock.branch_name,
        escape(&lock.worktree_path)
    )
}

/// `check` found nothing wrong.
pub fn sound(reply: &ClaimReply) -> String {
    format!("sound: {} is yours {}", subject(reply), until(reply))
}

/// Who holds it and until when, whoever that is.
pub fn held_how(reply: &ClaimReply) -> String {
    let holder = reply.claim.holder.as_deref().map(escape);
    match (reply.state, holder) {
        (Some(State::Live), Some(holder)) => {
            let whose = match (reply.claim.mine, reply.claim.same_principal) {
                (true, _) => "you, here".to_owned(),
                (false, true) => format!("you{}", elsewhere(reply)),
                (false, false) => holder,
            };
            format!(
                "held by {whose}, {}, token {}",
                until(reply),
                reply.claim.token
            )
        }
        (Some(State::Expired), Some(holder)) => {
            format!("run out; {holder} had it last, token {}", reply.claim.token)
        }
        _ => format!("free; the last token was {}", reply.claim.token),
    }
}

/// `recover` went well, or with `--dry-run` would.
pub fn recovered(reply: &ClaimReply, head: &Oid, is_dry_run: bool) -> String {
    let id = subject(reply);
    let what = match reply.recovery {
        Some(RecoveryAction::Upgraded) => "its record is completed, with a new token",
        Some(RecoveryAction::TakenAgain) => "it had run out, and is taken again",
        Some(RecoveryAction::Moved) => "its worktree was gone, and is built anew",
        Some(RecoveryAction::CopyAgain) | None => "the record here is written anew",
    };
    let (would, end) = match is_dry_run {
        true => ("would recover", ". Nothing was written"),
        false => ("recovered", ""),
    };
    format!(
        "{would} {id} {}: {what}; the branch stays at {head}{end}",
        until(reply)
    )
}

/// `renew` went well.
pub fn renewed(reply: &ClaimReply) -> String {
    format!("renewed {} {}", subject(reply), until(reply))
}

/// `release` went well.
pub fn released(reply: &ClaimReply) -> String {
    if reply.was_held == Some(false) {
        format!("nobody held {}", subject(reply))
    } else {
        format!("released {}", subject(reply))
    }
}

/// The issue with its title.
fn subject(reply: &ClaimReply) -> String {
    let id = short_id(&reply.issue);
    match &reply.claim.title {
        Some(title) => format!("{id} \"{}\"", escape(title)),
        None => id,
    }
}

/// `until 14:05 (in 2h)`, or `until released`.
fn until(reply: &ClaimReply) -> String {
    let Some(end) = &reply.claim.expires_at else {
        return "until released".to_owned();
    };
    let moment = moment(end, &reply.now);
    match reply.claim.ttl_left_ms {
        Some(milliseconds) => format!("until {moment} ({})", left(milliseconds)),
        None => format!("until {moment}"),
    }
}

/// A conflict: who has it and since when, and what to do. Never to evict a
/// live holder.
pub fn conflict(reply: &ClaimReply, doing: Doing) -> Failure {
    let id = short_id(&reply.issue);
    let failure = |message: String| Failure::new(Exit::Conflict, message);
    let holder = reply.claim.holder.as_deref().map(escape);
    match (reply.reason, holder) {
        (Some(Reason::TakenOver), Some(_)) if is_ones_own(reply) => {
            let why = reply.why.as_ref().map(|why| format!(": {}", escape(why)));
            failure(format!(
                "your claim on {id} has gone to another session of yours{}, {}{}",
                elsewhere(reply),
                until(reply),
                why.unwrap_or_default()
            ))
            .hint(held_hint(reply, &there(reply)))
        }
        (Some(Reason::TakenOver), holder) => {
            let message = format!("your claim on {id} was taken over{}", by_whom(reply));
            failure(message).hint(match holder {
                Some(holder) => format!("{holder} has it {}; {}", until(reply), another(reply)),
                None => again(&id),
            })
        }
        (Some(Reason::OtherSession), Some(_)) => failure(format!(
            "issue {id} is claimed by you in another session{}, {}",
            elsewhere(reply),
            until(reply)
        ))
        .hint(held_hint(reply, &there(reply))),
        (Some(Reason::OtherKey), Some(holder)) => failure(format!(
            "issue {id} is claimed by {holder} with another key, {}",
            until(reply)
        ))
        .hint("`git claim whoami` shows the key that you use here"),
        (Some(Reason::WrongExpectedToken), holder) => {
            let message = match holder {
                Some(holder) => format!(
                    "the claim on {id} is not the one that you mean: it is {holder}'s, token {}, {}",
                    reply.claim.token,
                    until(reply)
                ),
                None => format!("nobody holds {id} any more"),
            };
            failure(message).hint(format!("`git claim log {id}` shows what became of it"))
        }
        (Some(Reason::RequestEnded), _) => failure(format!(
            "what this request had taken, {id}, has ended since"
        ))
        .hint(again(&id)),
        (Some(Reason::StaleToken), Some(_)) if reply.claim.mine => failure(format!(
            "the token that this worktree keeps for {id} is out of date"
        ))
        .hint(format!("`git claim {id}` goes on with your claim")),
        (_, Some(holder)) if doing == Doing::Claim => failure(format!(
            "issue {id} is claimed by {holder} {}",
            until(reply)
        ))
        .hint(held_hint(reply, another(reply))),
        (_, Some(holder)) => failure(format!(
            "you do not hold {id}: {holder} has it {}",
            until(reply)
        ))
        .hint(held_hint(reply, another(reply))),
        (Some(Reason::Expired), None) => {
            failure(format!("your claim on {id} has run out")).hint(again(&id))
        }
        (Some(Reason::Released), None) if reply.claim.token > 0 => {
            let message = format!("the claim on {id} was released{}", by_whom(reply));
            failure(message).hint(match reply.is_done() {
                true => format!(
                    "`git claim log {id}` tells what happened; {}",
                    another(reply)
                ),
                false => again(&id),
            })
        }
        (_, None) => failure(format!("you do not hold {id}; nobody does"))
            .hint(format!("`git claim {id}` takes it")),
    }
}

/// What to do about a claim that one has in another session. Where its worktree
/// may be gone, any other can speak for it; but somebody may be at work there.
fn there(reply: &ClaimReply) -> String {
    let advice = "go on there, or release it there with `git unclaim`";
    match &reply.claim.session {
        Some(session) if !is_seen_here(reply) => format!(
            "{advice}; only if that worktree is gone, `git unclaim {} --session {}` does it",
            short_id(&reply.issue),
            escape(session)
        ),
        _ => advice.to_owned(),
    }
}

/// Whether the worktree that the claim is bound to is on this machine.
fn is_seen_here(reply: &ClaimReply) -> bool {
    let claim = &reply.claim;
    claim.machine.as_deref() == Some(&machine_name())
        && claim
            .worktree
            .as_ref()
            .is_some_and(|path| Path::new(path).exists())
}

/// Whom a waiter waits for.
pub fn waiting_for(reply: &ClaimReply) -> String {
    let holder = reply.claim.holder.as_deref().map(escape);
    format!(
        "waiting for {}, who holds {} {}",
        holder.as_deref().unwrap_or("somebody"),
        short_id(&reply.issue),
        until(reply)
    )
}

/// How to get another issue, by the next or, where nothing says which that is, by
/// looking.
fn another(reply: &ClaimReply) -> &'static str {
    match reply.has_next {
        Some(false) => "`git claims` lists what is taken",
        _ => "`git claim --next` takes another",
    }
}

fn again(id: &str) -> String {
    format!("`git claim {id}` takes it again, unless somebody else is quicker")
}

/// ` by bob: he left`, as far as it is known.
fn by_whom(reply: &ClaimReply) -> String {
    let by = reply.by.as_ref().map(|by| format!(" by {}", escape(by)));
    let why = reply.why.as_ref().map(|why| format!(": {}", escape(why)));
    by.unwrap_or_default() + &why.unwrap_or_default()
}

/// Whether one has taken it over oneself.
fn is_ones_own(reply: &ClaimReply) -> bool {
    let is_by_holder = reply.by.is_none() || reply.by == reply.claim.holder;
    reply.claim.same_principal && is_by_holder
}

/// Where one's other session works, as far as it is known: its folder, else its name.
fn elsewhere(reply: &ClaimReply) -> String {
    let worktree = reply
        .claim
        .worktree
        .as_ref()
        .map(|path| format!(" in {}", escape(path)));
    // What stands behind the name tells machines of one name apart.
    let machine = reply
        .claim
        .machine
        .as_ref()
        .map(|name| format!(" on {}", escape(name.split(' ').next().unwrap_or(name))));
    let session = reply
        .claim
        .session
        .as_ref()
        .map(|name| format!(" ({})", escape(name)));
    let place = worktree.or(session);
    place.unwrap_or_default() + &machine.unwrap_or_default()
}

/// How long it has been held and when it was last heard of, then `advice`.
fn held_hint(reply: &ClaimReply, advice: &str) -> String {
    let held = since(reply.claim.acquired_at.as_deref(), &reply.now);
    let beat = since(reply.claim.heartbeat_at.as_deref(), &reply.now);
    match (held, beat) {
        (Some(held), Some(beat)) => {
            format!("it has been held for {held}, last heartbeat {beat} ago; {advice}")
        }
        (Some(held), None) => format!("it has been held for {held}; {advice}"),
        _ => advice.to_owned(),
    }
}

/// `whoami`, one fact a line.
pub fn whoami(reply: &WhoamiReply, session: Option<&Session>) -> String {
    let none = "-".to_owned();
    let shown = |text: &Option<String>| text.as_deref().map_or_else(|| none.clone(), escape);
    let access = match reply.access.as_deref() {
        Some("read") => "read: you may see claims, not make them".to_owned(),
        Some("write") => "write: you may claim".to_owned(),
        Some("admin") => "admin: you may claim, and end the claims of others".to_owned(),
        _ => shown(&reply.access),
    };
    let session = session.map_or_else(
        || "made with the first claim from this worktree".to_owned(),
        ToString::to_string,
    );
    let facts = [
        ("name", escape(&reply.name)),
        ("key", shown(&reply.key)),
        ("session", session),
        ("repository", shown(&reply.repo)),
        ("access", access),
        ("tracker", shown(&reply.tracker)),
        ("longest ttl", short(reply.max_ttl)),
        (
            "server",
            format!(
                "git-claim {}, protocol {}",
                escape(&reply.version),
                reply.protocol
            ),
        ),
    ];
    facts
        .iter()
        .map(|(name, value)| format!("{name:<12} {value}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use git_claim_api::reply::Status;

    use super::*;

    fn reply(status: Status) -> ClaimReply {
        let reply = serde_json::json!({
            "status": status,
            "repo": "r.git",
            "issue": "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4",
            "holder": "bob",
            "token": 3,
            "title": "Crash",
            "acquired_at": "2026-09-05T11:59:00Z",
            "heartbeat_at": "2026-09-05T11:59:40Z",
            "now": "2026-09-05T12:00:00Z",
        });
        serde_json::from_value(reply).unwrap()
    }

    fn held(reason: Reason, holder: Option<&str>) -> ClaimReply {
        let mut reply = reply(Status::Held);
        reply.reason = Some(reason);
        reply.claim.holder = holder.map(str::to_owned);
        reply
    }

    #[test]
    fn what_went_well_is_one_sentence() {
        let mut ended = reply(Status::Acquired);
        ended.claim.expires_at = Some("2026-09-05T14:00:00Z".into());
        ended.claim.ttl = Some(7_200);
        ended.claim.ttl_left_ms = Some(7_200_000);
        let sentence = claimed(&ended, false);
        assert!(
            sentence.starts_with("claimed a1b2c3d4 \"Crash\" until "),
            "{sentence}"
        );
        assert!(sentence.ends_with(" (in 2h)"), "{sentence}");
        let mut own = reply(Status::Acquired);
        own.tenure = Some(Tenure::Own);
        assert_eq!(
            claimed(&own, false),
            "claimed a1b2c3d4 \"Crash\" until released; it was yours already, and has no end"
        );
        let mut free = reply(Status::Released);
        assert_eq!(released(&free), "released a1b2c3d4 \"Crash\"");
        free.was_held = Some(false);
        assert_eq!(released(&free), "nobody held a1b2c3d4 \"Crash\"");
    }

    #[test]
    fn a_conflict_names_the_holder_and_what_to_do() {
        let failure = conflict(&held(Reason::Held, Some("bob")), Doing::Claim);
        assert_eq!(failure.kind.code(), 4);
        assert_eq!(
            failure.message,
            "issue a1b2c3d4 is claimed by bob until released"
        );
        assert_eq!(
            failure.hint.as_deref(),
            Some(
                "it has been held for 1m, last heartbeat 20s ago; `git claim --next` takes another"
            )
        );
    }

    #[test]
    fn what_one_took_over_oneself_is_not_told_as_anothers_deed() {
        let mut moved = held(Reason::TakenOver, Some("ann"));
        moved.by = Some("ann".into());
        moved.why = Some("start in /w/42".into());
        moved.claim.same_principal = true;
        moved.claim.session = Some("0123abcd".into());
        moved.claim.machine = Some("vm 28ddbbff4c3ec2ac".into());
        let failure = conflict(&moved, Doing::Renew);
        assert_eq!(
            failure.message,
            "your claim on a1b2c3d4 has gone to another session of yours (0123abcd) on vm, \
             until released: start in /w/42"
        );
        let hint = failure.hint.unwrap();
        let way_out = "if that worktree is gone, `git unclaim a1b2c3d4 --session 0123abcd` does it";
        assert!(hint.ends_with(way_out), "{hint}");
        // One's own again by now, but an admin had ended it.
        moved.by = Some("bob".into());
        let failure = conflict(&moved, Doing::Renew);
        assert_eq!(
            failure.message,
            "your claim on a1b2c3d4 was taken over by bob: start in /w/42"
        );
    }

    #[test]
    fn every_reason_has_its_words() {
        for (reason, holder, words) in [
            (
                Reason::OtherSession,
                Some("ann"),
                "by you in another session",
            ),
            (Reason::OtherKey, Some("ann"), "by ann with another key"),
            (Reason::Expired, None, "your claim on a1b2c3d4 has run out"),
            (
                Reason::Expired,
                Some("bob"),
                "you do not hold a1b2c3d4: bob has it",
            ),
            (Reason::Released, None, "the claim on a1b2c3d4 was released"),
            (Reason::TakenOver, None, "was taken over"),
            (Reason::TakenOver, Some("bob"), "was taken over"),
            (
                Reason::StaleToken,
                Some("bob"),
                "you do not hold a1b2c3d4: bob has it",
            ),
            (Reason::StaleToken, None, "nobody does"),
            (
                Reason::WrongExpectedToken,
                Some("bob"),
                "it is bob's, token 3",
            ),
            (Reason::WrongExpectedToken, None, "nobody holds"),
            (Reason::RequestEnded, None, "has ended since"),
            (Reason::Held, None, "nobody does"),
        ] {
            let failure = conflict(&held(reason, holder), Doing::Renew);
            assert!(failure.message.contains(words), "{reason:?}: {failure:?}");
            let hint = failure.hint.unwrap();
            assert!(
                !hint.contains("--take-over") && !hint.contains("--force"),
                "{hint}"
            );
        }
    }

    #[test]
    fn nobody_is_sent_back_to_what_a_push_has_done() {
        let mut reply = held(Reason::Released, None);
        reply.why = Some("the issue was closed".into());
        let failure = conflict(&reply, Doing::Renew);
        assert_eq!(
            failure.message,
            "the claim on a1b2c3d4 was released: the issue was closed"
        );
        assert!(!failure.hint.unwrap().contains("takes it again"));
    }

    #[test]
    fn the_evicted_are_told_who_and_why() {
        let mut reply = held(Reason::TakenOver, Some("carol"));
        reply.by = Some("carol".into());
        reply.why = Some("ann\u{202e} left".into());
        let failure = conflict(&reply, Doing::Renew);
        assert_eq!(
            failure.message,
            "your claim on a1b2c3d4 was taken over by carol: ann\\u202e left"
        );
    }
}

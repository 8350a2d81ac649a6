//! Waiting for a claim that somebody holds: where the server tells of changes,
//! it is asked again when the claim is free; else again and again.

use std::time::Duration;

use git_claim_api::event::{Event, Kind};
use git_claim_api::exit::Exit;
use git_claim_api::reply::{ClaimReply, Reason};
use git_claim_api::verb::Request;
use tokio::time::{sleep, timeout};

use crate::answer::Reply;
use crate::client::{Client, Taken};
use crate::clock::Moment;
use crate::error::Result;
use crate::output::{Output, people};
use crate::pause::between;
use crate::transport::News;

/// How often is asked where changes are not told of: whoever waits gets what was
/// freed within two seconds.
const LEAST: Duration = Duration::from_millis(1_000);
const MOST: Duration = Duration::from_millis(1_600);

/// How often is asked where they are: in case one was not told of, and as a
/// connection that has died says nothing either.
const LEAST_TOLD: Duration = Duration::from_secs(20);
const MOST_TOLD: Duration = Duration::from_secs(30);

/// The same for whoever waits for any issue: there may be one that nobody has
/// claimed before, of which no change of a claim tells.
const LEAST_TOLD_NEXT: Duration = Duration::from_secs(4);
const MOST_TOLD_NEXT: Duration = Duration::from_secs(6);

/// How far apart those come back who wait for one claim's end.
const AFTER_THE_END: Duration = Duration::from_millis(200);

/// What waiting has come to.
#[derive(Debug)]
pub struct Waited {
    pub taken: Taken,
    /// The patience was over, and so the last answer counts.
    pub in_vain: bool,
}

/// Asks for a claim until it is had, or `patience` is over.
///
/// # Errors
/// What is no matter of waiting.
pub async fn for_claim(
    client: &mut Client,
    request: &Request,
    patience: Option<Duration>,
    output: &mut Output,
) -> Result<Waited> {
    client.keep_line()?;
    let until = patience.map(|patience| Moment::now() + patience);
    let mut answered = false;
    let mut has_begun_to_watch = false;
    let (outcome, in_vain) = loop {
        let outcome = client.take(request, output).await;
        let obstacle = match &outcome {
            Ok(taken) => obstacle(&taken.reply)?,
            // It answered before, so it may do so again.
            Err(failure) if answered && failure.kind.is_not_now() => Some(Obstacle {
                words: format!("waiting; {}", failure.message),
                over_in: Some(soon()),
            }),
            Err(_) => None,
        };
        answered |= outcome.is_ok();
        let Some(obstacle) = obstacle else {
            break (outcome, false);
        };
        if until.is_some_and(Moment::is_past) {
            break (outcome, true);
        }
        output.progress(&obstacle.words);
        // What changed before the server began to tell is asked for at once; but
        // not again and again, where it keeps ending the connection.
        has_begun_to_watch = !has_begun_to_watch && !client.watches() && client.watch().await;
        if has_begun_to_watch {
            continue;
        }
        until_it_may_be_over(client, request, obstacle.over_in, until).await;
    };
    output.end_of_progress();
    Ok(Waited {
        taken: outcome?,
        in_vain,
    })
}

/// Waits for as long as asking again would find nothing new.
async fn until_it_may_be_over(
    client: &mut Client,
    request: &Request,
    over_in: Option<Duration>,
    until: Option<Moment>,
) {
    let at_most = |pause: Duration| until.map_or(pause, |until| pause.min(until.left()));
    let pause = match request {
        Request::Next { .. } if client.watches() => between(LEAST_TOLD_NEXT, MOST_TOLD_NEXT),
        _ => pause(client),
    };
    let pause = at_most(sooner(pause, over_in));
    if changed_within(pause, client, |event| concerns(event, request)).await {
        // All who wait are told at once.
        sleep(at_most(between(Duration::ZERO, AFTER_THE_END))).await;
    }
}

/// Until when to look again, whatever is told.
pub fn pause(client: &Client) -> Duration {
    match client.watches() {
        true => between(LEAST_TOLD, MOST_TOLD),
        false => soon(),
    }
}

/// Until when to ask again what was not answered.
pub fn soon() -> Duration {
    between(LEAST, MOST)
}

/// The same, or sooner where what is in the way ends sooner.
fn sooner(pause: Duration, over_in: Option<Duration>) -> Duration {
    match over_in {
        Some(over_in) if over_in < pause => over_in + between(Duration::ZERO, AFTER_THE_END),
        _ => pause,
    }
}

/// Waits until a change that `matters` is told of, or the `pause` is over;
/// answers whether one was.
pub async fn changed_within(
    pause: Duration,
    client: &mut Client,
    matters: impl Fn(&Event) -> bool,
) -> bool {
    let told = async {
        while client.watches() {
            match client.news().await {
                News::Changed(Some(event)) if !matters(&event) => {}
                News::Changed(_) => return,
                // A server that ends it at once is not to be asked at once.
                News::Over => break,
            }
        }
        std::future::pending().await
    };
    timeout(pause, told).await.is_ok()
}

/// Whether `request` may be answered otherwise behind this change: its issue is
/// free, or somebody else's.
fn concerns(event: &Event, request: &Request) -> bool {
    let is_free = event.after.is_none();
    match request {
        Request::Acquire { issue, .. } => {
            issue.stands_for(&event.issue) && (is_free || event.event == Kind::TakenOver)
        }
        _ => is_free,
    }
}

/// What is in the way of a claim, and goes away by itself.
struct Obstacle {
    words: String,
    over_in: Option<Duration>,
}

fn obstacle(reply: &Reply) -> Result<Option<Obstacle>> {
    match reply.exit {
        Exit::Nothing => Ok(Some(Obstacle {
            words: "waiting; nothing is left to take".to_owned(),
            over_in: None,
        })),
        Exit::Conflict => {
            let held: ClaimReply = reply.read()?;
            let is_held = matches!(
                held.reason,
                Some(Reason::Held | Reason::OtherSession | Reason::OtherKey | Reason::TakenOver)
            );
            let over_in = held.claim.ttl_left_ms;
            Ok(is_held.then(|| Obstacle {
                words: people::waiting_for(&held),
                over_in: over_in
                    .map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0))),
            }))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(exit: Exit, line: &str) -> Reply {
        Reply {
            line: line.to_owned(),
            exit,
        }
    }

    #[test]
    fn only_what_ends_by_itself_is_waited_for() {
        let held = |reason: &str| {
            let line = format!(
                r#"{{"status":"held","repo":"r","issue":"42","holder":"bob","reason":"{reason}","now":"","ttl_left_ms":5}}"#
            );
            obstacle(&reply(Exit::Conflict, &line)).unwrap()
        };
        for reason in ["held", "other-session", "other-key", "taken-over"] {
            let obstacle = held(reason).unwrap();
            assert_eq!(obstacle.over_in, Some(Duration::from_millis(5)), "{reason}");
            assert!(obstacle.words.contains("bob"), "{}", obstacle.words);
        }
        for reason in ["request-ended", "stale-token", "wrong-expected-token"] {
            assert!(held(reason).is_none(), "{reason}");
        }
        assert!(obstacle(&reply(Exit::Nothing, "{}")).unwrap().is_some());
        assert!(obstacle(&reply(Exit::Done, "{}")).unwrap().is_none());
    }

    #[test]
    fn only_what_may_free_the_issue_is_asked_about() {
        let event = |event: &str, issue: &str, is_held: bool| -> Event {
            let side =
                r#"{"token":1,"holder":"bob","session":null,"acquired_at":null,"expires_at":null}"#;
            let after = if is_held { side } else { "null" };
            let text = format!(
                r#"{{"event":"{event}","repo":"r","issue":"{issue}","at":"","before":{side},"after":{after}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let acquire: Request = Request::parse(b"collab-lease acquire r 42").unwrap();
        let next = Request::parse(b"collab-lease next r").unwrap();
        for (told, of_it, of_any) in [
            (event("released", "42", false), true, true),
            (event("expired", "42", false), true, true),
            (event("taken-over", "42", true), true, false),
            (event("renewed", "42", true), false, false),
            (event("acquired", "42", true), false, false),
            (event("recovered", "42", true), false, false),
            (event("released", "43", false), false, true),
            (event("released", "421", false), false, true),
        ] {
            assert_eq!(concerns(&told, &acquire), of_it, "{told:?}");
            assert_eq!(concerns(&told, &next), of_any, "{told:?}");
        }
    }

    #[test]
    fn the_end_of_what_is_in_the_way_is_not_slept_through() {
        let end = Duration::from_millis(300);
        for _ in 0..100 {
            let pause = soon();
            assert!((LEAST..=MOST).contains(&pause));
            assert_eq!(sooner(pause, None), pause);
            assert_eq!(sooner(pause, Some(Duration::from_secs(3_600))), pause);
            assert!((end..=end + AFTER_THE_END).contains(&sooner(pause, Some(end))));
        }
    }
}

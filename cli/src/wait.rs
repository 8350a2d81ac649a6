//! Waiting for a claim that somebody holds: asking again until it is free.

use std::time::Duration;

use git_claim_api::exit::Exit;
use git_claim_api::reply::{ClaimReply, Reason};
use git_claim_api::verb::Request;
use tokio::time::sleep;

use crate::answer::Reply;
use crate::client::{Client, Taken};
use crate::clock::Moment;
use crate::error::Result;
use crate::output::{Output, people};
use crate::pause::between;

/// How often is asked: whoever waits gets what was freed within two seconds.
const LEAST: Duration = Duration::from_millis(1_000);
const MOST: Duration = Duration::from_millis(1_600);

/// How far apart those come back who wait for one claim's end.
const AFTER_THE_END: Duration = Duration::from_millis(200);

/// Asks for a claim until it is had, or `patience` is over; then the last
/// answer counts.
///
/// # Errors
/// What is no matter of waiting.
pub async fn for_claim(
    client: &mut Client,
    request: &Request,
    patience: Option<Duration>,
    output: &mut Output,
) -> Result<Taken> {
    let until = patience.map(|patience| Moment::now() + patience);
    let mut answered = false;
    let outcome = loop {
        let outcome = client.take(request, output).await;
        let obstacle = match &outcome {
            Ok(taken) => obstacle(&taken.reply)?,
            // It answered before, so it may do so again.
            Err(failure) if answered && failure.kind.is_not_now() => Some(Obstacle {
                words: format!("waiting; {}", failure.message),
                over_in: None,
            }),
            Err(_) => None,
        };
        answered |= outcome.is_ok();
        let Some(obstacle) = obstacle else {
            break outcome;
        };
        if until.is_some_and(Moment::is_past) {
            break outcome;
        }
        output.progress(&obstacle.words);
        let pause = pause(obstacle.over_in);
        sleep(until.map_or(pause, |until| pause.min(until.left()))).await;
    };
    output.end_of_progress();
    outcome
}

/// Until when to look again; sooner where what is in the way ends sooner.
pub fn pause(over_in: Option<Duration>) -> Duration {
    let pause = between(LEAST, MOST);
    match over_in {
        Some(over_in) if over_in < pause => over_in + between(Duration::ZERO, AFTER_THE_END),
        _ => pause,
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
                Some(Reason::Held | Reason::OtherSession | Reason::OtherKey)
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
        for reason in ["held", "other-session", "other-key"] {
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
    fn the_end_of_what_is_in_the_way_is_not_slept_through() {
        let end = Duration::from_millis(300);
        for _ in 0..100 {
            assert!((LEAST..=MOST).contains(&pause(None)));
            assert!((LEAST..=MOST).contains(&pause(Some(Duration::from_secs(3_600)))));
            assert!((end..=end + AFTER_THE_END).contains(&pause(Some(end))));
        }
    }
}

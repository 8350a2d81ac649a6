//! The verb against a small model of what it promises: any sequence of requests
//! and steps of the clock, forth and back, gives the same holders, tokens and
//! exits.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::Value;

use crate::support::START;

use super::Forge;

const USERS: [&str; 2] = ["ann", "bob"];
const SESSIONS: [&str; 2] = ["s1", "s2"];
const ISSUES: [&str; 2] = ["1", "2"];

#[derive(Debug, Clone)]
enum Step {
    Acquire {
        who: Who,
        issue: usize,
        ttl: Option<i64>,
    },
    Renew {
        who: Who,
        issue: usize,
        ttl: i64,
        token: Option<u64>,
    },
    Release {
        who: Who,
        issue: usize,
        token: Option<u64>,
    },
    TakeOver {
        who: Who,
        issue: usize,
    },
    Wait {
        ms: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Who {
    user: usize,
    session: usize,
}

/// What the protocol promises of one issue, and nothing else.
#[derive(Debug, Default)]
struct Model {
    token: u64,
    holder: Option<Who>,
    /// Milliseconds since the epoch.
    end: Option<i64>,
}

impl Model {
    fn live(&self, now: i64) -> Option<Who> {
        self.holder.filter(|_| self.end.is_none_or(|end| now < end))
    }

    fn hold(&mut self, who: Who, ttl: Option<i64>, now: i64) {
        self.holder = Some(who);
        self.end = ttl.map(|ttl| (now + 999) / 1_000 * 1_000 + ttl * 1_000);
    }

    /// The exit of a step, and what it makes of the issue.
    fn step(&mut self, step: &Step, now: i64) -> u8 {
        match *step {
            Step::Acquire { who, ttl, .. } => match self.live(now) {
                Some(holder) if holder == who => {
                    self.hold(who, ttl, now);
                    0
                }
                Some(_) => 4,
                None => {
                    self.token += 1;
                    self.hold(who, ttl, now);
                    0
                }
            },
            Step::Renew {
                who, ttl, token, ..
            } => {
                let is_meant = token.is_none_or(|token| token == self.token);
                if self.live(now) == Some(who) && is_meant {
                    self.hold(who, Some(ttl), now);
                    0
                } else {
                    4
                }
            }
            Step::Release { who, token, .. } => {
                let is_meant = token.is_none_or(|token| token == self.token);
                match self.live(now) {
                    Some(holder) if holder != who => 4,
                    _ if !is_meant => 4,
                    Some(_) => {
                        self.holder = None;
                        0
                    }
                    None => {
                        // Given up for good, whatever the clock says later.
                        self.holder = self.holder.filter(|holder| *holder != who);
                        0
                    }
                }
            }
            Step::TakeOver { who, .. } => match self.live(now) {
                Some(holder) if holder == who => {
                    self.hold(who, None, now);
                    0
                }
                Some(holder) if holder.user != who.user => 1,
                _ => {
                    self.token += 1;
                    self.hold(who, None, now);
                    0
                }
            },
            Step::Wait { .. } => 0,
        }
    }
}

fn who() -> impl Strategy<Value = Who> {
    (0..USERS.len(), 0..SESSIONS.len()).prop_map(|(user, session)| Who { user, session })
}

fn step() -> impl Strategy<Value = Step> {
    let issue = 0..ISSUES.len();
    prop_oneof![
        4 => (who(), issue.clone(), prop::option::of(1..5_i64))
            .prop_map(|(who, issue, ttl)| Step::Acquire { who, issue, ttl }),
        2 => (who(), issue.clone(), 1..5_i64, prop::option::of(1..4_u64))
            .prop_map(|(who, issue, ttl, token)| Step::Renew { who, issue, ttl, token }),
        2 => (who(), issue.clone(), prop::option::of(1..4_u64))
            .prop_map(|(who, issue, token)| Step::Release { who, issue, token }),
        1 => (who(), issue).prop_map(|(who, issue)| Step::TakeOver { who, issue }),
        3 => (0..3_000_i64).prop_map(|ms| Step::Wait { ms }),
        1 => prop::sample::select(vec![-3_600_000, -3_000, 3_600_000]).prop_map(|ms| Step::Wait { ms }),
    ]
}

/// The words of a step, and which issue it is about.
fn words(step: &Step) -> Option<(usize, &'static str, String)> {
    let named = |who: &Who, verb: &str, issue: usize, rest: String| {
        let words = format!(
            "{verb} r.git {} --session {}{rest}",
            ISSUES[issue], SESSIONS[who.session]
        );
        Some((issue, USERS[who.user], words))
    };
    let token = |token: &Option<u64>| match token {
        Some(token) => format!(" --token {token}"),
        None => String::new(),
    };
    match step {
        Step::Acquire { who, issue, ttl } => {
            let ttl = ttl.map_or_else(String::new, |ttl| format!(" --ttl {ttl}"));
            named(who, "acquire", *issue, ttl)
        }
        Step::Renew {
            who,
            issue,
            ttl,
            token: k,
        } => named(who, "renew", *issue, format!(" --ttl {ttl}{}", token(k))),
        Step::Release {
            who,
            issue,
            token: k,
        } => named(who, "release", *issue, token(k)),
        Step::TakeOver { who, issue } => named(
            who,
            "acquire",
            *issue,
            " --take-over --reason because".to_owned(),
        ),
        Step::Wait { .. } => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_verb_keeps_its_promises(steps in prop::collection::vec(step(), 1..40)) {
        let forge = Forge::new();
        let mut now = START * 1_000;
        let mut models: HashMap<usize, Model> = HashMap::new();
        for step in &steps {
            if let Step::Wait { ms } = step {
                let ms = if Forge::WHOLE_SECONDS { ms / 1_000 * 1_000 } else { *ms };
                let ms = if Forge::BY_HOSTS_CLOCK { ms } else { ms.max(0) };
                now += ms;
                forge.step_ms(ms);
                continue;
            }
            let Some((issue, user, words)) = words(step) else { continue };
            let model = models.entry(issue).or_default();
            let said = forge.ask(user, &words);
            prop_assert_eq!(said.exit, model.step(step, now), "{} {}: {:?}", user, words, said);
            let shown = forge.ask("root", &format!("show r.git {}", ISSUES[issue])).json();
            prop_assert_eq!(&shown["token"], &Value::from(model.token), "{}", words);
            let live = model.live(now);
            prop_assert_eq!(shown["state"] == "live", live.is_some(), "{} {}", words, shown);
            if let Some(holder) = live {
                prop_assert_eq!(&shown["holder"], USERS[holder.user]);
                let left = model.end.map(|end| end - now);
                prop_assert_eq!(&shown["ttl_left_ms"], &Value::from(left));
            }
        }
        // Every tenure is in the history, once, and each but the live ones is over.
        let log = forge.ask("root", "log r.git").json();
        let tenures = log["tenures"].as_array().unwrap();
        let begun: u64 = models.values().map(|model| model.token).sum();
        prop_assert_eq!(tenures.len() as u64, begun);
        let live = models.values().filter(|model| model.live(now).is_some()).count();
        prop_assert_eq!(tenures.iter().filter(|tenure| tenure.get("how").is_none()).count(), live);
    }
}

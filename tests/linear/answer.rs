//! What a client is answered, as far as the checker looks at it.

use git_claim_api::reply::{self, ClaimReply, ListReply, LogReply, Reason, State, Status, Tenure};
use git_claim_api::time::parse_rfc3339;
use serde::{Deserialize, Serialize};

use super::ask::Client;

/// An exit code and what the reply said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub exit: u8,
    /// `None`: no reply about claims, but an error, a list or "nothing to take".
    pub status: Option<Status>,
    pub reason: Option<Reason>,
    pub tenure: Option<Tenure>,
    pub was_held: Option<bool>,
    /// The claims that the reply shows.
    pub seen: Vec<Seen>,
}

/// One issue's claim, as a reply shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub issue: String,
    pub generation: u64,
    pub token: u64,
    /// The live tenure, at `now`.
    pub live: Option<Live>,
    /// The server's time: seconds since the epoch.
    pub now: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    pub holder: Client,
    /// Seconds since the epoch; `None`: open-ended.
    pub expires_at: Option<i64>,
    pub note: String,
}

impl Answer {
    /// Reads a reply; what stands on stdout is empty where there is an error.
    pub fn read(exit: u8, stdout: &str) -> Answer {
        let mut answer = Answer {
            exit,
            status: None,
            reason: None,
            tenure: None,
            was_held: None,
            seen: Vec::new(),
        };
        if let Ok(list) = serde_json::from_str::<ListReply>(stdout) {
            let now = time(&list.now);
            answer.seen = list
                .leases
                .iter()
                .map(|lease| Seen::of(&lease.issue, &lease.claim, true, now))
                .collect();
        } else if let Ok(reply) = serde_json::from_str::<ClaimReply>(stdout) {
            let is_live = reply.state.is_none_or(|state| state == State::Live);
            let now = time(&reply.now);
            answer.seen = vec![Seen::of(&reply.issue, &reply.claim, is_live, now)];
            answer.status = Some(reply.status);
            answer.reason = reply.reason;
            answer.tenure = reply.tenure;
            answer.was_held = reply.was_held;
        }
        answer
    }
}

impl Seen {
    fn of(issue: &str, claim: &reply::Claim, is_live: bool, now: i64) -> Seen {
        let live = claim.holder.as_ref().filter(|_| is_live).map(|name| Live {
            holder: Client {
                name: name.clone(),
                session: claim.session.clone().unwrap_or_default(),
            },
            expires_at: claim.expires_at.as_deref().map(time),
            note: claim.note.clone().unwrap_or_default(),
        });
        Seen {
            issue: issue.to_owned(),
            generation: claim.generation,
            token: claim.token,
            live,
            now,
        }
    }
}

fn time(text: &str) -> i64 {
    parse_rfc3339(text).unwrap_or_else(|| panic!("{text:?} is no time"))
}

/// A tenure as the history of the ledger has it in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub issue: String,
    pub token: u64,
    pub holder: String,
}

/// The tenures in a reply to `log`, which shows all there are.
pub fn logged(stdout: &str) -> Vec<Logged> {
    let reply: LogReply = serde_json::from_str(stdout).unwrap();
    assert!(!reply.more, "the log was cut");
    reply
        .tenures
        .into_iter()
        .map(|tenure| Logged {
            issue: tenure.issue,
            token: tenure.token,
            holder: tenure.holder,
        })
        .collect()
}

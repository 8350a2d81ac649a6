//! The replies of the verb, one JSON object each. Keys may be added, never
//! changed; whoever reads them ignores what it does not know.

use serde::{Deserialize, Serialize};

/// What became of a request about one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// `acquire`, `next`: the caller holds the claim.
    Acquired,
    /// A conflict: exit 4, with a [`Reason`].
    Held,
    Renewed,
    Released,
    /// `verify`: the token is the live one and the caller's.
    Valid,
    /// `show`: see [`ClaimReply::state`].
    Shown,
    /// `recover`: see [`ClaimReply::recovery`].
    Recovered,
    /// `recover`: see [`ClaimReply::refusal_code`].
    Refused,
    /// `next`: nothing left to take, exit 3.
    None,
}

/// Why a request met a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    Held,
    OtherSession,
    OtherKey,
    Expired,
    Released,
    TakenOver,
    StaleToken,
    WrongExpectedToken,
    RequestEnded,
}

/// Whether `acquire` began a tenure or went on with the caller's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tenure {
    New,
    Own,
}

/// What `recover` did, or with `--dry-run` would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryAction {
    /// The server's record is sound and this session's: the worktree's copy is
    /// to be written anew from it.
    CopyAgain,
    /// The server's record was incomplete, and is complete now.
    Upgraded,
    /// A claim that had run out was taken again.
    TakenAgain,
    /// A claim whose worktree is gone was moved to this one.
    Moved,
}

/// Why `recover` does nothing; the first that applies, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    IdentityUnresolved,
    NoDurableLock,
    ForeignClaimant,
    HealthyForeignLock,
    AlreadyCanonical,
    BindingMismatch,
    WorktreeInvalid,
    HeadMismatch,
}

impl RefusalCode {
    /// Every code, in the order in which they apply.
    pub const ALL: [RefusalCode; 8] = [
        RefusalCode::IdentityUnresolved,
        RefusalCode::NoDurableLock,
        RefusalCode::ForeignClaimant,
        RefusalCode::HealthyForeignLock,
        RefusalCode::AlreadyCanonical,
        RefusalCode::BindingMismatch,
        RefusalCode::WorktreeInvalid,
        RefusalCode::HeadMismatch,
    ];

    /// What it means, as a sentence goes on after "refused: ".
    pub const fn meaning(self) -> &'static str {
        match self {
            RefusalCode::IdentityUnresolved => "the server could not tell who is asking",
            RefusalCode::NoDurableLock => "there is no record to recover, here or on the server",
            RefusalCode::ForeignClaimant => "the record names another claimant",
            RefusalCode::HealthyForeignLock => {
                "somebody else holds a live, complete claim; recovery is no take-over"
            }
            RefusalCode::AlreadyCanonical => "nothing is wrong with the claim",
            RefusalCode::BindingMismatch => "the record is of another repository, issue or branch",
            RefusalCode::WorktreeInvalid => {
                "the worktree is missing, unregistered or on another branch"
            }
            RefusalCode::HeadMismatch => "the branch is not at the expected head",
        }
    }
}

/// How a claim stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Live,
    Expired,
    Free,
}

/// How a tenure ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It ran out.
    Expired,
    /// Its holder gave it back.
    Released,
    /// An admin, or the same person elsewhere, gave it back (`--force`).
    Forced,
    /// An admin, or the same person elsewhere, took it (`--take-over`).
    TakenOver,
    /// Its issue was closed by a push.
    Closed,
    /// Its branch was merged by a push.
    Merged,
    /// Recovery put a new tenure in its place.
    Recovered,
}

impl End {
    /// The name in JSON and in the ledger.
    pub const fn name(self) -> &'static str {
        match self {
            End::Expired => "expired",
            End::Released => "released",
            End::Forced => "forced",
            End::TakenOver => "taken-over",
            End::Closed => "closed",
            End::Merged => "merged",
            End::Recovered => "recovered",
        }
    }

    /// The end with this name.
    pub fn from_name(name: &str) -> Option<End> {
        [
            End::Expired,
            End::Released,
            End::Forced,
            End::TakenOver,
            End::Closed,
            End::Merged,
            End::Recovered,
        ]
        .into_iter()
        .find(|end| end.name() == name)
    }
}

/// What every reply about a claim carries, and each entry of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The principal's name; null where nobody holds it.
    pub holder: Option<String>,
    /// The last tenure's number, 0 before the first.
    pub token: u64,
    /// In full to its own principal, else its first 8 characters.
    pub session: Option<String>,
    /// This very session's.
    pub mine: bool,
    pub same_principal: bool,
    pub generation: u64,
    pub acquired_at: Option<String>,
    pub expires_at: Option<String>,
    pub heartbeat_at: Option<String>,
    /// Seconds; null for an open-ended claim.
    pub ttl: Option<u64>,
    pub ttl_left_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// To those who may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// To those who may write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// `closed` where the issue was closed while claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue_state: Option<String>,
}

/// A reply about one claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReply {
    pub status: Status,
    pub repo: String,
    pub issue: String,
    #[serde(flatten)]
    pub claim: Claim,
    /// The server's time.
    pub now: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Who ended the caller's tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that they gave, or what a push has done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenure: Option<Tenure>,
    /// `release`: whether there was anything to release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_held: Option<bool>,
    /// `show`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// `show`: the paths of the fields that a complete record would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<String>>,
    /// The canonical record of a bound claim, or what there is of one, to those
    /// who may write; read it with [`crate::lock::read`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<serde_json::Value>,
    /// `recover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryAction>,
    /// `recover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal_code: Option<RefusalCode>,
    /// `recover`, where it was refused: a command that works from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_next_action: Option<String>,
    /// False on a conflict where no `next` can find another issue, as the tracker
    /// knows no order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_next: Option<bool>,
}

impl ClaimReply {
    /// A reply with nothing but what each of them carries.
    pub fn new(status: Status, repo: &str, issue: &str, claim: Claim, now: String) -> ClaimReply {
        ClaimReply {
            status,
            repo: repo.to_owned(),
            issue: issue.to_owned(),
            claim,
            now,
            reason: None,
            by: None,
            why: None,
            tenure: None,
            was_held: None,
            state: None,
            missing: None,
            lock: None,
            recovery: None,
            refusal_code: None,
            exact_next_action: None,
            has_next: None,
        }
    }

    /// Whether the caller's claim is over because a push was the end of it: it
    /// closed the issue, or merged the bound branch.
    pub fn is_done(&self) -> bool {
        self.reason == Some(Reason::Released) && self.why.is_some()
    }
}

/// One entry of `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub issue: String,
    #[serde(flatten)]
    pub claim: Claim,
    /// With `--ended`.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
}

/// How and when a tenure ended, and through whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub ended_at: Option<String>,
    pub how: End,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The reply to `list`, the oldest tenure first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReply {
    pub leases: Vec<Lease>,
    pub repo: String,
    pub now: String,
    /// Whether `--limit` cut the list; go on with `--after` the last issue.
    pub more: bool,
    /// With `--ready`: the first open issues that nobody holds, in the order in
    /// which one should take them. Absent where the tracker knows no order, or
    /// is not quick enough to be asked beside a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Vec<ReadyIssue>>,
}

/// An open issue that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyIssue {
    /// The full id.
    pub issue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// One tenure in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastTenure {
    pub issue: String,
    pub token: u64,
    pub holder: String,
    pub session: Option<String>,
    pub acquired_at: Option<String>,
    /// When it ends or would have ended by itself.
    pub expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Absent while it lives.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
}

/// The reply to `log`, the newest tenure first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReply {
    /// Always `log`.
    pub status: String,
    pub repo: String,
    pub tenures: Vec<PastTenure>,
    pub now: String,
    /// Whether `--limit` cut the list.
    pub more: bool,
}

/// The reply to `whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoamiReply {
    /// Always `whoami`.
    pub status: String,
    /// The principal's name.
    pub name: String,
    /// The key's fingerprint, or what stands for it.
    pub key: Option<String>,
    /// `read`, `write` or `admin`; null without a repository.
    pub access: Option<String>,
    pub repo: Option<String>,
    pub protocol: u32,
    /// The server's version.
    pub version: String,
    pub tracker: Option<String>,
    /// Seconds.
    pub max_ttl: u64,
    /// Seconds; what a bound claim gets without `--ttl`.
    pub default_ttl: u64,
    /// Whether a push to this repository may carry push options.
    pub push_options: Option<bool>,
    pub now: String,
}

/// The reply to the host's own requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReply {
    /// Always `done`.
    pub status: String,
    /// How many rows were touched or copied.
    pub rows: u64,
}

/// The reply to `fence`. Exit 0: the push may pass; 4: it is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceReply {
    /// `passed`, `warned` or `refused`.
    pub status: String,
    pub objections: Vec<Objection>,
}

/// What is wrong with a push, for the one who pushes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    pub error: String,
    pub hint: String,
}

/// The reply to `settle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleReply {
    /// Always `settled`.
    pub status: String,
    pub ended: Vec<Settled>,
}

/// A claim that a push has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub issue: String,
    pub token: u64,
    pub holder: String,
    pub how: End,
    pub why: String,
}

/// Words in the server's refusals (exit 1) that tell a client what helps.
pub mod words {
    /// How the refusal of a closed issue ends.
    pub const CLOSED: &str = " is closed";
    /// How the refusal of a branch begins: it is everybody's, or another
    /// claim's.
    pub const BRANCH: &str = "branch '";
}

/// Whether `reply` is one of ours: a JSON object with `status`, `leases` or
/// `error`. Anything else came from a program that does not know the verb.
pub fn is_ours(reply: &serde_json::Value) -> bool {
    reply.as_object().is_some_and(|object| {
        ["status", "leases", "error"]
            .iter()
            .any(|key| object.contains_key(*key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_has_the_keys_of_the_protocol() {
        let now = "2026-09-05T12:00:00Z".to_owned();
        let reply = ClaimReply {
            reason: Some(Reason::WrongExpectedToken),
            ..ClaimReply::new(Status::Held, "r.git", "a1b2", Claim::default(), now)
        };
        let json = serde_json::to_value(&reply).unwrap();
        assert_eq!(json["status"], "held");
        assert_eq!(json["reason"], "wrong-expected-token");
        assert_eq!(json["holder"], serde_json::Value::Null);
        assert_eq!(json["expires_at"], serde_json::Value::Null);
        assert_eq!(json.get("note"), None);
        assert_eq!(serde_json::from_value::<ClaimReply>(json).unwrap(), reply);
    }

    #[test]
    fn ends_are_named_as_in_json() {
        for name in [
            "expired",
            "released",
            "forced",
            "taken-over",
            "closed",
            "merged",
            "recovered",
        ] {
            let end = End::from_name(name).unwrap();
            assert_eq!(serde_json::to_value(end).unwrap(), name);
        }
        assert_eq!(End::from_name("lost"), None);
    }

    #[test]
    fn only_our_objects_are_ours() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert!(is_ours(&json(r#"{"status":"held"}"#)));
        assert!(is_ours(&json(r#"{"leases":[]}"#)));
        assert!(!is_ours(&json(r#"{"message":"hi"}"#)));
        assert!(!is_ours(&json(r#"["status"]"#)));
        assert!(!is_ours(&json("7")));
    }
}

//! What the server has shown here of issues and claims, kept so that a shell can
//! complete ids without asking anybody: `claim-seen-<uid>/<remote>.json` in the
//! directory that all worktrees of a repository share.
//!
//! It is a memory and no more. Nothing but completions goes by it, each user of a
//! shared repository has one of their own, and whatever is wrong with it makes
//! it an empty one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use git_claim_api::ids::{IssueId, Session};
use git_claim_api::reply::{Claim, ClaimReply, ListReply, State, Status};
use git_claim_api::time::parse_rfc3339;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::git::Git;
use crate::hex::{hex, random};
use crate::remote;
use crate::token::file_name;

/// Of another version's file nothing is believed.
const VERSION: u32 = 1;

/// How much is kept: the first issues, and so much of each title.
const MOST_ISSUES: usize = 500;
const MOST_OF_TITLE: usize = 120;

/// A larger file was not written here.
const MOST_BYTES: u64 = 1024 * 1024;

/// What is ready may cost the server a look at every issue: after an answer it
/// is asked again once so many times as long has passed, and where it had none,
/// after an hour.
const PAUSE: u32 = 100;
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// An issue that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub issue: IssueId,
    pub title: Option<String>,
    /// Who held it; `None` if nobody did, and it was open.
    pub held: Option<Held>,
}

/// A claim that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub holder: Option<String>,
    /// This user's own, in whatever session.
    pub own: bool,
    /// The session of one's own.
    pub session: Option<Session>,
    /// Seconds since the epoch; `None` for an open-ended claim.
    until: Option<i64>,
}

impl Seen {
    /// The claim, unless it has run out since.
    pub fn held(&self, now: i64) -> Option<&Held> {
        let held = self.held.as_ref()?;
        held.until.is_none_or(|until| now < until).then_some(held)
    }
}

/// The local time, in seconds since the epoch.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, seconds)
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}

/// The file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// A hash of the URL that was asked: another server's issues are others.
    server: String,
    issues: Vec<Seen>,
    /// When the server may be asked for what is ready again.
    ask_again_at: Option<i64>,
}

/// What was seen of one remote.
#[derive(Debug)]
pub struct Memory {
    path: PathBuf,
    server: String,
}

impl Memory {
    /// The memory of what this user saw of `remote`.
    pub fn of(git: &Git, remote: &str) -> Memory {
        let url = remote::configured_url(&git.config, remote).unwrap_or_default();
        let folder = format!("claim-seen-{}", geteuid().as_raw());
        let name = file_name(remote) + ".json";
        Memory {
            path: git.common_dir.join(folder).join(name),
            server: hex(&Sha256::digest(url)[..8]),
        }
    }

    /// The issues that were seen, those that nobody holds in the order in which
    /// one should take them.
    pub fn issues(&self) -> Vec<Seen> {
        self.read()
            .map(|content| content.issues)
            .unwrap_or_default()
    }

    /// Whether the server should be asked for what is ready.
    pub fn wants_what_is_ready(&self) -> bool {
        let again_at = self.read().and_then(|content| content.ask_again_at);
        // Whatever a clock said, the pause is not longer than the longest.
        again_at.is_none_or(|at| !(1..=seconds(LONGEST_PAUSE)).contains(&at.saturating_sub(now())))
    }

    /// Keeps what a reply about one claim shows.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, reply: &ClaimReply) -> io::Result<()> {
        self.change(|content| content.claim(reply))
    }

    /// Keeps what a list shows; `is_all`: nothing was left out of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_list(&self, list: &ListReply, is_all: bool) -> io::Result<()> {
        self.change(|content| content.list(list, is_all))
    }

    /// Keeps how long the server took to tell what is ready, if it did.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn has_asked_what_is_ready(&self, took: Duration, has_told: bool) -> io::Result<()> {
        let pause = match has_told {
            true => took.saturating_mul(PAUSE).min(LONGEST_PAUSE),
            false => LONGEST_PAUSE,
        };
        self.change(|content| content.ask_again_at = Some(now() + seconds(pause)))
    }

    fn change(&self, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        let before = self.read().unwrap_or_else(|| Content {
            version: VERSION,
            server: self.server.clone(),
            issues: Vec::new(),
            ask_again_at: None,
        });
        let mut after = before.clone();
        change(&mut after);
        after.shorten();
        match after == before {
            true => Ok(()),
            false => self.write(&after),
        }
    }

    /// What is there, if it is this user's alone and makes sense.
    fn read(&self) -> Option<Content> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open(&self.path, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        let is_private = metadata.is_file()
            && metadata.uid() == geteuid().as_raw()
            && metadata.mode() & 0o077 == 0;
        if !is_private {
            return None;
        }
        let mut text = String::new();
        let length = file.take(MOST_BYTES + 1).read_to_string(&mut text).ok()?;
        if length as u64 > MOST_BYTES {
            return None;
        }
        let content: Content = serde_json::from_str(&text).ok()?;
        (content.version == VERSION && content.server == self.server).then_some(content)
    }

    fn write(&self, content: &Content) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            let mut private = fs::DirBuilder::new();
            private.recursive(true).mode(0o700).create(folder)?;
        }
        let temporary = self.path.with_extension(random::<8>()?);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let text = serde_json::to_vec(content)?;
        let written = file
            .write_all(&text)
            .and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

impl Content {
    fn list(&mut self, list: &ListReply, is_all: bool) {
        if let Some(ready) = &list.ready {
            self.issues.clear();
            for free in ready {
                self.put(&free.issue, free.title.as_deref(), None);
            }
        } else if is_all {
            // What is not listed any more is over.
            for seen in &mut self.issues {
                seen.held = None;
            }
        }
        for lease in &list.leases {
            let title = lease.claim.title.as_deref();
            self.put(&lease.issue, title, held(&lease.claim));
        }
    }

    fn claim(&mut self, reply: &ClaimReply) {
        if matches!(reply.status, Status::Refused | Status::None) {
            return;
        }
        let is_over = matches!(reply.status, Status::Released)
            || reply.state.is_some_and(|state| state != State::Live);
        let held = held(&reply.claim).filter(|_| !is_over);
        if held.is_none() && reply.claim.issue_state.is_some() {
            // Closed: nobody can claim it.
            self.issues
                .retain(|seen| seen.issue.as_str() != reply.issue);
            return;
        }
        self.put(&reply.issue, reply.claim.title.as_deref(), held);
    }

    fn put(&mut self, issue: &str, title: Option<&str>, held: Option<Held>) {
        let title = title.map(|title| title.chars().take(MOST_OF_TITLE).collect());
        let known = self
            .issues
            .iter_mut()
            .find(|seen| seen.issue.as_str() == issue);
        if let Some(known) = known {
            known.title = title.or_else(|| known.title.take());
            known.held = held;
        } else if let Ok(issue) = issue.parse() {
            self.issues.push(Seen { issue, title, held });
            // A list may be very long.
            if self.issues.len() > 2 * MOST_ISSUES {
                self.shorten();
            }
        }
    }

    /// Leaves the last ones out where there are too many, but one's own claims
    /// and then those of others before what is free.
    fn shorten(&mut self) {
        if self.issues.len() > MOST_ISSUES {
            self.issues.sort_by_key(|seen| match &seen.held {
                Some(held) if held.own => 0,
                Some(_) => 1,
                None => 2,
            });
            self.issues.truncate(MOST_ISSUES);
        }
    }
}

/// The claim that somebody has, if somebody has it.
fn held(claim: &Claim) -> Option<Held> {
    let holder = claim.holder.clone()?;
    let own = claim.same_principal;
    let session = claim.session.as_deref().filter(|_| own);
    Some(Held {
        holder: (holder.len() <= MOST_OF_TITLE).then_some(holder),
        own,
        session: session.and_then(|session| session.parse().ok()),
        until: claim.expires_at.as_deref().and_then(parse_rfc3339),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use assert_fs::TempDir;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_788_609_600;

    fn memory(dir: &TempDir) -> Memory {
        Memory {
            path: dir.path().join("seen").join("origin.json"),
            server: "s".to_owned(),
        }
    }

    fn list(leases: &Value, ready: &Value) -> ListReply {
        let mut list = json!({ "leases": leases, "repo": "r.git", "now": "", "more": false });
        if !ready.is_null() {
            list["ready"] = ready.clone();
        }
        serde_json::from_value(list).unwrap()
    }

    /// `status`, about an issue that `holder` holds.
    fn about(issue: &str, status: &str, holder: Option<&str>) -> ClaimReply {
        let claim = Claim {
            holder: holder.map(str::to_owned),
            same_principal: holder == Some("ann"),
            session: Some("s1".to_owned()),
            ..Claim::default()
        };
        let status = serde_json::from_value(json!(status)).unwrap();
        ClaimReply::new(status, "r.git", issue, claim, String::new())
    }

    /// What is remembered, in short: `1 ann!`, `2 bob`, `3`.
    fn known(memory: &Memory) -> Vec<String> {
        let issues = memory.issues();
        let known = issues.iter().map(|seen| match seen.held(NOW) {
            None => seen.issue.to_string(),
            Some(held) => {
                let holder = held.holder.as_deref().unwrap_or("?");
                let own = if held.own { "!" } else { "" };
                format!("{} {holder}{own}", seen.issue)
            }
        });
        known.collect()
    }

    #[test]
    fn replies_are_remembered() {
        let dir = TempDir::new().unwrap();
        let memory = memory(&dir);
        let lists = |leases: &Value, ready: &Value, is_all: bool| {
            memory.keep_list(&list(leases, ready), is_all).unwrap();
        };
        let bobs = json!([{ "issue": "2", "holder": "bob", "title": "Two" }]);
        let ready = json!([{ "issue": "3", "title": "Three" }, { "issue": "1" }]);
        lists(&bobs, &ready, true);
        assert_eq!(known(&memory), ["3", "1", "2 bob"]);
        for (issue, status, holder) in [
            ("1", "acquired", Some("ann")),
            ("2", "held", Some("eve")),
            ("3", "renewed", Some("ann")),
            ("4", "shown", Some("bob")),
            ("5", "held", None),
            ("3", "released", None),
            ("6", "refused", Some("bob")),
        ] {
            memory.keep(&about(issue, status, holder)).unwrap();
        }
        assert_eq!(known(&memory), ["3", "1 ann!", "2 eve", "4 bob", "5"]);
        // Its title is not forgotten by a reply that has none.
        assert_eq!(memory.issues()[2].title.as_deref(), Some("Two"));
        // What a filtered list leaves out may be there; else it is over.
        lists(&bobs, &Value::Null, false);
        assert_eq!(known(&memory), ["3", "1 ann!", "2 bob", "4 bob", "5"]);
        lists(&bobs, &Value::Null, true);
        assert_eq!(known(&memory), ["3", "1", "2 bob", "4", "5"]);
        lists(&bobs, &json!([{ "issue": "5" }]), true);
        assert_eq!(known(&memory), ["5", "2 bob"]);
    }

    #[test]
    fn what_has_run_out_is_free() {
        let dir = TempDir::new().unwrap();
        let memory = memory(&dir);
        let lease = |end: &str| json!([{ "issue": "1", "holder": "ann", "expires_at": end }]);
        for (end, expected) in [
            ("2026-09-05T12:00:01Z", "1 ann"),
            ("2026-09-05T12:00:00Z", "1"),
        ] {
            let reply = list(&lease(end), &Value::Null);
            memory.keep_list(&reply, true).unwrap();
            assert_eq!(known(&memory), [expected]);
        }
        let expired = ClaimReply {
            state: Some(State::Expired),
            ..about("1", "shown", Some("bob"))
        };
        memory.keep(&expired).unwrap();
        assert_eq!(known(&memory), ["1"]);
    }

    #[test]
    fn it_is_bounded_and_ones_own_claims_come_first() {
        let dir = TempDir::new().unwrap();
        let memory = memory(&dir);
        let title = "\u{1}".repeat(1_000);
        let ready: Vec<_> = (0..700)
            .map(|n| json!({ "issue": format!("{n:0>128}"), "title": title }))
            .collect();
        let mine = json!([
            { "issue": "b", "holder": "bob" },
            { "issue": "a", "holder": "ann", "same_principal": true },
        ]);
        memory.keep_list(&list(&mine, &json!(ready)), true).unwrap();
        let known = known(&memory);
        assert_eq!(known.len(), MOST_ISSUES);
        assert_eq!(known[..2], ["a ann!", "b bob"]);
        assert!(
            known[2].ends_with("000") && known[3].ends_with("001"),
            "{known:?}"
        );
        assert!(fs::metadata(&memory.path).unwrap().len() < MOST_BYTES);
    }

    #[test]
    fn a_server_is_not_asked_again_soon_for_what_costs_it_much() {
        let dir = TempDir::new().unwrap();
        let memory = memory(&dir);
        assert!(memory.wants_what_is_ready());
        let pause = |took, has_told| {
            memory.has_asked_what_is_ready(took, has_told).unwrap();
            memory.read().unwrap().ask_again_at.unwrap() - now()
        };
        let day = Duration::from_secs(86_400);
        // A second may have passed in between.
        assert!((598..=600).contains(&pause(Duration::from_secs(6), true)));
        assert!((3_598..=3_600).contains(&pause(Duration::ZERO, false)));
        assert!(!memory.wants_what_is_ready());
        assert!((3_598..=3_600).contains(&pause(day, true)));
        assert!(pause(Duration::ZERO, true) <= 0);
        assert!(memory.wants_what_is_ready());
        for odd in [i64::MAX, i64::MIN, now() + 86_400] {
            memory
                .change(|content| content.ask_again_at = Some(odd))
                .unwrap();
            assert!(memory.wants_what_is_ready());
        }
    }

    #[test]
    fn only_a_file_of_ones_own_that_makes_sense_is_believed() {
        let dir = TempDir::new().unwrap();
        let memory = memory(&dir);
        let keep = || memory.keep(&about("1", "acquired", Some("ann")));
        keep().unwrap();
        assert_eq!(known(&memory), ["1 ann!"]);
        let metadata = fs::metadata(&memory.path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let folder = memory.path.parent().unwrap();
        assert_eq!(
            fs::read_dir(folder).unwrap().count(),
            1,
            "nothing else is left"
        );

        let good = fs::read_to_string(&memory.path).unwrap();
        let with = |key: &str, value: Value| {
            let mut content: Value = serde_json::from_str(&good).unwrap();
            content[key] = value;
            content.to_string()
        };
        for bad in [
            String::new(),
            "{".to_owned(),
            "[]".to_owned(),
            "\u{0}".to_owned(),
            "[".repeat(100_000),
            good[..good.len() - 1].to_owned(),
            with("version", json!(2)),
            with("server", json!("other")),
            with("issues", json!([{ "issue": "$(true)" }])),
            with("issues", json!([{ "issue": "-x" }])),
            good.clone() + &" ".repeat(MOST_BYTES as usize),
        ] {
            fs::write(&memory.path, &bad).unwrap();
            assert_eq!(known(&memory), Vec::<String>::new(), "{bad:.40}");
            keep().unwrap();
            assert_eq!(known(&memory), ["1 ann!"]);
        }
        for mode in [0o640, 0o604, 0o622] {
            fs::set_permissions(&memory.path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(known(&memory), Vec::<String>::new());
            keep().unwrap();
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&memory.path, &elsewhere).unwrap();
        symlink(&elsewhere, &memory.path).unwrap();
        assert_eq!(known(&memory), Vec::<String>::new());
        keep().unwrap();
        assert!(!fs::symlink_metadata(&memory.path).unwrap().is_symlink());
        fs::remove_file(&memory.path).unwrap();
        fs::create_dir(&memory.path).unwrap();
        assert_eq!(known(&memory), Vec::<String>::new());
        keep().unwrap_err();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }
}

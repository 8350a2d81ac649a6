//! What clients, pushers and older programs send and leave behind: words, lines,
//! records, settings, issues.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_fs::TempDir;
use git_claim_api::lock::{self, Reading};
use git_claim_api::push::{ClaimToken, Fact};
use git_claim_api::serve::{self, Op};
use git_claim_api::settings::PluginSettings;
use git_claim_api::verb::{RepoArg, Request};
use git_claim_api::words;
use git2::{FileMode, ObjectType, Repository};
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::Value;

use crate::ledger::{TYPELESS, is_bearable, over};
use crate::support::{Forge, memory};

#[path = "../../tests/fuzz/harness.rs"]
mod harness;
#[path = "../../tests/fuzz/issues.rs"]
mod issues;
#[path = "../../tests/fuzz/rows.rs"]
mod rows;

use harness::{Checked, QUICK, bytes, fuzz, of, same};
use issues::{beads_pieces, commit, git_bug, git_bug_pieces, git_issue, git_issue_pieces};
use rows::{put_rows, rows_pieces};

#[test]
fn words_are_split_or_refused_and_quoting_is_undone() {
    let own = prop_oneof![
        bytes(),
        of(
            &[
                "a", " ", "'", "\\", "!", "\\'", "\\!", "\"", "~", "%", "é", "$(", "\n", "#"
            ],
            30
        )
    ];
    fuzz("words", QUICK, own, |input| {
        if let Ok(split) = words::split(input) {
            prop_assert!(!split.is_empty() && split.iter().all(|word| !word.is_empty()));
            let line: Vec<_> = split.iter().map(|word| words::quote(word)).collect();
            same(&words::split(line.join(" ").as_bytes()), &Ok(split))?;
        }
        // Each input is also words that somebody wants to say.
        let text = String::from_utf8_lossy(input);
        let wanted = |word: &&str| !word.is_empty() && !word.contains(char::is_control);
        let wanted: Vec<String> = text.split(' ').filter(wanted).map(str::to_owned).collect();
        if !wanted.is_empty() {
            let line: Vec<_> = wanted.iter().map(|word| words::quote(word)).collect();
            same(&words::split(line.join(" ").as_bytes()), &Ok(wanted))?;
        }
        Ok(())
    });
}

#[test]
fn percent_encoding_is_undone_or_refused() {
    let own = prop_oneof![
        bytes(),
        of(&["%", "%4", "1", "%41", "%e2", "%82", "a", "-", "ü"], 30)
    ];
    fuzz("percent", QUICK, own, |input| {
        let text = String::from_utf8_lossy(input);
        let word = words::encode(&text);
        prop_assert!(word.is_ascii() && !word.starts_with('-') && !word.contains([' ', '\'']));
        same(&words::decode(&word), &Ok(text.to_string()))?;
        if let Ok(decoded) = words::decode(&text) {
            same(&words::decode(&words::encode(&decoded)), &Ok(decoded))?;
        }
        Ok(())
    });
}

/// The words of requests.
const REQUESTS: [&str; 44] = [
    "collab-lease",
    " acquire",
    " next",
    " renew",
    " release",
    " list",
    " show",
    " log",
    " verify",
    " whoami",
    " recover",
    " serve",
    " fence",
    " settle",
    " rename",
    " backup",
    " migrate",
    " r.git",
    " 42",
    " '#4 2'",
    " --ttl",
    " --token",
    " --session",
    " --note",
    " --take-over",
    " --reason",
    " --expected-token",
    " --branch",
    " --remote",
    " --worktree",
    " --machine",
    " --request",
    " --if-token",
    " --limit",
    " --after",
    " --mine",
    " --ended",
    " 7",
    " s1",
    " %20",
    " -1",
    " 99999999999999999999",
    " claim/42",
    " --force",
];

#[test]
fn a_request_is_refused_or_means_what_its_words_mean() {
    fuzz("request", QUICK, of(&REQUESTS, 16), |input| {
        if let Ok(request) = Request::parse(input) {
            same(&Request::parse(request.command().as_bytes()), &Ok(request))?;
        }
        Ok(())
    });
}

#[test]
fn a_line_of_serve_is_refused_or_means_what_its_object_means() {
    let repo: RepoArg = "acme/my app.git".parse().unwrap();
    let own = of(
        &[
            "{",
            "}",
            "\"op\":",
            "\"acquire\"",
            "\"list\"",
            "\"watch\"",
            ",",
            "\"issue\":",
            "\"42\"",
            "\"ttl\":",
            "7",
            "-7",
            "1e9",
            "null",
            "true",
            "false",
            "[]",
            "\"id\":",
            "\"note\":",
            "\"\\u0000\"",
            "\"it's\"",
            "\"take_over\":",
            "\"token\":",
            "\"é\"",
        ],
        20,
    );
    fuzz("serve", QUICK, own, |input| {
        let Ok(line) = serve::read(&repo, input) else {
            return Ok(());
        };
        if let Op::Request(request) = &line.op {
            let object = serve::object(&line.id, request);
            prop_assert!(object.is_ok(), "{object:?}");
            let again = serve::read(&repo, object.unwrap().to_string().as_bytes());
            same(&again, &Ok(line))?;
        }
        Ok(())
    });
}

#[test]
fn a_record_is_incomplete_or_reads_back_as_it_is() {
    let own = of(
        &[
            "{",
            "}",
            "\"contract\":",
            "\"git-claim/lock/1\"",
            ",",
            "\"work_lease\":",
            "\"claimant\":",
            "null",
            "[]",
            "7",
            "\"token\":",
            "\"expires_at\":",
            "\"open-ended\"",
            "\"2026-09-05T12:00:00Z\"",
        ],
        20,
    );
    fuzz("record", QUICK, own, |input| {
        let Ok(record) = serde_json::from_slice::<Value>(input) else {
            return Ok(());
        };
        let _ = lock::expiry(&record);
        match lock::read(&record) {
            Reading::Canonical(lock) => {
                let written = serde_json::to_value(&lock).unwrap();
                same(&lock::read(&written), &Reading::Canonical(lock))
            }
            Reading::Incomplete { missing, .. } => {
                prop_assert!(!missing.is_empty());
                Ok(())
            }
        }
    });
}

#[test]
fn settings_are_refused_or_mean_what_they_say() {
    let own = of(
        &[
            "{",
            "}",
            "\"ledger\":",
            "\"/a/b.db\"",
            "\"etcd://h:1/p\"",
            ",",
            "\"max_ttl\":",
            "\"default_ttl\":",
            "7",
            "-1",
            "\"etcd\":",
            "{}",
            "\"ca\":",
            "null",
        ],
        16,
    );
    fuzz("settings", QUICK, own, |input| {
        if let Ok(settings) = serde_json::from_slice::<PluginSettings>(input) {
            let written = serde_json::to_vec(&settings).unwrap();
            same(&serde_json::from_slice(&written).unwrap(), &settings)?;
        }
        Ok(())
    });
}

#[test]
fn a_pushs_facts_are_refused_or_mean_what_they_say() {
    let own = of(
        &[
            "{",
            "}",
            "\"pusher\":",
            "\"update\":",
            "\"option\":",
            "\"name\":",
            "\"ref\":",
            "\"old\":",
            "\"new\":",
            ",",
            "null",
            "\"refs/heads/x\"",
            "\"claim-token=1:2:3\"",
            "claim-token=",
            "1:2:3",
        ],
        16,
    );
    fuzz("push", QUICK, own, |input| {
        if let Ok(fact) = serde_json::from_slice::<Fact>(input) {
            let written = serde_json::to_vec(&fact).unwrap();
            same(&serde_json::from_slice(&written).unwrap(), &fact)?;
        }
        if let Ok(token) = String::from_utf8_lossy(input).parse::<ClaimToken>() {
            same(&token.to_string().parse(), &Ok(token))?;
        }
        Ok(())
    });
}

/// A forge over a repository whose objects the tests write themselves.
struct Issues {
    forge: Forge,
    path: PathBuf,
    /// What the repository has when it has nothing.
    written: std::cell::Cell<u32>,
}

const ISSUE: &str = "ae1c051b-e411-4fe3-9f28-157f2d8dccc0";
const BUG: &str = "ae1c051bae1c051bae1c051bae1c051bae1c051bae1c051bae1c051bae1c051b";

impl Issues {
    fn of(tracker: &str) -> Issues {
        let dir = TempDir::new_in(memory()).unwrap();
        let path = dir.path().join("app.git");
        let repository = Repository::init_bare(&path).unwrap();
        let mut config = repository.config().unwrap();
        config.set_str("claim.tracker", tracker).unwrap();
        let repos = vec![("app.git".to_owned(), Some(path.clone()))];
        Issues {
            forge: Forge::over(dir, repos),
            path,
            written: std::cell::Cell::new(0),
        }
    }

    /// The repository, swept now and then.
    fn repository(&self) -> Repository {
        self.written.set(self.written.get() + 1);
        if self.written.get().is_multiple_of(500) {
            for folder in fs::read_dir(self.path.join("objects")).unwrap() {
                let folder = folder.unwrap();
                if folder.file_name().len() == 2 {
                    fs::remove_dir_all(folder.path()).unwrap();
                }
            }
        }
        Repository::open_bare(&self.path).unwrap()
    }

    /// Takes the issue, and whatever comes next; both are answered.
    fn are_served(&self, issue: &str) -> Checked {
        for words in [
            format!("acquire app.git {issue} --session s"),
            "next app.git --session s".to_owned(),
            "list app.git --ready".to_owned(),
        ] {
            let said = self.forge.ask("ann", &words);
            prop_assert!(matches!(said.exit, 0 | 1 | 3 | 6), "{words}: {said:?}");
            prop_assert!(!said.stderr.contains("panic"), "{said:?}");
            if said.exit == 0 && words.starts_with(['a', 'n']) {
                let taken = said.json()["issue"].as_str().unwrap().to_owned();
                let released = self
                    .forge
                    .ask("ann", &format!("release app.git {taken} --session s"));
                prop_assert_eq!(released.exit, 0, "{:?}", released);
            }
        }
        Ok(())
    }
}

#[test]
fn commits_of_git_issue_are_read_or_refused() {
    let issues = Issues::of("git-issue");
    fuzz("git-issue", 100, git_issue_pieces(), |input| {
        let repository = issues.repository();
        let tip = git_issue(&repository.odb().unwrap(), input);
        let name = format!("refs/issues/{ISSUE}");
        fs::create_dir_all(issues.path.join("refs/issues")).unwrap();
        fs::write(issues.path.join(&name), format!("{tip}\n")).unwrap();
        issues.are_served(&ISSUE[..8])
    });
}

#[test]
fn packs_of_git_bug_are_read_or_refused() {
    let issues = Issues::of("git-bug");
    fuzz("git-bug", 100, git_bug_pieces(), |input| {
        let repository = issues.repository();
        let tip = git_bug(&repository.odb().unwrap(), input);
        fs::create_dir_all(issues.path.join("refs/bugs")).unwrap();
        let name = issues.path.join(format!("refs/bugs/{BUG}"));
        fs::write(name, format!("{tip}\n")).unwrap();
        issues.are_served(&BUG[..8])
    });
}

#[test]
fn a_file_of_beads_is_read_or_refused() {
    let issues = Issues::of("beads");
    fuzz("beads", 100, beads_pieces(), |input| {
        let repository = issues.repository();
        let file = repository.blob(input).unwrap();
        let mut folder = repository.treebuilder(None).unwrap();
        folder
            .insert("issues.jsonl", file, FileMode::Blob.into())
            .unwrap();
        let mut root = repository.treebuilder(None).unwrap();
        root.insert(".beads", folder.write().unwrap(), FileMode::Tree.into())
            .unwrap();
        let raw = commit(root.write().unwrap(), &[], b"issues");
        let odb = repository.odb().unwrap();
        let commit = odb.write(ObjectType::Commit, &raw).unwrap();
        let head = fs::read_to_string(issues.path.join("HEAD")).unwrap();
        let branch = head.trim().strip_prefix("ref: ").unwrap();
        fs::write(issues.path.join(branch), format!("{commit}\n")).unwrap();
        issues.are_served("a-1")
    });
}

/// A ledger's file at `path`, as an older server may leave it.
fn leave(path: &Path, input: &[u8]) {
    let older = Connection::open(path).unwrap();
    older
        .execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")
        .unwrap();
    older.execute_batch(TYPELESS).unwrap();
    put_rows(&older, input);
    drop(older);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn an_older_servers_file_is_brought_up_to_date_or_refused() {
    fuzz("old-ledger", 20, rows_pieces(), |input| {
        let dir = TempDir::new_in(memory()).unwrap();
        leave(&dir.path().join("collab.db"), input);
        is_bearable(&over(dir), "old-ledger");
        Ok(())
    });
}

/// An older server that goes on beside a newer one.
#[test]
fn what_an_older_server_writes_is_read_or_refused() {
    let dir = TempDir::new_in(memory()).unwrap();
    let path = dir.path().join("collab.db");
    leave(&path, b"");
    let forge = over(dir);
    assert_eq!(forge.ask("ann", "acquire r.git 1 --session s1").exit, 0);
    let older = Connection::open(path).unwrap();
    fuzz("old-row", 100, rows_pieces(), |input| {
        older
            .execute_batch("BEGIN; DELETE FROM leases; DELETE FROM tenures;")
            .unwrap();
        put_rows(&older, input);
        older.execute_batch("COMMIT").unwrap();
        is_bearable(&forge, "old-row");
        Ok(())
    });
}

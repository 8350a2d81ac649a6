//! A power cut at any moment: whatever part of the writes that were not synced
//! yet got onto the disk, the ledger opens, is sound and holds every change that
//! was acknowledged, and no half of one that was not.
//!
//! A process works on a ledger while a library beneath it records what it writes
//! and syncs, and when it acknowledges. From the recording the disk is built as
//! it may stand behind each record.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use git_claim_plugin::claim::Now;
use git_claim_plugin::ledger::{Filter, Ledger, LedgerError, SqliteLedger, When};
use rusqlite::Connection;

use crate::engines::Sqlite;
use crate::linear::client::Random;
use crate::support::{Forge, START};
use disk::{Disk, Part, Record};

/// Says to a process of this test what it is to do, and where.
const PROCESS: &str = "POWER_PROCESS";

/// What a process does, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// One process a request, as behind sshd: each opens, changes and closes.
    Calls,
    /// A forge that stays, until its log is written back to the file.
    Stays,
    /// The first change brings an older server's file up to date.
    Older,
    /// A copy is made in between.
    Backup,
}

const SCENES: [Scene; 4] = [Scene::Calls, Scene::Stays, Scene::Older, Scene::Backup];

/// Who asks for what.
const STEPS: [(&str, &str); 12] = [
    ("ann", "acquire r.git 1 --ttl 60 --session a"),
    ("bob", "acquire r.git 1 --session b"),
    ("ann", "renew r.git 1 --ttl 90 --session a --token 1"),
    ("ann", "acquire r.git 2 --session a --note first"),
    ("ann", "release r.git 1 --session a --token 1"),
    ("bob", "acquire r.git 1 --session b --request r1"),
    (
        "root",
        "acquire r.git 1 --session c --take-over --reason gone --expected-token 2",
    ),
    (
        "bob",
        "acquire r.git 3 --session b --branch claim/3 --worktree /w --machine m",
    ),
    (
        "root",
        "release r.git 2 --force --reason gone --expected-token 1",
    ),
    ("ann", "acquire r.git 2 --session a"),
    ("host", "rename r.git s.git"),
    ("ann", "acquire s.git 4 --session a"),
];

/// So many renewals write more than the log may hold, and go on behind that.
const RENEWALS: usize = 520;

impl Scene {
    fn steps(self) -> Vec<(&'static str, &'static str)> {
        let mut steps = STEPS.to_vec();
        match self {
            Scene::Calls => {}
            Scene::Older => steps.truncate(6),
            Scene::Stays => {
                let renewal = ("ann", "renew s.git 4 --ttl 90 --session a");
                steps.extend([renewal; RENEWALS]);
            }
            Scene::Backup => {
                steps.truncate(4);
                steps.push(("host", "backup"));
            }
        }
        steps
    }

    /// What lies there before.
    fn prepare(self, folder: &Path) {
        if self == Scene::Older {
            let file = folder.join("collab.db");
            let older = Connection::open(&file).unwrap();
            older
                .execute_batch(
                    "CREATE TABLE leases (repo TEXT NOT NULL, issue_id TEXT NOT NULL, holder TEXT,
                         token INTEGER NOT NULL, acquired_at INTEGER, expires_at INTEGER,
                         PRIMARY KEY (repo, issue_id));
                     INSERT INTO leases VALUES ('r.git', '1', NULL, 7, 1, NULL),
                                               ('r.git', '9', 'old', 3, 1, NULL);",
                )
                .unwrap();
            drop(older);
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    /// Takes all steps in `folder`, and tells of each one that is acknowledged.
    fn play(self, folder: &Path, mut acknowledged: impl FnMut(usize)) {
        let file = folder.join("collab.db");
        let open = || forge_with(SqliteLedger::open(&file).unwrap(), &file);
        let stays = (self == Scene::Stays).then(open);
        for (number, (who, words)) in self.steps().into_iter().enumerate() {
            let called = stays.is_none().then(open);
            let forge = stays.as_ref().or(called.as_ref()).unwrap();
            let said = match (who, words) {
                ("host", "backup") => {
                    forge.ask_as_host(&format!("backup {}", folder.join("copy.db").display()))
                }
                ("host", words) => forge.ask_as_host(words),
                (who, words) => forge.ask(who, words),
            };
            assert!(matches!(said.exit, 0 | 4), "{words}: {said:?}");
            drop(called);
            acknowledged(number + 1);
        }
    }
}

/// What a process of the test below does.
#[test]
#[ignore = "a process that another test starts"]
fn process() {
    let Ok(said) = std::env::var(PROCESS) else {
        return;
    };
    let (scene, folder) = said.split_once(' ').unwrap();
    let scene = SCENES[scene.parse::<usize>().unwrap()];
    let folder = Path::new(folder);
    scene.play(folder, |number| {
        // The recording shows it, in its place.
        fs::write(folder.join(ACKNOWLEDGED), number.to_string()).unwrap();
    });
}

/// The file whose writing stands for the reply to a client.
const ACKNOWLEDGED: &str = "acknowledged";

/// What a process of its own writes as it plays `scene`, onto what lies in
/// `folder`.
fn record(scene: Scene, library: &Path, folder: &Path, log: &Path) -> Vec<Record> {
    let number = SCENES.iter().position(|other| *other == scene).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "power::process", "--ignored", "--nocapture"])
        .env(PROCESS, format!("{number} {}", folder.display()))
        .env("LD_PRELOAD", library)
        .env("WRITTEN_BELOW", folder)
        .env("WRITTEN_LOG", log)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    disk::read(log)
}

/// The library that records.
fn recorder(folder: &Path) -> PathBuf {
    let library = folder.join("written.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/written.c");
    let compiled = Command::new("cc")
        .args([
            "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o",
        ])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success());
    library
}

/// What a ledger holds, without what is random; nothing if there is none.
fn told(ledger: &SqliteLedger) -> Result<Vec<String>, LedgerError> {
    let when = When {
        clock: &|| Now(START * 1_000),
        deadline: Instant::now() + Duration::from_secs(10),
    };
    let mut told = Vec::new();
    ledger.read(when, &mut |view| {
        for repo in ["r.git", "s.git"] {
            for issue in ["1", "2", "3", "4", "9"] {
                let claim = view.claim(repo, &issue.parse().unwrap())?;
                let held = claim
                    .tenure
                    .map(|t| (t.holder, t.expires_at, t.seq, t.note));
                let (token, generation) = (claim.token, claim.generation);
                told.push(format!("{repo} {issue}: {token} {generation} {held:?}"));
            }
            let live = view.live(repo, &Filter::default())?;
            let live: Vec<_> = live
                .iter()
                .map(|(issue, claim)| (issue, claim.token))
                .collect();
            told.push(format!("{repo} live: {live:?}"));
            for (issue, ended) in view.history(repo, None, None)? {
                told.push(format!(
                    "{repo} was: {issue} {} {:?}",
                    ended.token, ended.how
                ));
            }
        }
        Ok(())
    })?;
    Ok(told)
}

/// What the ledger in `folder` holds; it must be sound, and go on.
fn open(folder: &Path) -> Result<Vec<String>, String> {
    let file = folder.join("collab.db");
    let ledger = SqliteLedger::open(&file).map_err(|error| error.to_string())?;
    let told = told(&ledger).map_err(|error| error.to_string())?;
    let said = forge_with(ledger, &file).ask("zoe", "acquire r.git after --session z");
    if said.exit != 0 {
        return Err(said.stderr);
    }
    let connection = Connection::open(&file).unwrap();
    let integrity: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    if integrity == "ok" {
        Ok(told)
    } else {
        Err(integrity)
    }
}

/// A forge over a ledger that is open.
fn forge_with(ledger: SqliteLedger, file: &Path) -> Forge {
    let repos = ["r.git", "s.git"].map(|repo| (repo.to_owned(), None));
    let engine = Sqlite {
        path: file.to_owned(),
    };
    let dir = TempDir::new().unwrap();
    Forge::with_ledger(dir, engine, Box::new(ledger), repos.to_vec())
}

/// What was tried: moments of a cut, and disks that differ.
#[derive(Debug, Default)]
struct Tried {
    cuts: usize,
    disks: usize,
}

/// Tries the disks that a power cut may leave behind each of `records`.
///
/// # Errors
/// The first that is not as it must be.
fn cut(
    scene: Scene,
    mut disk: Disk,
    records: &[Record],
    expected: &[Vec<String>],
) -> Result<Tried, String> {
    let mut acknowledged = 0;
    let mut seen = BTreeSet::new();
    let mut tried = Tried::default();
    let mut random = Random::new();
    for (at, record) in records.iter().enumerate() {
        if record.name == ACKNOWLEDGED {
            acknowledged += usize::from(record.is_write());
        } else {
            disk.apply(record);
        }
        let is_last = at + 1 == records.len();
        if !is_last && !scene.is_cut_at(at, record) {
            continue;
        }
        tried.cuts += 1;
        for files in disks(&disk, &mut random) {
            let mut hasher = DefaultHasher::new();
            (&files, acknowledged).hash(&mut hasher);
            if !seen.insert(hasher.finish()) {
                continue;
            }
            tried.disks += 1;
            scene
                .look_at(&files, acknowledged, expected)
                .map_err(|why| {
                    let sizes = files.iter().map(|(name, content)| (name, content.len()));
                    let sizes: Vec<_> = sizes.collect();
                    format!(
                        "{scene:?}, cut behind {at}, {acknowledged} acknowledged, {sizes:?}: {why}"
                    )
                })?;
        }
    }
    Ok(tried)
}

impl Scene {
    /// Most of what a process does that stays is the same again and again: in a
    /// short run, not every moment of it is tried.
    fn is_cut_at(self, at: usize, record: &Record) -> bool {
        let is_long = std::env::var_os("TORTURE_OPERATIONS").is_some();
        let is_worth_it = match self {
            Scene::Stays => is_long || at.is_multiple_of(36) || record.name == "collab.db",
            Scene::Calls | Scene::Older | Scene::Backup => true,
        };
        is_worth_it && record.name != ACKNOWLEDGED
    }

    /// Whether the disk with `files` holds what was acknowledged, and nothing
    /// that nobody asked for.
    fn look_at(
        self,
        files: &Files,
        acknowledged: usize,
        expected: &[Vec<String>],
    ) -> Result<(), String> {
        let told = open_among(files, "collab.db")?;
        // What was under way may be there as a whole, or not at all.
        let may_be = &expected[acknowledged..expected.len().min(acknowledged + 2)];
        if !may_be.contains(&told) {
            return Err(format!("{told:#?}, not {may_be:#?}"));
        }
        if self.steps()[..acknowledged].contains(&("host", "backup"))
            && open_among(files, "copy.db")? != expected[acknowledged]
        {
            return Err("the copy is not whole".to_owned());
        }
        Ok(())
    }
}

/// What the ledger `name` holds, which lies on a disk with `files`.
fn open_among(files: &Files, name: &str) -> Result<Vec<String>, String> {
    let place = memory();
    for (file, content) in files {
        // A copy is put in the ledger's place before it is used.
        let Some(rest) = file.strip_prefix(name) else {
            continue;
        };
        let file = place.path().join(format!("collab.db{rest}"));
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    open(place.path())
}

type Files = BTreeMap<String, Vec<u8>>;

/// Disks as a cut may leave them now: all that was written, nothing of it, all
/// but one change, one change alone, the last one torn, and some at random.
fn disks(disk: &Disk, random: &mut Random) -> Vec<Files> {
    let whole = |is_there: bool| is_there.then_some(Part::Whole);
    let count = disk.pending();
    let mut disks = vec![disk.files(|_| Some(Part::Whole)), disk.files(|_| None)];
    for one in 0..count {
        disks.push(disk.files(|at| whole(at != one)));
        disks.push(disk.files(|at| whole(at == one)));
    }
    for part in [Part::Head, Part::Tail] {
        disks.push(disk.files(|at| Some(if at + 1 == count { part } else { Part::Whole })));
    }
    for _ in 0..2 {
        let chosen: Vec<u64> = (0..count).map(|_| random.below(4)).collect();
        disks.push(disk.files(|at| match chosen[at] {
            0 => None,
            1 => Some(Part::Head),
            2 => Some(Part::Tail),
            _ => Some(Part::Whole),
        }));
    }
    disks
}

/// A folder where syncing costs nothing.
fn memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory).unwrap()
    } else {
        TempDir::new().unwrap()
    }
}

/// Plays, records and cuts; `drops` says which syncs did nothing.
fn try_scene(scene: Scene, drops: impl Fn(&Record) -> bool) -> Result<Tried, String> {
    let dir = memory();
    let library = recorder(dir.path());
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        scene.prepare(&folder);
        folder
    };
    // The same without a cut tells what has to be there.
    let plain = folder("plain");
    let now = || told(&SqliteLedger::open(&plain.join("collab.db")).unwrap()).unwrap();
    let mut expected = vec![now()];
    scene.play(&plain, |_| expected.push(now()));

    let played = folder("played");
    let disk = Disk::with(&played);
    let mut records = record(scene, &library, &played, &dir.path().join("log"));
    records.retain(|record| !(record.is_sync() && drops(record)));
    cut(scene, disk, &records, &expected)
}

fn survives(scene: Scene) {
    let tried = try_scene(scene, |_| false).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{scene:?}: {tried:?}");
    assert!(tried.disks > 100, "{tried:?}");
}

#[test]
fn one_process_a_request_loses_nothing() {
    survives(Scene::Calls);
}

#[test]
fn a_process_that_stays_loses_nothing() {
    survives(Scene::Stays);
}

#[test]
fn an_older_servers_file_is_brought_up_to_date_as_a_whole() {
    survives(Scene::Older);
}

#[test]
fn a_copy_that_was_acknowledged_is_whole() {
    survives(Scene::Backup);
}

#[test]
fn syncs_that_do_nothing_are_found() {
    for name in ["collab.db-wal", "collab.db", "."] {
        let tried = try_scene(Scene::Calls, |record| record.name == name);
        assert!(tried.is_err(), "{name}: {tried:?}");
    }
}

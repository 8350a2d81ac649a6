//! A ledger that moves: killed at any step it is nowhere twice, and gets through
//! when it is moved again; whoever writes meanwhile is refused.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use git_claim_api::ledger::LedgerPlace;
use git_claim_plugin::claim::Now;
use git_claim_plugin::ledger::{Contents, When};
use rustix::process::Signal;

use crate::engines::Placed;
use crate::etcd::Cluster;
use crate::support::{Forge, START};

/// Says to a process of this test what to move, and where to.
const PROCESS: &str = "MOVES_PROCESS";

fn forge(place: &LedgerPlace) -> Forge<Placed> {
    let repos = ["r.git", "other.git"].map(|repo| (repo.to_owned(), None));
    let place = Placed(place.clone());
    Forge::with(TempDir::new().unwrap(), place, repos.to_vec())
}

fn when() -> When<'static> {
    When {
        clock: &|| Now(START * 1_000),
        deadline: Instant::now() + Duration::from_secs(10),
    }
}

fn contents(place: &LedgerPlace) -> Contents {
    forge(place).ledger.contents(when()).unwrap()
}

fn are_equal(one: &Contents, other: &Contents) {
    assert_eq!(one.differs_from(other), None);
}

/// A ledger with a bit of everything, in a file.
fn eventful(file: &Path) -> LedgerPlace {
    let place = LedgerPlace::File(file.to_owned());
    let forge = forge(&place);
    for words in [
        "acquire r.git 1 --ttl 600 --session s --note a%20b",
        "acquire r.git 2 --session s --request q1",
        "release r.git 2 --session s",
        "acquire r.git 2 --session t --branch claim/2 --worktree /w --machine m",
        "acquire other.git 1 --session s",
        "release other.git 1 --session s",
    ] {
        assert_eq!(forge.ask("ann", words).exit, 0, "{words}");
    }
    place
}

fn moves(from: &LedgerPlace, to: &LedgerPlace) -> u8 {
    let said = forge(from).ask_as_host(&format!("migrate {to}"));
    assert!(matches!(said.exit, 0 | 6), "{said:?}");
    said.exit
}

/// Whether whoever asks there is shown the claims.
fn serves(place: &LedgerPlace) -> bool {
    // To look makes no file; an empty ledger would be seen where there is none.
    if place.file().is_some_and(|file| !file.exists()) {
        return false;
    }
    let said = forge(place).ask("ann", "list r.git");
    assert!(matches!(said.exit, 0 | 6), "{said:?}");
    said.exit == 0
}

/// What a process of the test below does.
#[test]
#[ignore = "a process that another test starts"]
fn process() {
    let Ok(said) = std::env::var(PROCESS) else {
        return;
    };
    let (from, to) = said.split_once(' ').unwrap();
    assert_eq!(moves(&from.parse().unwrap(), &to.parse().unwrap()), 0);
}

/// The library that kills a process.
fn killer(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/moves/killed.c");
    let library = folder.join("killed.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(&library)
        .arg(source)
        .args(["-ldl"])
        .status()
        .unwrap();
    assert!(compiled.success());
    library
}

/// Moves a ledger in a process that is killed behind its step `last`; whether
/// there was none any more.
fn move_killed(from: &LedgerPlace, to: &LedgerPlace, library: &Path, last: u32) -> bool {
    let file = from.file().or(to.file()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "moves::process", "--ignored", "--nocapture"])
        .env(PROCESS, format!("{from} {to}"))
        .env("LD_PRELOAD", library)
        .env("KILLED_BELOW", file.parent().unwrap())
        .env("KILLED_BEHIND", last.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let was_killed = output.status.signal() == Some(Signal::KILL.as_raw());
    assert!(was_killed || output.status.success(), "{output:?}");
    output.status.success()
}

/// Moves a ledger again and again, killed behind each step.
fn survives(prepare: impl Fn(&Path, u32) -> (LedgerPlace, LedgerPlace)) {
    let dir = TempDir::new().unwrap();
    let library = killer(dir.path());
    for last in 1.. {
        let folder = dir.path().join(last.to_string());
        fs::create_dir(&folder).unwrap();
        let (from, to) = prepare(&folder, last);
        let before = contents(&from);
        let is_through = move_killed(&from, &to, &library, last);
        assert!(!(serves(&from) && serves(&to)), "killed behind {last}");
        assert_eq!(moves(&from, &to), 0, "killed behind {last}");
        assert!(!serves(&from) && serves(&to), "killed behind {last}");
        are_equal(&contents(&to), &before);
        if is_through {
            println!("{last} steps");
            assert!(last > 40);
            return;
        }
    }
}

#[test]
fn killed_at_any_step_to_etcd_it_gets_through_when_moved_again() {
    let cluster = Cluster::start(1, &[]);
    survives(|folder, last| {
        let to = cluster.place(&format!("to/{last}"));
        (eventful(&folder.join("collab.db")), to.parse().unwrap())
    });
}

#[test]
fn killed_at_any_step_to_a_file_it_gets_through_when_moved_again() {
    let cluster = Cluster::start(1, &[]);
    survives(|folder, last| {
        let from = cluster.place(&format!("from/{last}")).parse().unwrap();
        let file = folder.join("collab.db");
        assert_eq!(moves(&eventful(&file), &from), 0);
        (from, LedgerPlace::File(file))
    });
}

/// How many claims were taken, and how many given back.
#[derive(Default)]
struct Done {
    taken: AtomicUsize,
    given_back: AtomicUsize,
}

#[test]
fn whoever_writes_while_it_moves_is_refused_and_loses_nothing() {
    let cluster = Cluster::start(1, &[]);
    let dir = TempDir::new().unwrap();
    let file = LedgerPlace::File(dir.path().join("collab.db"));
    let there: LedgerPlace = cluster.place("claims").parse().unwrap();
    let done = Done::default();
    for (from, to) in [(&file, &there), (&there, &file)] {
        let enough = done.given_back.load(Ordering::Relaxed) + 30;
        std::thread::scope(|scope| {
            let writers: Vec<_> = ["a", "b", "c"]
                .map(|name| scope.spawn(|| write(from, name, &done)))
                .into();
            while done.given_back.load(Ordering::Relaxed) < enough {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(moves(from, to), 0);
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let moved = contents(to);
        let count = |done: &AtomicUsize| done.load(Ordering::Relaxed);
        let last_token = moved.rows.iter().map(|(_, _, claim)| claim.token);
        assert_eq!(last_token.sum::<u64>(), count(&done.taken) as u64);
        assert_eq!(moved.past.len(), count(&done.given_back));
    }
}

/// Takes and gives back an issue, until the ledger has moved away.
fn write(place: &LedgerPlace, name: &str, done: &Done) {
    let forge = forge(place);
    loop {
        for (verb, count) in [("acquire", &done.taken), ("release", &done.given_back)] {
            let said = forge.ask(name, &format!("{verb} r.git {name} --session s"));
            if said.exit == 6 {
                assert!(said.stderr.contains("has moved to"), "{said:?}");
                return;
            }
            assert_eq!(said.exit, 0, "{said:?}");
            let is_own = said.json()["tenure"] == "own";
            count.fetch_add(usize::from(!is_own), Ordering::Relaxed);
        }
    }
}

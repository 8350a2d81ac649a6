//! What the ledger costs, beside what the disk costs: `make bench`.
//!
//! Every figure is a ratio of two things measured in turn in this one run, so
//! that a slow or a busy machine changes both. The cluster of etcd has three
//! nodes, all on this machine and its disk.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code)] // the tests need more of it
mod etcd;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use git_claim_api::access::Access;
use git_claim_api::ids::{IssueId, Ttl};
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::reply::End;
use git_claim_api::verb::Take;
use git_claim_plugin::claim::{
    self, Acquire, Caller, Claim, Decision, Ended, Now, Release, Situation, Tenure,
};
use git_claim_plugin::ledger::{self, Filter, Ledger, SqliteLedger, Verdict, When};
use rusqlite::Connection;

/// How many pairs each ratio is the median of.
const PAIRS: usize = 101;

/// How many processes queue at one ledger: few, many, more than there should be.
const CROWDS: [usize; 3] = [8, 32, 128];

/// How many of them where the ledger is on etcd.
const WORKERS: usize = 32;

/// For how long they do.
const ROUND: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, ledger, number, issue] = args.as_slice()
        && flag == "--worker"
    {
        work(&ledger.parse().unwrap(), number, issue);
        return ExitCode::SUCCESS;
    }
    let mut table = Table::default();
    one_call(&mut table);
    one_process(&mut table);
    contention(&mut table);
    listing(&mut table);
    on_etcd(&mut table);
    table.print()
}

/// The rows of the result: what, the target, the ratio, and whether it is met.
#[derive(Default)]
struct Table {
    rows: Vec<(String, String, f64, bool)>,
}

impl Table {
    fn at_most(&mut self, what: &str, unit: &str, ratio: f64, most: f64) {
        self.rows.push((
            what.into(),
            format!("≤ {most} × {unit}"),
            ratio,
            ratio <= most,
        ));
    }

    fn at_least(&mut self, what: &str, unit: &str, ratio: f64, least: f64) {
        self.rows.push((
            what.into(),
            format!("≥ {least:.2} × {unit}"),
            ratio,
            ratio >= least,
        ));
    }

    /// What is there to be compared, without a target.
    fn beside(&mut self, what: &str, unit: &str, ratio: f64) {
        self.rows
            .push((what.into(), format!("(× {unit})"), ratio, true));
    }

    fn print(&self) -> ExitCode {
        println!("{:<44} {:>8}  {:<36}", "the ledger", "measured", "target");
        for (what, target, ratio, is_met) in &self.rows {
            let mark = if *is_met { "" } else { "  MISSED" };
            println!("{what:<44} {ratio:>8.2}  {target:<36}{mark}");
        }
        if self.rows.iter().all(|row| row.3) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// One appending write and fdatasync, on the disk of the ledger.
struct Appender(File);

impl Appender {
    fn in_dir(dir: &Path) -> Appender {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join("appended"))
            .unwrap();
        Appender(file)
    }

    fn append(&mut self) {
        self.0.write_all(&[0x55; 256]).unwrap();
        self.0.sync_data().unwrap();
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The median of `a` divided by `b`, each run in turn.
fn ratio(mut a: impl FnMut(), mut b: impl FnMut()) -> f64 {
    let mut ratios: Vec<f64> = (0..PAIRS)
        .map(|_| {
            let first = timed(&mut a);
            let second = timed(&mut b);
            first / second
        })
        .collect();
    quantile(&mut ratios, 0.5)
}

fn quantile(values: &mut [f64], at: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * at).round() as usize]
}

fn caller(name: &str) -> Caller {
    Caller {
        name: name.to_owned(),
        profile: Some("SHA256:bench".to_owned()),
        session: Some("bench".parse().unwrap()),
        access: Access::Write,
    }
}

fn now() -> Now {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    Now(i64::try_from(since.as_millis()).unwrap())
}

/// By this machine's clock, and over after so many seconds.
fn within(seconds: u64) -> When<'static> {
    When {
        clock: &now,
        deadline: Instant::now() + Duration::from_secs(seconds),
    }
}

/// Takes or extends a claim, as the verb does.
fn acquire(ledger: &dyn Ledger, repo: &str, issue: &IssueId, caller: &Caller) {
    let take = Take {
        ttl: Some(Ttl::new(3_600).unwrap()),
        ..Take::default()
    };
    change(ledger, repo, issue, |situation, seq| {
        let ask = Acquire {
            caller,
            take: &take,
            default_ttl: Ttl::new(7_200).unwrap(),
            title: None,
            lease_id: "0123456789abcdef0123456789abcdef",
            seq,
            request_ended: false,
            binding: None,
        };
        match claim::acquire(situation, &ask, now()) {
            Decision::Change { claim, ended, .. } => (claim, ended),
            other => panic!("{other:?}"),
        }
    });
}

/// Takes a claim from whoever holds it.
fn take_from_anybody(ledger: &dyn Ledger, repo: &str, issue: &IssueId, caller: &Caller) {
    change(ledger, repo, issue, |situation, _| {
        let before = &situation.claim;
        let after = Claim {
            token: before.token + 1,
            generation: before.generation + 1,
            tenure: Some(Tenure {
                holder: caller.name.clone(),
                ..tenure(now().floor(), None, before.token + 1)
            }),
        };
        let tenure = before.tenure.as_ref();
        (after, tenure.map(|tenure| tenure.expired(before.token)))
    });
}

fn release(ledger: &dyn Ledger, repo: &str, issue: &IssueId, caller: &Caller) {
    change(ledger, repo, issue, |situation, _| {
        let ask = Release {
            caller,
            token: None,
            force: None,
        };
        match claim::release(situation, &ask, now()) {
            Decision::Change { claim, ended, .. } => (claim, ended),
            other => panic!("{other:?}"),
        }
    });
}

fn change(
    ledger: &dyn Ledger,
    repo: &str,
    issue: &IssueId,
    decide: impl Fn(&Situation, u64) -> (Claim, Option<Ended>),
) {
    ledger
        .change(within(10), &mut |transaction| {
            let situation = Situation {
                claim: transaction.claim(repo, issue)?,
                callers_last: None,
            };
            let seq = transaction.next_seq()?;
            let (mut claim, ended) = decide(&situation, seq);
            transaction.store(repo, issue, &mut claim, ended.as_ref())?;
            Ok(Verdict::Commit)
        })
        .unwrap();
}

/// A tenure of ann's since `acquired_at`.
fn tenure(acquired_at: i64, expires_at: Option<i64>, seq: u64) -> Tenure {
    Tenure {
        holder: "ann".to_owned(),
        profile: None,
        session: None,
        seq: Some(seq),
        acquired_at,
        expires_at,
        ttl: expires_at.map(|_| Ttl::new(60).unwrap()),
        heartbeat_at: Some(acquired_at),
        heartbeat_count: 0,
        note: None,
        title: None,
        lease_id: Some(format!("{seq:032x}")),
        request: None,
        binding: None,
        recovery: None,
    }
}

/// Open, take, close: the ledger's part of one server call.
fn one_call(table: &mut Table) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("collab.db");
    let mut appender = Appender::in_dir(dir.path());
    let ann = caller("ann");
    let issue = "1".parse().unwrap();
    let measured = ratio(
        || acquire(&SqliteLedger::open(&path).unwrap(), "r.git", &issue, &ann),
        || appender.append(),
    );
    table.at_most(
        "open, acquire, close",
        "an appending fdatasync",
        measured,
        7.0,
    );
    let bare = dir.path().join("bare.db");
    make_bare(&bare);
    let measured = ratio(|| change_bare(&open_bare(&bare)), || appender.append());
    table.beside(
        "the same of one number in SQLite",
        "an appending fdatasync",
        measured,
    );
}

/// The same in a process that stays.
fn one_process(table: &mut Table) {
    let dir = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(&dir.path().join("collab.db")).unwrap();
    let mut appender = Appender::in_dir(dir.path());
    let ann = caller("ann");
    let issue = "1".parse().unwrap();
    let measured = ratio(
        || acquire(&ledger, "r.git", &issue, &ann),
        || appender.append(),
    );
    table.at_most(
        "acquire in a process that stays",
        "an appending fdatasync",
        measured,
        1.5,
    );
    let bare = dir.path().join("bare.db");
    make_bare(&bare);
    let bare = open_bare(&bare);
    let measured = ratio(|| change_bare(&bare), || appender.append());
    table.beside(
        "the same of one number in SQLite",
        "an appending fdatasync",
        measured,
    );
}

/// The least that can be kept as the ledger is: one number in a file of SQLite's.
/// What it costs is the disk's and SQLite's; the rest is ours.
fn make_bare(path: &Path) {
    Connection::open(path)
        .and_then(|bare| {
            bare.execute_batch(
                "PRAGMA journal_mode = WAL;
                 CREATE TABLE bare (number INTEGER);
                 INSERT INTO bare VALUES (0)",
            )
        })
        .unwrap();
}

fn open_bare(path: &Path) -> Connection {
    let bare = Connection::open(path).unwrap();
    bare.pragma_update(None, "synchronous", "FULL").unwrap();
    bare
}

fn change_bare(bare: &Connection) {
    bare.execute_batch("BEGIN IMMEDIATE; UPDATE bare SET number = number + 1; COMMIT")
        .unwrap();
}

/// Many processes, each opening, changing and closing the one ledger.
fn contention(table: &mut Table) {
    let dir = TempDir::new().unwrap();
    let place = LedgerPlace::File(dir.path().join("collab.db"));
    let mut appender = Appender::in_dir(dir.path());
    for workers in CROWDS {
        let appends_before = appends_in(&mut appender, ROUND / 3);
        let crowd = crowd(&place, Crowd::EachItsOwn, 1, workers);
        let appends_after = appends_in(&mut appender, ROUND / 3);
        let appends = f64::midpoint(appends_before, appends_after);
        println!("in a file, {crowd}; {appends:.0} fdatasyncs a second");
        table.at_most(
            &format!("{workers} processes: p99"),
            "p50",
            crowd.p99 / crowd.p50,
            8.0,
        );
        table.at_least(
            &format!("{workers} processes: slowest worker"),
            "the median one",
            crowd.least / crowd.median,
            1.0 / 3.0,
        );
        table.at_least(
            &format!("{workers} processes: changes"),
            "appending fdatasyncs",
            crowd.rate / appends,
            0.35,
        );
    }
}

/// What many processes do at once.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    /// Each takes and gives back an issue of its own.
    EachItsOwn,
    /// All take one issue from each other.
    OneIssue,
}

/// How many processes got on.
struct Measured {
    workers: usize,
    /// Changes a second.
    rate: f64,
    /// Seconds.
    p50: f64,
    p99: f64,
    /// Changes of the process with the fewest, and of the median one.
    least: f64,
    median: f64,
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} processes, {:.0} changes a second, p50 {:.1} ms, p99 {:.1} ms",
            self.workers,
            self.rate,
            self.p50 * 1_000.0,
            self.p99 * 1_000.0
        )
    }
}

/// Has so many processes, of so many front ends, change the ledger at `place`.
fn crowd(place: &LedgerPlace, what: Crowd, front_ends: usize, workers: usize) -> Measured {
    let folders: Vec<TempDir> = (0..front_ends).map(|_| TempDir::new().unwrap()).collect();
    let processes: Vec<_> = (0..workers)
        .map(|number| {
            let issue = match what {
                Crowd::EachItsOwn => number.to_string(),
                Crowd::OneIssue => "one".to_owned(),
            };
            Command::new(std::env::current_exe().unwrap())
                .args(["--worker", &place.to_string(), &number.to_string(), &issue])
                // Where the processes of one machine wait in line.
                .env("TMPDIR", folders[number % front_ends].path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut all = Vec::new();
    let mut counts = Vec::new();
    let mut failures = 0_u32;
    for mut worker in processes {
        let mut said = String::new();
        let mut stdout = worker.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        if !worker.wait().unwrap().success() {
            failures += 1;
        }
        let times: Vec<f64> = said.lines().map(|line| line.parse().unwrap()).collect();
        counts.push(times.len() as f64);
        all.extend(times);
    }
    assert_eq!(failures, 0, "a worker failed");
    Measured {
        workers,
        rate: all.len() as f64 / ROUND.as_secs_f64(),
        p50: quantile(&mut all.clone(), 0.5),
        p99: quantile(&mut all, 0.99),
        least: quantile(&mut counts.clone(), 0.0),
        median: quantile(&mut counts, 0.5),
    }
}

/// How many appends a second one process makes.
fn appends_in(appender: &mut Appender, time: Duration) -> f64 {
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < time {
        appender.append();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// A change of an issue.
type Step = fn(&dyn Ledger, &str, &IssueId, &Caller);

/// One of the processes: prints the seconds of each of its changes.
fn work(place: &LedgerPlace, number: &str, issue: &str) {
    let worker = caller(&format!("worker{number}"));
    let is_shared = issue != number;
    let issue: IssueId = issue.parse().unwrap();
    let steps: &[Step] = if is_shared {
        &[take_from_anybody]
    } else {
        &[acquire, release]
    };
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < ROUND {
        for step in steps {
            let time = timed(|| step(&*open(place), "r.git", &issue, &worker));
            times.push(time);
        }
    }
    for time in times {
        println!("{time}");
    }
}

fn open(place: &LedgerPlace) -> Box<dyn Ledger> {
    let settings = serde_json::json!({ "ledger": place });
    ledger::open(&serde_json::from_value(settings).unwrap()).unwrap()
}

/// The live claims of a repository among a million rows that are dead, and among
/// a few.
fn listing(table: &mut Table) {
    let dir = TempDir::new().unwrap();
    for (live, few) in [(20, 1_000), (1_000, 10_000)] {
        let open = |rows: u32| -> SqliteLedger {
            let path: PathBuf = dir.path().join(format!("{live}-of-{rows}.db"));
            let ledger = SqliteLedger::open(&path).unwrap();
            fill(&ledger, rows, live);
            ledger
        };
        let (many, few_of_them) = (open(1_000_000), open(few));
        let list = |ledger: &SqliteLedger| {
            ledger
                .read(within(10), &mut |view| {
                    let found = view.live("r.git", &Filter::default())?;
                    assert_eq!(found.len(), live as usize);
                    Ok(())
                })
                .unwrap();
        };
        let mut times = Vec::new();
        let measured = ratio(|| times.push(timed(|| list(&many))), || list(&few_of_them));
        table.at_most(
            &format!("list {live} live of 1,000,000 rows"),
            &format!("of {few} rows"),
            measured,
            2.0,
        );
        table.at_most(
            &format!("list {live} live of 1,000,000 rows"),
            "1 ms",
            quantile(&mut times, 0.5) * 1_000.0,
            5.0,
        );
    }
}

/// `rows` claims, of which the first `live` live; the others ran out or were given
/// back.
fn fill(ledger: &SqliteLedger, rows: u32, live: u32) {
    let now = now().floor();
    ledger
        .change(within(600), &mut |transaction| {
            for number in 0..rows {
                let expires_at = if number < live { now + 3_600 } else { now - 60 };
                let tenure = tenure(now - 120, Some(expires_at), u64::from(number) + 1);
                let is_released = number % 2 == 1 && number >= live;
                let issue: IssueId = number.to_string().parse().unwrap();
                let mut claim = Claim {
                    token: 1,
                    generation: 1,
                    tenure: Some(tenure.clone()),
                };
                transaction.store("r.git", &issue, &mut claim, None)?;
                if is_released {
                    claim.tenure = None;
                    let ended = Ended {
                        token: 1,
                        tenure,
                        ended_at: now - 60,
                        how: End::Released,
                        by: None,
                        why: None,
                    };
                    transaction.store("r.git", &issue, &mut claim, Some(&ended))?;
                }
            }
            Ok(Verdict::Commit)
        })
        .unwrap();
}

/// The same ledger on etcd beside the one in a file.
fn on_etcd(table: &mut Table) {
    let cluster = etcd::Cluster::start_on_disk(3);
    cluster.leader();
    let there: LedgerPlace = cluster.place("claims").parse().unwrap();
    open(&there).create(within(10)).unwrap();
    let dir = TempDir::new().unwrap();
    let here = LedgerPlace::File(dir.path().join("collab.db"));
    let ann = caller("ann");
    let issue = "anns".parse().unwrap();
    let acquire_at = |place| acquire(&*open(place), "r.git", &issue, &ann);
    let measured = ratio(|| acquire_at(&there), || acquire_at(&here));
    table.at_most("open, acquire, close on etcd", "in a file", measured, 5.0);

    let each = crowd(&there, Crowd::EachItsOwn, 4, WORKERS);
    println!("on etcd, each its own issue, {each}");
    for front_ends in [1, 4] {
        let one = crowd(&there, Crowd::OneIssue, front_ends, WORKERS);
        println!("on etcd, one issue, {front_ends} front ends, {one}");
        table.at_least(
            &format!("one issue, {front_ends} front ends: slowest worker"),
            "the median one",
            one.least / one.median,
            1.0 / 3.0,
        );
    }
}

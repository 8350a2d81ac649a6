//! Ledgers with many rows: ten thousand, or ten million in `make torture`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use rusqlite::Connection;

use crate::support::direct::{reply, server};
use crate::support::failing_disk::{FailingDisk, Fault};
use crate::support::forge::{Forge, REPO};
use crate::support::ledger::Ledger;
use crate::support::{issue, programs};

/// Who still holds something of all that there ever was.
const LIVE: usize = 1_000;

/// `few` rows, or `many` in the long run.
fn rows(few: i64, many: i64) -> i64 {
    if std::env::var_os("TORTURE_OPERATIONS").is_some() {
        many
    } else {
        few
    }
}

/// A command of the administrator's.
fn administer(forge: &Forge, command: &str, files: &[&Path]) -> Output {
    Command::new(programs::server())
        .args([command, "--config"])
        .arg(forge.config())
        .args(files)
        .output()
        .unwrap()
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    println!("{what}: {:?}", began.elapsed());
    done
}

#[test]
fn a_ledger_of_many_rows_serves_as_one_of_few() {
    let count = rows(10_000, 10_000_000);
    let forge = Forge::without_sshd("\twrite = *\n");
    let acquire = |issue: &str| format!("acquire {REPO} {issue} --session s --ttl 86400");
    reply(server(&forge, &acquire(issue::CRASH)));
    let ledger = forge.ledger();
    timed(&format!("{count} rows made"), || {
        let connection = ledger.connection();
        connection
            .execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000;")
            .unwrap();
        // As the claim before them; most have run out long ago.
        connection
            .execute_batch(&format!(
                "CREATE TEMP TABLE one AS SELECT * FROM leases;
                 WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
                 INSERT INTO leases (repo, issue_id, holder, token, acquired_at, expires_at,
                                     written_token, session, seq, ttl)
                 SELECT repo, printf('%08x', n), 'ann', 7, acquired_at,
                        iif(n <= {LIVE}, expires_at, acquired_at - n), 7, 'old', n + 1, 600
                 FROM one, n;
                 UPDATE ledger SET next_seq = {count} + 2;"
            ))
            .unwrap();
    });
    let size = fs::metadata(ledger.file()).unwrap().len();
    println!("{} MiB", size >> 20);
    for _ in 0..3 {
        let list = timed("list", || reply(server(&forge, &format!("list {REPO}"))));
        assert_eq!(list["leases"].as_array().unwrap().len(), LIVE + 1);
        timed("acquire", || reply(server(&forge, &acquire(issue::REVIEW))));
        let release = format!("release {REPO} {} --session s", issue::REVIEW);
        timed("release", || reply(server(&forge, &release)));
    }
    let copy = forge.dir().join("copy.db");
    timed("backup", || {
        let output = administer(&forge, "backup", &[&copy]);
        assert!(output.status.success(), "{output:?}");
    });
    let found: i64 = Ledger::at(copy)
        .connection()
        .query_row("SELECT count(*) FROM leases", [], |row| row.get(0))
        .unwrap();
    // Those that were made, and the two that were claimed.
    assert_eq!(found, count + 2);
}

/// A file as an older server left it.
fn make_older(file: &Path, count: i64) {
    let older = Connection::open(file).unwrap();
    older
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF;
             CREATE TABLE leases (repo TEXT NOT NULL, issue_id TEXT NOT NULL, holder TEXT,
                 token INTEGER NOT NULL, acquired_at INTEGER, expires_at INTEGER,
                 PRIMARY KEY (repo, issue_id));
             INSERT INTO leases VALUES ('{REPO}', '{}', NULL, 7, 1, NULL);
             WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
             INSERT INTO leases
             SELECT '{REPO}', printf('%08x', n), iif(n % 3 = 0, NULL, 'ann'), n, 1,
                    iif(n % 2 = 0, 2, NULL)
             FROM n;",
            issue::CRASH
        ))
        .unwrap();
    drop(older);
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// How many rows there are, and what a lost or lowered token would change.
fn tokens(file: &Path) -> (i64, i64) {
    Ledger::at(file.to_owned())
        .connection()
        .query_row(
            "SELECT count(*), sum(token * (length(issue_id) + 3)) FROM leases",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap()
}

#[test]
fn an_upgrade_that_is_killed_at_any_step_loses_no_token() {
    let count = rows(10_000, 1_000_000);
    let folder = TempDir::new().unwrap();
    let older = folder.path().join("older.db");
    make_older(&older, count);
    let expected = tokens(&older);
    let forge = Forge::in_memory("\twrite = *\n");
    let file = forge.ledger().file().to_owned();
    let disk = FailingDisk::new(forge.dir(), &file);
    let list = format!("list {REPO} --limit 1");
    let acquire = format!("acquire {REPO} {} --session s", issue::CRASH);
    let run = |calls, from| {
        for ending in ["-wal", "-shm", "-queue"] {
            let _ = fs::remove_file(forge.repos().join(format!("collab.db{ending}")));
        }
        fs::copy(&older, &file).unwrap();
        let fault = Fault {
            calls,
            from,
            times: 1,
            errno: 0,
        };
        let output = disk
            .under(&mut server(&forge, &list), fault)
            .output()
            .unwrap();
        let was_killed = disk.has_failed();
        assert_eq!(output.status.success(), !was_killed, "{output:?}");
        // Without a deadline, however many rows there are.
        let checked = administer(&forge, "check", &[]);
        assert!(checked.status.success(), "{checked:?}");
        assert_eq!(reply(server(&forge, &acquire))["token"], 8);
        // That one's has risen.
        let weight = i64::try_from(issue::CRASH.len()).unwrap() + 3;
        assert_eq!(tokens(&file), (expected.0, expected.1 + weight));
        was_killed
    };
    let mut kills = 0;
    // Each that is not one of many.
    for calls in ["open", "sync", "truncate", "unlink"] {
        for from in 1.. {
            if !run(calls, from) {
                break;
            }
            kills += 1;
        }
    }
    // How many writes there are is found out as they get more and more.
    let began = Instant::now();
    let mut from = 1;
    while run("write", from) {
        kills += 1;
        // About a tenth further each time, behind the first twenty.
        from += (from / 10).max(1);
        assert!(began.elapsed() < Duration::from_secs(3_600));
    }
    println!("{kills} kills, the last before write {from}");
    assert_eq!(forge.ledger().integrity(), "ok");
}

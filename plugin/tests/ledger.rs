//! Ledger files as other programs leave them: an older server's, a newer one's,
//! damaged ones, and full disks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use git_claim_plugin::claim::Now;
use git_claim_plugin::ledger::{LedgerError, SqliteLedger, Verdict, When};
use rusqlite::{Connection, OptionalExtension};
use serde_json::json;

use crate::support::{Forge, START, memory};

const OLD: &str = "
    CREATE TABLE leases (repo TEXT, issue_id TEXT, holder TEXT, token INTEGER,
                         acquired_at INTEGER, expires_at INTEGER,
                         PRIMARY KEY (repo, issue_id));";

/// The same without types, so that nothing is made of what is put in.
pub const TYPELESS: &str = "
    CREATE TABLE leases (repo, issue_id, holder, token, acquired_at, expires_at,
                         PRIMARY KEY (repo, issue_id));";

/// A file as an older server wrote it, with `rows` in it.
fn old_file(path: &Path, rows: &[&str]) {
    let old = Connection::open(path).unwrap();
    old.execute_batch(OLD).unwrap();
    for row in rows {
        old.execute_batch(&format!("INSERT INTO leases VALUES ({row})"))
            .unwrap();
    }
    drop(old);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A change that has to be over by `deadline`.
fn until(deadline: Instant) -> When<'static> {
    When {
        clock: &|| Now(START * 1_000),
        deadline,
    }
}

pub fn over(dir: TempDir) -> Forge {
    Forge::over(dir, vec![("r.git".to_owned(), None)])
}

#[test]
fn an_older_servers_file_keeps_its_tokens() {
    let dir = TempDir::new().unwrap();
    let end = START + 600;
    old_file(
        &dir.path().join("collab.db"),
        &[
            &format!("'r.git', '1', 'ann', 7, {START} - 60, {end}"),
            &format!("'r.git', '2', NULL, 4, {START} - 60, NULL"),
            &format!("'r.git', '3', 'bob', 2, {START} - 60, NULL"),
        ],
    );
    let forge = over(dir);
    let list = forge.ask("ann", "list r.git").json();
    assert_eq!(list["leases"][0]["issue"], "1");
    assert_eq!(list["leases"][1]["issue"], "3");
    // The first acquire or renew by that name records its session, same token.
    let renewed = forge
        .ask("ann", "renew r.git 1 --ttl 900 --session s1")
        .json();
    assert_eq!(
        (&renewed["token"], &renewed["session"]),
        (&json!(7), &json!("s1"))
    );
    let taken = forge.ask("ann", "acquire r.git 1 --session s2").json();
    assert_eq!(taken["reason"], "other-session");
    assert_eq!(
        forge.ask("ann", "acquire r.git 2 --session s1").json()["token"],
        5
    );
    assert_eq!(forge.ask("cay", "acquire r.git 3 --session s1").exit, 4);
}

#[test]
fn what_an_older_server_writes_later_is_read_as_its_own() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 1 --ttl 60 --session s1 --note old");
    forge.ask("ann", "acquire r.git 2 --ttl 60 --session s1 --note old");
    let other = Connection::open(forge.dir.path().join("collab.db")).unwrap();
    // One server replaces the row, another updates it.
    other
        .execute_batch(&format!(
            "INSERT OR REPLACE INTO leases (repo, issue_id, holder, token, acquired_at, expires_at)
             VALUES ('r.git', '1', 'bob', 2, {START}, NULL);
             UPDATE leases SET holder = 'bob', token = 2, expires_at = NULL
             WHERE issue_id = '2';"
        ))
        .unwrap();
    for issue in ["1", "2"] {
        let shown = forge.ask("bob", &format!("show r.git {issue}")).json();
        assert_eq!(shown["holder"], "bob");
        assert_eq!(shown["token"], 2);
        assert_eq!((&shown["session"], shown.get("note")), (&json!(null), None));
        let missing = shown["missing"].as_array().unwrap();
        assert!(missing.contains(&json!("work_lease.task_session_id")));
        let taken = forge
            .ask("bob", &format!("acquire r.git {issue} --session b"))
            .json();
        assert_eq!(
            (&taken["token"], &taken["tenure"]),
            (&json!(2), &json!("own"))
        );
    }
}

#[test]
fn a_newer_schema_is_refused_untouched() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("collab.db");
    let newer = Connection::open(&path).unwrap();
    newer
        .execute_batch("CREATE TABLE leases (x); PRAGMA user_version = 2;")
        .unwrap();
    drop(newer);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteLedger::open(&path).unwrap_err().to_string();
    assert!(error.contains("schema version 2"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_no_ledger_is_refused_untouched() {
    for (name, content) in [
        ("garbage", vec![0x55; 4_096]),
        ("text", b"this is not a database at all, is it?".repeat(40)),
    ] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("collab.db");
        fs::write(&path, &content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = SqliteLedger::open(&path).unwrap_err().to_string();
        assert!(error.contains("corrupt"), "{name}: {error}");
        assert_eq!(fs::read(&path).unwrap(), content, "{name}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{name}");
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("collab.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE music (title)").unwrap();
    drop(other);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = SqliteLedger::open(&path).unwrap_err().to_string();
    assert!(error.contains("not a ledger of claims"), "{error}");
}

#[test]
fn a_damaged_row_is_an_error_and_never_free() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 1 --session s1");
    let path = forge.dir.path().join("collab.db");
    for damage in [
        "expires_at = 'soon'",
        "session = 'a b'",
        "ttl = -5",
        "acquired_at = x'00'",
        "token = 'many'",
    ] {
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch(&format!("BEGIN; UPDATE leases SET {damage}; COMMIT;"))
            .unwrap();
        let said = forge.ask("bob", "acquire r.git 1 --session b");
        assert_eq!(
            (said.exit, said.stdout.as_str()),
            (6, ""),
            "{damage}: {said:?}"
        );
        assert!(
            said.stderr.contains("issue 1 in r.git is damaged"),
            "{damage}: {said:?}"
        );
        other
            .execute_batch(
                "UPDATE leases SET expires_at = NULL, session = 's1', ttl = NULL,
                                   acquired_at = 1, token = 1",
            )
            .unwrap();
    }
}

/// Each kind of value that SQLite can hold, in a column of any kind.
const VALUES: [&str; 11] = [
    "NULL",
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "1.5",
    "''",
    "'x'",
    "'a' || char(10) || 'b'",
    "x'00ff'",
    "CAST(x'ff41' AS TEXT)",
];

/// What one may ask about the issue 1 of r.git.
const ASKED: [(&str, &str); 15] = [
    ("ann", "list r.git"),
    ("ann", "list r.git --mine --limit 5 --after 1"),
    ("ann", "list r.git --ended"),
    ("ann", "show r.git 1"),
    ("ann", "log r.git"),
    ("ann", "log r.git 1 --limit 3"),
    ("ann", "verify r.git 1 --token 5 --session s1"),
    ("bob", "acquire r.git 1 --session b"),
    ("ann", "acquire r.git 1 --session s1 --request q"),
    ("ann", "renew r.git 1 --ttl 60 --session s1"),
    (
        "ann",
        "acquire r.git 2 --session s1 --branch claim/1 --worktree /w --machine m",
    ),
    (
        "root",
        "acquire r.git 1 --session c --take-over --reason gone --expected-token 5",
    ),
    (
        "root",
        "release r.git 1 --force --reason gone --expected-token 5",
    ),
    ("ann", "release r.git 1 --session s1"),
    ("zoe", "acquire r.git 1 --session z"),
];

/// The token of issue 1's row, and what kind of value it is.
fn token(other: &Connection) -> Option<(String, Option<i64>)> {
    let query = "SELECT typeof(token), token FROM leases
                 WHERE repo = 'r.git' AND issue_id = '1' AND typeof(issue_id) = 'text'";
    other
        .prepare_cached(query)
        .unwrap()
        .query_row([], |row| Ok((row.get(0)?, row.get(1).ok())))
        .optional()
        .unwrap()
}

/// Whatever stands in a column: each request is answered, or the row is named,
/// and no token falls.
pub fn is_bearable(forge: &Forge, what: &str) {
    let other = Connection::open(forge.dir.path().join("collab.db")).unwrap();
    let mut last = token(&other);
    for (who, words) in ASKED {
        let said = forge.ask(who, words);
        match said.exit {
            0 | 1 | 4 => {}
            6 => {
                assert_eq!(said.stdout, "", "{what}, {words}: {said:?}");
                let names_it = ["is damaged", "collab.db failed: "];
                assert!(
                    names_it.iter().any(|why| said.stderr.contains(why)),
                    "{what}, {words}: {said:?}"
                );
            }
            _ => panic!("{what}, {words}: {said:?}"),
        }
        let now = token(&other);
        match (&last, &now) {
            (Some((_, Some(was))), Some((_, Some(is)))) => {
                assert!(is >= was, "{what}, {words}: {was}, {is}");
            }
            // A row that is another repository's or issue's now.
            (None, _) => {}
            _ => assert_eq!(now, last, "{what}, {words}"),
        }
        last = now;
    }
}

#[test]
fn a_value_of_any_kind_in_an_older_servers_row_lowers_no_token() {
    for column in [
        "repo",
        "issue_id",
        "holder",
        "token",
        "acquired_at",
        "expires_at",
    ] {
        for value in VALUES {
            let dir = TempDir::new_in(memory()).unwrap();
            let path = dir.path().join("collab.db");
            let old = Connection::open(&path).unwrap();
            old.execute_batch(&format!(
                "{TYPELESS}
                 INSERT INTO leases VALUES ('r.git', '1', 'ann', 5, {START}, NULL),
                                           ('r.git', '3', 'bob', 5, {START}, NULL);
                 UPDATE leases SET {column} = {value} WHERE issue_id = '1'"
            ))
            .unwrap();
            drop(old);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            is_bearable(&over(dir), &format!("{column} = {value}"));
        }
    }
}

#[test]
fn a_value_of_any_kind_in_any_column_lowers_no_token() {
    // One that has every column filled in, to be copied.
    let made = <Forge>::over(
        TempDir::new_in(memory()).unwrap(),
        vec![("r.git".to_owned(), None)],
    );
    for (who, words) in [
        ("ann", "acquire r.git 1 --ttl 600 --session s1 --note n"),
        ("ann", "release r.git 1 --session s1"),
        (
            "ann",
            "acquire r.git 1 --ttl 600 --session s1 --note n --branch claim/1 --worktree /w --machine m --request q",
        ),
    ] {
        assert_eq!(made.ask(who, words).exit, 0, "{words}");
    }
    let Forge {
        dir: made, ledger, ..
    } = made;
    drop(ledger);
    for table in ["leases", "tenures", "ledger"] {
        let columns: Vec<String> = Connection::open(made.path().join("collab.db"))
            .unwrap()
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for column in columns {
            for value in VALUES {
                let dir = TempDir::new_in(memory()).unwrap();
                let path = dir.path().join("collab.db");
                fs::copy(made.path().join("collab.db"), &path).unwrap();
                let other = Connection::open(&path).unwrap();
                let damage = format!("UPDATE {table} SET {column} = {value}");
                // What the table itself does not take is not there to be read.
                let is_there = other.execute(&damage, []).is_ok();
                drop(other);
                if is_there {
                    is_bearable(&over(dir), &damage);
                }
            }
        }
    }
}

#[test]
fn a_table_that_lacks_a_column_is_an_error_without_the_statement() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 1 --session s1");
    let other = Connection::open(forge.dir.path().join("collab.db")).unwrap();
    other
        .execute_batch("ALTER TABLE leases DROP COLUMN note")
        .unwrap();
    let said = forge.ask("ann", "list r.git");
    assert_eq!(said.exit, 6, "{said:?}");
    assert!(said.stderr.contains("no such column: note\n"), "{said:?}");
}

#[test]
fn a_log_that_was_removed_in_use_is_noticed() {
    for replaced in [false, true] {
        let forge = <Forge>::new();
        forge.ask("ann", "acquire r.git 1 --session s1");
        let log = forge.dir.path().join("collab.db-wal");
        fs::remove_file(&log).unwrap();
        if replaced {
            fs::write(&log, "").unwrap();
        }
        let said = forge.ask("ann", "acquire r.git 2 --session s1");
        assert_eq!((said.exit, said.stdout.as_str()), (6, ""), "{said:?}");
        assert!(
            said.stderr.contains("lost its -wal or -shm file"),
            "{said:?}"
        );
    }
}

#[test]
fn nothing_but_the_file_and_its_queue_is_left() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 1 --session s1");
    let Forge { dir, ledger, .. } = forge;
    drop(ledger);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["collab.db", "collab.db-queue"]);
    for name in names {
        let mode = fs::metadata(dir.path().join(&name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn reading_writes_nothing() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 1 --ttl 5 --session s1");
    let Forge { dir, ledger, .. } = forge;
    drop(ledger);
    let path = dir.path().join("collab.db");
    let before = fs::read(&path).unwrap();
    let forge = over(dir);
    forge.step_ms(60_000);
    for words in [
        "list r.git",
        "list r.git --ended",
        "show r.git 1",
        "log r.git",
        "verify r.git 1 --token 1",
    ] {
        forge.ask("ann", words);
    }
    let Forge { dir, ledger, .. } = forge;
    drop(ledger);
    assert_eq!(fs::read(dir.path().join("collab.db")).unwrap(), before);
}

#[test]
fn looking_makes_no_ledger() {
    let forge = <Forge>::new();
    for words in ["list r.git", "show r.git 1", "log r.git", "whoami r.git"] {
        assert_eq!(forge.ask("ann", words).exit, 0, "{words}");
    }
    assert_eq!(fs::read_dir(forge.dir.path()).unwrap().count(), 0);
    // What was looked at in memory is not what is changed then.
    forge.ask("ann", "acquire r.git 1 --session s1");
    assert_eq!(forge.ask("bob", "show r.git 1").json()["holder"], "ann");
    assert_eq!(fs::read_dir(forge.dir.path()).unwrap().count(), 4);
}

#[test]
fn nothing_is_changed_after_the_deadline() {
    let forge = <Forge>::new();
    let mut was_run = false;
    let outcome = forge.ledger.change(until(Instant::now()), &mut |_| {
        was_run = true;
        Ok(Verdict::Commit)
    });
    assert!(matches!(outcome, Err(LedgerError::Busy)));
    assert!(!was_run);
}

#[test]
fn whoever_waits_longer_than_its_deadline_changes_nothing() {
    let forge = <Forge>::new();
    // A writer that does not queue: an older server.
    let other = Connection::open(forge.dir.path().join("collab.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let deadline = Instant::now() + Duration::from_millis(50);
    let outcome = forge
        .ledger
        .change(until(deadline), &mut |_| Ok(Verdict::Commit));
    assert!(matches!(outcome, Err(LedgerError::Busy)), "{outcome:?}");
}

#[test]
fn the_order_of_tenures_and_the_id_outlive_a_restart() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 9 --session s1");
    let id = forge.ledger_id();
    let Forge { dir, ledger, .. } = forge;
    drop(ledger);
    let forge = over(dir);
    assert_eq!(forge.ledger_id(), id);
    forge.ask("ann", "acquire r.git 1 --session s1");
    let list = forge.ask("ann", "list r.git").json();
    assert_eq!(list["leases"][0]["issue"], "9");
}

#[test]
fn the_list_of_live_claims_uses_its_index() {
    let forge = <Forge>::new();
    forge.ask("ann", "acquire r.git 9 --session s1");
    let other = Connection::open(forge.dir.path().join("collab.db")).unwrap();
    let plan: Vec<String> = other
        .prepare(
            "EXPLAIN QUERY PLAN SELECT issue_id FROM leases
             WHERE repo = 'r' AND holder IS NOT NULL AND (NULL IS NULL OR holder = NULL) AND expires_at > 5",
        )
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(
        plan[0].contains("leases_live (repo=? AND expires_at>?)"),
        "{plan:?}"
    );
}

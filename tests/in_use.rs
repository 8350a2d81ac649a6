//! The ledger's files as others treat them while a server has them open:
//! removed, replaced, copied, with other rights; and what a killed one leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection as Sqlite;
use serde_json::{Value, json};

use crate::support::direct::{refused, reply, server};
use crate::support::forge::{Forge, REPO};
use crate::support::ledger::Ledger;
use crate::support::serving::Connection;
use crate::support::{issue, programs};

fn forge() -> Forge {
    Forge::without_sshd("\twrite = *\n")
}

fn serve(forge: &Forge) -> Connection {
    Connection::of(server(forge, &format!("serve {REPO}")))
}

fn acquire(issue: &str) -> String {
    format!("acquire {REPO} {issue} --session s")
}

fn backup(forge: &Forge, file: &Path) {
    let status = Command::new(programs::server())
        .args(["backup", "--config"])
        .arg(forge.config())
        .arg(file)
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
}

/// Whatever is asked, and however often: no answer, but this.
fn says_nothing_but(connection: &mut Connection, why: &str) {
    for _ in 0..2 {
        for ask in [
            json!({"op": "acquire", "issue": issue::REVIEW, "session": "s"}),
            json!({"op": "renew", "issue": issue::CRASH, "session": "s", "ttl": 60}),
            json!({"op": "release", "issue": issue::CRASH, "session": "s"}),
            json!({"op": "list"}),
            json!({"op": "show", "issue": issue::CRASH}),
            json!({"op": "log"}),
            json!({"op": "watch"}),
        ] {
            let said = connection.ask(&ask);
            assert_eq!(said["exit"], 6, "{ask}: {said}");
            let error = said["error"].as_str().unwrap();
            assert!(error.contains(why), "{ask}: {error}");
        }
    }
}

/// A server that holds a claim, and a second one that has looked.
fn two_servers(forge: &Forge) -> [Connection; 2] {
    let mut holds = serve(forge);
    let take = json!({"op": "acquire", "issue": issue::CRASH, "session": "s"});
    assert_eq!(holds.ask(&take)["exit"], 0);
    let mut looks = serve(forge);
    assert_eq!(looks.ask(&json!({"op": "list"}))["exit"], 0);
    [holds, looks]
}

#[test]
fn a_ledger_that_is_removed_in_use_is_noticed() {
    for endings in [&[""][..], &["", "-wal"], &["", "-wal", "-shm", "-queue"]] {
        let forge = forge();
        let mut servers = two_servers(&forge);
        for ending in endings {
            fs::remove_file(forge.repos().join(format!("collab.db{ending}"))).unwrap();
        }
        for server in &mut servers {
            says_nothing_but(server, "was removed while it was in use");
        }
        // Nor is a new one made by them.
        assert!(!forge.ledger().file().exists());
    }
}

#[test]
fn a_ledger_that_is_moved_away_and_back_is_the_same() {
    let forge = forge();
    let mut servers = two_servers(&forge);
    let file = forge.ledger().file().to_owned();
    let away = forge.repos().join("away");
    fs::rename(&file, &away).unwrap();
    for server in &mut servers {
        says_nothing_but(server, "was removed while it was in use");
    }
    fs::rename(&away, &file).unwrap();
    let take = json!({"op": "acquire", "issue": issue::REVIEW, "session": "s"});
    for server in &mut servers {
        assert_eq!(server.ask(&take)["reply"]["token"], 1);
    }
    assert_eq!(forge.ledger().token(issue::CRASH), 1);
}

#[test]
fn a_ledger_that_is_replaced_in_use_is_noticed() {
    let forge = forge();
    let mut servers = two_servers(&forge);
    let copy = forge.repos().join("copy");
    backup(&forge, &copy);
    let take = json!({"op": "acquire", "issue": issue::REVIEW, "session": "s"});
    assert_eq!(servers[0].ask(&take)["reply"]["token"], 1);
    // It has nothing of the last claim.
    fs::rename(&copy, forge.ledger().file()).unwrap();
    for server in &mut servers {
        says_nothing_but(server, "was replaced while it was in use");
    }
    // Nor does one that comes now read it with what is beside it.
    let late = server(&forge, &acquire(issue::CRASH)).output().unwrap();
    refused(&late, "was replaced while it was in use");
    // As the message says.
    for server in servers {
        assert_eq!(server.end(), 0);
    }
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(forge.repos().join(format!("collab.db{ending}")));
    }
    assert_eq!(forge.ledger().integrity(), "ok");
    let list = reply(server(&forge, &format!("list {REPO}")));
    assert_eq!(list["leases"].as_array().unwrap().len(), 1);
}

/// Whoever has them open is the only one who still knows what they hold.
fn loses(endings: &[&str], is_asked_again: bool) {
    let forge = forge();
    let mut servers = two_servers(&forge);
    for ending in endings {
        fs::remove_file(forge.repos().join(format!("collab.db{ending}"))).unwrap();
    }
    // By one that comes now, before it could make new ones.
    let late = server(&forge, &acquire(issue::CRASH)).output().unwrap();
    refused(&late, "has lost its -wal or -shm file");
    if is_asked_again {
        for server in &mut servers {
            let ask = json!({"op": "acquire", "issue": issue::REVIEW, "session": "s"});
            let said = server.ask(&ask);
            assert_eq!(said["exit"], 6, "{said}");
            let error = said["error"].as_str().unwrap();
            assert!(error.contains("has lost its -wal or -shm file"), "{said}");
        }
    }
    for server in servers {
        assert_eq!(server.end(), 0);
    }
    assert_eq!(forge.ledger().integrity(), "ok");
    // What was acknowledged is still there.
    let again = reply(server(&forge, &acquire(issue::CRASH)));
    assert_eq!(
        (&again["token"], &again["tenure"]),
        (&json!(1), &json!("own"))
    );
}

const REMOVED: [&[&str]; 3] = [&["-wal"], &["-shm"], &["-wal", "-shm"]];

#[test]
fn a_log_that_is_removed_in_use_is_noticed() {
    std::thread::scope(|scope| {
        for endings in REMOVED {
            for is_asked_again in [true, false] {
                scope.spawn(move || loses(endings, is_asked_again));
            }
        }
    });
}

/// An older server makes new ones, and knows nothing of whoever has the others.
#[test]
fn what_others_write_into_a_new_log_is_left_alone() {
    for endings in &REMOVED[1..] {
        let forge = forge();
        // In the file already, as nobody else has it open.
        reply(server(&forge, &acquire(issue::UNICODE)));
        let servers = two_servers(&forge);
        for ending in *endings {
            fs::remove_file(forge.repos().join(format!("collab.db{ending}"))).unwrap();
        }
        let older = forge.ledger().connection();
        older
            .execute(
                "INSERT INTO leases (repo, issue_id, holder, token, acquired_at, expires_at)
                 VALUES (?1, 'x', 'bob', 5, 1, NULL)",
                [REPO],
            )
            .unwrap();
        drop(older);
        for server in servers {
            assert_eq!(server.end(), 0);
        }
        assert_eq!(forge.ledger().token("x"), 5);
        assert_eq!(forge.ledger().integrity(), "ok");
    }
}

/// Whoever comes and goes is not the last one who has it open, and takes nothing
/// away.
#[test]
fn whoever_made_the_ledger_keeps_what_is_beside_it() {
    let forge = forge();
    let mut maker = serve(&forge);
    let take = json!({"op": "acquire", "issue": issue::CRASH, "session": "s"});
    assert_eq!(maker.ask(&take)["exit"], 0);
    reply(server(&forge, &acquire(issue::REVIEW)));
    assert!(forge.repos().join("collab.db-wal").exists());
    let renew = json!({"op": "renew", "issue": issue::CRASH, "session": "s", "ttl": 60});
    assert_eq!(maker.ask(&renew)["exit"], 0);
    assert_eq!(maker.end(), 0);
    assert!(!forge.repos().join("collab.db-wal").exists());
}

#[test]
fn rights_that_change_in_use_are_noticed() {
    let forge = forge();
    let mut servers = two_servers(&forge);
    let file = forge.ledger().file().to_owned();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    for server in &mut servers {
        says_nothing_but(server, "may be written by others");
    }
    mode(0o600);
    let take = json!({"op": "acquire", "issue": issue::REVIEW, "session": "s"});
    for server in &mut servers {
        assert_eq!(server.ask(&take)["reply"]["token"], 1);
    }
}

#[test]
fn what_a_killed_server_leaves_is_in_nobodys_way() {
    let forge = forge();
    for mut server in two_servers(&forge) {
        server.kill();
    }
    for ending in ["-wal", "-shm", "-queue"] {
        let left = forge.repos().join(format!("collab.db{ending}"));
        assert!(left.exists(), "{}", left.display());
    }
    let again = reply(server(&forge, &acquire(issue::CRASH)));
    assert_eq!(
        (&again["token"], &again["tenure"]),
        (&json!(1), &json!("own"))
    );
    assert!(!forge.repos().join("collab.db-wal").exists());
}

/// An older server keeps a journal instead: one that was killed in mid-change
/// leaves it, and half of the change in the file.
#[test]
fn an_older_server_killed_in_mid_change_leaves_nothing_of_it() {
    let forge = forge();
    let made = forge.dir().join("made.db");
    let older = Sqlite::open(&made).unwrap();
    older
        .execute_batch(&format!(
            "CREATE TABLE leases (repo TEXT NOT NULL, issue_id TEXT NOT NULL, holder TEXT,
                 token INTEGER NOT NULL, acquired_at INTEGER, expires_at INTEGER,
                 PRIMARY KEY (repo, issue_id));
             INSERT INTO leases VALUES ('{REPO}', '{}', NULL, 7, 1, NULL);
             WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000)
             INSERT INTO leases SELECT '{REPO}', 'old-' || n, 'ann', 7, 1, NULL FROM n;
             PRAGMA cache_size = 5;
             BEGIN;
             UPDATE leases SET token = 1, holder = 'nobody';",
            issue::CRASH
        ))
        .unwrap();
    // As it lies on the disk now.
    let file = forge.ledger().file().to_owned();
    fs::copy(&made, &file).unwrap();
    fs::copy(
        forge.dir().join("made.db-journal"),
        forge.repos().join("collab.db-journal"),
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    older.execute_batch("ROLLBACK").unwrap();
    let half = fs::read(&file).unwrap();
    assert!(
        half != fs::read(&made).unwrap(),
        "nothing was in the file yet"
    );

    assert_eq!(reply(server(&forge, &acquire(issue::CRASH)))["token"], 8);
    let tokens: i64 = forge
        .ledger()
        .connection()
        .query_row("SELECT min(token) FROM leases", [], |row| row.get(0))
        .unwrap();
    assert_eq!(tokens, 7);
    assert_eq!(forge.ledger().integrity(), "ok");
}

/// A plain copy of a file that changes may be anything, and does no harm; what
/// `backup` makes meanwhile is sound and holds all that was acknowledged.
#[test]
fn a_copy_made_in_use_opens_or_is_refused() {
    let forge = forge();
    reply(server(&forge, &acquire(issue::CRASH)));
    let other = Forge::without_sshd("\twrite = *\n");
    let is_over = AtomicBool::new(false);
    let acknowledged = AtomicU64::new(1);
    let mut connection = serve(&forge);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                for op in ["release", "acquire"] {
                    let ask = json!({"op": op, "issue": issue::CRASH, "session": "s"});
                    let said: Value = connection.ask(&ask);
                    assert_eq!(said["exit"], 0, "{said}");
                    if let Some(token) = said["reply"]["token"].as_u64() {
                        acknowledged.store(token, Ordering::SeqCst);
                    }
                }
            }
        });
        for round in 0..20 {
            let copy = other.ledger().file().to_owned();
            for ending in ["", "-wal", "-shm", "-queue"] {
                let _ = fs::remove_file(other.repos().join(format!("collab.db{ending}")));
            }
            if round % 2 == 0 {
                fs::copy(forge.ledger().file(), &copy).unwrap();
                let ask = server(&other, &acquire(issue::REVIEW)).output().unwrap();
                if ask.status.code() != Some(0) {
                    refused(&ask, "collab.db");
                }
                continue;
            }
            let before = acknowledged.load(Ordering::SeqCst);
            backup(&forge, &copy);
            let copied = Ledger::at(copy);
            assert_eq!(copied.integrity(), "ok");
            let token = u64::try_from(copied.token(issue::CRASH)).unwrap();
            assert!(token >= before, "{token} < {before}");
            reply(server(&other, &acquire(issue::REVIEW)));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(forge.ledger().integrity(), "ok");
}

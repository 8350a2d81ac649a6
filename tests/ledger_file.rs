//! The ledger's file: what is refused, clearly and with nothing written, and
//! what is left on the disk between calls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use assert_fs::TempDir;
use rusqlite::Connection;

use crate::support::direct::{refused, reply, server};
use crate::support::forge::{Forge, REPO, git};
use crate::support::ledger::Ledger;
use crate::support::small_disk::SmallDisk;
use crate::support::{issue, programs};

/// A forge without sshd; requests go to its server directly.
fn forge() -> Forge {
    Forge::without_sshd("\twrite = *\n")
}

fn acquire() -> String {
    format!("acquire {REPO} {} --session s", issue::CRASH)
}

/// Takes a claim, so that there is a ledger.
fn make_ledger(forge: &Forge) -> Ledger {
    reply(server(forge, &acquire()));
    forge.ledger()
}

/// What a folder holds, one level deep: names, and the bytes of files.
fn listing(folder: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let regular = entry.file_type().unwrap().is_file();
            (
                name,
                regular.then(|| fs::read(entry.path()).unwrap_or_default()),
            )
        })
        .collect()
}

/// Reading and taking are both refused, and `folder` stays as it is.
fn refuses(forge: &Forge, folder: &Path, said: &str) {
    let before = listing(folder);
    for request in [acquire(), format!("list {REPO}")] {
        refused(&server(forge, &request).output().unwrap(), said);
        assert!(listing(folder) == before, "{request} has changed something");
    }
}

#[test]
fn only_the_ledger_and_its_queue_are_left_between_calls() {
    let forge = forge();
    make_ledger(&forge);
    for request in ["list", "log", "whoami"] {
        reply(server(&forge, &format!("{request} {REPO}")));
    }
    reply(server(
        &forge,
        &format!("release {REPO} {} --session s", issue::CRASH),
    ));
    let names: Vec<String> = listing(&forge.repos()).into_keys().collect();
    assert_eq!(names, ["acme", "collab.db", "collab.db-queue"]);
    let mode = |name| {
        fs::metadata(forge.repos().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("collab.db"), mode("collab.db-queue")), (0o600, 0o600));
}

#[test]
fn reading_writes_nothing() {
    let forge = forge();
    make_ledger(&forge);
    let before = listing(&forge.repos());
    for request in [
        "list REPO",
        "list REPO --ended",
        "log REPO",
        "whoami REPO",
        "show REPO ae1c051",
        "verify REPO ae1c051 --token 1 --session s",
    ] {
        reply(server(&forge, &request.replace("REPO", REPO)));
        assert!(listing(&forge.repos()) == before, "{request}");
    }
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let forge = forge();
    let ledger = make_ledger(&forge);
    for mode in [0o666, 0o660, 0o602, 0o777] {
        fs::set_permissions(ledger.file(), fs::Permissions::from_mode(mode)).unwrap();
        refuses(&forge, &forge.repos(), "collab.db");
    }
    fs::set_permissions(ledger.file(), fs::Permissions::from_mode(0o600)).unwrap();
    reply(server(&forge, &acquire()));
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let forge = forge();
    let file = forge.ledger().file().to_owned();
    fs::create_dir(&file).unwrap();
    refuses(&forge, &forge.repos(), "directory");
    fs::remove_dir(&file).unwrap();

    let status = Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(status.success());
    refuses(&forge, &forge.repos(), "pipe");
    assert!(fs::metadata(&file).unwrap().file_type().is_fifo());
    fs::remove_file(&file).unwrap();

    let elsewhere = TempDir::new().unwrap();
    let target = elsewhere.path().join("target");
    for target in [Path::new("/dev/null"), Path::new("/dev/full"), &target] {
        symlink(target, &file).unwrap();
        refuses(&forge, &forge.repos(), "link");
        fs::remove_file(&file).unwrap();
    }
    assert!(!target.exists());
}

#[test]
fn a_corrupt_file_is_refused() {
    let forge = forge();
    let ledger = make_ledger(&forge);
    let sound = fs::read(ledger.file()).unwrap();
    let mut cut = sound.clone();
    cut.truncate(sound.len() / 2);
    let mut no_header = sound.clone();
    no_header[..16].fill(b'x');
    let mut no_schema = sound.clone();
    no_schema[100..4096].fill(0xff);
    let text = b"This is not a ledger, but somebody's thesis.\n".repeat(200);
    for bytes in [cut, no_header, no_schema, text] {
        fs::write(ledger.file(), &bytes).unwrap();
        refuses(&forge, &forge.repos(), "collab.db");
    }
    fs::write(ledger.file(), &sound).unwrap();
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
}

#[test]
fn another_programs_database_is_refused() {
    let forge = forge();
    let connection = Connection::open(forge.ledger().file()).unwrap();
    connection
        .execute_batch("CREATE TABLE leases (cheese TEXT); INSERT INTO leases VALUES ('brie');")
        .unwrap();
    drop(connection);
    fs::set_permissions(forge.ledger().file(), fs::Permissions::from_mode(0o600)).unwrap();
    refuses(&forge, &forge.repos(), "collab.db");
}

#[test]
fn a_newer_ledger_is_refused_untouched() {
    let forge = forge();
    let ledger = make_ledger(&forge);
    ledger
        .connection()
        .pragma_update(None, "user_version", 9_999)
        .unwrap();
    refuses(&forge, &forge.repos(), "9999");
}

#[test]
fn an_older_servers_file_keeps_its_tokens() {
    let forge = forge();
    let connection = Connection::open(forge.ledger().file()).unwrap();
    connection
        .execute_batch(&format!(
            "CREATE TABLE leases (
                 repo TEXT NOT NULL, issue_id TEXT NOT NULL, holder TEXT, token INTEGER NOT NULL,
                 acquired_at INTEGER, expires_at INTEGER, PRIMARY KEY (repo, issue_id));
             INSERT INTO leases VALUES
                 ('{REPO}', '{mine}', 'alice', 7, 1700000000, NULL),
                 ('{REPO}', '{free}', NULL, 9, 1700000000, NULL),
                 ('{REPO}', '{ended}', 'bob', 4, 1700000000, 1700000060),
                 ('{REPO}', '{held}', 'bob', 3, 1700000000, NULL);",
            mine = issue::CRASH,
            free = issue::RETITLED,
            ended = issue::REOPENED,
            held = issue::REVIEW,
        ))
        .unwrap();
    drop(connection);
    fs::set_permissions(forge.ledger().file(), fs::Permissions::from_mode(0o600)).unwrap();
    let list = reply(server(&forge, &format!("list {REPO}")));
    assert_eq!(list["leases"].as_array().unwrap().len(), 2, "{list}");

    let take = |issue: &str| {
        reply(server(
            &forge,
            &format!("acquire {REPO} {issue} --session s"),
        ))
    };
    let mine = take(issue::CRASH);
    assert_eq!(
        (&mine["token"], &mine["tenure"]),
        (&7.into(), &"own".into())
    );
    assert_eq!(mine["session"], "s");
    assert_eq!(take(issue::RETITLED)["token"], 10);
    assert_eq!(take(issue::REOPENED)["token"], 5);
    let output = server(&forge, &format!("acquire {REPO} {}", issue::REVIEW))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(forge.ledger().integrity(), "ok");
}

#[test]
fn a_ledger_without_its_folder_is_refused() {
    let forge = forge();
    let nowhere = forge.dir().join("nowhere/collab.db");
    forge.configure(&format!("\twrite = *\n\tledger = {}\n", nowhere.display()));
    refuses(&forge, forge.dir(), "does not exist");
    assert!(!nowhere.parent().unwrap().exists());
}

#[test]
fn an_unreadable_ledger_is_refused() {
    let forge = forge();
    let ledger = make_ledger(&forge);
    if !programs::is_root() {
        fs::set_permissions(ledger.file(), fs::Permissions::from_mode(0o000)).unwrap();
        let before = fs::metadata(ledger.file()).unwrap().modified().unwrap();
        refused(&server(&forge, &acquire()).output().unwrap(), "collab.db");
        assert_eq!(
            fs::metadata(ledger.file()).unwrap().modified().unwrap(),
            before
        );
        return;
    }
    // No mode stops root, so somebody else asks, of programs that they can reach.
    let bin = forge.dir().join("bin");
    fs::create_dir(&bin).unwrap();
    for file in [programs::server(), programs::plugin()] {
        fs::copy(&file, bin.join(file.file_name().unwrap())).unwrap();
    }
    for folder in [forge.dir(), &bin] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let before = listing(&forge.repos());
    let output = Command::new(programs::need("setpriv"))
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(bin.join("git-claim-server"))
        .args(["openssh", "--config"])
        .arg(forge.config())
        .args(["--as", "alice"])
        .env("SSH_ORIGINAL_COMMAND", format!("collab-lease list {REPO}"))
        .output()
        .unwrap();
    refused(&output, "collab.db");
    assert!(listing(&forge.repos()) == before);
}

#[test]
fn a_full_disk_is_refused_and_costs_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: one may not mount a file system here");
        return;
    };
    let forge = forge();
    let file = disk.folder().join("collab.db");
    forge.configure(&format!("\twrite = *\n\tledger = {}\n", file.display()));
    // No room to make one.
    disk.fill_but(0);
    refused(&server(&forge, &acquire()).output().unwrap(), "");
    disk.free();
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
    let ledger = Ledger::at(file);
    let before = ledger.dump();
    // No room to write into it.
    for room in [0, 4096, 16_384] {
        disk.fill_but(room);
        let request = format!("acquire {REPO} {} --session s", issue::REVIEW);
        let output = server(&forge, &request).output().unwrap();
        if output.status.code() != Some(0) {
            refused(&output, "");
            disk.free();
            assert_eq!(ledger.dump(), before);
            assert_eq!(ledger.integrity(), "ok");
        } else {
            // It fitted; then it is there.
            disk.free();
            assert_eq!(ledger.token(issue::REVIEW), 1);
        }
    }
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
}

/// As far as a limit on file sizes is a full disk: also for who may not mount.
#[test]
fn a_write_that_fails_costs_nothing() {
    let forge = forge();
    let ledger = make_ledger(&forge);
    let before = ledger.dump();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .arg(programs::server())
        .args(["openssh", "--config"])
        .arg(forge.config())
        .args(["--as", "alice"])
        .env(
            "SSH_ORIGINAL_COMMAND",
            format!("collab-lease acquire {REPO} {}", issue::REVIEW),
        );
    refused(&limited.output().unwrap(), "");
    assert_eq!(ledger.dump(), before);
    assert_eq!(ledger.integrity(), "ok");
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
}

/// Over sshfs, where this machine has it; other network file systems are told
/// apart in the plugin's own tests.
#[test]
fn a_network_file_system_is_refused() {
    let Some(sshfs) = programs::find("sshfs").filter(|_| Path::new("/dev/fuse").exists()) else {
        eprintln!("skipped: there is no sshfs, or no /dev/fuse");
        return;
    };
    let mut forge = Forge::new();
    let person = forge.person_behind("files", "restrict,command=\"/usr/lib/openssh/sftp-server\"");
    let far = forge.dir().join("far");
    let near = forge.dir().join("near");
    fs::create_dir(&far).unwrap();
    fs::create_dir(&near).unwrap();
    let output = person
        .std_command(&sshfs, forge.dir())
        .arg(format!("forge:{}", far.display()))
        .arg(&near)
        .arg("-o")
        .arg(format!(
            "ssh_command={}",
            person.home().join("bin/ssh").display()
        ))
        .output()
        .unwrap();
    if !output.status.success() {
        eprintln!(
            "skipped: sshfs says {}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let ledger = near.join("collab.db");
    forge.configure(&format!("\twrite = *\n\tledger = {}\n", ledger.display()));
    let output = server(&forge, &acquire()).output().unwrap();
    let _ = Command::new("fusermount3").arg("-u").arg(&near).status();
    refused(&output, "sshfs");
    assert!(listing(&far).is_empty());
    forge.stop_sshd();
}

/// The ledger has nothing to do with git: a repository's own files stay as
/// they are.
#[test]
fn a_claim_leaves_the_repository_alone() {
    let forge = forge();
    let repo = forge.repos().join(REPO);
    let refs = git(&repo, &["for-each-ref"]);
    let before = listing(&repo);
    make_ledger(&forge);
    assert_eq!(git(&repo, &["for-each-ref"]), refs);
    assert!(listing(&repo) == before);
}

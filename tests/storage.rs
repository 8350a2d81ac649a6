//! A disk that fails under the ledger: each call to it once, and from then on.
//! What was acknowledged is there afterwards, what was refused is clear, and
//! all goes on once the disk does.

use std::cell::Cell;
use std::fs;
use std::process::Command;

use rustix::io::Errno;
use serde_json::json;

use crate::support::direct::{refused, reply, server};
use crate::support::failing_disk::{FailingDisk, Fault};
use crate::support::forge::{Forge, REPO};
use crate::support::ledger::Ledger;
use crate::support::serving::Connection;
use crate::support::small_disk::SmallDisk;
use crate::support::{issue, programs};

fn forge() -> Forge {
    Forge::in_memory("\twrite = *\n")
}

fn disk(forge: &Forge) -> FailingDisk {
    FailingDisk::new(forge.dir(), forge.ledger().file())
}

/// For good, as far as one process is concerned.
const ON_AND_ON: usize = 1_000_000;

/// What fails, and as what.
const FAULTS: [(&str, Errno); 9] = [
    ("read", Errno::IO),
    ("write", Errno::IO),
    ("write", Errno::NOSPC),
    ("write", Errno::DQUOT),
    ("truncate", Errno::IO),
    ("truncate", Errno::DQUOT),
    ("sync", Errno::IO),
    ("open", Errno::IO),
    ("unlink", Errno::IO),
];

/// Each of these calls in turn, for one time and for good; `round` says whether
/// the disk has failed. Which calls there were.
fn each_fault(round: impl Fn(Fault) -> bool) -> Vec<&'static str> {
    let mut met = Vec::new();
    for (calls, errno) in FAULTS {
        // What is full stays so.
        let once = (errno == Errno::IO).then_some(1);
        for times in once.into_iter().chain([ON_AND_ON]) {
            let fault = |from| Fault {
                calls,
                from,
                times,
                errno: errno.raw_os_error(),
            };
            let failed = (1..).take_while(|from| round(fault(*from))).count();
            if failed > 0 && !met.contains(&calls) {
                met.push(calls);
            }
        }
    }
    met
}

/// Every kind of call.
const ALL: [&str; 6] = ["read", "write", "truncate", "sync", "open", "unlink"];

/// Whether a refusal says that the change may have been made.
fn is_unsure(stderr: &[u8]) -> bool {
    String::from_utf8_lossy(stderr).contains("can't tell whether the change was made")
}

fn acquire() -> String {
    format!("acquire {REPO} {} --session s --ttl 600", issue::CRASH)
}

/// Asks for the claim with a fault, and without; the token that there is then.
fn acquire_under(forge: &Forge, disk: &FailingDisk, fault: Fault) -> (bool, serde_json::Value) {
    let ledger = forge.ledger();
    let before = ledger.dump();
    let output = disk
        .under(&mut server(forge, &acquire()), fault)
        .output()
        .unwrap();
    let has_failed = disk.has_failed();
    match output.status.code() {
        Some(0) => {
            let granted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let token = &granted["token"];
            let verify = format!("verify {REPO} {} --session s --token {token}", issue::CRASH);
            reply(server(forge, &verify));
        }
        _ => {
            assert!(has_failed, "{output:?}");
            refused(&output, "collab.db");
            if !is_unsure(&output.stderr) {
                assert_eq!(ledger.dump(), before, "{fault:?}: {output:?}");
            }
        }
    }
    let granted = reply(server(forge, &acquire()));
    assert_eq!(ledger.integrity(), "ok", "{fault:?}");
    (has_failed, granted["token"].clone())
}

#[test]
fn each_call_to_the_disk_may_fail() {
    let forge = forge();
    let disk = disk(&forge);
    let release = format!("release {REPO} {} --session s", issue::CRASH);
    reply(server(&forge, &acquire()));
    let token = Cell::new(1_u64);
    let met = each_fault(|fault| {
        reply(server(&forge, &release));
        let (has_failed, found) = acquire_under(&forge, &disk, fault);
        token.set(token.get() + 1);
        assert_eq!(found, token.get(), "{fault:?}");
        has_failed
    });
    assert_eq!(met, ALL);
}

#[test]
fn each_call_that_makes_the_ledger_may_fail() {
    let forge = forge();
    let disk = disk(&forge);
    let met = each_fault(|fault| {
        // What fails once is tried on a ledger that is there.
        if fault.times == 1 {
            return false;
        }
        for name in ["collab.db", "collab.db-queue"] {
            let _ = fs::remove_file(forge.repos().join(name));
        }
        let (has_failed, found) = acquire_under(&forge, &disk, fault);
        assert_eq!(found, 1, "{fault:?}");
        has_failed
    });
    assert_eq!(met, ALL);
}

#[test]
fn each_call_of_a_look_may_fail() {
    let forge = forge();
    let disk = disk(&forge);
    reply(server(&forge, &acquire()));
    let list = format!("list {REPO}");
    let before = reply(server(&forge, &list))["leases"][0]["token"].clone();
    let met = each_fault(|fault| {
        let output = disk
            .under(&mut server(&forge, &list), fault)
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => {
                let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(list["leases"][0]["token"], before, "{fault:?}");
            }
            _ => refused(&output, "collab.db"),
        }
        disk.has_failed()
    });
    // The log beside the ledger is made and taken away.
    assert_eq!(met, ["read", "write", "truncate", "open", "unlink"]);
}

#[test]
fn a_server_that_stays_goes_on_when_the_disk_does() {
    let forge = forge();
    let disk = disk(&forge);
    let release = format!("release {REPO} {} --session s", issue::CRASH);
    let token = Cell::new(0);
    each_fault(|fault| {
        // Some of the calls: there are as many as one asks for. What fails for
        // good is another test.
        if fault.from > 60 || (fault.times > 1 && fault.errno == Errno::IO.raw_os_error()) {
            return false;
        }
        let fault = Fault {
            from: fault.from * fault.from,
            times: 3,
            ..fault
        };
        let mut command = server(&forge, &format!("serve {REPO}"));
        disk.under(&mut command, fault);
        disk.fails(false);
        let mut connection = Connection::of(command);
        connection.ask(&json!({"op": "list"}));
        disk.fails(true);
        let mut refusals = 0;
        for _ in 0..6 {
            for op in ["acquire", "release"] {
                let ask = json!({"op": op, "issue": issue::CRASH, "session": "s"});
                loop {
                    let said = connection.ask(&ask);
                    if said["exit"] == 0 {
                        if op == "acquire" {
                            token.set(token.get() + 1);
                            assert_eq!(said["reply"]["token"], token.get(), "{fault:?}");
                        }
                        break;
                    }
                    assert_eq!(said["exit"], 6, "{fault:?}: {said}");
                    let why = said["error"].as_str().unwrap();
                    assert!(why.contains("collab.db"), "{fault:?}: {said}");
                    refusals += 1;
                    assert!(refusals <= 3, "{fault:?}: it doesn't go on: {said}");
                }
            }
        }
        assert_eq!(connection.end(), 0);
        reply(server(&forge, &release));
        assert_eq!(forge.ledger().token(issue::CRASH), token.get(), "{fault:?}");
        assert_eq!(forge.ledger().integrity(), "ok");
        disk.has_failed()
    });
}

#[test]
fn a_copy_for_which_there_is_no_room_is_none() {
    let forge = forge();
    let disk = FailingDisk::new(forge.dir(), &forge.dir().join("copy.db"));
    reply(server(&forge, &acquire()));
    let copy = forge.dir().join("copy.db");
    each_fault(|fault| {
        let mut backup = Command::new(programs::server());
        backup.args(["backup", "--config"]).arg(forge.config());
        let output = disk.under(backup.arg(&copy), fault).output().unwrap();
        if output.status.code() == Some(0) {
            assert_eq!(Ledger::at(copy.clone()).integrity(), "ok");
            fs::remove_file(&copy).unwrap();
        } else {
            refused(&output, "copy.db");
            // What can't be removed stays.
            assert!(!copy.exists() || fault.calls == "unlink", "{fault:?}");
            let _ = fs::remove_file(&copy);
        }
        disk.has_failed()
    });
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
}

#[test]
fn a_read_only_file_system_is_refused() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: one may not mount a file system here");
        return;
    };
    let forge = forge();
    let file = disk.folder().join("collab.db");
    forge.configure(&format!("\twrite = *\n\tledger = {}\n", file.display()));
    disk.remount("ro");
    refused(&server(&forge, &acquire()).output().unwrap(), "Read-only");
    disk.remount("rw");
    reply(server(&forge, &acquire()));
    let before = Ledger::at(file).dump();
    disk.remount("ro");
    for request in [acquire(), format!("list {REPO}")] {
        refused(&server(&forge, &request).output().unwrap(), "Read-only");
    }
    disk.remount("rw");
    assert_eq!(Ledger::at(disk.folder().join("collab.db")).dump(), before);
    assert_eq!(reply(server(&forge, &acquire()))["token"], 1);
}

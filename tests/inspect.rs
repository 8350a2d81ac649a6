//! `git claim inspect` shows everything and changes nothing.

use std::fs;

use serde_json::{Value, json};

use crate::support::bound::{
    copy, copy_file, fetched, git_dir, set_copy, started, take_push_options, times, tree, with,
};
use crate::support::client::Client;
use crate::support::forge::Forge;
use crate::support::issue;

/// Inspects, and compares ledger, files and times before and after.
fn inspected(forge: &Forge, client: &Client, line: &str, exit: i32) -> Value {
    // The connection is made now, so that only the command is looked at.
    client.run("git claims");
    let look = || {
        let folders = [client.person().home().to_owned(), forge.repos()];
        let ledger = fs::read(forge.ledger().file()).ok();
        let mut times: Vec<_> = folders.iter().flat_map(|folder| times(folder)).collect();
        times.retain(|(path, _)| is_kept(forge, client, path));
        let mut files: Vec<_> = folders.iter().flat_map(|folder| tree(folder)).collect();
        files.retain(|(path, _)| is_kept(forge, client, path));
        (forge.ledger().dump(), ledger, times, files)
    };
    let before = look();
    client.run(line).code(exit);
    let reply = client.json(line, exit);
    let after = look();
    assert_eq!(before.0, after.0, "the ledger's rows have changed");
    assert!(before.1 == after.1, "the ledger's file has changed");
    assert_eq!(before.2, after.2, "a time has changed");
    assert!(before.3 == after.3, "a file has changed");
    reply
}

/// Whether a path is anybody's data: not a socket's folder, nor the queue and
/// the open ledger's own side files.
fn is_kept(forge: &Forge, client: &Client, path: &std::path::Path) -> bool {
    !path.starts_with(client.person().home().join("run"))
        && !path.starts_with(client.person().home().join(".cache"))
        && path != forge.repos()
        && !path.starts_with(forge.ledger().file())
        && !path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("collab.db")
}

#[test]
fn a_sound_claim_is_shown_from_anywhere() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (main, bound) = started(&forge, "alice");
    for (client, line) in [
        (&bound, "git claim inspect"),
        (&main, "git claim inspect ae1c"),
    ] {
        let reply = inspected(&forge, client, line, 0);
        assert_eq!(reply["status"], "inspected");
        assert_eq!(reply["issue"], issue::CRASH);
        assert_eq!(reply["record"], copy(&bound));
        assert_eq!(reply["server"]["lock"], copy(&bound));
        assert_eq!(reply["worktree"]["path"].as_str(), bound.dir().to_str());
        assert_eq!(reply["worktree"]["registered"], true);
        assert_eq!(reply["sound"], true, "{reply}");
        assert_eq!(reply["exact_next_action"], Value::Null);
    }
    let said = bound.ok("git claim inspect");
    assert!(said.contains("all in all       sound"), "{said}");
    main.run("git claim inspect").code(1);
}

#[test]
fn records_that_nothing_else_accepts_are_shown() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    for damage in ["", "{", "[]", "{\"work_lease\":7}"] {
        fs::write(copy_file(&bound), damage).unwrap();
        let reply = inspected(&forge, &bound, "git claim inspect", 0);
        assert_eq!(reply["reason_code"], "incomplete_lock_contract");
        assert!(!reply["record_missing"].as_array().unwrap().is_empty());
    }
    set_copy(&bound, &with(&sound, "work_lease.token", Some(json!(9))));
    let reply = inspected(&forge, &bound, "git claim inspect", 0);
    assert_eq!(reply["reason_code"], "token_mismatch");
    fs::remove_file(git_dir(&bound).join("claim-session")).unwrap();
    inspected(&forge, &bound, "git claim inspect", 0);
    forge.ledger().rewind(3 * 3_600);
    let reply = inspected(&forge, &bound, "git claim inspect", 0);
    assert_eq!(reply["server"]["state"], "expired");
}

#[test]
fn an_issue_that_nobody_has_claimed_can_be_inspected() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let reply = inspected(&forge, &main, "git claim inspect ae1c", 0);
    assert_eq!(reply["reason_code"], "not_bound");
    assert_eq!(reply["server"]["state"], "free");
    assert_eq!(reply["record"], Value::Null);
}

#[test]
fn what_is_recommended_can_work() {
    let forge = Forge::new();
    let (_, theirs) = started(&forge, "bob");
    let main = fetched(&forge, "alice");
    let reply = inspected(&forge, &main, "git claim inspect ae1c", 0);
    assert_eq!(reply["reason_code"], "held");
    assert_eq!(
        reply["exact_next_action"],
        format!("git claim log {}", issue::CRASH)
    );
    theirs.ok("git claim check");
    main.run("git claim inspect 99999").code(1);
    // A lost record: the branch says whose it was, and the server has the rest.
    fs::remove_file(copy_file(&theirs)).unwrap();
    let lost = theirs.json("git claim check", 1);
    let line = lost["exact_next_action"].as_str().unwrap();
    assert!(line.starts_with("git claim recover "), "{line}");
    let reply = theirs.json(&format!("git claim inspect {}", issue::CRASH), 0);
    assert_eq!(reply["exact_next_action"], line);
    theirs.ok(line);
    theirs.ok("git claim check");
}

#[test]
fn without_the_server_what_is_here_is_shown() {
    let mut forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    forge.stop_sshd();
    let reply = inspected(&forge, &bound, "git claim inspect", 6);
    assert_eq!(reply["record"], copy(&bound));
    assert_eq!(reply["reason_code"], "server_unreachable");
    assert!(reply["server_error"].is_string());
}

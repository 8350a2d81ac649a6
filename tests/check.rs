//! `git claim check`: one deviation, one refusal, and a command that helps.

use serde_json::{Value, json};

use crate::support::bound::{
    branch, commit, copy, copy_file, git_dir, set_copy, started, take_push_options, tip, with,
};
use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, git};
use crate::support::issue;

/// The code of a check that must end with `exit`.
fn reason(bound: &Client, exit: i32) -> String {
    let reply = bound.json("git claim check", exit);
    assert_eq!(reply["work_allowed"], false, "{reply}");
    assert_eq!(reply["success"], false, "{reply}");
    reply["reason_code"].as_str().unwrap().to_owned()
}

/// Types the command that the check names.
fn next(bound: &Client) -> String {
    let mut command = bound.command("git");
    let output = command.args(["claim", "check", "--json"]).output().unwrap();
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    let line = reply["exact_next_action"].as_str().unwrap().to_owned();
    bound.command("sh").args(["-c", &line]).assert().success();
    line
}

#[test]
fn a_sound_claim_passes() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let said = bound.ok("git claim check");
    assert!(said.starts_with("sound: ae1c051b"), "{said}");
    let reply = bound.json("git claim check", 0);
    assert_eq!(reply["work_allowed"], true);
    assert_eq!(reply["token"], 1);
    commit(&bound, "work");
    bound.ok("git claim check");
}

#[test]
fn nothing_is_bound_to_an_ordinary_worktree() {
    let forge = Forge::new();
    let (main, _) = started(&forge, "alice");
    assert_eq!(reason(&main, 1), "not_bound");
    next(&main);
}

#[test]
fn every_missing_or_null_field_is_named_and_recovered() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    for path in FIELDS {
        for value in [None, Some(Value::Null)] {
            set_copy(&bound, &with(&sound, path, value));
            let reply = bound.json("git claim check", 1);
            assert_eq!(reply["reason_code"], "incomplete_lock_contract", "{path}");
            assert_eq!(reply["missing"], json!([path]));
        }
    }
    next(&bound);
    bound.ok("git claim check");
    assert_eq!(copy(&bound), sound);
    std::fs::write(copy_file(&bound), "{").unwrap();
    let reply = bound.json("git claim check", 1);
    assert_eq!(reply["missing"].as_array().unwrap().len(), FIELDS.len());
    next(&bound);
    bound.ok("git claim check");
}

/// Every required field of a record.
const FIELDS: [&str; 22] = [
    "contract",
    "remote",
    "org",
    "repo",
    "issue_number",
    "branch_name",
    "worktree_path",
    "lock_generation",
    "lock_provenance.source",
    "lock_provenance.minted_by",
    "lock_provenance.minted_at",
    "lock_provenance.ledger_id",
    "work_lease.lease_id",
    "work_lease.token",
    "work_lease.claimant.username",
    "work_lease.claimant.profile",
    "work_lease.task_session_id",
    "work_lease.acquired_at",
    "work_lease.expires_at",
    "work_lease.last_heartbeat_at",
    "work_lease.heartbeat_count",
    "work_lease.lifecycle_version",
];

#[test]
fn every_field_that_differs_from_the_servers_is_a_deviation() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    for (path, value, code) in [
        ("remote", json!("other"), "binding_mismatch"),
        ("org", json!("other"), "binding_mismatch"),
        ("repo", json!("other"), "binding_mismatch"),
        ("issue_number", json!("43"), "binding_mismatch"),
        ("branch_name", json!("claim/43"), "binding_mismatch"),
        ("worktree_path", json!("/elsewhere"), "binding_mismatch"),
        ("lock_generation", json!(99), "generation_mismatch"),
        ("lock_provenance.source", json!("me"), "provenance_mismatch"),
        (
            "lock_provenance.ledger_id",
            json!("x"),
            "provenance_mismatch",
        ),
        ("work_lease.lease_id", json!("x"), "lease_mismatch"),
        ("work_lease.token", json!(2), "token_mismatch"),
        (
            "work_lease.claimant.username",
            json!("bob"),
            "claimant_mismatch",
        ),
        (
            "work_lease.claimant.profile",
            json!("SHA256:x"),
            "profile_mismatch",
        ),
    ] {
        set_copy(&bound, &with(&sound, path, Some(value)));
        assert_eq!(reason(&bound, 1), code, "{path}");
        next(&bound);
        if !matches!(path, "remote" | "issue_number") {
            bound.ok("git claim check");
        }
    }
    set_copy(
        &bound,
        &with(&sound, "work_lease.task_session_id", Some(json!("s"))),
    );
    assert_eq!(reason(&bound, 1), "session_mismatch");
    next(&bound);
    bound.ok("git claim check");
    // The server may be ahead: a heartbeat may be under way.
    set_copy(&bound, &sound);
    bound.ok("git claim renew");
    set_copy(&bound, &sound);
    bound.ok("git claim check");
}

#[test]
fn another_session_is_another_holder() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let mut other = bound.command("git");
    other.args(["claim", "check", "--json", "--session", "another"]);
    let output = other.assert().code(1).get_output().stdout.clone();
    let reply: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(reply["reason_code"], "session_mismatch");
    // Lost with its file.
    std::fs::remove_file(git_dir(&bound).join("claim-session")).unwrap();
    assert_eq!(reason(&bound, 1), "session_mismatch");
    next(&bound);
    bound.ok("git claim check");
}

#[test]
fn another_key_is_another_claimant() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    // The same name behind another key: what `git-claim-server openssh --as`
    // says of both.
    let second = forge.second_key("laptop", "alice");
    let laptop = second.at(bound.dir());
    assert_eq!(reason(&laptop, 4), "other_key");
    next(&laptop);
    laptop.run("git claim renew").code(4);
    bound.ok("git claim check");
    // An honest change of key: a take-over with a reason, and a new start.
    laptop.ok("git claim ae1c051b --take-over --reason new-key");
    laptop.ok("git claim start ae1c051b --here");
    laptop.ok("git claim check");
    assert_eq!(reason(&bound, 4), "other_key");
    let log = laptop.json("git claim log", 0);
    assert_eq!(log["tenures"][1]["why"], "new-key");
}

#[test]
fn head_must_be_on_the_recorded_branch() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    bound.git(["switch", "-q", "--detach"]).assert().success();
    assert_eq!(reason(&bound, 1), "detached_head");
    next(&bound);
    bound.ok("git claim check");
    bound
        .git(["switch", "-q", "-c", "other"])
        .assert()
        .success();
    assert_eq!(reason(&bound, 1), "wrong_branch");
    next(&bound);
    bound.ok("git claim check");
}

#[test]
fn a_worktree_that_was_moved_is_found_again() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let moved = bound.dir().with_file_name("moved by git");
    main.git(["worktree", "move"])
        .args([bound.dir(), &moved])
        .assert()
        .success();
    let moved = bound.at(moved);
    assert_eq!(reason(&moved, 1), "worktree_moved");
    next(&moved);
    moved.ok("git claim check");
    assert_eq!(copy(&moved)["work_lease"]["token"], 1);
    // By hand: git does not know where it is.
    let by_hand = moved.dir().with_file_name("by hand");
    std::fs::rename(moved.dir(), &by_hand).unwrap();
    let by_hand = bound.at(by_hand);
    assert_eq!(reason(&by_hand, 1), "worktree_unregistered");
    next(&by_hand);
    assert_eq!(reason(&by_hand, 1), "worktree_moved");
    next(&by_hand);
    by_hand.ok("git claim check");
}

#[test]
fn a_claim_that_ran_out_is_taken_again_by_the_next_action() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let head = commit(&bound, "work");
    forge.ledger().rewind(3 * 3_600);
    assert_eq!(reason(&bound, 1), "expired");
    let line = next(&bound);
    assert!(line.contains(&head), "{line}");
    bound.ok("git claim check");
    assert_eq!(tip(&bound, &branch(issue::CRASH)), head);
}

#[test]
fn a_released_claim_is_started_again_by_the_next_action() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git unclaim ae1c051b --force --reason test");
    assert_eq!(reason(&bound, 1), "released");
    next(&bound);
    bound.ok("git claim check");
}

#[test]
fn somebody_elses_claim_is_a_conflict() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    forge.ledger().rewind(3 * 3_600);
    forge.client("bob").ok("git claim ae1c051b --ttl 1h");
    assert_eq!(reason(&bound, 4), "held");
    let line = next(&bound);
    assert!(!line.contains("take-over"), "{line}");
}

#[test]
fn ones_own_claim_taken_over_elsewhere_is_a_conflict() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git claim ae1c051b --take-over --reason test --ttl 1h");
    assert_eq!(reason(&bound, 4), "held_in_other_session");
    next(&bound);
}

#[test]
fn a_server_that_cannot_be_asked_is_no_yes() {
    let mut forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    forge.stop_sshd();
    assert_eq!(reason(&bound, 6), "server_unreachable");
}

#[test]
fn the_servers_record_must_be_complete_too() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (_, bound) = started(&forge, "alice");
    // As an older server leaves a row that it replaces.
    forge
        .ledger()
        .connection()
        .execute("UPDATE leases SET lease_id = NULL", [])
        .unwrap();
    let reply = bound.json("git claim check", 1);
    assert_eq!(reply["reason_code"], "incomplete_lock_contract");
    assert_eq!(reply["missing"], json!(["work_lease.lease_id"]));
    next(&bound);
    bound.ok("git claim check");
    let record = copy(&bound);
    assert_eq!(record["work_lease"]["token"], 2);
    // The push option goes along.
    let option = git(bound.dir(), &["config", "push.pushOption"]);
    assert!(
        option.starts_with(&format!("claim-token={}:2:", issue::CRASH)),
        "{option}"
    );
}

#[test]
fn an_older_servers_row_is_incomplete_field_by_field() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    // An old writer replaces the row: six columns, the rest NULL.
    let replace = "REPLACE INTO leases (repo, issue_id, holder, token, acquired_at, expires_at)
         SELECT repo, issue_id, holder, token, acquired_at, expires_at FROM leases";
    forge.ledger().connection().execute_batch(replace).unwrap();
    let lacks = json!([
        "remote",
        "branch_name",
        "worktree_path",
        "lock_provenance.source",
        "lock_provenance.minted_by",
        "lock_provenance.minted_at",
        "lock_provenance.ledger_id",
        "work_lease.lease_id",
        "work_lease.claimant.profile",
        "work_lease.task_session_id",
        "work_lease.last_heartbeat_at",
        "work_lease.lifecycle_version",
    ]);
    let reply = bound.json("git claim check", 1);
    assert_eq!(reply["reason_code"], "incomplete_lock_contract");
    assert_eq!(reply["missing"], lacks);
    assert_eq!(
        reply["message"],
        "the server's record is incomplete: it lacks remote, branch_name, worktree_path, \
         lock_provenance.source and 8 more"
    );
    // Without an end it is not one that has not yet run out.
    forge
        .ledger()
        .connection()
        .execute("UPDATE leases SET expires_at = NULL", [])
        .unwrap();
    let missing = bound.json("git claim check", 1)["missing"].clone();
    assert!(
        missing
            .as_array()
            .unwrap()
            .contains(&json!("work_lease.expires_at"))
    );
    next(&bound);
    bound.ok("git claim check");
    // Nor is one whose end is past.
    forge.ledger().connection().execute_batch(replace).unwrap();
    forge.ledger().rewind(3 * 3_600);
    assert_eq!(reason(&bound, 1), "expired");
    next(&bound);
    bound.ok("git claim check");
}

#[test]
fn what_is_wrong_with_a_record_is_told_in_one_sentence() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    let told = |record: &[u8]| {
        std::fs::write(copy_file(&bound), record).unwrap();
        let reply = bound.json("git claim check", 1);
        assert_eq!(reply["reason_code"], "incomplete_lock_contract");
        reply["message"].as_str().unwrap().to_owned()
    };
    let other = with(&sound, "contract", Some(json!("git-claim/lock/2")));
    assert_eq!(
        told(other.to_string().as_bytes()),
        "this worktree's record is incomplete: its contract is \"git-claim/lock/2\", \
         not \"git-claim/lock/1\""
    );
    let older = with(&sound, "work_lease.lifecycle_version", None);
    assert_eq!(
        told(older.to_string().as_bytes()),
        "this worktree's record is incomplete: it lacks work_lease.lifecycle_version"
    );
    for damage in ["", "{", "[]", "\0\0"] {
        assert_eq!(
            told(damage.as_bytes()),
            "this worktree's record is damaged: nothing in it can be read"
        );
    }
}

/// What is asked about a claim that is not bound says what became of it, and
/// leads on.
#[test]
fn a_claim_that_is_not_bound_is_told_from_one_that_nobody_holds() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let told = |client: &Client, message: &str, next: &str| {
        for line in ["git claim check", "git claim inspect"] {
            let reply = client.json(line, 1);
            assert_eq!(reply["reason_code"], "not_bound", "{line}: {reply}");
            assert_eq!(reply["message"], message, "{line}");
            assert_eq!(reply["exact_next_action"], next, "{line}");
        }
    };
    let start = format!("git claim start {}", issue::CRASH);
    bound.ok("git unclaim");
    let released = format!(
        "no claim on {} is bound to this worktree, and nobody holds it",
        issue::CRASH
    );
    told(&bound, &released, &start);
    main.ok("git claim ae1c051b");
    let plain = format!(
        "your claim on {} is a plain one: no branch is bound to it",
        issue::CRASH
    );
    told(&main, &plain, &start);
    main.ok(&start);
    bound.ok("git claim check");
}

#[test]
fn a_claim_that_a_push_was_the_end_of_is_done_with() {
    let forge = Forge::new();
    forge.set_up_fence();
    let (main, bound) = started(&forge, "alice");
    commit(&bound, "work");
    bound.ok("git push -q origin HEAD");
    bound.ok("git push -q origin HEAD:main");
    let reply = bound.json("git claim check", 1);
    assert_eq!(reply["reason_code"], "released");
    assert_eq!(
        reply["message"],
        format!(
            "the claim on {0} is released: branch 'claim/{0}' was merged into 'main'",
            issue::CRASH
        )
    );
    let shown = bound.json("git claim inspect", 0);
    assert_eq!(shown["exact_next_action"], reply["exact_next_action"]);
    // However much is known here.
    std::fs::remove_file(copy_file(&bound)).unwrap();
    assert_eq!(reason(&bound, 1), "released");
    let line = next(&bound);
    assert!(line.contains(" worktree remove "), "{line}");
    assert!(!bound.dir().exists());
    assert!(!tip(&main, &branch(issue::CRASH)).is_empty());

    // The main worktree stays.
    main.ok("git fetch -q origin");
    main.ok("git switch -q -c here origin/main");
    main.ok("git claim start 862b6f3d --here");
    commit(&main, "more");
    main.ok("git push -q origin HEAD");
    main.ok("git push -q origin HEAD:main");
    assert_eq!(reason(&main, 1), "released");
    assert!(next(&main).starts_with("git unclaim "));
}

#[test]
fn a_token_that_pushes_do_not_show_since_the_fence_is_up_is_missed() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let told = || stderr(&bound.run("git claim check").code(0));
    assert_eq!(told(), "");
    forge.set_up_fence();
    assert_eq!(bound.json("git claim check", 0)["push_option_set"], false);
    commit(&bound, "work");
    bound
        .git(["push", "-q", "origin", "HEAD"])
        .assert()
        .failure();
    let words = told();
    let start = format!("`git claim start {}` has it shown", issue::CRASH);
    assert!(words.contains(&start), "{words}");
    bound.ok(&format!("git claim start {}", issue::CRASH));
    assert_eq!(told(), "");
    let reply = bound.json("git claim check", 0);
    assert_eq!(reply["push_option_set"], true);
    bound.ok("git push -q origin HEAD");
    // Where pushes go to other servers too, none is set.
    bound.ok("git remote add other elsewhere:app.git");
    bound.ok("git config --worktree --unset-all push.pushOption");
    assert_eq!(told(), "");
}

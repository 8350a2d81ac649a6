//! The verb from words to replies, with a clock that the tests set.

use super::Forge;
use serde_json::{Value, json};

use crate::engines::Sqlite;

/// `json` without what differs from run to run.
fn of(said: &crate::support::Said, keys: &[&str]) -> Value {
    let json = said.json();
    keys.iter()
        .map(|key| ((*key).to_owned(), json[*key].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn a_claim_lives_from_its_acquisition_to_its_release() {
    let forge = Forge::new();
    let said = forge.ask(
        "ann",
        "acquire r.git 42 --ttl 60 --session s1 --note fix%20it",
    );
    assert_eq!(said.exit, 0, "{said:?}");
    assert_eq!(
        said.json(),
        json!({
            "status": "acquired", "repo": "r.git", "issue": "42", "holder": "ann", "token": 1,
            "session": "s1", "mine": true, "same_principal": true, "generation": 1,
            "acquired_at": "2026-09-05T12:00:00Z", "expires_at": "2026-09-05T12:01:00Z",
            "heartbeat_at": "2026-09-05T12:00:00Z", "ttl": 60, "ttl_left_ms": 60_000,
            "note": "fix it", "now": "2026-09-05T12:00:00Z", "tenure": "new",
        })
    );
    forge.step_ms(30_000);
    let said = forge.ask("ann", "renew r.git 42 --ttl 60 --session s1 --token 1");
    assert_eq!(
        of(&said, &["status", "token", "generation", "ttl_left_ms"]),
        json!({ "status": "renewed", "token": 1, "generation": 2, "ttl_left_ms": 60_000 })
    );
    let said = forge.ask("ann", "release r.git 42 --session s1 --token 1");
    assert_eq!(
        of(
            &said,
            &["status", "holder", "token", "was_held", "expires_at"]
        ),
        json!({ "status": "released", "holder": null, "token": 1, "was_held": true, "expires_at": null })
    );
    let said = forge.ask("ann", "release r.git 42 --session s1 --token 1");
    assert_eq!(
        (said.exit, said.json()["was_held"].clone()),
        (0, json!(false))
    );
}

#[test]
fn a_peer_that_has_gone_changes_nothing_and_what_the_host_asks_is_done() {
    let forge = Forge::new();
    let bound = "--session s1 --branch claim/2 --worktree /w --machine m";
    for words in [
        "acquire r.git 1 --ttl 600 --session s1",
        &format!("acquire r.git 2 --ttl 600 {bound}"),
    ] {
        assert_eq!(forge.ask("ann", words).exit, 0);
    }
    let held = || {
        let said = forge.ask("ann", "list r.git").json();
        let leases = said["leases"].as_array().unwrap().clone();
        let row = |lease: &Value| [&lease["issue"], &lease["generation"]].map(Value::clone);
        leases.iter().map(row).collect::<Vec<_>>()
    };
    let before = held();
    assert_eq!(before.len(), 2);
    for words in [
        "acquire r.git 3 --ttl 600 --session s1",
        "acquire r.git 1 --ttl 900 --session s1",
        "acquire r.git 1 --session s2 --take-over --reason x --expected-token 1",
        "renew r.git 1 --ttl 900 --session s1",
        "release r.git 1 --session s1",
        &format!("acquire r.git 4 {}", bound.replace("claim/2", "claim/4")),
    ] {
        assert!(!forge.ask_and_leave("ann", words, false), "{words}");
        assert_eq!(held(), before, "{words}");
    }
    // Who only looks is answered, for all that anybody knows.
    assert!(forge.ask_and_leave("ann", "show r.git 1", false));
    assert!(forge.ask_and_leave("host", "rename r.git new.git", true));
    assert_eq!(held().len(), 0);
}

#[test]
fn every_conflict_is_held_with_a_reason() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 42 --ttl 60 --session s1");
    for (user, words, reason, holder) in [
        ("bob", "acquire r.git 42 --session b", "held", json!("ann")),
        (
            "ann",
            "acquire r.git 42 --session s2",
            "other-session",
            json!("ann"),
        ),
        (
            "bob",
            "renew r.git 42 --ttl 5 --session b",
            "held",
            json!("ann"),
        ),
        ("bob", "release r.git 42 --session b", "held", json!("ann")),
        (
            "ann",
            "renew r.git 42 --ttl 5 --session s1 --token 9",
            "stale-token",
            json!("ann"),
        ),
        (
            "ann",
            "release r.git 42 --session s1 --token 9",
            "stale-token",
            json!("ann"),
        ),
        (
            "ann",
            "verify r.git 42 --session s1 --token 9",
            "stale-token",
            json!("ann"),
        ),
        (
            "root",
            "release r.git 42 --force --reason x --expected-token 9",
            "wrong-expected-token",
            json!("ann"),
        ),
        (
            "ann",
            "renew r.git 43 --ttl 5 --session s1",
            "released",
            json!(null),
        ),
    ] {
        let said = forge.ask(user, words);
        assert_eq!(said.exit, 4, "{words}: {said:?}");
        assert_eq!(
            of(&said, &["status", "reason", "holder"]),
            json!({ "status": "held", "reason": reason, "holder": holder }),
            "{words}"
        );
    }
    forge.step_ms(60_000);
    let said = forge.ask("ann", "renew r.git 42 --ttl 5 --session s1");
    assert_eq!(
        of(
            &said,
            &["status", "reason", "holder", "expires_at", "token"]
        ),
        json!({ "status": "held", "reason": "expired", "holder": null, "expires_at": null, "token": 1 })
    );
}

#[test]
fn the_evicted_are_told_who_and_why() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 42 --session s1");
    let said = forge.ask(
        "bob",
        "acquire r.git 42 --take-over --reason x --expected-token 1",
    );
    assert_eq!(
        (said.exit, said.stderr.as_str()),
        (
            1,
            "error: ending ann's claim needs admin access to this repository\n"
        )
    );
    let taken = forge.ask(
        "root",
        "acquire r.git 42 --session d --take-over --reason she%20left --expected-token 1",
    );
    assert_eq!(
        of(&taken, &["token", "holder"]),
        json!({ "token": 2, "holder": "root" })
    );
    for words in [
        "renew r.git 42 --ttl 5",
        "acquire r.git 42",
        "release r.git 42",
    ] {
        let said = forge.ask("ann", &format!("{words} --session s1"));
        assert_eq!(
            of(&said, &["reason", "by", "why", "holder"]),
            json!({ "reason": "taken-over", "by": "root", "why": "she left", "holder": "root" }),
            "{words}"
        );
    }
    let log = forge.ask("ann", "log r.git 42").json();
    assert_eq!(log["tenures"][0]["holder"], "root");
    assert_eq!(log["tenures"][0].get("how"), None);
    assert_eq!(log["tenures"][1]["how"], "taken-over");
    assert_eq!(log["tenures"][1]["by"], "root");
}

#[test]
fn a_lost_reply_can_be_retried() {
    let forge = Forge::new();
    let words = "acquire r.git 42 --ttl 60 --session s1 --request r1";
    assert_eq!(forge.ask("ann", words).json()["tenure"], "new");
    let again = forge.ask("ann", words);
    assert_eq!(
        of(&again, &["tenure", "token"]),
        json!({ "tenure": "own", "token": 1 })
    );
    forge.step_ms(61_000);
    forge.ask("bob", "acquire r.git 42 --ttl 1 --session b");
    forge.step_ms(2_000);
    // Free again, but the tenure that the request began is over.
    let late = forge.ask("ann", words);
    assert_eq!(
        of(&late, &["status", "reason"]),
        json!({ "status": "held", "reason": "request-ended" })
    );
    // Another session's request of that name is another request.
    assert_eq!(
        forge
            .ask("ann", "acquire r.git 42 --session s2 --request r1")
            .json()["token"],
        3
    );
}

#[test]
fn unknown_and_unauthorised_are_one_answer_on_every_subverb() {
    let forge = Forge::new();
    let oid = "0".repeat(40);
    for words in [
        "acquire REPO 1",
        "next REPO",
        "renew REPO 1 --ttl 5",
        "release REPO 1",
        "list REPO",
        "show REPO 1",
        "log REPO",
        "verify REPO 1 --token 1",
        "whoami REPO",
    ] {
        let unauthorised = forge.ask("nobody", &words.replace("REPO", "r.git"));
        let unknown = forge.ask("nobody", &words.replace("REPO", "no.git"));
        assert_eq!(unauthorised, unknown, "{words}");
        assert_eq!(
            (
                unknown.exit,
                unknown.stdout.as_str(),
                unknown.stderr.as_str()
            ),
            (1, "", "error: repository not found\n"),
            "{words} {oid}"
        );
    }
}

#[test]
fn a_reader_learns_what_is_missing() {
    let forge = Forge::new();
    let said = forge.ask("guest", "acquire r.git 1");
    assert_eq!(said.exit, 1);
    assert_eq!(
        said.stderr,
        "error: guest may see the claims in r.git, but not take any; ask its admin for write access\n"
    );
}

#[test]
fn a_bad_request_stores_nothing() {
    let forge = Forge::new();
    for words in [
        "acquire r.git 1 --ttl 2592001",
        "acquire r.git 1 --ttl 0",
        "acquire r.git ..",
        "acquire r.git 1 --note %1b",
        "rename r.git x.git",
        "backup /tmp/x",
        "steal r.git 1",
    ] {
        let said = forge.ask("ann", words);
        assert_eq!((said.exit, said.stdout.as_str()), (1, ""), "{words}");
        assert!(said.stderr.starts_with("error: "), "{words}: {said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{words}: {said:?}");
    }
    assert_eq!(forge.ask("ann", "list r.git").json()["leases"], json!([]));
    assert_eq!(forge.ask("ann", "log r.git").json()["tenures"], json!([]));
}

#[test]
fn lists_are_in_order_even_within_one_second_and_page() {
    let forge = Forge::new();
    for issue in ["9", "3", "7", "1"] {
        forge.ask("ann", &format!("acquire r.git {issue} --session s1"));
    }
    forge.ask("bob", "acquire r.git 5 --session b");
    let issues = |words: &str| -> Vec<String> {
        let json = forge.ask("ann", words).json();
        json["leases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lease| lease["issue"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(issues("list r.git"), ["9", "3", "7", "1", "5"]);
    assert_eq!(issues("list r.git --limit 2"), ["9", "3"]);
    assert_eq!(issues("list r.git --limit 2 --after 3"), ["7", "1"]);
    assert_eq!(issues("list r.git --mine"), ["9", "3", "7", "1"]);
    assert_eq!(issues("list r.git --holder bob"), ["5"]);
    assert_eq!(issues("list other.git"), Vec::<String>::new());
    forge.ask("ann", "release r.git 3 --session s1");
    assert_eq!(issues("list r.git --ended"), ["3"]);
    assert_eq!(issues("list r.git --after 3"), ["7", "1", "5"]);
    let page = forge.ask("ann", "list r.git --limit 2").json();
    assert_eq!(page["more"], true);
    // A mark that there never was would begin at the top, and a pager again.
    let lost = forge.ask("ann", "list r.git --after 77");
    assert_eq!((lost.exit, lost.stdout.as_str()), (1, ""), "{lost:?}");
}

#[test]
fn sessions_are_shown_in_full_to_their_own_principal_alone() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 1 --session 0123456789abcdef");
    let shown = |user: &str| forge.ask(user, "list r.git").json()["leases"][0]["session"].clone();
    assert_eq!(shown("ann"), "0123456789abcdef");
    assert_eq!(shown("bob"), "01234567");
}

#[test]
fn show_names_what_a_complete_record_would_have() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 1");
    let json = forge.ask("bob", "show r.git 1").json();
    assert_eq!(json["state"], "live");
    assert_eq!(json["token"], 1);
    let missing = json["missing"].as_array().unwrap();
    assert!(
        missing.contains(&json!("work_lease.task_session_id")),
        "{json}"
    );
    assert!(missing.contains(&json!("branch_name")), "{json}");
    assert_eq!(forge.ask("bob", "show r.git 2").json()["state"], "free");
}

#[test]
fn a_branch_is_bound_once() {
    let forge = Forge::new();
    let bind = |issue: &str, branch: &str| {
        forge.ask(
            "ann",
            &format!(
                "acquire r.git {issue} --session s --branch {branch} --worktree /w --machine m"
            ),
        )
    };
    let said = bind("1", "claim/1");
    assert_eq!(said.exit, 0, "{said:?}");
    assert_eq!(said.json()["ttl"], 7_200);
    let said = bind("2", "claim/1");
    assert_eq!(
        (
            said.exit,
            said.stderr.contains("bound by the live claim on issue 1")
        ),
        (1, true),
        "{said:?}"
    );
    let said = bind("1", "claim/x");
    assert_eq!(
        (said.exit, said.stderr.contains("bound to branch 'claim/1'")),
        (1, true),
        "{said:?}"
    );
    forge.step_ms(7_200_000);
    assert_eq!(bind("2", "claim/1").exit, 0);
}

#[test]
fn claims_are_carried_to_a_new_name() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 1 --session s");
    let said = forge.ask_as_host("rename r.git other.git");
    assert_eq!(said.json(), json!({ "status": "done", "rows": 1 }));
    assert_eq!(forge.ask("ann", "show other.git 1").json()["token"], 1);
    assert_eq!(forge.ask("ann", "show r.git 1").json()["token"], 0);
    forge.ask("ann", "acquire r.git 1 --session s");
    let said = forge.ask_as_host("rename r.git other.git");
    assert_eq!(
        (said.exit, said.stderr.as_str()),
        (1, "error: repository other.git has claims already\n")
    );
}

#[test]
fn a_backup_is_a_ledger_of_its_own() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 1 --session s");
    let file = forge.dir.path().join("backup.db");
    let said = forge.ask_as_host(&format!("backup {}", file.display()));
    assert_eq!(said.json(), json!({ "status": "done", "rows": 1 }));
    let again = forge.ask_as_host(&format!("backup {}", file.display()));
    assert_eq!(again.exit, 6, "{again:?}");
    let log = file.with_file_name("backup.db-wal");
    let copy = crate::support::Forge::with(
        assert_fs::TempDir::new().unwrap(),
        Sqlite { path: file },
        vec![("r.git".to_owned(), None)],
    );
    assert_eq!(copy.ask("ann", "show r.git 1").json()["holder"], "ann");
    // It is kept as carefully as the original.
    assert_eq!(copy.ask("ann", "renew r.git 1 --session s").exit, 0);
    assert!(log.exists());
}

#[test]
fn whoami_says_what_holds_here() {
    let forge = Forge::new();
    let said = forge.ask("guest", "whoami r.git");
    assert_eq!(
        of(
            &said,
            &["name", "key", "access", "protocol", "tracker", "max_ttl"]
        ),
        json!({ "name": "guest", "key": "SHA256:guest", "access": "read", "protocol": 1,
                "tracker": "none", "max_ttl": 2_592_000 })
    );
    assert_eq!(forge.ask("root", "whoami r.git").json()["access"], "admin");
    assert_eq!(forge.ask("nobody", "whoami").json()["access"], json!(null));
}

/// Binds issue 1 to `claim/1` for ann.
const START: &str = "acquire r.git 1 --session s1 --ttl 60 --remote up --branch claim/1 \
                     --worktree /w --machine m";

fn recover(session: &str, machine: &str) -> String {
    format!(
        "recover r.git 1 --session {session} --branch claim/1 --worktree /w2 --machine {machine} --head {}",
        "a".repeat(40)
    )
}

#[test]
fn a_bound_claim_carries_a_canonical_record() {
    let forge = Forge::new();
    let started = forge.ask("ann", START).json();
    let git_claim_api::lock::Reading::Canonical(lock) = git_claim_api::lock::read(&started["lock"])
    else {
        panic!("{started}");
    };
    assert_eq!(lock.remote, "up");
    assert_eq!(lock.lock_generation, 1);
    assert_eq!(lock.lock_provenance.source, "start");
    let renewed = forge
        .ask("ann", "renew r.git 1 --ttl 60 --session s1")
        .json();
    assert_eq!(renewed["lock"]["lock_generation"], 2);
    assert_eq!(renewed["lock"]["work_lease"]["heartbeat_count"], 1);
    assert_eq!(
        renewed["lock"]["lock_provenance"],
        started["lock"]["lock_provenance"]
    );
    // Where somebody works is shown to those who may write alone.
    let shown = |user| forge.ask(user, "show r.git 1").json();
    assert_eq!(shown("bob")["worktree"], "/w");
    assert_eq!(shown("bob")["missing"], json!([]));
    assert_eq!(shown("guest").get("worktree"), None);
    assert_eq!(shown("guest").get("lock"), None);
    assert_eq!(
        forge
            .ask("ann", "release r.git 1 --session s1")
            .json()
            .get("lock"),
        None
    );
}

#[test]
fn a_bound_claim_is_its_keys() {
    let forge = Forge::new();
    forge.ask("ann", START);
    for words in [
        START,
        "renew r.git 1 --ttl 5 --session s1",
        "release r.git 1 --session s1",
        "verify r.git 1 --token 1 --session s1",
    ] {
        let said = forge.ask_with_key("ann", "SHA256:another", words);
        assert_eq!(
            of(&said, &["status", "reason"]),
            json!({ "status": "held", "reason": "other-key" }),
            "{words}"
        );
    }
    let taken = "acquire r.git 1 --session s2 --take-over --reason new%20key";
    assert_eq!(forge.ask_with_key("ann", "SHA256:another", taken).exit, 0);
}

#[test]
fn recovery_begins_a_tenure_once_and_a_dry_run_none() {
    let forge = Forge::new();
    forge.ask("ann", START);
    forge.step_ms(61_000);
    let before = forge.ask("ann", "show r.git 1").json();
    let dry = forge.ask("ann", &format!("{} --dry-run", recover("s2", "m")));
    assert_eq!(
        of(&dry, &["status", "recovery", "token"]),
        json!({ "status": "recovered", "recovery": "taken-again", "token": 2 })
    );
    assert_eq!(forge.ask("ann", "show r.git 1").json(), before);
    let done = forge.ask("ann", &recover("s2", "m"));
    assert_eq!(
        of(&done, &["recovery", "token", "generation"]),
        json!({ "recovery": "taken-again", "token": 2, "generation": 2 })
    );
    assert_eq!(
        done.json()["lock"]["bootstrap_lock_recovery"]["earlier_session"],
        "s1"
    );
    // The second of two that recover at once.
    let late = forge.ask("ann", &recover("s3", "other"));
    assert_eq!(
        (late.exit, late.json()["refusal_code"].clone()),
        (1, json!("already_canonical"))
    );
    let log = forge.ask("ann", "log r.git 1").json();
    assert_eq!(log["tenures"][1]["how"], "expired");
}

#[test]
fn a_refused_recovery_names_its_code_and_the_next_command() {
    let forge = Forge::new();
    let said = forge.ask("ann", &recover("s1", "m"));
    assert_eq!(
        (said.exit, said.json()["refusal_code"].clone()),
        (1, json!("no_durable_lock"))
    );
    assert_eq!(said.json()["exact_next_action"], "git claim start 1");
    forge.ask("ann", START);
    let said = forge.ask("bob", &recover("s1", "m"));
    assert_eq!(
        (said.exit, said.json()["refusal_code"].clone()),
        (4, json!("healthy_foreign_lock"))
    );
}

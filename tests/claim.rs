//! What a person types, what they read, and what becomes of it: each command
//! over the real sshd.

use std::fs;

use predicates::prelude::*;
use serde_json::json;
use snapbox::{assert_data_eq, str};

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::Forge;
use crate::support::issue;

/// The error and hint of a command that must end with `exit`, with nothing on
/// its standard output.
fn refused(client: &Client, line: &str, exit: i32) -> String {
    let assert = client.run(line).code(exit).stdout("");
    stderr(&assert)
}

#[test]
fn a_claim_says_which_issue_and_until_when() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    assert_data_eq!(
        alice.ok("git claim ae1c --ttl 2h"),
        str![[r#"
claimed ae1c051[..] "Crash on empty input" until [..] (in [..])

"#]]
    );
    let reply = alice.json("git claim 862b6f3 --ttl 90s --note working", 0);
    assert_eq!(reply["status"], "acquired");
    assert_eq!(reply["repo"], "acme/app.git");
    assert_eq!(reply["issue"], issue::RETITLED);
    assert_eq!(reply["title"], "New title");
    assert_eq!(reply["holder"], "alice");
    assert_eq!(reply["token"], 1);
    assert_eq!(reply["ttl"], 90);
    assert_eq!(reply["tenure"], "new");
    assert_eq!(reply["note"], "working");
    assert_eq!(reply["mine"], true);
}

#[test]
fn a_claim_of_anothers_is_a_conflict_that_names_them() {
    let forge = Forge::new();
    let bob = forge.client("bob");
    let alice = forge.client("alice");
    bob.ok("git claim ae1c --ttl 2h");
    assert_data_eq!(
        refused(&alice, "git claim ae1c", 4),
        str![[r#"
error: issue ae1c051[..] is claimed by bob until [..] (in [..])
hint: it has been held for [..], last heartbeat [..] ago; `git claim --next` takes another

"#]]
    );
    let reply = alice.json("git claim ae1c", 4);
    assert_eq!(reply["status"], "held");
    assert_eq!(reply["reason"], "held");
    assert_eq!(reply["holder"], "bob");
    assert_eq!(reply["mine"], false);
    // Nobody is told a stranger's session in full.
    let session = reply["session"].as_str().unwrap();
    assert_eq!(session.len(), 8, "{session}");
    refused(&alice, "git claim renew ae1c --ttl 1h", 4);
    refused(&alice, "git unclaim ae1c", 4);
}

#[test]
fn ones_own_claim_is_extended_with_the_same_token() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let first = alice.json("git claim ae1c --ttl 60s", 0);
    let again = alice.json("git claim ae1c --ttl 2h", 0);
    assert_eq!(again["tenure"], "own");
    assert_eq!(again["token"], first["token"]);
    assert_eq!(again["session"], first["session"]);
    assert_eq!(again["ttl"], 7_200);
}

#[test]
fn without_a_ttl_a_claim_is_open_ended() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let said = alice.ok("git claim ae1c");
    assert!(said.contains("until released"), "{said}");
    let list = alice.json("git claims", 0);
    assert_eq!(list["leases"][0]["expires_at"], json!(null));
    forge.ledger().rewind(10 * 365 * 86_400);
    assert_eq!(alice.json("git claim ae1c", 0)["tenure"], "own");
    // Dropping an end that was there is said.
    alice.ok("git claim 862b --ttl 1h");
    let said = alice.ok("git claim 862b");
    assert!(said.contains("has no end"), "{said}");
}

#[test]
fn a_claim_that_ran_out_is_anyones_and_the_token_rises() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    alice.ok("git claim ae1c --ttl 2h");
    forge.ledger().rewind(2 * 3_600 - 60);
    refused(&bob, "git claim ae1c", 4);
    forge.ledger().rewind(61);
    assert_eq!(bob.json("git claims", 0)["leases"], json!([]));
    let late = alice.json("git claim renew ae1c --ttl 1h", 4);
    assert_eq!(late["reason"], "expired");
    assert_eq!(late["holder"], json!(null));
    let reply = bob.json("git claim ae1c --ttl 1h", 0);
    assert_eq!(reply["token"], 2);
    assert_eq!(reply["tenure"], "new");
    let late = alice.json("git claim renew ae1c --ttl 1h", 4);
    assert_eq!(late["holder"], "bob");
}

#[test]
fn renew_moves_the_end_and_keeps_the_recorded_ttl() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c --ttl 1h");
    forge.ledger().rewind(1_800);
    assert_data_eq!(
        alice.ok("git claim renew ae1c"),
        str![[r#"
renewed ae1c051[..] until [..] (in [..])

"#]]
    );
    let reply = alice.json("git claim renew ae1c", 0);
    assert_eq!(reply["status"], "renewed");
    assert_eq!(reply["ttl"], 3_600);
    assert!(
        reply["ttl_left_ms"].as_i64().unwrap() > 3_500_000,
        "{reply}"
    );
    let reply = alice.json("git claim heartbeat ae1c -t 2h", 0);
    assert_eq!(reply["ttl"], 7_200);
    assert_eq!(reply["token"], 1);
}

#[test]
fn unclaim_gives_it_back_and_may_be_repeated() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    alice.ok("git claim ae1c");
    assert_data_eq!(
        alice.ok("git unclaim ae1c"),
        str![[r#"
released ae1c051[..]

"#]]
    );
    let again = alice.json("git unclaim ae1c", 0);
    assert_eq!(again["status"], "released");
    assert_eq!(again["was_held"], false);
    // The row stays, and its number goes on.
    assert_eq!(bob.json("git claim ae1c", 0)["token"], 2);
}

#[test]
fn claims_lists_the_live_ones_in_the_order_they_began() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let dave = forge.client("dave");
    bob.ok("git claim d928 --ttl 2h");
    alice.ok("git claim ae1c --note mine");
    alice.ok("git claim 537d --ttl 1m");
    alice.ok("git claim 862b");
    alice.ok("git unclaim 862b");
    let issues = |line: &str| -> Vec<String> {
        dave.json(line, 0)["leases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lease| lease["issue"].as_str().unwrap()[..4].to_owned())
            .collect()
    };
    assert_eq!(issues("git claims"), ["d928", "ae1c", "537d"]);
    assert_eq!(issues("git claims --holder bob"), ["d928"]);
    assert_eq!(issues("git claims --holder nobody"), [""; 0]);
    assert_eq!(issues("git claims --mine"), [""; 0]);
    assert_eq!(issues("git claims --ended"), ["862b"]);
    let text = dave.ok("git claims");
    for word in ["d928666", "ae1c051", "537daeb", "alice", "bob"] {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
    assert!(text.find("d928666") < text.find("ae1c051"), "{text}");
    let mine = alice.json("git claims --mine", 0);
    assert_eq!(mine["leases"].as_array().unwrap().len(), 2);
}

#[test]
fn nothing_claimed_is_said_and_is_no_error() {
    let forge = Forge::new();
    let dave = forge.client("dave");
    assert_eq!(dave.json("git claims", 0)["leases"], json!([]));
    dave.run("git claims").success();
    // Nobody has claimed anything, so there is no ledger; looking made none.
    assert!(!forge.ledger().file().exists());
}

#[test]
fn the_log_has_every_tenure_and_how_it_ended() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let carol = forge.client("carol");
    alice.ok("git claim ae1c --ttl 1h");
    forge.ledger().rewind(3_700);
    bob.ok("git claim ae1c");
    bob.ok("git unclaim ae1c");
    alice.ok("git claim ae1c");
    carol.ok("git unclaim ae1c --force --reason gone --expected-token 3");
    alice.ok("git claim ae1c");
    let log = carol.json("git claim log ae1c", 0);
    let tenures: Vec<String> = log["tenures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            let how = t["how"].as_str().unwrap_or("-");
            format!("{} {} {how}", t["token"], t["holder"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        tenures,
        [
            "4 alice -",
            "3 alice forced",
            "2 bob released",
            "1 alice expired"
        ]
    );
    assert_eq!(log["tenures"][1]["by"], "carol");
    assert_eq!(log["tenures"][1]["why"], "gone");
    let text = carol.ok("git claim log ae1c");
    for word in ["alice", "bob", "carol", "gone", "released"] {
        assert!(text.contains(word), "{word} is missing in:\n{text}");
    }
    // Without an issue: the whole repository's, not this worktree's binding.
    carol.run("git claim log").failure();
}

#[test]
fn whoami_says_who_the_server_thinks_one_is() {
    let forge = Forge::new();
    for (name, access) in [("alice", "write"), ("carol", "admin"), ("dave", "read")] {
        let client = forge.client(name);
        let reply = client.json("git claim whoami", 0);
        assert_eq!(reply["name"], name);
        assert_eq!(reply["access"], access);
        assert_eq!(reply["repo"], "acme/app.git");
        assert_eq!(reply["protocol"], 1);
        assert_eq!(reply["tracker"], "git-issue");
        assert_eq!(reply["max_ttl"], 30 * 86_400);
        let text = client.ok("git claim whoami");
        assert!(text.contains(name) && text.contains(access), "{text}");
    }
}

#[test]
fn an_admin_ends_anothers_claim_with_a_reason_and_its_number() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let carol = forge.client("carol");
    alice.ok("git claim ae1c --ttl 2h");
    let evict = |who: &Client, options: &str, exit| {
        who.run(&format!("git unclaim ae1c --force {options}"))
            .code(exit)
    };
    evict(&carol, "", 2);
    evict(&carol, "--reason x", 1);
    evict(&bob, "--reason x --expected-token 1", 1);
    evict(&carol, "--reason x --expected-token 7", 4);
    assert_eq!(alice.json("git claims --mine", 0)["leases"][0]["token"], 1);

    let mut command = carol.git(["unclaim", "ae1c", "--force", "--expected-token", "1"]);
    command
        .args(["--reason", "on leave since May"])
        .assert()
        .success();
    let told = alice.json("git claim renew ae1c --ttl 1h", 4);
    assert_eq!(told["by"], "carol");
    assert_eq!(told["why"], "on leave since May");
    let told = refused(&alice, "git claim renew ae1c --ttl 1h", 4);
    assert!(
        told.contains("carol") && told.contains("on leave since May"),
        "{told}"
    );
}

#[test]
fn a_take_over_tells_the_evicted_who_and_why() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let carol = forge.client("carol");
    alice.ok("git claim ae1c --ttl 2h");
    carol
        .run("git claim ae1c --take-over --reason urgent")
        .code(1)
        .stderr(predicate::str::contains("--expected-token"));
    let reply = carol.json(
        "git claim ae1c --take-over --reason urgent --expected-token 1",
        0,
    );
    assert_eq!(reply["holder"], "carol");
    assert_eq!(reply["token"], 2);
    let told = alice.json("git claim renew ae1c --ttl 1h", 4);
    assert_eq!(told["reason"], "taken-over");
    assert_eq!(told["holder"], "carol");
    assert_eq!(told["by"], "carol");
    assert_eq!(told["why"], "urgent");
    let log = alice.json("git claim log ae1c", 0);
    assert_eq!(log["tenures"][1]["how"], "taken-over");
}

#[test]
fn two_worktrees_of_one_person_are_two_holders() {
    let forge = Forge::new();
    let one = forge.client("alice");
    let two = forge.client("alice");
    one.ok("git claim ae1c");
    let reply = two.json("git claim ae1c", 4);
    assert_eq!(reply["reason"], "other-session");
    assert_eq!(reply["same_principal"], true);
    assert_eq!(reply["mine"], false);
    two.run("git unclaim ae1c").code(4);
    // The same session, said by hand, is the same holder.
    let session = one.json("git claims", 0)["leases"][0]["session"].clone();
    let session = session.as_str().unwrap();
    assert_eq!(reply["session"], session);
    two.ok(&format!("git claim ae1c --session {session}"));
    // One's own claim elsewhere may be taken over without being an admin.
    let reply = two.json("git claim ae1c --take-over --reason moved", 0);
    assert_eq!(reply["token"], 2);
    assert_eq!(one.json("git claim renew ae1c", 4)["reason"], "taken-over");
}

#[test]
fn a_linked_worktree_and_a_copied_clone_are_sessions_of_their_own() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git fetch -q origin");
    alice.ok("git reset -q --hard origin/main");
    alice.ok("git claim ae1c");
    alice.ok("git worktree add -q linked");
    let mut linked = alice.command("git");
    linked
        .args(["-C", "linked", "claim", "ae1c"])
        .assert()
        .code(4);
    let copy = alice.dir().with_file_name("copy");
    alice
        .command("cp")
        .arg("-a")
        .arg(alice.dir())
        .arg(&copy)
        .assert()
        .success();
    let mut copied = alice.command("git");
    copied
        .arg("-C")
        .arg(&copy)
        .args(["claim", "ae1c"])
        .assert()
        .code(4);
    // And the first one is still the holder.
    assert_eq!(alice.json("git claim ae1c", 0)["tenure"], "own");
}

#[test]
fn only_an_open_issue_that_exists_is_claimed() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let closed = format!("git claim {}", issue::CLOSED);
    for (line, said) in [
        (closed.as_str(), "closed"),
        ("git claim ddf3587", "closed"),
        ("git claim 0123456", "0123456"),
        ("git claim ae1", "ae1"),
        ("git claim nosuchissue", "nosuchissue"),
    ] {
        let error = refused(&alice, line, 1);
        assert!(
            error.starts_with("error: ") && error.contains(said),
            "{line}: {error}"
        );
    }
    assert_eq!(forge.ledger().dump(), Vec::<String>::new());
    // In a state of its own, and a trailer in a comment's text: both open.
    alice.ok("git claim 537daeb");
    alice.ok("git claim ae1c051");
}

#[test]
fn an_ambiguous_prefix_names_what_it_could_be() {
    let forge = Forge::new();
    let repo = forge.repos().join("acme/app.git");
    let twin = "refs/issues/ae1c051b-0000-4000-8000-000000000000";
    let source = format!("refs/issues/{}", issue::CRASH);
    crate::support::forge::git(&repo, &["update-ref", twin, &source]);
    let alice = forge.client("alice");
    let error = refused(&alice, "git claim ae1c051", 1);
    assert!(error.contains("ae1c051b-0, ae1c051b-e;"), "{error}");
    alice.ok("git claim ae1c051b-e4");
}

#[test]
fn a_title_is_shown_as_it_was_written() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    assert_eq!(alice.json("git claim d928", 0)["issue"], issue::UNICODE);
    let said = alice.ok("git claim d928");
    assert!(said.contains("Ünïcode title — naïve “quotes”"), "{said}");
    assert_eq!(
        alice.json("git claims", 0)["leases"][0]["title"],
        "Ünïcode title — naïve “quotes”"
    );
}

#[test]
fn an_issue_that_was_closed_while_claimed_is_listed_as_closed() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c --ttl 1h");
    let repo = forge.repos().join("acme/app.git");
    let issue_ref = format!("refs/issues/{}", issue::CRASH);
    crate::support::forge::close_issue(&repo, &issue_ref);
    assert_eq!(
        alice.json("git claims", 0)["leases"][0]["issue_state"],
        "closed"
    );
    let text = alice.ok("git claims");
    assert!(text.contains("closed"), "{text}");
    // It is still alice's, to renew and to give back.
    alice.ok("git claim renew ae1c");
    alice.ok("git unclaim ae1c");
    refused(&alice, "git claim ae1c", 1);
}

#[test]
fn the_hash_of_an_id_is_the_same_id() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim #ae1c051");
    assert_eq!(alice.json("git claim ae1c051", 0)["tenure"], "own");
}

#[test]
fn quiet_says_nothing_but_errors() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let assert = alice.run("git claim ae1c -q").success();
    assert_eq!(
        (stdout(&assert), stderr(&assert)),
        (String::new(), String::new())
    );
    assert!(refused(&bob, "git claim ae1c -q", 4).starts_with("error: "));
    // What was asked for is shown.
    assert!(bob.ok("git claims -q").contains("ae1c051b"));
    assert_eq!(stderr(&bob.run("git claims -q --mine").success()), "");
}

/// The token's file is a convenience: what the server has answered stands.
#[test]
fn a_token_that_cannot_be_kept_or_removed_is_a_warning() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let claims = alice.dir().join(".git/claims");
    fs::write(&claims, "").unwrap();
    for (line, said) in [
        ("git claim ae1c --ttl 1h", "claimed ae1c051b"),
        ("git claim renew ae1c", "renewed ae1c051b"),
        ("git unclaim ae1c", "released ae1c051b"),
        ("git claim --next --ttl 1h", "claimed "),
    ] {
        let assert = alice.run(line).code(0);
        assert!(stdout(&assert).starts_with(said), "{}", stdout(&assert));
        let warned = stderr(&assert);
        assert!(warned.starts_with("warning: "), "{line}: {warned}");
    }
    let reply = alice.json("git claim 766d", 0);
    assert_eq!(reply["status"], "acquired");
    fs::remove_file(&claims).unwrap();
    alice.ok("git claim ae1c");
    let token = claims.join(format!("origin/{}.token", issue::CRASH));
    fs::remove_file(&token).unwrap();
    fs::create_dir(&token).unwrap();
    let assert = alice.run("git unclaim ae1c").code(0);
    assert!(stdout(&assert).starts_with("released ae1c051b"));
    assert!(stderr(&assert).contains("cannot be removed"));
    assert_eq!(stderr(&assert).lines().count(), 1, "{}", stderr(&assert));
}

/// Where a session has to be made first, nobody is asked before it is stored.
#[test]
fn a_session_that_cannot_be_stored_fails_before_asking() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    fs::create_dir(alice.dir().join(".git/claim-session")).unwrap();
    refused(&alice, "git claim ae1c", 1);
    assert!(forge.ledger().dump().is_empty());
}

/// A server that answers for another issue, or grants what cannot be had.
#[test]
fn a_reply_that_makes_no_sense_is_no_claim() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let reply = alice.json("git claim ae1c --ttl 1h", 0);
    for (key, value) in [
        ("issue", json!(issue::RETITLED)),
        ("mine", json!(false)),
        ("expires_at", json!("2001-01-01T00:00:00Z")),
        ("token", json!(0)),
        ("session", json!("another")),
    ] {
        let mut reply = reply.clone();
        reply[key] = value;
        let lie = alice.person().home().join("lie");
        fs::write(&lie, format!("{reply}\n")).unwrap();
        alice
            .person()
            .make_program("liar", &format!("cat {}", lie.display()));
        for line in ["git claim ae1c", "git claim run ae1c -- true"] {
            let mut words = line.split(' ');
            let mut command = alice.command(words.next().unwrap());
            command.args(words).env("GIT_SSH_COMMAND", "liar");
            let assert = command.assert().stdout("");
            let code = assert.get_output().status.code();
            assert!(matches!(code, Some(6 | 106)), "{key} {line}: {assert}");
            let said = stderr(&assert);
            assert!(said.contains("makes no sense: "), "{key} {line}: {said}");
        }
    }
}

/// Where a URL of its own decides, that is what the hint names.
#[test]
fn hints_name_what_can_be_done_about_it() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for id in ["ae1", "99999"] {
        let said = refused(&alice, &format!("git claim {id}"), 1);
        assert!(
            said.contains("hint: ") && said.contains("4 characters"),
            "{said}"
        );
    }
    alice.ok("git claim ae1c");
    // An admin is told where the token is that has to be named.
    let admin = forge.client("carol");
    let said = refused(&admin, "git claim ae1c --take-over --reason x", 1);
    assert!(
        said.contains("--expected-token") && said.contains("`git claim log <id>`"),
        "{said}"
    );
    alice.ok("git config remote.origin.claimUrl forge:acme/none.git");
    let said = refused(&alice, "git claims", 1);
    assert!(
        said.contains("`git config remote.origin.claimUrl` shows"),
        "{said}"
    );
    alice.ok("git config remote.origin.claimUrl forge:");
    let said = refused(&alice, "git claims", 1);
    assert!(
        said.contains("error: the URL in remote.origin.claimUrl"),
        "{said}"
    );
    assert!(
        said.contains("`git config remote.origin.claimUrl <url>` sets"),
        "{said}"
    );
    alice.ok("git config --unset remote.origin.claimUrl");
    alice.ok("git config remote.origin.url forge:acme/none.git");
    let said = refused(&alice, "git claims", 1);
    assert!(said.contains("`git remote -v` shows"), "{said}");
}

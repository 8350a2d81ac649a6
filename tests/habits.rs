//! What people's hands know of git works here too.

use std::fs;

use crate::support::client::{Client, Person, stderr, stdout};
use crate::support::forge::{Forge, git};
use crate::support::issue::CRASH;
use crate::support::ledger::Ledger;
use crate::support::terminal::seen;

/// A person with a repository on this machine, in which every id is open.
fn alone() -> (Forge, Client) {
    let forge = Forge::without_sshd("");
    let repo = forge.add_repo("alone.git");
    git(&repo, &["config", "claim.tracker", "none"]);
    let alice = Person::new("alice", forge.dir().join("alice"));
    alice.make_home();
    let client = alice.worktree(repo.to_str().unwrap());
    (forge, client)
}

#[test]
fn git_says_where_and_with_which_settings() {
    let (forge, alice) = alone();
    let worktree = alice.dir().to_str().unwrap().to_owned();
    let outside = alice.at(forge.dir());
    outside.ok(&format!("git -C {worktree} claim 1"));
    outside
        .git(["claim", "2"])
        .env("GIT_DIR", alice.dir().join(".git"))
        .assert()
        .success();
    // All three are one session.
    alice.ok("git claim 3");
    assert_eq!(alice.ok("git claims --mine -z").matches('\0').count(), 3);
    let said = stderr(&alice.run("git -c claim.timeout=0 claims").code(1));
    assert!(said.contains("claim.timeout"), "{said}");
    let said = stderr(&alice.run("git -c claim.tiemout=9 -c claim.tiemout=8 claims"));
    assert_eq!(said.matches("claim.tiemout").count(), 1, "{said}");
}

#[test]
fn an_alias_is_a_command_and_its_options_can_be_taken_back() {
    let (_forge, alice) = alone();
    alice
        .git(["config", "alias.mine", "claims --mine --json"])
        .assert()
        .success();
    alice
        .git(["config", "alias.take", "claim --quiet -t 2h"])
        .assert()
        .success();
    assert_eq!(alice.ok("git take 1"), "");
    assert!(
        alice
            .ok("git take 2 --no-quiet --no-ttl")
            .ends_with(" until released\n")
    );
    assert!(alice.ok("git mine").starts_with('{'));
    assert!(alice.ok("git mine --no-json").contains("ISSUE"));
    // The later one counts, in subcommands too.
    assert!(
        alice
            .ok("git claim renew 1 --json --no-json")
            .starts_with("renewed")
    );
    assert!(
        alice
            .ok("git claim renew 1 --no-json --json")
            .starts_with('{')
    );
    // What an option needs must still be there.
    let said = stderr(
        &alice
            .run("git claim 1 --take-over --reason x --no-reason")
            .code(2),
    );
    assert!(said.contains("--reason"), "{said}");
}

#[test]
fn everything_behind_two_dashes_is_an_id() {
    let (_forge, alice) = alone();
    assert!(alice.ok("git claim -- renew").starts_with("claimed renew"));
    assert!(
        alice
            .ok("git claim renew -- renew")
            .starts_with("renewed renew")
    );
    assert!(
        alice
            .ok("git unclaim -- renew")
            .starts_with("released renew")
    );
    alice.run("git claim -- --next").code(2);
}

#[test]
fn help_that_was_asked_for_is_no_failure() {
    let (_forge, alice) = alone();
    for line in [
        "git claim -h",
        "git claims -h",
        "git unclaim -h",
        "git claim run -h",
    ] {
        let assert = alice.run(line).success();
        assert!(stdout(&assert).contains("Usage: git "), "{line}");
        assert_eq!(stderr(&assert), "", "{line}");
    }
}

#[test]
fn scripts_get_records() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c --ttl 2h -m looking");
    let records = alice.ok("git claims -z");
    let [issue, holder, token, since, until, ended, title, note] = <[&str; 8]>::try_from(
        records
            .strip_suffix('\0')
            .unwrap()
            .split('\t')
            .collect::<Vec<_>>(),
    )
    .unwrap();
    assert_eq!((issue, holder, token), (CRASH, "alice", "1"));
    assert!(since.ends_with('Z') && until.ends_with('Z'), "{records}");
    assert_eq!(
        (ended, title, note),
        ("", "Crash on empty input", "looking")
    );
    alice.ok("git unclaim ae1c");
    assert_eq!(alice.ok("git claims -z"), "");
    assert!(alice.ok("git claims -z --ended").contains("\treleased\t"));
    alice.run("git claims -z --json").code(2);
}

/// What the pager was given: one that shows nothing and keeps it.
fn paged(client: &Client, lines: u16, command: &str) -> (String, Option<String>) {
    let file = client.dir().join("paged");
    let _ = fs::remove_file(&file);
    let shown = seen(client, (80, lines), command);
    (shown, fs::read_to_string(&file).ok())
}

#[test]
fn a_thousand_claims_go_through_the_pager() {
    let (forge, alice) = alone();
    alice.ok("git claim issue-1 --ttl 2h");
    let ledger = Ledger::at(forge.repos().join("alone.git/collab.db"));
    ledger.repeat("issue-1", 1_000);
    alice
        .git(["config", "core.pager", "cat >paged; echo $LESS >>paged"])
        .assert()
        .success();
    let (shown, text) = paged(&alice, 24, "git claims");
    let text = text.unwrap();
    assert_eq!(shown, "");
    assert_eq!(
        text.lines().count(),
        1_002,
        "a heading, 1,000 claims, and what less is told"
    );
    assert!(text.contains("\x1b[1m") && text.ends_with("\nFRX\n"));
    for line in text.lines().skip(1) {
        assert!(line.len() <= 80 + "\x1b[32m\x1b[0m".len(), "{line}");
    }
    // What fits needs no pager, and git's own words against one count.
    for (lines, command) in [
        (2_000, "git claims"),
        (24, "git claims | cat"),
        (24, "git --no-pager claims"),
        (24, "GIT_PAGER=cat git claims"),
        (24, "git -c core.pager= claims"),
        (24, "git claims --json"),
    ] {
        let (shown, text) = paged(&alice, lines, command);
        assert!(text.is_none(), "{command}");
        assert!(shown.len() > 20_000, "{command}: {}", shown.len());
    }
    // One that can't be had, and one that ends at once.
    let (shown, _) = paged(&alice, 24, "GIT_PAGER='head -n 2' git claims; echo $?");
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(shown.ends_with("0\n"), "{shown}");
    // git may have started it already: then it is as on a terminal.
    let (_, text) = paged(&alice, 24, "git -p claims");
    let text = text.unwrap();
    assert!(
        text.starts_with("\x1b[1m") && text.lines().count() == 1_002,
        "{text:.200}"
    );
}

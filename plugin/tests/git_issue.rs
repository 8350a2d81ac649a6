//! The tracker git-issue, on issues that the real tool made
//! (`tests/cases/git-issue.bundle`).

use std::process::Command;

use crate::support::git_issue_repository;

use super::Forge;
use assert_fs::TempDir;
use serde_json::json;

fn forge() -> Forge {
    let dir = TempDir::new().unwrap();
    let repository = git_issue_repository(dir.path());
    Forge::over(dir, vec![("app.git".to_owned(), Some(repository))])
}

fn git(forge: &Forge, args: &[&str]) -> String {
    let done = Command::new("git")
        .arg("--git-dir")
        .arg(forge.dir.path().join("app.git"))
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn open_issues_are_taken_and_closed_ones_are_not() {
    let forge = forge();
    for (id, title) in [
        // A comment of this one looks like a trailer that closes it.
        ("ae1c051", "Crash on empty input"),
        // Not ASCII.
        ("d928666", "Ünïcode title — naïve “quotes”"),
        // Closed, reopened, then in a state of its own.
        ("537daeb", "Closed and opened again"),
        ("862b6f3", "New title"),
        ("766dbfe", "In review"),
    ] {
        let said = forge.ask("ann", &format!("acquire app.git {id} --session s"));
        assert_eq!(said.exit, 0, "{id}: {said:?}");
        let json = said.json();
        let full = json["issue"].as_str().unwrap();
        assert!(full.starts_with(id) && full.len() == 36, "{full}");
        assert_eq!(json["title"], title);
    }
    let said = forge.ask("ann", "acquire app.git ddf3587 --session s");
    assert_eq!(said.exit, 1);
    assert!(said.stderr.contains("is closed"), "{said:?}");
}

#[test]
fn ids_are_full_or_a_unique_prefix_of_four() {
    let forge = forge();
    for (typed, error) in [
        ("ae1", "there is no issue 'ae1'"),
        ("ffff", "there is no issue 'ffff'"),
    ] {
        let said = forge.ask("ann", &format!("acquire app.git {typed}"));
        assert_eq!((said.exit, said.stderr), (1, format!("error: {error}\n")));
    }
    let full = forge.ask("ann", "acquire app.git ae1c --session s").json()["issue"]
        .as_str()
        .unwrap()
        .to_owned();
    // A second issue with the same beginning.
    let twin = format!("ae1c{}", &full[4..].replace(|c: char| c != '-', "0"));
    let tip = git(&forge, &["rev-parse", &format!("refs/issues/{full}")]);
    git(
        &forge,
        &["update-ref", &format!("refs/issues/{twin}"), &tip],
    );
    let said = forge.ask("bob", "acquire app.git ae1c0 --session b");
    assert_eq!(said.exit, 1, "{said:?}");
    assert!(
        said.stderr.contains("'ae1c0' could be ae1c000, ae1c051;"),
        "{said:?}"
    );
    assert_eq!(
        forge
            .ask("bob", &format!("acquire app.git {twin} --session b"))
            .exit,
        0
    );
}

#[test]
fn a_claim_outlives_its_issue_and_is_marked() {
    let forge = forge();
    let full = forge.ask("ann", "acquire app.git 766d --session s").json()["issue"]
        .as_str()
        .unwrap()
        .to_owned();
    let name = format!("refs/issues/{full}");
    let tree = git(&forge, &["rev-parse", &format!("{name}^{{tree}}")]);
    let closed = git(
        &forge,
        &[
            "commit-tree",
            &tree,
            "-p",
            &name,
            "-m",
            "close\n\nState: closed",
        ],
    );
    git(&forge, &["update-ref", &name, &closed]);
    let list = forge.ask("bob", "list app.git").json();
    assert_eq!(list["leases"][0]["issue_state"], "closed");
    // One's own live claim needs no open issue; another's needs one.
    assert_eq!(forge.ask("ann", "acquire app.git 766d --session s").exit, 0);
    assert_eq!(
        forge
            .ask("ann", "renew app.git 766d --ttl 9 --session s")
            .exit,
        0
    );
    forge.step_ms(10_000);
    assert_eq!(forge.ask("bob", "acquire app.git 766d --session b").exit, 1);
}

#[test]
fn next_takes_the_oldest_open_issue_that_nobody_holds() {
    let forge = forge();
    let mut taken = Vec::new();
    for round in 0..5 {
        let said = forge.ask("ann", &format!("next app.git --session s{round}"));
        assert_eq!(said.exit, 0, "{said:?}");
        taken.push(said.json()["issue"].as_str().unwrap().to_owned());
    }
    let mut distinct = taken.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
    assert!(!taken.iter().any(|id| id.starts_with("ddf3587")));
    let said = forge.ask("ann", "next app.git --session s9");
    assert_eq!(
        (said.exit, said.json()),
        (3, json!({ "status": "none", "repo": "app.git" }))
    );
}

#[test]
fn broken_data_is_neither_open_nor_unknown() {
    let forge = forge();
    let blob = git(&forge, &["hash-object", "-w", "--stdin"]);
    git(
        &forge,
        &[
            "update-ref",
            "refs/issues/00000000-0000-4000-8000-000000000000",
            &blob,
        ],
    );
    let said = forge.ask("ann", "acquire app.git 0000 --session s");
    assert_eq!(said.exit, 6, "{said:?}");
    assert!(said.stderr.contains("git-issue cannot be read"), "{said:?}");
}

#[test]
fn settings_of_the_repository_count() {
    let forge = forge();
    git(&forge, &["config", "claim.maxTtl", "1h"]);
    let said = forge.ask("ann", "acquire app.git ae1c --ttl 3601");
    assert_eq!(
        (said.exit, said.stderr.as_str()),
        (
            1,
            "error: a claim may live for 1h (3600 seconds) at most here, not 3601 seconds\n"
        )
    );
    git(&forge, &["config", "claim.tracker", "jira"]);
    let said = forge.ask("ann", "acquire app.git ae1c");
    assert!(said.stderr.contains("claim.tracker is 'jira'"), "{said:?}");
    git(&forge, &["config", "claim.tracker", "none"]);
    assert_eq!(forge.ask("ann", "acquire app.git anything").exit, 0);
    git(&forge, &["config", "claim.maxTtl", "never"]);
    assert_eq!(forge.ask("ann", "acquire app.git other").exit, 6);
}

//! `fence`: which pushes pass.

use assert_fs::TempDir;
use assert_fs::prelude::*;
use git_claim_api::push::{Push, Pusher};
use serde_json::Value;

use crate::support::Said;

use super::Forge;

const ZERO: &str = "0000000000000000000000000000000000000000";
const ONE: &str = "1111111111111111111111111111111111111111";

/// A push by `name` that shows `options` and creates `refs`.
fn push(name: &str, options: &[&str], refs: &[&str]) -> Push {
    Push {
        pusher: (!name.is_empty()).then(|| Pusher {
            name: name.to_owned(),
            profile: format!("SHA256:{name}"),
        }),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        updates: refs
            .iter()
            .map(|name| format!("{ZERO} {ONE} {name}").parse().unwrap())
            .collect(),
    }
}

/// A forge with `r.git` on the disk, and its config.
fn forge(config: &str) -> Forge {
    let dir = TempDir::new().unwrap();
    let repository = dir.child("r.git");
    git2::Repository::init_bare(repository.path()).unwrap();
    let file = repository.child("config");
    let text = std::fs::read_to_string(file.path()).unwrap();
    file.write_str(&format!("{text}{config}")).unwrap();
    let repos = vec![
        ("r.git".to_owned(), Some(repository.path().to_owned())),
        ("other.git".to_owned(), None),
    ];
    Forge::over(dir, repos)
}

fn option(reply: &Value) -> String {
    let lease = &reply["lock"]["work_lease"];
    format!(
        "claim-token={}:{}:{}",
        reply["issue"].as_str().unwrap(),
        lease["token"],
        lease["lease_id"].as_str().unwrap()
    )
}

/// Binds 42 to the branch claim/42, as ann; the push option for it.
fn bind(forge: &Forge) -> String {
    let words = "acquire r.git 42 --ttl 60 --session s --branch claim/42 --worktree /w --machine m";
    option(&forge.ask("ann", words).json())
}

fn status(said: &Said) -> String {
    said.json()["status"].as_str().unwrap().to_owned()
}

fn objections(said: &Said) -> Vec<String> {
    let json = said.json();
    let objections = json["objections"].as_array().unwrap().iter();
    objections
        .map(|objection| {
            format!(
                "{} // {}",
                objection["error"].as_str().unwrap(),
                objection["hint"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn only_the_host_may_ask() {
    let forge = forge("");
    for subverb in ["fence", "settle"] {
        let said = forge.ask("root", &format!("{subverb} r.git"));
        assert_eq!(said.exit, 1);
        assert!(said.stderr.contains("no subverb"), "{said:?}");
    }
}

#[test]
fn nothing_unclaimed_is_in_the_way() {
    let forge = forge("");
    bind(&forge);
    for (who, refs) in [
        (
            "bob",
            &["refs/heads/main", "refs/heads/x", "refs/tags/v1"][..],
        ),
        ("", &["refs/heads/main"]),
        ("bob", &["refs/heads/claim/43"]),
        ("bob", &["refs/tags/claim/42", "refs/notes/claim/42"]),
        ("bob", &[]),
    ] {
        let said = forge.hook("fence", "r.git", &push(who, &["ci.skip"], refs));
        assert_eq!(
            (said.exit, status(&said).as_str()),
            (0, "passed"),
            "{refs:?}"
        );
    }
}

#[test]
fn the_live_token_passes_and_the_holder_alone_may_show_it() {
    let forge = forge("");
    let token = bind(&forge);
    let refs = ["refs/heads/claim/42", "refs/heads/main"];
    let ask = |who: &str| forge.hook("fence", "r.git", &push(who, &[&token], &refs));
    assert_eq!(ask("ann").exit, 0);
    for who in ["bob", ""] {
        let said = ask(who);
        assert_eq!((said.exit, status(&said).as_str()), (4, "refused"));
        assert!(objections(&said)[0].contains("is not yours"), "{said:?}");
    }
}

#[test]
fn a_stale_token_refuses_the_whole_push_and_says_what_to_do() {
    let forge = forge("");
    let token = bind(&forge);
    let stale = |expected: &[&str]| {
        let said = forge.hook("fence", "r.git", &push("ann", &[&token], &["refs/tags/v1"]));
        assert_eq!(said.exit, 4);
        let told = &objections(&said)[0];
        for text in expected.iter().chain(&["git unclaim 42"]) {
            assert!(told.contains(text), "{told}");
        }
        assert!(
            !told.contains("--take-over") && !told.contains("--force"),
            "{told}"
        );
    };
    forge.step_ms(61_000);
    stale(&["it ran out at 2026-09-05 12:01 UTC", "nobody holds it now"]);
    forge.ask("bob", "acquire r.git 42 --ttl 60");
    stale(&[
        "ran out",
        "bob holds it since 2026-09-05 12:01 UTC, until 2026-09-05 12:02 UTC",
    ]);
    let words = "acquire r.git 42 --take-over --reason ill --expected-token 2";
    forge.ask("root", words);
    stale(&["root holds it", "with no end set"]);
}

#[test]
fn the_evicted_holder_reads_who_did_it_and_why() {
    let forge = forge("");
    let token = bind(&forge);
    forge.ask(
        "root",
        "acquire r.git 42 --take-over --reason ill --expected-token 1",
    );
    let said = forge.hook("fence", "r.git", &push("ann", &[&token], &[]));
    let told = &objections(&said)[0];
    assert!(
        told.contains("taken over at 2026-09-05 12:00 UTC by root (ill)"),
        "{told}"
    );
}

#[test]
fn a_lease_that_was_never_here_is_ignored_and_garbage_is_not() {
    let forge = forge("");
    bind(&forge);
    for (option, exit) in [
        ("claim-token=42:1:0123456789abcdef0123456789abcdef", 0),
        ("claim-token=43:1:0123456789abcdef0123456789abcdef", 0),
        ("claim-token=", 4),
        ("claim-token=42", 4),
        ("claim-tokens=42", 0),
    ] {
        let said = forge.hook("fence", "r.git", &push("ann", &[option], &["refs/heads/x"]));
        assert_eq!(said.exit, exit, "{option}: {said:?}");
    }
    // Known there, not here.
    let token = bind(&forge);
    let said = forge.hook("fence", "other.git", &push("bob", &[&token], &[]));
    assert_eq!(said.exit, 0);
}

#[test]
fn a_bound_branch_needs_its_token_whatever_becomes_of_it() {
    let forge = forge("");
    let token = bind(&forge);
    let mut deleted = push("ann", &[], &["refs/heads/claim/42"]);
    deleted.updates[0].old = deleted.updates[0].new.take();
    for push in [
        &push("ann", &[], &["refs/heads/main", "refs/heads/claim/42"]),
        &deleted,
    ] {
        let said = forge.hook("fence", "r.git", push);
        assert_eq!(said.exit, 4);
        let told = &objections(&said)[0];
        assert!(told.contains(&format!("git push -o {token}")), "{told}");
    }
    let said = forge.hook(
        "fence",
        "r.git",
        &push("bob", &[], &["refs/heads/claim/42"]),
    );
    let told = &objections(&said)[0];
    assert!(
        told.contains("ann holds it since") && !told.contains("claim-token"),
        "{told}"
    );
    // Free again once the claim is over.
    forge.step_ms(61_000);
    let said = forge.hook(
        "fence",
        "r.git",
        &push("bob", &[], &["refs/heads/claim/42"]),
    );
    assert_eq!(said.exit, 0);
}

#[test]
fn the_repositorys_config_sets_the_fence() {
    for (config, stale, unclaimed) in [
        ("", 4, 0),
        ("[claim]\n\tfence = on\n", 4, 0),
        ("[claim]\n\tfence = off\n", 0, 0),
        ("[claim]\n\tfence = warn\n", 0, 0),
        ("[claim]\n\tfence = strict\n", 4, 4),
        ("[claim]\n\tfence = sometimes\n", 6, 6),
    ] {
        let forge = forge(config);
        bind(&forge);
        let said = forge.hook(
            "fence",
            "r.git",
            &push("bob", &[], &["refs/heads/claim/42"]),
        );
        assert_eq!(said.exit, stale, "{config}");
        if config.contains("warn") {
            assert_eq!(
                (status(&said).as_str(), objections(&said).len()),
                ("warned", 1)
            );
        }
        let said = forge.hook(
            "fence",
            "r.git",
            &push("bob", &[], &["refs/heads/claim/43"]),
        );
        assert_eq!(said.exit, unclaimed, "{config}");
    }
    let forge = forge("[claim]\n\tfence = strict\n");
    forge.ask("bob", "acquire r.git 43");
    let said = forge.hook(
        "fence",
        "r.git",
        &push("bob", &[], &["refs/heads/claim/43"]),
    );
    assert_eq!(said.exit, 0);
}

#[test]
fn a_push_of_any_size_is_read() {
    let forge = forge("");
    bind(&forge);
    let names: Vec<String> = (0..3_000)
        .map(|n| format!("refs/heads/branch-{n}"))
        .collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(
        forge.hook("fence", "r.git", &push("bob", &[], &names)).exit,
        0
    );
    names.push("refs/heads/claim/42");
    assert_eq!(
        forge.hook("fence", "r.git", &push("bob", &[], &names)).exit,
        4
    );
}

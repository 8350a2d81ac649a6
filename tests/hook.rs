//! `git claim install-hook`, and the check in front of real pushes.

use std::fs;

use crate::support::bound::{branch, commit, fetched, git_dir, started, write_hook};
use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, REPO, git};
use crate::support::issue;

fn push(client: &Client, what: &str) -> assert_cmd::assert::Assert {
    client.git(["push", "-q", "origin", what]).assert()
}

#[test]
fn a_push_from_a_sound_worktree_passes_and_any_other_does_not() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git claim install-hook");
    main.ok("git claim install-hook");
    commit(&bound, "one");
    push(&bound, "HEAD").success();
    forge.ledger().rewind(3 * 3_600);
    commit(&bound, "two");
    let told = stderr(&push(&bound, "HEAD").failure());
    assert!(told.contains("has run out"), "{told}");
    assert!(told.contains("hint: next: git claim recover"), "{told}");
    let there = git(
        &forge.repos().join(REPO),
        &["rev-parse", &branch(issue::CRASH)],
    );
    assert_ne!(there, git(bound.dir(), &["rev-parse", "HEAD"]));
    // Deleting the branch is a push too.
    bound
        .git(["push", "-q", "origin", "--delete", &branch(issue::CRASH)])
        .assert()
        .failure();
}

#[test]
fn branches_that_no_claim_is_bound_to_are_never_in_the_way() {
    let mut forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git claim install-hook");
    forge.ledger().rewind(3 * 3_600);
    for client in [&main, &bound] {
        push(client, "HEAD:refs/heads/free").success();
        push(client, "HEAD:refs/tags/v1").success();
        client
            .git(["push", "-q", "origin", "--delete", "free", "v1"])
            .assert()
            .success();
    }
    // To where no claims are asked for, even where the server is gone.
    let copy = forge.dir().join("copy.git");
    git(
        forge.dir(),
        &["init", "-q", "--bare", copy.to_str().unwrap()],
    );
    forge.stop_sshd();
    for target in [copy.to_str().unwrap(), "copy"] {
        if target == "copy" {
            let url = copy.to_str().unwrap();
            bound.git(["remote", "add", "copy", url]).assert().success();
        }
        bound
            .git(["push", "-q", target, "HEAD:refs/heads/free"])
            .assert()
            .success();
    }
    // An http remote is no reason to stop a push of ours either.
    bound
        .command("sh")
        .args([
            "-c",
            "echo refs/heads/x 1 refs/heads/x 0 | git claim check --hook pre-push -- web https://x/y",
        ])
        .assert()
        .success();
}

#[test]
fn where_nothing_is_bound_the_hook_asks_nobody() {
    let mut forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git claim install-hook");
    // A plain claim, whose token is kept, binds no branch.
    main.ok("git claim 862b --ttl 1h");
    let copy = forge.dir().join("copy.git");
    git(
        forge.dir(),
        &["init", "-q", "--bare", copy.to_str().unwrap()],
    );
    let url = copy.to_str().unwrap();
    main.git(["remote", "set-url", "--push", "origin", url])
        .assert()
        .success();
    forge.stop_sshd();
    main.person()
        .make_program("git-claim", "echo asked >&2; exit 1");
    push(&main, "HEAD:refs/heads/free").success();
    push(&bound, "HEAD").failure();
}

#[test]
fn a_damaged_record_stops_the_branch_that_is_worked_on() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    main.ok("git claim install-hook");
    fs::write(crate::support::bound::copy_file(&bound), "{").unwrap();
    push(&bound, "HEAD").failure();
    push(&bound, "HEAD:refs/heads/free").success();
}

#[test]
fn a_hook_that_was_there_goes_on_to_decide() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let hooks = git_dir(&main).join("hooks");
    let seen = main.person().home().join("seen");
    write_hook(
        &hooks.join("pre-push"),
        &format!(
            "echo \"$@\" >{0}; cat >>{0}; [ ! -e {0}.no ]",
            seen.display()
        ),
    );
    let said = bound.ok("git claim install-hook");
    assert!(said.contains("pre-push.local"), "{said}");
    assert!(hooks.join("pre-push.local").exists());
    push(&bound, "HEAD").success();
    let text = fs::read_to_string(&seen).unwrap();
    assert!(text.starts_with("origin ssh://forge/"), "{text}");
    assert!(text.contains(&branch(issue::CRASH)), "{text}");
    fs::write(seen.with_extension("no"), "").unwrap();
    commit(&bound, "one");
    push(&bound, "HEAD").failure();
}

#[test]
fn the_hooks_folder_that_git_uses_is_used() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let hooks = main.person().home().join("my hooks");
    main.git(["config", "core.hooksPath", hooks.to_str().unwrap()])
        .assert()
        .success();
    let reply = main.json("git claim install-hook", 0);
    assert_eq!(reply["status"], "installed");
    assert_eq!(reply["hook"].as_str(), hooks.join("pre-push").to_str());
    assert_eq!(
        main.json("git claim install-hook", 0)["status"],
        "already-installed"
    );
    assert!(!git_dir(&main).join("hooks/pre-push").exists());
    push(&main, "HEAD:refs/heads/free").success();
}

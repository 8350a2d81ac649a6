//! Bound claims in the repositories that git makes possible.

use std::fs;

use serde_json::json;

use crate::support::bound::{
    branch, copy, fetched, get_through, git_dir, lead_out, sibling, started, take_push_options, tip,
};
use crate::support::client::Client;
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::issue;

const START: &str = "git claim start ae1c051b --ttl 2h";

/// Starts, checks, renews and releases from `main`; the worktree.
fn whole_life(main: &Client) -> Client {
    let done = main.json(START, 0);
    let bound = main.at(done["worktree"].as_str().unwrap());
    bound.ok("git claim check");
    bound.ok("git claim renew");
    bound.ok("git claim check");
    bound.ok("git unclaim");
    bound.run("git claim check").code(1);
    bound
}

/// A clone with these options.
fn cloned(forge: &Forge, options: &[&str], folder: &str) -> Client {
    let person = forge.person("alice");
    let home = person.at(person.home());
    home.git(["clone", "-q"])
        .args(options)
        .args([&url(REPO), folder])
        .assert()
        .success();
    home.at(home.dir().join(folder))
}

#[test]
fn spaces_and_unicode_in_paths() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = cloned(&forge, &[], "mein Projekt – ünï 'x'");
    let bound = whole_life(&main);
    assert!(
        bound
            .dir()
            .ends_with(format!("mein Projekt – ünï 'x'.claims/{}", issue::CRASH))
    );
}

#[test]
fn a_bare_main_repository() {
    let forge = Forge::new();
    take_push_options(&forge);
    for folder in ["app.git", "other/.bare"] {
        let main = cloned(&forge, &["--bare"], folder);
        // A bare clone has no remote-tracking branches by itself.
        let done = main.json(START, 0);
        let first = main.at(done["worktree"].as_str().unwrap());
        assert_eq!(tip(&first, "HEAD"), tip(&main, "main"));
        first.ok("git unclaim");
        main.git([
            "worktree",
            "remove",
            "--force",
            first.dir().to_str().unwrap(),
        ])
        .assert()
        .success();
        main.git(["branch", "-qD", &branch(issue::CRASH)])
            .assert()
            .success();
        main.git([
            "config",
            "remote.origin.fetch",
            "+refs/heads/*:refs/remotes/origin/*",
        ])
        .assert()
        .success();
        main.git(["fetch", "-q", "origin"]).assert().success();
        let done = main.json(START, 0);
        assert_eq!(done["push_option_set"], true);
        let bound = main.at(done["worktree"].as_str().unwrap());
        let name = folder.split(['.', '/']).next().unwrap();
        assert!(
            bound
                .dir()
                .parent()
                .unwrap()
                .ends_with(format!("{name}.claims"))
        );
        // Every worktree still works, and the main one is still bare.
        bound
            .git(["status", "--short"])
            .assert()
            .success()
            .stdout("");
        assert_eq!(
            git(main.dir(), &["rev-parse", "--is-bare-repository"]),
            "true"
        );
        assert_eq!(
            git(bound.dir(), &["rev-parse", "--is-bare-repository"]),
            "false"
        );
        bound.ok("git claim check");
        bound.ok("git unclaim");
    }
}

#[test]
fn a_clone_that_does_not_fetch_the_default_branch() {
    let forge = Forge::new();
    let repo = forge.repos().join(REPO);
    git(&repo, &["branch", "other"]);
    for (options, folder) in [
        (&["--single-branch", "--branch", "other"][..], "single"),
        (&["--mirror"], "mirror"),
    ] {
        let main = cloned(&forge, options, folder);
        get_through(&main, START);
        let bound = main.at(sibling(&main, issue::CRASH));
        assert_eq!(tip(&bound, "HEAD"), git(&repo, &["rev-parse", "main"]));
        bound.ok("git unclaim");
    }
}

#[test]
fn line_breaks_in_paths() {
    let forge = Forge::new();
    let main = cloned(&forge, &[], "one\nline");
    // A plain claim knows nothing of paths; a record is one line's.
    main.ok("git claim ae1c051b --ttl 1h");
    let typed = lead_out(&main, START);
    assert_eq!(typed.len(), 2, "{typed:?}");
    let bound = main.at(main
        .person()
        .home()
        .join("one-line.claims")
        .join(issue::CRASH));
    bound.ok("git claim check");
    bound.ok("git claim renew");
    bound.ok("git unclaim");
    // The present one can't be bound, and says so before anything is asked.
    git(main.dir(), &["switch", "-qc", "fix"]);
    let refused = main.json("git claim start 862b --here", 1);
    assert_eq!(refused["reason_code"], "path_taken");
    main.command("sh")
        .args(["-c", refused["exact_next_action"].as_str().unwrap()])
        .assert()
        .success();
}

#[test]
fn a_bare_repository_is_no_worktree_to_bind() {
    let forge = Forge::new();
    let main = cloned(&forge, &["--bare"], "app.git");
    let typed = lead_out(&main, "git claim start ae1c051b --here");
    assert_eq!(typed.len(), 2, "{typed:?}");
}

#[test]
fn a_repository_that_git_dir_names() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let elsewhere = main.at(main.person().home());
    let mut start = elsewhere.command("git");
    start
        .args(START.split(' ').skip(1))
        .env("GIT_DIR", git_dir(&main))
        .env("GIT_WORK_TREE", main.dir())
        .env("GIT_INDEX_FILE", main.dir().join("no-such-index"))
        .assert()
        .success();
    let bound = main.at(sibling(&main, issue::CRASH));
    bound.ok("git claim check");
    let mut check = elsewhere.command("git");
    check
        .args(["claim", "check"])
        .env("GIT_DIR", git_dir(&bound))
        .env("GIT_WORK_TREE", bound.dir())
        .assert()
        .success();
}

#[test]
fn a_submodule_and_a_superproject() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    main.git(["submodule", "--quiet", "add", &url(REPO), "sub"])
        .assert()
        .success();
    main.git(["commit", "-qm", "sub"]).assert().success();
    let sub = main.at(main.dir().join("sub"));
    let bound = whole_life(&sub);
    assert_eq!(bound.dir().parent().unwrap(), main.dir().join("sub.claims"));
    // From the linked worktree of a submodule it is the same place.
    let second = bound.json("git claim start 862b --ttl 1h", 0);
    let second = bound.at(second["worktree"].as_str().unwrap());
    assert_eq!(second.dir().parent(), bound.dir().parent());
    second.ok("git claim check");
    git(sub.dir(), &["status", "--short"]);
    // A branch with a submodule in it.
    let done = main.json("git claim start 766d --base main --ttl 1h", 0);
    main.at(done["worktree"].as_str().unwrap())
        .ok("git claim check");
}

#[test]
fn worktree_config_that_is_on_already_is_kept() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    git(main.dir(), &["config", "extensions.worktreeConfig", "true"]);
    git(main.dir(), &["config", "--worktree", "x.y", "mine"]);
    let config = fs::read(git_dir(&main).join("config")).unwrap();
    let bound = whole_life(&main);
    assert_eq!(fs::read(git_dir(&main).join("config")).unwrap(), config);
    assert_eq!(git(main.dir(), &["config", "x.y"]), "mine");
    bound.git(["status"]).assert().success();
}

#[test]
fn push_options_of_the_users_own_stay() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (_, bound) = started(&forge, "alice");
    git(
        bound.dir(),
        &[
            "config",
            "--worktree",
            "--add",
            "push.pushOption",
            "ci.skip",
        ],
    );
    bound.ok("git claim renew");
    let options = git(bound.dir(), &["config", "--get-all", "push.pushOption"]);
    assert_eq!(options.lines().count(), 2, "{options}");
    bound.ok("git unclaim");
    assert_eq!(
        git(bound.dir(), &["config", "--get-all", "push.pushOption"]),
        "ci.skip"
    );
}

#[test]
fn packed_refs() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    git(main.dir(), &["branch", &branch(issue::CRASH)]);
    git(main.dir(), &["pack-refs", "--all", "--prune"]);
    let before = tip(&main, &branch(issue::CRASH));
    let bound = whole_life(&main);
    assert_eq!(tip(&bound, "HEAD"), before);
}

#[test]
fn reftable() {
    let forge = Forge::new();
    take_push_options(&forge);
    let person = forge.person("alice");
    let home = person.at(person.home());
    let made = home
        .git(["init", "-q", "--ref-format=reftable", "new"])
        .output()
        .unwrap();
    if !made.status.success() {
        eprintln!("this git knows no reftable");
        return;
    }
    let main = home.at(home.dir().join("new"));
    main.git(["remote", "add", "origin", &url(REPO)])
        .assert()
        .success();
    main.git(["fetch", "-q", "origin"]).assert().success();
    whole_life(&main);
}

#[test]
fn sha256() {
    let forge = Forge::new();
    let person = forge.person("alice");
    let home = person.at(person.home());
    home.git(["init", "-q", "--object-format=sha256", "-b", "main", "new"])
        .assert()
        .success();
    let main = home.at(home.dir().join("new"));
    // Claims of a repository with other objects, as `claimUrl` allows.
    main.git(["remote", "add", "origin", &url(REPO)])
        .assert()
        .success();
    fs::write(main.dir().join("file"), "x").unwrap();
    main.git(["add", "file"]).assert().success();
    main.git(["commit", "-qm", "one"]).assert().success();
    let done = main.json(&format!("{START} --base main"), 0);
    let bound = main.at(done["worktree"].as_str().unwrap());
    bound.ok("git claim check");
    let head = tip(&bound, "HEAD");
    assert_eq!(head.len(), 64);
    forge.ledger().rewind(3 * 3_600);
    let line = format!("git claim recover {} --expected-head {head}", issue::CRASH);
    assert_eq!(bound.json(&line, 0)["recovery"], "taken-again");
    assert_eq!(
        copy(&bound)["bootstrap_lock_recovery"]["preserved_head"],
        json!(head)
    );
}

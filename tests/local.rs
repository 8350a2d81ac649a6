//! A local path and `file://`: no server, no setting, no sshd.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use assert_fs::TempDir;

use crate::support::client::{Client, Person, stderr};
use crate::support::forge::{Forge, REPO, git};
use crate::support::{issue, programs};

/// Somebody with a home and no key.
fn somebody(dir: &TempDir) -> Person {
    let person = Person::new("ann", dir.path().join("ann"));
    person.make_home();
    person
}

/// A bare repository with the six issues, and two worktrees that push to it
/// under `prefix` + its path.
fn two_worktrees(dir: &TempDir, prefix: &str) -> (Client, Client) {
    let forge = dir.path().join("there.git");
    fs::create_dir(&forge).unwrap();
    git(&forge, &["init", "-q", "--bare", "-b", "main"]);
    let bundle = programs::source().join("tests/cases/git-issue.bundle");
    git(
        &forge,
        &["fetch", "-q", bundle.to_str().unwrap(), "refs/*:refs/*"],
    );
    let person = somebody(dir);
    let url = format!("{prefix}{}", forge.display());
    (person.worktree(&url), person.worktree(&url))
}

#[test]
fn a_path_and_a_file_url_work_without_a_server() {
    for prefix in ["", "file://"] {
        let dir = TempDir::new().unwrap();
        let (one, two) = two_worktrees(&dir, prefix);
        let reply = one.json("git claim ae1c --ttl 1h", 0);
        assert_eq!(reply["issue"], issue::CRASH);
        let holder = reply["holder"].as_str().unwrap();
        assert!(holder.starts_with("local:"), "{holder}");
        assert_eq!(two.json("git claim ae1c", 4)["reason"], "other-session");
        two.run("git claim ddf3587").code(1);
        assert_eq!(two.json("git claims", 0)["leases"][0]["mine"], false);
        one.ok("git claim renew ae1c");
        one.ok("git unclaim ae1c");
        assert_eq!(two.json("git claim ae1c", 0)["token"], 2);
        assert_eq!(two.json("git claim whoami", 0)["name"], holder);
        // The ledger is the repository's own, and all that was added to it.
        assert!(dir.path().join("there.git/collab.db").is_file());
    }
}

/// As git has it: whose hooks and programs would that be?
#[test]
fn another_users_repository_is_not_trusted_until_one_says_so() {
    if !programs::is_root() {
        eprintln!("skipped: only root can give a repository away");
        return;
    }
    let dir = TempDir::new().unwrap();
    let (one, _) = two_worktrees(&dir, "");
    let there = dir.path().join("there.git");
    let (asked, told) = (dir.path().join("asked"), dir.path().join("told"));
    let program = there.join("tracker");
    let hook = there.join("hooks/post-claim");
    for (file, touched) in [(&program, &asked), (&hook, &told)] {
        fs::write(file, format!("#!/bin/sh\ntouch {}\n", touched.display())).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    git(&there, &["config", "claim.tracker", "command"]);
    git(
        &there,
        &["config", "claim.trackerCommand", program.to_str().unwrap()],
    );
    let nobody = std::process::Command::new("chown")
        .args(["-R", "65534"])
        .arg(&there)
        .status();
    assert!(nobody.unwrap().success());
    for line in ["git claim ae1c --ttl 1h", "git claims", "git claim --next"] {
        let said = stderr(&one.run(line).code(1).stdout(""));
        let there = there.display();
        assert!(said.contains("belongs to another user"), "{line}: {said}");
        assert!(
            said.contains(&format!("--add safe.directory {there}")),
            "{line}: {said}"
        );
    }
    assert!(!there.join("collab.db").exists());
    assert!(!asked.exists() && !told.exists());

    let home = one.person().home().join(".gitconfig");
    fs::write(
        &home,
        format!("[safe]\n\tdirectory = {}\n", there.display()),
    )
    .unwrap();
    one.ok("git claims");
}

#[test]
fn a_path_with_blanks_quotes_and_more_is_a_path() {
    let dir = TempDir::new().unwrap();
    let folder = dir.path().join("it's a \"path\" #1 $HOME é");
    fs::create_dir(&folder).unwrap();
    git(&folder, &["init", "-q", "--bare"]);
    let client = somebody(&dir).worktree(folder.to_str().unwrap());
    client.ok("git claim 42");
    client.ok("git claims");
    client.ok("git unclaim 42");
}

#[test]
fn a_repository_without_a_tracker_has_every_valid_issue() {
    let dir = TempDir::new().unwrap();
    let bare = dir.path().join("plain.git");
    fs::create_dir(&bare).unwrap();
    git(&bare, &["init", "-q", "--bare"]);
    let client = somebody(&dir).worktree(bare.to_str().unwrap());
    assert_eq!(client.json("git claim 42", 0)["issue"], "42");
    assert_eq!(client.json("git claim BUG-7.x", 0)["issue"], "BUG-7.x");
    assert_eq!(client.json("git claim whoami", 0)["tracker"], "none");
    // `4` is not `42`.
    assert_eq!(client.json("git claim 4", 0)["token"], 1);
}

#[test]
fn the_fence_is_set_up_by_what_start_says() {
    let dir = TempDir::new().unwrap();
    let (one, _) = two_worktrees(&dir, "");
    one.ok("git fetch -q");
    let said = one.ok("git claim start ae1c");
    let setup = said
        .split('`')
        .find(|typed| typed.starts_with("git-claim-server setup --kind local "));
    one.ok(setup.unwrap());
    let said = one.ok("git claim start ae1c");
    assert!(said.contains("carries the claim's token"), "{said}");
}

#[test]
fn a_missing_path_is_not_found() {
    let dir = TempDir::new().unwrap();
    let client = somebody(&dir).worktree("/nowhere/at-all.git");
    let assert = client.run("git claim 42").code(1).stdout("");
    let error = crate::support::client::stderr(&assert);
    assert!(error.starts_with("error: "), "{error}");
}

/// Below `reposDir` of the person's own settings there is one ledger, however
/// the repository is reached.
#[test]
fn a_repository_of_the_forge_has_one_ledger() {
    let forge = Forge::without_sshd("\twrite = *\n");
    let person = Person::new("ann", forge.dir().join("ann"));
    person.make_home();
    let settings = person.home().join(".config/git-claim");
    fs::create_dir_all(&settings).unwrap();
    fs::copy(forge.config(), settings.join("config")).unwrap();
    let repo = forge.repos().join(REPO);
    let client = person.worktree(repo.to_str().unwrap());
    client.ok("git claim ae1c");
    assert_eq!(forge.ledger().token(issue::CRASH), 1);
    assert!(!repo.join("collab.db").exists());
    // If that ledger can't be opened there is no second one.
    fs::write(forge.ledger().file(), "broken").unwrap();
    client.run("git claim 537d").code(6);
    assert!(!repo.join("collab.db").exists());
}

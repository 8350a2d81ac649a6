//! The README's sessions, run as they stand there.

use std::fs;

use assert_cmd::assert::Assert;

use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::programs;
use crate::support::session::{Step, Typist, comparable, steps};

/// The steps of the console block behind `<!-- name -->`.
fn session(name: &str) -> Vec<Step> {
    let readme = fs::read_to_string(programs::source().join("README.md")).unwrap();
    let marker = format!("<!-- {name} -->\n```console\n");
    let (_, rest) = readme
        .split_once(&marker)
        .unwrap_or_else(|| panic!("the README has no session '{name}'"));
    let (block, _) = rest.split_once("\n```").unwrap();
    steps(block)
}

/// The program behind `<!-- name -->`.
fn script(name: &str) -> String {
    let readme = fs::read_to_string(programs::source().join("README.md")).unwrap();
    let marker = format!("<!-- {name} -->\n```sh\n");
    let (_, rest) = readme.split_once(&marker).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

fn run(client: Client, name: &str) {
    let mut typist = Typist::new(client);
    for step in session(name) {
        let said = typist.types(&step.command);
        assert_eq!(
            comparable(&said),
            comparable(&step.shown),
            "$ {}",
            step.command
        );
    }
}

#[test]
fn the_session_at_the_top_goes_as_it_is_shown() {
    let forge = Forge::new();
    run(forge.client("alice"), "session");
}

#[test]
fn whoever_comes_second_sees_what_is_shown() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c051 --ttl 2h");
    run(forge.client("bob"), "loser");
}

#[test]
fn a_new_repository_gets_its_first_issue() {
    let forge = Forge::new();
    for tracker in ["beads", "git-issue"] {
        let path = format!("acme/{tracker}.git");
        git(
            forge.dir(),
            &[
                "init",
                "-q",
                "--bare",
                "-b",
                "main",
                &format!("repos/{path}"),
            ],
        );
        let alice = forge.person("alice").worktree(&format!("forge:{path}"));
        let of_repo = forge.repos().join(REPO).display().to_string();
        alice.ok(&format!(
            "git fetch -q {of_repo} refs/issues/*:refs/issues/*"
        ));
        run(alice, &format!("first issue: {tracker}"));
    }
}

/// The worker's loop, with a `sleep` that only notes how long it should be.
fn work(client: &Client, sleep: &str, work: &str) -> Assert {
    let person = client.person();
    person.make_program("sleep", &format!("echo $1 >>slept; {sleep}"));
    person.make_program("work-on-it", work);
    fs::copy(
        person.home().join("bin/work-on-it"),
        client.dir().join("work-on-it"),
    )
    .unwrap();
    fs::write(client.dir().join("slept"), "").unwrap();
    let mut shell = client.command("sh");
    shell.args(["-c", &script("worker")]).assert()
}

fn slept(client: &Client) -> String {
    fs::read_to_string(client.dir().join("slept")).unwrap()
}

#[test]
fn the_worker_goes_on_where_there_is_work_or_may_be() {
    let forge = Forge::new();
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.tracker", "git-issue"]);
    let alice = forge.client("alice");
    let all_done = format!(
        "cd {} && git for-each-ref --format='delete %(refname)' refs/issues | git update-ref --stdin",
        repo.display()
    );
    let finish = format!("test -e tried && {{ {all_done}; exit; }}; touch tried; exit 9");
    let stop = "test $1 != 60 || kill $PPID";
    let ended = work(&alice, stop, &finish).failure();
    assert_eq!(slept(&alice), "5\n60\n", "{ended}");
}

#[test]
fn the_worker_stops_where_asking_again_does_not_help() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    // What stands already would go on to be used.
    alice.ok("git config claim.controlPersist no");
    let known_hosts = forge.dir().join("sshd/known_hosts");
    let set_url = |url: &str| drop(alice.ok(&format!("git remote set-url origin {url}")));
    let stops = |code, sleeps, says| {
        let ended = work(&alice, "", "exit 3").code(code);
        let said = stderr(&ended);
        assert!(said.ends_with('\n') && said.contains(says), "{said}");
        assert_eq!(slept(&alice), sleeps, "{said}");
    };
    set_url("forge:acme/ap.git");
    stops(101, "", "repository not found");
    set_url(&format!("ssh://127.0.0.1:1/{REPO}"));
    stops(6, "60\n", "Connection refused");
    set_url(&url(REPO));
    let known = fs::read(&known_hosts).unwrap();
    fs::write(&known_hosts, "").unwrap();
    stops(6, "60\n", "host key is known");
    fs::write(&known_hosts, known).unwrap();
    fs::remove_file(alice.person().key()).unwrap();
    alice.person().make_key();
    stops(6, "60\n", "Permission denied");
}

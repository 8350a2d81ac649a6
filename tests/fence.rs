//! The fence at push, over a real sshd: a worker that lost its claim can't push
//! any more, and nothing unclaimed is in the way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::Assert;
use predicates::prelude::*;
use serde_json::Value;

use crate::support::client::{Client, Person, stderr, stdout};
use crate::support::forge::{Forge, REPO, close_issue, git, url};
use crate::support::{issue, programs};

/// A forge whose repository is set up for the fence, with `config` in it.
fn fenced(config: &[(&str, &str)]) -> Forge {
    let forge = Forge::new();
    forge.set_up_fence();
    for (key, value) in config {
        git(&repo(&forge), &["config", key, value]);
    }
    forge
}

fn repo(forge: &Forge) -> PathBuf {
    forge.repos().join(REPO)
}

/// A worktree of `name`'s with the forge's main branch checked out.
fn worker(forge: &Forge, name: &str) -> Client {
    let client = forge.client(name);
    client.ok("git fetch -q origin");
    client.ok("git reset -q --hard origin/main");
    client
}

/// Binds the first issue to the branch claim/1; gives the push option.
fn bind(client: &Client) -> String {
    let words = format!(
        "acquire {REPO} {} --ttl 600 --session s1 --branch claim/1 --worktree /w --machine m",
        issue::CRASH
    );
    let reply: Value = serde_json::from_str(&stdout(&client.verb(&words).success())).unwrap();
    let lease = &reply["lock"]["work_lease"];
    format!(
        "claim-token={}:{}:{}",
        issue::CRASH,
        lease["token"],
        lease["lease_id"].as_str().unwrap()
    )
}

/// A new commit in the worktree.
fn commit(client: &Client, message: &str) {
    client
        .git(["commit", "-q", "--allow-empty", "-m", message])
        .assert()
        .success();
}

fn push(client: &Client, args: &[&str]) -> Assert {
    client.git(["push"]).args(args).assert()
}

/// Every ref of the forge's repository.
fn refs(forge: &Forge) -> String {
    git(&repo(forge), &["for-each-ref"])
}

/// A push that must be refused, with `expected` in the error; no ref moves.
fn refused(forge: &Forge, client: &Client, args: &[&str], expected: &str) -> String {
    let before = refs(forge);
    let told = stderr(&push(client, args).failure());
    assert!(told.contains(expected), "{args:?}: {told}");
    assert!(told.contains("pre-receive hook declined"), "{told}");
    assert_eq!(refs(forge), before, "{args:?}");
    told
}

#[test]
fn setup_says_what_it_changed_and_changes_it_once() {
    let forge = Forge::new();
    let said = forge.set_up_fence();
    for line in [
        "hooks/pre-receive: added\n",
        "hooks/post-receive: added\n",
        "config: receive.advertisePushOptions is true now\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(forge.set_up_fence().starts_with("nothing to change"));
    let whoami = forge.client("alice").json("git claim whoami", 0);
    assert_eq!(whoami["push_options"], true);
}

#[test]
fn a_hook_that_was_there_is_kept_and_still_decides() {
    let forge = Forge::new();
    let hooks = repo(&forge).join("hooks");
    for (name, script) in [
        ("pre-receive", "cat >>pre; ! grep -q refs/heads/never pre"),
        ("post-receive", "cat >>post; echo theirs >&2"),
    ] {
        let file = hooks.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let said = forge.set_up_fence();
    assert!(
        said.contains("hooks/pre-receive.before-git-claim"),
        "{said}"
    );
    let alice = worker(&forge, "alice");
    let told = stderr(&push(&alice, &["origin", "main:refs/heads/x", "main:y"]).success());
    assert!(told.contains("theirs"), "{told}");
    let seen = |name: &str| fs::read_to_string(repo(&forge).join(name)).unwrap();
    for name in ["pre", "post"] {
        assert_eq!(seen(name).lines().count(), 2, "{}", seen(name));
    }
    refused(&forge, &alice, &["origin", "main:never"], "declined");
    // What ours refuses, theirs is not asked about.
    fs::remove_file(repo(&forge).join("pre")).unwrap();
    let token = bind(&alice);
    forge.ledger().rewind(700);
    refused(
        &forge,
        &alice,
        &["-o", &token, "origin", "main:z"],
        "ran out",
    );
    assert!(!repo(&forge).join("pre").exists());
    assert!(forge.set_up_fence().starts_with("nothing to change"));
}

#[test]
fn a_worker_that_lost_its_claim_cannot_push_however_it_tries() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    let option = token.as_str();
    alice.ok("git switch -q -c claim/1");
    commit(&alice, "Work");
    push(&alice, &["-o", option, "origin", "claim/1"]).success();
    push(&alice, &["origin", "HEAD:refs/heads/other"]).success();
    commit(&alice, "More work");
    alice.ok("git tag v1");
    forge.ledger().rewind(700);

    for args in [
        &["-o", option, "origin", "claim/1"][..],
        &["-o", option, "--no-verify", "origin", "claim/1"],
        &["-o", option, "--force", "origin", "claim/1"],
        &["-o", option, "--atomic", "origin", "claim/1", "HEAD:new"],
        &["-o", option, "origin", "HEAD:one", "HEAD:two", "claim/1"],
        &["-o", option, "origin", "--delete", "other"],
        &["-o", option, "origin", "v1"],
        &["-o", "ci.skip", "-o", option, "origin", "HEAD:one"],
        &["-o", option, "origin", "HEAD:refs/notes/x"],
    ] {
        let told = refused(&forge, &alice, args, "is not yours any more");
        assert!(
            told.contains(&format!("git unclaim {}", issue::CRASH)),
            "{told}"
        );
        assert!(told.contains("nobody holds it now"), "{told}");
    }
    // From a linked worktree, whose configuration carries the token.
    alice.ok("git config extensions.worktreeConfig true");
    alice.ok("git worktree add -q ../linked -b linked");
    let linked = |args: &[&str]| alice.git(["-C", "../linked"]).args(args).assert();
    linked(&["config", "--worktree", "push.pushOption", option]).success();
    let told = stderr(&linked(&["push", "-q", "origin", "linked"]).failure());
    assert!(told.contains("is not yours any more"), "{told}");
    // From a fresh clone, and by somebody else.
    for name in ["alice", "bob"] {
        let fresh = worker(&forge, name);
        commit(&fresh, "Work");
        refused(
            &forge,
            &fresh,
            &["-o", option, "origin", "HEAD:f"],
            "not yours",
        );
    }
    // Without the token the worktree is as good as any other.
    push(&alice, &["origin", "HEAD:refs/heads/other"]).success();
}

#[test]
fn a_refusal_says_who_holds_the_issue_since_when_and_until_when() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    forge.ledger().rewind(700);
    let bob = worker(&forge, "bob");
    bob.ok("git claim ae1c --ttl 2h");
    let told = refused(
        &forge,
        &alice,
        &["-o", &token, "origin", "HEAD:x"],
        "bob holds it since",
    );
    assert!(
        predicate::str::is_match(r"since 20[0-9 :-]+ UTC, until 20[0-9 :-]+ UTC")
            .unwrap()
            .eval(&told),
        "{told}"
    );
    assert!(!told.contains("--take-over"), "{told}");
}

#[test]
fn a_bound_branch_moves_with_its_token_from_its_holder_alone() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    commit(&alice, "Work");
    // The holder is told what to add.
    let told = refused(
        &forge,
        &alice,
        &["origin", "HEAD:claim/1"],
        "bound to the claim",
    );
    assert!(told.contains(&format!("git push -o {token}")), "{told}");
    push(&alice, &["-o", &token, "origin", "HEAD:claim/1"]).success();
    // Others neither with nor without it.
    let bob = worker(&forge, "bob");
    commit(&bob, "Mine");
    let told = refused(
        &forge,
        &bob,
        &["--force", "origin", "HEAD:claim/1"],
        "alice holds it",
    );
    assert!(!told.contains("claim-token="), "{told}");
    refused(
        &forge,
        &bob,
        &["origin", "--delete", "claim/1"],
        "alice holds it",
    );
    refused(
        &forge,
        &bob,
        &["-fo", &token, "origin", "HEAD:claim/1"],
        "not yours",
    );
    // The same name behind another key is somebody else.
    let command = format!(
        "{} openssh --config {} --as alice --key SHA256:{}",
        programs::server().display(),
        forge.config().display(),
        "A".repeat(43)
    );
    let other_key = forge
        .person_behind("alice2", &format!("restrict,command=\"{command}\""))
        .worktree(&url(REPO));
    other_key.ok("git fetch -q origin");
    refused(
        &forge,
        &other_key,
        &["-o", &token, "origin", "+origin/main:claim/1"],
        "not yours",
    );
    // Everything else is free.
    push(&bob, &["origin", "HEAD:main", "HEAD:claim/2"]).success();
}

#[test]
fn what_a_client_sends_of_a_principal_is_not_believed() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    let bob = worker(&forge, "bob");
    commit(&bob, "Mine");
    let mut config = fs::OpenOptions::new()
        .append(true)
        .open(bob.person().home().join("ssh_config"))
        .unwrap();
    std::io::Write::write_all(&mut config, b"SendEnv GIT_* GL_* GITEA_*\n").unwrap();
    let assert = bob
        .git(["push", "-o", &token, "origin", "HEAD:claim/1"])
        .env("GIT_CLAIM_PRINCIPAL", "alice")
        .env("GIT_CLAIM_KEY", "SHA256:x")
        .env("GL_USER", "alice")
        .env("GITEA_PUSHER_NAME", "alice")
        .assert()
        .failure();
    assert!(stderr(&assert).contains("you push as bob"), "{assert:?}");
}

#[test]
fn the_repository_chooses_off_warn_on_or_strict() {
    for (fence, stale_passes, unclaimed_passes) in [
        ("off", true, true),
        ("warn", true, true),
        ("on", false, true),
        ("strict", false, false),
    ] {
        let forge = fenced(&[("claim.fence", fence)]);
        let alice = worker(&forge, "alice");
        let token = bind(&alice);
        forge.ledger().rewind(700);
        let stale = push(&alice, &["-o", &token, "origin", "HEAD:x"]);
        assert_eq!(stale.get_output().status.success(), stale_passes, "{fence}");
        let told = stderr(&stale);
        assert_eq!(
            told.contains("remote: warning: "),
            fence == "warn",
            "{told}"
        );
        assert_eq!(told.contains("remote: error: "), !stale_passes, "{told}");
        let branch = format!("HEAD:claim/{}", issue::RETITLED);
        let unclaimed = push(&alice, &["origin", &branch]);
        let passes = unclaimed.get_output().status.success();
        assert_eq!(passes, unclaimed_passes, "{fence}");
        if fence == "strict" {
            assert!(stderr(&unclaimed).contains(&format!("git claim {}", issue::RETITLED)));
            alice.ok(&format!("git claim {}", issue::RETITLED));
            push(&alice, &["origin", &branch]).success();
        }
        push(&alice, &["origin", "HEAD:free"]).success();
    }
}

#[test]
fn nothing_unclaimed_is_in_the_way_even_of_a_broken_ledger() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    commit(&alice, "Work");
    // Before there is any claim.
    push(&alice, &["origin", "HEAD:main", "HEAD:claim/7"]).success();
    let token = bind(&alice);
    fs::write(
        forge.ledger().file(),
        "this is no database at all, and long enough to be none",
    )
    .unwrap();
    let told = stderr(&push(&alice, &["origin", "HEAD:x"]).success());
    assert!(
        told.contains("warning: the claims here cannot be looked at"),
        "{told}"
    );
    refused(
        &forge,
        &alice,
        &["-o", &token, "origin", "HEAD:y"],
        "cannot be looked at",
    );
    refused(
        &forge,
        &alice,
        &["origin", "HEAD:claim/8"],
        "cannot be looked at",
    );
    git(&repo(&forge), &["config", "claim.fence", "warn"]);
    push(&alice, &["-o", &token, "origin", "HEAD:claim/8"]).success();
    git(&repo(&forge), &["config", "claim.fence", "of"]);
    refused(
        &forge,
        &alice,
        &["origin", "HEAD:claim/9"],
        "cannot be looked at",
    );
    git(&repo(&forge), &["config", "claim.fence", "off"]);
    push(&alice, &["-o", &token, "origin", "HEAD:claim/9"]).success();
}

#[test]
fn a_server_that_never_knew_the_lease_lets_the_token_pass() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    // A second forge of the same project, with hooks and claims of its own.
    let second = fenced(&[]);
    let there = second.client("alice");
    there
        .verb(&format!("acquire {REPO} {}", issue::CRASH))
        .success();
    there.ok("git fetch -q origin");
    there
        .git(["push", "-o", &token, "origin", "origin/main:refs/heads/x"])
        .assert()
        .success();
}

#[test]
fn a_merged_branch_releases_its_claim_and_an_empty_one_does_not() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    let live = || {
        alice.json("git claims", 0)["leases"]
            .as_array()
            .unwrap()
            .len()
    };
    // Pushed before its first commit, while main goes on.
    push(&alice, &["-o", &token, "origin", "HEAD:claim/1"]).success();
    let bob = worker(&forge, "bob");
    commit(&bob, "Other work");
    push(&bob, &["origin", "HEAD:main"]).success();
    assert_eq!(live(), 1);
    commit(&alice, "Work");
    push(&alice, &["-o", &token, "origin", "HEAD:claim/1"]).success();
    assert_eq!(live(), 1);
    // Merged by somebody else.
    bob.ok("git fetch -q origin");
    bob.ok("git merge -q --no-edit origin/claim/1");
    let told = stderr(&push(&bob, &["origin", "HEAD:main"]).success());
    assert!(told.contains("alice's claim on issue ae1c"), "{told}");
    assert!(
        told.contains("branch 'claim/1' was merged into 'main'"),
        "{told}"
    );
    assert_eq!(live(), 0);
    let log = alice.json("git claim log ae1c", 0);
    assert_eq!(log["tenures"][0]["how"], "merged");
    assert_eq!(log["tenures"][0]["by"], "bob");
    // The token is stale now, and the worker learns why.
    commit(&alice, "Too late");
    refused(
        &forge,
        &alice,
        &["-o", &token, "origin", "HEAD:claim/1"],
        "it was done",
    );
}

#[test]
fn closing_the_issue_releases_its_claim() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    alice.ok("git claim ae1c");
    alice.ok("git claim 862b6f3");
    let name = format!("refs/issues/{}", issue::CRASH);
    alice.ok(&format!("git fetch -q origin {name}:{name}"));
    close_issue(alice.dir(), &name);
    let told = stderr(&push(&alice, &["origin", &name]).success());
    assert!(told.contains("the issue was closed"), "{told}");
    let log = alice.json("git claim log ae1c", 0);
    assert_eq!(log["tenures"][0]["how"], "closed");
    let left = alice.json("git claims", 0);
    assert_eq!(left["leases"][0]["issue"], issue::RETITLED);
}

#[test]
fn a_squash_that_names_the_issue_releases_its_claim() {
    let forge = fenced(&[("claim.closeTrailers", "true")]);
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    commit(&alice, "Work");
    push(&alice, &["-o", &token, "origin", "HEAD:claim/1"]).success();
    let bob = worker(&forge, "bob");
    bob.ok("git fetch -q origin");
    bob.ok("git merge -q --squash origin/claim/1");
    commit(&bob, "Work\n\nFixes: #ae1c051");
    let told = stderr(&push(&bob, &["origin", "HEAD:main"]).success());
    assert!(told.contains("alice's claim on issue ae1c"), "{told}");
    assert!(told.contains("on 'main' closes it"), "{told}");
    let log = alice.json("git claim log ae1c", 0);
    assert_eq!(log["tenures"][0]["how"], "closed");
    assert_eq!(log["tenures"][0]["by"], "bob");
    // It was no word about later ones.
    alice.ok("git claim ae1c --ttl 1h");
    commit(&bob, "More");
    push(&bob, &["origin", "HEAD:main"]).success();
    assert_eq!(alice.json("git claims", 0)["leases"][0]["token"], 2);
}

/// A command that brings about what the claim was for has not lost it.
#[test]
fn a_command_that_closes_its_own_issue_ends_as_it_ends() {
    let forge = fenced(&[]);
    let name = format!("refs/issues/{}", issue::CRASH);
    let alice = worker(&forge, "alice");
    alice.ok(&format!("git fetch -q origin {name}:{name}"));
    alice.ok("git claim ae1c --ttl 2h");
    close_issue(alice.dir(), &name);
    let words = [
        "claim", "run", "ae1c", "--", "git", "push", "-q", "origin", &name,
    ];
    alice.git(words).assert().code(0);
    let told = stderr(&alice.run("git claim renew ae1c").code(4));
    assert!(
        told.contains("was released: the issue was closed"),
        "{told}"
    );
    assert!(!told.contains("takes it again"), "{told}");
}

/// What post-claim was told, once it was told so often.
fn told(file: &Path, times: usize) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.lines().count() >= times {
            return text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
        }
        assert!(Instant::now() < end, "post-claim was told: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn post_claim_is_told_of_each_change_and_nobody_waits_for_it() {
    let forge = fenced(&[]);
    let hook = repo(&forge).join("hooks/post-claim");
    let events = forge.dir().join("events");
    // It is told at once, and stays much longer than any command may take.
    let script = format!("#!/bin/sh\ncat >>{}\nexec sleep 600\n", events.display());
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let alice = worker(&forge, "alice");
    let token = bind(&alice);
    told(&events, 1);
    commit(&alice, "Work");
    push(&alice, &["-o", &token, "origin", "HEAD:claim/1"]).success();
    push(&alice, &["origin", "HEAD:main"]).success();
    let events = told(&events, 2);
    assert_eq!(events[0]["event"], "acquired");
    assert_eq!(events[0]["repo"], REPO);
    assert_eq!(events[0]["before"], Value::Null);
    assert_eq!(events[0]["after"]["holder"], "alice");
    assert_eq!(events[1]["event"], "released");
    assert_eq!(events[1]["how"], "merged");
    assert_eq!(events[1]["after"], Value::Null);
}

/// An event, and who held the issue with which token before and after it.
type Happened = (&'static str, &'static str, &'static str);

#[test]
fn post_claim_is_told_of_all_that_may_become_of_a_claim() {
    let forge = fenced(&[]);
    let file = repo(&forge).join("hooks/post-claim");
    let events = forge.dir().join("events");
    fs::write(&file, format!("#!/bin/sh\ncat >>{}\n", events.display())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let (alice, bob) = (worker(&forge, "alice"), worker(&forge, "bob"));
    let carol = worker(&forge, "carol");
    let ask = |client: &Client, subverb: &str, words: &str| {
        let line = format!("{subverb} {REPO} {} {words}", issue::CRASH);
        client.verb(&line).success();
    };
    let head = git(&repo(&forge), &["rev-parse", "main"]);
    let recover = format!("--session s2 --branch claim/1 --worktree /w --machine m --head {head}");
    let steps: [(&dyn Fn(), &[Happened]); 8] = [
        (&|| drop(bind(&alice)), &[("acquired", "", "alice 1")]),
        (
            &|| ask(&alice, "renew", "--ttl 600 --session s1"),
            &[("renewed", "alice 1", "alice 1")],
        ),
        (
            &|| {
                forge.ledger().rewind(700);
                ask(&bob, "acquire", "");
            },
            &[
                ("acquired", "alice 1", "bob 2"),
                ("expired", "alice 1", "bob 2"),
            ],
        ),
        (
            &|| {
                ask(
                    &carol,
                    "acquire",
                    "--take-over --reason ill --expected-token 2",
                );
            },
            &[("taken-over", "bob 2", "carol 3")],
        ),
        (
            &|| ask(&carol, "release", ""),
            &[("released", "carol 3", "")],
        ),
        (&|| drop(bind(&alice)), &[("acquired", "", "alice 4")]),
        (
            &|| {
                forge.ledger().rewind(700);
                ask(&alice, "recover", &recover);
            },
            &[
                ("expired", "alice 4", "alice 5"),
                ("recovered", "alice 4", "alice 5"),
            ],
        ),
        (
            &|| {
                ask(
                    &carol,
                    "release",
                    "--force --reason gone --expected-token 5",
                )
            },
            &[("released", "alice 5", "")],
        ),
    ];
    let mut seen = 0;
    for (step, expected) in steps {
        step();
        let side = |side: &Value| match side {
            Value::Null => String::new(),
            side => format!("{} {}", side["holder"].as_str().unwrap(), side["token"]),
        };
        // Two that come at once have no order.
        let mut happened: Vec<(String, String, String)> = told(&events, seen + expected.len())
            .split_off(seen)
            .iter()
            .map(|event| {
                let name = event["event"].as_str().unwrap().to_owned();
                (name, side(&event["before"]), side(&event["after"]))
            })
            .collect();
        happened.sort();
        let as_text = |(a, b, c): &(String, String, String)| format!("{a}: {b} -> {c}");
        let happened: Vec<String> = happened.iter().map(as_text).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|(event, before, after)| format!("{event}: {before} -> {after}"))
            .collect();
        assert_eq!(happened, expected);
        seen += expected.len();
    }
}

/// Runs a hook as another forge's git would, with a line of its stdin; whether
/// it has nothing against it, and what was told.
fn hook(
    forge: &Forge,
    kind_and_when: [&str; 2],
    environment: &[(&str, &str)],
    option: &str,
    line: &str,
) -> (bool, String) {
    let [kind, when] = kind_and_when;
    let mut child = Command::new(programs::server())
        .args(["hook", "--kind", kind, when, "--config"])
        .arg(forge.config())
        .current_dir(repo(forge))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("GIT_DIR", ".")
        .env("GIT_PUSH_OPTION_COUNT", "1")
        .env("GIT_PUSH_OPTION_0", option)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, line.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    (output.status.success(), told)
}

/// What no forge sets all at once.
const EVERYTHING: [(&str, &str); 5] = [
    ("GIT_CLAIM_PRINCIPAL", "alice"),
    ("GL_USER", "ann"),
    ("GITEA_PUSHER_NAME", "amy"),
    ("GITEA_KEY_ID", "7"),
    ("GITEA_REPO_ID", "12"),
];

#[test]
fn each_kind_reads_its_own_forges_variables_alone() {
    let forge = fenced(&[]);
    let alice = worker(&forge, "alice");
    let option = bind(&alice);
    let line = format!("{} {} refs/heads/claim/1\n", "0".repeat(40), "1".repeat(40));
    let hook = |kind: &str, environment: &[(&str, &str)]| {
        hook(&forge, [kind, "pre-receive"], environment, &option, &line)
    };
    // The claim as each forge would have made it.
    let held_by = |repo: &str, name: &str, profile: &str| {
        forge
            .ledger()
            .connection()
            .execute(
                "UPDATE leases SET repo = ?1, holder = ?2, profile = ?3",
                [repo, name, profile],
            )
            .unwrap();
    };
    for (kind, repo, name, profile) in [
        ("gitolite", REPO, "ann", "gitolite:ann"),
        ("forgejo", "12", "amy", "forgejo-key:7"),
    ] {
        held_by(repo, name, profile);
        let (passes, told) = hook(kind, &EVERYTHING);
        assert!(passes, "{kind}: {told}");
        held_by(repo, name, "another key");
        let (passes, told) = hook(kind, &EVERYTHING);
        assert!(
            !passes && told.contains(&format!("you push as {name} with {profile}")),
            "{told}"
        );
    }
    // A deploy key is not its owner.
    held_by("12", "deploy-key:5", "forgejo-key:7");
    assert!(!hook("forgejo", &EVERYTHING).0);
    let deploy_key = [EVERYTHING.as_slice(), &[("GITEA_DEPLOY_KEY_ID", "5")]].concat();
    assert!(hook("forgejo", &deploy_key).0);
    // Nobody at all.
    held_by(REPO, "alice", "x");
    for (kind, environment) in [
        ("openssh", &EVERYTHING[..]),
        ("openssh", &[]),
        (
            "gitolite",
            &[("GIT_CLAIM_PRINCIPAL", "alice"), ("GIT_CLAIM_KEY", "x")],
        ),
    ] {
        let (passes, told) = hook(kind, environment);
        assert!(
            !passes && told.contains("cannot tell who pushes"),
            "{kind}: {told}"
        );
    }
}

#[test]
fn behind_each_kind_a_merge_releases_the_claim() {
    for (kind, repo_id, pusher) in [("gitolite", REPO, "ann"), ("forgejo", "12", "amy")] {
        let forge = fenced(&[]);
        let alice = worker(&forge, "alice");
        let option = bind(&alice);
        commit(&alice, "Work");
        push(&alice, &["-o", &option, "origin", "HEAD:claim/1"]).success();
        let connection = forge.ledger().connection();
        connection
            .execute("UPDATE leases SET repo = ?1", [repo_id])
            .unwrap();
        let tip = |name| git(&repo(&forge), &["rev-parse", name]);
        let (old, new) = (tip("main"), tip("claim/1"));
        git(&repo(&forge), &["update-ref", "refs/heads/main", &new]);
        let line = format!("{old} {new} refs/heads/main\n");
        let when = [kind, "post-receive"];
        let (_, told) = hook(&forge, when, &EVERYTHING, "ci.skip", &line);
        assert!(told.contains("alice's claim on issue ae1c"), "{told}");
        let by: (String, String) = connection
            .query_row("SELECT how, ended_by FROM tenures", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!((&*by.0, &*by.1), ("merged", pusher));
    }
}

#[test]
fn a_push_to_a_local_repository_meets_the_fence_too() {
    let forge = Forge::without_sshd("\tread = *\n");
    let elsewhere = forge.dir().join("elsewhere.git");
    git(
        forge.dir(),
        &[
            "clone",
            "-q",
            "--bare",
            &repo(&forge).display().to_string(),
            "elsewhere.git",
        ],
    );
    let output = Command::new(programs::server())
        .args(["setup", "--kind", "local"])
        .arg(&elsewhere)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let person = Person::new("alice", forge.dir().join("alice"));
    person.make_home();
    let alice = person.worktree(&elsewhere.display().to_string());
    alice.ok("git fetch -q origin");
    alice.ok("git reset -q --hard origin/main");
    let held = alice.json("git claim 42 --ttl 1s", 0);
    assert_eq!(held["token"], 1);
    push(&alice, &["origin", "HEAD:x"]).success();
    let connection = rusqlite::Connection::open(elsewhere.join("collab.db")).unwrap();
    let lease: String = connection
        .query_row("SELECT lease_id FROM leases", [], |row| row.get(0))
        .unwrap();
    connection
        .execute("UPDATE leases SET expires_at = expires_at - 100", [])
        .unwrap();
    let option = format!("claim-token=42:1:{lease}");
    let told = stderr(&push(&alice, &["-o", &option, "origin", "HEAD:y"]).failure());
    assert!(told.contains("is not yours any more"), "{told}");
}

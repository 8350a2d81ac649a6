//! `git claim start`: all of it, or nothing at all.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::support::bound::{
    branch, commit, copy, copy_file, fetched, git_dir, sibling, started, take_push_options, tip,
    tree,
};
use crate::support::client::Client;
use crate::support::forge::{Forge, git};
use crate::support::{issue, programs};

const START: &str = "git claim start ae1c051b --ttl 2h";

/// What is there before a call that fails, and must be there after it.
struct Before {
    home: BTreeMap<PathBuf, Vec<u8>>,
    client: Client,
}

impl Before {
    fn of(client: &Client) -> Before {
        Before {
            home: Before::files(client),
            client: client.clone(),
        }
    }

    /// Everything of the person's but sockets and what the test itself keeps.
    fn files(client: &Client) -> BTreeMap<PathBuf, Vec<u8>> {
        let home = client.person().home();
        let mut files = tree(home);
        files.retain(|path, _| {
            let below = path.strip_prefix(home).unwrap();
            !below.starts_with("run") && !below.starts_with("test") && !below.starts_with(".cache")
        });
        files
    }

    fn is_as_it_was(&self) {
        let now = Before::files(&self.client);
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&now), names(&self.home));
        for (path, content) in &self.home {
            assert!(now[path] == *content, "{} has changed", path.display());
        }
    }
}

/// Nobody holds the issue.
fn is_free(client: &Client) {
    let leases = client.json("git claims", 0);
    assert_eq!(leases["leases"], serde_json::json!([]));
}

/// Types the command that a refusal names.
fn next(client: &Client, refused: &Value) -> assert_cmd::assert::Assert {
    let line = refused["exact_next_action"].as_str().unwrap();
    client.command("sh").args(["-c", line]).assert()
}

/// A refusal's code; it allows no work.
fn reason(refused: &Value) -> &str {
    assert_eq!(refused["success"], false, "{refused}");
    assert_eq!(refused["work_allowed"], false, "{refused}");
    refused["reason_code"].as_str().unwrap()
}

#[test]
fn a_started_claim_is_sound_on_both_sides() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let said = main.ok(START);
    assert!(said.contains("work may begin"), "{said}");
    let bound = main.at(sibling(&main, issue::CRASH));
    assert_eq!(
        git(bound.dir(), &["branch", "--show-current"]),
        branch(issue::CRASH)
    );
    assert_eq!(tip(&bound, "HEAD"), tip(&main, "origin/main"));
    bound.ok("git claim check");
    let record = copy(&bound);
    let shown = bound.json("git claim inspect", 0);
    assert_eq!(shown["server"]["lock"], record);
    assert_eq!(shown["sound"], true);
    assert_eq!(record["branch_name"], branch(issue::CRASH));
    assert_eq!(
        record["worktree_path"].as_str().unwrap(),
        bound.dir().to_str().unwrap()
    );
    assert_eq!(record["org"], "acme");
    assert_eq!(record["lock_provenance"]["source"], "start");
    // A plain push carries the token.
    let option = git(bound.dir(), &["config", "push.pushOption"]);
    let lease = record["work_lease"]["lease_id"].as_str().unwrap();
    assert_eq!(option, format!("claim-token={}:1:{lease}", issue::CRASH));
    assert_eq!(
        main.git(["config", "push.pushOption"])
            .assert()
            .code(1)
            .get_output()
            .stdout,
        b""
    );
    bound
        .git(["push", "-q", "-u", "origin", "HEAD"])
        .assert()
        .success();
}

#[test]
fn a_server_that_takes_no_push_options_gets_none() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let said = main.ok(START);
    assert!(said.contains("git push -o claim-token="), "{said}");
    let bound = main.at(sibling(&main, issue::CRASH));
    bound
        .git(["push", "-q", "-u", "origin", "HEAD"])
        .assert()
        .success();
}

#[test]
fn another_place_to_push_to_gets_no_push_option() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    main.git(["remote", "add", "mirror", "ssh://other/x.git"])
        .assert()
        .success();
    main.git(["config", "claim.remote", "origin"])
        .assert()
        .success();
    assert_eq!(main.json(START, 0)["push_option_set"], false);
}

#[test]
fn starting_again_does_no_harm() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (main, bound) = started(&forge, "alice");
    let config = fs::read(git_dir(&main).join("config")).unwrap();
    let before = copy(&bound);
    for client in [&main, &bound] {
        let again = client.json(START, 0);
        assert_eq!(again["tenure"], "own");
        assert_eq!(again["token"], 1);
        assert_eq!(again["worktree"].as_str(), bound.dir().to_str());
    }
    let after = copy(&bound);
    assert_eq!(
        after["work_lease"]["lease_id"],
        before["work_lease"]["lease_id"]
    );
    assert_eq!(fs::read(git_dir(&main).join("config")).unwrap(), config);
    bound.ok("git claim check");
    // With --here too.
    bound.ok("git claim start ae1c051b --here");
    bound.ok("git claim check");
}

#[test]
fn the_present_worktree_is_bound_with_here() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let before = Before::of(&main);
    let refused = main.json("git claim start ae1c051b --here", 1);
    assert_eq!(reason(&refused), "default_branch");
    before.is_as_it_was();
    is_free(&main);
    main.git(["switch", "-q", "-c", "fix"]).assert().success();
    let done = main.json("git claim start ae1c051b --here", 0);
    assert_eq!(done["branch"], "fix");
    main.ok("git claim check");
    main.git(["switch", "-q", "--detach"]).assert().success();
    let refused = main.json("git claim start ae1c051b --here", 1);
    assert_eq!(reason(&refused), "detached_head");
    next(&main, &refused).success();
}

#[test]
fn the_first_free_issue_is_started_with_next() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let done = main.json("git claim start --next --ttl 1h", 0);
    let issue = done["issue"].as_str().unwrap();
    main.at(sibling(&main, issue)).ok("git claim check");
    // What next had claimed is given back where the rest fails.
    let taken = sibling(&main, issue::REVIEW);
    for id in [
        issue::CRASH,
        issue::UNICODE,
        issue::REOPENED,
        issue::RETITLED,
        issue::REVIEW,
    ] {
        fs::create_dir_all(taken.with_file_name(id)).unwrap();
        fs::write(taken.with_file_name(id).join("x"), "x").unwrap();
    }
    let refused = main.json("git claim start --next --ttl 1h", 1);
    assert_eq!(reason(&refused), "path_taken");
    assert_eq!(
        main.json("git claims", 0)["leases"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

/// A worker that comes back to an issue must not be stuck on what it left there.
#[test]
fn next_goes_on_in_the_worktree_of_an_earlier_tenure() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let first = main.json("git claim start --next --ttl 1h", 0);
    let bound = main.at(first["worktree"].as_str().unwrap());
    let work = commit(&bound, "work");
    forge.ledger().rewind(3_700);
    for token in [2, 3] {
        let again = main.json("git claim start --next --ttl 1h", 0);
        assert_eq!(again["worktree"], first["worktree"]);
        assert_eq!(
            (&again["token"], tip(&bound, "HEAD")),
            (&token.into(), work.clone())
        );
        bound.ok("git claim check");
        bound
            .git(["push", "-q", "origin", "HEAD"])
            .assert()
            .success();
        bound.ok("git unclaim");
    }
    // Where the rest fails, the worktree has its session back.
    let session = fs::read(git_dir(&bound).join("claim-session")).unwrap();
    let copies = git_dir(&bound).join("claims");
    fs::remove_dir_all(&copies).unwrap();
    fs::write(&copies, "").unwrap();
    main.run("git claim start --next").code(1);
    assert_eq!(
        fs::read(git_dir(&bound).join("claim-session")).unwrap(),
        session
    );
    is_free(&main);
}

#[test]
fn names_and_places_can_be_chosen() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let base = tip(&main, "HEAD");
    let done = main.json(
        &format!("git claim start ae1c051b --branch fix/ü --base {base} --worktree ../deep/er"),
        0,
    );
    let bound = main.at(main.person().home().join("deep/er"));
    assert_eq!(done["worktree"].as_str(), bound.dir().to_str());
    assert_eq!(done["branch"], "fix/ü");
    bound.ok("git claim check");
    // Found again without repeating any of it.
    assert_eq!(main.json(START, 0)["worktree"], done["worktree"]);
}

#[test]
fn what_is_in_the_way_is_told_and_nothing_is_touched() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let path = sibling(&main, issue::CRASH);
    // The path is taken.
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
    let before = Before::of(&main);
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "path_taken");
    before.is_as_it_was();
    is_free(&main);
    next(&main, &refused).success();
    let elsewhere = main.at(format!("{}-2", path.display()));
    elsewhere.ok("git claim check");
    elsewhere.ok("git unclaim");
    // The branch is checked out elsewhere.
    let before = Before::of(&main);
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "branch_in_use");
    before.is_as_it_was();
    is_free(&main);
    next(&main, &refused).success();
    elsewhere.ok("git claim check");
}

#[test]
fn without_the_right_to_claim_nothing_begins() {
    let forge = Forge::new();
    let dave = fetched(&forge, "dave");
    let before = Before::of(&dave);
    assert_eq!(reason(&dave.json(START, 1)), "not_allowed");
    before.is_as_it_was();
}

#[test]
fn a_base_that_is_not_here_is_told() {
    let forge = Forge::new();
    let main = forge.client("alice");
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "no_base_commit");
    is_free(&main);
    next(&main, &refused).success();
    main.ok(START);
}

#[test]
fn somebody_elses_claim_is_a_conflict_and_leaves_nothing() {
    let forge = Forge::new();
    let (_, theirs) = started(&forge, "bob");
    let main = fetched(&forge, "alice");
    let before = Before::of(&main);
    let refused = main.json(START, 4);
    assert_eq!(reason(&refused), "held");
    before.is_as_it_was();
    theirs.ok("git claim check");
    next(&main, &refused).success();
}

/// The session that holds the issue, as its own principal sees it.
fn session(client: &Client) -> Value {
    client.json("git claims", 0)["leases"][0]["session"].clone()
}

#[test]
fn a_plain_claim_of_this_worktree_moves_into_the_new_one() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    main.ok("git claim ae1c051b --ttl 90m --note mine");
    let done = main.json("git claim start ae1c051b", 0);
    assert_eq!(done["token"], 2);
    let bound = main.at(sibling(&main, issue::CRASH));
    bound.ok("git claim check");
    let lease = main.json("git claims", 0)["leases"][0].clone();
    assert_eq!(
        (&lease["ttl"], &lease["note"]),
        (&5400.into(), &"mine".into())
    );
    let why = bound.json("git claim log", 0)["tenures"][1]["why"].clone();
    assert_eq!(why, format!("start in {}", bound.dir().display()));
    // A new key: the same, after the take-over that says why.
    let laptop = forge.second_key("laptop", "alice").at(main.dir());
    laptop.ok("git claim ae1c051b --take-over --reason new-key");
    laptop.ok("git claim start ae1c051b");
    laptop.at(bound.dir()).ok("git claim check");
}

#[test]
fn a_claim_that_was_to_move_is_put_back_where_start_fails() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    main.ok("git claim ae1c051b --ttl 90m --note mine");
    let held = session(&main);
    main.git(["branch", "claim"]).assert().success();
    assert_eq!(reason(&main.json(START, 1)), "branch_failed");
    assert_eq!(session(&main), held);
    main.ok("git claim renew ae1c051b");
    main.ok("git unclaim ae1c051b");
}

#[test]
fn ones_own_claim_elsewhere_is_never_a_loop() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    // Killed between the acquire and the branch; or branch and worktree are
    // gone: nobody can go on with that session.
    main.ok(START);
    let path = sibling(&main, issue::CRASH);
    let remove = path.to_str().unwrap();
    main.git(["worktree", "remove", "--force", remove])
        .assert()
        .success();
    main.git(["branch", "-D", &branch(issue::CRASH)])
        .assert()
        .success();
    let refused = main.json(START, 4);
    assert_eq!(reason(&refused), "held_in_other_session");
    let shown = main.json("git claim inspect ae1c051b", 0);
    assert_eq!(shown["exact_next_action"], refused["exact_next_action"]);
    next(&main, &refused).success();
    main.ok(START);
    // In another worktree of this clone, plain: it is started from there.
    main.at(&path).ok("git unclaim");
    let other = main.at(main.dir().with_file_name("other"));
    main.git(["worktree", "add", "-q", "--detach"])
        .arg(other.dir())
        .assert()
        .success();
    other.ok("git claim ae1c051b --ttl 1h");
    let refused = main.json(START, 4);
    next(&main, &refused).success();
    main.at(&path).ok("git claim check");
    // In another clone it may live: nothing of it is ended.
    let clone = fetched(&forge, "alice");
    let held = session(&main);
    let refused = clone.json(START, 4);
    let line = refused["exact_next_action"].as_str().unwrap();
    assert!(line.starts_with("git -C "), "{line}");
    next(&clone, &refused).success();
    assert_eq!(session(&main), held);
}

#[test]
fn the_next_action_asks_the_same_server_for_the_same() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let url = git(main.dir(), &["remote", "get-url", "origin"]);
    main.git(["remote", "add", "up", &url]).assert().success();
    main.git(["fetch", "-q", "up"]).assert().success();
    let refused = main.json(
        "git claim start ae1c051b -r up --branch x --base nonexist -t 1h --session s",
        1,
    );
    assert_eq!(
        refused["exact_next_action"],
        format!(
            "git claim start {} -t 3600 --branch x -r up --session s",
            issue::CRASH
        )
    );
    next(&main, &refused).success();
    let bound = main.at(sibling(&main, issue::CRASH));
    let record = git_dir(&bound).join(format!("claims/up/{}.json", issue::CRASH));
    fs::write(record, "{").unwrap();
    let refused = bound.json("git claim check -r up", 1);
    let line = refused["exact_next_action"].as_str().unwrap();
    assert!(line.ends_with(" -r up"), "{line}");
    next(&bound, &refused).success();
    bound.ok("git claim check -r up");
}

#[test]
fn a_branch_that_another_claim_is_worked_on_is_left_to_it() {
    let forge = Forge::new();
    let (main, theirs) = started(&forge, "alice");
    let name = branch(issue::CRASH);
    let path = theirs.dir().to_str().unwrap();
    for (client, options) in [
        (&main, format!("--branch {name}")),
        (&main, format!("--branch {name} --worktree {path}")),
        (&theirs, "--here".to_owned()),
    ] {
        let line = format!("git claim start {} {options}", issue::UNICODE);
        let refused = client.json(&line, 1);
        next(client, &refused).success();
        theirs.ok("git claim check");
        let own = main.at(sibling(&main, issue::UNICODE));
        own.ok("git claim check");
        own.ok("git unclaim");
        main.git(["worktree", "remove", "--force"])
            .arg(own.dir())
            .assert()
            .success();
    }
}

#[test]
fn a_branch_that_cannot_be_made_undoes_the_claim() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    // git keeps no branch `claim/…` beside a branch `claim`.
    main.git(["branch", "claim"]).assert().success();
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "branch_failed");
    before.is_as_it_was();
    is_free(&main);
}

#[test]
fn a_worktree_that_cannot_be_made_undoes_branch_and_claim() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let hook = git_dir(&main).join("hooks/post-checkout");
    write_hook(&hook, "exit 1");
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "worktree_failed");
    before.is_as_it_was();
    is_free(&main);
    // A branch that was there before stays where it is.
    main.git(["branch", &branch(issue::CRASH)])
        .assert()
        .success();
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "worktree_failed");
    before.is_as_it_was();
}

#[test]
fn a_full_disk_undoes_all_of_it() {
    if !programs::is_root() {
        eprintln!("only root can mount a small disk");
        return;
    }
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let small = main.person().home().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .status()
        .unwrap();
    if !mounted.success() {
        eprintln!("nothing can be mounted here");
        return;
    }
    fs::write(main.dir().join("large"), vec![b'x'; 1 << 20]).unwrap();
    main.git(["add", "large"]).assert().success();
    main.git(["commit", "-qm", "large"]).assert().success();
    let before = Before::of(&main);
    let refused = main.json(&format!("{START} --base main --worktree ../small/w"), 1);
    let left = tree(&small);
    assert!(
        Command::new("umount")
            .arg(&small)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(reason(&refused), "worktree_failed");
    assert!(left.is_empty(), "{left:?}");
    before.is_as_it_was();
    is_free(&main);
    next(&main, &refused).success();
}

#[test]
fn a_record_that_cannot_be_stored_undoes_all_of_it() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let hook = git_dir(&main).join("hooks/post-checkout");
    write_hook(&hook, "touch \"$(git rev-parse --git-dir)/claims\"");
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "record_not_stored");
    before.is_as_it_was();
    is_free(&main);
}

#[test]
fn a_push_option_that_cannot_be_set_undoes_all_of_it() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    // Somebody else's git writes the configuration.
    let lock = git_dir(&main).join("config.lock");
    fs::write(&lock, "").unwrap();
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "push_option_failed");
    before.is_as_it_was();
    is_free(&main);
    fs::remove_file(lock).unwrap();
    main.ok(START);
}

#[test]
fn a_server_that_is_gone_after_the_acquire_leaves_a_way_on() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let before = Before::of(&main);
    // 1 whoami, 2 show, 3 acquire; then nothing.
    let output = with_ssh(&main, "[ $n -gt 3 ] && exit 255", START);
    assert_eq!(output.status.code(), Some(6));
    let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reason(&refused), "server_unreachable");
    fs::remove_file(main.person().home().join("bin/counted-ssh")).unwrap();
    before.is_as_it_was();
    // It could not be given back, so the way on is to go on with it.
    let done = next(&main, &refused).success();
    drop(done);
    let bound = main.at(sibling(&main, issue::CRASH));
    bound.ok("git claim check");
    assert_eq!(copy(&bound)["work_lease"]["token"], 1);
}

#[test]
fn a_server_that_stumbles_after_the_acquire_gets_the_claim_back() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let before = Before::of(&main);
    let output = with_ssh(&main, "[ $n = 4 ] && exit 255", START);
    assert_eq!(output.status.code(), Some(6));
    fs::remove_file(main.person().home().join("bin/counted-ssh")).unwrap();
    before.is_as_it_was();
    is_free(&main);
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let lost = "[ $n = 3 ] && { ssh \"$@\" >/dev/null; exit 255; }";
    let output = with_ssh(&main, lost, START);
    assert!(output.status.success(), "{output:?}");
    let bound = main.at(sibling(&main, issue::CRASH));
    assert_eq!(copy(&bound)["work_lease"]["token"], 1);
    bound.ok("git claim check");
}

#[test]
fn a_record_that_comes_back_incomplete_is_refused() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let before = Before::of(&main);
    let strips =
        "[ $n -ge 3 ] && { ssh \"$@\" | sed 's/\"lifecycle_version\":\"heartbeat-v1\",//'; exit; }";
    let output = with_ssh(&main, strips, START);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reason(&refused), "incomplete_lock_contract");
    assert_eq!(
        refused["missing"],
        serde_json::json!(["work_lease.lifecycle_version"])
    );
    fs::remove_file(main.person().home().join("bin/counted-ssh")).unwrap();
    before.is_as_it_was();
    is_free(&main);
}

#[test]
fn ctrl_c_leaves_nothing() {
    // At each call to the server: before the acquire, while its answer is on
    // the way, and when all is made.
    for (at, hangs) in [
        (2, "sleep 1000"),
        (
            3,
            "ssh \"$@\" >/dev/null; echo >\"$HOME/test/reached\"; sleep 1000",
        ),
        (4, "sleep 1000"),
    ] {
        let forge = Forge::new();
        let main = fetched(&forge, "alice");
        let reached = main.person().home().join("test/reached");
        let before = Before::of(&main);
        let mark = match at {
            3 => "",
            _ => "echo >\"$HOME/test/reached\"; ",
        };
        let script = format!("[ $n = {at} ] && {{ {mark}{hangs}; }}");
        let mut command = ssh_command(&main, &script, START);
        let child = command.process_group(0).spawn().unwrap();
        while !reached.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("\"success\":true"),
            "{at}: {output:?}"
        );
        fs::remove_file(main.person().home().join("bin/counted-ssh")).unwrap();
        // git itself ends with the signal; ours cleans up behind it.
        while !is_idle(&main) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        before.is_as_it_was();
        is_free(&main);
    }
}

#[test]
fn of_many_starts_one_wins_and_the_others_leave_nothing() {
    let forge = Forge::new();
    let clients: Vec<Client> = (0..8)
        .map(|n| fetched(&forge, ["alice", "bob"][n % 2]))
        .collect();
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let calls: Vec<_> = clients
            .iter()
            .map(|client| {
                scope.spawn(|| {
                    let mut command = client.command("git");
                    command.args(["claim", "start", "ae1c051b", "--ttl", "2h", "--json"]);
                    command.output().unwrap()
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let mut winners = 0;
    for (client, output) in clients.iter().zip(&outputs) {
        let path = sibling(client, issue::CRASH);
        if output.status.success() {
            winners += 1;
            client.at(path).ok("git claim check");
            continue;
        }
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert!(!path.parent().unwrap().exists());
        client
            .git(["rev-parse", "-q", "--verify", &branch(issue::CRASH)])
            .assert()
            .failure();
        assert!(!git_dir(client).join("worktrees").exists());
    }
    assert_eq!(winners, 1);
}

#[test]
fn heartbeats_and_the_release_keep_record_and_option_true() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (main, bound) = started(&forge, "alice");
    for line in ["git claim renew", "git claim ae1c051b --ttl 1h"] {
        let before = copy(&bound)["lock_generation"].as_u64().unwrap();
        bound.ok(line);
        assert_eq!(copy(&bound)["lock_generation"], before + 1, "{line}");
        bound.ok("git claim check");
    }
    // Without an id it is the claim of this worktree that is meant.
    let log = bound.json("git claim log", 0);
    assert_eq!(log["tenures"].as_array().unwrap().len(), 1);
    bound.ok("git unclaim");
    assert!(!copy_file(&bound).exists());
    bound.git(["config", "push.pushOption"]).assert().code(1);
    let refused = bound.json("git claim check", 1);
    assert_eq!(reason(&refused), "not_bound");
    main.run("git claim renew").code(1);
    main.run("git unclaim").code(1);
}

#[test]
fn who_lost_the_claim_can_clear_the_worktree() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (_, bound) = started(&forge, "alice");
    let carol = forge.client("carol");
    carol.ok("git claim ae1c051b --take-over --reason test --expected-token 1");
    bound.run("git claim renew").code(4);
    assert!(copy_file(&bound).exists());
    bound.run("git unclaim").code(4);
    assert!(!copy_file(&bound).exists());
    bound.git(["config", "push.pushOption"]).assert().code(1);
}

#[test]
fn a_server_that_cannot_be_reached_is_no_claim() {
    let mut forge = Forge::new();
    let main = fetched(&forge, "alice");
    forge.stop_sshd();
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 6)), "server_unreachable");
    before.is_as_it_was();
}

fn write_hook(path: &std::path::Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A command line with `--json` over an ssh that runs `script` first, in which
/// `$n` is the number of the connection.
fn ssh_command(client: &Client, script: &str, line: &str) -> Command {
    let home = client.person().home();
    fs::create_dir_all(home.join("test")).unwrap();
    let _ = fs::remove_file(home.join("test/count"));
    client.person().make_program(
        "counted-ssh",
        &format!(
            "n=$(($(cat \"$HOME/test/count\" 2>/dev/null || echo 0) + 1))\n\
             echo $n >\"$HOME/test/count\"\n{script}\nexec ssh \"$@\""
        ),
    );
    let mut words = line.split_whitespace();
    let mut command = client
        .person()
        .std_command(words.next().unwrap(), client.dir());
    command
        .args(words)
        .arg("--json")
        .env("GIT_SSH_COMMAND", home.join("bin/counted-ssh"))
        .env("GIT_SSH_VARIANT", "ssh")
        // Who is turned away tries again until then.
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "claim.timeout")
        .env("GIT_CONFIG_VALUE_0", "10s")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn with_ssh(client: &Client, script: &str, line: &str) -> Output {
    ssh_command(client, script, line).output().unwrap()
}

/// Whether no `git claim` of this person's runs any more.
fn is_idle(client: &Client) -> bool {
    let dir = client.dir().to_owned();
    !fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let works_here = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir);
        works_here && String::from_utf8_lossy(&command).contains("git-claim")
    })
}

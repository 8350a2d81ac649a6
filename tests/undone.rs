//! `git claim start`: all of it, or nothing at all. Each step fails by a real
//! cause.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::before::Before;
use crate::support::bound::{
    branch, copy, fetched, git_dir, is_free, lead_out, next, reason, sibling, take_push_options,
    tree, write_hook,
};
use crate::support::broken::{interrupted, ssh_command, with_ssh};
use crate::support::client::Client;
use crate::support::forge::{Forge, git};
use crate::support::{issue, programs};

const START: &str = "git claim start ae1c051b --ttl 2h";

#[test]
fn a_branch_that_cannot_be_made_undoes_the_claim() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    // A git that died has left its lock.
    let lock = git_dir(&main).join(format!("refs/heads/{}.lock", branch(issue::CRASH)));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();
    let before = Before::of(&main);
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "branch_failed");
    before.is_as_it_was();
    is_free(&main);
    next(&main, &refused).success();
    main.at(sibling(&main, issue::CRASH)).ok("git claim check");
}

#[test]
fn a_branch_that_git_keeps_no_place_for_is_told_before_anything_is_asked() {
    let forge = Forge::new();
    for (in_the_way, option) in [
        ("claim", ""),
        ("fix/this", "--branch fix"),
        ("a", "--branch a/b/c"),
    ] {
        let main = fetched(&forge, "alice");
        main.git(["branch", in_the_way]).assert().success();
        let before = Before::of(&main);
        let refused = main.json(&format!("{START} {option}"), 1);
        assert_eq!(reason(&refused), "branch_failed");
        before.is_as_it_was();
        next(&main, &refused).success();
        let bound = main.at(sibling(&main, issue::CRASH));
        bound.ok("git claim check");
        bound.ok("git unclaim");
    }
}

#[test]
fn a_hook_that_fails_is_named_and_undoes_branch_and_claim() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    write_hook(
        &git_dir(&main).join("hooks/post-checkout"),
        "echo no >&2; exit 3",
    );
    let before = Before::of(&main);
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "worktree_failed");
    assert_eq!(refused["message"], "the hook post-checkout failed: no");
    before.is_as_it_was();
    is_free(&main);
    // A branch that was there before stays where it is, and an empty folder.
    main.git(["branch", &branch(issue::CRASH)])
        .assert()
        .success();
    fs::create_dir_all(sibling(&main, issue::CRASH)).unwrap();
    let before = Before::of(&main);
    assert_eq!(reason(&main.json(START, 1)), "worktree_failed");
    before.is_as_it_was();
    let typed = lead_out(&main, START);
    assert!(
        typed[1].starts_with("git -c core.hooksPath=/dev/null claim "),
        "{typed:?}"
    );
    main.at(sibling(&main, issue::CRASH)).ok("git claim check");
}

#[test]
fn a_worktree_that_git_cannot_check_out_leaves_the_folder_that_was_there() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    // What should be in the file is lost.
    fs::write(main.dir().join("file"), "x").unwrap();
    main.git(["add", "file"]).assert().success();
    main.git(["commit", "-qm", "file"]).assert().success();
    let blob = git(main.dir(), &["rev-parse", "HEAD:file"]);
    fs::remove_file(git_dir(&main).join(format!("objects/{}/{}", &blob[..2], &blob[2..]))).unwrap();
    fs::create_dir_all(sibling(&main, issue::CRASH)).unwrap();
    let before = Before::of(&main);
    let refused = main.json(&format!("{START} --base main"), 1);
    assert_eq!(reason(&refused), "worktree_failed");
    before.is_as_it_was();
    is_free(&main);
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
    before.is_as_it_was();
    is_free(&main);
    // On another disk, while this one is as small as ever.
    let next = next(&main, &refused);
    assert!(
        Command::new("umount")
            .arg(&small)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(reason(&refused), "worktree_failed");
    assert!(left.is_empty(), "{left:?}");
    next.success();
    main.at(sibling(&main, issue::CRASH)).ok("git claim check");
}

#[test]
fn a_record_that_cannot_be_stored_undoes_all_of_it() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let hook = git_dir(&main).join("hooks/post-checkout");
    write_hook(&hook, "touch \"$(git rev-parse --git-dir)/claims\"");
    let before = Before::of(&main);
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "record_not_stored");
    before.is_as_it_was();
    is_free(&main);
    fs::remove_file(hook).unwrap();
    next(&main, &refused).success();
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
    let refused = main.json(START, 1);
    assert_eq!(reason(&refused), "push_option_failed");
    before.is_as_it_was();
    is_free(&main);
    fs::remove_file(lock).unwrap();
    next(&main, &refused).success();
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
    let refused = serde_json::from_slice(&output.stdout).unwrap();
    next(&main, &refused).success();
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
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    for (at, script) in [
        (2, "echo >\"$HOME/test/reached\"; sleep 1000"),
        (
            3,
            "ssh \"$@\" >/dev/null; echo >\"$HOME/test/reached\"; sleep 1000",
        ),
        (4, "echo >\"$HOME/test/reached\"; sleep 1000"),
    ] {
        let before = Before::of(&main);
        let script = format!("[ $n = {at} ] && {{ {script}; }}");
        let refused = interrupted(&main, ssh_command(&main, &script, START));
        assert_eq!(reason(&refused), "interrupted", "{at}");
        fs::remove_file(main.person().home().join("bin/counted-ssh")).unwrap();
        before.is_as_it_was();
        is_free(&main);
        next(&main, &refused).success();
        main.at(sibling(&main, issue::CRASH)).ok("git unclaim");
        let path = sibling(&main, issue::CRASH);
        main.git(["worktree", "remove", "--force", path.to_str().unwrap()])
            .assert()
            .success();
        main.git(["branch", "-qD", &branch(issue::CRASH)])
            .assert()
            .success();
    }
}

#[test]
fn ctrl_c_that_hits_git_leaves_nothing_either() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    fs::create_dir(main.person().home().join("test")).unwrap();
    // Once: what is undone runs it too.
    let waits = "rm \"$0\"; echo >\"$HOME/test/reached\"; sleep 1000";
    for (hook, script) in [
        // While the branch is made, before and after it is there.
        (
            "reference-transaction",
            format!("[ $1 = prepared ] || exit 0; {waits}"),
        ),
        (
            "reference-transaction",
            format!("[ $1 = committed ] || exit 0; {waits}"),
        ),
        // While the worktree is made.
        ("post-checkout", waits.to_owned()),
    ] {
        let hook = git_dir(&main).join("hooks").join(hook);
        let before = Before::of(&main);
        write_hook(&hook, &script);
        let mut command = main.person().std_command("git-claim", main.dir());
        command
            .args(START.split(' ').skip(2))
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let refused = interrupted(&main, command);
        assert_eq!(reason(&refused), "interrupted", "{script}");
        before.is_as_it_was();
        is_free(&main);
    }
    main.ok(START);
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

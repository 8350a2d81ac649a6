//! Bound claims, from the start to the release.

use std::fs;

use serde_json::Value;

use crate::support::before::Before;
use crate::support::bound::{
    branch, commit, copy, copy_file, fetched, git_dir, is_free, lead_out, next, reason, sibling,
    started, take_push_options, tip, write_hook,
};
use crate::support::client::Client;
use crate::support::forge::{Forge, REPO, git};
use crate::support::issue;

const START: &str = "git claim start ae1c051b --ttl 2h";

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
    assert!(
        said.contains("push as ever: the server looks at no claims"),
        "{said}"
    );
    let bound = main.at(sibling(&main, issue::CRASH));
    bound
        .git(["push", "-q", "-u", "origin", "HEAD"])
        .assert()
        .success();
}

#[test]
fn another_place_to_push_to_gets_no_push_option() {
    let forge = Forge::new();
    forge.set_up_fence();
    let main = fetched(&forge, "alice");
    let mirror = forge.dir().join("mirror.git");
    git(forge.dir(), &["init", "-q", "--bare", "mirror.git"]);
    main.git(["remote", "add", "mirror", mirror.to_str().unwrap()])
        .assert()
        .success();
    main.git(["config", "claim.remote", "origin"])
        .assert()
        .success();
    let started = main.json(START, 0);
    assert_eq!(started["push_option_set"], false);
    // The mirror takes no push options; the forge wants this one.
    let bound = main.at(started["worktree"].as_str().unwrap());
    commit(&bound, "work");
    let push = |words: &[&str]| bound.git(["push", "-q"]).args(words).assert();
    push(&["mirror", "HEAD"]).success();
    push(&["origin", "HEAD"]).failure();
    let option = started["push_option"].as_str().unwrap();
    push(&["-o", option, "origin", "HEAD"]).success();
}

#[test]
fn starting_again_does_no_harm() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (main, bound) = started(&forge, "alice");
    let config = fs::read(git_dir(&main).join("config")).unwrap();
    let before = copy(&bound);
    // Without a time to live it is the one that the claim has.
    bound.ok("git claim start ae1c051b --ttl 5h");
    bound.ok("git claim start ae1c051b");
    let lease = main.json("git claims", 0)["leases"][0].clone();
    assert_eq!(lease["ttl"], 5 * 3_600);
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

/// A checkout may take longer than a connection is kept.
#[test]
fn a_connection_that_ended_meanwhile_is_made_anew() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let run = main.person().home().join("run");
    let hook = format!(
        "cd {}\nfor socket in git-claim/*.*; do ssh -S $socket -O exit forge; done 2>ended",
        run.display()
    );
    write_hook(&git_dir(&main).join("hooks/post-checkout"), &hook);
    main.ok(START);
    let ended = fs::read_to_string(run.join("ended")).unwrap();
    assert!(ended.contains("Exit request sent"), "{ended}");
    main.at(sibling(&main, issue::CRASH)).ok("git claim check");
}

/// A worker that comes back to an issue must not be stuck on what it left there.
#[test]
fn next_goes_on_in_the_worktree_of_an_earlier_tenure() {
    let forge = Forge::new();
    take_push_options(&forge);
    let main = fetched(&forge, "alice");
    let first = main.json("git claim start --next --ttl 1h", 0);
    let bound = main.at(first["worktree"].as_str().unwrap());
    let mut work = commit(&bound, "work");
    forge.ledger().rewind(3_700);
    for token in [2, 3] {
        let again = main.json("git claim start --next --ttl 1h", 0);
        assert_eq!(again["worktree"], first["worktree"]);
        assert_eq!(
            (&again["token"], tip(&bound, "HEAD")),
            (&token.into(), work)
        );
        bound.ok("git claim check");
        // Git sends push options even where it has nothing to push, and is killed
        // by SIGPIPE if the server is gone by then.
        work = commit(&bound, &format!("work {token}"));
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
    elsewhere.ok("git unclaim");
    // The branch is everybody's.
    let before = Before::of(&main);
    let refused = main.json(&format!("{START} --branch main"), 1);
    assert_eq!(reason(&refused), "default_branch");
    before.is_as_it_was();
}

#[test]
fn a_place_where_nothing_can_be_made_is_named_and_another_works() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    for place in ["/proc/x", "/proc/1/x/y", "/dev/null/x", "/dev/null"] {
        let before = Before::of(&main);
        let refused = main.json(&format!("{START} --worktree {place}"), 1);
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with(place), "{message}");
        before.is_as_it_was();
        is_free(&main);
        next(&main, &refused).success();
        let bound = main.at(sibling(&main, issue::CRASH));
        bound.ok("git unclaim");
        main.git(["worktree", "remove", "--force"])
            .arg(bound.dir())
            .assert()
            .success();
    }
    // The usual place.
    let folder = sibling(&main, issue::CRASH).parent().unwrap().to_owned();
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "no folder").unwrap();
    let typed = lead_out(&main, START);
    assert_eq!(typed.len(), 2, "{typed:?}");
}

#[test]
fn without_the_right_to_claim_nothing_begins() {
    let forge = Forge::new();
    let dave = fetched(&forge, "dave");
    let before = Before::of(&dave);
    assert_eq!(reason(&dave.json(START, 1)), "not_allowed");
    before.is_as_it_was();
    // Who may see nothing either is shown whom was asked: asking again is no use.
    let main = fetched(&forge, "alice");
    let eve = forge.person("eve").at(main.dir());
    assert_eq!(lead_out(&eve, START), [START, "git remote -v"]);
    // Nor where the right was lost since.
    let (_, bound) = started(&forge, "bob");
    forge.configure("[claim]\n\twrite = alice\n");
    assert_eq!(
        lead_out(&bound, "git claim check"),
        ["git claim check", "git remote -v"]
    );
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
    // What was named for this issue is not for another.
    let line = "git claim start ae1c051b -r origin -t 1h --branch fix --base main --worktree ../x";
    let refused = main.json(line, 4);
    assert_eq!(
        refused["exact_next_action"],
        "git claim start --next -t 3600 --base main -r origin"
    );
}

#[test]
fn what_the_server_does_not_grant_has_a_way_round() {
    let forge = Forge::new();
    let clone = fetched(&forge, "bob");
    clone.ok("git claim start ae1c051b --branch fix");
    let main = fetched(&forge, "alice");
    // Closed.
    let id = issue::CLOSED;
    let typed = lead_out(&main, &format!("git claim start {id} -t 1h"));
    assert_eq!(typed[1..], ["git claim start --next -t 3600"]);
    // Too long.
    let typed = lead_out(&main, "git claim start 862b -t 90d");
    assert_eq!(typed[1..], ["git claim start 862b -t 2592000"]);
    // A branch of another clone's claim, and one that is everybody's there.
    for line in [
        "git claim start 537d --branch fix",
        "git claim start 766d --branch there",
    ] {
        git(
            &forge.repos().join(REPO),
            &["symbolic-ref", "HEAD", "refs/heads/there"],
        );
        let typed = lead_out(&main, line);
        assert_eq!(typed.len(), 2, "{typed:?}");
    }
    clone
        .at(sibling(&clone, issue::CRASH))
        .ok("git claim check");
    // One's own is bound to another branch.
    let line = format!("git claim start {} --branch other", issue::RETITLED);
    let typed = lead_out(&main, &line);
    assert_eq!(typed.len(), 2, "{typed:?}");
    // Not an issue at all.
    let typed = lead_out(&main, "git claim start 99999");
    assert_eq!(typed[1..], ["git claims"]);
}

#[test]
fn without_a_key_nothing_can_be_bound() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let nobody = forge.person_behind_server("nobody", "").at(main.dir());
    let before = Before::of(&main);
    nobody.run(START).code(1);
    before.is_as_it_was();
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
    write_hook(&git_dir(&main).join("hooks/post-checkout"), "exit 1");
    assert_eq!(reason(&main.json(START, 1)), "worktree_failed");
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
    let held = session(&main);
    // Somebody may work there: it is theirs to go on, or to start.
    let refused = main.json(START, 4);
    next(&main, &refused).success();
    assert_eq!(session(&main), held);
    other.ok(START);
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

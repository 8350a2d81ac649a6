//! `git claim recover`: what it mends, what it refuses, and what it never
//! touches.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::bound::{
    branch, commit, copy, copy_file, fetched, get_through, git_dir, lead_out, set_copy, sibling,
    started, take_push_options, tip, tree, with, write_hook,
};
use crate::support::broken::{KILL, interrupted, ssh_command, with_ssh};
use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, git};
use crate::support::issue;

const START: &str = "git claim start ae1c051b --ttl 2h";

fn line(head: &str) -> String {
    format!("git claim recover {} --expected-head {head}", issue::CRASH)
}

/// The code of a recovery that is refused, which writes nothing anywhere.
fn refused(forge: &Forge, client: &Client, line: &str) -> Value {
    let home = client.person().home();
    let look = || {
        let mut files = tree(home);
        files.retain(|path, _| !path.starts_with(home.join("run")));
        (forge.ledger().dump(), files)
    };
    client.run("git claims");
    let before = look();
    let mut command = client.command("sh");
    let output = command
        .args(["-c", &format!("{line} --json")])
        .output()
        .unwrap();
    assert!(before == look(), "{line} has written something");
    let reply: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{line}: {error}: {output:?}"));
    assert_eq!(reply["status"], "refused", "{reply}");
    let exit = match reply["refusal_code"].as_str() {
        Some("healthy_foreign_lock") => 4,
        _ => 1,
    };
    assert_eq!(output.status.code(), Some(exit), "{reply}");
    reply
}

/// Recovers, dry first: that writes nothing, and says the same.
fn recovered(forge: &Forge, client: &Client, line: &str) -> Value {
    let home = client.person().home();
    let look = || {
        let mut files = tree(home);
        files.retain(|path, _| !path.starts_with(home.join("run")));
        (forge.ledger().dump(), files)
    };
    client.run("git claims");
    let before = look();
    let dry = client.json(&format!("{line} --dry-run"), 0);
    assert!(before == look(), "a dry run has written something");
    let done = client.json(line, 0);
    assert_eq!(dry["status"], "recovered");
    assert_eq!(dry["recovery"], done["recovery"]);
    assert_eq!(dry["token"], done["token"]);
    done
}

/// A bound claim with a commit on its branch, and the commit.
fn worked(forge: &Forge) -> (Client, Client, String) {
    let (main, bound) = started(forge, "alice");
    let head = commit(&bound, "work");
    (main, bound, head)
}

#[test]
fn a_lost_or_damaged_copy_is_written_anew_and_nothing_rises() {
    let forge = Forge::new();
    let (main, bound, head) = worked(&forge);
    let sound = copy(&bound);
    let damages: [&dyn Fn(); 3] = [
        &|| fs::remove_file(copy_file(&bound)).unwrap(),
        &|| fs::write(copy_file(&bound), "{").unwrap(),
        &|| set_copy(&bound, &with(&sound, "work_lease.token", None)),
    ];
    for damage in damages {
        // From the worktree itself and from another.
        for client in [&bound, &main] {
            damage();
            let done = recovered(&forge, client, &line(&head));
            assert_eq!(done["recovery"], "copy-again");
            assert_eq!(
                (&done["token"], &done["generation"]),
                (&json!(1), &json!(1))
            );
            assert_eq!(copy(&bound), sound);
            bound.ok("git claim check");
        }
    }
    assert_eq!(tip(&bound, "HEAD"), head);
}

#[test]
fn an_older_servers_row_is_upgraded() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    // An old writer replaces the row: six columns, the rest NULL.
    forge
        .ledger()
        .connection()
        .execute_batch(
            "REPLACE INTO leases (repo, issue_id, holder, token, acquired_at, expires_at)
             SELECT repo, issue_id, holder, token, acquired_at, expires_at FROM leases",
        )
        .unwrap();
    let done = recovered(&forge, &bound, &line(&head));
    assert_eq!(done["recovery"], "upgraded");
    assert_eq!(done["token"], 2);
    let recovery = &done["lock"]["bootstrap_lock_recovery"];
    assert_eq!(recovery["earlier_contract"], "legacy");
    assert_eq!(recovery["preserved_head"].as_str(), Some(&*head));
    assert!(
        recovery["missing_fields"]
            .as_array()
            .unwrap()
            .contains(&json!("work_lease.lease_id"))
    );
    assert_eq!(tip(&bound, "HEAD"), head);
    bound.ok("git claim check");
    // No session; no end.
    for (column, path) in [
        ("session", "work_lease.task_session_id"),
        ("expires_at", "work_lease.expires_at"),
    ] {
        let sql = format!("UPDATE leases SET {column} = NULL");
        forge.ledger().connection().execute(&sql, []).unwrap();
        let done = recovered(&forge, &bound, &line(&head));
        assert_eq!(done["recovery"], "upgraded");
        assert_eq!(
            done["lock"]["bootstrap_lock_recovery"]["missing_fields"],
            json!([path])
        );
        assert_eq!(tip(&bound, "HEAD"), head);
        bound.ok("git claim check");
    }
}

#[test]
fn a_claim_that_ran_out_is_taken_again_for_the_same_branch() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (_, bound, head) = worked(&forge);
    forge.ledger().rewind(3 * 3_600);
    let done = recovered(&forge, &bound, &line(&head));
    assert_eq!(done["recovery"], "taken-again");
    assert_eq!(done["token"], 2);
    assert_eq!(copy(&bound), done["lock"]);
    assert_eq!(tip(&bound, &branch(issue::CRASH)), head);
    let option = git(bound.dir(), &["config", "push.pushOption"]);
    assert!(option.starts_with(&format!("claim-token={}:2:", issue::CRASH)));
    bound.ok("git claim check");
    bound.ok("git claim renew");
}

#[test]
fn a_worktree_that_is_gone_is_built_anew_on_its_branch() {
    let forge = Forge::new();
    take_push_options(&forge);
    let (main, bound, head) = worked(&forge);
    let session = copy(&bound)["work_lease"]["task_session_id"].clone();
    // In the same place, in another, and after git has forgotten it.
    for (place, prune) in [("same", false), ("other", false), ("third", true)] {
        let gone = main.at(copy_path(&main));
        fs::remove_dir_all(gone.dir()).unwrap();
        if prune {
            main.git(["worktree", "prune"]).assert().success();
        }
        let path = match place {
            "same" => gone.dir().to_owned(),
            other => gone.dir().with_file_name(other),
        };
        let reply = refused(&forge, &main, &line(&head));
        assert_eq!(reply["refusal_code"], "worktree_invalid");
        let line = format!("{} --worktree {}", line(&head), path.display());
        let done = recovered(&forge, &main, &line);
        assert_eq!(done["recovery"], "moved");
        let built = main.at(&path);
        built.ok("git claim check");
        assert_eq!(tip(&built, "HEAD"), head);
        assert_ne!(copy(&built)["work_lease"]["task_session_id"], session);
        fs::write(main.person().home().join("place"), path.to_str().unwrap()).unwrap();
    }
}

/// Where the claim's worktree is: the place that the test noted last.
fn copy_path(main: &Client) -> std::path::PathBuf {
    match fs::read_to_string(main.person().home().join("place")) {
        Ok(path) => path.into(),
        Err(_) => sibling(main, issue::CRASH),
    }
}

#[test]
fn the_next_action_of_a_refusal_works() {
    let forge = Forge::new();
    let (main, bound, head) = worked(&forge);
    fs::remove_dir_all(bound.dir()).unwrap();
    let reply = refused(&forge, &main, &line(&head));
    assert_eq!(reply["refusal_code"], "worktree_invalid");
    let next = reply["exact_next_action"].as_str().unwrap();
    main.command("sh").args(["-c", next]).assert().success();
    bound.ok("git claim check");
    // start says the same where it finds the worktree gone.
    fs::remove_dir_all(bound.dir()).unwrap();
    let reply = main.json("git claim start ae1c051b", 1);
    assert_eq!(reply["reason_code"], "worktree_gone");
    let next = reply["exact_next_action"].as_str().unwrap();
    main.command("sh").args(["-c", next]).assert().success();
    bound.ok("git claim check");
}

#[test]
fn who_asks_must_be_known() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    let nobody = forge.person_behind_server("nobody", "").at(bound.dir());
    let reply = refused(&forge, &nobody, &line(&head));
    assert_eq!(reply["refusal_code"], "identity_unresolved");
}

#[test]
fn there_must_be_something_to_recover() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let head = tip(&main, "HEAD");
    let reply = refused(&forge, &main, &line(&head));
    assert_eq!(reply["refusal_code"], "no_durable_lock");
    let next = reply["exact_next_action"].as_str().unwrap();
    main.command("sh").args(["-c", next]).assert().success();
}

#[test]
fn a_copy_that_names_another_claimant_is_foreign() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    let sound = copy(&bound);
    let older = with(&sound, "work_lease.claimant", None);
    for record in [
        with(&sound, "work_lease.claimant.username", Some(json!("bob"))),
        with(
            &sound,
            "work_lease.claimant.profile",
            Some(json!("SHA256:x")),
        ),
        with(
            &older,
            "claimant",
            Some(json!({ "username": "bob", "profile": "x" })),
        ),
    ] {
        set_copy(&bound, &record);
        let reply = refused(&forge, &bound, &line(&head));
        assert_eq!(reply["refusal_code"], "foreign_claimant");
    }
    // The server's own record, run out, of the same name with another key.
    set_copy(&bound, &sound);
    fs::remove_file(copy_file(&bound)).unwrap();
    forge.ledger().rewind(3 * 3_600);
    let laptop = forge.second_key("laptop", "alice").at(bound.dir());
    let reply = refused(&forge, &laptop, &line(&head));
    assert_eq!(reply["refusal_code"], "foreign_claimant");
}

#[test]
fn somebody_elses_healthy_claim_is_left_alone() {
    let forge = Forge::new();
    let (_, theirs) = started(&forge, "bob");
    let main = fetched(&forge, "alice");
    let reply = refused(&forge, &main, &line(&tip(&main, "HEAD")));
    assert_eq!(reply["refusal_code"], "healthy_foreign_lock");
    theirs.ok("git claim check");
}

#[test]
fn what_is_sound_or_lives_elsewhere_needs_no_recovery() {
    let forge = Forge::new();
    let (main, bound, head) = worked(&forge);
    let reply = refused(&forge, &bound, &line(&head));
    assert_eq!(reply["refusal_code"], "already_canonical");
    // Another clone, while the first one's worktree is there.
    let other = fetched(&forge, "alice");
    other
        .git(["fetch", "-q", bound.dir().to_str().unwrap(), "HEAD:copy"])
        .assert()
        .success();
    let name = branch(issue::CRASH);
    other
        .git(["switch", "-q", "-c", &name, "copy"])
        .assert()
        .success();
    let reply = refused(&forge, &other, &line(&head));
    assert_eq!(reply["refusal_code"], "already_canonical");
    let next = reply["exact_next_action"].as_str().unwrap();
    assert!(next.contains("--take-over"), "{next}");
    // Moved by git, it is not gone.
    let moved = bound.dir().with_file_name("moved");
    main.git(["worktree", "move"])
        .args([bound.dir(), &moved])
        .assert()
        .success();
    let reply = refused(&forge, &main, &line(&head));
    assert_eq!(reply["refusal_code"], "already_canonical");
    // Taken over elsewhere: live, and its worktree not known to be gone.
    other.ok("git claim ae1c051b --take-over --reason test");
    let reply = refused(&forge, &main.at(moved), &line(&head));
    assert_eq!(reply["refusal_code"], "already_canonical");
}

#[test]
fn a_record_of_another_binding_is_refused() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    let sound = copy(&bound);
    for (path, value) in [
        ("branch_name", "claim/43"),
        ("repo", "other"),
        ("org", "other"),
        ("issue_number", "43"),
    ] {
        set_copy(&bound, &with(&sound, path, Some(json!(value))));
        let reply = refused(&forge, &bound, &line(&head));
        assert_eq!(reply["refusal_code"], "binding_mismatch", "{path}");
    }
}

#[test]
fn the_worktree_must_be_there_registered_and_on_the_branch() {
    let forge = Forge::new();
    let (main, bound, head) = worked(&forge);
    fs::remove_file(copy_file(&bound)).unwrap();
    bound.git(["switch", "-q", "--detach"]).assert().success();
    let at = format!("{} --worktree {}", line(&head), bound.dir().display());
    let reply = refused(&forge, &bound, &at);
    assert_eq!(reply["refusal_code"], "worktree_invalid");
    let next = reply["exact_next_action"].as_str().unwrap();
    bound.command("sh").args(["-c", next]).assert().success();
    // A folder that is no worktree of this repository. While the claim lives
    // in the worktree that there is, nothing needs to be recovered elsewhere.
    forge.ledger().rewind(3 * 3_600);
    let plain = main.person().home().join("plain");
    fs::create_dir(&plain).unwrap();
    let at = format!("{} --worktree {}", line(&head), plain.display());
    let reply = refused(&forge, &bound, &at);
    assert_eq!(reply["refusal_code"], "worktree_invalid");
    // Moved by hand.
    let by_hand = bound.dir().with_file_name("by-hand");
    fs::rename(bound.dir(), &by_hand).unwrap();
    let reply = refused(&forge, &main.at(by_hand), &line(&head));
    assert_eq!(reply["refusal_code"], "worktree_invalid");
}

#[test]
fn the_branch_must_be_where_it_is_expected() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    fs::remove_file(copy_file(&bound)).unwrap();
    let later = commit(&bound, "later");
    let reply = refused(&forge, &bound, &line(&head));
    assert_eq!(reply["refusal_code"], "head_mismatch");
    let next = reply["exact_next_action"].as_str().unwrap();
    assert!(next.contains(&later), "{next}");
    bound.command("sh").args(["-c", next]).assert().success();
    assert_eq!(tip(&bound, "HEAD"), later);
}

#[test]
fn a_dirty_worktree_is_no_obstacle_and_stays_dirty() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    fs::write(bound.dir().join("work"), "changed").unwrap();
    fs::write(bound.dir().join("new"), "new").unwrap();
    bound.git(["add", "new"]).assert().success();
    let status = git(bound.dir(), &["status", "--porcelain"]);
    forge.ledger().rewind(3 * 3_600);
    recovered(&forge, &bound, &line(&head));
    assert_eq!(git(bound.dir(), &["status", "--porcelain"]), status);
}

#[test]
fn of_two_that_recover_at_once_one_wins() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    // The same branch in another clone of the same person's.
    let other = fetched(&forge, "alice");
    other
        .git(["fetch", "-q", bound.dir().to_str().unwrap(), "HEAD:copy"])
        .assert()
        .success();
    let name = branch(issue::CRASH);
    other
        .git(["switch", "-q", "-c", &name, "copy"])
        .assert()
        .success();
    for pair in [[&bound, &bound], [&bound, &other]] {
        for _ in 0..5 {
            forge.ledger().rewind(3 * 3_600);
            let outputs: Vec<Output> = std::thread::scope(|scope| {
                let calls: Vec<_> = pair
                    .iter()
                    .map(|client| {
                        scope.spawn(|| {
                            let mut command = client.command("sh");
                            command.args(["-c", &format!("{} --json", line(&head))]);
                            command.output().unwrap()
                        })
                    })
                    .collect();
                calls.into_iter().map(|call| call.join().unwrap()).collect()
            });
            let won = outputs.iter().filter(|output| output.status.success());
            assert_eq!(won.count(), 1, "{outputs:?}");
            let lost = outputs.iter().find(|output| !output.status.success());
            let reply: Value = serde_json::from_slice(&lost.unwrap().stdout).unwrap();
            // The other holds it, or has held it since this one's record.
            let code = reply["refusal_code"].as_str().unwrap();
            assert!(
                ["already_canonical", "no_durable_lock"].contains(&code),
                "{reply}"
            );
        }
    }
    assert_eq!(tip(&bound, "HEAD"), head);
    assert!(git_dir(&bound).exists());
}

#[test]
fn what_another_session_has_held_since_is_not_recovered() {
    let forge = Forge::new();
    let (main, bound, head) = worked(&forge);
    let sound = copy(&bound);
    // Whatever is left of the record here.
    let damages: [&dyn Fn(); 3] = [
        &|| set_copy(&bound, &sound),
        &|| fs::write(copy_file(&bound), "{").unwrap(),
        &|| fs::remove_file(git_dir(&bound).join("claim-session")).unwrap(),
    ];
    forge.ledger().rewind(3 * 3_600);
    main.ok("git claim ae1c051b --ttl 1h");
    let reply = refused(&forge, &bound, &line(&head));
    assert_eq!(reply["refusal_code"], "already_canonical");
    forge.ledger().rewind(3 * 3_600);
    for damage in damages {
        damage();
        let reply = refused(&forge, &bound, &line(&head));
        assert_eq!(reply["refusal_code"], "no_durable_lock");
        assert_eq!(
            reply["message"],
            "recovery is refused: another session has held the issue since"
        );
    }
    // It is free: the same worktree goes on with it, and the commits are kept.
    get_through(&bound, "git claim check");
    assert_eq!(copy(&bound)["work_lease"]["token"], 3);
    assert_eq!(tip(&bound, "HEAD"), head);
}

#[test]
fn a_branch_that_another_claim_is_bound_to_by_now_is_left_to_it() {
    let forge = Forge::new();
    let (_, bound, head) = worked(&forge);
    forge.ledger().rewind(3 * 3_600);
    let clone = fetched(&forge, "alice");
    let name = branch(issue::CRASH);
    clone.ok(&format!("git claim start 862b --branch {name}"));
    let reply = refused(&forge, &bound, &line(&head));
    assert_eq!(reply["refusal_code"], "binding_mismatch");
    lead_out(&bound, &line(&head));
    clone
        .at(sibling(&clone, issue::RETITLED))
        .ok("git claim check");
}

/// A claim whose worktree is gone, and the line that builds it anew.
fn gone(forge: &Forge) -> (Client, Client, String) {
    let (main, bound, head) = worked(forge);
    fs::remove_dir_all(bound.dir()).unwrap();
    let line = format!("{} --worktree {}", line(&head), bound.dir().display());
    (main, bound, line)
}

#[test]
fn a_worktree_that_cannot_be_built_is_undone_and_has_a_way_out() {
    let forge = Forge::new();
    let (main, bound, line) = gone(&forge);
    let head = tip(&main, &branch(issue::CRASH));
    // A hook that fails, and a place where nothing can be made.
    let hook = git_dir(&main).join("hooks/post-checkout");
    write_hook(&hook, "echo no >&2; exit 1");
    let elsewhere = line.replace(bound.dir().to_str().unwrap(), "/proc/x");
    for (line, told) in [
        (&line, "the hook post-checkout failed: no"),
        (&elsewhere, "/proc/x cannot be made: "),
    ] {
        let before = forge.ledger().dump();
        let said = stderr(&main.run(line).code(1));
        assert!(said.contains(told), "{said}");
        assert!(!bound.dir().exists());
        assert_eq!(tip(&main, &branch(issue::CRASH)), head);
        assert_eq!(before, forge.ledger().dump());
        let (_, next) = said.trim_end().split_once("hint: next: ").unwrap();
        if told.starts_with("/proc") {
            fs::remove_file(&hook).unwrap();
        }
        main.command("sh").args(["-c", next]).assert().success();
        bound.ok("git claim check");
        assert_eq!(tip(&bound, "HEAD"), head);
        fs::remove_dir_all(bound.dir()).unwrap();
    }
}

#[test]
fn ctrl_c_undoes_what_recovery_has_made() {
    let forge = Forge::new();
    let (main, bound, line) = gone(&forge);
    let head = tip(&main, &branch(issue::CRASH));
    fs::create_dir(main.person().home().join("test")).unwrap();
    // While git builds the worktree.
    let hook = git_dir(&main).join("hooks/post-checkout");
    let before = forge.ledger().dump();
    write_hook(&hook, "rm \"$0\"; echo >\"$HOME/test/reached\"; sleep 1000");
    let failed = interrupted(&main, ssh_command(&main, "", &line));
    assert_eq!(failed["exit"], 130);
    assert!(!bound.dir().exists());
    assert_eq!(before, forge.ledger().dump());
    // While the server's answer is on the way: what was done stays, and the
    // next try goes on with it.
    for answered in [false, true] {
        let ask = if answered {
            "ssh \"$@\" >/dev/null; "
        } else {
            ""
        };
        let script = format!("[ $n = 4 ] && {{ {ask}echo >\"$HOME/test/reached\"; sleep 1000; }}");
        interrupted(&main, ssh_command(&main, &script, &line));
        main.ok(&line);
        bound.ok("git claim check");
        assert_eq!(tip(&bound, "HEAD"), head);
        fs::remove_dir_all(bound.dir()).unwrap();
    }
}

#[test]
fn killed_at_any_step_recovery_gets_through_when_typed_again() {
    let forge = Forge::new();
    let (main, bound, build) = gone(&forge);
    let head = tip(&main, &branch(issue::CRASH));
    // Its last connections: the recovery, and what is read back.
    for (request, answered) in [(4, false), (4, true), (5, false)] {
        let ask = if answered {
            "ssh \"$@\" >/dev/null"
        } else {
            ":"
        };
        let script = format!("[ $n = {request} ] && {{ {ask}; {KILL}; }}");
        let output = with_ssh(&main, &script, &build);
        assert_eq!(output.status.code(), None, "{output:?}");
        main.person().make_program("counted-ssh", "exec ssh \"$@\"");
        get_through(&main, START);
        bound.ok("git claim check");
        assert_eq!(tip(&bound, "HEAD"), head);
        fs::remove_dir_all(bound.dir()).unwrap();
    }
    // While git builds the worktree.
    let hook = git_dir(&main).join("hooks/post-checkout");
    write_hook(&hook, &format!("rm \"$0\"; {KILL}"));
    let output = with_ssh(&main, "", &build);
    assert_eq!(output.status.code(), None, "{output:?}");
    get_through(&main, START);
    bound.ok("git claim check");
    // And where the worktree is there, and the claim has run out.
    for (request, answered) in [(6, false), (6, true)] {
        forge.ledger().rewind(3 * 3_600);
        let ask = if answered {
            "ssh \"$@\" >/dev/null"
        } else {
            ":"
        };
        let script = format!("[ $n = {request} ] && {{ {ask}; {KILL}; }}");
        let output = with_ssh(&bound, &script, &line(&head));
        assert_eq!(output.status.code(), None, "{output:?}");
        get_through(&bound, "git claim check");
        assert_eq!(tip(&bound, "HEAD"), head);
    }
}

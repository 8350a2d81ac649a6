//! What a refusal names leads out, whatever has happened before, and ends
//! nothing that somebody could still be at work on.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::bound::{
    branch, commit, copy, copy_file, fetched, get_through, git_dir, lead_out, reason, set_copy,
    sibling, started, tip, with, write_hook,
};
use crate::support::broken::KILL;
use crate::support::client::{Client, stderr};
use crate::support::forge::{Forge, git};
use crate::support::issue;

const START: &str = "git claim start ae1c051b --ttl 2h";

/// The token that the server has for the issue now.
fn token(client: &Client) -> Value {
    client.json("git claims", 0)["leases"][0]["token"].clone()
}

/// The one worktree of the claim on [`issue::CRASH`], wherever it is by now.
fn bound(main: &Client) -> Client {
    let list = git(main.dir(), &["worktree", "list", "--porcelain"]);
    let paths = list
        .lines()
        .filter_map(|line| line.strip_prefix("worktree "));
    let bound: Vec<Client> = paths
        .map(|path| main.at(path))
        .filter(|client| client.dir().exists() && copy_file(client).exists())
        .collect();
    assert_eq!(bound.len(), 1, "{list}");
    bound[0].clone()
}

#[test]
fn killed_at_any_step_start_gets_through_when_typed_again() {
    let forge = Forge::new();
    let mut typed = Vec::new();
    // The acquire is the third connection, what is read back the fourth.
    for (request, answered) in [(3, false), (3, true), (4, false), (5, true)] {
        let main = fetched(&forge, "alice");
        let ask = if answered {
            "ssh \"$@\" >/dev/null"
        } else {
            ":"
        };
        main.person().make_program(
            "killing-ssh",
            &format!(
                "n=$(($(cat \"$HOME/count\" 2>/dev/null || echo 0) + 1))\n\
                 echo $n >\"$HOME/count\"\n\
                 [ $n = {request} ] && {{ {ask}; {KILL}; }}\n\
                 exec ssh \"$@\""
            ),
        );
        let mut start = main.command("sh");
        start
            .args(["-c", START])
            .env("GIT_SSH_COMMAND", "killing-ssh")
            .env("GIT_SSH_VARIANT", "ssh");
        start.assert().failure();
        fs::remove_file(main.person().home().join("count")).unwrap();
        typed.extend(get_through(&main, START));
        bound(&main).ok("git claim check");
        bound(&main).ok("git unclaim");
    }
    // Between the branch and the worktree, and while git makes the worktree.
    for (hook, script) in [
        (
            "reference-transaction",
            format!("[ $1 = committed ] && {{ {KILL}; }}"),
        ),
        ("post-checkout", KILL.to_owned()),
    ] {
        let main = fetched(&forge, "alice");
        let hook = git_dir(&main).join("hooks").join(hook);
        write_hook(&hook, &script);
        main.run(START).failure();
        fs::remove_file(hook).unwrap();
        typed.extend(get_through(&main, START));
        bound(&main).ok("git claim check");
        bound(&main).ok("git unclaim");
    }
    assert!(
        typed.iter().all(|line| !line.contains("take-over")),
        "{typed:#?}"
    );
}

#[test]
fn a_worktree_that_git_was_killed_in_is_never_taken_for_whole() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    // git checks the file out through a filter, which kills it half-way.
    main.person().make_program("killer", KILL);
    fs::write(main.dir().join(".gitattributes"), "big filter=killer\n").unwrap();
    fs::write(main.dir().join("big"), "x").unwrap();
    git(main.dir(), &["config", "filter.killer.clean", "cat"]);
    main.git(["add", "."]).assert().success();
    main.git(["commit", "-qm", "big"]).assert().success();
    git(main.dir(), &["config", "filter.killer.smudge", "killer"]);
    let line = format!("{START} --base main");
    main.run(&line).failure();
    assert!(sibling(&main, issue::CRASH).join(".git").exists());
    git(main.dir(), &["config", "--unset", "filter.killer.smudge"]);
    let typed = get_through(&main, &line);
    assert!(
        typed
            .iter()
            .any(|line| line.starts_with("git worktree remove --force --force ")),
        "{typed:#?}"
    );
    let bound = bound(&main);
    bound
        .git(["status", "--short"])
        .assert()
        .success()
        .stdout("");
    bound.ok("git claim check");
}

/// A start that has got as far as git's post-checkout, and waits there until
/// [`go_on`].
fn start_that_waits(main: &Client) -> Child {
    let home = main.person().home().to_owned();
    write_hook(
        &git_dir(main).join("hooks/post-checkout"),
        &format!(
            "echo >{0}/waits; while [ ! -e {0}/go ]; do sleep 0.01; done",
            home.display()
        ),
    );
    let child = main
        .person()
        .std_command("git-claim", main.dir())
        .args(["start", "ae1c051b", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !home.join("waits").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

fn go_on(main: &Client, child: Child) {
    fs::write(main.person().home().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_start_that_is_under_way_is_left_alone() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let clone = fetched(&forge, "alice");
    let child = start_that_waits(&main);
    let path = sibling(&main, issue::CRASH);
    for client in [&main, &clone] {
        for line in [
            START.to_owned(),
            "git claim inspect ae1c051b".to_owned(),
            format!("{START} --branch x --worktree {}", path.display()),
        ] {
            let typed = lead_out(client, &line);
            assert!(typed.last().unwrap().contains(" inspect "), "{typed:#?}");
            assert_eq!(token(&main), 1, "{typed:#?}");
        }
    }
    // Nor may anybody else bind the folder, or recover into it.
    let line = format!(
        "git claim start 862b --branch {} --worktree {}",
        branch(issue::CRASH),
        path.display()
    );
    let refused = main.json(&line, 1);
    assert_ne!(reason(&refused), "");
    go_on(&main, child);
    main.at(path).ok("git claim check");
}

#[test]
fn whatever_became_of_the_worktree_start_gets_through() {
    let forge = Forge::new();
    type Damage = fn(&Client, &Client);
    // Also where the claim was released before.
    let damages: [(bool, Damage); 8] = [
        // Removed by hand.
        (true, |_, bound| {
            fs::remove_dir_all(bound.dir()).unwrap();
        }),
        // An empty folder in its place; something else in its place.
        (false, |_, bound| {
            fs::remove_dir_all(bound.dir()).unwrap();
            fs::create_dir(bound.dir()).unwrap();
        }),
        (true, |_, bound| {
            fs::remove_dir_all(bound.dir()).unwrap();
            fs::create_dir(bound.dir()).unwrap();
            fs::write(bound.dir().join("theirs"), "x").unwrap();
        }),
        (false, |_, bound| {
            fs::remove_dir_all(bound.dir()).unwrap();
            fs::write(bound.dir(), "x").unwrap();
        }),
        // Locked, and then removed.
        (true, |main, bound| {
            git(
                main.dir(),
                &["worktree", "lock", bound.dir().to_str().unwrap()],
            );
            fs::remove_dir_all(bound.dir()).unwrap();
        }),
        // Removed and forgotten, with its branch.
        (false, |main, bound| {
            fs::remove_dir_all(bound.dir()).unwrap();
            git(main.dir(), &["worktree", "prune"]);
            git(main.dir(), &["branch", "-qD", &branch(issue::CRASH)]);
        }),
        // Its records; and its session too.
        (false, |_, bound| {
            fs::remove_dir_all(git_dir(bound).join("claims")).unwrap();
        }),
        (false, |_, bound| {
            fs::remove_dir_all(git_dir(bound).join("claims")).unwrap();
            fs::remove_file(git_dir(bound).join("claim-session")).unwrap();
        }),
    ];
    let cases = damages.iter().flat_map(|(also, damage)| {
        [(false, damage), (true, damage)]
            .into_iter()
            .take(1 + usize::from(*also))
    });
    for (n, (is_released, damage)) in cases.enumerate() {
        let (main, bound_before) = started(&forge, "alice");
        let head = commit(&bound_before, "work");
        if is_released {
            bound_before.ok("git unclaim");
        }
        damage(&main, &bound_before);
        let name = branch(issue::CRASH);
        let kept = git(main.dir(), &["branch", "--list", &name]);
        let typed = get_through(&main, START);
        let bound = bound(&main);
        bound.ok("git claim check");
        if !kept.is_empty() {
            assert_eq!(tip(&bound, "HEAD"), head, "{n}: {typed:#?}");
        }
        bound.ok("git unclaim");
    }
}

#[test]
fn what_may_be_out_of_sight_is_not_taken_for_gone() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let away = main.person().home().join("away");
    git(
        main.dir(),
        &["worktree", "lock", bound.dir().to_str().unwrap()],
    );
    // Like a disk that is not there now.
    fs::rename(bound.dir(), &away).unwrap();
    let line = format!(
        "git claim recover {} --expected-head {} --worktree {}",
        issue::CRASH,
        tip(&main, &branch(issue::CRASH)),
        bound.dir().display()
    );
    for line in [START, line.as_str()] {
        let refused = main.json(line, 1);
        let next = refused["exact_next_action"].as_str().unwrap();
        assert!(next.starts_with("git worktree unlock "), "{next}");
    }
    assert_eq!(token(&main), 1);
    fs::rename(&away, bound.dir()).unwrap();
    bound.ok("git claim check");
}

#[test]
fn a_clone_that_was_copied_takes_nothing_from_the_first() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let copied = main.at(main.dir().with_file_name("copied"));
    main.command("cp")
        .arg("-r")
        .args([main.dir(), copied.dir()])
        .assert()
        .success();
    for line in [
        START.to_owned(),
        format!("git claim start 862b --branch {}", branch(issue::CRASH)),
    ] {
        lead_out(&copied, &line);
        assert_eq!(token(&main), 1);
        bound.ok("git claim check");
    }
    // A copy of the worktree alone acts as the worktree: it must not do so from
    // there, and git must not be told that the worktree has moved.
    let twin = main.at(bound.dir().with_file_name("twin"));
    main.command("cp")
        .arg("-r")
        .args([bound.dir(), twin.dir()])
        .assert()
        .success();
    for line in ["git claim check", "git claim start ae1c051b --here"] {
        lead_out(&twin, line);
        bound.ok("git claim check");
        twin.run("git claim check").code(1);
    }
}

#[test]
fn check_leads_back_to_the_branch() {
    let forge = Forge::new();
    type Damage = fn(&Client, &Client);
    let name = branch(issue::CRASH);
    let damages: [(&str, Damage); 4] = [
        ("detached", |_, bound| {
            git(bound.dir(), &["switch", "-q", "--detach"]);
        }),
        ("detached, and the branch is elsewhere", |main, bound| {
            git(bound.dir(), &["switch", "-q", "--detach"]);
            git(main.dir(), &["switch", "-q", &branch(issue::CRASH)]);
        }),
        (
            "detached, and the branch is in a worktree that is gone",
            |main, bound| {
                git(bound.dir(), &["switch", "-q", "--detach"]);
                let other = main.dir().with_file_name("other");
                git(
                    main.dir(),
                    &[
                        "worktree",
                        "add",
                        "-q",
                        other.to_str().unwrap(),
                        &branch(issue::CRASH),
                    ],
                );
                fs::remove_dir_all(other).unwrap();
            },
        ),
        ("the branch is removed", |_, bound| {
            git(bound.dir(), &["switch", "-q", "--detach"]);
            git(bound.dir(), &["branch", "-qD", &branch(issue::CRASH)]);
        }),
    ];
    for (what, damage) in damages {
        let (main, bound) = started(&forge, "alice");
        let head = commit(&bound, "work");
        damage(&main, &bound);
        bound.run("git claim check").code(1);
        get_through(&bound, "git claim check");
        assert_eq!(tip(&bound, &name), head, "{what}");
        assert_eq!(git(bound.dir(), &["branch", "--show-current"]), name);
        bound.ok("git unclaim");
    }
    // In the middle of a rebase HEAD is nowhere: git says what helps.
    let (_, bound) = started(&forge, "alice");
    commit(&bound, "file");
    bound
        .git(["switch", "-qc", "other", "HEAD~1"])
        .assert()
        .success();
    fs::write(bound.dir().join("file"), "other").unwrap();
    bound.git(["add", "file"]).assert().success();
    bound.git(["commit", "-qm", "other"]).assert().success();
    bound.git(["switch", "-q", "-"]).assert().success();
    bound.git(["rebase", "-q", "other"]).assert().failure();
    for line in ["git claim check", "git claim start ae1c051b --here"] {
        assert_eq!(lead_out(&bound, line), [line, "git status"]);
    }
    bound.git(["rebase", "--abort"]).assert().success();
    bound.ok("git claim check");
    // HEAD names the branch, which somebody has removed.
    git(
        bound.dir(),
        &["update-ref", "-d", &format!("refs/heads/{name}")],
    );
    assert_eq!(
        bound.json("git claim check", 1)["reason_code"],
        "wrong_branch"
    );
}

#[test]
fn who_holds_it_matters_more_than_what_is_damaged_here() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    forge.ledger().rewind(3 * 3_600);
    let bob = forge.client("bob");
    bob.ok("git claim ae1c051b --ttl 1h");
    let damages: [&dyn Fn(); 3] = [
        &|| fs::write(copy_file(&bound), "{").unwrap(),
        &|| set_copy(&bound, &with(&sound, "work_lease.token", None)),
        &|| fs::remove_file(copy_file(&bound)).unwrap(),
    ];
    for damage in damages {
        damage();
        let line = format!("git claim inspect {}", issue::CRASH);
        let shown = bound.json(&line, 0);
        assert_eq!(shown["reason_code"], "held");
        let typed = lead_out(&bound, "git claim check");
        assert!(
            typed.iter().all(|line| !line.contains(" recover ")),
            "{typed:#?}"
        );
    }
    bob.ok("git claim renew ae1c051b");
}

#[test]
fn a_folder_in_place_of_the_record_is_moved_aside() {
    let forge = Forge::new();
    let (_, bound) = started(&forge, "alice");
    let sound = copy(&bound);
    let file = copy_file(&bound);
    for line in ["git claim check", "git claim start ae1c051b --here"] {
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        fs::write(file.join("theirs"), "x").unwrap();
        let shown = bound.json("git claim inspect", 0);
        assert_eq!(shown["reason_code"], "incomplete_lock_contract");
        get_through(&bound, line);
        bound.ok("git claim check");
        assert_eq!(
            copy(&bound)["work_lease"]["lease_id"],
            sound["work_lease"]["lease_id"]
        );
    }
    let kept: Vec<PathBuf> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path().join("theirs"))
        .filter(|path| path.exists())
        .collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
}

#[test]
fn a_lost_record_is_found_by_the_branch_or_by_the_token() {
    let forge = Forge::new();
    let main = fetched(&forge, "alice");
    let done = main.json("git claim start ae1c051b --branch fix", 0);
    let bound = main.at(done["worktree"].as_str().unwrap());
    fs::remove_file(copy_file(&bound)).unwrap();
    let typed = lead_out(&bound, "git claim check");
    assert!(typed[1].starts_with("git claim recover "), "{typed:#?}");
    bound.ok("git claim check");
}

/// A claim of one's own whose worktree nobody can go to any more.
#[test]
fn a_session_that_is_gone_can_be_spoken_for() {
    let forge = Forge::new();
    let (main, bound) = started(&forge, "alice");
    let plain = forge.client("alice");
    plain.ok("git claim 537daeba");
    // Where it is there to be seen, somebody may be at work.
    let words = stderr(&main.run("git claim ae1c051b").code(4));
    assert!(!words.contains("--session"), "{words}");
    for gone in [&bound, &plain] {
        fs::remove_dir_all(gone.dir()).unwrap();
    }
    for id in ["ae1c051b", "537daeba"] {
        let line = format!("git claim {id}");
        let words = stderr(&main.run(&line).code(4));
        let mut typed = words.split('`');
        let typed = typed.find(|typed| typed.contains(" --session "));
        main.ok(typed.unwrap_or_else(|| panic!("{words}")));
        main.ok(&line);
    }
}

//! `settle`: which claims a push ends, and which it does not.

use std::path::{Path, PathBuf};
use std::process::Command;

use assert_fs::TempDir;
use git_claim_api::push::{Push, Pusher};
use serde_json::Value;

use crate::support::git_issue_repository;

use super::Forge;

const OPEN: &str = "ae1c051b-e411-4fe3-9f28-157f2d8dccc0";
const ZERO: &str = "0000000000000000000000000000000000000000";

/// A forge whose `app.git` has the six issues, with a look into the repository.
struct Site {
    forge: Forge,
    git_dir: PathBuf,
}

fn site() -> Site {
    let dir = TempDir::new().unwrap();
    let git_dir = git_issue_repository(dir.path());
    let repos = vec![("app.git".to_owned(), Some(git_dir.clone()))];
    let site = Site {
        forge: Forge::over(dir, repos),
        git_dir,
    };
    site.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    site
}

fn git(git_dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .arg("--git-dir")
        .arg(git_dir)
        .args(args)
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

impl Site {
    fn git(&self, args: &[&str]) -> String {
        git(&self.git_dir, args)
    }

    fn tip(&self, name: &str) -> String {
        self.git(&["rev-parse", name])
    }

    /// A commit on top of `parents`.
    fn commit(&self, parents: &[&str], message: &str) -> String {
        let tree = self.tip("refs/heads/main^{tree}");
        let mut args = vec!["commit-tree", "-m", message];
        for parent in parents {
            args.extend(["-p", parent]);
        }
        args.push(&tree);
        self.git(&args)
    }

    /// Moves refs as a push by bob does, and asks what it has ended.
    fn push(&self, moves: &[(&str, &str)]) -> Vec<Value> {
        let mut push = Push {
            pusher: Some(Pusher {
                name: "bob".to_owned(),
                profile: "SHA256:bob".to_owned(),
            }),
            ..Push::default()
        };
        for (name, new) in moves {
            let old = self.git(&["for-each-ref", "--format=%(objectname)", name]);
            let old = if old.is_empty() { ZERO } else { &old };
            push.updates
                .push(format!("{old} {new} {name}").parse().unwrap());
            if *new == ZERO {
                self.git(&["update-ref", "-d", name]);
            } else {
                self.git(&["update-ref", name, new]);
            }
        }
        let said = self.forge.hook("settle", "app.git", &push);
        assert_eq!(said.exit, 0, "{said:?}");
        said.json()["ended"].as_array().unwrap().clone()
    }

    fn ask(&self, words: &str) -> Value {
        let said = self.forge.ask("ann", words);
        assert_eq!(said.exit, 0, "{words}: {said:?}");
        said.json()
    }

    /// Binds [`OPEN`] to claim/1, as ann.
    fn bind(&self) {
        self.ask(&format!(
            "acquire app.git {OPEN} --session s --branch claim/1 --worktree /w --machine m"
        ));
    }

    fn is_held(&self) -> bool {
        self.ask(&format!("show app.git {OPEN}"))["state"] == "live"
    }
}

#[test]
fn a_claim_ends_when_a_push_closes_its_issue() {
    let site = site();
    site.ask(&format!("acquire app.git {OPEN} --session s"));
    site.ask("acquire app.git 862b6f3d --session s");
    let name = format!("refs/issues/{OPEN}");
    let comment = site.commit(&[&site.tip(&name)], "A comment");
    assert_eq!(site.push(&[(&name, &comment)]), [] as [Value; 0]);
    let closed = site.commit(&[&comment], "Close issue\n\nState: closed");
    let ended = site.push(&[(&name, &closed)]);
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (&ended[0]["issue"], &ended[0]["how"]),
        (&OPEN.into(), &"closed".into())
    );
    assert!(!site.is_held());
    let log = site.ask(&format!("log app.git {OPEN}"));
    assert_eq!(log["tenures"][0]["how"], "closed");
    assert_eq!(log["tenures"][0]["by"], "bob");
    assert_eq!(log["tenures"][0]["why"], "the issue was closed");
    // The other one goes on.
    let leases = site.ask("list app.git");
    assert_eq!(leases["leases"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_closed_before_the_push_is_not_closed_by_it() {
    let site = site();
    site.ask(&format!("acquire app.git {OPEN} --session s"));
    let name = format!("refs/issues/{OPEN}");
    let closed = site.commit(&[&site.tip(&name)], "Close issue\n\nState: closed");
    site.git(&["update-ref", &name, &closed]);
    let comment = site.commit(&[&closed], "A comment");
    assert_eq!(site.push(&[(&name, &comment)]), [] as [Value; 0]);
    assert!(site.is_held());
}

#[test]
fn a_merge_of_the_bound_branch_ends_its_claim() {
    for how in [
        "merge commit",
        "fast-forward",
        "with the branch deleted",
        "after more on main",
    ] {
        let site = site();
        site.bind();
        let main = site.tip("refs/heads/main");
        let work = site.commit(&[&main], "Work");
        assert_eq!(
            site.push(&[("refs/heads/claim/1", &work)]).len(),
            0,
            "{how}"
        );
        let merge = match how {
            "merge commit" => site.commit(&[&main, &work], "Merge"),
            "after more on main" => {
                let more = site.commit(&[&main], "More");
                assert_eq!(site.push(&[("refs/heads/main", &more)]).len(), 0);
                site.commit(&[&more, &work], "Merge")
            }
            _ => work.clone(),
        };
        let mut moves = vec![("refs/heads/main", merge.as_str())];
        if how == "with the branch deleted" {
            moves.push(("refs/heads/claim/1", ZERO));
        }
        let ended = site.push(&moves);
        assert_eq!(ended.len(), 1, "{how}");
        assert_eq!(ended[0]["how"], "merged");
        assert_eq!(ended[0]["why"], "branch 'claim/1' was merged into 'main'");
        assert!(!site.is_held());
        let events = site.forge.events();
        assert_eq!(events.last().unwrap()["event"], "released");
        assert_eq!(events.last().unwrap()["how"], "merged");
    }
}

#[test]
fn a_branch_pushed_before_its_first_commit_is_not_merged() {
    let site = site();
    site.bind();
    let main = site.tip("refs/heads/main");
    assert_eq!(site.push(&[("refs/heads/claim/1", &main)]).len(), 0);
    let more = site.commit(&[&main], "Somebody else's");
    assert_eq!(site.push(&[("refs/heads/main", &more)]).len(), 0);
    // Not even where main is rewound and comes back.
    let other = site.commit(&[], "Another beginning");
    assert_eq!(site.push(&[("refs/heads/main", &other)]).len(), 0);
    assert_eq!(site.push(&[("refs/heads/main", &main)]).len(), 0);
    assert!(site.is_held());
}

#[test]
fn work_that_is_not_all_merged_keeps_its_claim() {
    let site = site();
    site.bind();
    let main = site.tip("refs/heads/main");
    let work = site.commit(&[&main], "Work");
    let more = site.commit(&[&work], "More work");
    site.push(&[("refs/heads/claim/1", &more)]);
    assert_eq!(site.push(&[("refs/heads/main", &work)]).len(), 0);
    // Another branch is no default branch.
    assert_eq!(site.push(&[("refs/heads/release", &more)]).len(), 0);
    assert!(site.is_held());
    assert_eq!(site.push(&[("refs/heads/main", &more)]).len(), 1);
}

#[test]
fn a_later_tenure_is_not_touched() {
    let site = site();
    site.bind();
    let main = site.tip("refs/heads/main");
    let work = site.commit(&[&main], "Work");
    site.push(&[("refs/heads/claim/1", &work)]);
    site.ask(&format!("release app.git {OPEN} --session s"));
    // Bound again where the branch stands now, it has nothing to merge yet.
    site.bind();
    assert_eq!(site.push(&[("refs/heads/main", &work)]).len(), 0);
    assert!(site.is_held());
}

#[test]
fn trailers_count_where_the_repository_says_so() {
    for (setting, trailer, ends) in [
        ("true", format!("Closes: {OPEN}"), true),
        ("true", "Fixes: #ae1c051".to_owned(), true),
        ("on", "fixes-issue: ae1c051".to_owned(), true),
        ("true", "Closes: 862b6f3d".to_owned(), false),
        ("true", "See: ae1c051".to_owned(), false),
        ("false", "Closes: ae1c051".to_owned(), false),
        ("", "Closes: ae1c051".to_owned(), false),
    ] {
        let site = site();
        if !setting.is_empty() {
            site.git(&["config", "claim.closeTrailers", setting]);
        }
        site.ask(&format!("acquire app.git {OPEN} --session s"));
        let main = site.tip("refs/heads/main");
        let squashed = site.commit(&[&main], &format!("Squashed\n\n{trailer}"));
        // Not before it is on the default branch.
        assert_eq!(site.push(&[("refs/heads/x", &squashed)]).len(), 0);
        let ended = site.push(&[("refs/heads/main", &squashed)]);
        assert_eq!(ended.len(), usize::from(ends), "{setting} {trailer}");
        assert_eq!(site.is_held(), !ends);
        if ends {
            assert_eq!(ended[0]["how"], "closed");
            let why = format!("commit {squashed} on 'main' closes it");
            assert_eq!(ended[0]["why"], why.as_str());
        }
    }
}

#[test]
fn an_issue_of_beads_is_closed_by_the_push_that_closes_it() {
    let site = site();
    site.git(&["config", "claim.tracker", "beads"]);
    let main = site.tip("refs/heads/main");
    let commit = |parent: &str, status: &str| {
        let file = site.git_dir.join("line");
        let line = format!("{{\"id\":\"bd-1\",\"title\":\"x\",\"status\":\"{status}\"}}\n");
        std::fs::write(&file, line).unwrap();
        let blob = site.git(&["hash-object", "-w", file.to_str().unwrap()]);
        let index = site.git_dir.join("index-of-test");
        let staged = |args: &[&str]| {
            let mut command = Command::new("git");
            command.arg("--git-dir").arg(&site.git_dir).args(args);
            let done = command.env("GIT_INDEX_FILE", &index).output().unwrap();
            assert!(done.status.success(), "{args:?}: {done:?}");
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        let entry = format!("100644,{blob},.beads/issues.jsonl");
        staged(&["update-index", "--add", "--cacheinfo", &entry]);
        let tree = staged(&["write-tree"]);
        site.git(&["commit-tree", "-p", parent, "-m", "Issues", &tree])
    };
    let open = commit(&main, "open");
    site.push(&[("refs/heads/main", &open)]);
    site.ask("acquire app.git bd-1 --session s");
    let worked = commit(&open, "in_progress");
    assert_eq!(site.push(&[("refs/heads/main", &worked)]).len(), 0);
    let closed = commit(&worked, "closed");
    // Not on another branch.
    assert_eq!(site.push(&[("refs/heads/x", &closed)]).len(), 0);
    let ended = site.push(&[("refs/heads/main", &closed)]);
    assert_eq!((ended.len(), &ended[0]["how"]), (1, &"closed".into()));
}

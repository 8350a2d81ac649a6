//! The trackers other than git-issue, what a repository's tracker is, and data
//! that can't be read. All of it is made with git itself, in the formats that
//! git-bug and beads write.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use assert_fs::TempDir;
use git_claim_api::push::Push;
use serde_json::{Value, json};

use crate::support::{Said, git_issue_repository};

use super::Forge;

/// A forge over one bare repository, `app.git`.
struct Repo {
    forge: Forge,
    path: PathBuf,
}

impl Repo {
    fn new() -> Repo {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("app.git");
        let made = Command::new("git")
            .args(["init", "-q", "--bare", "-b", "main"])
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success());
        Repo::over(dir, path)
    }

    fn with_git_issue() -> Repo {
        let dir = TempDir::new().unwrap();
        let path = git_issue_repository(dir.path());
        Repo::over(dir, path)
    }

    fn over(dir: TempDir, path: PathBuf) -> Repo {
        let repos = vec![("app.git".to_owned(), Some(path.clone()))];
        Repo {
            forge: Forge::over(dir, repos),
            path,
        }
    }

    fn git(&self, args: &[&str]) -> String {
        self.git_reads(args, b"")
    }

    fn git_reads(&self, args: &[&str], input: &[u8]) -> String {
        self.git_at(args, input, 1_700_000_000)
    }

    /// git with `input`, at a time in seconds since the epoch.
    fn git_at(&self, args: &[&str], input: &[u8], time: i64) -> String {
        let mut child = Command::new("git")
            .arg("--git-dir")
            .arg(&self.path)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .env("GIT_COMMITTER_DATE", format!("@{time} +0000"))
            .env("GIT_AUTHOR_DATE", format!("@{time} +0000"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn blob(&self, content: &[u8]) -> String {
        self.git_reads(&["hash-object", "-w", "--stdin"], content)
    }

    /// A tree of these entries, as `mktree` reads them.
    fn tree(&self, entries: &[String]) -> String {
        self.git_reads(&["mktree"], entries.join("\n").as_bytes())
    }

    fn commit(&self, tree: &str, parents: &[&str], message: &str, time: i64) -> String {
        let mut args = vec!["commit-tree", tree, "-m", message];
        for parent in parents {
            args.extend(["-p", parent]);
        }
        self.git_at(&args, b"", time)
    }

    /// Puts `content` at `path`, which is two names, on the default branch.
    fn file(&self, path: &str, mode: &str, content: &[u8]) {
        let (folder, name) = path.split_once('/').unwrap();
        let blob = self.blob(content);
        let inner = self.tree(&[format!("{mode} blob {blob}\t{name}")]);
        let root = self.tree(&[format!("040000 tree {inner}\t{folder}")]);
        let commit = self.commit(&root, &[], "issues", 1_700_000_000);
        self.git(&["update-ref", "refs/heads/main", &commit]);
    }

    fn beads(&self, lines: &[Value]) {
        let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
        self.file(".beads/issues.jsonl", "100644", lines.join("\n").as_bytes());
    }

    /// One git-bug commit, with the clocks and the version in its tree.
    fn pack(&self, parents: &[&str], names: &[&str], ops: &Value) -> String {
        let empty = self.blob(b"");
        let ops = self.blob(
            json!({ "author": { "id": "a" }, "ops": ops })
                .to_string()
                .as_bytes(),
        );
        let mut entries = vec![format!("100644 blob {ops}\tops")];
        entries.extend(
            names
                .iter()
                .map(|name| format!("100644 blob {empty}\t{name}")),
        );
        self.commit(&self.tree(&entries), parents, "", 1_700_000_000)
    }

    /// A git-bug issue of one commit for each list of operations.
    fn bug(&self, id: &str, packs: &[Value]) {
        let mut tip: Option<String> = None;
        for (clock, ops) in packs.iter().enumerate() {
            let edit = format!("edit-clock-{}", clock + 1);
            let mut names = vec!["version-4", edit.as_str()];
            if tip.is_none() {
                names.push("create-clock-1");
            }
            let parents: Vec<_> = tip.iter().map(String::as_str).collect();
            tip = Some(self.pack(&parents, &names, ops));
        }
        self.git(&["update-ref", &format!("refs/bugs/{id}"), &tip.unwrap()]);
    }

    fn ask(&self, words: &str) -> Said {
        self.forge.ask("ann", words)
    }

    /// Acquires `issue`, which must be a refusal with `exit` that says `why`.
    fn refuses(&self, issue: &str, exit: u8, why: &str) {
        let said = self.ask(&format!("acquire app.git {issue} --session s"));
        assert_eq!(said.exit, exit, "{issue}: {said:?}");
        assert!(said.stderr.contains(why), "{issue}: {said:?}");
        assert_eq!(self.ask("list app.git").json()["leases"], json!([]));
    }

    /// What `next` hands out, one after the other, until nothing is left.
    fn order(&self) -> Vec<String> {
        let mut order = Vec::new();
        loop {
            let said = self.ask("next app.git --session s");
            match said.exit {
                0 => order.push(said.json()["issue"].as_str().unwrap().to_owned()),
                3 => return order,
                _ => panic!("{said:?}"),
            }
        }
    }

    /// Sets the tracker to a script for `sh`, with the question in `$1` and `$2`.
    fn script(&self, text: &str) {
        let script = self.forge.dir.path().join("tracker.sh");
        std::fs::write(&script, text).unwrap();
        let setting = format!("/bin/sh '{}'", script.display());
        self.git(&["config", "claim.trackerCommand", &setting]);
    }
}

/// A git-bug id that begins so.
fn bug_id(beginning: &str) -> String {
    format!("{beginning:0<64}")
}

fn create(title: &str) -> Value {
    json!({ "type": 1, "timestamp": 1_700_000_000, "title": title, "message": "", "files": null })
}

fn status(status: u64) -> Value {
    json!({ "type": 4, "timestamp": 1_700_000_000, "status": status })
}

#[test]
fn git_bug_says_what_its_operations_say() {
    let repo = Repo::new();
    let comment = json!({ "type": 3, "message": "status: 2" });
    let title = json!({ "type": 2, "title": "New", "was": "Old" });
    for (id, packs, expected) in [
        (
            "aaaa1",
            vec![json!([create("Plain"), comment])],
            Some("Plain"),
        ),
        (
            "aaaa2",
            vec![json!([create("Old")]), json!([title])],
            Some("New"),
        ),
        (
            "bbbb1",
            vec![json!([create("Closed")]), json!([status(2)])],
            None,
        ),
        ("bbbb2", vec![json!([create("Merged"), status(3)])], None),
        (
            "cccc1",
            vec![
                json!([create("Again")]),
                json!([status(2)]),
                json!([comment, status(1)]),
            ],
            Some("Again"),
        ),
    ] {
        repo.bug(&bug_id(id), &packs);
        let said = repo.ask(&format!("acquire app.git {id} --session s"));
        match expected {
            Some(title) => {
                assert_eq!(said.exit, 0, "{said:?}");
                assert_eq!(said.json()["title"], title);
                assert_eq!(said.json()["issue"], bug_id(id));
            }
            None => assert!(
                said.exit == 1 && said.stderr.contains("is closed"),
                "{said:?}"
            ),
        }
    }
    assert_eq!(repo.ask("whoami app.git").json()["tracker"], "git-bug");
    let said = repo.ask("acquire app.git bbbb --session s");
    assert_eq!(
        said.stderr,
        "error: 'bbbb' could be bbbb100, bbbb200; give more of the id\n"
    );
}

#[test]
fn git_bug_orders_what_was_written_at_once_by_its_clock_then_by_hash() {
    let repo = Repo::new();
    let root = repo.pack(
        &[],
        &["version-4", "create-clock-1", "edit-clock-1"],
        &json!([create("x")]),
    );
    let side = |clock: u64, status_: u64| {
        let edit = format!("edit-clock-{clock}");
        repo.pack(&[&root], &["version-4", &edit], &json!([status(status_)]))
    };
    let join = |left: &str, right: &str| {
        repo.pack(&[left, right], &["version-4", "edit-clock-9"], &Value::Null)
    };
    let id = bug_id("dddd");
    let say = |tip: String| {
        repo.git(&["update-ref", &format!("refs/bugs/{id}"), &tip]);
        let exit = repo.ask("acquire app.git dddd --session s").exit;
        repo.ask("release app.git dddd --session s");
        exit
    };
    let (closed_first, opened_later) = (side(2, 2), side(3, 1));
    assert_eq!(say(join(&closed_first, &opened_later)), 0);
    assert_eq!(say(join(&opened_later, &closed_first)), 0);
    let (opened_first, closed_later) = (side(2, 1), side(3, 2));
    assert_eq!(say(join(&opened_first, &closed_later)), 1);
    // The same clock: the blobs' hashes decide, not the order of the parents.
    let one_way = say(join(&closed_first, &opened_first));
    assert_eq!(say(join(&opened_first, &closed_first)), one_way);
}

#[test]
fn git_bug_that_cannot_be_read_is_neither_open_nor_unknown() {
    let repo = Repo::new();
    let ref_to = |id: &str, tip: &str| {
        repo.git(&["update-ref", &format!("refs/bugs/{}", bug_id(id)), tip]);
    };
    let empty = repo.blob(b"");
    let bad_ops = |content: &[u8]| {
        let ops = repo.blob(content);
        let tree = repo.tree(&[format!("100644 blob {ops}\tops")]);
        repo.commit(&tree, &[], "", 0)
    };
    ref_to(
        "0001",
        &repo.pack(&[], &["version-5"], &json!([create("x")])),
    );
    ref_to("0002", &bad_ops(br#"{"version":7,"ops":[]}"#));
    ref_to("0003", &bad_ops(b"{\"ops\":[{"));
    ref_to("0004", &repo.commit(&repo.tree(&[]), &[], "", 0));
    ref_to(
        "0005",
        &repo.pack(&[], &[], &json!([create("x"), status(9)])),
    );
    ref_to("0006", &repo.pack(&[], &[], &json!([status(1)])));
    ref_to("0007", &empty);
    ref_to("0008", &bad_ops(&[b' '; 17 << 20]));
    let link = repo.tree(&[format!("040000 tree {}\tops", repo.tree(&[]))]);
    ref_to("0009", &repo.commit(&link, &[], "", 0));
    for (id, why) in [
        ("0001", "format 5 is newer than 4"),
        ("0002", "format 7 is newer than 4"),
        ("0003", "EOF"),
        ("0004", "has no ops"),
        ("0005", "no status is known as 9"),
        ("0006", "does not begin with its creation"),
        ("0007", "is a blob, not a commit"),
        ("0008", "more of it than 16 MiB"),
        ("0009", "is a tree, not a blob"),
    ] {
        repo.refuses(
            id,
            6,
            &format!("git-bug cannot be read: issue {}", bug_id(id)),
        );
        repo.refuses(id, 6, why);
    }
    // Nor does `next` go past one of them as if it were not there.
    assert_eq!(repo.ask("next app.git").exit, 6);
}

#[test]
fn next_takes_the_oldest_git_bug_first() {
    let repo = Repo::new();
    let mut expected = Vec::new();
    for (id, clock, time, is_open) in [
        ("ffff", 1, 900, true),
        ("0000", 2, 100, true),
        ("1111", 2, 200, true),
        ("2222", 3, 50, false),
        ("aaaa", 4, 50, true),
    ] {
        let created = format!("create-clock-{clock}");
        let mut ops = vec![json!({ "type": 1, "timestamp": time, "title": id })];
        if !is_open {
            ops.push(status(2));
        }
        let tip = repo.pack(&[], &["version-4", &created, "edit-clock-7"], &json!(ops));
        repo.git(&["update-ref", &format!("refs/bugs/{}", bug_id(id)), &tip]);
        if is_open {
            expected.push(bug_id(id));
        }
    }
    assert_eq!(repo.order(), expected);
}

#[test]
fn a_git_bug_is_closed_by_the_push_that_closes_it() {
    let repo = Repo::new();
    let id = bug_id("aaaa1");
    let name = format!("refs/bugs/{id}");
    let tip = || repo.git(&["rev-parse", &name]);
    let settle = |old: &str| {
        let push = Push {
            updates: vec![format!("{old} {} {name}", tip()).parse().unwrap()],
            ..Push::default()
        };
        let said = repo.forge.hook("settle", "app.git", &push);
        assert_eq!(said.exit, 0, "{said:?}");
        said.json()["ended"].clone()
    };
    let begun = json!([create("Crash")]);
    repo.bug(&id, std::slice::from_ref(&begun));
    assert_eq!(repo.ask("acquire app.git aaaa1 --session s").exit, 0);
    let first = tip();
    let comment = json!([{ "type": 3, "message": "status: 2" }]);
    repo.bug(&id, &[begun.clone(), comment.clone()]);
    assert_eq!(settle(&first), json!([]));
    let second = tip();
    repo.bug(&id, &[begun, comment, json!([status(2)])]);
    let ended = settle(&second);
    assert_eq!(
        (&ended[0]["issue"], &ended[0]["how"]),
        (&json!(id), &json!("closed"))
    );
    assert_eq!(repo.ask("list app.git").json()["leases"], json!([]));
}

#[test]
fn beads_says_what_its_lines_say() {
    let repo = Repo::new();
    repo.beads(&[
        json!({ "id": "bd-a1b2", "title": "Open", "status": "open", "priority": 1 }),
        json!({ "id": "bd-a1b2.3", "title": "Under way", "status": "in_progress" }),
        json!({ "id": "bd-gone", "title": "Gone", "status": "tombstone" }),
        json!({ "id": "bd-done", "title": "Done", "status": "closed" }),
        json!({ "id": "bd-usual", "title": "No status" }),
    ]);
    assert_eq!(repo.ask("whoami app.git").json()["tracker"], "beads");
    repo.refuses("bd-gone", 1, "is closed");
    repo.refuses("bd-done", 1, "issue bd-done \"Done\" is closed");
    repo.refuses("bd-a1", 1, "there is no issue 'bd-a1'");
    for (id, title) in [
        ("bd-a1b2", "Open"),
        ("bd-a1b2.3", "Under way"),
        ("bd-usual", "No status"),
    ] {
        let said = repo.ask(&format!("acquire app.git {id} --session s"));
        assert_eq!((said.exit, said.json()["title"].clone()), (0, json!(title)));
    }
    repo.beads(&[json!({ "id": "bd-a1b2", "status": "closed" })]);
    let list = repo.ask("list app.git").json();
    let states: Vec<_> = list["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lease| (lease["issue"].clone(), lease["issue_state"].clone()))
        .collect();
    assert!(
        states.contains(&(json!("bd-a1b2"), json!("closed"))),
        "{list}"
    );
    assert!(states.contains(&(json!("bd-usual"), Value::Null)), "{list}");
}

#[test]
fn next_takes_beads_by_priority_and_leaves_the_blocked_ones() {
    let repo = Repo::new();
    let on =
        |other: &str, kind: &str| json!([{ "issue_id": "", "depends_on_id": other, "type": kind }]);
    repo.beads(&[
        json!({ "id": "z-late", "status": "open", "priority": 3 }),
        json!({ "id": "z-b", "status": "open", "priority": 1, "dependencies": on("z-late", "related") }),
        json!({ "id": "z-a", "status": "open", "priority": 1, "dependencies": on("z-done", "blocks") }),
        json!({ "id": "z-first", "status": "open", "priority": 0, "dependencies": on("z-lost", "blocks") }),
        json!({ "id": "z-blocked", "status": "open", "priority": 0, "dependencies": on("z-late", "blocks") }),
        json!({ "id": "z-round", "status": "open", "priority": 0, "dependencies": on("z-round", "blocks") }),
        json!({ "id": "z-off", "status": "deferred", "priority": 0 }),
        json!({ "id": "z-done", "status": "closed", "priority": 0 }),
    ]);
    assert_eq!(repo.order(), ["z-first", "z-a", "z-b", "z-late"]);
    // By its id, a blocked one can still be taken.
    assert_eq!(repo.ask("acquire app.git z-blocked --session s").exit, 0);
}

#[test]
fn beads_that_cannot_be_read_are_an_error_for_all() {
    let repo = Repo::new();
    repo.file(
        ".beads/issues.jsonl",
        "100644",
        b"{\"id\":\"bd-1\"}\n{\"id\":\"bd-2\"}\n{\"id\":\"bd-3\",}\n",
    );
    for id in ["bd-1", "bd-9"] {
        repo.refuses(id, 6, "the tracker beads cannot be read: .beads/issues.jsonl line 3: ");
    }
    assert_eq!(repo.ask("next app.git").exit, 6);
    repo.file(".beads/issues.jsonl", "120000", b"../secret");
    repo.refuses("bd-1", 6, "is no regular file");
    repo.file(".beads/issues.jsonl", "100644", b"");
    repo.refuses("bd-1", 1, "there is no issue 'bd-1'");
}

#[test]
fn a_repository_with_two_trackers_asks_for_the_setting() {
    let repo = Repo::with_git_issue();
    assert_eq!(repo.ask("whoami app.git").json()["tracker"], "git-issue");
    repo.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
    repo.beads(&[json!({ "id": "bd-1", "title": "x" })]);
    repo.refuses("bd-1", 1, "has issues in git-issue and beads");
    repo.refuses("bd-1", 1, "claim.tracker");
    repo.bug(&bug_id("aaaa"), &[json!([create("x")])]);
    repo.refuses("bd-1", 1, "has issues in git-issue and git-bug and beads");
    repo.git(&["config", "claim.tracker", "beads"]);
    assert_eq!(repo.ask("acquire app.git bd-1 --session s").exit, 0);
    repo.git(&["config", "claim.tracker", "git-bug"]);
    assert_eq!(repo.ask("acquire app.git aaaa --session s").exit, 0);
    for (tracker, why) in [
        (
            "command",
            "claim.tracker is 'command', but claim.trackerCommand names no program",
        ),
        (
            "host",
            "claim.tracker is 'host', but this server has no issues of its own",
        ),
        (
            "Beads",
            "claim.tracker is 'Beads'; this version knows git-issue, git-bug, beads, ",
        ),
    ] {
        repo.git(&["config", "claim.tracker", tracker]);
        let said = repo.ask("acquire app.git ae1c --session s");
        assert!(said.exit == 1 && said.stderr.contains(why), "{said:?}");
    }
}

#[test]
fn without_a_tracker_any_id_is_open_and_none_is_next() {
    let repo = Repo::new();
    assert_eq!(repo.ask("whoami app.git").json()["tracker"], "none");
    assert_eq!(repo.ask("acquire app.git PROJ-42 --session s").exit, 0);
    let said = repo.ask("next app.git");
    assert_eq!(said.exit, 1);
    assert!(
        said.stderr
            .contains("the tracker here is 'none', which knows no order"),
        "{said:?}"
    );
}

#[test]
fn a_cut_off_pack_is_an_error() {
    for make in [
        (|repo: &Repo| repo.beads(&[json!({ "id": "aaaa", "title": "x" })])) as fn(&Repo),
        |repo| repo.bug(&bug_id("aaaa"), &[json!([create("x")]), json!([status(2)])]),
    ] {
        let repo = Repo::new();
        make(&repo);
        repo.git(&["repack", "-q", "-a", "-d"]);
        for file in std::fs::read_dir(repo.path.join("objects/pack")).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|end| end == "pack") {
                let whole = std::fs::read(&file).unwrap();
                std::fs::remove_file(&file).unwrap();
                std::fs::write(&file, &whole[..whole.len() / 3]).unwrap();
            }
        }
        repo.refuses("aaaa", 6, "cannot be read");
        assert_eq!(repo.ask("next app.git").exit, 6);
    }
}

#[test]
fn loose_refs_count_before_packed_ones_and_other_names_are_no_issues() {
    let repo = Repo::with_git_issue();
    repo.git(&["pack-refs", "--all", "--prune"]);
    let loose = std::fs::read_dir(repo.path.join("refs/issues"));
    assert_eq!(loose.map_or(0, Iterator::count), 0);
    let said = repo.ask("acquire app.git ae1c --session s");
    assert_eq!(said.exit, 0, "{said:?}");
    let full = said.json()["issue"].as_str().unwrap().to_owned();
    repo.ask("release app.git ae1c --session s");
    // Closed by a push since.
    let name = format!("refs/issues/{full}");
    let tree = repo.git(&["rev-parse", &format!("{name}^{{tree}}")]);
    let closed = repo.commit(&tree, &[&name], "close\n\nState: closed", 1_800_000_000);
    repo.git(&["update-ref", &name, &closed]);
    repo.git(&["update-ref", "refs/issues/ae1c/nested", &closed]);
    repo.git(&["update-ref", "refs/issues/\u{e9}", &closed]);
    repo.refuses("ae1c", 1, "is closed");
    assert!(!repo.order().contains(&full));
}

#[test]
fn chains_of_git_issue_are_joined_by_what_comes_before_what() {
    let repo = Repo::new();
    let tree = repo.tree(&[]);
    let id = "11111111-1111-4111-8111-111111111111";
    // The root's clock was wrong: by time alone its closing would count before
    // the reopening on the side that is older.
    let root = repo.commit(&tree, &[], "Title\n\nState: closed", 9_000);
    let left = repo.commit(&tree, &[&root], "comment", 5_000);
    let right = repo.commit(&tree, &[&root], "reopen\n\nState: open", 4_000);
    let tip = repo.commit(&tree, &[&left, &right], "join", 6_000);
    repo.git(&["update-ref", &format!("refs/issues/{id}"), &tip]);
    let said = repo.ask("acquire app.git 1111 --session s");
    assert_eq!(
        (said.exit, said.json()["title"].clone()),
        (0, json!("Title")),
        "{said:?}"
    );
}

#[test]
fn a_chain_without_end_is_given_up() {
    let repo = Repo::new();
    let import: String = (0..16_000)
        .map(|n| {
            let time = 1_700_000_000 + n;
            format!("commit refs/issues/2222\ncommitter t <t@t> {time} +0000\ndata 1\nx\n\n")
        })
        .collect();
    repo.git_reads(&["fast-import", "--quiet"], import.as_bytes());
    repo.refuses("2222", 6, "there is more of it than 16 MiB");
    assert_eq!(repo.ask("next app.git").exit, 6);
}

#[test]
fn a_program_answers_for_a_tracker_elsewhere() {
    let repo = Repo::new();
    repo.script(
        r#"case "$1 $2" in
"resolve 42") echo '{"id":"PROJ-42","state":"open","title":"Far away"}' ;;
"resolve PROJ-42") echo '{"id":"PROJ-42","state":"open","title":"Far away"}' ;;
"resolve 43") echo '{"id":"PROJ-43","state":"closed"}' ;;
"resolve many") for n in 1 2 3 4; do echo "{\"id\":\"P-$n\",\"state\":\"open\"}"; done ;;
"resolve fails") echo '{"id":"P-1","state":"open"}'; exit 3 ;;
"resolve odd") echo '{"id":"P-1","state":"open"}'; echo; echo 'what?' ;;
"resolve long") head -c 100000 /dev/zero | tr '\0' x ;;
"resolve none") ;;
"ready ") for n in 9 3 5; do echo "{\"id\":\"P-$n\"}"; done; echo '{"id":"P-1","state":"closed"}' ;;
*) exit 1 ;;
esac
"#,
    );
    assert_eq!(repo.ask("whoami app.git").json()["tracker"], "command");
    repo.refuses("43", 1, "issue PROJ-43 is closed");
    repo.refuses("none", 1, "there is no issue 'none'");
    repo.refuses(
        "many",
        1,
        "'many' could be P-1, P-2, P-3; give more of the id",
    );
    repo.refuses(
        "fails",
        6,
        "command cannot be read: it ended with exit status: 3",
    );
    repo.refuses("odd", 6, "command cannot be read: line 3: ");
    repo.refuses("long", 6, "it says too much");
    let said = repo.ask("acquire app.git 42 --session s");
    assert_eq!(
        (
            said.exit,
            said.json()["issue"].clone(),
            said.json()["title"].clone()
        ),
        (0, json!("PROJ-42"), json!("Far away")),
        "{said:?}"
    );
    assert_eq!(repo.order(), ["P-9", "P-3", "P-5"]);
}

#[test]
fn a_program_sees_a_clean_environment_and_no_shell() {
    let repo = Repo::new();
    repo.script(
        r#"[ "$1" = "fixed words" ] && [ "$2" = resolve ] && [ "$3" = 42 ] && [ $# = 3 ] || exit 9
[ "$GIT_CLAIM_REPO" = app.git ] && [ "$(git config core.bare)" = true ] || exit 8
[ -z "$CARGO_MANIFEST_DIR$CARGO" ] || exit 7
echo '{"id":"42","state":"open"}'
"#,
    );
    let setting = repo.git(&["config", "claim.trackerCommand"]);
    repo.git(&[
        "config",
        "claim.trackerCommand",
        &format!("{setting} 'fixed words'"),
    ]);
    let said = repo.ask("acquire app.git 42 --session s");
    assert_eq!(said.exit, 0, "{said:?}");
    for (setting, why) in [
        ("tracker", "absolute path"),
        ("/bin/echo $(id)", "needs single quotes"),
        ("", "empty"),
        ("/nonexistent/tracker", "/nonexistent/tracker: No such file"),
    ] {
        repo.git(&["config", "claim.trackerCommand", setting]);
        let said = repo.ask("acquire app.git 43 --session s");
        assert!(
            said.exit == 6 && said.stderr.contains(why),
            "{setting}: {said:?}"
        );
    }
}

#[test]
fn next_takes_from_many_that_are_held() {
    let repo = Repo::new();
    repo.beads(
        &(0..60)
            .map(|n| json!({ "id": format!("z-{n:02}") }))
            .collect::<Vec<_>>(),
    );
    for n in 0..50 {
        assert_eq!(
            repo.ask(&format!("acquire app.git z-{n:02} --session s"))
                .exit,
            0
        );
    }
    let said = repo.ask("next app.git --session s --request r");
    assert_eq!(said.json()["issue"], "z-50");
    // The same request again is the same issue.
    let said = repo.ask("next app.git --session s --request r");
    assert_eq!(said.json()["issue"], "z-50");
}

#[test]
fn a_list_tells_what_next_would_hand_out_to_those_who_ask() {
    let repo = Repo::new();
    repo.beads(&[
        json!({ "id": "z-late", "title": "Later", "priority": 3 }),
        json!({ "id": "z-b", "priority": 1 }),
        json!({ "id": "z-a", "title": "Now", "priority": 1 }),
        json!({ "id": "z-held", "priority": 0 }),
        json!({ "id": "z-done", "status": "closed", "priority": 0 }),
    ]);
    repo.ask("acquire app.git z-held --session s");
    let list = |words: &str| {
        let said = repo
            .forge
            .ask("guest", &format!("list app.git {words}"))
            .json();
        said["ready"].clone()
    };
    assert_eq!(list(""), Value::Null);
    let first = json!({ "issue": "z-a", "title": "Now" });
    let all = json!([
        first,
        { "issue": "z-b" },
        { "issue": "z-late", "title": "Later" },
    ]);
    assert_eq!(list("--ready"), all);
    // What others hold is not ready, whatever is listed.
    assert_eq!(list("--ready --holder guest"), all);
    assert_eq!(list("--ready --limit 1"), json!([first]));
    assert_eq!(repo.order(), ["z-a", "z-b", "z-late"]);
    assert_eq!(list("--ready"), json!([]));

    repo.beads(
        &(0..300)
            .map(|n| json!({ "id": format!("z-{n:03}") }))
            .collect::<Vec<_>>(),
    );
    let some = list("--ready");
    let some = some.as_array().unwrap();
    assert_eq!(
        (some.len(), some[199]["issue"].clone()),
        (200, json!("z-199"))
    );
}

#[test]
fn a_list_does_not_wait_long_for_what_is_ready() {
    let repo = Repo::new();
    let ready = || {
        let said = repo.ask("list app.git --ready");
        assert_eq!((said.exit, said.json()["leases"].clone()), (0, json!([])));
        said.json().get("ready").cloned()
    };
    assert_eq!(ready(), None, "no tracker, no order");
    repo.script("echo '{\"id\":\"42\"}'");
    assert_eq!(ready(), Some(json!([{ "issue": "42" }])));
    repo.script("exec sleep 1000");
    assert_eq!(ready(), None);
    repo.script("echo nonsense");
    assert_eq!(ready(), None);
}

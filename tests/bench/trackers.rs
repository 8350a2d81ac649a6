//! An issue among 100,000, in each of the trackers that a repository itself
//! holds.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::forge::{Forge, git, import};
use crate::{Row, Target, compare, compare_in, memory_of, server, time};

const MANY: usize = 100_000;
const FEW: usize = 10;

pub fn rows(forge: &Forge, rows: &mut Vec<Row>) {
    for tracker in [Tracker::GitIssue, Tracker::GitBug, Tracker::Beads] {
        let name = tracker.name();
        let repo = |count: usize| {
            let path = format!("{name}-{count}.git");
            tracker.fill(&forge.add_repo(&path), count);
            path
        };
        let (many, few) = (repo(MANY), repo(FEW));
        // In the middle, by its number and so by its place.
        let (among_many, among_few) = (tracker.id(MANY / 2), tracker.id(FEW / 2));
        let acquire = |repo: &str, issue: &str| {
            let took = time(&mut server(
                forge,
                &format!("collab-lease acquire {repo} {issue} --ttl 7200 --session s"),
            ));
            // One's own claim would be answered without a look at the tracker.
            let release = format!("collab-lease release {repo} {issue} --session s");
            time(&mut server(forge, &release));
            took
        };
        let target = match tracker {
            Tracker::Beads => Target::None("one pass over one file"),
            _ => Target::AtMost(2.0, "among 10"),
        };
        rows.push(compare(
            &format!("acquire among 100,000 issues, {name}"),
            target,
            || acquire(&many, &among_many),
            || acquire(&few, &among_few),
        ));
        if !matches!(tracker, Tracker::Beads) {
            rows.push(compare(
                "the same by a prefix",
                target,
                || acquire(&many, &among_many[..8]),
                || acquire(&few, &among_few[..8]),
            ));
        }
        let dir = forge.repos().join(&many);
        let mut session = 0;
        rows.push(compare_in(
            5,
            &format!("next among 100,000 issues, {name}"),
            Target::None(tracker.peer_of_next()),
            || {
                session += 1;
                let next = format!("collab-lease next {many} --session s{session}");
                time(&mut server(forge, &next))
            },
            || time(tracker.look_at_all().current_dir(&dir)),
        ));
        let next = format!("collab-lease next {many} --session m");
        rows.push(memory_of("its memory", forge, &next, 256.0));
    }
}

#[derive(Clone, Copy)]
enum Tracker {
    GitIssue,
    GitBug,
    Beads,
}

impl Tracker {
    fn name(self) -> &'static str {
        match self {
            Tracker::GitIssue => "git-issue",
            Tracker::GitBug => "git-bug",
            Tracker::Beads => "beads",
        }
    }

    /// The id of the issue that was made as the `n`th; their order is another.
    fn id(self, n: usize) -> String {
        let mixed = (n as u32).wrapping_mul(2_654_435_761);
        match self {
            Tracker::GitIssue => format!("{mixed:08x}-0000-4000-8000-{n:012x}"),
            Tracker::GitBug => format!("{mixed:08x}{n:056x}"),
            Tracker::Beads => format!("bd-{mixed:08x}"),
        }
    }

    fn fill(self, repo: &Path, count: usize) {
        if let Tracker::Beads = self {
            return fill_beads(repo, count);
        }
        let namespace = match self {
            Tracker::GitIssue => "refs/issues/",
            _ => "refs/bugs/",
        };
        let marks = repo.join("marks");
        let mut stream = String::new();
        for n in 0..count {
            let message = format!("Issue {n}\n");
            let time = 1_700_000_000 + n;
            // A commit without parents.
            let _ = write!(
                stream,
                "reset refs/import\ncommit refs/import\nmark :{mark}\n\
                 committer a <a@example.org> {time} +0000\ndata {}\n{message}",
                message.len(),
                mark = n + 1,
            );
            if let Tracker::GitBug = self {
                let ops = format!(
                    r#"{{"author":{{"id":"a"}},"ops":[{{"type":1,"timestamp":{time},"title":"Issue {n}","message":"","files":null}}]}}"#
                );
                let _ = write!(stream, "M 100644 inline ops\ndata {}\n{ops}\n", ops.len());
                for name in [
                    "version-4",
                    &format!("create-clock-{}", n + 1),
                    "edit-clock-1",
                ] {
                    let _ = write!(stream, "M 100644 inline {name}\ndata 0\n\n");
                }
            }
            stream.push('\n');
        }
        import(
            repo,
            &stream,
            &[&format!("--export-marks={}", marks.display())],
        );
        git(repo, &["update-ref", "-d", "refs/import"]);
        // Packed, as git gc leaves them: that many files would be another thing.
        git(repo, &["pack-refs", "--all"]);
        let packed = repo.join("packed-refs");
        let there = fs::read_to_string(&packed).unwrap();
        let mut lines: Vec<String> = there
            .lines()
            .filter(|line| !line.starts_with(['#', '^']))
            .map(str::to_owned)
            .collect();
        let made = fs::read_to_string(&marks).unwrap();
        lines.extend(made.lines().map(|line| {
            let (mark, commit) = line.split_once(' ').unwrap();
            let n: usize = mark[1..].parse().unwrap();
            format!("{commit} {namespace}{}", self.id(n - 1))
        }));
        lines.sort_by(|one, other| one[41..].cmp(&other[41..]));
        let text = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{}\n",
            lines.join("\n")
        );
        fs::write(packed, text).unwrap();
        assert_eq!(
            git(repo, &["for-each-ref", "--count=3", namespace])
                .lines()
                .count(),
            3
        );
    }

    /// What git itself does that has as much to look at.
    fn look_at_all(self) -> Command {
        let mut command = Command::new("git");
        match self {
            Tracker::GitIssue | Tracker::GitBug => command.args([
                "for-each-ref",
                "--count=1",
                "--sort=committerdate",
                "refs/issues",
                "refs/bugs",
            ]),
            Tracker::Beads => command.args(["cat-file", "blob", "HEAD:.beads/issues.jsonl"]),
        };
        command
    }

    fn peer_of_next(self) -> &'static str {
        match self {
            Tracker::GitIssue | Tracker::GitBug => "git for-each-ref by date",
            Tracker::Beads => "git cat-file of the file",
        }
    }
}

fn fill_beads(repo: &Path, count: usize) {
    let mut file = String::new();
    for n in 0..count {
        let _ = writeln!(
            file,
            r#"{{"id":"{}","title":"Issue {n}","description":"What is to be done about it","status":"open","priority":{},"issue_type":"task","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}}"#,
            Tracker::Beads.id(n),
            n % 5
        );
    }
    let stream = format!(
        "commit refs/heads/main\ncommitter a <a@example.org> 1800000000 +0000\ndata 0\n\
         from refs/heads/main^0\nM 100644 inline .beads/issues.jsonl\ndata {}\n{file}\n",
        file.len()
    );
    import(repo, &stream, &[]);
}

//! The sessions in the pages, typed as they stand there on a real forge. What
//! is answered otherwise than the page shows is written into it, with
//! `SNAPSHOTS=overwrite`, or fails the test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use snapbox::{Data, assert_data_eq};

use super::{EDITING, mdoc, pages, read};
use crate::support::client::Person;
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::programs;
use crate::support::session::{Step, Typist, comparable, steps};

macro_rules! examples {
    ($($test:ident: $page:literal,)*) => {
        const TRIED: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                try_out($page);
            }
        )*
    };
}

examples! {
    git_claim: "git-claim.1",
    git_claim_check: "git-claim-check.1",
    git_claim_completions: "git-claim-completions.1",
    git_claim_help: "git-claim-help.1",
    git_claim_inspect: "git-claim-inspect.1",
    git_claim_install_hook: "git-claim-install-hook.1",
    git_claim_log: "git-claim-log.1",
    git_claim_recover: "git-claim-recover.1",
    git_claim_renew: "git-claim-renew.1",
    git_claim_run: "git-claim-run.1",
    git_claim_start: "git-claim-start.1",
    git_claim_whoami: "git-claim-whoami.1",
    git_claims: "git-claims.1",
    git_unclaim: "git-unclaim.1",
    gitclaim_workflow: "gitclaim-workflow.7",
    collab_lease: "collab-lease.8",
}

/// Its example is a program, which another test compiles.
const COMPILED: &str = "git-claim-plugin.3";

#[test]
fn the_examples_of_every_page_are_tried() {
    let mut tried: Vec<&str> = TRIED.iter().copied().chain([COMPILED]).collect();
    tried.sort_unstable();
    let pages = pages();
    let pages = pages.iter().map(|path| path.file_name().unwrap());
    assert!(pages.eq(tried));
}

fn try_out(name: &str) {
    let path = programs::source().join("man").join(name);
    let mut stage = Stage::new();
    let page = {
        let _lock = EDITING.lock();
        read(&path)
    };
    let said: Vec<String> = sessions(&page)
        .iter()
        .map(|session| stage.plays(&steps(&mdoc::shown(session))))
        .collect();
    assert!(!said.is_empty(), "{name} has no example");
    let _lock = EDITING.lock();
    let mut written = read(&path);
    for (session, said) in sessions(&written.clone()).iter().zip(said) {
        written = written.replacen(session, &literal(&said), 1);
    }
    assert_data_eq!(written, Data::read_from(&path, None).raw());
}

/// The displays of a page that begin with a prompt, as they stand there.
fn sessions(page: &str) -> Vec<String> {
    page.split(".Bd -literal")
        .skip(1)
        .filter_map(|rest| {
            let (_, rest) = rest.split_once('\n')?;
            let (display, _) = rest.split_once(".Ed\n")?;
            let first = display.lines().next()?;
            first.contains("$ ").then(|| display.to_owned())
        })
        .collect()
}

/// Lines of a display.
fn literal(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let safe = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        format!("{safe}{}\n", mdoc::literal(line))
    });
    lines.collect()
}

/// An answer with its long lines folded, to be read on a page.
fn folded(text: &str) -> String {
    const INDENT: &str = "    ";

    let mut folded = String::new();
    for line in text.lines() {
        let mut rest = line.trim_end().to_owned();
        while let Some(at) = fold(&rest) {
            folded.push_str(&format!("{}\n", &rest[..at]));
            rest = format!("{INDENT}{}", rest[at..].trim_start());
        }
        folded.push_str(&format!("{rest}\n"));
    }
    folded
}

/// Where to break a line that is too long for a page, if there is a place.
fn fold(line: &str) -> Option<usize> {
    const WIDTH: usize = 72;
    const SOURCE_WIDTH: usize = 76;
    let fits = |end: usize| {
        let part = &line[..end];
        part.chars().count() <= WIDTH && mdoc::literal(part).len() <= SOURCE_WIDTH
    };
    if fits(line.len()) {
        return None;
    }
    let spaces = line.rmatch_indices(' ').map(|(at, _)| at);
    spaces
        .filter(|at| fits(*at))
        .find(|at| !line[..*at].trim().is_empty())
}

/// A forge with a small project, and people who have cloned it: `ann`, who is
/// the reader, and `bob` may claim, `carol` may end the claims of others. `git`
/// is the account that the forge runs as.
struct Stage {
    forge: Forge,
    typists: BTreeMap<String, Typist>,
}

const READER: &str = "ann";
const SERVER: &str = "git";

const RIGHTS: &str = "\twrite = ann, bob\n\tadmin = carol\n";

const ISSUES: &str = r#"
{"id":"42","title":"Crash on empty input","status":"open","priority":1}
{"id":"43","title":"Name the limit","status":"open","priority":2}
{"id":"44","title":"Wrap long titles","status":"open","priority":2}
"#;

const WORK: &str = "#!/bin/sh\necho \"working on $GIT_CLAIM_ISSUE\"\n";

impl Stage {
    fn new() -> Stage {
        let forge = Forge::with_settings(RIGHTS);
        let repo = forge.repos().join(REPO);
        git(&repo, &["config", "claim.tracker", "beads"]);
        let draft = forge.dir().join("draft");
        let draft_path = draft.to_str().unwrap();
        git(&repo, &["worktree", "add", "-q", draft_path, "main"]);
        fs::create_dir(draft.join(".beads")).unwrap();
        fs::write(draft.join(".beads/issues.jsonl"), ISSUES.trim_start()).unwrap();
        fs::write(draft.join("work-on-it"), WORK).unwrap();
        git(&draft, &["add", "."]);
        git(&draft, &["update-index", "--chmod=+x", "work-on-it"]);
        git(&draft, &["commit", "-qm", "Begin"]);
        git(&repo, &["worktree", "remove", "--force", draft_path]);
        assert_cmd::Command::new(programs::server())
            .args(["setup", REPO, "--config"])
            .arg(forge.config())
            .assert()
            .success();
        Stage {
            forge,
            typists: BTreeMap::new(),
        }
    }

    /// Types a session; what was answered, with what is shown where that means
    /// the same.
    fn plays(&mut self, session: &[Step]) -> String {
        let mut played = String::new();
        for step in session {
            let who = step.who.as_deref();
            let said = self.typist(who.unwrap_or(READER)).types(&step.command);
            let said = self.as_shown(&said);
            let is_alike = flowing(&said) == flowing(&step.shown);
            let answer = match is_alike {
                true => step.shown.clone(),
                false => folded(&said),
            };
            let who = who.unwrap_or_default();
            let command = step.command.replace('\n', "\n> ");
            played.push_str(&format!("{who}$ {command}\n{answer}"));
        }
        played
    }

    fn typist(&mut self, who: &str) -> &mut Typist {
        let forge = &self.forge;
        self.typists.entry(who.to_owned()).or_insert_with(|| {
            let person = forge.person(who);
            install_pages(&person);
            let client = match who {
                SERVER => {
                    settings_at_home(forge, &person);
                    person.at(forge.repos())
                }
                _ => {
                    let home = person.at(person.home());
                    home.ok(&format!("git clone -q {} app", url(REPO)));
                    home.at(person.home().join("app"))
                }
            };
            Typist::new(client)
        })
    }

    /// With the places of this machine as those of a real one.
    fn as_shown(&self, said: &str) -> String {
        let mut said = said.to_owned();
        let mut put = |here: &Path, there: &str| {
            said = said.replace(here.to_str().unwrap(), there);
        };
        put(&self.forge.repos(), "/srv/git");
        put(self.forge.dir(), "/home");
        put(
            &programs::plugin(),
            "/usr/lib/git-claim/libgit_claim_plugin.so",
        );
        put(programs::folder(), "/usr/bin");
        said
    }
}

/// What a reader compares, wherever its lines are folded.
fn flowing(text: &str) -> String {
    comparable(&text.replace('\n', " "))
}

/// The manual where `man` finds it: beside what is in the PATH.
fn install_pages(person: &Person) {
    for page in pages() {
        let section = page.extension().unwrap().to_str().unwrap();
        let folder = person.home().join(format!("share/man/man{section}"));
        fs::create_dir_all(&folder).unwrap();
        symlink(&page, folder.join(page.file_name().unwrap())).unwrap();
    }
}

/// The forge's settings file where `git-claim-server` finds it by itself.
fn settings_at_home(forge: &Forge, person: &Person) {
    let folder = person.home().join(".config/git-claim");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(forge.config(), folder.join("config")).unwrap();
}

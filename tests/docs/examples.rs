//! The sessions in the pages, typed as they stand there on a real forge. What
//! is answered otherwise than the page shows is written into it, with
//! `SNAPSHOTS=overwrite`, or fails the test.

use snapbox::{Data, assert_data_eq};

use super::stage::Stage;
use super::{EDITING, mdoc, pages, read};
use crate::support::programs;
use crate::support::session::{comparable, steps};

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
        .map(|session| played(&mdoc::shown(session), &mut stage))
        .collect();
    assert!(!said.is_empty(), "{name} has no example");
    let _lock = EDITING.lock();
    let mut written = read(&path);
    for (session, said) in sessions(&written.clone()).iter().zip(said) {
        written = written.replacen(session, &literal(&said), 1);
    }
    assert_data_eq!(written, Data::read_from(&path, None).raw());
}

/// A session with what is answered now; with what is shown where that means the
/// same.
fn played(session: &str, stage: &mut Stage) -> String {
    let mut played = String::new();
    for step in steps(session) {
        let who = step.who.as_deref();
        let said = stage.types(who, &step.command);
        let answer = match flowing(&said) == flowing(&step.shown) {
            true => step.shown,
            false => folded(&said),
        };
        let who = who.unwrap_or_default();
        let command = step.command.replace('\n', "\n> ");
        played.push_str(&format!("{who}$ {command}\n{answer}"));
    }
    played
}

/// What a reader compares, wherever its lines are folded.
fn flowing(text: &str) -> String {
    comparable(&text.replace('\n', " "))
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

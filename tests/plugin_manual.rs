//! git-claim-plugin(3), the manual for those who build a forge: its example is
//! a host that works, and it names all that the header has.

use std::collections::BTreeSet;

use assert_cmd::Command;
use assert_fs::TempDir;

use crate::support::client::{stderr, stdout};
use crate::support::programs;

const PAGE: &str = "man/git-claim-plugin.3";

fn source(path: &str) -> String {
    std::fs::read_to_string(programs::source().join(path)).unwrap()
}

/// The page's example, as a reader copies it.
fn example() -> String {
    let page = source(PAGE);
    let (_, rest) = page.split_once(".Bd -literal\n").unwrap();
    let (example, _) = rest.split_once(".Ed\n").unwrap();
    example
        .replace("\\&", "")
        .replace("\\-", "-")
        .replace("\\(aq", "'")
        .replace("\\e", "\\")
}

#[test]
fn the_example_is_a_host() {
    let dir = TempDir::new().unwrap();
    let code = dir.path().join("host.c");
    std::fs::write(&code, example()).unwrap();
    let host = dir.path().join("host");
    Command::new(programs::need("cc"))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(programs::source().join("plugin/include"))
        .arg(&code)
        .arg("-o")
        .arg(&host)
        .arg("-ldl")
        .assert()
        .success();
    let serve = |user: &str, command: &str| {
        Command::new(&host)
            .arg(programs::plugin())
            .arg(dir.path().join("collab.db"))
            .args([user, command])
            .assert()
    };
    let acquire = "collab-lease acquire app.git 42";
    let acquired = stdout(&serve("ann", acquire).code(0));
    assert!(acquired.contains(r#""status":"acquired""#), "{acquired}");
    let held = stdout(&serve("bob", acquire).code(4));
    assert!(held.contains(r#""holder":"ann""#), "{held}");
    let unknown = stderr(&serve("ann", "collab-lease list other.git").code(1));
    assert_eq!(unknown, "error: repository not found\n");
    let denied = serve("eve", "collab-lease list app.git").code(1);
    assert_eq!(stderr(&denied), unknown);
}

/// What a reader may look for: every type, constant and function of the header.
fn names(header: &str) -> BTreeSet<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = header.split(|c| !word(c));
    let mut names: BTreeSet<&str> = words
        .filter(|name| name.starts_with("GCLAIM_") || name.starts_with("gclaim_"))
        // In its comments: GCLAIM_REQUEST_*.
        .filter(|name| !name.ends_with('_'))
        .collect();
    // Members that are functions: `int32_t (*open)(…)`.
    names.extend(
        header
            .split("(*")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|name| name.chars().all(word)),
    );
    names
}

#[test]
fn the_names_of_a_header_are_its_types_constants_and_functions() {
    let header = "#define GCLAIM_OK 0 /* GCLAIM_REQUEST_* */\ntypedef struct gclaim_x {\n\
                  int32_t (*open)(int *a, void (*done)(int));\n} gclaim_x;\n";
    let found: Vec<&str> = names(header).into_iter().collect();
    assert_eq!(found, ["GCLAIM_OK", "done", "gclaim_x", "open"]);
}

#[test]
fn every_name_of_the_header_is_in_the_page() {
    let header = source("plugin/include/git_claim_plugin.h");
    let page = source(PAGE);
    let (text, _) = page.split_once(".Sh EXAMPLES").unwrap();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named: BTreeSet<&str> = text.split(|c| !word(c)).collect();
    let missing: Vec<&str> = names(&header).difference(&named).copied().collect();
    assert_eq!(missing, [""; 0]);
    // The filter leaves something to compare.
    for name in ["describe", "resolve_issue", "gclaim_query", "GCLAIM_EPANIC"] {
        assert!(names(&header).contains(name), "{name}");
    }
}

#[test]
fn mandoc_has_nothing_to_say_about_the_page() {
    let assert = Command::new(programs::need("mandoc"))
        .arg("-Tlint")
        .arg(programs::source().join(PAGE))
        .assert();
    let said = stdout(&assert);
    let lines: Vec<&str> = said
        .lines()
        // Which other pages there are is up to the machine.
        .filter(|line| !line.contains("referenced manual not found"))
        .collect();
    assert_eq!(lines, [""; 0]);
}

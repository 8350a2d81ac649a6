//! The README's sessions, run as they stand there.

use crate::support::client::Client;
use crate::support::forge::Forge;
use crate::support::programs;
use crate::support::session::{Step, Typist, comparable, steps};

/// The steps of the console block behind `<!-- name -->`.
fn session(name: &str) -> Vec<Step> {
    let readme = std::fs::read_to_string(programs::source().join("README.md")).unwrap();
    let marker = format!("<!-- {name} -->\n```console\n");
    let (_, rest) = readme
        .split_once(&marker)
        .unwrap_or_else(|| panic!("the README has no session '{name}'"));
    let (block, _) = rest.split_once("\n```").unwrap();
    steps(block)
}

fn run(client: Client, name: &str) {
    let mut typist = Typist::new(client);
    for step in session(name) {
        let said = typist.types(&step.command);
        assert_eq!(
            comparable(&said),
            comparable(&step.shown),
            "$ {}",
            step.command
        );
    }
}

#[test]
fn the_session_at_the_top_goes_as_it_is_shown() {
    let forge = Forge::new();
    run(forge.client("alice"), "session");
}

#[test]
fn whoever_comes_second_sees_what_is_shown() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c051 --ttl 2h");
    run(forge.client("bob"), "loser");
}

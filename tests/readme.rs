//! The README's sessions, run as they stand there. Times differ from run to
//! run, so each is compared as "a time".

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::Forge;
use crate::support::programs;

/// The commands of the console block behind `<!-- name -->`, each with the
/// output that the README shows.
fn session(name: &str) -> Vec<(String, String)> {
    let readme = std::fs::read_to_string(programs::source().join("README.md")).unwrap();
    let marker = format!("<!-- {name} -->\n```console\n");
    let (_, rest) = readme
        .split_once(&marker)
        .unwrap_or_else(|| panic!("the README has no session '{name}'"));
    let (block, _) = rest.split_once("\n```").unwrap();
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
            (None, None) => panic!("'{name}' shows output before a command"),
        }
    }
    commands
}

/// `text` with clock times and spans of time made alike.
fn timeless(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let bare = word
            .trim_end_matches([' ', '\n', ')', ','])
            .trim_start_matches('(');
        let is_clock = bare.len() == 5 && bare.as_bytes()[2] == b':';
        let is_span = bare.ends_with(['d', 'h', 'm', 's'])
            && bare.len() > 1
            && bare[..bare.len() - 1].bytes().all(|b| b.is_ascii_digit());
        if is_clock || is_span {
            word.replace(bare, "TIME")
        } else {
            word.to_owned()
        }
    });
    let text: String = words.collect();
    text.replace("TIME TIME", "TIME")
}

fn run(client: &Client, name: &str) {
    for (command, shown) in session(name) {
        let mut shell = client.command("sh");
        let assert = shell.args(["-c", &command]).assert();
        let said = stdout(&assert) + &stderr(&assert);
        assert_eq!(timeless(&said), timeless(&shown), "$ {command}");
    }
}

#[test]
fn the_session_at_the_top_goes_as_it_is_shown() {
    let forge = Forge::new();
    run(&forge.client("alice"), "session");
}

#[test]
fn whoever_comes_second_sees_what_is_shown() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c051 --ttl 2h");
    let bob = forge.client("bob");
    let [(claim, shown), (status, code)] = <[_; 2]>::try_from(session("loser")).unwrap();
    let assert = bob.command("sh").args(["-c", &claim]).assert().code(4);
    assert_eq!(timeless(&stderr(&assert)), timeless(&shown));
    assert_eq!((status.as_str(), code.as_str()), ("echo $?", "4\n"));
}

#[test]
fn the_tables_are_those_of_the_code() {
    let readme = std::fs::read_to_string(programs::source().join("README.md")).unwrap();
    for exit in git_claim_api::exit::Exit::ALL {
        let row = format!("| {} | {} |\n", exit.code(), exit.meaning());
        assert!(readme.contains(&row), "{row}");
    }
    for key in &git_claim_api::settings::KEYS {
        assert!(
            readme.contains(&format!("`{}`", key.shown)),
            "{}",
            key.shown
        );
    }
}

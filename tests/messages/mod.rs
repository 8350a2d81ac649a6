//! What people read, all of it as it stands in front of them: each session in
//! this folder is typed anew and compared, `SNAPSHOTS=overwrite` writes it anew.
//!
//! `alice$ git claims` is a command whose output goes to a file, `alice 40$ git
//! claims` one on a terminal of 40 columns. `? 4` is its exit code, where that
//! is not 0. What differs from run to run is masked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use assert_cmd::assert::Assert;
use snapbox::{Data, assert_data_eq};

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::{Forge, git};
use crate::support::programs;
use crate::support::terminal::seen;

#[test]
fn claiming_and_giving_back() {
    let forge = Forge::new();
    compare("claiming", |name| forge.client(name));
}

#[test]
fn errors_and_what_to_do() {
    let forge = Forge::new();
    compare("errors", |name| forge.client(name));
}

#[test]
fn any_title_and_any_note_on_any_terminal() {
    let forge = Forge::new();
    let repo = forge.add_repo("acme/titles.git");
    let issues = [
        ("t-1", "plain"),
        (
            "t-2",
            "a title that is so much longer than any terminal is wide that it must be cut somewhere, or it would run over into the next line and the next",
        ),
        (
            "t-3",
            "全角文字の題名は二列ずつ取るので切るときに気をつけること",
        ),
        ("t-4", "שלום עולם: כותרת מימין לשמאל"),
        ("t-5", "\u{202e}backwards\u{202c} \u{2066}isolated\u{2069}"),
        (
            "t-6",
            "\u{1b}[31mred\u{7} and \u{9b}2J gone\r\nnext line\u{0}",
        ),
        ("t-7", "e\u{301}clair 👩‍👩‍👧‍👦 🇪🇺"),
    ];
    let lines = issues.map(|(id, title)| {
        serde_json::json!({ "id": id, "title": title, "status": "open", "priority": 1 }).to_string()
            + "\n"
    });
    let tree = repo.with_extension("tree");
    git(
        &forge.repos(),
        &[
            "clone",
            "-q",
            repo.to_str().unwrap(),
            tree.to_str().unwrap(),
        ],
    );
    std::fs::create_dir(tree.join(".beads")).unwrap();
    std::fs::write(tree.join(".beads/issues.jsonl"), lines.concat()).unwrap();
    git(&tree, &["add", "."]);
    git(&tree, &["commit", "-qm", "issues"]);
    git(&tree, &["push", "-q"]);
    let url = crate::support::forge::url("acme/titles.git");
    compare("titles", |name| forge.person(name).worktree(&url));
}

fn compare(name: &str, client: impl Fn(&str) -> Client) {
    let file = PathBuf::from("tests/messages")
        .join(name)
        .with_extension("console");
    let file = programs::source().join(file);
    let session = std::fs::read_to_string(&file).unwrap();
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    let mut text = String::new();
    for line in session.lines() {
        if line.starts_with('#') || line.is_empty() {
            text += &format!("{line}\n");
            continue;
        }
        let Some((prompt, command)) = line.split_once("$ ") else {
            continue;
        };
        let (who, columns) = prompt.split_once(' ').unwrap_or((prompt, ""));
        if who.is_empty() || !who.bytes().all(|byte| byte.is_ascii_lowercase()) {
            continue;
        }
        let client = clients.entry(who.to_owned()).or_insert_with(|| client(who));
        let said = match columns.parse() {
            Ok(columns) => seen(client, (columns, 60), command),
            Err(_) => typed(&client.command("sh").args(["-c", command]).assert()),
        };
        text += &format!("{line}\n{}", masked(&visible(&said)));
    }
    assert_data_eq!(text, Data::read_from(&file, None).raw());
}

fn typed(assert: &Assert) -> String {
    let mut said = stdout(assert) + &stderr(assert);
    match assert.get_output().status.code() {
        Some(0) => {}
        code => said += &format!("? {}\n", code.unwrap_or(-1)),
    }
    said
}

/// With what a terminal would obey in words.
fn visible(text: &str) -> String {
    let text = text.replace('\x1b', "<esc>").replace('\0', "<nul>\n");
    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'),
        "{text:?}"
    );
    text
}

/// With times, spans and names that are made up alike in every run.
fn masked(text: &str) -> String {
    let masks = [
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>"),
        (r"\b([A-Z][a-z]{2} \d{1,2} )?\d\d:\d\d\b", "hh:mm"),
        (r"\(in (\d+[dhms] ?)+\)", "(in <span>)"),
        (
            r"\b(held for|heartbeat) (\d+[dhms] ?)*\d+[dhms]",
            "$1 <span>",
        ),
        (r#"("ttl_left_ms":)\d+"#, "$1<ms>"),
        (r"\b[0-9a-f]{24}\b", "<session>"),
        (r#"("session":)"[0-9a-f]{8}""#, r#"$1"<session>""#),
    ];
    masks.iter().fold(text.to_owned(), |text, (pattern, mask)| {
        let pattern = regex::Regex::new(pattern).unwrap();
        pattern.replace_all(&text, *mask).into_owned()
    })
}

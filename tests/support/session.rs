//! Console sessions as they stand in a text for readers, typed again: commands
//! behind a prompt, each with what it answered.

use std::sync::LazyLock;

use regex::Regex;

use super::client::{Client, stdout};

/// A command of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Who types it, where the prompt says so: `bob$ `.
    pub who: Option<String>,
    pub command: String,
    /// What is shown behind it, by lines.
    pub shown: String,
}

/// The steps of a session.
pub fn steps(session: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines() {
        if let Some((who, command)) = prompt(line) {
            steps.push(Step {
                who: (!who.is_empty()).then(|| who.to_owned()),
                command: command.to_owned(),
                shown: String::new(),
            });
            continue;
        }
        let step = steps.last_mut().expect("a command comes first");
        match line.strip_prefix("> ") {
            Some(more) if step.shown.is_empty() => step.command.push_str(&format!("\n{more}")),
            _ => step.shown.push_str(&format!("{line}\n")),
        }
    }
    steps
}

fn prompt(line: &str) -> Option<(&str, &str)> {
    let (who, command) = line.split_once("$ ")?;
    who.bytes()
        .all(|b| b.is_ascii_lowercase())
        .then_some((who, command))
}

/// Somebody who types, one command behind another, as in one shell.
pub struct Typist {
    client: Client,
    status: i32,
}

/// Runs `$2`, where `$?` is `$1`, and leaves the folder that it ends in at `$3`.
const SHELL: &str = "exec 2>&1; (exit $1); eval \"$2\"; status=$?; pwd >\"$3\"; exit $status";

impl Typist {
    pub fn new(client: Client) -> Typist {
        Typist { client, status: 0 }
    }

    /// What a command answers, on both channels.
    pub fn types(&mut self, command: &str) -> String {
        let folder = self.client.person().home().join("run/pwd");
        let mut shell = self.client.command("sh");
        shell.args(["-c", SHELL, "sh"]).arg(self.status.to_string());
        // man's filter of system calls knows none of what a sandbox adds.
        shell.env("MAN_DISABLE_SECCOMP", "1");
        let assert = shell.arg(command).arg(&folder).assert();
        self.status = assert.get_output().status.code().unwrap();
        let folder = std::fs::read_to_string(folder).unwrap();
        self.client = self.client.at(folder.trim_end());
        stdout(&assert)
    }
}

/// `text` with all that differs from run to run made alike: times, spans of
/// time, object ids, and the room that they take.
pub fn comparable(text: &str) -> String {
    static ALIKE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (
                r"\b\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ| \d\d:\d\d UTC)",
                "TIME",
            ),
            (r"\b([A-Z][a-z]{2} \d{1,2} (\d{4} )?)?\d\d:\d\d\b", "TIME"),
            // Before the spans: an id may look like many days.
            (r"\b[0-9a-f]{7,}\b", "ID"),
            (r"\b(\d+[dhms] )*\d+[dhms]\b", "SPAN"),
            (r" +", " "),
        ]
        .map(|(what, alike)| (Regex::new(what).unwrap(), alike))
        .into()
    });
    ALIKE.iter().fold(text.to_owned(), |text, (what, alike)| {
        what.replace_all(&text, *alike).into_owned()
    })
}

#[test]
fn a_session_is_read_by_its_prompts() {
    let read = steps("$ one\nsaid $5\nx\nbob$ two \\\n> more\n");
    let step = |who: Option<&str>, command: &str, shown: &str| Step {
        who: who.map(str::to_owned),
        command: command.to_owned(),
        shown: shown.to_owned(),
    };
    assert_eq!(
        read,
        [
            step(None, "one", "said $5\nx\n"),
            step(Some("bob"), "two \\\nmore", "")
        ]
    );
}

#[test]
fn what_differs_from_run_to_run_is_alike() {
    for (a, b) in [
        ("until 16:05 (in 2h)", "until 09:00 (in 1h 59m)"),
        ("until 23:05 (in 2h)", "until Sep 6 00:05 (in 2h)"),
        ("until Jan 1 2027 00:05", "until 00:04"),
        ("held for 1m, x", "held for 20s, x"),
        (
            "SINCE  UNTIL\n14:05  16:05 (in 2h)",
            "SINCE         UNTIL\nSep 5 23:05  00:05 (in 1h)",
        ),
        ("[main 1a2b3c4] x", "[main deadbe1] x"),
        ("86308f4..b1e0708", "aaa308f..bbb0708"),
        ("309236d..1234567", "aaa308f..bbb0708"),
        ("at 2026-12-01T05:20:59Z, x", "at 2026-12-02T05:00:59Z, x"),
    ] {
        assert_eq!(comparable(a), comparable(b));
    }
    for (a, b) in [
        ("token 3", "token 4"),
        ("claimed 42", "claimed 43"),
        ("defaced", "efaced"),
        ("until 16:05 (in 2h)", "until released"),
    ] {
        assert_ne!(comparable(a), comparable(b));
    }
}

//! A server that would take the terminal over: whatever it says, in a reply or
//! beside one, nothing that a terminal obeys reaches it.

use std::fs;

use git_claim_api::text::is_unsafe;
use serde_json::Value;

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::Forge;

/// Colours, a title for the window, the bell, a cleared screen in one byte, a line
/// written over and another one forged, and text that runs backwards.
const HOSTILE: &str = "x\u{1b}[31m\u{1b}]0;gone\u{7}\u{9b}2J\r\nerror: forged\u{202e}\u{2028}\u{0}";

/// Every text in a reply with [`HOSTILE`] behind it, but for what has to make sense.
fn poisoned(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(HOSTILE),
        Value::Array(values) => values.iter_mut().for_each(poisoned),
        Value::Object(members) => {
            for (name, value) in members {
                let is_read = matches!(name.as_str(), "status" | "now" | "how" | "reason")
                    || name.ends_with("_at");
                if !is_read {
                    poisoned(value);
                }
            }
        }
        _ => {}
    }
}

/// Types `line`, and is answered by a server that ends with `exit`.
fn is_safe(client: &Client, line: &str, reply: &str, said: &str, exit: i32) {
    let home = client.person().home();
    fs::write(home.join("reply"), reply).unwrap();
    fs::write(home.join("said"), said).unwrap();
    client.person().make_program(
        "hostile-ssh",
        &format!(
            "cat {home}/reply; cat {home}/said >&2; exit {exit}",
            home = home.display()
        ),
    );
    for options in ["", " --json", " --verbose"] {
        let mut words = line.split(' ');
        let mut command = client.command(words.next().unwrap());
        command.args(words).args(options.split_whitespace());
        let assert = command.env("GIT_SSH_COMMAND", "hostile-ssh").assert();
        for text in [stdout(&assert), stderr(&assert)] {
            let found = text.chars().find(|c| is_unsafe(*c) && *c != '\n');
            assert_eq!(found, None, "{line}{options}: {text:?}");
            // On stderr lines are the server's own to make.
            let is_forged = said.is_empty() && text.contains("\nerror: forged");
            assert!(!is_forged, "{line}{options}: {text:?}");
        }
        let shown = stdout(&assert) + &stderr(&assert);
        let is_told = shown.contains("gone") || shown.contains("forged");
        assert!(is_told, "{line}{options}: {shown:?}");
    }
}

#[test]
fn nothing_that_a_server_says_reaches_the_terminal_raw() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c --note first");
    alice.ok("git unclaim ae1c");
    alice.ok("git claim ae1c --ttl 1h --note second");
    let other = forge.client("bob");
    for (client, line, exit) in [
        (&alice, "git claims", 0),
        (&alice, "git claim log ae1c", 0),
        (&alice, "git claim whoami", 0),
        (&other, "git claim ae1c", 4),
    ] {
        let mut reply = client.json(line, exit);
        poisoned(&mut reply);
        // A tab is a blank to JSON, and none to a terminal.
        let reply = reply.to_string().replacen(':', ":\t", 1);
        is_safe(client, line, &format!("{reply}\n"), "", exit);
    }
    let error = format!("error: {HOSTILE}\nhint: {HOSTILE}\nwarning: {HOSTILE}\n");
    for exit in [1, 2, 4, 6, 7, 127, 255] {
        is_safe(&alice, "git claims", "", &error, exit);
        is_safe(&alice, "git claims", "", &format!("{HOSTILE}\n"), exit);
    }
    is_safe(&alice, "git claims", &format!("{HOSTILE}\n"), &error, 0);
}

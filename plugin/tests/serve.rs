//! `serve`: many requests on one connection, and what a client does not get by
//! it.

use serde_json::{Value, json};

use crate::support::Said;

use super::Forge;

/// The lines that `user` reads for `lines`, and how it ended.
fn serve(forge: &Forge, user: &str, lines: &str) -> (Vec<Value>, Said) {
    forge.sends(lines.as_bytes());
    let said = forge.ask(user, "serve r.git");
    let replies = said.stdout.lines();
    let replies = replies.map(|line| serde_json::from_str(line).unwrap());
    (replies.collect(), said)
}

#[test]
fn each_line_has_its_reply_in_order() {
    let forge = Forge::new();
    let (replies, said) = serve(
        &forge,
        "ann",
        r#"{"id":1,"op":"acquire","issue":"42","ttl":300,"session":"s"}
{"id":"two","op":"renew","issue":"42","ttl":60,"session":"s","token":1}
{"id":null,"op":"acquire","issue":"42","session":"other"}
{"op":"renew","issue":"43","ttl":60}
{"id":[5],"op":"release","issue":"42","session":"s"}"#,
    );
    assert_eq!(said.exit, 0);
    let short = |reply: &Value| json!([reply["id"], reply["exit"], reply["reply"]["status"]]);
    let replies: Vec<Value> = replies.iter().map(short).collect();
    assert_eq!(
        replies,
        [
            json!([1, 0, "acquired"]),
            json!(["two", 0, "renewed"]),
            json!([null, 4, "held"]),
            json!([null, 4, "held"]),
            json!([[5], 0, "released"]),
        ]
    );
}

#[test]
fn a_reply_is_the_one_of_the_command_line() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 42 --note x --session s");
    for (object, words) in [
        (r#"{"op":"list"}"#, "list r.git"),
        (r#"{"op":"show","issue":"42"}"#, "show r.git 42"),
        (r#"{"op":"log"}"#, "log r.git"),
        (
            r#"{"op":"verify","issue":"42","token":1,"session":"s"}"#,
            "verify r.git 42 --token 1 --session s",
        ),
        (r#"{"op":"whoami"}"#, "whoami r.git"),
    ] {
        let (replies, _) = serve(&forge, "ann", object);
        assert_eq!(
            replies[0]["reply"],
            forge.ask("ann", words).json(),
            "{words}"
        );
    }
}

#[test]
fn what_is_wrong_with_one_request_is_nothing_to_the_others() {
    let forge = Forge::new();
    let (replies, said) = serve(
        &forge,
        "ann",
        "{\"id\":1,\"op\":\"nonsense\"}\n{\"id\":2,\"op\":\"fence\"}\n{\"id\":3,\"op\":\"rename\"}\n\
         {\"id\":4,\"op\":\"acquire\",\"issue\":\"..\"}\n{\"id\":5,\"op\":\"acquire\",\"issue\":\"42\"}\n",
    );
    let exits: Vec<&Value> = replies.iter().map(|reply| &reply["exit"]).collect();
    assert_eq!(exits, [1, 1, 1, 1, 0]);
    assert!(
        replies[0]["error"]
            .as_str()
            .unwrap()
            .contains("no subverb 'nonsense'")
    );
    assert_eq!(said.exit, 0);
}

#[test]
fn each_request_is_authorised_by_itself() {
    let forge = Forge::new();
    let lines = "{\"op\":\"list\"}\n{\"op\":\"acquire\",\"issue\":\"42\"}\n{\"op\":\"list\"}\n";
    let (replies, _) = serve(&forge, "guest", lines);
    let exits: Vec<&Value> = replies.iter().map(|reply| &reply["exit"]).collect();
    assert_eq!(exits, [0, 1, 0]);
    let (replies, said) = serve(&forge, "nobody", lines);
    assert!(replies.is_empty());
    assert_eq!(said.stderr, "error: repository not found\n");
    // The next one of this forge finds nothing left of it.
    forge.drop_input();
    forge.ask("ann", "acquire r.git 42");
    let take = "{\"op\":\"acquire\",\"issue\":\"42\",\"take_over\":true,\"reason\":\"x\",\"expected_token\":1}";
    assert_eq!(serve(&forge, "bob", take).0[0]["exit"], 1);
    assert_eq!(serve(&forge, "root", take).0[0]["exit"], 0);
}

#[test]
fn a_line_that_is_no_object_or_too_long_ends_the_connection() {
    let forge = Forge::new();
    let long = format!(
        "{{\"op\":\"list\",\"holder\":\"{}\"}}",
        "x".repeat(64 * 1024)
    );
    for bad in ["7", "", "acquire r.git 42", "[]", &long] {
        let lines =
            format!("{{\"op\":\"list\"}}\n{bad}\n{{\"op\":\"acquire\",\"issue\":\"42\"}}\n");
        let (replies, said) = serve(&forge, "ann", &lines);
        assert_eq!(said.exit, 1);
        assert_eq!(replies.len(), 2, "{replies:?}");
        assert!(replies[1]["error"].is_string(), "{replies:?}");
        assert_eq!(replies[1].get("id"), None);
        forge.drop_input();
    }
    let list = forge.ask("ann", "list r.git").json();
    assert_eq!(list["leases"], json!([]));
}

#[test]
fn who_asks_for_nothing_for_ten_minutes_is_left_unless_they_watch() {
    let forge = Forge::new();
    let ask = |line: &str| forge.sends(format!("{line}\n").as_bytes());
    for (first, is_left) in [(r#"{"op":"list"}"#, true), (r#"{"op":"watch"}"#, false)] {
        ask(first);
        forge.waits_ms(599_000);
        ask(r#"{"op":"list"}"#);
        forge.waits_ms(599_000);
        forge.waits_ms(2_000);
        ask(r#"{"op":"list"}"#);
        let said = forge.ask("ann", "serve r.git");
        assert_eq!(said.exit, u8::from(is_left), "{first}: {said:?}");
        assert_eq!(said.stdout.lines().count(), 3);
        assert_eq!(said.stdout.contains("was idle for too long"), is_left);
        forge.drop_input();
    }
}

fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[test]
fn a_watcher_is_told_of_each_change() {
    let forge = Forge::new();
    let ask = |user: &'static str, words: &'static str| {
        move |forge: &Forge| {
            forge.ask(user, words);
        }
    };
    forge.ask("ann", "acquire r.git 41 --ttl 60 --session session-of-ann");
    let told = forge.watch(
        "guest",
        &[
            &|_| {},
            &ask("bob", "acquire r.git 42 --ttl 600"),
            &ask("bob", "renew r.git 42 --ttl 600"),
            &|forge| {
                forge.ask("bob", "release r.git 42");
                forge.ask("bob", "acquire other.git 42");
                forge.ask("ann", "acquire r.git 42");
            },
            // Nobody writes anything: time alone passes.
            &|forge| forge.step_ms(61_000),
            &|_| {},
            &ask("bob", "acquire r.git 41"),
            &|forge| {
                forge.ask("ann", "acquire r.git 43");
                forge.ask("ann", "release r.git 43");
            },
            &ask(
                "root",
                "acquire r.git 42 --take-over --reason ill --expected-token 2",
            ),
        ],
    );
    let told: Vec<Vec<&str>> = told.iter().map(|events| names(events)).collect();
    assert_eq!(
        told,
        [
            &[][..],
            &["acquired"],
            &["renewed"],
            &["released", "acquired"],
            &["expired"],
            &[],
            &["acquired"],
            &["acquired", "released"],
            &["taken-over"],
        ]
    );
}

#[test]
fn an_event_shows_strangers_no_more_of_a_session_than_a_list_does() {
    let forge = Forge::new();
    let take: &dyn Fn(&Forge) = &|forge| {
        forge.ask("ann", "acquire r.git 42 --session session-of-ann");
    };
    for (user, session) in [("guest", "session-"), ("ann", "session-of-ann")] {
        let told = forge.watch(user, &[take]);
        assert_eq!(told[0][0]["after"]["session"], session);
        assert_eq!(told[0][0]["after"].get("worktree"), None);
        forge.ask("ann", "release r.git 42 --session session-of-ann");
    }
}

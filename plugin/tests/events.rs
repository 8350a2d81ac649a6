//! Each change of a claim is told to the host, once it is durable.

use serde_json::Value;

use super::Forge;

/// The events since the last look: what happened, and the token on either side.
fn told(forge: &Forge) -> Vec<(String, Value, Value)> {
    let side = |event: &Value, side: &str| match &event[side] {
        Value::Null => Value::Null,
        side => side["token"].clone(),
    };
    forge
        .events()
        .iter()
        .map(|event| {
            let name = event["event"].as_str().unwrap().to_owned();
            (name, side(event, "before"), side(event, "after"))
        })
        .collect()
}

#[test]
fn every_change_is_told_and_nothing_else() {
    let forge = Forge::new();
    let null = Value::Null;
    let event = |name: &str, before: &Value, after: &Value| {
        vec![(name.to_owned(), before.clone(), after.clone())]
    };
    let (one, two, three) = (Value::from(1), Value::from(2), Value::from(3));
    for (user, words, expected) in [
        (
            "ann",
            "acquire r.git 42 --ttl 60 --session s",
            event("acquired", &null, &one),
        ),
        (
            "ann",
            "acquire r.git 42 --ttl 60 --session s",
            event("renewed", &one, &one),
        ),
        (
            "ann",
            "renew r.git 42 --ttl 60 --session s",
            event("renewed", &one, &one),
        ),
        ("bob", "acquire r.git 42", vec![]),
        ("bob", "list r.git", vec![]),
        ("bob", "release r.git 42", vec![]),
        (
            "root",
            "acquire r.git 42 --ttl 60 --take-over --reason ill --expected-token 1",
            event("taken-over", &one, &two),
        ),
        ("root", "release r.git 42", event("released", &two, &null)),
        ("root", "release r.git 42", vec![]),
        (
            "bob",
            "acquire r.git 42 --ttl 60",
            event("acquired", &null, &three),
        ),
    ] {
        forge.ask(user, words);
        assert_eq!(told(&forge), expected, "{user}: {words}");
    }
    forge.step_ms(61_000);
    forge.ask("bob", "list r.git");
    assert_eq!(told(&forge), []);
    // Noticed by whoever takes it next.
    let four = Value::from(4);
    forge.ask("ann", "acquire r.git 42 --session s");
    let noticed = [
        event("expired", &three, &four),
        event("acquired", &three, &four),
    ];
    assert_eq!(told(&forge), noticed.concat());
}

#[test]
fn an_event_says_who_and_why() {
    let forge = Forge::new();
    forge.ask("ann", "acquire r.git 42 --note x --session s");
    forge.ask(
        "root",
        "release r.git 42 --force --reason gone --expected-token 1",
    );
    let event = &forge.events()[1];
    assert_eq!(event["event"], "released");
    assert_eq!(
        (&event["repo"], &event["issue"]),
        (&Value::from("r.git"), &Value::from("42"))
    );
    assert_eq!(
        (event["how"].as_str(), event["by"].as_str()),
        (Some("forced"), Some("root"))
    );
    assert_eq!(event["why"], "gone");
    assert_eq!(event["before"]["holder"], "ann");
    assert_eq!(event["before"]["session"], "s");
    assert_eq!(event["after"], Value::Null);
}

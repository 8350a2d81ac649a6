//! `serve`: many requests on one connection, each a JSON object on a line of its
//! own.
//!
//! An object becomes the command line that it stands for, which is read as any
//! other: there is one reader of requests, and so one set of rules.

use serde_json::{Map, Value};

use crate::VERB;
use crate::verb::{BadCommand, RepoArg, Request};
use crate::words;

/// What a client may ask for besides the subverbs.
pub const WATCH: &str = "watch";

/// The members that travel percent-encoded on a command line.
const FREE: [&str; 7] = [
    "note", "reason", "remote", "branch", "worktree", "machine", "holder",
];

/// The members whose values are numbers.
const NUMBERS: [&str; 5] = ["ttl", "token", "expected_token", "if_token", "limit"];

/// One line of a client's.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The client's own name for it, given back with the reply.
    pub id: Value,
    pub op: Op,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// To be told of each change in the repository.
    Watch,
    Request(Box<Request>),
    /// Nothing that could be served.
    Bad(String),
}

/// A line that is no JSON object: the two sides don't understand each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request is one JSON object on one line")]
pub struct NoObject;

/// Reads a line about `repo`.
///
/// # Errors
/// It is no JSON object.
pub fn read(repo: &RepoArg, line: &[u8]) -> Result<Line, NoObject> {
    let mut object: Map<String, Value> = serde_json::from_slice(line).map_err(|_| NoObject)?;
    let id = object.remove("id").unwrap_or(Value::Null);
    let op = match op(repo, &mut object) {
        Ok(op) => op,
        Err(why) => Op::Bad(why),
    };
    Ok(Line { id, op })
}

fn op(repo: &RepoArg, object: &mut Map<String, Value>) -> Result<Op, String> {
    let Some(Value::String(name)) = object.remove("op") else {
        return Err("a request names its `op`".to_owned());
    };
    if name == WATCH {
        return match object.keys().next() {
            None => Ok(Op::Watch),
            Some(key) => Err(format!("{WATCH} has no member '{key}'")),
        };
    }
    let no_such = || BadCommand::UnknownSubverb(name.clone()).to_string();
    // Not one connection inside another.
    if name == "serve" || !is_plain(&name) {
        return Err(no_such());
    }
    let mut command = format!("{VERB} {name} {}", words::quote(repo.as_str()));
    if let Some(issue) = object.remove("issue") {
        let issue = match &issue {
            Value::String(issue) if !issue.starts_with('-') => words::quote(issue),
            _ => return Err("an issue is named by a text".to_owned()),
        };
        command.push_str(&format!(" {issue}"));
    }
    for (key, value) in object.iter() {
        if !is_plain(key) {
            return Err(format!("{name} has no member '{key}'"));
        }
        let option = format!(" --{}", key.replace('_', "-"));
        let value = match value {
            Value::Null | Value::Bool(false) => continue,
            Value::Bool(true) => String::new(),
            Value::Number(number) => format!(" {number}"),
            Value::String(text) if FREE.contains(&key.as_str()) => {
                format!(" {}", words::quote(&words::encode(text)))
            }
            Value::String(text) => format!(" {}", words::quote(text)),
            Value::Array(_) | Value::Object(_) => {
                return Err(format!("'{key}' is no text, number or truth value"));
            }
        };
        command.push_str(&option);
        command.push_str(&value);
    }
    let request = Request::parse(command.as_bytes()).map_err(|error| error.to_string())?;
    if request.is_host_only() {
        return Err(no_such());
    }
    Ok(Op::Request(Box::new(request)))
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// The object that asks for `request`, whose repository is the connection's;
/// [`read`] undoes it.
///
/// # Errors
/// The request has no words.
pub fn object(id: &Value, request: &Request) -> Result<Value, BadCommand> {
    let mut object = Map::new();
    object.insert("id".to_owned(), id.clone());
    object.insert("op".to_owned(), request.subverb().into());
    let mut words = words::split(request.command().as_bytes())?.into_iter();
    // Behind the verb, the subverb and the repository.
    let mut words = words.by_ref().skip(3).peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            object.insert("issue".to_owned(), word.into());
            continue;
        };
        let key = option.replace('-', "_");
        let value = match words.next_if(|word| !word.starts_with("--")) {
            None => true.into(),
            Some(word) if FREE.contains(&key.as_str()) => words::decode(&word)?.into(),
            Some(word) if NUMBERS.contains(&key.as_str()) => match word.parse::<u64>() {
                Ok(number) => number.into(),
                Err(_) => word.into(),
            },
            Some(word) => word.into(),
        };
        object.insert(key, value);
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo() -> RepoArg {
        "acme/my app.git".parse().unwrap()
    }

    fn request(line: &str) -> String {
        match read(&repo(), line.as_bytes()).unwrap().op {
            Op::Request(request) => request.command(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn an_object_is_the_command_line_that_it_stands_for() {
        for (line, command) in [
            (
                r#"{"id":7,"op":"renew","issue":"42","ttl":300,"session":"s1"}"#,
                "collab-lease renew 'acme/my app.git' 42 --ttl 300 --session s1",
            ),
            (
                r#"{"op":"acquire","issue":"42","note":"it's - \"fine\"","take_over":true,"reason":"-x","expected_token":3}"#,
                "collab-lease acquire 'acme/my app.git' 42 --note it%27s%20-%20%22fine%22 --take-over --reason %2Dx --expected-token 3",
            ),
            (
                r#"{"op":"list","mine":true,"ended":false,"holder":null}"#,
                "collab-lease list 'acme/my app.git' --mine",
            ),
            (
                r#"{"op":"whoami"}"#,
                "collab-lease whoami 'acme/my app.git'",
            ),
        ] {
            assert_eq!(request(line), command);
        }
    }

    #[test]
    fn what_no_command_line_could_say_is_refused() {
        for line in [
            r#"{}"#,
            r#"{"op":7}"#,
            r#"{"op":"serve"}"#,
            r#"{"op":"fence"}"#,
            r#"{"op":"rename","issue":"x.git"}"#,
            r#"{"op":"backup"}"#,
            r#"{"op":"list /etc"}"#,
            r#"{"op":"list","repo":"other.git"}"#,
            r#"{"op":"list","--mine":true}"#,
            r#"{"op":"list","mine":"yes"}"#,
            r#"{"op":"renew","issue":"--token","ttl":3}"#,
            r#"{"op":"renew","issue":"42 43","ttl":3}"#,
            r#"{"op":"renew","issue":"42","ttl":"-1"}"#,
            r#"{"op":"renew","issue":"42","ttl":1.5}"#,
            r#"{"op":"renew","issue":42,"ttl":3}"#,
            r#"{"op":"renew","issue":"42","session":["s"]}"#,
            r#"{"op":"acquire","issue":"42","note":"a\nb"}"#,
            r#"{"op":"acquire","issue":"42","session":"a\u0000"}"#,
            r#"{"op":"watch","issue":"42"}"#,
        ] {
            let read = read(&repo(), line.as_bytes()).unwrap();
            assert!(matches!(read.op, Op::Bad(_)), "{line}: {read:?}");
        }
        for line in ["", "7", "[]", "null", "{", "{}{}", "\"x\""] {
            assert_eq!(read(&repo(), line.as_bytes()), Err(NoObject), "{line}");
        }
    }

    #[test]
    fn a_request_reads_back_from_its_object() {
        for command in [
            "collab-lease acquire 'acme/my app.git' 42 --ttl 9 --session s1 --note fix%20it --remote origin --branch claim/42 --worktree /w%20x --machine m --request r1 --if-token 0 --take-over --reason x --expected-token 3",
            "collab-lease next 'acme/my app.git' --ttl 60",
            "collab-lease release 'acme/my app.git' 42 --token 7",
            "collab-lease list 'acme/my app.git' --mine --limit 5 --after a1",
            "collab-lease log 'acme/my app.git'",
        ] {
            let asked = Request::parse(command.as_bytes()).unwrap();
            let object = object(&1.into(), &asked).unwrap();
            let line = read(&repo(), object.to_string().as_bytes()).unwrap();
            assert_eq!(line.op, Op::Request(Box::new(asked)), "{object}");
        }
        let renew = "collab-lease renew x 42 --ttl 300 --session s1";
        let renew = Request::parse(renew.as_bytes()).unwrap();
        let expected = serde_json::json!(
            {"id": 7, "op": "renew", "issue": "42", "ttl": 300, "session": "s1"}
        );
        assert_eq!(object(&7.into(), &renew).unwrap(), expected);
    }
}

//! The table of configuration keys and the code that reads them agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use git_claim_api::settings::{KEYS, Key, Place};

use crate::support::programs::source;

/// What each program's sources may read.
const READERS: [(&str, &[Place]); 3] = [
    ("cli/src", &[Place::Client]),
    ("plugin/src", &[Place::Repository]),
    ("plugin/host/src", &[Place::Server, Place::Repository]),
];

#[test]
fn no_key_is_read_that_the_table_lacks() {
    for (folder, places) in READERS {
        for name in names(&code(&source().join(folder))) {
            let is_known =
                |key: &Key| key.is(&name) && key.places.iter().any(|p| places.contains(p));
            assert!(KEYS.iter().any(is_known), "{folder} reads {name}");
        }
    }
}

#[test]
fn every_key_of_the_table_is_read() {
    let code: String = READERS
        .iter()
        .map(|(folder, _)| code(&source().join(folder)))
        .collect();
    let names = names(&code);
    for key in &KEYS {
        let is_read = match key.name.split_once(".<name>.") {
            // It is looked up by its parts.
            Some((_, variable)) => code.contains(&format!("{}\"", variable.to_lowercase())),
            None => names.iter().any(|name| key.is(name)),
        };
        assert!(is_read, "nobody reads {}", key.name);
    }
}

/// The keys that stand in the code, as whole texts.
fn names(code: &str) -> BTreeSet<String> {
    code.split('"')
        .filter(|text| {
            let (section, variable) = text.split_once('.').unwrap_or_default();
            let is_word =
                |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic());
            section.starts_with("claim") && is_word(section) && is_word(variable)
        })
        .map(str::to_owned)
        .collect()
}

/// All code below a folder, without its tests.
fn code(folder: &Path) -> String {
    let mut code = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code.push_str(&self::code(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let (text, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            code.push_str(text);
        }
    }
    code
}

#[test]
fn a_key_is_found_in_code() {
    let code = r#"get("claim.timeout") bad("claim.x is", &format!("claim.{y}")) "claim." "a.b""#;
    assert_eq!(
        names(code).into_iter().collect::<Vec<_>>(),
        ["claim.timeout"]
    );
}

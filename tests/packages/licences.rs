//! What we are built of: every package in `Cargo.lock`, its version and its
//! licence, as `licences.txt` has them. A package that is new there is one to look
//! at; `SNAPSHOTS=overwrite` writes the list anew.

use assert_cmd::Command;
use serde_json::Value;
use snapbox::{Data, assert_data_eq};

use crate::support::client::stdout;
use crate::support::programs;

/// What may be built into programs that come under MIT or Apache 2.0, with no
/// more to do than to name the authors.
const ALLOWED: [&str; 8] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression leaves a way in which all that counts is allowed.
fn is_allowed(expression: &str) -> bool {
    // `/` stood for OR before crates.io wanted SPDX.
    let spaced = expression.replace('/', " OR ");
    let tokens = spaced.replace('(', " ( ").replace(')', " ) ");
    let mut tokens = tokens.split_whitespace().peekable();
    let allowed = any(&mut tokens);
    allowed && tokens.next().is_none()
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(tokens: &mut Tokens<'_>) -> bool {
    let mut allowed = all(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        allowed |= all(tokens);
    }
    allowed
}

fn all(tokens: &mut Tokens<'_>) -> bool {
    let mut allowed = one(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        allowed &= one(tokens);
    }
    allowed
}

fn one(tokens: &mut Tokens<'_>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        let allowed = any(tokens);
        return tokens.next_if_eq(&")").is_some() && allowed;
    }
    let Some(licence) = tokens.next() else {
        return false;
    };
    if tokens.next_if_eq(&"WITH").is_some() {
        let exception = tokens.next().unwrap_or_default();
        return ALLOWED.contains(&format!("{licence} WITH {exception}").as_str());
    }
    ALLOWED.contains(&licence)
}

#[test]
fn every_package_is_known_and_under_a_licence_that_may_be_used() {
    // Of every platform, so that the list is the same on each.
    let metadata = Command::new("cargo")
        .current_dir(programs::source())
        .args(["metadata", "--format-version", "1", "--locked", "--quiet"])
        .assert()
        .success();
    let metadata: Value = serde_json::from_str(&stdout(&metadata)).unwrap();
    let text = |package: &Value, member: &str| package[member].as_str().unwrap_or("-").to_owned();
    let mut packages: Vec<[String; 3]> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        // Ours come from nowhere.
        .filter(|package| !package["source"].is_null())
        .map(|package| ["name", "version", "license"].map(|member| text(package, member)))
        .collect();
    packages.sort();

    let refused: Vec<&[String; 3]> = packages
        .iter()
        .filter(|[_, _, licence]| !is_allowed(licence))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");

    let lines = packages
        .iter()
        .map(|[name, version, licence]| format!("{name} {version}: {licence}\n"));
    let file = programs::source().join("tests/packages/licences.txt");
    assert_data_eq!(
        lines.collect::<String>(),
        Data::read_from(&file, None).raw()
    );
}

#[test]
fn an_expression_needs_one_way_that_is_allowed() {
    for expression in [
        "MIT",
        "MIT OR GPL-3.0-only",
        "GPL-2.0-only OR MIT",
        "MIT/Apache-2.0",
        "Apache-2.0 AND ISC",
        "(MIT OR GPL-2.0-only) AND Zlib",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
    ] {
        assert!(is_allowed(expression), "{expression}");
    }
    for expression in [
        "-",
        "",
        "GPL-3.0-only",
        "MIT AND GPL-3.0-only",
        "(MIT OR Zlib) AND AGPL-3.0-only",
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "MIT WITH Something-else",
        "(MIT",
        "MIT MIT",
        "MIT AND",
    ] {
        assert!(!is_allowed(expression), "{expression}");
    }
}

//! `SECURITY.md` promises what a test tries: each line names them, and they are
//! there.

use regex::Regex;

use super::read;
use crate::support::programs::source;

/// Where the tests lie that a line can name by their module.
const FOLDERS: [&str; 3] = ["tests", "plugin/host/src", "plugin/tests"];

/// Whether there is the test `name`, as `theme::what_holds`.
fn is_there(name: &str) -> bool {
    let (module, test) = name.rsplit_once("::").unwrap();
    let module = module.replace("::", "/");
    let shape = Regex::new(&format!(r"#\[test\]\n\s*fn {test}\(\)")).unwrap();
    let places = FOLDERS.iter().flat_map(|folder| {
        [
            format!("{folder}/{module}.rs"),
            format!("{folder}/{module}/mod.rs"),
        ]
    });
    places
        .map(|place| source().join(place))
        .any(|file| file.exists() && shape.is_match(&read(&file)))
}

#[test]
fn every_promise_of_security_names_tests_that_are_there() {
    let text = read(&source().join("SECURITY.md"));
    let named = Regex::new(r"`([a-z_]+(?:::[a-z0-9_]+)+)`").unwrap();
    let promises: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("---"))
        .filter(|line| !line.starts_with("| | "))
        .collect();
    assert!(promises.len() > 10);
    for promise in promises {
        let names: Vec<&str> = named
            .captures_iter(promise)
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        assert!(!names.is_empty(), "{promise}");
        for name in names {
            assert!(is_there(name), "there is no test {name}");
        }
    }
    assert!(!is_there("access::no_such_test"));
}

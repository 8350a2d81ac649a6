//! One shape of record: one builder on the server, one reader for all. A second
//! one anywhere fails here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::programs;

/// The Rust sources of the programs, without the tests at the ends of files.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in ["cli/src", "plugin/src", "plugin/api/src", "plugin/host/src"] {
        collect(&programs::source().join(folder), &mut files);
    }
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<&str> = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .collect();
            let code = code.join("\n");
            let name = file.strip_prefix(programs::source()).unwrap();
            (name.to_str().unwrap().to_owned(), code)
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The files that hold one of `words`.
fn with(words: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = sources()
        .into_iter()
        .filter(|(_, code)| words.iter().any(|word| code.contains(word)))
        .map(|(name, _)| name)
        .collect();
    found.sort();
    found
}

/// What only a record has: who knows these names knows the shape.
const SHAPE: [&str; 6] = [
    "\"work_lease",
    "\"lock_generation",
    "\"lock_provenance",
    "\"issue_number",
    "\"task_session_id",
    "\"lifecycle_version",
];

#[test]
fn the_shape_is_known_to_its_builder_and_its_reader_alone() {
    assert_eq!(
        with(&SHAPE),
        ["plugin/api/src/lock.rs", "plugin/src/claim/record.rs"]
    );
}

#[test]
fn records_are_built_in_one_place() {
    assert_eq!(
        with(&["pub fn build(place: Place<'_>"]),
        ["plugin/src/claim/record.rs"]
    );
    // Who asks for one.
    assert_eq!(with(&["record::build("]), ["plugin/src/view.rs"]);
    assert_eq!(
        with(&["record::missing("]),
        ["plugin/src/claim/recover.rs", "plugin/src/verbs/show.rs"]
    );
    // A `Lock` is never put together by hand.
    assert_eq!(
        with(&["Lock {\n", "WorkLease {\n"]),
        ["plugin/api/src/lock.rs"]
    );
}

#[test]
fn records_are_read_in_one_place() {
    assert_eq!(
        with(&["pub fn read(record: &Value) -> Reading"]),
        ["plugin/api/src/lock.rs"]
    );
    // Who reads one, each through `lock::read`.
    assert_eq!(
        with(&["lock::read", "Reading::Canonical"]),
        [
            "cli/src/bound/keep.rs",
            "cli/src/bound/recovery.rs",
            "cli/src/bound/survey.rs",
            "cli/src/commands/inspect.rs",
            "plugin/api/src/lock.rs",
            "plugin/src/claim/record.rs",
        ]
    );
    // Nobody else takes one from JSON.
    for (name, code) in sources() {
        let by_hand = ["Lock>(", "<Lock>", "WorkLease>("]
            .iter()
            .any(|word| code.contains(&format!("from_value::{word}")))
            || code.contains("from_slice::<Lock>");
        assert!(!by_hand, "{name} reads a record by itself");
    }
}

#[test]
fn copies_are_written_in_one_place() {
    // The file's name is made there, and who stores one goes through it.
    assert_eq!(
        with(&["const SUFFIX: &str = \".json\""]),
        ["cli/src/bound/copy.rs"]
    );
    assert_eq!(
        with(&["copies.store("]),
        ["cli/src/bound/keep.rs", "cli/src/bound/making.rs"]
    );
}

//! Random inputs: whatever comes from outside is read or refused, without a
//! panic, and what was read means the same once it is written again.
//!
//! Each target has a folder in `corpus/`: what it begins from, and each input
//! that was ever found to fail. All of that is tried first, then random inputs:
//! the target's own, and mutations of the corpus: as many as take a moment, or in
//! `make fuzz` as `FUZZ_INPUTS` says.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// What an input is found to be.
pub type Checked = Result<(), TestCaseError>;

/// So many inputs a moment's run has of a target that is quick.
#[allow(dead_code)] // not every package has one
pub const QUICK: u32 = 10_000;

/// How many inputs to try instead of `inputs`, in proportion to [`QUICK`].
fn scaled(inputs: u32) -> u32 {
    let Ok(quick) = std::env::var("FUZZ_INPUTS") else {
        return inputs;
    };
    let scaled = u64::from(inputs) * quick.parse::<u64>().unwrap() / u64::from(QUICK);
    u32::try_from(scaled).unwrap()
}

/// Tries `check` with the corpus of `target`, and then with `inputs` random ones,
/// or more; a third of them are `own`.
pub fn fuzz(
    target: &str,
    inputs: u32,
    own: impl Strategy<Value = Vec<u8>> + 'static,
    check: impl Fn(&[u8]) -> Checked,
) {
    let folder = corpus(target);
    let seeds = read(&folder);
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    for (name, seed) in &seeds {
        if let Err(error) = check(seed) {
            panic!("{target}: {name} of the corpus: {error}");
        }
    }
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(|(_, seed)| seed).collect();
    let strategy = prop_oneof![1 => own.boxed(), 2 => mutated(seeds).boxed()];
    let inputs = scaled(inputs);
    let mut runner = TestRunner::new(Config {
        cases: inputs,
        failure_persistence: None,
        ..Config::default()
    });
    let began = Instant::now();
    let outcome = runner.run(&strategy, |input| check(&input));
    if let Err(TestError::Fail(why, input)) = &outcome {
        let found = folder.join(format!("found-{}", began.elapsed().as_nanos()));
        fs::write(&found, input).unwrap();
        panic!(
            "{target}: {why}\n{:?}\nkept as {}",
            String::from_utf8_lossy(input),
            found.display()
        );
    }
    outcome.unwrap();
    println!("{target}: {inputs} inputs in {:.1?}", began.elapsed());
}

/// Whether `left` and `right` are the same.
#[allow(dead_code)] // not every target has two
pub fn same<T: PartialEq + Debug>(left: &T, right: &T) -> Checked {
    prop_assert_eq!(left, right);
    Ok(())
}

fn corpus(target: &str) -> PathBuf {
    // The package may lie one folder below the top, or two.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new("tests/fuzz/corpus").join(target);
    let places = package.ancestors().map(|top| top.join(&folder));
    places.into_iter().find(|folder| folder.is_dir()).unwrap()
}

fn read(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut read: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    read.sort();
    read
}

/// A change of a seed.
#[derive(Debug, Clone)]
enum Change {
    Byte(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// A part of another seed, or of the same.
    Splice(Index, Index, Index, usize),
}

/// What is worth more than random bytes, wherever it comes to stand.
const PIECES: [&str; 34] = [
    " ",
    "'",
    "'\\''",
    "\\",
    "\"",
    "%",
    "%00",
    "%41",
    "%ff",
    "\n",
    "\r\n",
    "\0",
    "\u{1b}[31m",
    "\u{202e}",
    "é",
    "/",
    "~",
    ":",
    "::",
    "://",
    "@",
    "[",
    "]",
    "{",
    "}",
    "null",
    "true",
    "-1",
    "1.5",
    "18446744073709551616",
    "9223372036854775807",
    "--",
    "..",
    "\\ud800",
];

fn change() -> impl Strategy<Value = Change> {
    let inserted = prop_oneof![
        3 => prop::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..8),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<Index>(), inserted).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), 1..16_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), any::<Index>(), any::<Index>(), 1..40_usize)
            .prop_map(|(at, other, from, length)| Change::Splice(at, other, from, length)),
    ]
}

fn mutated(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec(change(), 1..6);
    (any::<Index>(), changes).prop_map(move |(seed, changes)| {
        let mut input = seed.get(&seeds).clone();
        for change in changes {
            change.make(&mut input, &seeds);
        }
        input
    })
}

impl Change {
    fn make(self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let length = input.len();
        let place = |at: &Index| at.index(length + 1);
        match self {
            Change::Byte(at, byte) => {
                if let Some(place) = input.get_mut(place(&at)) {
                    *place = byte;
                }
            }
            Change::Insert(at, bytes) => {
                let at = place(&at);
                input.splice(at..at, bytes);
            }
            Change::Remove(at, length) => {
                let at = place(&at);
                let end = (at + length).min(input.len());
                input.drain(at..end);
            }
            Change::Splice(at, other, from, length) => {
                let other = other.get(seeds);
                let from = from.index(other.len() + 1);
                let end = (from + length).min(other.len());
                let at = place(&at);
                input.splice(at..at, other[from..end].iter().copied());
            }
        }
    }
}

/// Any bytes.
#[allow(dead_code)] // not every target has a use for them
pub fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// Some of `pieces`, one behind the other.
#[allow(dead_code)] // the same
pub fn of(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(prop::sample::select(pieces), 0..most);
    pieces.prop_map(|pieces| pieces.concat().into_bytes())
}

//! A history in files, one a process: what was asked is written before it is
//! sent, so that it is known of whoever is killed then.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::ask::Ask;
use super::{Operation, moment};

/// One line of a file.
#[derive(Serialize, Deserialize)]
enum Line {
    Asked { ask: Ask, start: u64 },
    Answered { answer: Answer, end: u64 },
}

pub struct Recorder(File);

impl Recorder {
    pub fn create(path: &Path) -> Recorder {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .unwrap();
        Recorder(file)
    }

    /// Runs `serve` and records it, and no answer where there is none.
    pub fn run(&mut self, ask: &Ask, serve: impl FnOnce() -> Option<Answer>) -> Option<Answer> {
        self.write(&Line::Asked {
            ask: ask.clone(),
            start: moment(),
        });
        let answer = serve();
        if let Some(answer) = &answer {
            self.write(&Line::Answered {
                end: moment(),
                answer: answer.clone(),
            });
        }
        answer
    }

    fn write(&mut self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap();
        text.push(b'\n');
        self.0.write_all(&text).unwrap();
    }
}

/// The operations in one file.
pub fn read(path: &Path) -> Vec<Operation> {
    let text = fs::read_to_string(path).unwrap();
    let mut operations: Vec<Operation> = Vec::new();
    for line in text.split_inclusive('\n') {
        // Whoever was killed while it wrote a line did not get far.
        let Some(line) = line.strip_suffix('\n') else {
            break;
        };
        match serde_json::from_str(line).unwrap() {
            Line::Asked { ask, start } => operations.push(Operation {
                ask,
                start,
                answer: None,
            }),
            Line::Answered { answer, end } => {
                operations.last_mut().unwrap().answer = Some((end, answer));
            }
        }
    }
    operations
}

/// The operations in all files of a folder.
pub fn read_all(folder: &Path) -> Vec<Operation> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

//! A disk as a power cut may leave it: what was synced is there, and of the rest
//! whatever the system happened to have written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A disk writes so much at once, or not at all.
const SECTOR: usize = 512;

/// One thing that a program did to the disk, as `written.c` records it.
#[derive(Debug, Clone)]
pub struct Record {
    pub name: String,
    inode: u64,
    what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    Create,
    Unlink,
    Write { offset: usize, data: Vec<u8> },
    Truncate { size: usize },
    Sync,
}

/// Reads a recording.
pub fn read(file: &Path) -> Vec<Record> {
    let recording = fs::read(file).unwrap();
    let mut rest = recording.as_slice();
    let mut records = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head = std::str::from_utf8(&rest[..end]).unwrap();
        let words: Vec<&str> = head.splitn(5, ' ').collect();
        let [what, inode, offset, length, name] = words.try_into().unwrap();
        let offset: usize = offset.parse().unwrap();
        let length: usize = length.parse().unwrap();
        let data = &rest[end + 1..][..length];
        records.push(Record {
            name: name.to_owned(),
            inode: inode.parse().unwrap(),
            what: match what {
                "create" => What::Create,
                "unlink" => What::Unlink,
                "write" => What::Write {
                    offset,
                    data: data.to_vec(),
                },
                "truncate" => What::Truncate { size: offset },
                "sync" => What::Sync,
                other => panic!("{other:?} is not recorded"),
            },
        });
        rest = &rest[end + 1 + length..];
    }
    records
}

impl Record {
    pub fn is_sync(&self) -> bool {
        matches!(self.what, What::Sync)
    }

    pub fn is_write(&self) -> bool {
        matches!(self.what, What::Write { .. })
    }

    /// A part of a write; everything else is done as a whole.
    fn part(&self, part: Part) -> Record {
        let What::Write { offset, data } = &self.what else {
            return self.clone();
        };
        let middle = data.len() / 2 / SECTOR * SECTOR;
        let (from, to) = match part {
            Part::Whole => (0, data.len()),
            Part::Head => (0, middle),
            Part::Tail => (middle, data.len()),
        };
        Record {
            what: What::Write {
                offset: offset + from,
                data: data[from..to].to_vec(),
            },
            ..self.clone()
        }
    }
}

/// How much of a change got onto the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// The sectors of the first half.
    Head,
    /// Those of the second.
    Tail,
}

/// What is on the disk for sure, and what may be.
#[derive(Default)]
pub struct Disk {
    durable: Content,
    pending: Vec<Record>,
}

#[derive(Clone, Default)]
struct Content {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    fn apply(&mut self, record: &Record) {
        let file = self.files.entry(record.inode).or_default();
        match &record.what {
            What::Create => {
                self.names.insert(record.name.clone(), record.inode);
            }
            What::Unlink => {
                if self.names.get(&record.name) == Some(&record.inode) {
                    self.names.remove(&record.name);
                }
            }
            What::Write { offset, data } => {
                let end = offset + data.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset..end].copy_from_slice(data);
            }
            What::Truncate { size } => file.resize(*size, 0),
            What::Sync => {}
        }
    }
}

impl Disk {
    /// One on which the files in `folder` are safe.
    pub fn with(folder: &Path) -> Disk {
        let mut disk = Disk::default();
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let inode = entry.metadata().unwrap().ino();
            let name = entry.file_name().into_string().unwrap();
            let content = fs::read(entry.path()).unwrap();
            disk.durable.names.insert(name, inode);
            disk.durable.files.insert(inode, content);
        }
        disk
    }

    /// Goes one record on.
    pub fn apply(&mut self, record: &Record) {
        if !record.is_sync() {
            self.pending.push(record.clone());
            return;
        }
        // A folder keeps names, a file its content: each has to be synced.
        let (done, left) = self.pending.drain(..).partition(|pending| {
            match (&pending.what, record.name.as_str()) {
                (What::Create | What::Unlink, folder) => folder == ".",
                _ => pending.inode == record.inode,
            }
        });
        self.pending = left;
        for record in Vec::from_iter::<Vec<Record>>(done) {
            self.durable.apply(&record);
        }
    }

    /// How many changes may be there or not.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The files if of the changes that may be there those are for which `part`
    /// says so.
    pub fn files(&self, part: impl Fn(usize) -> Option<Part>) -> BTreeMap<String, Vec<u8>> {
        let mut content = self.durable.clone();
        for (number, record) in self.pending.iter().enumerate() {
            if let Some(part) = part(number) {
                content.apply(&record.part(part));
            }
        }
        let named = content.names.into_iter();
        named
            .map(|(name, inode)| (name, content.files[&inode].clone()))
            .collect()
    }
}

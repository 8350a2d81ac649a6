//! Finds refs by the beginning of their names without reading all of them.
//!
//! libgit2 halves its way to one packed ref, but lists them by reading and
//! sorting the whole file, which among 100,000 issues would take longer than
//! all the rest of a request. Here the list is entered by halving too. Loose
//! refs, one file each, are as many as were pushed since git last packed them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use git_claim_api::ids::IssueId;
use git2::{Oid, Repository};

use super::unreadable::Unreadable;

/// What is read at once; halving further would only read it again.
const BLOCK: u64 = 8 * 1024;

/// A line of packed-refs is one object id and one name.
const MAX_LINE: u64 = 16 * 1024;

/// The refs right below `refs/<kind>/` whose names can be an issue's id.
pub struct Refs<'a> {
    git: &'a Repository,
    /// With a `/` at the end.
    namespace: &'static str,
}

impl<'a> Refs<'a> {
    /// `namespace` is like `refs/issues/`.
    pub fn new(git: &'a Repository, namespace: &'static str) -> Refs<'a> {
        Refs { git, namespace }
    }

    /// Whether there is any.
    ///
    /// # Errors
    /// The refs can't be read.
    pub fn exist(&self) -> Result<bool, Unreadable> {
        // The file answers faster than a folder that once held many; it is
        // asked again for what git has moved there in between.
        Ok(self.is_any_packed()? || self.is_any_loose()? || self.is_any_packed()?)
    }

    fn is_any_packed(&self) -> Result<bool, Unreadable> {
        let Some(mut packed) = self.packed()? else {
            return Ok(false);
        };
        packed.go_to(self.namespace.as_bytes())?;
        while let Some((_, name)) = packed.next(self.namespace.as_bytes())? {
            if self.id(&name).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_any_loose(&self) -> Result<bool, Unreadable> {
        for id in loose(&self.folder(), "")? {
            if id?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The object that `id`'s ref names.
    ///
    /// # Errors
    /// The ref can't be read, or names another ref.
    pub fn find(&self, id: &IssueId) -> Result<Option<Oid>, Unreadable> {
        match self.git.find_reference(&format!("{}{id}", self.namespace)) {
            Ok(reference) => match reference.target() {
                Some(oid) => Ok(Some(oid)),
                None => Err(Unreadable("its ref is a symbolic one".to_owned())),
            },
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The ids that begin with `prefix`, with what their refs name where that
    /// is known already.
    ///
    /// # Errors
    /// The refs can't be read.
    pub fn starting_with(
        &self,
        prefix: &str,
    ) -> Result<BTreeMap<IssueId, Option<Oid>>, Unreadable> {
        let mut ids = BTreeMap::new();
        // Loose ones first: one that git packs meanwhile is in the file before
        // it is gone here.
        for id in loose(&self.folder(), prefix)? {
            if let Some(id) = id? {
                ids.insert(id, None);
            }
        }
        if let Some(mut packed) = self.packed()? {
            let beginning = format!("{}{prefix}", self.namespace);
            packed.go_to(beginning.as_bytes())?;
            while let Some((oid, name)) = packed.next(beginning.as_bytes())? {
                if let Some(id) = self.id(&name) {
                    // A loose one counts before a packed one.
                    ids.entry(id).or_insert(Some(oid));
                }
            }
        }
        Ok(ids)
    }

    fn folder(&self) -> PathBuf {
        self.git.commondir().join(self.namespace)
    }

    fn packed(&self) -> Result<Option<PackedRefs>, Unreadable> {
        Ok(PackedRefs::open(&self.git.commondir().join("packed-refs"))?)
    }

    fn id(&self, name: &[u8]) -> Option<IssueId> {
        let id = name.strip_prefix(self.namespace.as_bytes())?;
        std::str::from_utf8(id).ok()?.parse().ok()
    }
}

/// The ids in a folder of loose refs that begin with `prefix`; `None` for
/// other names and what can't be an issue's.
fn loose(
    folder: &Path,
    prefix: &str,
) -> Result<impl Iterator<Item = Result<Option<IssueId>, Unreadable>>, Unreadable> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    Ok(entries.into_iter().flatten().map(move |entry| {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().filter(|name| name.starts_with(prefix));
        // No issue's id ends with `.lock`, as a ref that is being written does.
        let id = name.and_then(|name| name.parse().ok());
        Ok(id.filter(|_| entry.file_type().is_ok_and(|kind| kind.is_file())))
    }))
}

/// git's `packed-refs`: one `<object id> <name>` a line, sorted by name.
struct PackedRefs {
    file: BufReader<File>,
    /// Where the first record begins.
    first: u64,
    end: u64,
    /// Where the next read begins.
    at: u64,
    is_sorted: bool,
}

impl PackedRefs {
    fn open(path: &Path) -> Result<Option<PackedRefs>, io::Error> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut packed = PackedRefs {
            end: file.metadata()?.len(),
            file: BufReader::new(file),
            first: 0,
            at: 0,
            is_sorted: false,
        };
        let header = packed.line()?;
        if header.starts_with(b"#") {
            packed.first = packed.at;
            let header = String::from_utf8_lossy(&header);
            packed.is_sorted = header.split_whitespace().any(|word| word == "sorted");
        }
        packed.seek(packed.first)?;
        Ok(Some(packed))
    }

    /// Goes to the first record that isn't below `name`, or shortly before it;
    /// where the file isn't sorted, to its first record.
    fn go_to(&mut self, name: &[u8]) -> Result<(), io::Error> {
        let (mut low, mut high) = (self.first, self.end);
        // Records that begin before `low` are below `name`, those from `high`
        // on are not.
        while self.is_sorted && high - low > BLOCK {
            let middle = low + (high - low) / 2;
            self.seek_record(middle)?;
            match self.record()? {
                Some((start, _, found)) if start < high && found.as_slice() < name => {
                    low = self.at;
                }
                _ => high = middle,
            }
        }
        self.seek(low)
    }

    /// The next record whose name begins with `prefix`.
    fn next(&mut self, prefix: &[u8]) -> Result<Option<(Oid, Vec<u8>)>, io::Error> {
        while let Some((_, oid, name)) = self.record()? {
            if name.starts_with(prefix) {
                return Ok(Some((oid, name)));
            }
            if self.is_sorted && name.as_slice() > prefix {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Goes to the first line that begins at `offset` or later.
    fn seek_record(&mut self, offset: u64) -> Result<(), io::Error> {
        if offset <= self.first {
            return self.seek(self.first);
        }
        self.seek(offset - 1)?;
        self.line().map(drop)
    }

    fn seek(&mut self, offset: u64) -> Result<(), io::Error> {
        self.at = self.file.seek(SeekFrom::Start(offset))?;
        Ok(())
    }

    /// Where the next record begins, and what it says.
    fn record(&mut self) -> Result<Option<(u64, Oid, Vec<u8>)>, io::Error> {
        loop {
            let start = self.at;
            let line = self.line()?;
            if line.is_empty() {
                return Ok(None);
            }
            // What the tag in the line before points to.
            if line.starts_with(b"^") {
                continue;
            }
            let damaged = || io::Error::other("a line of packed-refs is damaged");
            let line = line.strip_suffix(b"\n").ok_or_else(damaged)?;
            let blank = line.iter().position(|byte| *byte == b' ');
            let (oid, name) = line.split_at(blank.ok_or_else(damaged)?);
            let oid = std::str::from_utf8(oid).map_err(|_| damaged())?;
            let oid = Oid::from_str(oid).map_err(|_| damaged())?;
            return Ok(Some((start, oid, name[1..].to_vec())));
        }
    }

    /// The next line with its end; nothing at the end of the file.
    fn line(&mut self) -> Result<Vec<u8>, io::Error> {
        let mut line = Vec::new();
        (&mut self.file)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)?;
        self.at += line.len() as u64;
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    const OID: &str = "0123456789012345678901234567890123456789";

    /// What is found in a `packed-refs` of these names that begins with `prefix`.
    fn found(header: &str, names: &[String], prefix: &str) -> Vec<String> {
        let folder = TempDir::new().unwrap();
        let file = folder.child("packed-refs");
        let mut text = header.to_owned();
        for name in names {
            text += &format!("{OID} {name}\n");
            if name.len() % 3 == 0 {
                text += &format!("^{OID}\n");
            }
        }
        file.write_str(&text).unwrap();
        let mut packed = PackedRefs::open(file.path()).unwrap().unwrap();
        packed.go_to(prefix.as_bytes()).unwrap();
        let mut found = Vec::new();
        while let Some((_, name)) = packed.next(prefix.as_bytes()).unwrap() {
            found.push(String::from_utf8(name).unwrap());
        }
        found
    }

    #[test]
    fn halving_finds_what_reading_all_finds() {
        let header = "# pack-refs with: peeled fully-peeled sorted \n";
        for count in [0, 1, 2, 3, 7, 400] {
            let names: Vec<String> = (0..count)
                .map(|n| format!("refs/issues/{n:03}{}", "x".repeat(n * 7 % 40)))
                .collect();
            for prefix in [
                "refs/",
                "refs/issues/",
                "refs/issues/05",
                "refs/issues/099",
                "refs/z",
                "a",
            ] {
                let expected: Vec<_> = names
                    .iter()
                    .filter(|name| name.starts_with(prefix))
                    .collect();
                assert_eq!(
                    found(header, &names, prefix).iter().collect::<Vec<_>>(),
                    expected
                );
                for name in names.iter().step_by(1 + count / 50) {
                    assert_eq!(found(header, &names, name), [name.as_str()]);
                }
            }
        }
    }

    #[test]
    fn a_file_that_does_not_say_sorted_is_read_as_a_whole() {
        let names = ["refs/b/2", "refs/a/1", "refs/b/1"].map(str::to_owned);
        for header in ["", "# pack-refs with: peeled \n"] {
            assert_eq!(found(header, &names, "refs/b/"), ["refs/b/2", "refs/b/1"]);
        }
    }

    #[test]
    fn a_damaged_line_is_an_error() {
        let folder = TempDir::new().unwrap();
        let file = folder.child("packed-refs");
        for text in [
            format!("{OID}\n"),
            format!("{} refs/a\n", &OID[1..]).replace('1', "g"),
            format!("{OID} refs/cut-o"),
            "x".repeat(20_000),
        ] {
            file.write_str(&text).unwrap();
            let mut packed = PackedRefs::open(file.path()).unwrap().unwrap();
            assert!(packed.next(b"refs/").is_err(), "{text:.60}");
        }
    }
}

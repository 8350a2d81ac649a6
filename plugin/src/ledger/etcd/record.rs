//! What is kept at the keys, as JSON. The cluster is not trusted: a value that
//! can't be read makes the record damaged, never a guess.

use git_claim_api::ids::IssueId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of all this that this code reads and writes.
pub const SCHEMA: u32 = 1;

/// How many of the last writes a record names.
const WRITES_KEPT: usize = 16;

/// The ledger itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    pub schema: u32,
    pub id: String,
    /// The cluster that it was made in.
    pub cluster: u64,
    /// What is added to etcd's revision to make a number in the order of
    /// tenures: those that were carried here have lower ones.
    #[serde(default)]
    pub seq_base: u64,
    /// Where it went, if it is not here any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
}

/// An issue's row, but for its tenure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub token: u64,
    pub generation: u64,
    #[serde(default)]
    pub writes: Writes,
}

/// Another name for a repository's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    pub name: String,
    #[serde(default)]
    pub writes: Writes,
}

/// The last writes by their random names, so that whoever got no answer can
/// find out whether a write was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writes(Vec<String>);

/// What can be said of a write without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    Yes,
    /// Not until now.
    No,
    CannotTell,
}

impl Writes {
    /// After one more write.
    #[must_use]
    pub fn and(&self, write: &str) -> Writes {
        let mut writes = self.0.clone();
        writes.push(write.to_owned());
        let too_many = writes.len().saturating_sub(WRITES_KEPT);
        writes.drain(..too_many);
        Writes(writes)
    }

    /// Whether `write` is among the writes; `since` is how many there were
    /// since it was tried.
    pub fn made(&self, write: &str, since: i64) -> Made {
        if self.0.iter().any(|kept| kept == write) {
            Made::Yes
        } else if usize::try_from(since).is_ok_and(|since| since <= WRITES_KEPT) {
            Made::No
        } else {
            Made::CannotTell
        }
    }
}

/// What a record of any kind has of its writes.
#[derive(Debug, Default, Deserialize)]
pub struct Witness {
    #[serde(default)]
    pub writes: Writes,
}

/// What a request began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begun {
    pub issue: IssueId,
    pub token: u64,
}

/// Where a tenure that is over stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Place {
    pub time: u64,
    pub token: u64,
}

/// A record from what is kept.
///
/// # Errors
/// What is wrong with it.
pub fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}

/// A record as it is kept.
pub fn write(record: &impl Serialize) -> Vec<u8> {
    // Records have names for keys and no other maps: they always have a form.
    serde_json::to_vec(record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_found_among_the_last_ones() {
        let mut writes = Writes::default().and("mine");
        assert_eq!(writes.made("mine", 1), Made::Yes);
        assert_eq!(writes.made("other", 1), Made::No);
        for number in 0..WRITES_KEPT {
            writes = writes.and(&number.to_string());
        }
        assert_eq!(writes.0.len(), WRITES_KEPT);
        assert_eq!(writes.made("mine", 17), Made::CannotTell);
        assert_eq!(writes.made("mine", 16), Made::No);
    }
}

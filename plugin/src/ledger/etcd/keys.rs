//! The keys of a ledger in etcd, all below its prefix.
//!
//! ```text
//! meta                                      the ledger's id and schema
//! loading                                   instead of that, while a ledger is put there: its id
//! alias/REPO                                another name for REPO below, after a rename
//! row/REPO/ISSUE                            token, generation, the last writes
//! held/REPO/ISSUE                           the tenure, until it is given back
//! live/REPO/ISSUE                           on the tenure's lease: gone when it has run out
//! ended/REPO/TIME/ISSUE/TOKEN               a tenure that is over, the newest first
//! past/REPO/ISSUE/TOKEN                     where that stands, the newest first
//! last/REPO/ISSUE/NAME/SESSION              the token of their last tenure that is over
//! request/REPO/NAME/SESSION/REQUEST         what the request began
//! branch/REPO/BRANCH                        the issue that was bound to it last
//! ```
//!
//! Parts that come from outside are written with `%xx` for all but letters,
//! digits, `.`, `_` and `-`, so that a `/` is always ours.

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};

/// The keys of one ledger.
#[derive(Debug)]
pub struct Keys {
    prefix: String,
}

/// The keys of one repository, by the name that it has in keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoKeys {
    prefix: String,
    repo: String,
}

impl Keys {
    pub fn below(prefix: &str) -> Keys {
        Keys {
            prefix: prefix.to_owned(),
        }
    }

    /// What all keys begin with.
    pub fn all(&self) -> String {
        format!("{}/", self.prefix)
    }

    pub fn meta(&self) -> String {
        format!("{}/meta", self.prefix)
    }

    /// Whose load is under way.
    pub fn loading(&self) -> String {
        format!("{}/loading", self.prefix)
    }

    /// The other name of a repository, if it has one.
    pub fn alias(&self, repo: &str) -> String {
        format!("{}/alias/{}", self.prefix, escaped(repo))
    }

    /// A repository's keys, where `alias` is its other name.
    pub fn of(&self, repo: &str, alias: Option<&str>) -> RepoKeys {
        RepoKeys {
            prefix: self.prefix.clone(),
            repo: alias.map_or_else(|| escaped(repo), str::to_owned),
        }
    }
}

impl RepoKeys {
    fn key(&self, kind: &str, rest: &str) -> String {
        format!("{}/{kind}/{}/{rest}", self.prefix, self.repo)
    }

    /// The name that the repository has in keys.
    pub fn name(&self) -> &str {
        &self.repo
    }

    /// `issue` may be the beginning of one, or empty.
    pub fn row(&self, issue: &str) -> String {
        self.key("row", issue)
    }

    pub fn held(&self, issue: &str) -> String {
        self.key("held", issue)
    }

    pub fn live(&self, issue: &str) -> String {
        self.key("live", issue)
    }

    /// What all tenures that are over begin with.
    pub fn all_ended(&self) -> String {
        self.key("ended", "")
    }

    /// `time` is a number in the order of changes.
    pub fn ended(&self, time: u64, issue: &IssueId, token: u64) -> String {
        self.key("ended", &format!("{}/{issue}/{token}", newest_first(time)))
    }

    /// The issue that a key of [`RepoKeys::ended`] is about.
    pub fn issue_of_ended(key: &str) -> Option<IssueId> {
        key.rsplit('/').nth(1)?.parse().ok()
    }

    /// What all tenures of an issue that are over begin with.
    pub fn all_past(&self, issue: &IssueId) -> String {
        self.key("past", &format!("{issue}/"))
    }

    pub fn past(&self, issue: &IssueId, token: u64) -> String {
        self.key("past", &format!("{issue}/{}", newest_first(token)))
    }

    pub fn last(&self, issue: &IssueId, name: &str, session: Option<&Session>) -> String {
        let session = session.map_or("", Session::as_str);
        self.key("last", &format!("{issue}/{}/{session}", escaped(name)))
    }

    pub fn request(&self, name: &str, session: Option<&Session>, request: &RequestId) -> String {
        let session = session.map_or("", Session::as_str);
        let request = request.as_str();
        self.key("request", &format!("{}/{session}/{request}", escaped(name)))
    }

    pub fn branch(&self, branch: &Branch) -> String {
        self.key("branch", &escaped(branch.as_str()))
    }
}

/// The last part of a key: the issue in those that end with one.
pub fn last_part(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// The part of a key that is so many before its last.
pub fn end_part(key: &str, before_last: usize) -> &str {
    key.rsplit('/').nth(before_last).unwrap_or_default()
}

/// The end of the range of all keys that begin with `prefix`, which ends in a
/// character of a key.
pub fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// etcd gives a range in the order of its keys, and all other orders cost it
/// the whole range.
fn newest_first(number: u64) -> String {
    format!("{:016x}", u64::MAX - number)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

/// What was escaped.
pub fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let (digits, behind) = escaped.split_at_checked(2).unwrap_or((escaped, ""));
        bytes.extend(u8::from_str_radix(digits, 16));
        rest = behind;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_outside_stays_one_part() {
        let keys = Keys::below("p");
        assert_eq!(keys.alias("acme/app.git"), "p/alias/acme%2fapp.git");
        assert_ne!(keys.alias("a%2fb"), keys.alias("a/b"));
        for name in ["a/b", "a%2fb", "ä b", "~x"] {
            assert_eq!(unescaped(&escaped(name)), name);
        }
        let repo = keys.of("a/b", None);
        assert_eq!(repo.row("42"), "p/row/a%2fb/42");
        let branch = "claim/42".parse().unwrap();
        assert_eq!(repo.branch(&branch), "p/branch/a%2fb/claim%2f42");
    }

    #[test]
    fn the_newest_end_comes_first() {
        let repo = Keys::below("p").of("r", None);
        let issue = "42".parse().unwrap();
        let key = repo.ended(10, &issue, 3);
        assert!(key < repo.ended(9, &issue, 2));
        assert_eq!(RepoKeys::issue_of_ended(&key), Some(issue.clone()));
        assert!(repo.past(&issue, 3) < repo.past(&issue, 2));
    }

    #[test]
    fn a_range_ends_behind_all_that_begin_so() {
        assert_eq!(end_of("p/row/r/"), b"p/row/r0");
    }
}

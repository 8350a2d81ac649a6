//! The configuration keys: one table for the programs that read them, the
//! check for unknown ones, and the manual.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the host hands to the plugin's `open`, as JSON. An unknown key is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginSettings {
    /// The ledger's file, an absolute path.
    pub ledger: PathBuf,
    /// Seconds; [`DEFAULT_MAX_TTL`] if absent.
    #[serde(default = "default_max_ttl")]
    pub max_ttl: u64,
    /// Seconds, for bound claims; [`DEFAULT_TTL`] if absent.
    #[serde(default = "default_ttl")]
    pub default_ttl: u64,
}

/// 30 days, in seconds.
pub const DEFAULT_MAX_TTL: u64 = 30 * 24 * 60 * 60;
/// 2 hours, in seconds.
pub const DEFAULT_TTL: u64 = 2 * 60 * 60;

fn default_max_ttl() -> u64 {
    DEFAULT_MAX_TTL
}

fn default_ttl() -> u64 {
    DEFAULT_TTL
}

/// Where a key is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The user's git configuration.
    Client,
    /// The server's settings file.
    Server,
    /// A repository's own config on the server, where it counts instead of the
    /// settings file.
    Repository,
}

/// One key: its name in lower case as git reports it, where it counts, and
/// what the manual says of it.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// The name as people write it.
    pub shown: &'static str,
    pub places: &'static [Place],
    pub meaning: &'static str,
}

use Place::{Client, Repository, Server};

/// Every key in the section `claim`, without those of `[claimGroup "…"]`
/// (`member`), `[claimUser "…"]` (`key`) and `[remote "…"]` (`claimUrl`).
pub const KEYS: [Key; 15] = [
    key(
        "claim.remote",
        "claim.remote",
        &[Client],
        "the remote that is asked where --remote is not given",
    ),
    key(
        "claim.timeout",
        "claim.timeout",
        &[Client],
        "how long to wait for the server; 30s unless set",
    ),
    key(
        "claim.controlpersist",
        "claim.controlPersist",
        &[Client],
        "how long a connection stays open for later calls; 60s unless set, `no` turns it off",
    ),
    key(
        "claim.plugin",
        "claim.plugin",
        &[Server],
        "absolute path of libgit_claim_plugin.so",
    ),
    key(
        "claim.reposdir",
        "claim.reposDir",
        &[Server],
        "the folder below which repositories are served",
    ),
    key(
        "claim.ledger",
        "claim.ledger",
        &[Server],
        "the ledger's file; `collab.db` in reposDir unless set",
    ),
    key(
        "claim.maxttl",
        "claim.maxTtl",
        &[Server, Repository],
        "the longest time to live that a claim may ask for; 30d unless set",
    ),
    key(
        "claim.defaultttl",
        "claim.defaultTtl",
        &[Server, Repository],
        "the time to live of a bound claim that asks for none; 2h unless set",
    ),
    key(
        "claim.read",
        "claim.read",
        &[Server, Repository],
        "who may see claims: names, @groups, `*`; several lines add up",
    ),
    key(
        "claim.write",
        "claim.write",
        &[Server, Repository],
        "who may claim",
    ),
    key(
        "claim.admin",
        "claim.admin",
        &[Server, Repository],
        "who may end another's claim",
    ),
    key(
        "claim.tracker",
        "claim.tracker",
        &[Repository],
        "where issues live: `git-issue`, `git-bug`, `beads`, `command`, `host` (the forge's own) or `none`; found out unless set",
    ),
    key(
        "claim.trackercommand",
        "claim.trackerCommand",
        &[Repository],
        "the program that answers for the tracker `command`: an absolute path, and words in front of `resolve ID` or `ready`",
    ),
    key(
        "claim.fence",
        "claim.fence",
        &[Repository],
        "what a push with a stale token meets: `on`, `off`, `warn` or `strict`",
    ),
    key(
        "claim.closetrailers",
        "claim.closeTrailers",
        &[Repository],
        "whether a commit that comes to the default branch ends the claims that it names in `Closes:`, `Fixes:` or `Fixes-Issue:`; off unless set",
    ),
];

const fn key(
    name: &'static str,
    shown: &'static str,
    places: &'static [Place],
    meaning: &'static str,
) -> Key {
    Key {
        name,
        shown,
        places,
        meaning,
    }
}

/// The key that git reports as `name`, if it counts in `place`.
pub fn find(name: &str, place: Place) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.name == name && key.places.contains(&place))
}

/// The keys of `place`, as people write them.
pub fn names(place: Place) -> impl Iterator<Item = &'static str> {
    KEYS.iter()
        .filter(move |key| key.places.contains(&place))
        .map(|key| key.shown)
}

#[cfg(test)]
mod tests {
    use super::{KEYS, Place, find};

    #[test]
    fn names_are_what_git_reports() {
        for key in &KEYS {
            assert_eq!(key.shown.to_lowercase(), key.name);
        }
    }

    #[test]
    fn a_key_counts_in_its_own_place_alone() {
        assert!(find("claim.remote", Place::Client).is_some());
        assert!(find("claim.remote", Place::Server).is_none());
        assert!(find("claim.ledger", Place::Repository).is_none());
        assert!(find("claim.write", Place::Repository).is_some());
    }
}

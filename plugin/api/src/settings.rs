//! The configuration keys: one table for the programs that read them, the
//! check for unknown ones, and the manual.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ledger::LedgerPlace;

/// What the host hands to the plugin's `open`, as JSON. An unknown key is
/// refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginSettings {
    /// An absolute path, or a place in etcd.
    pub ledger: LedgerPlace,
    /// What a ledger on etcd is reached with.
    #[serde(default, skip_serializing_if = "EtcdFiles::is_empty")]
    pub etcd: EtcdFiles,
    /// Seconds; [`DEFAULT_MAX_TTL`] if absent.
    #[serde(default = "default_max_ttl")]
    pub max_ttl: u64,
    /// Seconds, for bound claims; [`DEFAULT_TTL`] if absent.
    #[serde(default = "default_ttl")]
    pub default_ttl: u64,
}

/// The files that a cluster is reached with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdFiles {
    /// The authority that the nodes' certificates are from; with it the nodes
    /// are reached over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The client's own certificate, and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The line `name:password` for etcd's own users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<PathBuf>,
}

impl EtcdFiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == EtcdFiles::default()
    }
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

/// One key: its name, where it counts, and what the manual says of it.
#[derive(Debug)]
pub struct Key {
    /// As people write it; `<name>` stands for any subsection.
    pub name: &'static str,
    pub places: &'static [Place],
    pub meaning: &'static str,
}

impl Key {
    /// Whether git reports this key as `reported`: section and variable in
    /// lower case, a subsection as it is written.
    pub fn is(&self, reported: &str) -> bool {
        self.subsection(reported).is_some()
    }

    /// The key that git reports as `reported`, as people write it.
    pub fn written(&self, reported: &str) -> String {
        let subsection = self.subsection(reported).unwrap_or(SUBSECTION);
        self.name.replace(SUBSECTION, subsection)
    }

    /// The subsection in `reported`, if that is this key; empty where the key
    /// has none.
    fn subsection<'a>(&self, reported: &'a str) -> Option<&'a str> {
        let Some((section, variable)) = self.name.split_once(SUBSECTION) else {
            return reported.eq_ignore_ascii_case(self.name).then_some("");
        };
        let behind = reported.get(section.len()..)?;
        let end = behind.len().checked_sub(variable.len())?;
        let is_key = reported.get(..section.len())?.eq_ignore_ascii_case(section)
            && behind.get(end..)?.eq_ignore_ascii_case(variable);
        behind.get(..end).filter(|_| is_key)
    }
}

const SUBSECTION: &str = "<name>";

use Place::{Client, Repository, Server};

/// Every key that is read.
pub const KEYS: [Key; 25] = [
    key(
        "claim.remote",
        &[Client],
        "the remote that is asked where `--remote` is not given",
    ),
    key(
        "claim.timeout",
        &[Client],
        "how long to wait for the server; 30s unless set",
    ),
    key(
        "claim.controlPersist",
        &[Client],
        "how long a connection stays open for later calls; 60s unless set, `no` turns it off",
    ),
    key(
        "remote.<name>.claimUrl",
        &[Client],
        "the server that holds this remote's claims, if it is not the one that is pushed to",
    ),
    key(
        "claim.reposDir",
        &[Server],
        "the folder below which repositories are served",
    ),
    key(
        "claim.ledger",
        &[Server],
        "the ledger's file, `collab.db` in reposDir unless set; or its place in an etcd cluster, `etcd://host:2379,host:2379/prefix`",
    ),
    key(
        "claim.etcdCa",
        &[Server],
        "the certificates that etcd's nodes are known by, in PEM; without it they are reached without TLS",
    ),
    key(
        "claim.etcdCert",
        &[Server],
        "the server's own certificate for etcd, in PEM",
    ),
    key(
        "claim.etcdKey",
        &[Server],
        "the key that goes with it, in PEM and nobody else's to read",
    ),
    key(
        "claim.etcdPassword",
        &[Server],
        "a file with one line `name:password` for etcd's users, nobody else's to read",
    ),
    key(
        "claim.plugin",
        &[Server],
        "absolute path of `libgit_claim_plugin.so`; found beside the program unless set",
    ),
    key(
        "claim.maxTtl",
        &[Server, Repository],
        "the longest time to live that a claim may ask for; 30d unless set",
    ),
    key(
        "claim.defaultTtl",
        &[Server, Repository],
        "the time to live of a bound claim that asks for none; 2h unless set",
    ),
    key(
        "claim.read",
        &[Server, Repository],
        "who may see claims: names, `@groups`, `*`; several lines add up",
    ),
    key("claim.write", &[Server, Repository], "who may claim"),
    key(
        "claim.admin",
        &[Server, Repository],
        "who may end another's claim",
    ),
    key(
        "claim.tracker",
        &[Repository],
        "where issues live: `git-issue`, `git-bug`, `beads`, `command`, `host` (the forge's own) or `none`; found out unless set",
    ),
    key(
        "claim.trackerCommand",
        &[Repository],
        "the program that answers for the tracker `command`: an absolute path, and words in front of `resolve ID` or `ready`",
    ),
    key(
        "claim.fence",
        &[Repository],
        "what a push with a stale token meets: `on`, `off`, `warn` or `strict`; on unless set",
    ),
    key(
        "claim.closeTrailers",
        &[Repository],
        "whether a commit that comes to the default branch ends the claims that it names in `Closes:`, `Fixes:` or `Fixes-Issue:`; off unless set",
    ),
    key(
        "claimGroup.<name>.member",
        &[Server],
        "who is in the group `@<name>`: names; several lines add up",
    ),
    key(
        "claimUser.<name>.key",
        &[Server],
        "the fingerprint of a key of this person's, as `ssh-keygen -lf` shows it; behind that of a CA `:` and a certificate's key id",
    ),
    key(
        "claimForgejo.url",
        &[Server],
        "the forge's `LOCAL_ROOT_URL`: `http://`, and on this machine, as tokens go there",
    ),
    key(
        "claimForgejo.internalTokenFile",
        &[Server],
        "holds the forge's `INTERNAL_TOKEN`; where `INTERNAL_TOKEN_URI` is set, its file",
    ),
    key(
        "claimForgejo.apiTokenFile",
        &[Server],
        "holds the API token; without it issues are not the forge's",
    ),
];

const fn key(name: &'static str, places: &'static [Place], meaning: &'static str) -> Key {
    Key {
        name,
        places,
        meaning,
    }
}

/// The key that git reports as `reported`, if it counts in `place`.
pub fn find(reported: &str, place: Place) -> Option<&'static Key> {
    of(place).find(|key| key.is(reported))
}

/// The keys of `place`.
pub fn of(place: Place) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.places.contains(&place))
}

#[cfg(test)]
mod tests {
    use super::{KEYS, Place, find};

    #[test]
    fn a_key_is_known_by_what_git_reports() {
        for (reported, name) in [
            ("claim.maxttl", Some("claim.maxTtl")),
            ("claim.maxttls", None),
            ("claimgroup.devs.member", Some("claimGroup.<name>.member")),
            ("claimuser.Ann.B.key", Some("claimUser.<name>.key")),
            ("claimuser.é.key", Some("claimUser.<name>.key")),
            ("claimgroup.member", None),
            ("claimgroup.devs.members", None),
            ("claim", None),
        ] {
            let found = KEYS.iter().find(|key| key.is(reported));
            assert_eq!(found.map(|key| key.name), name, "{reported}");
        }
    }

    #[test]
    fn a_key_is_shown_as_it_is_written() {
        for (reported, written) in [
            ("claim.maxttl", "claim.maxTtl"),
            ("claimgroup.devs.member", "claimGroup.devs.member"),
        ] {
            let key = find(reported, Place::Server).unwrap();
            assert_eq!(key.written(reported), written);
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

//! Where a ledger is: a file on the server, or a place in an etcd cluster.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::Invalid;

/// What the name of a ledger on etcd begins with.
const SCHEME: &str = "etcd://";
/// etcd's own port for clients.
const PORT: u16 = 2379;

/// The setting `claim.ledger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LedgerPlace {
    File(PathBuf),
    Etcd(EtcdPlace),
}

/// `etcd://host:2379,host:2379/prefix`: the nodes of one cluster, and what the
/// keys of the ledger begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdPlace {
    /// `host:port` each, at least one.
    pub nodes: Vec<String>,
    pub prefix: String,
}

impl LedgerPlace {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            LedgerPlace::File(path) => Some(path),
            LedgerPlace::Etcd(_) => None,
        }
    }
}

impl FromStr for LedgerPlace {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.strip_prefix(SCHEME) {
            Some(place) => place.parse().map(LedgerPlace::Etcd),
            None => Ok(LedgerPlace::File(PathBuf::from(text))),
        }
    }
}

impl FromStr for EtcdPlace {
    type Err = Invalid;

    /// What stands behind `etcd://`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = |why| Invalid::new("a place in etcd (host:2379,host:2379/prefix)", text, why);
        let (nodes, prefix) = text
            .split_once('/')
            .ok_or_else(|| invalid("no prefix for the ledger's keys follows"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let segments = || prefix.split('/');
        if segments().any(|part| part.is_empty() || !part.chars().all(plain)) {
            return Err(invalid(
                "the prefix has letters, digits, `.`, `_`, `-`, and single `/` between them",
            ));
        }
        let nodes: Option<Vec<String>> = nodes.split(',').map(node).collect();
        Ok(EtcdPlace {
            nodes: nodes.ok_or_else(|| invalid("a node is host:port"))?,
            prefix: prefix.to_owned(),
        })
    }
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`, always with a port.
fn node(text: &str) -> Option<String> {
    let after_address = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[after_address..].rsplit_once(':') {
        Some((rest, port)) => (&text[..after_address + rest.len()], port.parse().ok()?),
        None => (text, PORT),
    };
    let bare = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            !host.is_empty() && !host.starts_with('-') && host.chars().all(plain)
        }
    };
    is_host.then(|| format!("{host}:{port}"))
}

impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.nodes.join(","), self.prefix)
    }
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerPlace::File(path) => path.display().fmt(f),
            LedgerPlace::Etcd(place) => place.fmt(f),
        }
    }
}

impl TryFrom<String> for LedgerPlace {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

impl From<LedgerPlace> for String {
    fn from(place: LedgerPlace) -> String {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_etcd_has_nodes_and_a_prefix() {
        for (text, shown) in [
            ("etcd://a:1,b/claims", "etcd://a:1,b:2379/claims"),
            ("etcd://[::1]/x/y", "etcd://[::1]:2379/x/y"),
            ("etcd://[::1]:7,10.0.0.1:8/x", "etcd://[::1]:7,10.0.0.1:8/x"),
        ] {
            let place: LedgerPlace = text.parse().unwrap();
            assert!(matches!(place, LedgerPlace::Etcd(_)));
            assert_eq!(place.to_string(), shown);
        }
        let file: LedgerPlace = "/srv/git/collab.db".parse().unwrap();
        assert_eq!(file.file(), Some(Path::new("/srv/git/collab.db")));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "etcd://",
            "etcd://a:2379",
            "etcd://a:2379/",
            "etcd:///x",
            "etcd://a,,b/x",
            "etcd://a:b/x",
            "etcd://::1/x",
            "etcd://a/x//y",
            "etcd://a/x y",
            "etcd://u:p@a/x",
        ] {
            assert!(text.parse::<LedgerPlace>().is_err(), "{text}");
        }
    }
}

//! A repository's own claim settings, as far as the loader is concerned: who
//! may do what. The rest of them is the plugin's to read.

use std::path::Path;

use git_claim_api::settings::{self as keys, Place};

use crate::access::{Rules, Who};

/// What a repository's config says about access.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RepoConfig {
    pub rules: Rules,
    /// `claim.*` keys that mean nothing in a repository.
    pub unknown: Vec<String>,
}

impl RepoConfig {
    /// Reads the config of the repository whose git directory is `path`.
    ///
    /// # Errors
    /// It cannot be read; then nobody should get in by what it might have said.
    pub fn read(path: &Path) -> Result<RepoConfig, git2::Error> {
        RepoConfig::read_file(&path.join("config"))
    }

    /// Reads `file`, whatever it is the config of.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_file(file: &Path) -> Result<RepoConfig, git2::Error> {
        let config = git2::Config::open(file)?;
        let mut read = RepoConfig::default();
        let mut entries = config.entries(None)?;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let key = String::from_utf8_lossy(entry.name_bytes());
            if !key.starts_with("claim.") {
                continue;
            }
            if let Some(list) = read.rules.list_mut(&key) {
                let value = if entry.has_value() {
                    entry.value()?
                } else {
                    ""
                };
                list.get_or_insert_default().extend(Who::parse_line(value));
            } else if keys::find(&key, Place::Repository).is_none() {
                read.unknown.push(key.into_owned());
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;
    use git_claim_api::access::Access;

    use super::*;

    fn read(text: &str) -> Result<RepoConfig, git2::Error> {
        let folder = TempDir::new().unwrap();
        folder.child("config").write_str(text).unwrap();
        RepoConfig::read(folder.path())
    }

    #[test]
    fn access_is_read_and_unknown_keys_are_kept_for_a_warning() {
        let config = read(
            "[core]\nbare = true\n[claim]\nwrite = ann\nwrite = bob\nadmin =\n\
             tracker = none\nwriet = eve\nledger = /tmp/x\n",
        )
        .unwrap();
        assert_eq!(config.unknown, ["claim.wriet", "claim.ledger"]);
        for (name, access) in [
            ("ann", Some(Access::Write)),
            ("bob", Some(Access::Write)),
            ("eve", None),
        ] {
            let highest = config.rules.highest(name, &Default::default());
            assert_eq!(highest, access, "{name}");
        }
        assert_eq!(config.rules.read, None);
        assert_eq!(config.rules.admin, Some(Vec::new()));
    }

    #[test]
    fn a_broken_config_is_an_error() {
        assert!(read("[claim\nwrite = *").is_err());
    }
}

//! The repository behind a request: its own settings, its branches, and the
//! objects that a tracker reads. Opened when first needed, through libgit2.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use git_claim_api::duration::parse_ttl;
use git_claim_api::ids::{Branch, Oid, Ttl};

/// Why something in the repository can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RepositoryError {
    #[error("the repository's {key} is '{value}': {why}")]
    Setting {
        key: &'static str,
        value: String,
        why: String,
    },
    #[error("the repository cannot be read: {0}")]
    Git(String),
}

impl From<git2::Error> for RepositoryError {
    fn from(error: git2::Error) -> Self {
        RepositoryError::Git(error.message().to_owned())
    }
}

/// A repository on this disk.
pub struct Repository {
    path: PathBuf,
    opened: OnceCell<git2::Repository>,
}

/// What a repository's own config says of claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepositorySettings {
    pub tracker: Option<String>,
    /// The program that answers for the tracker `command`.
    pub tracker_command: Option<String>,
    pub max_ttl: Option<Ttl>,
    pub default_ttl: Option<Ttl>,
}

impl Repository {
    /// The repository whose git directory is `path`; nothing is opened yet.
    pub fn at(path: PathBuf) -> Repository {
        Repository {
            path,
            opened: OnceCell::new(),
        }
    }

    /// Its git directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The repository through libgit2.
    ///
    /// # Errors
    /// [`RepositoryError::Git`], for formats too that libgit2 doesn't know
    /// (SHA-256, reftable).
    pub fn git(&self) -> Result<&git2::Repository, RepositoryError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = git2::Repository::open_bare(&self.path)?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// The settings in the repository's own config file.
    ///
    /// # Errors
    /// A value that is none.
    pub fn settings(&self) -> Result<RepositorySettings, RepositoryError> {
        let config = self.path.join("config");
        if !config.exists() {
            return Ok(RepositorySettings::default());
        }
        let config = git2::Config::open(&config)?;
        Ok(RepositorySettings {
            tracker: text(&config, "claim.tracker")?,
            tracker_command: text(&config, "claim.trackerCommand")?,
            max_ttl: ttl(&config, "claim.maxTtl")?,
            default_ttl: ttl(&config, "claim.defaultTtl")?,
        })
    }

    /// Whether git on the server takes push options for this repository.
    ///
    /// # Errors
    /// The configuration can't be read.
    pub fn takes_push_options(&self) -> Result<bool, RepositoryError> {
        match self
            .git()?
            .config()?
            .get_bool("receive.advertisePushOptions")
        {
            Ok(takes) => Ok(takes),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether `branch` is the default branch: the one that HEAD names.
    ///
    /// # Errors
    /// The repository can't be read.
    pub fn is_default_branch(&self, branch: &Branch) -> Result<bool, RepositoryError> {
        let head = self.git()?.find_reference("HEAD")?;
        let target = head.symbolic_target().ok().flatten();
        Ok(target.and_then(|name| name.strip_prefix("refs/heads/")) == Some(branch.as_str()))
    }

    /// Where `branch` stands.
    ///
    /// # Errors
    /// The repository can't be read.
    pub fn tip(&self, branch: &Branch) -> Result<Option<Oid>, RepositoryError> {
        match self.git()?.refname_to_id(&format!("refs/heads/{branch}")) {
            Ok(oid) => Ok(oid.to_string().parse().ok()),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn text(config: &git2::Config, key: &'static str) -> Result<Option<String>, RepositoryError> {
    match config.get_string(key) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn ttl(config: &git2::Config, key: &'static str) -> Result<Option<Ttl>, RepositoryError> {
    let Some(value) = text(config, key)? else {
        return Ok(None);
    };
    match parse_ttl(&value) {
        Ok(ttl) => Ok(Some(ttl)),
        Err(error) => Err(RepositoryError::Setting {
            key,
            value,
            why: error.to_string(),
        }),
    }
}

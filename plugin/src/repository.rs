//! The repository behind a request: its own settings, its branches, and the
//! objects that a tracker reads. Opened when first needed, through libgit2.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use git_claim_api::duration::parse_ttl;
use git_claim_api::ids::{Branch, Invalid, Oid, Ttl};
use git_claim_api::push::Fence;

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

/// What a repository's own config says of pushes. Apart from the rest, so that
/// a mistake in one of them is in nobody else's way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PushSettings {
    pub fence: Fence,
    /// Whether trailers of commits on the default branch end claims.
    pub close_trailers: bool,
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
        let Some(config) = self.config()? else {
            return Ok(RepositorySettings::default());
        };
        Ok(RepositorySettings {
            tracker: text(&config, "claim.tracker")?,
            tracker_command: text(&config, "claim.trackerCommand")?,
            max_ttl: ttl(&config, "claim.maxTtl")?,
            default_ttl: ttl(&config, "claim.defaultTtl")?,
        })
    }

    /// The settings for pushes in the repository's own config file.
    ///
    /// # Errors
    /// A value that is none.
    pub fn push_settings(&self) -> Result<PushSettings, RepositoryError> {
        let Some(config) = self.config()? else {
            return Ok(PushSettings::default());
        };
        Ok(PushSettings {
            fence: fence(&config)?,
            close_trailers: switch(&config, "claim.closeTrailers")?,
        })
    }

    fn config(&self) -> Result<Option<git2::Config>, RepositoryError> {
        let config = self.path.join("config");
        if !config.exists() {
            return Ok(None);
        }
        Ok(Some(git2::Config::open(&config)?))
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

    /// The default branch: the one that HEAD names, be it there or not.
    ///
    /// # Errors
    /// The repository can't be read.
    pub fn default_branch(&self) -> Result<Option<String>, RepositoryError> {
        let head = self.git()?.find_reference("HEAD")?;
        let target = head.symbolic_target().ok().flatten();
        let branch = target.and_then(|name| name.strip_prefix("refs/heads/"));
        Ok(branch.map(str::to_owned))
    }

    /// Whether `branch` is the default branch.
    ///
    /// # Errors
    /// The repository can't be read.
    pub fn is_default_branch(&self, branch: &Branch) -> Result<bool, RepositoryError> {
        Ok(self.default_branch()?.as_deref() == Some(branch.as_str()))
    }

    /// Where the default branch stands, if it is there.
    ///
    /// # Errors
    /// The repository can't be read.
    pub fn head(&self) -> Result<Option<Oid>, RepositoryError> {
        match self.git()?.refname_to_id("HEAD") {
            Ok(oid) => Ok(oid.to_string().parse().ok()),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
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

/// A setting that is yes or no, as git reads one; no unless set.
fn switch(config: &git2::Config, key: &'static str) -> Result<bool, RepositoryError> {
    let Some(value) = text(config, key)? else {
        return Ok(false);
    };
    git2::Config::parse_bool(&value).map_err(|error| RepositoryError::Setting {
        key,
        value,
        why: error.message().to_owned(),
    })
}

fn fence(config: &git2::Config) -> Result<Fence, RepositoryError> {
    const KEY: &str = "claim.fence";

    let Some(value) = text(config, KEY)? else {
        return Ok(Fence::default());
    };
    value
        .parse()
        .map_err(|error: Invalid| RepositoryError::Setting {
            key: KEY,
            value,
            why: error.to_string(),
        })
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

//! Which repository a hook runs in, and the ledger that holds its claims.

use std::path::{Path, PathBuf};

use git_claim_api::access::Access;
use git_claim_api::ledger::LedgerPlace;

use super::Kind;
use crate::forgejo;
use crate::host::Host;
use crate::local;
use crate::report::Failure;
use crate::settings::Settings;
use crate::site;

/// The one repository of a push, where the host itself asks.
#[derive(Debug)]
pub struct Place {
    pub settings: Settings,
    pub ledger: LedgerPlace,
    /// Its permanent id.
    pub id: String,
    path: PathBuf,
}

impl Place {
    /// The repository whose git directory has the real path `git_dir`.
    ///
    /// # Errors
    /// The settings cannot be used, or it is not served by them.
    pub fn find(kind: Kind, config: Option<&Path>, git_dir: &Path) -> Result<Place, Failure> {
        let path = git_dir.to_owned();
        if kind == Kind::Local {
            let settings = Settings::find(config).map_err(Failure::not_now)?;
            let settings = settings.unwrap_or_default();
            let (id, ledger) = local::id_and_ledger(git_dir, &settings)?;
            return Ok(Place {
                settings,
                ledger,
                id,
                path,
            });
        }
        let settings = Settings::load(config).map_err(Failure::not_now)?;
        let id = match kind {
            Kind::Forgejo => forgejo::repo_of_hook(),
            _ => site::repos(&settings)?.id_of(git_dir),
        };
        let id = id.ok_or_else(|| {
            Failure::not_now(format!(
                "the settings do not serve the repository {}",
                git_dir.display()
            ))
        })?;
        Ok(Place {
            ledger: settings.ledger().map_err(Failure::not_now)?,
            settings,
            id,
            path,
        })
    }
}

impl Host for Place {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        (name == self.id).then(|| self.id.clone())
    }

    fn authorize(&self, repo_id: &str, _access: Access) -> bool {
        repo_id == self.id
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        (repo_id == self.id).then(|| self.path.clone())
    }
}

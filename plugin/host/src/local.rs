//! A repository on this very machine: what the client runs for a local path or
//! a `file://` URL, as the person who claims.
//!
//! There is no forge: the principal is the login, and the file system says what
//! it may do.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use git_claim_api::VERB;
use git_claim_api::access::Access;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::verb::Request;
use git2::{ErrorCode, Repository, RepositoryOpenFlags};
use rustix::fs::{AtFlags, CWD};
use rustix::process::geteuid;

use crate::host::Host;
use crate::login;
use crate::openssh::ORIGINAL_COMMAND;
use crate::post_claim;
use crate::report::Failure;
use crate::repos::{Repos, candidates, valid_id};
use crate::request::Job;
use crate::settings::{LEDGER_FILE, Settings};

/// Serves one request, which the client has put where sshd would.
///
/// # Errors
/// It cannot be served; nothing was printed.
pub fn run(config: Option<&Path>) -> Result<u8, Failure> {
    let command = std::env::var_os(ORIGINAL_COMMAND).ok_or_else(|| {
        Failure::refused(format!(
            "no request: {ORIGINAL_COMMAND} holds the `{VERB} …` to serve"
        ))
    })?;
    let request = Request::parse(command.as_bytes()).map_err(Failure::refused)?;
    let settings = Settings::find(config)
        .map_err(Failure::not_now)?
        .unwrap_or_default();
    let place = match request.repo() {
        Some(repo) => Place::find(repo.as_str(), &settings)?,
        None => Place::nowhere(&settings)?,
    };
    let job = Job {
        settings: &settings,
        ledger: place.ledger.clone(),
        command: command.as_bytes(),
        user: &format!("local:{}", login::name()),
        key: &format!("local:{}", geteuid().as_raw()),
        of_host: false,
    };
    job.run(&place)
}

/// The id and the ledger of the repository whose git directory has the real path
/// `git_dir`, behind a push to it.
///
/// # Errors
/// As for a request.
pub fn id_and_ledger(
    git_dir: &Path,
    settings: &Settings,
) -> Result<(String, LedgerPlace), Failure> {
    let name = git_dir.to_string_lossy();
    let place = Place::find(&name, settings)?;
    match place.repo {
        Some(repo) => Ok((repo.id, place.ledger)),
        None => Err(Failure::repository_not_found()),
    }
}

/// The one repository of a request, and the ledger that holds its claims.
#[derive(Debug)]
pub struct Place {
    pub ledger: LedgerPlace,
    repo: Option<LocalRepo>,
}

#[derive(Debug)]
struct LocalRepo {
    /// As the request spells it.
    name: String,
    id: String,
    /// The git directory that all worktrees share, its real path.
    path: PathBuf,
}

impl Place {
    /// The repository that `name` is the path of.
    ///
    /// # Errors
    /// There is none, or nobody can claim in it.
    pub fn find(name: &str, settings: &Settings) -> Result<Place, Failure> {
        let path = open(Path::new(name))?;
        let repos = served(settings)?;
        let (id, ledger) = match repos.and_then(|repos| repos.id_of(&path)) {
            // Never a second ledger beside the one that the site has.
            Some(id) => (id, settings.ledger().map_err(Failure::not_now)?),
            None => (
                path.to_string_lossy().into_owned(),
                LedgerPlace::File(path.join(LEDGER_FILE)),
            ),
        };
        if !valid_id(&id) || path.to_str().is_none() {
            return Err(Failure::refused(format!(
                "{}: the path is no plain text of at most 255 bytes, and claims are kept under it",
                path.display()
            )));
        }
        Ok(Place {
            ledger,
            repo: Some(LocalRepo {
                name: name.to_owned(),
                id,
                path,
            }),
        })
    }

    /// For a request about no repository: the site's ledger is all there is.
    fn nowhere(settings: &Settings) -> Result<Place, Failure> {
        let ledger = settings.ledger().map_err(|_| {
            Failure::refused("name a repository: on this machine each has a ledger of its own")
        })?;
        Ok(Place { ledger, repo: None })
    }

    /// Who can write the ledger's file, or, where it is none, the repository.
    fn may_claim(&self, repo: &LocalRepo) -> bool {
        match self.ledger.file() {
            Some(file) => may_write(file),
            None => may(
                &repo.path,
                rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
            ),
        }
    }

    /// The repository's id and its git directory.
    pub fn found(&self) -> Option<(&str, &Path)> {
        let repo = self.repo.as_ref()?;
        Some((&repo.id, &repo.path))
    }

    fn repo(&self, id: &str) -> Option<&LocalRepo> {
        self.repo.as_ref().filter(|repo| repo.id == id)
    }
}

impl Host for Place {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        let repo = self.repo.as_ref().filter(|repo| repo.name == name)?;
        Some(repo.id.clone())
    }

    fn authorize(&self, repo_id: &str, access: Access) -> bool {
        let Some(repo) = self.repo(repo_id) else {
            return false;
        };
        let readable = may(
            &repo.path,
            rustix::fs::Access::READ_OK | rustix::fs::Access::EXEC_OK,
        );
        readable
            && match access {
                Access::Read => true,
                Access::Write => self.may_claim(repo),
                Access::Admin => self.may_claim(repo) && owns(&repo.path),
            }
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        Some(self.repo(repo_id)?.path.clone())
    }

    fn event(&self, repo_id: &str, json: &str) {
        // What runs programs counts only in a repository of one's own.
        if let Some(repo) = self.repo(repo_id).filter(|repo| owns(&repo.path)) {
            post_claim::tell(&repo.path, json);
        }
    }
}

/// The folder of repositories of this machine's site, if it has one.
fn served(settings: &Settings) -> Result<Option<Repos>, Failure> {
    let Some(repos_dir) = &settings.repos_dir else {
        return Ok(None);
    };
    match Repos::new(repos_dir) {
        Ok(repos) => Ok(Some(repos)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // Whether the repository lies below it can't be told then.
        Err(error) => Err(Failure::not_now(format!(
            "claim.reposDir: {}: {error}",
            repos_dir.display()
        ))),
    }
}

/// The real path of the git directory of the repository at `path`, found as git
/// finds it for a local remote, and by git's `safe.directory` rule: nothing of a
/// repository that somebody else owns is read without the person's word.
pub fn open(path: &Path) -> Result<PathBuf, Failure> {
    let name = path.to_str().ok_or_else(Failure::repository_not_found)?;
    for candidate in candidates(name.trim_end_matches('/')) {
        let found = match open_exactly(Path::new(&candidate)) {
            Ok(found) => found,
            Err(error) if error.code() == ErrorCode::NotFound => continue,
            Err(error) => return Err(refused(&candidate, &error)),
        };
        // A worktree's own folder may be one's own while the repository behind
        // it is somebody else's.
        let shared = found
            .commondir()
            .canonicalize()
            .map_err(|_| Failure::repository_not_found())?;
        return match open_exactly(&shared) {
            Ok(_) => Ok(shared),
            Err(error) => Err(refused(&shared.to_string_lossy(), &error)),
        };
    }
    Err(Failure::repository_not_found())
}

fn open_exactly(path: &Path) -> Result<Repository, git2::Error> {
    let flags = RepositoryOpenFlags::NO_SEARCH | RepositoryOpenFlags::NO_DOTGIT;
    let none: [&Path; 0] = [];
    Repository::open_ext(path, flags, none)
}

fn refused(path: &str, error: &git2::Error) -> Failure {
    if error.code() != ErrorCode::Owner {
        return Failure::refused(format!("{path}: {}", error.message()));
    }
    Failure::refused(format!("{path}: the repository belongs to another user")).hint(format!(
        "if you trust it: git config --global --add safe.directory {path}"
    ))
}

fn may(path: &Path, access: rustix::fs::Access) -> bool {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

/// Whether claims can be written into `ledger`: SQLite also makes files beside
/// it.
fn may_write(ledger: &Path) -> bool {
    let writable = |path: &Path| may(path, rustix::fs::Access::WRITE_OK);
    ledger.parent().is_some_and(writable) && (!ledger.exists() || writable(ledger))
}

/// Whether the caller owns what is at `path`, or is root, to whom the file
/// system denies nothing.
fn owns(path: &Path) -> bool {
    let caller = geteuid();
    caller.is_root() || path.metadata().is_ok_and(|of| of.uid() == caller.as_raw())
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    /// A bare repository, one with a worktree of its own, and a linked one.
    fn repositories() -> TempDir {
        let folder = TempDir::new().unwrap();
        let at = |path: &str| folder.child(path).path().to_owned();
        Repository::init_bare(at("bare.git")).unwrap();
        let plain = Repository::init(at("plain")).unwrap();
        let signature = git2::Signature::now("t", "t@example.org").unwrap();
        let tree = plain.treebuilder(None).unwrap().write().unwrap();
        let tree = plain.find_tree(tree).unwrap();
        plain
            .commit(Some("HEAD"), &signature, &signature, "one", &tree, &[])
            .unwrap();
        plain.worktree("linked", &at("linked"), None).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        folder
    }

    #[test]
    fn every_spelling_is_the_shared_git_directory() {
        let folder = repositories();
        let root = folder.path().canonicalize().unwrap();
        for (name, git_directory) in [
            ("bare.git", "bare.git"),
            ("bare", "bare.git"),
            ("bare.git/", "bare.git"),
            ("empty/../bare.git", "bare.git"),
            ("plain", "plain/.git"),
            ("plain/.git", "plain/.git"),
            ("linked", "plain/.git"),
        ] {
            let name = folder.path().join(name).display().to_string();
            let place = Place::find(&name, &Settings::default()).unwrap();
            let path = root.join(git_directory);
            assert_eq!(
                place.ledger.file(),
                Some(&*path.join("collab.db")),
                "{name}"
            );
            let id = place.resolve_repo(&name).unwrap();
            assert_eq!(id, path.display().to_string(), "{name}");
            assert_eq!(place.repo_path(&id), Some(path), "{name}");
        }
    }

    #[test]
    fn what_is_no_repository_is_not_found() {
        let folder = repositories();
        for name in ["empty", "none", "plain/.git/objects", "", "bare.git/HEAD"] {
            let name = folder.path().join(name).display().to_string();
            let refused = Place::find(&name, &Settings::default()).unwrap_err();
            assert_eq!(refused, Failure::repository_not_found(), "{name}");
        }
    }

    #[test]
    fn a_repository_of_the_site_has_the_sites_ledger_and_id() {
        let folder = repositories();
        let name = folder.path().join("bare").display().to_string();
        let settings = Settings {
            repos_dir: Some(folder.path().to_owned()),
            ..Settings::default()
        };
        let place = Place::find(&name, &settings).unwrap();
        assert_eq!(place.resolve_repo(&name).as_deref(), Some("bare.git"));
        assert_eq!(place.ledger.file(), Some(&*folder.path().join("collab.db")));

        let elsewhere = TempDir::new().unwrap();
        let settings = Settings {
            repos_dir: Some(elsewhere.path().to_owned()),
            ..Settings::default()
        };
        let place = Place::find(&name, &settings).unwrap();
        assert!(place.ledger.file().unwrap().ends_with("bare.git/collab.db"));
    }

    #[test]
    fn ones_own_repository_grants_everything_and_another_id_nothing() {
        let folder = repositories();
        let name = folder.path().join("bare.git").display().to_string();
        let place = Place::find(&name, &Settings::default()).unwrap();
        let id = place.resolve_repo(&name).unwrap();
        for access in [Access::Read, Access::Write, Access::Admin] {
            assert!(place.authorize(&id, access), "{access:?}");
            assert!(!place.authorize("other.git", access), "{access:?}");
        }
    }
}

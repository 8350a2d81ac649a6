//! The answers of a forge that is nothing but a settings file and a folder of
//! repositories.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use git_claim_api::access::Access;

use crate::access::Rules;
use crate::host::Host;
use crate::log::{Level, log};
use crate::principal::{Name, Principal};
use crate::repo_config::RepoConfig;
use crate::report::Failure;
use crate::repos::{Repo, Repos};
use crate::settings::Settings;

/// Opens the folder of repositories that `settings` name.
///
/// # Errors
/// It is not set, or not there.
pub fn repos(settings: &Settings) -> Result<Repos, Failure> {
    let repos_dir = settings.repos_dir().map_err(Failure::set_up_wrongly)?;
    Repos::new(repos_dir).map_err(|reason| {
        Failure::set_up_wrongly(format!("claim.reposDir: {}: {reason}", repos_dir.display()))
    })
}

/// The host's side of one request.
#[derive(Debug)]
pub struct Site<'a> {
    settings: &'a Settings,
    repos: Repos,
    /// Whose rights count; empty for nobody, whom no list but `*` includes.
    name: &'a str,
    /// The repository that was asked about last: the plugin asks several times
    /// about one.
    last: RefCell<Option<Rc<Known>>>,
}

#[derive(Debug)]
struct Known {
    repo: Repo,
    /// The most that this one may do there, once somebody asks.
    highest: OnceCell<Option<Access>>,
}

impl<'a> Site<'a> {
    /// The site of `settings` as `principal` may see it.
    ///
    /// # Errors
    /// As [`repos`].
    pub fn new(settings: &'a Settings, principal: &'a Principal) -> Result<Self, Failure> {
        Site::of(settings, principal.name.as_str())
    }

    /// The same for somebody who looks at a page, or for nobody in particular.
    ///
    /// # Errors
    /// As [`repos`].
    pub fn for_viewer(settings: &'a Settings, viewer: Option<&'a Name>) -> Result<Self, Failure> {
        Site::of(settings, viewer.map_or("", Name::as_str))
    }

    fn of(settings: &'a Settings, name: &'a str) -> Result<Self, Failure> {
        Ok(Site {
            settings,
            repos: repos(settings)?,
            name,
            last: RefCell::new(None),
        })
    }

    /// The repository `id`, as it was found when it was first asked about.
    fn known(&self, id: &str) -> Option<Rc<Known>> {
        if let Some(last) = &*self.last.borrow()
            && last.repo.id == id
        {
            return Some(Rc::clone(last));
        }
        Some(self.keep(self.repos.by_id(id)?))
    }

    fn keep(&self, repo: Repo) -> Rc<Known> {
        let known = Rc::new(Known {
            repo,
            highest: OnceCell::new(),
        });
        *self.last.borrow_mut() = Some(Rc::clone(&known));
        known
    }

    /// The most that this one may do in the repository `id`.
    fn highest(&self, id: &str) -> Option<Access> {
        let known = self.known(id)?;
        *known.highest.get_or_init(|| {
            let rules = rules(self.settings, &known.repo)?;
            rules.highest(self.name, &self.settings.groups)
        })
    }
}

/// The rules of one repository; `None` if its config cannot be read.
fn rules(settings: &Settings, repo: &Repo) -> Option<Rules> {
    let id = &repo.id;
    let found = repo.found();
    let own = match RepoConfig::read(&found) {
        Ok(own) => own,
        Err(error) => {
            let why = error
                .message()
                .replace(&*found.to_string_lossy(), &repo.path.to_string_lossy());
            let line = format!("{id}: config: {why}; nobody gets in");
            log(Level::Error, &line);
            return None;
        }
    };
    for key in &own.unknown {
        log(Level::Warn, &format!("{id}: unknown key {key} is ignored"));
    }
    if let Some(group) = settings.unknown_group(&own.rules) {
        log(Level::Warn, &format!("{id}: there is no group @{group}"));
    }
    Some(own.rules.or(&settings.rules))
}

impl Host for Site<'_> {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        // A new question: on a connection that lasts, rights may have changed.
        *self.last.borrow_mut() = None;
        match self.repos.resolve(name) {
            Some(repo) => Some(self.keep(repo).repo.id.clone()),
            None => {
                // As much work as a refusal takes, whose time would tell else that
                // there is something to refuse.
                let _ = RepoConfig::read_file(&self.settings.path);
                None
            }
        }
    }

    fn authorize(&self, repo_id: &str, access: Access) -> bool {
        self.highest(repo_id).is_some_and(|most| access <= most)
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        Some(self.known(repo_id)?.repo.path.clone())
    }
}

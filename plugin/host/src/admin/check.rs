//! `git-claim-server check`: what is wrong with a setup, where everyone else
//! reads "repository not found". One line for each thing that was looked at.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use git_claim_api::abi::GCLAIM_ENTRY;
use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::reply::{HostReply, WhoamiReply};
use git_claim_api::verb::Request;

use super::{AdminHost, ask_at, check_user, say, setup};
use crate::abi::Plugin;
use crate::access::Rules;
use crate::forgejo::api::Api;
use crate::gitolite;
use crate::hook::Kind;
use crate::host::Host;
use crate::local;
use crate::plugin_file::PluginFile;
use crate::principal::Name;
use crate::repo_config::RepoConfig;
use crate::report::{Failure, NAME_SETTINGS_OR_NONE};
use crate::repos::{Repo, Repos};
use crate::request;
use crate::settings::{BadSettings, Settings};
use crate::site;

/// Looks at the setup, at `repo` and at what `name` may do there, and gives 1
/// if anything is wrong.
pub fn run(kind: Kind, config: Option<&Path>, repo: Option<&str>, name: Option<&Name>) -> u8 {
    let mut check = Check {
        kind,
        has_problem: false,
    };
    check.everything(config, repo, name);
    let exit = if check.has_problem {
        Exit::Error
    } else {
        Exit::Done
    };
    exit.code()
}

struct Check {
    kind: Kind,
    has_problem: bool,
}

impl Check {
    fn ok(&self, what: &str) {
        say(&format!("ok: {what}"));
    }

    /// Something that one may want otherwise.
    fn note(&self, what: &str, to_do: &str) {
        say(&format!("note: {what}; {to_do}"));
    }

    fn problem(&mut self, what: &str, to_do: &str) {
        self.has_problem = true;
        say(&format!("problem: {what}; {to_do}"));
    }

    fn everything(&mut self, config: Option<&Path>, repo: Option<&str>, name: Option<&Name>) {
        let settings = match Settings::find(config) {
            Ok(Some(settings)) => settings,
            Ok(None) if self.kind == Kind::Local => {
                return self.local(&Settings::default(), config, repo, name);
            }
            Ok(None) => {
                return self.problem(&BadSettings::Missing.to_string(), NAME_SETTINGS_OR_NONE);
            }
            Err(error) => {
                return self.problem(
                    &error.to_string(),
                    "nothing is served until that is put right",
                );
            }
        };
        self.ok(&format!("settings file {}", settings.path.display()));
        if self.kind == Kind::Local {
            return self.local(&settings, config, repo, name);
        }
        if self.kind == Kind::Forgejo {
            return self.forgejo(&settings, repo.is_some() || name.is_some());
        }
        let repos = self.repos(&settings);
        let plugin_loads = self.plugin(&settings);
        let ledger = settings.ledger().map_err(Failure::not_now);
        let ledger_opens = plugin_loads && self.ledger(&settings, ledger);
        let found = match (repo, &repos) {
            (Some(repo), Some(repos)) => self.repo(repos, repo),
            _ => None,
        };
        if let Some(found) = &found {
            self.default_branch(&found.path);
        }
        if let (Some(found), Some(repos), true) = (&found, &repos, ledger_opens) {
            let whoami = settings
                .ledger()
                .map_err(Failure::not_now)
                .and_then(|ledger| whoami(&settings, ledger, &AdminHost(Some(repos)), &found.id));
            self.tracker(&found.id, whoami);
        }
        if let (Some(found), Some(name)) = (&found, repo) {
            self.fence(config, name, &found.path);
        }
        let own = found
            .as_ref()
            .and_then(|repo| self.own_config(&settings, &repo.id, &repo.path));
        match self.kind {
            Kind::Gitolite => {
                self.no_rules(&settings, own.as_ref(), "gitolite's own rules");
                if let (Some(repo), Some(name)) = (&found, name) {
                    self.gitolite(repo, name);
                }
            }
            Kind::Openssh if repo.is_none() || own.is_some() => {
                self.access(&settings, own.unwrap_or_default(), name);
            }
            Kind::Openssh | Kind::Forgejo | Kind::Local => {}
        }
    }

    /// A repository on this machine needs no settings; the file system says who
    /// may do what.
    fn local(
        &mut self,
        settings: &Settings,
        config: Option<&Path>,
        repo: Option<&str>,
        name: Option<&Name>,
    ) {
        let plugin_loads = self.plugin(settings);
        if name.is_some() {
            self.problem(
                "on this machine the rights of files say who may do what",
                "who may write into the repository may claim",
            );
        }
        let Some(typed) = repo else {
            return;
        };
        let path = std::path::absolute(typed).unwrap_or_else(|_| typed.into());
        let path = path.to_string_lossy();
        let place = match local::Place::find(&path, settings) {
            Ok(place) => place,
            Err(failure) => {
                let to_do = failure.hint.as_deref();
                return self.problem(
                    &format!("repository {typed}: {}", failure.error),
                    to_do.unwrap_or("name the path of its folder"),
                );
            }
        };
        let Some((id, git_dir)) = place.found() else {
            return;
        };
        self.ok(&format!("repository {typed} is {id}"));
        let ledger_opens = plugin_loads && self.ledger(settings, Ok(place.ledger.clone()));
        self.default_branch(git_dir);
        if ledger_opens {
            let whoami = whoami(settings, place.ledger.clone(), &place, &path);
            self.tracker(id, whoami);
        }
        self.fence(config, typed, git_dir);
        self.own_config(settings, id, git_dir);
    }

    /// Whether pushes are looked at, as those may want who claim there.
    fn fence(&mut self, config: Option<&Path>, name: &str, git_dir: &Path) {
        let missing = match setup::missing(self.kind, git_dir) {
            Ok(missing) => missing,
            Err(error) => {
                return self.problem(
                    &format!("its hooks cannot be looked at: {}", error.message()),
                    "`git fsck` there says more",
                );
            }
        };
        let setup = setup::typed(self.kind, config, name);
        match missing.shown() {
            None => self.ok("pushes are looked at: both hooks are in place"),
            Some(_) if missing.is_all() => self.note(
                "no push is looked at, as there are no hooks for it",
                &format!("`{setup}` puts them in place"),
            ),
            Some(shown) => self.problem(
                &format!("pushes are looked at in part: without {shown}"),
                &format!("`{setup}` puts it in place"),
            ),
        }
    }

    /// What can be looked at without a key: the forge says the rest.
    fn forgejo(&mut self, settings: &Settings, asks_for_rights: bool) {
        if settings.repos_dir.is_some() {
            self.repos(settings);
        }
        if self.plugin(settings) {
            self.ledger(settings, settings.ledger().map_err(Failure::not_now));
        }
        self.no_rules(settings, None, "the forge's own rights");
        match Api::secrets(&settings.forgejo) {
            Ok(url) => self.ok(&format!("the tokens for {url} can be read")),
            Err(failure) => self.problem(&failure.error, "see [claimForgejo] in the settings file"),
        }
        if asks_for_rights {
            self.problem(
                "the forge tells rights only to a key",
                "ask with that key: `ssh git@host collab-lease whoami OWNER/REPO`",
            );
        }
    }

    /// Where `instead` count, rules of ours would be ones that are ignored.
    fn no_rules(&mut self, settings: &Settings, own: Option<&Rules>, instead: &'static str) {
        if let Err(error) = settings.without_rules(instead) {
            return self.problem(&error.to_string(), "nothing is served until then");
        }
        if own.is_some_and(|own| *own != Rules::default()) {
            return self.problem(
                &format!("the repository's config has rules, and {instead} count instead"),
                "remove claim.read, claim.write and claim.admin there",
            );
        }
        self.ok(&format!("{instead} say who may do what"));
    }

    fn gitolite(&mut self, repo: &Repo, name: &Name) {
        match gitolite::look(repo, name) {
            Err(failure) => self.problem(&failure.error, "run this as gitolite's user"),
            Ok(seen) if seen.is_off => self.problem(
                &format!("{}: `option collab.lease = off` turns claims off", repo.id),
                "remove it from gitolite.conf",
            ),
            Ok(seen) => match seen.granted {
                Some(access) => self.ok(&format!(
                    "{name} has {} access by gitolite's rules",
                    access.name()
                )),
                None => self.problem(
                    &format!("{name} may do nothing, and reads \"repository not found\""),
                    "see `gitolite access -s` for the rules that count",
                ),
            },
        }
    }

    fn repos(&mut self, settings: &Settings) -> Option<Repos> {
        match site::repos(settings) {
            Ok(repos) => {
                self.ok(&format!("repositories below {}", repos.root().display()));
                Some(repos)
            }
            Err(failure) => {
                self.problem(
                    &failure.error,
                    "set claim.reposDir to the folder of the repositories",
                );
                None
            }
        }
    }

    fn plugin(&mut self, settings: &Settings) -> bool {
        let loaded = settings
            .plugin()
            .map_err(|error| error.to_string())
            .and_then(|path| PluginFile::open(&path).map_err(|error| error.to_string()))
            .and_then(|file| {
                let path = file.file().path().display().to_string();
                let plugin = Plugin::load(file).map_err(|error| error.to_string())?;
                Ok((path, request::version(&plugin).unwrap_or_default()))
            });
        match loaded {
            Ok((path, version)) => {
                self.ok(&format!("plugin {path}, version {version}, {GCLAIM_ENTRY}"));
                true
            }
            Err(error) => {
                self.problem(&error, "install it again, or set claim.plugin");
                false
            }
        }
    }

    /// Opens the ledger as a request would, with the checks of the plugin.
    fn ledger(&mut self, settings: &Settings, at: Result<LedgerPlace, Failure>) -> bool {
        let opened = at.and_then(|ledger| {
            if let Some(file) = ledger.file() {
                check_user(file)?;
            }
            request::open(&request::load(settings)?, settings, ledger.clone(), false)?;
            let host = AdminHost(None);
            let _: HostReply = ask_at(settings, ledger.clone(), &host, &Request::Look)?;
            Ok(ledger)
        });
        match opened {
            Ok(ledger) => {
                let Some(file) = ledger.file() else {
                    self.ok(&format!("ledger {ledger}"));
                    return true;
                };
                let mode = file
                    .metadata()
                    .map(|file| file.permissions().mode() & 0o7777);
                let shown = match mode {
                    Ok(mode) => format!("mode {mode:04o}"),
                    Err(_) => "made with the first claim".to_owned(),
                };
                self.ok(&format!("ledger {ledger}, {shown}"));
                true
            }
            Err(failure) => {
                let to_do = failure
                    .hint
                    .filter(|hint| hint.contains("runuser"))
                    .unwrap_or_else(|| "nobody can claim until that is put right".to_owned());
                self.problem(&format!("ledger: {}", failure.error), &to_do);
                false
            }
        }
    }

    fn repo(&mut self, repos: &Repos, name: &str) -> Option<Repo> {
        let found = repos.resolve(name);
        match &found {
            Some(repo) => self.ok(&format!("repository {name} is {}", repo.id)),
            None => self.problem(
                &format!(
                    "repository {name}: there is none below {}",
                    repos.root().display()
                ),
                "links that lead elsewhere are not followed, and it must be a git directory",
            ),
        }
        found
    }

    /// Without one nothing that is merged is known to be. A forge may have made
    /// HEAD for a branch that nobody uses.
    fn default_branch(&mut self, git_dir: &Path) {
        let is_missing = || -> Result<bool, git2::Error> {
            let git = git2::Repository::open_bare(git_dir)?;
            let is_unborn = match git.head() {
                Ok(_) => false,
                Err(error) if error.code() == git2::ErrorCode::UnbornBranch => true,
                Err(error) => return Err(error),
            };
            let has_others = git
                .branches(Some(git2::BranchType::Local))?
                .next()
                .is_some();
            Ok(is_unborn && has_others)
        };
        match is_missing() {
            Ok(false) => {}
            Ok(true) => self.problem(
                "HEAD names a branch that is not there, so no merge releases a claim, and no \
                 issue in a file is seen",
                "there, `git symbolic-ref HEAD refs/heads/<branch>` names the right one",
            ),
            Err(error) => self.problem(
                &format!("HEAD cannot be read: {}", error.message()),
                "`git fsck` there says more",
            ),
        }
    }

    /// What the repository's own config says of access, if it can be read.
    fn own_config(&mut self, settings: &Settings, id: &str, git_dir: &Path) -> Option<Rules> {
        let config = match RepoConfig::read(git_dir) {
            Ok(config) => config,
            Err(error) => {
                self.problem(
                    &format!("{id}: its config: {}", error.message()),
                    "nobody gets in until that is put right",
                );
                return None;
            }
        };
        for key in &config.unknown {
            self.problem(
                &format!("{id}: {key} means nothing in a repository"),
                "correct or remove it with `git config`",
            );
        }
        if let Some(group) = settings.unknown_group(&config.rules) {
            self.problem(
                &format!("{id}: there is no group @{group}"),
                &format!("add [claimGroup \"{group}\"] to the settings file"),
            );
        }
        Some(config.rules)
    }

    /// The tracker, as the plugin finds it.
    fn tracker(&mut self, id: &str, whoami: Result<WhoamiReply, Failure>) {
        match whoami {
            Ok(reply) => self.ok(&format!(
                "{id}: tracker {}, claims last at most {}",
                reply.tracker.as_deref().unwrap_or("none"),
                git_claim_api::duration::short(reply.max_ttl)
            )),
            Err(failure) => self.problem(
                &format!("{id}: {}", failure.error),
                "see `claim.tracker` and the other claim settings of the repository",
            ),
        }
    }

    /// Who may do what, where `own` rules of a repository count first.
    fn access(&mut self, settings: &Settings, own: Rules, name: Option<&Name>) {
        let rules = own.clone().or(&settings.rules);
        if rules == Rules::default() {
            return self.problem(
                "nobody may see or take claims",
                "set claim.read, claim.write and claim.admin",
            );
        }
        let Some(name) = name else {
            return;
        };
        match rules.grant(name.as_str(), &settings.groups) {
            Some((access, who)) => {
                let place = if own.list(access).is_some() {
                    "the repository's config"
                } else {
                    "the settings file"
                };
                self.ok(&format!(
                    "{name} has {} access: claim.{} in {place} lists {who}",
                    access.name(),
                    access.name()
                ));
                if access == Access::Read {
                    self.ok(&format!("{name} may see claims, but take none"));
                }
            }
            None => self.problem(
                &format!("{name} may do nothing, and reads \"repository not found\""),
                "list the name, a group of its or * in claim.read or claim.write",
            ),
        }
    }
}

fn whoami(
    settings: &Settings,
    ledger: LedgerPlace,
    host: &dyn Host,
    repo: &str,
) -> Result<WhoamiReply, Failure> {
    let request = Request::Whoami {
        repo: Some(repo.parse().map_err(Failure::refused)?),
    };
    ask_at(settings, ledger, host, &request)
}

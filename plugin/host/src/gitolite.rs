//! Behind gitolite 3, as its command `collab-lease`: gitolite says who is
//! asking, and its own rules say what they may do.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use git_claim_api::access::Access;
use git_claim_api::verb::Request;

use crate::collab_lease;
use crate::host::Host;
use crate::log::{Level, log};
use crate::openssh::ORIGINAL_COMMAND;
use crate::principal::{Name, Principal};
use crate::report::Failure;
use crate::repos::Repo;
use crate::request::Job;
use crate::rights::{Rights, most_needed};
use crate::settings::Settings;
use crate::site;

/// The variable in which gitolite names who is connected, whatever the client
/// sent under this name.
const USER: &str = "GL_USER";

/// `option collab.lease = off` in gitolite.conf turns claims off.
const OPTION: &str = "gitolite-options.collab.lease";

/// Serves the request whose words behind the verb are `words`.
///
/// # Errors
/// It cannot be served; nothing was printed.
pub fn run(config: Option<&Path>, words: &[OsString]) -> Result<u8, Failure> {
    let user = user()?;
    let command = command(std::env::var_os(ORIGINAL_COMMAND), words)?;
    let request = Request::parse(command.as_bytes()).map_err(Failure::refused)?;
    let settings = Settings::load(config).map_err(Failure::set_up_wrongly)?;
    settings
        .without_rules("gitolite's own rules")
        .map_err(Failure::set_up_wrongly)?;
    let site = Site {
        user: &user,
        repo: match request.repo() {
            Some(typed) => Some(Known::find(
                typed.as_str(),
                &user,
                most_needed(&request),
                &settings,
            )?),
            None => None,
        },
    };
    let job = Job {
        settings: &settings,
        ledger: settings.ledger().map_err(Failure::set_up_wrongly)?,
        command: command.as_bytes(),
        user: user.as_str(),
        key: &profile(&user),
        of_host: false,
    };
    job.run(&site)
}

/// Whom gitolite says pushes.
pub fn pusher() -> Option<Principal> {
    let name = user().ok()?;
    Some(Principal {
        profile: profile(&name),
        name,
    })
}

fn profile(user: &Name) -> String {
    format!("gitolite:{user}")
}

fn user() -> Result<Name, Failure> {
    let user = std::env::var_os(USER).and_then(|user| user.into_string().ok());
    match user.map(|user| user.parse()) {
        Some(Ok(user)) => Ok(user),
        _ => Err(Failure::refused(format!(
            "gitolite does not say who you are: {USER} is not set"
        ))
        .hint("only gitolite runs this, as its command collab-lease")),
    }
}

/// The command line of the client. gitolite has split it at blanks, through any
/// quotes; the original counts where it is what `words` come from.
fn command(original: Option<OsString>, words: &[OsString]) -> Result<String, Failure> {
    let same = |original: &str| {
        let split = original.split_ascii_whitespace().skip(1);
        split
            .map(str::as_bytes)
            .eq(words.iter().map(|word| word.as_bytes()))
    };
    match original.and_then(|original| original.into_string().ok()) {
        Some(original) if same(&original) => Ok(original),
        _ => collab_lease::command(words.iter().cloned()),
    }
}

/// The answers about the one repository of a request.
#[derive(Debug)]
struct Site<'a> {
    user: &'a Name,
    repo: Option<Known>,
}

/// A repository that the user may at least see.
#[derive(Debug)]
struct Known {
    /// As the request spells it.
    typed: String,
    repo: Repo,
    /// As gitolite's rules know it.
    name: String,
    rights: RefCell<Rights>,
}

impl Known {
    fn find(typed: &str, user: &Name, need: Access, settings: &Settings) -> Result<Known, Failure> {
        let repos = site::repos(settings)?;
        let mut rights = Rights::default();
        let Some(repo) = repos.resolve(typed) else {
            // gitolite takes a while to refuse; an answer that comes at once would
            // tell that there was nothing to ask about.
            if let Some(name) = repos.would_be(typed).as_deref().and_then(name) {
                let _ = see(name, user, need, &mut rights);
            }
            return Err(Failure::repository_not_found());
        };
        let name = name(&repo.id).ok_or_else(Failure::repository_not_found)?;
        let seen = see(name, user, need, &mut rights)?;
        if seen.granted.is_none() {
            return Err(Failure::repository_not_found());
        }
        if seen.is_off {
            return Err(
                Failure::refused(format!("claims are turned off in {}", repo.id))
                    .hint("`option collab.lease = off` in gitolite.conf does that"),
            );
        }
        Ok(Known {
            typed: typed.to_owned(),
            name: name.to_owned(),
            repo,
            rights: RefCell::new(rights),
        })
    }
}

/// What gitolite says of a user in a repository.
#[derive(Debug)]
pub struct Seen {
    /// The highest right, as far as it was asked for.
    pub granted: Option<Access>,
    /// Whether claims are turned off there.
    pub is_off: bool,
}

/// What `user` may do at most in `repo`.
///
/// # Errors
/// It is none of gitolite's, or gitolite could not say.
pub fn look(repo: &Repo, user: &Name) -> Result<Seen, Failure> {
    let name = name(&repo.id).ok_or_else(Failure::repository_not_found)?;
    see(name, user, Access::Admin, &mut Rights::default())
}

fn see(name: &str, user: &Name, need: Access, rights: &mut Rights) -> Result<Seen, Failure> {
    // Both at once: each takes Perl a tenth of a second to start.
    let option = Question::ask(&["git-config", name, OPTION])?;
    let granted = rights.find(need, |access| may(name, user, access))?;
    let is_off = option.answer()?.is_some_and(|value| value == "off");
    Ok(Seen { granted, is_off })
}

impl Site<'_> {
    fn repo(&self, id: &str) -> Option<&Known> {
        self.repo.as_ref().filter(|known| known.repo.id == id)
    }
}

impl Host for Site<'_> {
    fn resolve_repo(&self, name: &str) -> Option<String> {
        let known = self.repo.as_ref().filter(|known| known.typed == name)?;
        Some(known.repo.id.clone())
    }

    fn authorize(&self, repo_id: &str, access: Access) -> bool {
        let Some(known) = self.repo(repo_id) else {
            return false;
        };
        let ask = |access| may(&known.name, self.user, access);
        match known.rights.borrow_mut().may(access, ask) {
            Ok(may) => may,
            Err(failure) => {
                log(Level::Error, &failure.error);
                false
            }
        }
    }

    fn repo_path(&self, repo_id: &str) -> Option<PathBuf> {
        Some(self.repo(repo_id)?.repo.path.clone())
    }
}

/// The name by which gitolite's rules know the repository `id`, if it can be
/// one of gitolite's at all.
fn name(id: &str) -> Option<&str> {
    let name = id.strip_suffix(".git")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._@/+".contains(&b);
    let starts_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (starts_plain && name.bytes().all(plain)).then_some(name)
}

/// Whether gitolite's rules give `user` this right on any ref of the repository.
fn may(repo: &str, user: &Name, access: Access) -> Result<bool, Failure> {
    let permission = match access {
        Access::Read => "R",
        Access::Write => "W",
        // As gitolite's own `lock --break`.
        Access::Admin => "+",
    };
    let question = Question::ask(&["access", "-q", repo, user.as_str(), permission, "any"])?;
    Ok(question.answer()?.is_some())
}

/// A gitolite command under way, answered by its exit code.
struct Question {
    what: String,
    process: Child,
}

impl Question {
    fn ask(args: &[&str]) -> Result<Question, Failure> {
        let what = args.join(" ");
        let process = Command::new("gitolite")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // What gitolite says of its own trouble is the log's, not the client's.
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => Ok(Question { what, process }),
            Err(error) => Err(Failure::set_up_wrongly(format!(
                "gitolite cannot be asked: {error}"
            ))),
        }
    }

    /// What it printed, or `None` where it said no.
    fn answer(mut self) -> Result<Option<String>, Failure> {
        let failed = |why: String| {
            let line = format!("gitolite {}: {why}", self.what);
            log(Level::Error, &line);
            Failure::not_now("gitolite could not say what you may do here")
        };
        let mut text = String::new();
        if let Some(stdout) = self.process.stdout.take() {
            let read = stdout.take(4_096).read_to_string(&mut text);
            read.map_err(|error| failed(error.to_string()))?;
        }
        let status = self
            .process
            .wait()
            .map_err(|error| failed(error.to_string()))?;
        match status.code() {
            Some(0) => Ok(Some(text.trim_end().to_owned())),
            Some(1) => Ok(None),
            _ => Err(failed(status.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_counts_where_the_words_come_from_it() {
        let command = |original: Option<&str>, words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            command(original.map(OsString::from), &words).unwrap()
        };
        for (original, words, expected) in [
            (
                Some("collab-lease acquire 'my app' 1"),
                &["acquire", "'my", "app'", "1"][..],
                "collab-lease acquire 'my app' 1",
            ),
            (
                Some("collab-lease list  r"),
                &["list", "r"],
                "collab-lease list  r",
            ),
            // Somebody else's words: those that gitolite handed over count.
            (Some("info"), &["list", "r"], "collab-lease list r"),
            (
                Some("collab-lease list q"),
                &["list", "r"],
                "collab-lease list r",
            ),
            (None, &["list", "it's"], "collab-lease list 'it'\\''s'"),
        ] {
            assert_eq!(command(original, words), expected);
        }
    }

    #[test]
    fn only_what_gitolite_would_call_a_repository_is_asked_about() {
        for (id, expected) in [
            ("acme/app.git", Some("acme/app")),
            ("app.git.git", Some("app.git")),
            ("app", None),
            (".git", None),
            ("-q.git", None),
            ("@all.git", None),
            ("my app.git", None),
            ("app\n.git", None),
            ("ünï.git", None),
        ] {
            assert_eq!(name(id), expected, "{id}");
        }
    }
}

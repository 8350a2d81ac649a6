//! `git-claim-server setup`: puts the hooks behind a push into a repository and
//! lets it take push options, and says what it changed.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use git_claim_api::exit::Exit;
use git_claim_api::words::quote;

use super::{check_user, say};
use crate::hook::{Kind, When};
use crate::local;
use crate::report::{Failure, NAME_SETTINGS_OR_NONE};
use crate::settings::{BadSettings, Settings};
use crate::site;

/// What a hook that was there before is called from then on.
const BEFORE: &str = "before-git-claim";

/// By this a hook of ours is known.
const MARK: &str = "# git-claim's part of a push, put here by `git-claim-server setup`.";

const PROGRAM: &str = "git-claim-server";

const PUSH_OPTIONS: &str = "receive.advertisePushOptions";

/// Sets the repository `name` up for pushes behind `kind`.
///
/// # Errors
/// It is not there, belongs to somebody else, or its hooks cannot be written.
pub fn run(kind: Kind, config: Option<&Path>, name: &str) -> Result<u8, Failure> {
    let git_dir = find(kind, config, name)?;
    check_user(&git_dir)?;
    let hooks = hooks_folder(&git_dir)?;
    let command = command(kind, config)?;
    let mut changed = false;
    for when in [When::PreReceive, When::PostReceive] {
        let file = hooks.join(place(kind, when));
        let script = if kind == Kind::Forgejo {
            let folder = hooks.join(folder_of_forgejo(when));
            fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
            alone(&command, when)
        } else {
            chained(&command, when)
        };
        changed |= install(&git_dir, &file, &script)?;
    }
    changed |= take_push_options(&git_dir)?;
    if !changed {
        say("nothing to change: the hooks and push options are in place");
    }
    Ok(Exit::Done.code())
}

/// Where a hook of ours lies among the hooks.
fn place(kind: Kind, when: When) -> String {
    match kind {
        Kind::Forgejo => format!("{}/git-claim", folder_of_forgejo(when)),
        Kind::Openssh | Kind::Gitolite | Kind::Local => when.name().to_owned(),
    }
}

/// Forgejo writes the hook itself anew, and runs what lies in here.
fn folder_of_forgejo(when: When) -> String {
    format!("{}.d", when.name())
}

/// What of this is not in place in the repository behind `kind` whose git
/// directory is `git_dir`: the hooks first.
///
/// # Errors
/// Its config cannot be read.
pub fn missing(kind: Kind, git_dir: &Path) -> Result<Missing, git2::Error> {
    let config = git2::Repository::open_bare(git_dir)?.config()?;
    let hooks = match config.get_path("core.hooksPath") {
        Ok(shared) => git_dir.join(shared),
        Err(_) => git_dir.join("hooks"),
    };
    let is_ours = |place: &String| {
        let file = hooks.join(place);
        // By hand it is put into hooks that several repositories share.
        let has_ours = |text: &[u8]| String::from_utf8_lossy(text).contains(PROGRAM);
        is_executable(&file) && fs::read(&file).is_ok_and(|text| has_ours(&text))
    };
    Ok(Missing {
        hooks: [When::PreReceive, When::PostReceive]
            .map(|when| place(kind, when))
            .into_iter()
            .filter(|place| !is_ours(place))
            .collect(),
        push_options: !config.get_bool(PUSH_OPTIONS).is_ok_and(|takes| takes),
    })
}

/// What a repository lacks for the fence.
pub struct Missing {
    hooks: Vec<String>,
    push_options: bool,
}

impl Missing {
    /// Whether nobody has set anything up.
    pub fn is_all(&self) -> bool {
        self.hooks.len() == 2
    }

    /// In words; `None` if nothing is missing.
    pub fn shown(&self) -> Option<String> {
        let hooks = self.hooks.iter().map(|place| format!("hooks/{place}"));
        let options = self.push_options.then(|| PUSH_OPTIONS.to_owned());
        let shown: Vec<String> = hooks.chain(options).collect();
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

/// The command that puts it in place, for people to type.
pub fn typed(kind: Kind, config: Option<&Path>, name: &str) -> String {
    let mut line = format!("{PROGRAM} setup");
    if kind != Kind::default() {
        line.push_str(&format!(" --kind {}", kind.name()));
    }
    if let Some(config) = config {
        line.push_str(&format!(" --config {}", quote(&config.to_string_lossy())));
    }
    format!("{line} {}", quote(name))
}

fn find(kind: Kind, config: Option<&Path>, name: &str) -> Result<PathBuf, Failure> {
    if kind == Kind::Local {
        return local::open(Path::new(name));
    }
    let settings = Settings::load(config).map_err(|error| match error {
        BadSettings::Missing => Failure::no_settings(&error).hint(NAME_SETTINGS_OR_NONE),
        error => Failure::no_settings(&error),
    })?;
    match site::repos(&settings)?.resolve(name) {
        Some(repo) => Ok(repo.path),
        None => Err(Failure::repository_not_found().hint(format!(
            "name it as a client would, below {}",
            site::repos(&settings)?.root().display()
        ))),
    }
}

/// The repository's own hooks; not those that others share.
fn hooks_folder(git_dir: &Path) -> Result<PathBuf, Failure> {
    let unreadable = |error: git2::Error| {
        Failure::refused(format!("{}: {}", git_dir.display(), error.message()))
    };
    let shared = |place: &str| {
        Failure::refused(format!(
            "the hooks of this repository lie in {place}, and other repositories may share them"
        ))
        .hint("add `git-claim-server hook …` there by hand, as the manual shows")
    };
    let config = git2::Repository::open_bare(git_dir)
        .and_then(|repository| repository.config())
        .map_err(unreadable)?;
    if let Ok(path) = config.get_string("core.hooksPath") {
        return Err(shared(&path));
    }
    let hooks = git_dir.join("hooks");
    fs::create_dir_all(&hooks).map_err(|error| failed(&hooks, &error))?;
    let real = hooks
        .canonicalize()
        .map_err(|error| failed(&hooks, &error))?;
    if !real.starts_with(git_dir) {
        return Err(shared(&real.to_string_lossy()));
    }
    Ok(hooks)
}

/// The words of a shell that run the hook, but for the hook's name.
fn command(kind: Kind, config: Option<&Path>) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::refused)?;
    let mut command = format!("{} hook --kind {}", word(&program)?, kind.name());
    if let Some(config) = config {
        let config = config
            .canonicalize()
            .map_err(|error| failed(config, &error))?;
        command.push_str(&format!(" --config {}", word(&config)?));
    }
    Ok(command)
}

fn word(path: &Path) -> Result<String, Failure> {
    match path.to_str() {
        Some(path) => Ok(quote(path)),
        None => Err(Failure::refused(format!(
            "{}: the path is no plain text",
            path.display()
        ))),
    }
}

/// A hook that runs the one that was there before too. Both read the refs.
fn chained(command: &str, when: When) -> String {
    let name = when.name();
    // A push that was refused is no news for the other hook; one that has
    // happened is, whatever became of ours.
    let and = match when {
        When::PreReceive => " || exit",
        When::PostReceive => "",
    };
    format!(
        "#!/bin/sh\n\
         {MARK}\n\
         # A hook that was here before is beside it, and runs after it.\n\
         before=\"$0.{BEFORE}\"\n\
         test -x \"$before\" || exec {command} {name}\n\
         refs=$(cat)\n\
         printf '%s\\n' \"$refs\" | {command} {name}{and}\n\
         printf '%s\\n' \"$refs\" | \"$before\" \"$@\"\n"
    )
}

fn alone(command: &str, when: When) -> String {
    format!("#!/bin/sh\n{MARK}\nexec {command} {}\n", when.name())
}

/// Puts `script` where `file` is; a hook of somebody else's goes beside it.
/// Answers whether anything changed.
fn install(git_dir: &Path, file: &Path, script: &str) -> Result<bool, Failure> {
    let shown = |path: &Path| {
        let path = path.strip_prefix(git_dir).unwrap_or(path);
        path.display().to_string()
    };
    let said = match fs::read(file) {
        Ok(there) if there == script.as_bytes() && is_executable(file) => return Ok(false),
        Ok(there) if String::from_utf8_lossy(&there).contains(MARK) => "brought up to date".into(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link(file) => "added".into(),
        _ => {
            let mut before = file.as_os_str().to_owned();
            before.push(format!(".{BEFORE}"));
            let before = PathBuf::from(before);
            fs::hard_link(file, &before).map_err(|error| failed(&before, &error))?;
            format!(
                "added; the hook that was there is {} now, and still runs",
                shown(&before)
            )
        }
    };
    write(file, script).map_err(|error| failed(file, &error))?;
    say(&format!("{}: {said}", shown(file)));
    Ok(true)
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|of| of.permissions().mode() & 0o111 != 0)
}

fn is_link(file: &Path) -> bool {
    file.symlink_metadata().is_ok_and(|of| of.is_symlink())
}

/// Whole or not at all: a push may run the hook at any moment.
fn write(file: &Path, script: &str) -> io::Result<()> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let mut new = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o755)
        .open(&temporary)?;
    new.write_all(script.as_bytes())?;
    new.set_permissions(fs::Permissions::from_mode(0o755))?;
    new.sync_all()?;
    fs::rename(&temporary, file)
}

fn take_push_options(git_dir: &Path) -> Result<bool, Failure> {
    let failed = |error: git2::Error| {
        Failure::refused(format!(
            "{}: {}",
            git_dir.join("config").display(),
            error.message()
        ))
    };
    let mut config = git2::Config::open(&git_dir.join("config")).map_err(failed)?;
    if config.get_bool(PUSH_OPTIONS).is_ok_and(|takes| takes) {
        return Ok(false);
    }
    config.set_bool(PUSH_OPTIONS, true).map_err(failed)?;
    say(&format!("config: {PUSH_OPTIONS} is true now"));
    Ok(true)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::refused(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    #[test]
    fn what_is_put_in_place_is_found_there() {
        for kind in [Kind::Openssh, Kind::Gitolite, Kind::Forgejo, Kind::Local] {
            let repo = TempDir::new().unwrap();
            git2::Repository::init_bare(repo.path()).unwrap();
            let missing = || missing(kind, repo.path()).unwrap();
            assert!(missing().is_all());
            for when in [When::PreReceive, When::PostReceive] {
                let file = hooks_folder(repo.path()).unwrap().join(place(kind, when));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                install(repo.path(), &file, &alone("git-claim-server hook", when)).unwrap();
                assert!(!missing().is_all());
            }
            let shown = missing().shown();
            assert_eq!(shown.as_deref(), Some(PUSH_OPTIONS), "{kind:?}");
            take_push_options(repo.path()).unwrap();
            assert_eq!(missing().shown(), None, "{kind:?}");
        }
    }

    #[test]
    fn a_hook_is_put_in_place_once_and_what_was_there_is_kept() {
        let folder = TempDir::new().unwrap();
        let file = folder.child("hooks/pre-receive");
        file.write_str("#!/bin/sh\necho theirs\n").unwrap();
        let script = chained("git-claim-server hook", When::PreReceive);
        let install = |script: &str| install(folder.path(), file.path(), script).unwrap();
        assert!(install(&script));
        assert!(!install(&script));
        file.assert(script.as_str());
        let before = folder.child("hooks/pre-receive.before-git-claim");
        before.assert("#!/bin/sh\necho theirs\n");
        // Another kind or settings file: ours is replaced, theirs stays.
        let other = chained("git-claim-server hook --kind local", When::PreReceive);
        assert!(install(&other));
        file.assert(other.as_str());
        before.assert("#!/bin/sh\necho theirs\n");
        assert!(is_executable(file.path()));
    }

    #[test]
    fn a_hook_beside_one_that_was_kept_before_is_not_thrown_away() {
        let folder = TempDir::new().unwrap();
        let file = folder.child("pre-receive");
        file.write_str("second").unwrap();
        folder
            .child("pre-receive.before-git-claim")
            .write_str("first")
            .unwrap();
        assert!(install(folder.path(), file.path(), "ours").is_err());
        file.assert("second");
    }

    #[test]
    fn push_options_are_switched_on_in_the_config() {
        let folder = TempDir::new().unwrap();
        let config = folder.child("config");
        config.write_str("[core]\n\tbare = true\n").unwrap();
        assert!(take_push_options(folder.path()).unwrap());
        assert!(!take_push_options(folder.path()).unwrap());
        let config = git2::Config::open(config.path()).unwrap();
        assert!(config.get_bool(PUSH_OPTIONS).unwrap());
    }
}

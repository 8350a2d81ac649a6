//! `collab-lease`, for `~/git-shell-commands/`: every word of argv is the
//! client's, so there are no options, the settings come from the fixed places,
//! and the principal from sshd's account of the login alone.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use git_claim_api::verb::Request;
use git_claim_api::{VERB, words};

use crate::login;
use crate::openssh::serve;
use crate::principal::{self, USER_AUTH};
use crate::report::Failure;
use crate::settings::Settings;

/// The program.
pub fn main() -> ExitCode {
    match run(std::env::args_os().skip(1)) {
        Ok(code) => code.into(),
        Err(failure) => failure.print().into(),
    }
}

fn run(args: impl Iterator<Item = OsString>) -> Result<u8, Failure> {
    let command = command(args)?;
    let settings = Settings::load(None).map_err(Failure::set_up_wrongly)?;
    let user_auth = std::env::var_os(USER_AUTH);
    let principal = principal::of_login(user_auth.as_deref(), &settings)
        .map_err(|error| Failure::refused(error).hint(EXPOSE))?;
    let exit = serve(&settings, &principal, command.as_bytes())?;
    let asked = Request::parse(command.as_bytes());
    if matches!(asked, Ok(Request::Whoami { .. })) && !is_git_shell(login::shell().as_deref()) {
        warn_that_names_are_advisory();
    }
    Ok(exit)
}

/// Whether `shell` is the one that lets a client run nothing else, and so set no
/// variable that it would not be let set by sshd.
fn is_git_shell(shell: Option<&Path>) -> bool {
    shell.and_then(Path::file_name) == Some(OsStr::new("git-shell"))
}

/// Nobody is left to tell when stderr is gone.
fn warn_that_names_are_advisory() {
    let warning = format!(
        "warning: this name is only advisory: the account's login shell is not git-shell, so \
         whoever may log in can set {USER_AUTH}\n"
    );
    let _ = io::stderr().lock().write_all(warning.as_bytes());
}

const EXPOSE: &str = "the administrator of the server sets `ExposeAuthInfo yes` in sshd_config";

/// The client's words as one command line again: the forge has split it, and the
/// plugin reads it by its own rules.
///
/// # Errors
/// A word is not UTF-8.
pub fn command(args: impl Iterator<Item = OsString>) -> Result<String, Failure> {
    let mut command = VERB.to_owned();
    for word in args {
        let word = word
            .into_string()
            .map_err(|_| Failure::refused(words::BadWords::NotUtf8))?;
        command.push(' ');
        command.push_str(&words::quote(&word));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn git_shell_alone_makes_a_name_certain() {
        for (shell, certain) in [
            (Some("/usr/bin/git-shell"), true),
            (Some("/bin/bash"), false),
            (Some("/git-shell/sh"), false),
            (None, false),
        ] {
            assert_eq!(is_git_shell(shell.map(Path::new)), certain, "{shell:?}");
        }
    }

    #[test]
    fn words_become_the_command_that_they_were() {
        let args = ["list", "my repo.git", "", "it's", "#4"].map(OsString::from);
        assert_eq!(
            command(args.into_iter()).unwrap(),
            "collab-lease list 'my repo.git' '' 'it'\\''s' '#4'"
        );
        let bytes = OsString::from_vec(vec![0xff]);
        assert!(command([bytes].into_iter()).is_err());
    }
}

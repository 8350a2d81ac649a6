//! `collab-lease`, for `~/git-shell-commands/`: every word of argv is the
//! client's, so there are no options, the settings come from the fixed places,
//! and the principal from sshd's account of the login alone.

use std::ffi::OsString;
use std::process::ExitCode;

use git_claim_api::{VERB, words};

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
    let settings = Settings::load(None).map_err(Failure::not_now)?;
    let user_auth = std::env::var_os(USER_AUTH);
    let principal = principal::of_login(user_auth.as_deref(), &settings)
        .map_err(|error| Failure::refused(error).hint(EXPOSE))?;
    serve(&settings, &principal, command.as_bytes())
}

const EXPOSE: &str = "the administrator of the server sets `ExposeAuthInfo yes` in sshd_config";

/// The client's words as one command line again: git-shell has split it, and
/// the plugin reads it by its own rules.
fn command(args: impl Iterator<Item = OsString>) -> Result<String, Failure> {
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

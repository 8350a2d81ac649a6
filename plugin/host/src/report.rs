//! What a person reads when a request cannot be served: `error: …`, then
//! perhaps `hint: …`, on stderr.

use std::io::Write as _;

use git_claim_api::exit::Exit;
use git_claim_api::text::escape;

use crate::settings::BadSettings;

/// The one answer about a repository that does not exist or that the asker may
/// not know of. The plugin says the same.
pub const NOT_FOUND: &str = "repository not found";

/// Why the program ends without having served the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub exit: Exit,
    pub error: String,
    pub hint: Option<String>,
}

/// What a client can do about a server that is set up wrongly.
const ASK_ADMIN: &str =
    "the server's administrator sees what is wrong with `git-claim-server check`";

/// What an administrator can do where the settings are not in their places.
const NAME_SETTINGS: &str = "`--config <file>` names one";
/// The same where a repository is claimed in by its path.
pub const NAME_SETTINGS_OR_NONE: &str = "`--config <file>` names one; `--kind local` needs none, \
                                         for a repository that people reach by its path";

impl Failure {
    /// The request cannot be served, however often it is repeated.
    pub fn refused(error: impl ToString) -> Self {
        Failure {
            exit: Exit::Error,
            error: error.to_string(),
            hint: None,
        }
    }

    /// The server could not be asked: it is busy, or its setup is broken.
    pub fn not_now(error: impl ToString) -> Self {
        Failure {
            exit: Exit::NotNow,
            error: error.to_string(),
            hint: None,
        }
    }

    /// The same for a setup that only its administrator can mend.
    pub fn set_up_wrongly(error: impl ToString) -> Self {
        Failure::not_now(error).hint(ASK_ADMIN)
    }

    /// The same, told to that administrator.
    pub fn no_settings(error: &BadSettings) -> Self {
        let failure = Failure::not_now(error);
        match error {
            BadSettings::Missing => failure.hint(NAME_SETTINGS),
            _ => failure,
        }
    }

    /// A repository that does not exist, or not for the asker.
    pub fn repository_not_found() -> Self {
        Failure::refused(NOT_FOUND)
    }

    /// The same with a next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Writes it to stderr and gives the exit code. Nobody is left to tell when
    /// stderr is gone.
    pub fn print(&self) -> Exit {
        let mut text = format!("error: {}\n", escape(&self.error));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {}\n", escape(hint)));
        }
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
        self.exit
    }
}

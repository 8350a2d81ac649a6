//! A repository on this machine: the server's program is run here, as git runs
//! `git-upload-pack`.

use std::path::PathBuf;

use tokio::process::Command;

use super::line::Line;
use super::words::Trouble;
use super::{open, run};
use crate::answer::Answer;

const PROGRAM: &str = "git-claim-server";

/// The server's program on this machine.
#[derive(Debug)]
pub struct Local {
    program: PathBuf,
    without: Vec<String>,
}

impl Local {
    /// `without`: the variables that belong to the current repository.
    pub fn new(without: &[String]) -> Local {
        Local {
            program: find(),
            without: without.to_vec(),
        }
    }

    pub async fn ask(&self, line: &str) -> Result<Answer, Trouble> {
        run(&mut self.command(line))
            .await
            .map_err(|error| self.cannot_be_run(&error))
    }

    pub fn open(&self, line: &str) -> Result<Line, Trouble> {
        open(&mut self.command(line)).map_err(|error| self.cannot_be_run(&error))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        for variable in &self.without {
            command.env_remove(variable);
        }
        command.arg("local").env("SSH_ORIGINAL_COMMAND", line);
        command
    }

    fn cannot_be_run(&self, error: &std::io::Error) -> Trouble {
        Trouble::Unreachable {
            words: format!("{} cannot be run: {error}", self.program.display()),
            hint: format!(
                "claims of a repository on this machine need {PROGRAM} here; \
                 install it beside git-claim or on the PATH"
            ),
        }
    }
}

/// Beside our own program, where both were installed together, else in the
/// library folder beside it, else wherever the PATH has it.
fn find() -> PathBuf {
    let own = std::env::current_exe().ok();
    let folder = own.as_deref().and_then(std::path::Path::parent);
    let candidates = folder.into_iter().flat_map(|folder| {
        [
            folder.join(PROGRAM),
            folder.join("../lib/git-claim").join(PROGRAM),
        ]
    });
    candidates
        .into_iter()
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(PROGRAM))
}

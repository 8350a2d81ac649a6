//! `git claim completions`: what a shell loads, for those who installed by
//! hand.

use git_claim_api::exit::Exit;

use crate::args::Program;
use crate::completion::script::{Shell, script};
use crate::error::Result;
use crate::output::Output;

/// Print the completions for a shell
///
/// For bash and zsh: `source <(git claim completions bash)`; for fish:
/// `git claim completions fish | source`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

pub fn run(args: &Args, output: &mut Output) -> Result<Exit> {
    for program in Program::ALL {
        output.text(&script(program, args.shell))?;
    }
    Ok(Exit::Done)
}

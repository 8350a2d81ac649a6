//! `git claim help`: the manual, or one subcommand's part of it.

use std::process::{Command, Stdio};

use git_claim_api::exit::Exit;
use git_claim_api::text::escape;

use crate::args::{Program, command};
use crate::error::{Failure, Result};
use crate::output::Output;

/// Show the manual page, or the help of a subcommand
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The subcommand
    pub subcommand: Option<String>,
}

pub fn run(args: &Args, output: &mut Output) -> Result<Exit> {
    let mut definition = command(Program::Claim);
    definition.build();
    let Some(name) = &args.subcommand else {
        if show_page() {
            return Ok(Exit::Done);
        }
        output.text(&definition.render_long_help().to_string())?;
        return Ok(Exit::Done);
    };
    let Some(subcommand) = definition.find_subcommand_mut(name) else {
        return Err(
            Failure::usage(format!("git claim has no subcommand '{}'", escape(name)))
                .hint("`git claim -h` lists them"),
        );
    };
    let help = subcommand.render_long_help().to_string();
    output.text(&help)?;
    Ok(Exit::Done)
}

/// Shows the manual page, if `man` finds it.
fn show_page() -> bool {
    let page = Program::Claim.name();
    let found = Command::new("man")
        .args(["-w", page])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
        && Command::new("man")
            .arg(page)
            .status()
            .is_ok_and(|status| status.success())
}

//! `git claim help`: a page of the manual.

use git_claim_api::exit::Exit;
use git_claim_api::text::escape;

use crate::args::{Program, command};
use crate::completion::offer::Offer;
use crate::error::{Failure, Result};
use crate::manual;
use crate::output::Output;

/// Show the manual page of git claim, or of a subcommand
///
/// Where the page is not installed, what `-h` prints is printed at greater
/// length.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The subcommand; `workflow` is the tutorial
    #[arg(add = Offer::Subcommand)]
    pub subcommand: Option<String>,
}

/// The pages that are no command's, and what git calls them.
const GUIDES: [(&str, &str); 1] = [("workflow", "gitclaim-workflow")];

pub fn run(args: &Args, output: &mut Output) -> Result<Exit> {
    let named = args.subcommand.as_deref();
    if let Some((_, page)) = GUIDES.iter().find(|(name, _)| Some(*name) == named) {
        return match manual::show(page) {
            true => Ok(Exit::Done),
            false => Err(Failure::error(format!("`man {page}` finds no page"))
                .hint("`make install` and the packages put it where man looks")),
        };
    }
    let mut definition = command(Program::Claim);
    definition.build();
    let asked = match &args.subcommand {
        None => &mut definition,
        Some(name) => definition.find_subcommand_mut(name).ok_or_else(|| {
            Failure::usage(format!("git claim has no subcommand '{}'", escape(name)))
                .hint("`git claim -h` lists them")
        })?,
    };
    let subcommand = args.subcommand.is_some().then(|| asked.get_name());
    if !manual::show(&manual::page(Program::Claim, subcommand)) {
        output.text(&asked.render_long_help().to_string())?;
    }
    Ok(Exit::Done)
}

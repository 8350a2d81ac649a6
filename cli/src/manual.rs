//! The manual pages, shown by `man` where they are installed.

use std::process::{Command, Stdio};

use crate::args::Program;

/// The name of the page of a program, or of one of its subcommands.
pub fn page(program: Program, subcommand: Option<&str>) -> String {
    match subcommand {
        None => program.name().to_owned(),
        Some(subcommand) => format!("{}-{subcommand}", program.name()),
    }
}

/// Shows a page, if `man` finds it.
pub fn show(page: &str) -> bool {
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

//! `git unclaim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_claim::run(git_claim::args::Program::Unclaim, std::env::args_os())
}

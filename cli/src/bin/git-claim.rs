//! `git claim`.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_claim::run(git_claim::args::Program::Claim, std::env::args_os())
}

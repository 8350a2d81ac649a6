//! `git claims`.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_claim::run(git_claim::args::Program::Claims, std::env::args_os())
}

//! `git claim`, `git claims` and `git unclaim`: issues taken for one person or
//! agent, on the git server itself.
//!
//! A command line becomes typed arguments ([`args`]); a command ([`commands`])
//! turns them into requests, which a [`client::Client`] asks over a transport;
//! `output` says to people what the replies mean. Nothing here decides who
//! holds a claim: that is the server's.

mod answer;
pub mod args;
mod bound;
mod client;
mod clock;
mod commands;
pub mod completion;
mod error;
#[cfg(test)]
#[path = "../../tests/fuzz/harness.rs"]
mod fuzz;
mod git;
mod hex;
mod interrupt;
mod manual;
mod negation;
mod noted;
mod output;
mod pause;
mod remote;
mod run;
mod seen;
mod sense;
mod session;
mod settings;
mod token;
mod transport;
mod url;
mod wait;
mod word_order;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Program;
use error::Failure;
pub use error::codes_of_run;
use output::Output;
use run::watchdog;

/// Runs one of the three programs with the words of its command line, its own
/// name first.
pub fn run(program: Program, words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    if let [_, first, command @ ..] = &words[..]
        && first == watchdog::ARGUMENT
    {
        return watchdog::main(command);
    }
    if let [_, first, arguments @ ..] = &words[..]
        && first == completion::ARGUMENT
    {
        return completion::main(program, arguments);
    }
    let invocation = match args::parse(program, &words) {
        Ok(invocation) => invocation,
        Err(refused) => return refused.report(),
    };
    let mut output = Output::new(&invocation.global);
    match commands::run(invocation, &mut output) {
        Ok(exit) => exit,
        Err(failure) => report(&failure, &output),
    }
}

fn report(failure: &Failure, output: &Output) -> ExitCode {
    output.failure(failure);
    failure.kind.code().into()
}

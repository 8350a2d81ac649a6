//! What a shell offers at a TAB. The program itself says what fits, through
//! clap's engine: the shells run it with [`ARGUMENT`] in front of the words that
//! were typed. It looks at git's configuration and at what earlier commands have
//! seen, and asks no server.
//!
//! [`offer`] says what fits where, [`typed`] reads what was typed, [`script`] is
//! what a shell loads.

pub mod offer;
pub mod script;
mod typed;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::ExitCode;

use clap_complete::CompletionCandidate;
use clap_complete::engine::complete;
use unicode_width::UnicodeWidthStr as _;

use crate::args::{Program, command};
use crate::output::table::fit;
use script::Shell;
use typed::Typed;

/// Our program completes where this is its first argument; the shell's name
/// comes next, and for bash what it is going to do and how wide its terminal is.
pub const ARGUMENT: &str = "--complete";

/// Exit code: nothing of ours fits here, but what the shell itself completes,
/// files above all.
pub const SHELLS_OWN: u8 = 3;

/// Answers a shell.
pub fn main(program: Program, arguments: &[OsString]) -> ExitCode {
    let text = |at: usize| arguments.get(at).and_then(|argument| argument.to_str());
    let Some(shell) = text(0).and_then(Shell::named) else {
        return ExitCode::FAILURE;
    };
    let layout = Layout {
        shell,
        lists: text(1).is_some_and(|kind| LISTING.contains(&kind)),
        width: text(2).and_then(|width| width.parse().ok()).unwrap_or(80),
    };
    let Some(words) = arguments.get(layout.arguments()..) else {
        return ExitCode::FAILURE;
    };
    match candidates(program, words) {
        Answer::Ours(candidates) => {
            let text = layout.of(&candidates);
            // A shell that has gone away needs no answer.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Answer::ShellsOwn => ExitCode::from(SHELLS_OWN),
    }
}

/// What fits at the end of a command line.
enum Answer {
    Ours(Vec<CompletionCandidate>),
    ShellsOwn,
}

/// What may stand in place of the last of `words`, the first of which is the
/// program.
fn candidates(program: Program, words: &[OsString]) -> Answer {
    let Some(typed) = Typed::read(program, words) else {
        return Answer::Ours(Vec::new());
    };
    let mut definition = offer::attach(command(program), &typed);
    let at = typed.words.len() - 1;
    let found = complete(&mut definition, typed.words.clone(), at, None);
    let mut found = found.unwrap_or_default();
    if found.iter().any(offer::is_shells_own) {
        return Answer::ShellsOwn;
    }
    // A subcommand is the first word that is no option.
    if typed.is_escaped || !typed.plain.is_empty() {
        found.retain(|candidate| first_name(candidate).is_none());
    }
    // Nobody has to read all options who has not begun one.
    let current = typed.current().to_string_lossy();
    if current.is_empty() && !found.iter().all(is_option) {
        found.retain(|candidate| !is_option(candidate));
    }
    // One name of a subcommand is enough, and best its first one.
    for candidate in &mut found {
        if let Some(name) = first_name(candidate).filter(|name| name.starts_with(&*current)) {
            *candidate = CompletionCandidate::new(name).help(candidate.get_help().cloned());
        }
    }
    // bash puts them on the command line as they are.
    found.retain(|candidate| is_plain(candidate.get_value()));
    Answer::Ours(found)
}

fn is_option(candidate: &CompletionCandidate) -> bool {
    candidate.get_id().is_some_and(|id| id.starts_with("arg::"))
}

/// The name of the subcommand that a candidate stands for, if it does.
fn first_name(candidate: &CompletionCandidate) -> Option<String> {
    let name = candidate.get_id()?.strip_prefix("command::")?;
    Some(name.to_owned())
}

/// Whether a shell takes this for one word with nothing special in it.
fn is_plain(word: &OsStr) -> bool {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"._/+=,@:%-".contains(b);
    word.as_encoded_bytes().iter().all(is_plain)
}

/// What bash is about to do where it only lists candidates: `COMP_TYPE`.
const LISTING: [&str; 3] = ["33", "63", "64"];

/// The most columns that a word takes in bash's list before the words about it.
const MOST_ALIGNED: usize = 40;

/// How a shell reads candidates.
struct Layout {
    shell: Shell,
    lists: bool,
    width: usize,
}

impl Layout {
    /// How many arguments come before the words.
    fn arguments(&self) -> usize {
        match self.shell {
            Shell::Bash => 3,
            Shell::Zsh | Shell::Fish => 1,
        }
    }

    /// One candidate a line, with the words about it.
    fn of(&self, candidates: &[CompletionCandidate]) -> String {
        let about = |candidate: &CompletionCandidate| {
            let help = candidate.get_help().map(ToString::to_string)?;
            Some(help.lines().next()?.to_owned())
        };
        let value =
            |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().into_owned();
        // bash has no words beside a candidate: they are part of it, where it is
        // going to be shown and not typed.
        let lists = self.lists && candidates.len() > 1;
        let widest = candidates.iter().map(|candidate| value(candidate).width());
        let widest = widest.max().unwrap_or(0).min(MOST_ALIGNED);
        let mut text = String::new();
        for candidate in candidates {
            let value = value(candidate);
            let line = match (self.shell, about(candidate)) {
                (Shell::Bash, Some(about)) if lists => {
                    let line = format!("{value:<widest$}  {about}");
                    fit(&line, self.width.saturating_sub(1))
                        .trim_end()
                        .to_owned()
                }
                (Shell::Zsh, Some(about)) => {
                    let value = value.replace(':', "\\:");
                    format!("{value}:{}", about.replace('\\', "\\\\"))
                }
                (Shell::Zsh, None) => value.replace(':', "\\:"),
                (Shell::Fish, Some(about)) => format!("{value}\t{about}"),
                _ => value,
            };
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

//! Which word of `git claim …` is what. The first word that is no option is a
//! subcommand if it names one, wherever it stands; clap wants it in front.

use std::ffi::{OsStr, OsString};

use git_claim_api::text::escape;

use crate::error::Failure;

/// Words that people try as a subcommand, and what they mean.
const LOOKALIKES: &[(&str, &str)] = &[
    ("list", "git claims"),
    ("ls", "git claims"),
    ("status", "git claims"),
    ("claims", "git claims"),
    ("mine", "git claims --mine"),
    ("show", "git claim log <id>"),
    ("history", "git claim log <id>"),
    ("acquire", "git claim <id>"),
    ("take", "git claim <id>"),
    ("get", "git claim <id>"),
    ("assign", "git claim <id>"),
    ("claim", "git claim <id>"),
    ("lock", "git claim <id>"),
    ("wait", "git claim <id> --wait"),
    ("next", "git claim --next"),
    ("release", "git unclaim <id>"),
    ("unclaim", "git unclaim <id>"),
    ("unlock", "git unclaim <id>"),
    ("drop", "git unclaim <id>"),
    ("free", "git unclaim <id>"),
    ("done", "git unclaim <id>"),
    ("extend", "git claim renew <id>"),
    ("refresh", "git claim renew <id>"),
    ("who", "git claim whoami"),
    ("version", "git claim --version"),
];

/// Subcommands of later versions: never ids, so that they can come without
/// changing what a command line means.
const RESERVED: &[&str] = &["serve", "watch"];

/// The words of a call of `git claim`, the program's name first, with the
/// subcommand moved to the front.
///
/// # Errors
/// A usage error, where the word that decides looks like a subcommand and is
/// none.
pub fn arrange(definition: &clap::Command, words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut arranged = words.to_vec();
    let Some(at) = first_plain_word(definition, words) else {
        return Ok(arranged);
    };
    // What is not UTF-8 is no subcommand, and no id either: clap says so.
    let Some(word) = words[at].to_str() else {
        return Ok(arranged);
    };
    if definition.find_subcommand(word).is_some() {
        let runs = word == RUN;
        let subcommand = arranged.remove(at);
        arranged.insert(1, subcommand);
        if runs {
            set_command_apart(definition, &mut arranged)?;
        }
        return Ok(arranged);
    }
    match meant_instead(definition, word) {
        None => Ok(arranged),
        Some(hint) => Err(no_subcommand(word).hint(format!(
            "{hint} (an issue that is really called '{word}' is claimed by `git claim -- {word}`)"
        ))),
    }
}

/// A word that stands where a subcommand would, and is none.
pub fn no_subcommand(word: &str) -> Failure {
    Failure::usage(format!("'{}' is no subcommand of git claim", escape(word)))
}

/// The first word that is no option and no option's value.
pub fn plain_word<'a>(definition: &clap::Command, words: &'a [OsString]) -> Option<&'a str> {
    words[first_plain_word(definition, words)?].to_str()
}

/// The subcommand whose last words are another program's.
pub const RUN: &str = "run";

/// How a command is run.
pub const RUN_EXAMPLES: &str = "`git claim run 43 -- make test` runs one, `git claim run --next -- make test` on the first open issue; a shell takes #43 for a comment";

/// Puts a `--` in front of the command that `run` runs, unless there is one: it
/// begins with the first word that is no option, behind the id if there is no
/// `--next`. No word of it is ours.
///
/// # Errors
/// There is a `--` and a command, and no id in front of them.
fn set_command_apart(definition: &clap::Command, words: &mut Vec<OsString>) -> Result<(), Failure> {
    const FIRST: usize = 2;
    let has = |words: &[OsString], which: &[&str]| {
        let mut words = words.iter();
        words.any(|word| which.iter().any(|option| word == option))
    };
    let is_next = |words: &[OsString]| has(words, &["--next"]);
    let Some(mut at) = plain_word_from(FIRST, definition, words) else {
        let end = words.iter().position(|word| word == "--");
        return match end {
            Some(end)
                if !has(&words[FIRST..end], &["--next", "-h", "--help"])
                    && end + 1 < words.len() =>
            {
                Err(Failure::usage("no issue is named in front of the command")
                    .of_run()
                    .hint(RUN_EXAMPLES))
            }
            _ => Ok(()),
        };
    };
    if !is_next(&words[FIRST..at]) {
        let id = at;
        match plain_word_from(id + 1, definition, words) {
            None => return Ok(()),
            // `run 42 --next make`: clap says that the two don't go together.
            Some(command) => at = command,
        }
    }
    words.insert(at, "--".into());
    Ok(())
}

/// Where the first word stands that is no option and no option's value. After
/// `--` there is none: all that follows are ids.
fn first_plain_word(definition: &clap::Command, words: &[OsString]) -> Option<usize> {
    plain_word_from(1, definition, words)
}

fn plain_word_from(first: usize, definition: &clap::Command, words: &[OsString]) -> Option<usize> {
    let mut at = first;
    while let Some(word) = words.get(at) {
        let bytes = word.as_encoded_bytes();
        if bytes == b"--" {
            return None;
        }
        if !bytes.starts_with(b"-") || bytes == b"-" {
            return Some(at);
        }
        at += if value_follows(definition, word) {
            2
        } else {
            1
        };
    }
    None
}

/// Whether the word after this option is its value.
fn value_follows(definition: &clap::Command, option: &OsStr) -> bool {
    let Some(option) = option.to_str() else {
        return false;
    };
    if let Some(long) = option.strip_prefix("--") {
        return option_with_value(definition, |arg| arg.get_long() == Some(long)).is_some();
    }
    // A cluster as in `-qt 2h`: the first letter that takes a value ends it.
    let mut letters = option.chars().skip(1);
    letters
        .find(|letter| {
            option_with_value(definition, |arg| arg.get_short() == Some(*letter)).is_some()
        })
        .is_some_and(|_| letters.next().is_none())
}

/// The option that takes a value behind it and is `meant`.
pub fn option_with_value(
    definition: &clap::Command,
    meant: impl Fn(&clap::Arg) -> bool,
) -> Option<&clap::Arg> {
    options(definition).find(|arg| takes_value(arg) && meant(arg))
}

/// The options of the program and of its subcommands; a name means the same
/// everywhere.
fn options(definition: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    definition.get_arguments().chain(
        definition
            .get_subcommands()
            .flat_map(clap::Command::get_arguments),
    )
}

fn takes_value(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// What somebody who typed `word` for a subcommand may have meant. `None` if
/// it can be an id.
fn meant_instead(definition: &clap::Command, word: &str) -> Option<String> {
    if RESERVED.contains(&word) {
        return Some(
            "this version does not have it yet; `git claim -h` lists what there is".into(),
        );
    }
    if let Some((_, command)) = LOOKALIKES.iter().find(|(name, _)| *name == word) {
        return Some(format!("did you mean `{command}`?"));
    }
    // Ids that are words exist too; only what is nearly a subcommand is not
    // taken for one.
    if word.len() < 4 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return None;
    }
    let subcommands = definition
        .get_subcommands()
        .flat_map(clap::Command::get_name_and_visible_aliases)
        .map(|name| (name, format!("git claim {name}")));
    let lookalikes = LOOKALIKES
        .iter()
        .map(|(name, command)| (*name, (*command).to_owned()));
    let (distance, name, command) = subcommands
        .chain(lookalikes)
        .map(|(name, command)| (strsim::damerau_levenshtein(name, word), name, command))
        .min()?;
    let near = if name.len() > 6 { 2 } else { 1 };
    (distance <= near).then(|| format!("did you mean `{command}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Program, command};

    fn arranged(line: &str) -> Result<String, Failure> {
        let words: Vec<OsString> = std::iter::once("git-claim")
            .chain(line.split_whitespace())
            .map(OsString::from)
            .collect();
        let words = arrange(&command(Program::Claim), &words)?;
        let words: Vec<&str> = words[1..]
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn the_first_plain_word_decides() {
        for (given, expected) in [
            ("", ""),
            ("42", "42"),
            ("log", "log"),
            ("--json log", "log --json"),
            ("-r origin log 42", "log -r origin 42"),
            ("--remote=log 42", "--remote=log 42"),
            ("-rlog 42", "-rlog 42"),
            ("--remote log 42", "--remote log 42"),
            ("-q -t 2h renew 42", "renew -q -t 2h 42"),
            ("-qt 2h renew", "renew -qt 2h"),
            ("-t2h renew", "renew -t2h"),
            ("--session s --reason r log", "log --session s --reason r"),
            ("-m log 42", "-m log 42"),
            ("-- log", "-- log"),
            ("-- list", "-- list"),
            ("42 log", "42 log"),
            ("a1b2", "a1b2"),
            ("dead", "dead"),
            ("bd-a1", "bd-a1"),
            ("#43", "#43"),
        ] {
            assert_eq!(arranged(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn the_command_of_run_is_set_apart() {
        for (given, expected) in [
            ("run 42 make -j4", "run 42 -- make -j4"),
            ("run 42 -t 2h make -t x", "run 42 -t 2h -- make -t x"),
            ("run -t 2h 42 make -- x", "run -t 2h 42 -- make -- x"),
            ("run 42 -- make -q", "run 42 -- make -q"),
            ("run 42 -t 2h -- -make", "run 42 -t 2h -- -make"),
            ("run --next make --next", "run --next -- make --next"),
            ("run --next -t 2h make", "run --next -t 2h -- make"),
            ("run -t 2h --next -- make", "run -t 2h --next -- make"),
            ("--json run 42 make --json", "run --json 42 -- make --json"),
            ("run 42", "run 42"),
            ("run", "run"),
            ("run --", "run --"),
            ("run --next -- make", "run --next -- make"),
            ("run --help -- make", "run --help -- make"),
            ("run -h -- make", "run -h -- make"),
        ] {
            assert_eq!(arranged(given).unwrap(), expected, "{given}");
        }
    }

    #[test]
    fn a_command_of_run_needs_an_issue_in_front() {
        for line in [
            "run -- make",
            "run -t 2h -- make x",
            "--json run -- make --next",
        ] {
            assert_eq!(arranged(line).unwrap_err().kind.code(), 102, "{line}");
        }
    }

    #[test]
    fn what_looks_like_a_subcommand_is_no_id() {
        for (line, hint) in [
            ("list", "`git claims`"),
            ("status", "`git claims`"),
            ("--json status", "`git claims`"),
            ("renw", "`git claim renew`"),
            ("rneew 42", "`git claim renew`"),
            ("whoam", "`git claim whoami`"),
            ("completion bash", "`git claim completions`"),
            ("release 42", "`git unclaim <id>`"),
            ("next", "`git claim --next`"),
            ("done 42", "`git unclaim <id>`"),
            ("assign 42", "`git claim <id>`"),
            ("get 42", "`git claim <id>`"),
            ("wait 42", "`git claim <id> --wait`"),
            ("watch 42", "does not have it yet"),
            ("recove 42", "`git claim recover`"),
            ("relase 42", "`git unclaim <id>`"),
            ("relase 42 43", "(an issue that is really called 'relase'"),
            ("lsit", "`git claims`"),
            ("-t 2h statsu", "`git claims`"),
        ] {
            let failure = arranged(line).unwrap_err();
            assert_eq!(failure.kind.code(), 2, "{line}");
            assert!(
                failure.hint.as_ref().unwrap().contains(hint),
                "{line}: {failure:?}"
            );
        }
    }
}

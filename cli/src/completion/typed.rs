//! A command line that is still being typed.

use std::ffi::{OsStr, OsString};

use git_claim_api::ids::Session;

use crate::args::{Program, command};
use crate::word_order::{RUN, arrange, option_with_value};

/// What was typed, in an order and a form in which clap's engine takes no
/// option's value for a subcommand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Typed {
    /// The program first, and last what is to be completed.
    pub words: Vec<OsString>,
    pub remote: Option<String>,
    pub session: Option<Session>,
    pub next: bool,
    /// `--take-over` or `--force`.
    pub evicts: bool,
    /// The words that are no option, a subcommand among them.
    pub plain: Vec<OsString>,
    /// Whether there was a `--`: what comes now is no option.
    pub is_escaped: bool,
}

impl Typed {
    /// Reads `words`, the program first and last what is to be completed.
    pub fn read(program: Program, words: &[OsString]) -> Option<Typed> {
        let definition = command(program);
        let (current, before) = words.split_last()?;
        // Whoever begins an option is told of their long names.
        let current = match current == "-" {
            true => OsStr::new("--"),
            false => current,
        };
        let before = match program {
            Program::Claim => arranged(&definition, before, current),
            Program::Claims | Program::Unclaim => before.to_vec(),
        };
        let mut words = before.into_iter();
        let mut typed = Typed::default();
        typed.words.push(words.next()?);
        while let Some(word) = words.next() {
            match word.to_str() {
                Some("--") => {
                    typed.is_escaped = true;
                    typed.words.push(word);
                    for word in words.by_ref() {
                        typed.plain.push(word.clone());
                        typed.words.push(word);
                    }
                }
                Some(text) if text.starts_with("--") => {
                    typed.long(&definition, &text[2..], &mut words);
                }
                Some(text) if text.len() > 1 && text.starts_with('-') => {
                    typed.shorts(&definition, &text[1..], &mut words);
                }
                _ => {
                    typed.plain.push(word.clone());
                    typed.words.push(word);
                }
            }
        }
        typed.words.push(current.to_owned());
        Some(typed)
    }

    /// What is to be completed.
    pub fn current(&self) -> &OsStr {
        self.words.last().map_or(OsStr::new(""), |word| word)
    }

    /// `--name`, or `--name=value`, or `--name value`.
    fn long(
        &mut self,
        definition: &clap::Command,
        text: &str,
        rest: &mut impl Iterator<Item = OsString>,
    ) {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        let is_known = option_with_value(definition, |arg| arg.get_long() == Some(name)).is_some();
        match value {
            None if is_known => self.option(name, rest.next()),
            value => self.option(name, value),
        }
    }

    /// A cluster as in `-qt 2h`: the first letter that takes a value ends it.
    fn shorts(
        &mut self,
        definition: &clap::Command,
        letters: &str,
        rest: &mut impl Iterator<Item = OsString>,
    ) {
        for (at, letter) in letters.char_indices() {
            let Some(arg) = option_with_value(definition, |arg| arg.get_short() == Some(letter))
            else {
                self.words.push(format!("-{letter}").into());
                continue;
            };
            let attached = &letters[at + letter.len_utf8()..];
            let value = match attached {
                "" => rest.next(),
                attached => Some(attached.trim_start_matches('=').into()),
            };
            self.option(arg.get_long().unwrap_or_default(), value);
            return;
        }
    }

    /// An option, with its value in the same word; without it, where that is
    /// what is to be completed.
    fn option(&mut self, name: &str, value: Option<OsString>) {
        match (name, value.as_ref().and_then(|value| value.to_str())) {
            ("remote", Some(value)) => self.remote = Some(value.to_owned()),
            ("session", Some(value)) => self.session = value.parse().ok(),
            ("next", _) => self.next = true,
            ("take-over" | "force", _) => self.evicts = true,
            _ => {}
        }
        let mut word = OsString::from(format!("--{name}"));
        if let Some(value) = value {
            word.push("=");
            word.push(value);
        }
        self.words.push(word);
    }
}

/// `before` with the subcommand in front. What looks like a subcommand and is
/// none is left where it is.
fn arranged(definition: &clap::Command, before: &[OsString], current: &OsStr) -> Vec<OsString> {
    let arranged = arrange(definition, before).unwrap_or_else(|_| before.to_vec());
    if arranged.get(1).is_none_or(|word| word != RUN) {
        return arranged;
    }
    // What is to be completed may be the command that is run.
    let words = [before, &[current.to_owned()]].concat();
    match arrange(definition, &words) {
        Ok(mut arranged) => {
            arranged.pop();
            arranged
        }
        Err(_) => arranged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(program: Program, line: &str) -> Typed {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Typed::read(program, &words).unwrap()
    }

    #[test]
    fn words_come_in_the_order_and_form_of_the_engine() {
        for (line, read_as) in [
            ("x ", "x "),
            ("x re", "x re"),
            ("x renew ", "x renew "),
            ("x --json renew 4", "x renew --json 4"),
            ("x -m log 4", "x --note=log 4"),
            ("x -r", "x -r"),
            ("x -r ", "x --remote "),
            ("x -qr up ", "x -q --remote=up "),
            ("x -rup ", "x --remote=up "),
            (
                "x --remote=up renew --session s ",
                "x renew --remote=up --session=s ",
            ),
            ("x --wait 4", "x --wait 4"),
            ("x --nonsense -z 4", "x --nonsense -z 4"),
            ("x -- renew ", "x -- renew "),
            ("x list ", "x list "),
            ("x run 4", "x run 4"),
            ("x run 42 ", "x run 42 -- "),
            ("x run 42 -", "x run 42 --"),
            ("x run 42 make -", "x run 42 -- make --"),
            ("x run -t 5m 42 make --ti", "x run --ttl=5m 42 -- make --ti"),
            ("x run --next ma", "x run --next -- ma"),
            ("x run --next -- ma", "x run --next -- ma"),
        ] {
            let typed = read(Program::Claim, line);
            let words: Vec<&str> = typed.words.iter().filter_map(|w| w.to_str()).collect();
            assert_eq!(words.join(" "), read_as, "{line}");
        }
    }

    #[test]
    fn what_decides_on_ids_is_found() {
        let typed = read(Program::Claim, "x --remote=up --session s1 --take-over ");
        assert_eq!(typed.remote.as_deref(), Some("up"));
        assert_eq!(typed.session.unwrap().as_str(), "s1");
        assert!(typed.evicts && !typed.next && typed.plain.is_empty());
        let typed = read(Program::Unclaim, "x --force -r up ");
        assert_eq!((typed.evicts, typed.remote.as_deref()), (true, Some("up")));
        // A value is no option.
        let typed = read(Program::Claim, "x -m --take-over --reason --next 42 ");
        assert!(!typed.evicts && !typed.next);
        assert_eq!(typed.plain, ["42"]);
        assert!(read(Program::Claim, "x run --next ").next);
        assert!(!read(Program::Claim, "x run 42 -- --next ").next);
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(Typed::read(Program::Claim, &[]), None);
        assert_eq!(Typed::read(Program::Claim, &["x".into()]), None);
    }
}

//! The parts of a page that a command's definition knows: what is typed, and
//! what that means.

use clap::{Arg, Command};

use super::mdoc::{Mdoc, flowing, literal};

/// When the pages last said something new.
const CHANGED: &str = "December 1, 2026";

/// What a page is called, where roff wants it.
pub fn title(page: &mut Mdoc, name: &str, section: &str) {
    page.request("Dd", CHANGED);
    page.request("Dt", &format!("{} {section}", name.to_uppercase()));
    page.request("Os", "");
}

/// The page up to the first part of its description.
pub fn head(page: &mut Mdoc, name: &str, command: &Command) {
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let long = command.get_long_about().map(ToString::to_string);
    title(page, name, "1");
    page.request("Sh", "NAME");
    page.request("Nm", name);
    page.request("Nd", &flowing(&lower(&about)));
    page.request("Sh", "SYNOPSIS");
    synopsis(page, command);
    page.request("Sh", "DESCRIPTION");
    let rest = long.as_deref().and_then(|long| long.split_once("\n\n"));
    page.prose(&sentences(rest.map_or(about.as_str(), |(_, rest)| rest)));
}

/// What can be typed, one line a form.
pub fn synopsis(page: &mut Mdoc, command: &Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    for line in usage.trim_start_matches("Usage:").lines() {
        let words = line.trim().strip_prefix(name);
        let words = words.unwrap_or_else(|| panic!("{name} is called otherwise in {line}"));
        page.request("Nm", &format!("\"{}\"", literal(name)));
        for group in groups(words) {
            page.request(&typed(&group), "");
        }
    }
}

/// The words of a form of a command, what stands in brackets as one.
fn groups(form: &str) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in form.split_whitespace() {
        match groups.last_mut().filter(|_| is_open) {
            Some(group) => group.push_str(&format!(" {word}")),
            None => groups.push(word.to_owned()),
        }
        let group = groups.last().map(String::as_str).unwrap_or_default();
        is_open = group.matches('[').count() > group.matches(']').count();
    }
    groups
}

/// `[ID]...`, `<ID>`, `--next`, `[-- <WORD>...]`.
fn typed(group: &str) -> String {
    let more = if group.ends_with("...") { " ..." } else { "" };
    let group = group.trim_end_matches("...");
    let optional = group
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(inner) = optional {
        let words: Vec<String> = inner.split(' ').map(typed).collect();
        return format!("Op {}{more}", words.join(" "));
    }
    match group.strip_prefix('-') {
        Some(option) => format!("Fl {}", literal(option)),
        None => format!("Ar {}{more}", value(group.trim_matches(['<', '>']))),
    }
}

/// The arguments and options, those that every command takes behind its own.
pub fn options(page: &mut Mdoc, command: &Command) {
    let (common, own): (Vec<&Arg>, Vec<&Arg>) =
        shown(command).partition(|argument| argument.is_global_set());
    page.request("Sh", "OPTIONS");
    list(page, own.into_iter().chain(common));
}

/// What all commands of a program take, its subcommands in full on one page;
/// `everywhere` is the option that all of them have.
pub fn commands(page: &mut Mdoc, program: &Command, everywhere: &str) {
    for command in subcommands_of(program) {
        page.request("Ss", &literal(command.get_name()));
        let about = command.get_long_about().or(command.get_about());
        page.prose(&sentences(
            &about.map(ToString::to_string).unwrap_or_default(),
        ));
        let own: Vec<&Arg> = shown(command)
            .filter(|argument| argument.get_id() != everywhere)
            .collect();
        if !own.is_empty() {
            list(page, own);
        }
    }
}

/// A program's own subcommands, without clap's `help`.
pub fn subcommands_of(program: &Command) -> impl Iterator<Item = &Command> {
    let is_of_clap = |command: &Command| {
        command.get_name() == "help" && !program.is_disable_help_subcommand_set()
    };
    program
        .get_subcommands()
        .filter(move |command| !command.is_hide_set() && !is_of_clap(command))
}

/// The arguments that a page shows; those of clap are not among them.
fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    let of_clap = |argument: &Arg| matches!(argument.get_id().as_str(), "help" | "version");
    command
        .get_arguments()
        .filter(move |argument| !argument.is_hide_set() && !of_clap(argument))
}

fn list<'a>(page: &mut Mdoc, arguments: impl IntoIterator<Item = &'a Arg>) {
    let entries = arguments.into_iter();
    page.list(entries.map(|argument| (term(argument), meaning(argument))));
}

/// An argument as one types it.
fn term(argument: &Arg) -> String {
    let value = argument
        .get_value_names()
        .and_then(|names| names.first())
        .filter(|_| argument.get_action().takes_values() || argument.is_positional())
        .map(|name| value(name));
    let is_many = argument
        .get_num_args()
        .is_some_and(|count| count.max_values() > 1);
    let more = if is_many { " ..." } else { "" };
    let names: Vec<String> = [
        argument.get_short().map(|short| format!("Fl {short}")),
        argument
            .get_long()
            .map(|long| format!("Fl \\-{}", literal(long))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names = names.join(" , ");
    match value {
        Some(value) if names.is_empty() => format!("Ar {value}{more}"),
        Some(value) if argument.is_require_equals_set() => {
            format!("{names} Ns Op = Ns Ar {value}")
        }
        Some(value) => format!("{names} Ar {value}{more}"),
        None => names,
    }
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let help = sentences(&help.map(ToString::to_string).unwrap_or_default());
    let values = argument.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    match values.is_empty() {
        true => help,
        false => format!("{help} Values: {}.", values.join(", ")),
    }
}

/// A value's name, which clap writes in capitals; others show what it is like.
fn value(name: &str) -> String {
    match name.contains(':') {
        true => literal(name),
        false => literal(&name.to_lowercase()),
    }
}

/// The subcommands, each with its page.
pub fn subcommands(page: &mut Mdoc, command: &Command) {
    let entries = subcommands_of(command).map(|subcommand| {
        let name = subcommand.get_name();
        let about = subcommand.get_about().map(ToString::to_string);
        let mut meaning = sentences(&about.unwrap_or_default());
        for alias in subcommand.get_visible_aliases() {
            meaning.push_str(&format!(" Also `git claim {alias}`."));
        }
        let page = literal(&format!("{}-{name}", command.get_name()));
        (format!("Xr {page} 1"), meaning)
    });
    page.list(entries);
}

/// What clap has without a full stop, as sentences.
fn sentences(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let ends = paragraph.ends_with(['.', '!', '?', ':']);
        format!("{paragraph}{}", if ends { "" } else { "." })
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

fn lower(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|c| c.to_lowercase().to_string());
    first.unwrap_or_default() + rest.as_str()
}

//! The man pages and the completions are what the code says. Each is rendered
//! here from the definitions and compared with the file that is installed;
//! `SNAPSHOTS=overwrite` writes the files anew.

use std::path::PathBuf;

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use git_claim::args::{Program, command};
use git_claim::completions::{Shell, script};
use git_claim_api::exit::Exit;
use git_claim_api::settings::{KEYS, Place};
use snapbox::{Data, assert_data_eq};

fn file(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

#[test]
fn the_man_pages_are_up_to_date() {
    for program in Program::ALL {
        let path = file(&format!("man/{}.1", program.name()));
        assert_data_eq!(page(program), Data::read_from(&path, None).raw());
    }
}

#[test]
fn the_completions_are_up_to_date() {
    for program in Program::ALL {
        for shell in Shell::ALL {
            let path = file("completions").join(shell.file_name(program));
            assert_data_eq!(script(program, shell), Data::read_from(&path, None).raw());
        }
    }
}

#[test]
fn every_exit_code_is_in_every_page() {
    for program in Program::ALL {
        // As it reads, not as it is typed.
        let page = page(program).replace('\n', " ").replace("\\-", "-");
        for exit in Exit::ALL {
            let entry = format!(".TP \\fB{}\\fR {}", exit.code(), exit.meaning());
            assert!(page.contains(&entry), "{}: {exit:?}", program.name());
        }
    }
}

/// When the pages last said something new.
const CHANGED: &str = "2026-12-01";

/// A program's manual page.
fn page(program: Program) -> String {
    let mut definition = command(program);
    definition.build();
    let subcommands: Vec<clap::Command> = definition
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .cloned()
        .collect();
    let version = definition.get_version().unwrap_or_default().to_owned();
    let man = Man::new(definition)
        .title(program.name().to_uppercase())
        .date(CHANGED)
        .source(format!("git-claim {version}"))
        .manual("Git Manual");
    let mut page = Vec::new();
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    let mut rest = Roff::new();
    if !subcommands.is_empty() {
        rest.control("SH", ["SUBCOMMANDS"]);
        for subcommand in &subcommands {
            describe(&mut rest, subcommand);
        }
    }
    sections(&mut rest, program);
    rest.to_writer(&mut page).unwrap();
    tidy(&String::from_utf8(page).unwrap())
}

/// The page with its preamble once and with lines that a person can read; every
/// section was rendered with a preamble of its own.
fn tidy(page: &str) -> String {
    let preamble: String = page
        .lines()
        .take_while(|line| !line.starts_with(".TH"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut out = preamble.clone();
    for line in page.replace(&preamble, "").lines() {
        let mut column = 0;
        for word in line.trim_end().split(' ') {
            let starts_request = word.starts_with(['.', '\'']);
            let wraps = column + word.len() > 78 && !line.starts_with('.') && !starts_request;
            match (column, wraps) {
                (0, _) => {}
                (_, true) => {
                    out.push('\n');
                    column = 0;
                }
                (_, false) => {
                    out.push(' ');
                    column += 1;
                }
            }
            out.push_str(word);
            column += word.len();
        }
        out.push('\n');
    }
    out
}

/// A subcommand: how it is typed, what it does, and what it alone takes.
fn describe(page: &mut Roff, subcommand: &clap::Command) {
    let mut usage = format!("git claim {}", subcommand.get_name());
    let own = || {
        subcommand
            .get_arguments()
            .filter(|argument| !argument.is_global_set() && !argument.is_hide_set())
            .filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
    };
    for argument in own() {
        usage.push_str(&match argument.is_positional() {
            true if argument.is_required_set() => format!(" {}", name(argument)),
            _ => format!(" [{}]", name(argument)),
        });
        let most = argument
            .get_num_args()
            .map_or(1, |range| range.max_values());
        if argument.is_positional() && most > 1 {
            usage.push_str("...");
        }
    }
    page.control("SS", [usage.as_str()]);
    let about = subcommand.get_long_about().or(subcommand.get_about());
    paragraphs(page, &about.map(ToString::to_string).unwrap_or_default());
    let aliases: Vec<&str> = subcommand.get_visible_aliases().collect();
    if !aliases.is_empty() {
        page.control("PP", []);
        page.text([roman("Also: "), bold(aliases.join(", "))]);
    }
    for argument in own() {
        let help = argument.get_long_help().or(argument.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let mut help = help.replace("\n\n", ". ").replace('\n', " ");
        let values = argument.get_possible_values();
        if !values.is_empty() {
            let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            help.push_str(&format!(": {}", values.join(", ")));
        }
        page.control("TP", []);
        page.text([bold(name(argument))]);
        page.text([roman(help)]);
    }
}

fn paragraphs(page: &mut Roff, text: &str) {
    for (at, paragraph) in text.split("\n\n").enumerate() {
        if at > 0 {
            page.control("PP", []);
        }
        page.text([roman(paragraph.replace('\n', " "))]);
    }
}

/// An argument as one types it.
fn name(argument: &clap::Arg) -> String {
    let value = argument
        .get_value_names()
        .and_then(|names| names.first())
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("<{value}>"));
    let option = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        _ => return value.unwrap_or_default(),
    };
    match value {
        Some(value) => format!("{option} {value}"),
        None => option,
    }
}

/// What clap does not know.
fn sections(page: &mut Roff, program: Program) {
    page.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        entry(page, bold(exit.code().to_string()), exit.meaning());
    }
    if program == Program::Claim {
        for (codes, meaning) in OF_RUN {
            entry(page, bold(*codes), meaning);
        }
    }
    page.control("SH", ["CONFIGURATION"]);
    page.text([
        roman("Read from "),
        bold("git-config"),
        roman("(1). Another key that begins with \"claim.\" is reported and has no effect."),
    ]);
    for key in KEYS
        .iter()
        .filter(|key| key.places.contains(&Place::Client))
    {
        entry(page, bold(key.shown), key.meaning);
    }
    entry(
        page,
        bold("remote.<name>.claimUrl"),
        "the server that keeps this remote's claims, where it is not the one that you push to",
    );
    page.control("SH", ["ENVIRONMENT"]);
    for (variable, meaning) in ENVIRONMENT {
        entry(page, bold(*variable), meaning);
    }
    page.control("SH", ["EXAMPLES"]);
    for (typed, meaning) in examples(program) {
        entry(page, bold(*typed), meaning);
    }
    page.control("SH", ["SEE ALSO"]);
    let others = Program::ALL
        .iter()
        .filter(|other| **other != program)
        .map(|other| other.name())
        .chain(["git-push", "git-config", "ssh_config"]);
    let mut words = Vec::new();
    for other in others {
        if !words.is_empty() {
            words.push(roman(", "));
        }
        let section = if other == "ssh_config" { "(5)" } else { "(1)" };
        words.push(bold(other));
        words.push(roman(section));
    }
    page.text(words);
}

fn entry(page: &mut Roff, term: Inline, meaning: &str) {
    page.control("TP", []);
    page.text([term]);
    page.text([roman(meaning)]);
}

/// The exit codes of `git claim run`.
const OF_RUN: &[(&str, &str)] = &[
    (
        "101, 102, 103, 104, 106, 107",
        "git claim run: as above, 100 added; the command was not run. Every other code is the command's own, as a shell says it: 126 and 127 if it cannot be run, 128 + n if signal n ended it.",
    ),
    (
        "105",
        "git claim run: the claim was lost while the command ran, and the command was ended",
    ),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "GIT_CLAIM_SESSION",
        "the session to act as, where --session is not given",
    ),
    (
        "GIT_CLAIM_SSH_COMMAND, GIT_SSH_COMMAND, GIT_SSH, GIT_SSH_VARIANT",
        "how ssh is run, by the rules of git(1); the first takes precedence, and core.sshCommand over GIT_SSH. With any of them each call makes a connection of its own.",
    ),
    ("NO_COLOR", "if set, nothing is coloured"),
];

fn examples(program: Program) -> &'static [(&'static str, &'static str)] {
    match program {
        Program::Claim => &[
            (
                "git claim 42 --ttl 2h",
                "Take issue 42 for two hours. Repeating it starts the two hours anew.",
            ),
            (
                "git claim a1b2 -m 'looking into the crash'",
                "Take the issue whose id begins with a1b2, until you release it, and tell others why.",
            ),
            (
                "git claim --next --ttl 1h --json",
                "Take the first open issue that nobody holds; for programs.",
            ),
            (
                "git claim 42 --wait=10m",
                "Take issue 42 as soon as it is free, if that is within ten minutes.",
            ),
            (
                "git claim run --next -t 10m -- make test",
                "Take the next issue, run a command on it, and give it back. In a loop this is a worker.",
            ),
            (
                "git claim renew 42",
                "Say that you are still at it: the two hours start anew.",
            ),
            (
                "git claim 42 --take-over --reason 'bob is on leave' --expected-token 7",
                "As an admin, take exactly the claim with the token 7. Bob is told who did it, and why.",
            ),
        ],
        Program::Claims => &[
            ("git claims", "Who works on what."),
            (
                "git claims --mine",
                "What you have claimed, here and elsewhere.",
            ),
            (
                "git claims --json",
                "The same for programs: the server's reply, one line of JSON.",
            ),
        ],
        Program::Unclaim => &[
            ("git unclaim 42", "Give issue 42 back."),
            (
                "git unclaim 42 --force --reason 'that worktree is gone'",
                "Give back what you claimed in another session.",
            ),
        ],
    }
}

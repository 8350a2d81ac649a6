//! The manual, the README's tables and the completions are what the code says.
//! What the code knows better is rendered here and compared with the files;
//! `SNAPSHOTS=overwrite` writes them anew.

mod blocks;
mod command;
mod examples;
mod keys;
mod mdoc;
mod security;
mod stage;
mod tables;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use clap::Command;
use git_claim::args::{Program, command};
use git_claim::completion::script::{Shell, script};
use git_claim_api::settings::Place;
use snapbox::{Data, assert_data_eq};

use self::mdoc::Mdoc;
use crate::support::client::stdout;
use crate::support::programs::{need, source};

/// Held by whoever writes a page anew from what it was.
static EDITING: Mutex<()> = Mutex::new(());

/// Every page of the manual.
fn pages() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(source().join("man")).unwrap();
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_pages_are_up_to_date() {
    for path in pages() {
        let _lock = EDITING.lock();
        let written = blocks::filled(&read(&path), blocks::ROFF, |block| part(&path, block));
        assert_data_eq!(written, Data::read_from(&path, None).raw());
    }
}

#[test]
fn the_readme_is_up_to_date() {
    let path = source().join("README.md");
    let written = blocks::filled(&read(&path), blocks::MARKDOWN, |block| match block {
        "exit codes" => exit_table(tables::exit_codes()),
        "exit codes of run" => exit_table(tables::exit_codes_of_run()),
        "client keys" => tables::client_keys(),
        "server keys" => tables::server_keys(),
        other => panic!("the README wants the table '{other}'"),
    });
    assert_data_eq!(written, Data::read_from(&path, None).raw());
}

fn exit_table(codes: Vec<(String, String)>) -> String {
    let rows = codes.into_iter().map(|(code, meaning)| vec![code, meaning]);
    tables::markdown(&["exit", "meaning"], rows)
}

#[test]
fn the_completions_are_up_to_date() {
    for program in Program::ALL {
        for shell in Shell::ALL {
            let path = source().join("completions").join(shell.file_name(program));
            assert_data_eq!(script(program, shell), Data::read_from(&path, None).raw());
        }
    }
}

#[test]
fn every_command_has_a_page() {
    let there: BTreeSet<String> = pages()
        .iter()
        .filter(|path| path.extension().unwrap() == "1")
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        there,
        commands().into_iter().map(|(name, _)| name).collect()
    );
}

#[test]
fn nobody_has_anything_to_say_about_the_pages() {
    for page in pages() {
        let lint = assert_cmd::Command::new(need("mandoc"))
            .arg("-Tlint")
            .arg(&page)
            .assert();
        let lint = stdout(&lint);
        let said: Vec<&str> = lint
            .lines()
            // Which other pages there are is up to the machine.
            .filter(|line| !line.contains("referenced manual not found"))
            .collect();
        assert_eq!(said, [""; 0]);
        assert_cmd::Command::new(need("man"))
            .args(["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"])
            .arg(&page)
            .env("MAN_DISABLE_SECCOMP", "1")
            .env("MANWIDTH", "80")
            .env("LC_ALL", "C.UTF-8")
            .assert()
            .success()
            .stderr("");
    }
}

/// Every command that a person types, by the name of its page.
fn commands() -> Vec<(String, Command)> {
    let mut commands = Vec::new();
    for program in Program::ALL {
        let definition = built(command(program));
        let subcommands: Vec<Command> = command::subcommands_of(&definition).cloned().collect();
        commands.push((program.name().to_owned(), definition));
        for subcommand in subcommands {
            let name = format!("{}-{}", program.name(), subcommand.get_name());
            commands.push((name, subcommand));
        }
    }
    commands
}

fn built(mut definition: Command) -> Command {
    definition.build();
    definition
}

/// The block of this name in a page.
fn part(path: &Path, block: &str) -> String {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let section = path.extension().unwrap().to_str().unwrap();
    let definition = || {
        let found = commands().into_iter().find(|(page, _)| page == name);
        found.unwrap_or_else(|| panic!("{name} is no command")).1
    };
    let server = || built(git_claim_server::cli::command());
    let mut page = Mdoc::default();
    if let Some(codes) = block.strip_prefix("exit codes ")
        && codes != "of run"
    {
        let of_command = tables::exit_codes().into_iter();
        let of_command = of_command.filter(|(code, _)| codes.split(' ').any(|c| c == code));
        tables::exit_section(&mut page, of_command.collect());
        return page.into_text();
    }
    match block {
        "title" => command::title(&mut page, name, section),
        "head" => command::head(&mut page, name, &definition()),
        "options" => command::options(&mut page, &definition()),
        "subcommands" => command::subcommands(&mut page, &definition()),
        "server synopsis" => {
            for subcommand in command::subcommands_of(&server()) {
                command::synopsis(&mut page, subcommand);
            }
        }
        "server commands" => command::commands(&mut page, &server(), "config"),
        "exit codes" => tables::exit_section(&mut page, tables::exit_codes()),
        "exit codes of run" => tables::exit_section(&mut page, tables::exit_codes_of_run()),
        "client keys" => tables::keys(&mut page, Place::Client),
        "server keys" => tables::keys(&mut page, Place::Server),
        "repository keys" => tables::keys(&mut page, Place::Repository),
        other => panic!("{name} wants a block '{other}'"),
    }
    page.into_text()
}

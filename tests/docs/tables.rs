//! The tables of exit codes and keys, as the pages and the README show them.

use git_claim::codes_of_run;
use git_claim_api::exit::Exit;
use git_claim_api::settings::{Key, Place, of};

use super::mdoc::{Mdoc, literal};

/// What `git claim`, and so the server's verb, exits with.
pub fn exit_codes() -> Vec<(String, String)> {
    let row = |exit: Exit| (exit.code().to_string(), exit.meaning().to_owned());
    Exit::ALL.into_iter().map(row).collect()
}

/// What `git claim run` exits with.
pub fn exit_codes_of_run() -> Vec<(String, String)> {
    let row = |(codes, meaning): (String, &str)| (codes, meaning.to_owned());
    codes_of_run().into_iter().map(row).collect()
}

/// A section of exit codes.
pub fn exit_section(page: &mut Mdoc, codes: Vec<(String, String)>) {
    page.request("Sh", "EXIT STATUS");
    page.list(codes);
}

/// The keys of a place with what they mean.
pub fn keys(page: &mut Mdoc, place: Place) {
    let entry = |key: &Key| (format!("Cm {}", literal(key.name)), key.meaning.to_owned());
    page.list(of(place).map(entry));
}

/// A table in Markdown.
pub fn markdown(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(head) + &line(&vec!["---"; head.len()]);
    for row in rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        table.push_str(&line(&cells));
    }
    format!("\n{table}\n")
}

/// The keys on a person's machine.
pub fn client_keys() -> String {
    let row = |key: &Key| vec![format!("`{}`", key.name), key.meaning.to_owned()];
    markdown(&["key", "meaning"], of(Place::Client).map(row))
}

/// The keys on a server, and in which of its two files each counts.
pub fn server_keys() -> String {
    let keys = git_claim_api::settings::KEYS.iter();
    let rows = keys.filter_map(|key| {
        let in_settings = key.places.contains(&Place::Server);
        let in_repository = key.places.contains(&Place::Repository);
        let place = match (in_settings, in_repository) {
            (true, true) => "both",
            (true, false) => "settings",
            (false, true) => "repository",
            (false, false) => return None,
        };
        Some(vec![
            format!("`{}`", key.name),
            place.to_owned(),
            key.meaning.to_owned(),
        ])
    });
    markdown(&["key", "in", "meaning"], rows)
}

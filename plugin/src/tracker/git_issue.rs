//! git-issue: an issue is a chain of commits with empty trees under
//! `refs/issues/<uuid>`. State and title are trailers of its commits.

use git2::{Commit, Oid};

use super::by_ref::{Begun, Format, Recorded};
use super::chain::Chain;
use super::objects::Objects;
use super::unreadable::Unreadable;

pub const FORMAT: Format = Format {
    name: "git-issue",
    refs: "refs/issues/",
    read,
    begun_if_open,
};

const CLOSED: &str = "closed";

/// The first trailer of a kind counts, from the newest commit on.
fn read(objects: &Objects<'_>, tip: Oid) -> Result<Recorded, Unreadable> {
    let mut state = None;
    let mut title = None;
    let mut subject = None;
    for commit in Chain::from(objects, tip) {
        let message = message(&commit?);
        let trailers = git2::message_trailers_strs(&message)?;
        for (key, value) in trailers.iter() {
            match key {
                "State" if state.is_none() => state = Some(value.trim().to_owned()),
                "Title" if title.is_none() => title = Some(value.trim().to_owned()),
                _ => {}
            }
        }
        // The root's stays.
        subject = message.lines().next().map(|line| line.trim().to_owned());
    }
    Ok(Recorded {
        is_open: state.as_deref() != Some(CLOSED),
        title: title.or(subject),
    })
}

/// As [`read`], but a closed issue costs no more than its newest state.
fn begun_if_open(objects: &Objects<'_>, tip: Oid) -> Result<Option<Begun>, Unreadable> {
    let mut knows_state = false;
    let mut time = 0;
    for commit in Chain::from(objects, tip) {
        let commit = commit?;
        time = commit.time().seconds();
        if knows_state {
            continue;
        }
        let message = message(&commit);
        let trailers = git2::message_trailers_strs(&message)?;
        let state = trailers.iter().find(|(key, _)| *key == "State");
        if let Some((_, state)) = state {
            if state.trim() == CLOSED {
                return Ok(None);
            }
            knows_state = true;
        }
    }
    Ok(Some(Begun { count: 0, time }))
}

fn message(commit: &Commit<'_>) -> String {
    String::from_utf8_lossy(commit.message_bytes()).into_owned()
}

//! Issues in commits that anyone who may push could have made, read from a
//! repository that is in memory alone.

use git2::{Odb, Oid, Repository};
use proptest::prelude::*;

use super::by_ref::{Format, MAX_ISSUE};
use super::objects::Objects;
use super::{git_bug, git_issue};
use crate::fuzz::harness::{Checked, QUICK, fuzz, same};
use crate::fuzz::issues;

/// An empty repository in memory.
fn repository() -> Repository {
    let odb = Odb::new().unwrap();
    odb.add_new_mempack_backend(1).unwrap();
    Repository::from_odb(odb).unwrap()
}

/// What `tip` says, if it can be read: two ways to look at it say the same.
fn read(
    format: &Format,
    objects: &Objects<'_>,
    tip: Oid,
) -> Result<Option<(bool, Option<String>)>, TestCaseError> {
    objects.refill();
    let begun = (format.begun_if_open)(objects, tip);
    objects.refill();
    let Ok(read) = (format.read)(objects, tip) else {
        return Ok(None);
    };
    match begun {
        Ok(begun) => same(&begun.is_some(), &read.is_open)?,
        Err(why) => prop_assert!(false, "{why}"),
    }
    Ok(Some((read.is_open, read.title)))
}

/// Whatever an issue's commits say, one more closes or opens it and leaves its
/// title as it is: `close` and `open` are written behind its newest.
fn the_newest_counts(
    format: &Format,
    repository: &Repository,
    tip: Oid,
    close: impl FnOnce(&Odb<'_>, Oid) -> Oid,
    open: impl FnOnce(&Odb<'_>, Oid) -> Oid,
) -> Checked {
    let odb = repository.odb().unwrap();
    let objects = Objects::new(repository, MAX_ISSUE).unwrap();
    if let Some((_, title)) = read(format, &objects, tip)? {
        let closed = close(&odb, tip);
        same(
            &read(format, &objects, closed)?,
            &Some((false, title.clone())),
        )?;
        let open = open(&odb, closed);
        same(&read(format, &objects, open)?, &Some((true, title)))?;
    }
    Ok(())
}

#[test]
fn commits_of_git_issue_are_refused_or_read_the_newest_first() {
    fuzz("git-issue", QUICK, issues::git_issue_pieces(), |input| {
        let repository = repository();
        let tip = issues::git_issue(&repository.odb().unwrap(), input);
        let say = |words: &'static [u8]| {
            move |odb: &Odb<'_>, tip| issues::git_issue_commit(odb, &[tip], words)
        };
        the_newest_counts(
            &git_issue::FORMAT,
            &repository,
            tip,
            say(b"Close\n\nState: closed\n"),
            say(b"Open\n\nState: open\n"),
        )
    });
}

#[test]
fn packs_of_git_bug_are_refused_or_read_by_their_clock() {
    // Nothing is later: where the input says so too, both are as late.
    const LAST: &str = "18446744073709551615";
    fuzz("git-bug", QUICK, issues::git_bug_pieces(), |input| {
        if String::from_utf8_lossy(input).contains(&LAST[..18]) {
            return Ok(());
        }
        let repository = repository();
        let tip = issues::git_bug(&repository.odb().unwrap(), input);
        let say = |clock: u64, status: u64| {
            let ops = format!("{{\"ops\":[{{\"type\":4,\"status\":{status}}}]}}");
            let names = format!("edit-clock-{clock}");
            move |odb: &Odb<'_>, tip| {
                issues::git_bug_commit(odb, &[tip], ops.as_bytes(), names.as_bytes())
            }
        };
        the_newest_counts(
            &git_bug::FORMAT,
            &repository,
            tip,
            say(u64::MAX - 1, 2),
            say(u64::MAX, 1),
        )
    });
}

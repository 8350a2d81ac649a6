//! Where a worktree can be made.

use std::path::{Path, PathBuf};

use anyhow::Result;
use git_claim_api::ids::IssueId;
use git_claim_api::text::is_unsafe;
use rustix::fs::{Access, access};

use super::path_text;
use super::repository::{Repository, is_absent};

/// Where the worktree of an issue is made without being told:
/// `<folder>.claims/<issue>` beside the repository's own folder.
///
/// # Errors
/// What git says.
pub fn usual(repository: &Repository, issue: &IssueId) -> Result<PathBuf> {
    let mut main = repository.main_folder()?;
    // `app/.bare` and `app/.git` are called `app`.
    let is_hidden = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    while is_hidden(&main) && main.pop() {}
    let name = main.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".git").unwrap_or(&name);
    let folder = main.with_file_name(format!("{name}.claims"));
    Ok(folder.join(issue.as_str()))
}

/// A place that is free, and not `path`; `None`: the usual one is.
pub fn another(repository: &Repository, issue: &IssueId, path: &Path) -> Option<PathBuf> {
    let usual = usual(repository, issue).ok()?;
    let can_be_it = |place: &Path| place != path && !is_taken(place) && can_be_made(place);
    if can_be_it(&usual) {
        return None;
    }
    // Beside it, below the person's own folder, in a folder of another name.
    let folder = usual.parent()?;
    let home = std::env::var_os("HOME").and_then(|home| {
        let name = folder.file_name()?.to_string_lossy();
        let name = name.replace(|c| is_unsafe(c) || c == char::REPLACEMENT_CHARACTER, "-");
        Some(PathBuf::from(home).join(name))
    });
    [Some(folder.to_owned()), home, Some(free_path(folder))]
        .into_iter()
        .flatten()
        .map(|folder| free_path(&folder.join(issue.as_str())))
        .find(|place| can_be_it(place))
        .or(Some(usual))
}

/// `path` itself if a worktree can be made there, else one beside it.
pub fn free_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    std::iter::once(path.to_owned())
        .chain((2..).map(|n| path.with_file_name(format!("{name}-{n}"))))
        .find(|path| !is_taken(path))
        .unwrap_or_default()
}

/// Whether something is at `path` that no worktree could be made in.
pub fn is_taken(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => !is_absent(path),
    }
}

/// Whether `path` can be recorded, and the folder that it would be made in lets
/// us.
fn can_be_made(path: &Path) -> bool {
    path_text(path).is_ok()
        && path
            .ancestors()
            .find(|above| !is_absent(above))
            .is_some_and(|above| above.is_dir() && access(above, Access::WRITE_OK).is_ok())
}

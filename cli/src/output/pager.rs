//! Long text goes through the user's pager, as git's own does.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use crate::git::Git;

/// Set for what runs below a pager, by git and here.
pub const IN_USE: &str = "GIT_PAGER_IN_USE";

/// What git sets for pagers that it starts, unless the user did.
const FOR_PAGERS: [(&str, &str); 2] = [("LESS", "FRX"), ("LV", "-c")];

/// The user's pager; `None` where text is to be shown as it is.
///
/// `git var` knows GIT_PAGER, core.pager and PAGER, and `git --no-pager`.
pub fn of(git: &Git) -> Option<String> {
    let pager = git.line(&["var", "GIT_PAGER"]).ok()?;
    (!pager.is_empty() && pager != "cat").then_some(pager)
}

/// Shows `text` in `pager`, until the user has seen enough.
///
/// # Errors
/// It can't be started.
pub fn show(pager: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    command.env(IN_USE, "true");
    for (name, value) in FOR_PAGERS {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A reader that has gone away has read enough.
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait().map(drop)
}

//! Names of this machine's users, from the system's user database; never from
//! the environment, which they could set.

use std::path::PathBuf;

use nix::unistd::{Uid, User};

/// The login of the effective user.
pub fn name() -> String {
    name_of(Uid::effective().as_raw())
}

/// The login of the user with the number `uid`, or the number where the
/// database does not know them.
pub fn name_of(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(known)) => known.name,
        _ => uid.to_string(),
    }
}

/// The program that the effective user's logins run, if the database knows it.
pub fn shell() -> Option<PathBuf> {
    let known = User::from_uid(Uid::effective()).ok()??;
    Some(known.shell)
}

//! Names of this machine's users, from the system's user database; never from
//! the environment, which they could set.

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

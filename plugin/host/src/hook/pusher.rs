//! Whom the forge says pushes, from the variables of that forge alone.

use git_claim_api::push::Pusher;
use rustix::process::geteuid;

use super::Kind;
use crate::forgejo;
use crate::gitolite;
use crate::log::{Level, log};
use crate::login;
use crate::openssh::{KEY, PRINCIPAL};
use crate::principal::{self, Name, Principal};
use crate::settings::Settings;

/// The pusher; `None` where the forge does not say, and then nobody holds what
/// is fenced.
pub fn find(kind: Kind, settings: &Settings) -> Option<Pusher> {
    let principal = match kind {
        Kind::Openssh => of_openssh(settings),
        Kind::Gitolite => gitolite::pusher(),
        Kind::Forgejo => forgejo::pusher(),
        Kind::Local => {
            return Some(Pusher {
                name: format!("local:{}", login::name()),
                profile: format!("local:{}", geteuid().as_raw()),
            });
        }
    };
    principal.map(|principal| Pusher {
        name: principal.name.to_string(),
        profile: principal.profile,
    })
}

/// As `git-claim-server openssh` tells the git command that it passes on to,
/// else as sshd tells of the login.
fn of_openssh(settings: &Settings) -> Option<Principal> {
    let told = |variable| std::env::var(variable).ok();
    if let (Some(name), Some(profile)) = (told(PRINCIPAL), told(KEY)) {
        let name: Name = name.parse().ok()?;
        return (!profile.is_empty()).then_some(Principal { name, profile });
    }
    let user_auth = std::env::var_os(principal::USER_AUTH);
    match principal::of_login(user_auth.as_deref(), settings) {
        Ok(principal) => Some(principal),
        Err(error) => {
            log(Level::Info, &format!("a push: {error}"));
            None
        }
    }
}

//! What Forgejo and Gitea tell the hooks behind a push, in the environment.

use super::api::{is_login, number};
use crate::principal::Principal;

/// The permanent id of the repository that is pushed to.
pub fn repo_of_hook() -> Option<String> {
    told("GITEA_REPO_ID").map(|id| id.to_string())
}

/// Whom the forge says pushes: a deploy key before its owner, whose name the
/// forge gives too.
pub fn pusher() -> Option<Principal> {
    let user = std::env::var("GITEA_PUSHER_NAME").ok();
    named(
        told("GITEA_DEPLOY_KEY_ID"),
        user.as_deref(),
        told("GITEA_KEY_ID"),
    )
}

/// A number in a variable; the forge writes 0 where there is none.
fn told(variable: &str) -> Option<i64> {
    number(&std::env::var(variable).ok()?)
}

fn named(deploy_key: Option<i64>, user: Option<&str>, key: Option<i64>) -> Option<Principal> {
    let name = match deploy_key {
        Some(deploy_key) => format!("deploy-key:{deploy_key}"),
        None => user.filter(|user| is_login(user))?.to_owned(),
    };
    let profile = match key {
        Some(key) => format!("forgejo-key:{key}"),
        // Over HTTP, or in the browser. No claim is bound to it.
        None => format!("forgejo:{name}"),
    };
    Some(Principal {
        name: name.parse().ok()?,
        profile,
    })
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_deploy_key_is_nobody_s_name() {
        for (deploy_key, user, key, expected) in [
            (None, Some("ann"), Some(7), Some("ann forgejo-key:7")),
            (None, Some("ann"), None, Some("ann forgejo:ann")),
            (
                Some(5),
                Some("ann"),
                Some(7),
                Some("deploy-key:5 forgejo-key:7"),
            ),
            (None, Some("deploy-key:5"), Some(7), None),
            (None, Some(""), Some(7), None),
            (None, None, Some(7), None),
        ] {
            let found = named(deploy_key, user, key);
            let found = found.map(|found| format!("{} {}", found.name, found.profile));
            assert_eq!(found.as_deref(), expected, "{user:?}");
        }
    }
}

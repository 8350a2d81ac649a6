//! Whom the forge says is connected. Never the OS user, as on a forge everybody
//! is `git`, and never anything that the client can send.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use git_claim_api::text::is_unsafe;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use crate::log::{Level, log};
use crate::settings::Settings;
use crate::ssh_key::{BadKey, Fingerprint};

/// The variable in which sshd names the file of how the user logged in, with
/// `ExposeAuthInfo yes`.
pub const USER_AUTH: &str = "SSH_USER_AUTH";

/// A principal's name: one word that settings files can list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a principal's name is one word of at most 255 bytes that does not begin with `-`, `@` or `*`"
)]
pub struct BadName;

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let refused = |c: char| is_unsafe(c) || c.is_whitespace() || c == ',';
        if text.is_empty()
            || text.len() > 255
            || text.starts_with(['-', '@', '*'])
            || text.chars().any(refused)
        {
            return Err(BadName);
        }
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub name: Name,
    /// What a bound claim compares beside the name: the key's fingerprint, or
    /// what stands for it.
    pub profile: String,
}

/// Why nobody can be named.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    #[error(
        "the server does not know who you are: neither the forced command nor {USER_AUTH} names you"
    )]
    NoSource,
    #[error("the server does not know who you are: you did not log in with a key")]
    NoKey,
    #[error("the server does not know who you are: you logged in with two keys")]
    TwoKeys,
    #[error("{USER_AUTH}: {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: io::Error },
    #[error("{USER_AUTH}: {}: not a regular file of mode 0600 of one's own", .0.display())]
    NotOurs(PathBuf),
    #[error("{USER_AUTH}: {0}")]
    BadKey(#[from] BadKey),
    #[error(transparent)]
    BadName(#[from] BadName),
}

/// The principal behind a forced command: `name` and `key` from its argv, else
/// from what sshd says of the login.
///
/// # Errors
/// None of them names exactly one.
pub fn of_openssh(
    name: Option<&Name>,
    key: Option<&Fingerprint>,
    user_auth: Option<&OsStr>,
    settings: &Settings,
) -> Result<Principal, Unknown> {
    let Some(name) = name else {
        return match key {
            Some(key) => named_by_key(key, settings),
            None => of_login(user_auth, settings),
        };
    };
    let profile = match (key, user_auth) {
        (Some(key), _) => key.to_string(),
        (None, None) => without_key(name),
        (None, Some(file)) => match keys(Path::new(file)).as_deref() {
            Ok([key]) => key.to_string(),
            // The name is certain all the same. Where sshd does not set the
            // variable, a client may have, to whatever it liked.
            Ok(_) => without_key(name),
            Err(error) => {
                log(Level::Warn, &format!("{name}: {error}"));
                without_key(name)
            }
        },
    };
    Ok(Principal {
        name: name.clone(),
        profile,
    })
}

/// The principal that sshd's account of the login alone names.
///
/// # Errors
/// It is missing, or does not hold exactly one key.
pub fn of_login(user_auth: Option<&OsStr>, settings: &Settings) -> Result<Principal, Unknown> {
    let file = user_auth.ok_or(Unknown::NoSource)?;
    match keys(Path::new(file))?.as_slice() {
        [key] => named_by_key(key, settings),
        [] => Err(Unknown::NoKey),
        _ => Err(Unknown::TwoKeys),
    }
}

/// The profile of a name that comes without a key.
fn without_key(name: &Name) -> String {
    format!("openssh:{name}")
}

/// The `[claimUser]` whose key this is, else the key itself.
fn named_by_key(key: &Fingerprint, settings: &Settings) -> Result<Principal, Unknown> {
    let name = match settings.user_of(key) {
        Some(name) => name.clone(),
        None => key.as_str().parse()?,
    };
    Ok(Principal {
        name,
        profile: key.to_string(),
    })
}

/// The keys of the login that sshd wrote into `path`, opened first and then
/// checked.
fn keys(path: &Path) -> Result<Vec<Fingerprint>, Unknown> {
    // A line a method; whole RSA keys are under 3 KiB.
    const MOST: u64 = 64 * 1024;

    let unreadable = |reason: io::Error| Unknown::Unreadable {
        path: path.to_owned(),
        reason,
    };
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| unreadable(errno.into()))?;
    let opened = file.metadata().map_err(unreadable)?;
    let mode = opened.permissions().mode() & 0o7777;
    if !opened.is_file() || mode != 0o600 || opened.uid() != geteuid().as_raw() {
        return Err(Unknown::NotOurs(path.to_owned()));
    }
    let mut text = String::new();
    file.take(MOST)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    parse_keys(&text)
}

/// The keys in sshd's account of a login: `publickey <type> <base64>` lines
/// among those of other methods.
fn parse_keys(text: &str) -> Result<Vec<Fingerprint>, Unknown> {
    let mut keys = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        if words.next() == Some("publickey") {
            let blob = words.nth(1).ok_or(BadKey::Malformed)?;
            keys.push(Fingerprint::of_key(blob)?);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAg8P3kqeqFf3LK7URUyGX5pozP0wSUETFE5Hkm9BKbZ";
    const PRINT: &str = "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg";
    const OTHER_PRINT: &str = "SHA256:kf4Qj5ZE3im32KeszW+SJJV2Y6bEnH96EA9MSmAJcZ4";

    /// A file as sshd writes it.
    fn login(text: &str) -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let file = folder.child("sshauth.x");
        file.write_str(text).unwrap();
        let path = file.path().to_owned();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        (folder, path)
    }

    fn who(
        name: Option<&str>,
        key: Option<&str>,
        login: Option<&Path>,
    ) -> Result<(String, String), Unknown> {
        let name = name.map(|name| name.parse::<Name>().unwrap());
        let key = key.map(|key| key.parse::<Fingerprint>().unwrap());
        let principal = of_openssh(
            name.as_ref(),
            key.as_ref(),
            login.map(Path::as_os_str),
            &Settings::default(),
        )?;
        Ok((principal.name.to_string(), principal.profile))
    }

    fn pair(name: &str, profile: &str) -> (String, String) {
        (name.to_owned(), profile.to_owned())
    }

    #[test]
    fn argv_counts_before_the_login_and_the_login_before_nothing() {
        let (_folder, one) = login(&format!("publickey {KEY}\n"));
        let one = Some(one.as_path());
        let with_ann = |key, login| who(Some("ann"), key, login).unwrap();
        assert_eq!(with_ann(Some(OTHER_PRINT), one), pair("ann", OTHER_PRINT));
        assert_eq!(with_ann(None, one), pair("ann", PRINT));
        assert_eq!(with_ann(None, None), pair("ann", "openssh:ann"));
        assert_eq!(who(None, None, one).unwrap(), pair(PRINT, PRINT));
        assert_eq!(
            who(None, Some(OTHER_PRINT), one).unwrap(),
            pair(OTHER_PRINT, OTHER_PRINT)
        );
        assert!(matches!(who(None, None, None), Err(Unknown::NoSource)));
    }

    #[test]
    fn a_login_with_two_keys_or_none_names_nobody() {
        let (_folder, two) = login(&format!("publickey {KEY}\npublickey {KEY}\n"));
        let two = Some(two.as_path());
        assert!(matches!(who(None, None, two), Err(Unknown::TwoKeys)));
        assert_eq!(
            who(Some("ann"), None, two).unwrap(),
            pair("ann", "openssh:ann")
        );
        let (_folder, none) = login("password\nkeyboard-interactive/pam\n");
        let none = Some(none.as_path());
        assert!(matches!(who(None, None, none), Err(Unknown::NoKey)));
    }

    #[test]
    fn an_account_of_a_login_that_others_could_have_written_is_refused() {
        let (folder, file) = login(&format!("publickey {KEY}\n"));
        let link = folder.child("link");
        std::os::unix::fs::symlink(&file, link.path()).unwrap();
        for path in [link.path(), folder.path(), Path::new("/none")] {
            assert!(who(None, None, Some(path)).is_err(), "{}", path.display());
            // With a name from argv it changes nothing.
            let named = who(Some("ann"), None, Some(path)).unwrap();
            assert_eq!(named, pair("ann", "openssh:ann"));
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = who(None, None, Some(&file)).unwrap_err();
        assert!(matches!(refused, Unknown::NotOurs(_)), "{refused}");
    }

    #[test]
    fn a_damaged_account_of_a_login_names_nobody() {
        for text in [
            "publickey\n",
            "publickey ssh-ed25519\n",
            "publickey ssh-ed25519 AA==\n",
        ] {
            let (_folder, file) = login(text);
            assert!(who(None, None, Some(&file)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_that_are_refused() {
        for text in [
            "",
            "-x",
            "@devs",
            "*",
            "*x",
            "a b",
            "a,b",
            "a\n",
            "a\u{202e}b",
        ] {
            assert_eq!(text.parse::<Name>(), Err(BadName), "{text:?}");
        }
        for text in ["ann", "ann@example.org", "SHA256:ab+/=", "Ünal"] {
            assert!(text.parse::<Name>().is_ok(), "{text:?}");
        }
    }
}

//! Where the forge's API is, and the secrets that open it.

use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::report::Failure;
use crate::trusted::TrustedFile;

/// The section `[claimForgejo]` of the settings file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForgejoSettings {
    /// The forge's `LOCAL_ROOT_URL`.
    pub url: Option<LocalUrl>,
    /// The file that holds the forge's `INTERNAL_TOKEN`.
    pub internal_token: Option<PathBuf>,
    /// The file that holds an API token of an administrator of the forge;
    /// without it issues are not the forge's.
    pub api_token: Option<PathBuf>,
}

/// An `http://` URL of this machine, with a `/` at its end: the tokens that go
/// there must not travel over a network in the clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUrl(String);

/// Why a text is no such URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("give the forge's LOCAL_ROOT_URL on this machine, as `http://127.0.0.1:3000/`")]
pub struct NotLocal;

impl FromStr for LocalUrl {
    type Err = NotLocal;

    fn from_str(text: &str) -> Result<Self, NotLocal> {
        let rest = text.strip_prefix("http://").ok_or(NotLocal)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let port_is_one = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let is_loopback = bare == "localhost"
            || bare
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
        if !is_loopback || !port_is_one || !path.bytes().all(plain) {
            return Err(NotLocal);
        }
        Ok(LocalUrl(format!("{}/", text.trim_end_matches('/'))))
    }
}

impl fmt::Display for LocalUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A secret from a file; it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Reads it from a file that only root or this user can have written, and
    /// that not everybody can read.
    ///
    /// # Errors
    /// The file is refused, or holds no token.
    pub fn read(path: &Path) -> Result<Token, Failure> {
        // Tokens of both kinds are far shorter.
        const MOST: u64 = 4_096;

        let shown = path.display();
        let file = TrustedFile::open(path)
            .map_err(|error| Failure::set_up_wrongly(format!("token file {error}")))?;
        let unreadable = |error| Failure::set_up_wrongly(format!("token file {shown}: {error}"));
        let mode = file.file().metadata().map_err(unreadable)?.permissions();
        if mode.mode() & 0o007 != 0 {
            return Err(Failure::set_up_wrongly(format!(
                "token file {shown}: everybody may read it"
            ))
            .hint("run `chmod o= ` on it"));
        }
        let mut text = String::new();
        file.file()
            .take(MOST)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Failure::set_up_wrongly(format!(
                "token file {shown}: it must hold one token and nothing else"
            )));
        }
        Ok(Token(token.to_owned()))
    }

    /// The text, for a header.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    #[test]
    fn only_this_machine_is_asked() {
        for (text, url) in [
            ("http://127.0.0.1:3000/", Some("http://127.0.0.1:3000/")),
            ("http://127.0.0.1:3000", Some("http://127.0.0.1:3000/")),
            ("http://localhost", Some("http://localhost/")),
            ("http://[::1]:3000/git", Some("http://[::1]:3000/git/")),
            ("http://[::1]", Some("http://[::1]/")),
            ("https://127.0.0.1/", None),
            ("http://forge.example.org/", None),
            ("http://10.0.0.1:3000/", None),
            ("http://localhost.example.org/", None),
            ("http://127.0.0.1@example.org/", None),
            ("http://127.0.0.1:3000@example.org/", None),
            ("http://127.0.0.1:0/", None),
            ("http://127.0.0.1:x/", None),
            ("http://127.0.0.1/?x=", None),
            ("http://127.0.0.1/#x", None),
            ("http:///", None),
            ("127.0.0.1:3000", None),
            ("", None),
        ] {
            let parsed = text.parse::<LocalUrl>().ok().map(|url| url.to_string());
            assert_eq!(parsed.as_deref(), url, "{text}");
        }
    }

    #[test]
    fn a_token_is_kept_from_others_and_from_the_log() {
        let folder = TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let file = folder.child("token");
        for (text, mode, secret) in [
            ("s3cret\n", 0o600, Some("s3cret")),
            ("s3cret\n", 0o640, Some("s3cret")),
            ("s3cret\n", 0o644, None),
            ("s3cret\n", 0o660, None),
            ("two words\n", 0o600, None),
            ("x\r\nX-Evil: 1\n", 0o600, None),
            ("\n", 0o600, None),
        ] {
            file.write_str(text).unwrap();
            std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            let token = Token::read(file.path());
            let read = token.as_ref().ok().map(Token::secret);
            assert_eq!(read, secret, "{text:?} {mode:o}");
            assert!(!format!("{token:?}").contains("s3cret"));
        }
    }
}

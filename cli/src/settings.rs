//! The user's `claim.*` settings, each read once and checked.

use std::num::NonZeroU64;
use std::time::Duration;

use git_claim_api::duration::parse_seconds;
use git_claim_api::settings::{self, Place};
use git_claim_api::text::escape;

use crate::error::{Failure, Result};
use crate::git::Config;

/// What may be set for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long the server may take.
    pub timeout: Duration,
    /// How many seconds a connection stays open for later calls; `None`: not
    /// at all.
    pub persist: Option<NonZeroU64>,
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_PERSIST: NonZeroU64 = NonZeroU64::MIN.saturating_add(59);

impl Settings {
    /// Reads the configuration.
    ///
    /// # Errors
    /// A value that cannot be meant.
    pub fn read(config: &Config) -> Result<Settings> {
        let timeout = match config.get("claim.timeout") {
            None => DEFAULT_TIMEOUT,
            Some(text) => match parse_seconds(text) {
                Ok(0) => return Err(bad("claim.timeout", text, "it must be at least a second")),
                Ok(seconds) => Duration::from_secs(seconds),
                Err(why) => return Err(bad("claim.timeout", text, &why.to_string())),
            },
        };
        let persist = match config.get("claim.controlpersist") {
            None => Some(DEFAULT_PERSIST),
            Some(text) => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" => Some(DEFAULT_PERSIST),
                "no" | "false" | "off" => None,
                other => match parse_seconds(other) {
                    Ok(seconds) => NonZeroU64::new(seconds),
                    Err(why) => return Err(bad("claim.controlPersist", text, &why.to_string())),
                },
            },
        };
        Ok(Settings { timeout, persist })
    }
}

fn bad(key: &str, value: &str, why: &str) -> Failure {
    Failure::error(format!("{key} is '{}': {why}", escape(value))).hint(format!(
        "`git config --show-origin {key}` tells where it is set"
    ))
}

/// The `claim.*` keys that nobody would read, each once.
pub fn unknown(config: &Config) -> Vec<String> {
    // A bare repository's own settings are for the server that serves it.
    let bare = config.get("core.bare") == Some("true");
    let known = |key: &str| {
        settings::find(key, Place::Client).is_some()
            || (bare && settings::find(key, Place::Repository).is_some())
    };
    let mut unknown: Vec<String> = Vec::new();
    for (key, _) in config.entries() {
        if key.starts_with("claim.") && !known(key) && !unknown.iter().any(|k| k == key) {
            unknown.push(key.to_owned());
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz::{QUICK, fuzz};

    #[test]
    fn whatever_git_lists_is_read_or_refused() {
        let pieces = select(
            &[
                "claim.timeout",
                "claim.controlpersist",
                "claim.remote",
                "remote.origin.url",
                "\n",
                "\0",
                "1",
                "m",
                "h",
                "30s",
                "99999999999999999999",
                "-",
                ".",
                "yes",
                "é",
                "0",
            ][..],
        );
        let own = prop::collection::vec(pieces, 0..16).prop_map(|p| p.concat().into_bytes());
        fuzz("git-config", QUICK, own, |input| {
            let config = Config::parse(&String::from_utf8_lossy(input));
            if let Ok(settings) = Settings::read(&config) {
                prop_assert!(settings.timeout >= Duration::from_secs(1));
            }
            for key in unknown(&config) {
                prop_assert!(config.get(&key).is_some());
            }
            Ok(())
        });
    }

    #[test]
    fn values_are_read_or_refused() {
        let read = |text: &str| Settings::read(&Config::parse(text));
        let persist = |text: &str| read(text).unwrap().persist.map(NonZeroU64::get);
        assert_eq!(read("").unwrap().timeout, Duration::from_secs(30));
        assert_eq!(
            read("claim.timeout\n1m30s\0").unwrap().timeout,
            Duration::from_secs(90)
        );
        assert_eq!(persist(""), Some(60));
        assert_eq!(persist("claim.controlpersist\nno\0"), None);
        assert_eq!(persist("claim.controlpersist\n0\0"), None);
        assert_eq!(persist("claim.controlpersist\n5m\0"), Some(300));
        for text in [
            "claim.timeout\n0\0",
            "claim.timeout\nsoon\0",
            "claim.controlpersist\n-1\0",
        ] {
            assert_eq!(read(text).unwrap_err().kind.code(), 1, "{text}");
        }
    }

    #[test]
    fn keys_that_nobody_reads_are_named_once() {
        let text = "claim.timeout\n1\0claim.tll\n1\0claim.tll\n2\0claim.write\nx\0claims.x\n1\0";
        assert_eq!(unknown(&Config::parse(text)), ["claim.tll", "claim.write"]);
        let bare = format!("core.bare\ntrue\0{text}");
        assert_eq!(unknown(&Config::parse(&bare)), ["claim.tll"]);
    }
}

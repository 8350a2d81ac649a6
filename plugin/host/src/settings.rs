//! The settings file, in git-config syntax. Every key in it is known and every
//! value is checked when it is read: a setting that is stored but ignored is
//! worse than one refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use git_claim_api::duration;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::{
    self as keys, DEFAULT_MAX_TTL, DEFAULT_TTL, EtcdFiles, Place, PluginSettings,
};

use crate::access::{Groups, Rules, Who, words};
use crate::forgejo::settings::ForgejoSettings;
use crate::principal::Name;
use crate::ssh_key::Fingerprint;
use crate::trusted::{TrustedFile, Untrusted};
use crate::written_key;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    #[error("settings file {0}")]
    Untrusted(#[from] Untrusted),
    #[error("no settings file: neither {SYSTEM_FILE} nor ~/{USER_FILE} exists")]
    Missing,
    #[error("settings file {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("settings file {}: unknown key {key}{}", path.display(), on_line(*line))]
    UnknownKey {
        path: PathBuf,
        key: String,
        /// Where it stands, if that is known.
        line: Option<usize>,
    },
    #[error("settings file {}: {key}: {reason}", path.display())]
    BadValue {
        path: PathBuf,
        key: String,
        reason: String,
    },
    #[error("settings file {}: {key} is not set", path.display())]
    Unset { path: PathBuf, key: &'static str },
    #[error("settings file {}: {key} counts for nothing here, as {instead} do; remove it", path.display())]
    Ignored {
        path: PathBuf,
        key: &'static str,
        instead: &'static str,
    },
    #[error(
        "no {PLUGIN_FILE} beside the program or in ../lib/git-claim, and claim.plugin is not set"
    )]
    NoPlugin,
}

/// Where settings are looked for unless `--config` names the file.
pub const SYSTEM_FILE: &str = "/etc/git-claim/config";
/// The same below the home directory.
pub const USER_FILE: &str = ".config/git-claim/config";

/// The plugin's file name.
pub const PLUGIN_FILE: &str = "libgit_claim_plugin.so";
/// The ledger's file in reposDir unless `claim.ledger` is set.
pub const LEDGER_FILE: &str = "collab.db";

/// What a settings file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The file itself; empty where there is none.
    pub path: PathBuf,
    pub plugin: Option<PathBuf>,
    pub repos_dir: Option<PathBuf>,
    pub ledger: Option<LedgerPlace>,
    pub etcd: EtcdFiles,
    /// Seconds.
    pub max_ttl: Option<u64>,
    /// Seconds.
    pub default_ttl: Option<u64>,
    pub rules: Rules,
    pub groups: Groups,
    /// Whose a key is, by its fingerprint.
    pub users: BTreeMap<String, Name>,
    pub forgejo: ForgejoSettings,
}

impl Settings {
    /// Reads `explicit`, else the first of the fixed places that exists.
    ///
    /// # Errors
    /// There is none, others may write it, or anything in it is not understood.
    pub fn load(explicit: Option<&Path>) -> Result<Settings, BadSettings> {
        match Settings::find(explicit)? {
            Some(settings) => Ok(settings),
            None => Err(BadSettings::Missing),
        }
    }

    /// The same, but having none is fine.
    ///
    /// # Errors
    /// As [`Settings::load`], but for a missing file in the fixed places.
    pub fn find(explicit: Option<&Path>) -> Result<Option<Settings>, BadSettings> {
        if let Some(path) = explicit {
            return Settings::read(&TrustedFile::open(path)?).map(Some);
        }
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let places = [
            Some(PathBuf::from(SYSTEM_FILE)),
            home.map(|home| home.join(USER_FILE)),
        ];
        for path in places.into_iter().flatten() {
            match TrustedFile::open(&path) {
                Ok(file) => return Settings::read(&file).map(Some),
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn read(file: &TrustedFile) -> Result<Settings, BadSettings> {
        let path = file.path();
        let unreadable = |reason: git2::Error| BadSettings::Unreadable {
            path: path.to_owned(),
            reason: reason.message().replace(
                &*file.descriptor().to_string_lossy(),
                &path.to_string_lossy(),
            ),
        };
        let config = git2::Config::open(&file.descriptor()).map_err(unreadable)?;
        let mut settings = Settings {
            path: path.to_owned(),
            ..Settings::default()
        };
        let mut entries = config.entries(None).map_err(unreadable)?;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(unreadable)?;
            let key = String::from_utf8_lossy(entry.name_bytes()).into_owned();
            let value = if entry.has_value() {
                entry.value().map_err(unreadable)?
            } else {
                ""
            };
            settings
                .set(&key, value)
                .map_err(|error| as_written(error, file))?;
        }
        settings.check_groups()?;
        Ok(settings)
    }

    /// Takes one line of the file.
    fn set(&mut self, key: &str, value: &str) -> Result<(), BadSettings> {
        let bad = |reason: String| BadSettings::BadValue {
            path: self.path.clone(),
            key: shown(key),
            reason,
        };
        if let Some(group) = subsection(key, "claimgroup", "member") {
            let members = self.groups.entry(group.to_owned()).or_default();
            for word in words(value) {
                let member = word.parse::<Name>().map_err(|_| BadSettings::BadValue {
                    path: self.path.clone(),
                    key: shown(key),
                    reason: format!("'{word}' is no name; groups hold names alone"),
                })?;
                members.push(member.to_string());
            }
            return Ok(());
        }
        if let Some(user) = subsection(key, "claimuser", "key") {
            let name: Name = user.parse().map_err(|e| bad(format!("{e}")))?;
            let key: Fingerprint = value.parse().map_err(|e| bad(format!("{e}")))?;
            return match self.users.insert(key.to_string(), name.clone()) {
                Some(other) if other != name => Err(bad(format!("{key} is {other}'s already"))),
                _ => Ok(()),
            };
        }
        if keys::find(key, Place::Server).is_none() {
            return Err(self.unknown_key(key));
        }
        match key {
            "claimforgejo.url" => {
                self.forgejo.url = Some(value.parse().map_err(|e| bad(format!("{e}")))?);
            }
            "claimforgejo.internaltokenfile" => {
                self.forgejo.internal_token = Some(absolute(value).map_err(bad)?);
            }
            "claimforgejo.apitokenfile" => {
                self.forgejo.api_token = Some(absolute(value).map_err(bad)?);
            }
            "claim.plugin" => self.plugin = Some(absolute(value).map_err(bad)?),
            "claim.reposdir" => self.repos_dir = Some(absolute(value).map_err(bad)?),
            "claim.ledger" => self.ledger = Some(ledger_place(value).map_err(bad)?),
            "claim.etcdca" => self.etcd.ca = Some(absolute(value).map_err(bad)?),
            "claim.etcdcert" => self.etcd.cert = Some(absolute(value).map_err(bad)?),
            "claim.etcdkey" => self.etcd.key = Some(absolute(value).map_err(bad)?),
            "claim.etcdpassword" => self.etcd.password = Some(absolute(value).map_err(bad)?),
            "claim.maxttl" => self.max_ttl = Some(seconds(value).map_err(bad)?),
            "claim.defaultttl" => self.default_ttl = Some(seconds(value).map_err(bad)?),
            key => match self.rules.list_mut(key) {
                Some(list) => list.get_or_insert_default().extend(Who::parse_line(value)),
                // A key in the table that nothing here reads would be one that
                // is ignored.
                None => return Err(self.unknown_key(key)),
            },
        }
        Ok(())
    }

    fn unknown_key(&self, key: &str) -> BadSettings {
        BadSettings::UnknownKey {
            path: self.path.clone(),
            key: key.to_owned(),
            line: None,
        }
    }

    /// A list that names a group which is nowhere means nobody, surely by
    /// mistake.
    fn check_groups(&self) -> Result<(), BadSettings> {
        match self.unknown_group(&self.rules) {
            None => Ok(()),
            Some(group) => Err(BadSettings::BadValue {
                path: self.path.clone(),
                key: format!("@{group}"),
                reason: format!("there is no [claimGroup \"{group}\"]"),
            }),
        }
    }

    /// The first group in `rules` that has no `[claimGroup]`.
    pub fn unknown_group<'a>(&self, rules: &'a Rules) -> Option<&'a str> {
        rules
            .groups()
            .find(|group| !self.groups.contains_key(*group))
    }

    /// Makes sure that nobody relies on rules of this file, where `instead`, the
    /// forge's, are the ones that count.
    ///
    /// # Errors
    /// One of the three lists is set.
    pub fn without_rules(&self, instead: &'static str) -> Result<(), BadSettings> {
        let set = [
            ("claim.read", &self.rules.read),
            ("claim.write", &self.rules.write),
            ("claim.admin", &self.rules.admin),
        ]
        .into_iter()
        .find(|(_, list)| list.is_some());
        match set {
            None => Ok(()),
            Some((key, _)) => Err(BadSettings::Ignored {
                path: self.path.clone(),
                key,
                instead,
            }),
        }
    }

    /// The `[claimUser]` whose key this is.
    pub fn user_of(&self, key: &Fingerprint) -> Option<&Name> {
        self.users.get(key.as_str())
    }

    /// The folder below which repositories are served.
    ///
    /// # Errors
    /// It is not set.
    pub fn repos_dir(&self) -> Result<&Path, BadSettings> {
        self.repos_dir.as_deref().ok_or_else(|| BadSettings::Unset {
            path: self.path.clone(),
            key: "claim.reposDir",
        })
    }

    /// Where the ledger is.
    ///
    /// # Errors
    /// Neither it nor reposDir is set.
    pub fn ledger(&self) -> Result<LedgerPlace, BadSettings> {
        match &self.ledger {
            Some(ledger) => Ok(ledger.clone()),
            None => Ok(LedgerPlace::File(self.repos_dir()?.join(LEDGER_FILE))),
        }
    }

    /// The plugin's file: as set, else beside the program, else in
    /// `../lib/git-claim/` from it.
    ///
    /// # Errors
    /// It is nowhere.
    pub fn plugin(&self) -> Result<PathBuf, BadSettings> {
        if let Some(plugin) = &self.plugin {
            return Ok(plugin.clone());
        }
        let program = std::env::current_exe().map_err(|_| BadSettings::NoPlugin)?;
        plugin_near(&program).ok_or(BadSettings::NoPlugin)
    }

    /// What the plugin is opened with, for the ledger at `ledger`.
    pub fn for_plugin(&self, ledger: LedgerPlace) -> PluginSettings {
        PluginSettings {
            ledger,
            etcd: self.etcd.clone(),
            max_ttl: self.max_ttl.unwrap_or(DEFAULT_MAX_TTL),
            default_ttl: self.default_ttl.unwrap_or(DEFAULT_TTL),
        }
    }
}

fn on_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" (line {line})"))
}

/// The same error with a key that nobody knows as it stands in the file.
fn as_written(error: BadSettings, file: &TrustedFile) -> BadSettings {
    let BadSettings::UnknownKey { path, key, .. } = error else {
        return error;
    };
    let text = std::fs::read(file.descriptor()).unwrap_or_default();
    match written_key::find(&String::from_utf8_lossy(&text), &key) {
        Some(written) => BadSettings::UnknownKey {
            path,
            key: written.key,
            line: Some(written.line),
        },
        None => BadSettings::UnknownKey {
            path,
            key: shown(&key),
            line: None,
        },
    }
}

/// A place for a ledger: a file has an absolute path.
///
/// # Errors
/// Why it is none.
pub fn ledger_place(value: &str) -> Result<LedgerPlace, String> {
    match value.parse().map_err(|error| format!("{error}"))? {
        LedgerPlace::File(_) => absolute(value).map(LedgerPlace::File),
        place => Ok(place),
    }
}

/// The plugin's file that was installed with `program`.
fn plugin_near(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?;
    let installed = folder.parent()?.join("lib/git-claim").join(PLUGIN_FILE);
    [folder.join(PLUGIN_FILE), installed]
        .into_iter()
        .find(|path| path.exists())
}

/// The subsection of `[section "…"] name`, from the key as git reports it.
fn subsection<'a>(key: &'a str, section: &str, name: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(section)?.strip_prefix('.')?;
    rest.strip_suffix(name)?.strip_suffix('.')
}

/// A key as people write it.
fn shown(key: &str) -> String {
    match keys::KEYS.iter().find(|known| known.is(key)) {
        Some(known) => known.written(key),
        None => key.to_owned(),
    }
}

fn absolute(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("'{value}' is not an absolute path"))
    }
}

fn seconds(value: &str) -> Result<u64, String> {
    match duration::parse_ttl(value) {
        Ok(ttl) => Ok(ttl.seconds()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use assert_fs::TempDir;
    use assert_fs::prelude::*;
    use git_claim_api::access::Access;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::config::{a_stranger_may, config_pieces};
    use crate::fuzz::harness::{QUICK, fuzz};

    fn read(text: &str) -> Result<Settings, BadSettings> {
        let folder = TempDir::new().unwrap();
        let file = folder.child("config");
        file.write_str(text).unwrap();
        for (path, mode) in [(folder.path(), 0o755), (file.path(), 0o644)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Settings::load(Some(file.path()))
    }

    const FULL: &str = r#"
[claim]
    plugin = /usr/lib/git-claim/libgit_claim_plugin.so
    reposDir = /srv/git
    maxTtl = 7d
    defaultTtl = 90m
    read = *
    write = @devs, dan
    admin = alice
    admin = bea
[claimGroup "devs"]
    member = bob
    member = cy, di
[claimUser "alice"]
    key = SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg
    key = SHA256:kf4Qj5ZE3im32KeszW+SJJV2Y6bEnH96EA9MSmAJcZ4:ann%20b
"#;

    #[test]
    fn a_full_file() {
        let settings = read(FULL).unwrap();
        assert_eq!(settings.repos_dir().unwrap(), Path::new("/srv/git"));
        assert_eq!(
            settings.ledger().unwrap().file(),
            Some(Path::new("/srv/git/collab.db"))
        );
        assert_eq!(
            settings.plugin().unwrap(),
            Path::new("/usr/lib/git-claim/libgit_claim_plugin.so")
        );
        assert_eq!(
            (settings.max_ttl, settings.default_ttl),
            (Some(604_800), Some(5_400))
        );
        for (name, access) in [
            ("alice", Access::Admin),
            ("bea", Access::Admin),
            ("bob", Access::Write),
            ("di", Access::Write),
            ("dan", Access::Write),
            ("eve", Access::Read),
        ] {
            let highest = settings.rules.highest(name, &settings.groups);
            assert_eq!(highest, Some(access), "{name}");
        }
        let key = "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg";
        let user = settings.user_of(&key.parse().unwrap());
        assert_eq!(user.map(Name::as_str), Some("alice"));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        const PRINT: &str = "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg";
        for (text, error) in [
            (
                "[claim]\nreposdirs = /srv",
                "unknown key claim.reposdirs (line 2)",
            ),
            ("[claim]\nremote = origin", "unknown key claim.remote"),
            ("[claim]\nfence = on", "unknown key claim.fence"),
            ("[clam]\nread = *", "unknown key clam.read"),
            ("[include]\npath = /etc/x", "unknown key include.path"),
            (
                "[claimGroup \"devs\"]\nmembers = a",
                "unknown key claimGroup.devs.members (line 2)",
            ),
            (
                "[claimGroup]\nmember = a",
                "unknown key claimGroup.member (line 2)",
            ),
            (
                "[claimUser \"a\"]\nkeys = x",
                "unknown key claimUser.a.keys (line 2)",
            ),
            (
                "[claim]\nreposDir = srv",
                "claim.reposDir: 'srv' is not an absolute path",
            ),
            ("[claim]\nplugin", "claim.plugin: '' is not an absolute"),
            (
                "[claim]\nledger = ~/x",
                "claim.ledger: '~/x' is not an absolute path",
            ),
            ("[claim]\nmaxTtl = 0", "claim.maxTtl: "),
            ("[claim]\ndefaultTtl = soon", "claim.defaultTtl: "),
            ("[claim]\nread = @devs", "no [claimGroup \"devs\"]"),
            (
                "[claimGroup \"a\"]\nmember = @b",
                "'@b' is no name; groups hold names alone",
            ),
            ("[claimUser \"a\"]\nkey = x", "a fingerprint is `SHA256:`"),
            (
                &format!("[claimUser \"a\"]\nkey = {PRINT}\n[claimUser \"b\"]\nkey = {PRINT}"),
                "is a's already",
            ),
            ("[claimForgejo]\nurls = x", "unknown key claimForgejo.urls"),
            (
                "[claimForgejo]\nurl = https://git.example.org/",
                "claimForgejo.url: give the forge's LOCAL_ROOT_URL",
            ),
            (
                "[claimForgejo]\napiTokenFile = token",
                "claimForgejo.apiTokenFile: 'token' is not an absolute path",
            ),
            ("[claim\n", "config"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(error), "{text}: {message}");
            assert!(!message.contains("/proc/"), "{message}");
        }
    }

    /// The keys and values of a text, read line by line: what git's syntax has
    /// besides is left to libgit2.
    fn lines(text: &str) -> Vec<(String, &str)> {
        let mut section = String::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                let header = header.trim_end_matches([']', '"']);
                section = match header.split_once(" \"") {
                    Some((name, below)) => format!("{}.{below}", name.to_ascii_lowercase()),
                    None => header.to_ascii_lowercase(),
                };
            } else if let Some((name, value)) = line.split_once('=') {
                let name = name.trim().to_ascii_lowercase();
                lines.push((format!("{section}.{name}"), value.trim()));
            }
        }
        lines
    }

    #[test]
    fn whatever_is_set_is_understood_or_refused() {
        fuzz("server-config", QUICK, config_pieces(), |input| {
            let text = String::from_utf8_lossy(input);
            let mut settings = Settings::default();
            for (key, value) in lines(&text) {
                if let Err(error) = settings.set(&key, value) {
                    prop_assert!(!error.to_string().is_empty());
                }
                if let Some(written) = written_key::find(&text, &key) {
                    prop_assert!((1..=text.lines().count()).contains(&written.line));
                }
            }
            let stranger = settings.rules.highest("a-stranger", &settings.groups);
            prop_assert!(!a_stranger_may(stranger, input));
            for path in [&settings.repos_dir, &settings.plugin, &settings.etcd.ca] {
                prop_assert!(path.as_ref().is_none_or(|path| path.is_absolute()));
            }
            if settings.check_groups().is_ok() {
                let named = settings.rules.groups();
                prop_assert!(
                    named
                        .into_iter()
                        .all(|group| settings.groups.contains_key(group))
                );
            }
            Ok(())
        });
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let folder = TempDir::new().unwrap();
        let file = folder.child("config");
        file.write_str(FULL).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
        let refused = Settings::load(Some(file.path())).unwrap_err();
        assert!(
            matches!(refused, BadSettings::Untrusted(Untrusted::Writable { .. })),
            "{refused}"
        );
    }

    #[test]
    fn the_plugin_is_found_beside_the_program_or_where_it_is_installed() {
        let folder = TempDir::new().unwrap();
        let program = folder.child("bin/git-claim-server");
        assert_eq!(plugin_near(program.path()), None);
        let installed = folder.child("lib/git-claim").child(PLUGIN_FILE);
        installed.touch().unwrap();
        folder.child("bin").create_dir_all().unwrap();
        assert_eq!(
            plugin_near(program.path()).as_deref(),
            Some(installed.path())
        );
        let beside = folder.child("bin").child(PLUGIN_FILE);
        beside.touch().unwrap();
        assert_eq!(plugin_near(program.path()).as_deref(), Some(beside.path()));
    }
}

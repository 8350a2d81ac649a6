//! What admins write into files, and what git says of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_fs::TempDir;
use git_claim_server::repo_config::RepoConfig;
use git_claim_server::settings::Settings;
use proptest::prelude::*;

mod config;
mod harness;

use config::{a_stranger_may, config_pieces};
use harness::{QUICK, fuzz};

/// A folder in memory, where there is such a place: settings are read thousands
/// of times.
fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

#[test]
fn the_servers_settings_are_read_or_refused() {
    let folder = folder();
    let file = folder.path().join("config");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fuzz("server-config", QUICK, config_pieces(), |input| {
        fs::write(&file, input).unwrap();
        if let Ok(settings) = Settings::load(Some(&file)) {
            let highest = settings.rules.highest("a-stranger", &settings.groups);
            prop_assert!(!a_stranger_may(highest, input));
            for path in [&settings.repos_dir, &settings.plugin]
                .into_iter()
                .flatten()
            {
                prop_assert!(Path::new(path).is_absolute());
            }
        }
        Ok(())
    });
}

#[test]
fn a_repositorys_config_is_read_or_refused() {
    let folder = folder();
    fuzz("repo-config", QUICK, config_pieces(), |input| {
        fs::write(folder.path().join("config"), input).unwrap();
        if let Ok(config) = RepoConfig::read(folder.path()) {
            let highest = config.rules.highest("a-stranger", &Default::default());
            prop_assert!(!a_stranger_may(highest, input));
        }
        Ok(())
    });
}

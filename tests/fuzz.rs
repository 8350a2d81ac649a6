//! What admins write into files, and what git says of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use assert_fs::TempDir;
use git_claim_api::access::Access;
use git_claim_server::repo_config::RepoConfig;
use git_claim_server::settings::Settings;
use proptest::prelude::*;
use proptest::sample::select;

mod harness;

use harness::{QUICK, fuzz};

/// A folder in memory, where there is such a place: settings are read thousands
/// of times.
fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap())
}

fn config() -> impl Strategy<Value = Vec<u8>> {
    let pieces = select(
        &[
            "[claim]\n",
            "[claimGroup \"",
            "devs",
            "\"]\n",
            "[claimUser \"ann\"]\n",
            "write",
            "read",
            "admin",
            "member",
            "key",
            "ledger",
            "reposDir",
            "maxTtl",
            "plugin",
            " = ",
            "*",
            "@devs",
            "ann, bob",
            "/srv/git",
            "30d",
            "SHA256:",
            "\n",
            "\\",
            "\"",
            "#",
            ";",
            "[core]\n",
            "\t",
            "[include]\n",
            "path = /dev/zero\n",
            "etcd://a:1/b",
            "[claimForgejo]\n",
            "url",
            "http://localhost/",
        ][..],
    );
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

/// Nobody whom the file does not name, or everybody in it, gets in by it.
fn a_stranger_may(highest: Option<Access>, input: &[u8]) -> bool {
    highest.is_some() && !input.contains(&b'*')
}

#[test]
fn the_servers_settings_are_read_or_refused() {
    let folder = folder();
    let file = folder.path().join("config");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fuzz("server-config", QUICK, config(), |input| {
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
    fuzz("repo-config", QUICK, config(), |input| {
        fs::write(folder.path().join("config"), input).unwrap();
        if let Ok(config) = RepoConfig::read(folder.path()) {
            let highest = config.rules.highest("a-stranger", &Default::default());
            prop_assert!(!a_stranger_may(highest, input));
        }
        Ok(())
    });
}

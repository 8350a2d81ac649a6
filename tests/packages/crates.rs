//! What crates.io would get. `make publish-check` also builds it from there.

use std::collections::BTreeSet;
use std::path::Path;

use assert_cmd::Command;
use assert_fs::TempDir;

use super::version;
use crate::support::client::stdout;
use crate::support::programs;

/// Each crate, its folder, and files that have to be in it beside the code.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("git-claim", "cli", &[]),
    ("git-claim-api", "plugin/api", &[]),
    (
        "git-claim-plugin",
        "plugin",
        &["build.rs", "include/git_claim_plugin.h"],
    ),
    ("git-claim-server", "plugin/host", &["src/cgi/style.css"]),
];

fn lines(command: &mut Command) -> Vec<String> {
    let assert = command.assert().success();
    stdout(&assert).lines().map(str::to_owned).collect()
}

/// The files below `folder`, without those of the crates in it.
fn code(folder: &Path, top: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            let path = path.strip_prefix(top).unwrap();
            found.insert(path.to_str().unwrap().to_owned());
        } else if !path.join("Cargo.toml").exists() {
            code(&path, top, found);
        }
    }
}

#[test]
fn each_crate_packs_whole_and_says_what_it_is() {
    let dir = TempDir::new().unwrap();
    Command::new("cargo")
        .current_dir(programs::source())
        .args(["package", "--workspace", "--no-verify", "--allow-dirty"])
        .args(["--locked", "--offline", "--quiet", "--target-dir"])
        .arg(dir.path())
        .assert()
        .success();
    for (name, folder, needed) in CRATES {
        let top = format!("{name}-{}", version());
        let file = dir.path().join(format!("package/{top}.crate"));
        let mut tar = Command::new("tar");
        let packed: BTreeSet<String> = lines(tar.arg("-tzf").arg(&file))
            .iter()
            .map(|line| line.strip_prefix(&format!("{top}/")).unwrap().to_owned())
            .collect();
        // Nothing of the folder is left out, and nothing is missing in it.
        let mut wanted = BTreeSet::new();
        let folder = programs::source().join(folder);
        code(&folder, &folder, &mut wanted);
        for file in ["README.md", "Cargo.lock", "Cargo.toml.orig"] {
            wanted.insert(file.to_owned());
        }
        let packed: BTreeSet<String> = packed
            .into_iter()
            .filter(|file| file != ".cargo_vcs_info.json")
            .collect();
        assert_eq!(packed, wanted, "{name}");
        for file in ["LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"]
            .iter()
            .chain(*needed)
        {
            assert!(packed.contains(*file), "{name}: {file}");
        }

        let mut tar = Command::new("tar");
        let manifest = tar.arg("-xzOf").arg(&file).arg(format!("{top}/Cargo.toml"));
        let manifest = lines(manifest);
        for line in [
            "readme = \"README.md\"",
            "license = \"MIT OR Apache-2.0\"",
            "repository = \"https://github.com/git-claim/git-claim\"",
        ] {
            assert!(manifest.iter().any(|l| l == line), "{name}: {line}");
        }
        assert!(manifest.iter().any(|l| l.starts_with("description = \"")));
    }
}

//! The Debian packages, in a Debian that has never seen git-claim.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use assert_fs::TempDir;

use super::debian::Debian;
use super::{files_ending_in, make};
use crate::install;
use crate::support::client::stdout;
use crate::support::programs;

/// Both packages, of the programs that the tests use, in `folder`.
fn build(folder: &Path, umask: &str, zone: &str) -> Vec<PathBuf> {
    // cargo-deb packs what a release build made; here that is what there is.
    let target = folder.join("target");
    fs::create_dir_all(&target).unwrap();
    symlink(programs::folder(), target.join("release")).unwrap();
    let packages = folder.join("packages");
    let tools = programs::folder().parent().unwrap().join("tools/bin");
    let path = std::env::var("PATH").unwrap();
    make(
        programs::source(),
        umask,
        zone,
        &[
            "deb".to_owned(),
            format!("CARGO_TARGET_DIR={}", target.display()),
            format!("DEBDIR={}", packages.display()),
            "DEBFLAGS=--fast".to_owned(),
        ],
    )
    .env("PATH", format!("{}:{path}", tools.display()))
    .assert()
    .success();
    files_ending_in(&packages, ".deb")
}

/// The files in a package, as dpkg-deb lists them.
fn listed(package: &Path) -> Vec<String> {
    let assert = Command::new("dpkg-deb")
        .arg("--contents")
        .arg(package)
        .env("TZ", "UTC")
        .assert()
        .success();
    let text = stdout(&assert);
    text.lines()
        .filter(|line| !line.ends_with('/'))
        .map(str::to_owned)
        .collect()
}

/// When the newest commit was made; outside of a repository, when the version
/// was last touched.
fn time_of_the_source() -> String {
    let script = "
        time=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
        date --utc --date=@$time '+%Y-%m-%d %H:%M'";
    let mut shell = Command::new("sh");
    shell.current_dir(programs::source()).args(["-euc", script]);
    stdout(&shell.assert().success()).trim().to_owned()
}

#[test]
fn packages_are_the_same_bytes_each_time_and_hold_what_make_installs() {
    let dir = TempDir::new().unwrap();
    let first = build(&dir.path().join("one"), "022", "UTC");
    let second = build(&dir.path().join("two"), "077", "Asia/Tokyo");
    assert_eq!(first.len(), 2);
    for (one, two) in first.iter().zip(&second) {
        assert_eq!(one.file_name(), two.file_name());
        assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
    }

    let mut packed = BTreeSet::new();
    let mut times = BTreeSet::new();
    for line in first.iter().flat_map(|package| listed(package)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, _, day, clock, path, ..] = words[..] else {
            panic!("{line}");
        };
        assert_eq!(owner, "0/0", "{line}");
        times.insert(format!("{day} {clock}"));
        let path = path.strip_prefix("./usr/").unwrap();
        if path.starts_with("share/doc/") {
            continue;
        }
        // Debian keeps pages packed, and has a folder of its own for zsh.
        let path = path.strip_suffix(".gz").unwrap_or(path);
        let path = path.replace("zsh/vendor-completions", "zsh/site-functions");
        packed.insert((path, mode.to_owned()));
    }
    // No file's own time is in there, and not that of the build.
    assert_eq!(times, BTreeSet::from([time_of_the_source()]));

    let installed = TempDir::new().unwrap();
    install::make("install", installed.path());
    let top = installed.path().join("usr");
    let mut wanted = Vec::new();
    install::files(&top, &top, &mut wanted);
    let wanted: BTreeSet<(String, String)> = wanted
        .into_iter()
        .map(|(path, mode)| {
            let mode = match mode {
                0o755 => "-rwxr-xr-x",
                0o644 => "-rw-r--r--",
                0o777 => "lrwxrwxrwx",
                _ => panic!("{path} {mode:o}"),
            };
            (path, mode.to_owned())
        })
        .collect();
    assert_eq!(packed, wanted);
}

#[test]
fn a_new_debian_claims_by_the_readme_and_is_clean_again_after_a_purge() {
    let Some(debian) = Debian::new() else {
        return;
    };
    let dir = TempDir::new().unwrap();
    for package in build(dir.path(), "022", "UTC") {
        debian.give(&package);
    }
    // What the programs need comes with them.
    debian.follow("packages-client");
    debian.ok("git claim -h && command -v ssh");
    debian.follow("packages-server");
    debian.ok("git-claim-server --help");
    // A server has these already, a person's machine most of them.
    debian.ok("apt-get install openssh-server man-db bash-completion");

    let Some(machine) = debian.boot() else {
        return;
    };
    for name in ["alice", "bob"] {
        machine.add_person(name);
        machine.add_worktree(name, "git@localhost:acme/app.git");
    }
    machine.follow("openssh");
    machine.ok("alice", "cd work; git claim 42 --ttl 2h");
    machine
        .run("bob", "cd work; git claim 42")
        .expect(4, "claimed by alice");

    for page in ["git-claim", "git-claim-plugin", "git-claim-server"] {
        machine
            .run("alice", &format!("man --pager=cat {page}"))
            .expect(0, "git-claim");
    }
    machine
        .run("alice", "MANPAGER=cat GIT_PAGER=cat git claim --help")
        .expect(0, "EXIT STATUS");
    machine
        .run(
            "alice",
            "bash -c '
                source /usr/share/bash-completion/bash_completion
                for name in git-claim git-claims git-unclaim; do
                    _completion_loader $name
                    complete -p $name
                done'",
        )
        .expect(0, " git-unclaim\n");

    machine.follow("packages-away");
    let left = machine.ok(
        "root",
        "find /etc /opt /usr /var -name '*claim*' -o -name '*collab*'",
    );
    // What the README told the administrator to write.
    assert_eq!(left, "/etc/git-claim\n");
    machine.ok("root", "test -s /etc/git-claim/config");
    assert_eq!(
        machine.ok(
            "root",
            "dpkg-query --show --showformat '${Package} ' | grep claim || true"
        ),
        ""
    );
}

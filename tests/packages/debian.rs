//! A Debian that was installed a moment ago, with nothing that it can do without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_fs::TempDir;

use crate::hosts::machine::{Machine, PATH};
use crate::hosts::readme;
use crate::support::programs;

/// The system in a folder, which becomes a [`Machine`] when it is complete.
pub struct Debian {
    dir: TempDir,
}

/// Runs a script in the system `$1`, with the network that there is.
const ENTER: &str = r#"
set -eu
mount -t proc proc "$1/proc"
exec chroot "$1" sh -euc "cd /root; $2"
"#;

/// An sshd would listen on this machine's own port.
const NO_DAEMONS: &str = r"
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
";

/// Packages come from where this machine's come, and no more than have to.
const APT: &str = r#"
APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
"#;

impl Debian {
    /// `None`, with a line about it, where one may not be made.
    pub fn new() -> Option<Debian> {
        // Who may make the one may make the other.
        drop(Machine::new()?);
        let dir = TempDir::new().unwrap();
        let settings = dir.path().join("apt.conf");
        fs::write(&settings, APT.to_owned() + &ways_out()).unwrap();
        let debian = Debian { dir };
        let mut make = Command::new(programs::need("mmdebstrap"));
        make.args(["--quiet", "--variant=minbase"])
            .arg("--dpkgopt=force-unsafe-io")
            .arg(format!("--aptopt={}", settings.display()))
            .arg(codename())
            .arg(debian.system())
            .args(sources());
        finished(&mut make);
        debian.ok(NO_DAEMONS);
        debian.ok("apt-get --quiet update");
        Some(debian)
    }

    fn system(&self) -> PathBuf {
        self.dir.path().join("system")
    }

    /// Puts a copy of `file` into root's home.
    pub fn give(&self, file: &Path) {
        let copy = self.system().join("root").join(file.file_name().unwrap());
        fs::copy(file, copy).unwrap();
    }

    /// Does what the README says in `section`, as root in `/root`.
    pub fn follow(&self, section: &str) {
        for script in readme::commands(section) {
            self.ok(&script);
        }
    }

    /// Runs a shell script as root in `/root`, which must succeed.
    pub fn ok(&self, script: &str) {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child"])
            .args(["--propagation", "private", "sh", "-c", ENTER, "enter"])
            .arg(self.system())
            .arg(script)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/root")
            .env("DEBIAN_FRONTEND", "noninteractive");
        finished(&mut command);
    }

    /// Starts it as a machine of its own, without a network.
    pub fn boot(self) -> Option<Machine> {
        let system = self.system();
        // Debian's installer writes it.
        fs::write(system.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        Machine::of(&system, self.dir)
    }
}

/// Runs to the end, and shows all that was said if that was no good one.
fn finished(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn lines(command: &mut Command) -> Vec<String> {
    let text = String::from_utf8(finished(command).stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The lines of this machine's own sources.list for what Debian itself offers.
fn sources() -> Vec<String> {
    let found = lines(
        Command::new("apt-get")
            .args(["indextargets", "--format"])
            .arg("deb $(REPO_URI) $(RELEASE) $(COMPONENT)")
            .args(["Created-By: Packages", "Origin: Debian", "Component: main"]),
    );
    assert!(
        !found.is_empty(),
        "apt knows no mirror; run `apt-get update`"
    );
    found
}

/// How apt gets there, where that is not straight: proxies, and a clock that is off.
fn ways_out() -> String {
    lines(Command::new("apt-config").args(["dump", "Acquire"]))
        .into_iter()
        .filter(|line| {
            ["http::", "https::", "Check-"]
                .iter()
                .any(|name| line.starts_with(&format!("Acquire::{name}")))
        })
        .map(|line| line + "\n")
        .collect()
}

/// Which Debian this is.
fn codename() -> String {
    let about = fs::read_to_string("/etc/os-release").unwrap();
    let name = about
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap().to_owned()
}

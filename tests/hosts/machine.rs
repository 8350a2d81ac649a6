//! A throwaway machine: namespaces in which `/etc`, `/home`, `/srv` and the like
//! can be written and nobody else sees it, with an sshd on port 22. So a test
//! can do to it what the README tells an administrator to do, word for word.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use assert_fs::TempDir;

use super::readme;
use crate::support::forge::children;
use crate::support::programs;

/// A machine; all of it is gone when it is dropped, or when the test ends in
/// any other way.
pub struct Machine {
    /// Holds the namespaces until its standard input ends.
    holder: Child,
    /// The first process inside.
    inside: u32,
    /// What it is made of.
    _dir: TempDir,
}

/// This machine's own system, with ours installed as by `make install`: `$1` is
/// an empty folder, `$2` the programs, `$3` what comes next.
const COPY: &str = r#"
set -eu
mount -t tmpfs tmpfs "$1"
writable() {
    mkdir -p "$1/upper$2" "$1/work$2"
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper$2,workdir=$1/work$2" "$2"
}
writable "$1" /usr/local
mkdir -p /usr/local/bin /usr/local/sbin /usr/local/lib/git-claim
for program in git-claim git-claims git-unclaim git-claim-server collab-lease; do
    install -m 755 "$2/$program" /usr/local/bin
done
install -m 644 "$2/libgit_claim_plugin.so" /usr/local/lib/git-claim
for folder in /etc /home /root /srv /var; do
    writable "$1" "$folder"
done
chmod 755 / /usr/local /usr/local/*
ip link set lo up
exec sh -c "$3"
"#;

/// The system in `$1`; `$2` is what comes next.
const OTHER: &str = r#"
set -eu
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
ip link set lo up
exec chroot . sh -c "$2"
"#;

/// Runs inside before anything else.
const BOOT: &str = r#"
set -eu
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir /run/sshd
rm -f /etc/nologin /run/nologin
ssh-keygen -A >/dev/null
echo "localhost $(cat /etc/ssh/ssh_host_ed25519_key.pub)" >/etc/ssh/ssh_known_hosts
cat >/usr/local/sbin/systemctl <<'END'
#!/bin/bash
# Stands in for systemd: `systemctl reload ssh` is all that it is asked.
[ "$*" = "reload ssh" ] || exit 1
if [ -f /run/sshd.pid ]; then
    old=$(cat /run/sshd.pid)
    kill "$old"
    while kill -0 "$old" 2>/dev/null; do sleep 0.02; done
fi
/usr/sbin/sshd
until (exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null; do sleep 0.02; done
END
chmod 755 /usr/local/sbin/systemctl
systemctl reload ssh
echo ready
# Not the last command, so that the shell stays and buries orphans as init does.
cat
exit
"#;

impl Machine {
    /// `None`, with a line about it, where one may not be made: that takes root.
    pub fn new() -> Option<Machine> {
        if !programs::is_root() {
            eprintln!("skipped: only root can make a machine of its own");
            return None;
        }
        for program in ["unshare", "nsenter", "setpriv", "ip"] {
            programs::need(program);
        }
        let dir = TempDir::new().unwrap();
        let mut setup = Command::new("sh");
        setup.args(["-c", COPY, "setup"]);
        setup.arg(dir.path()).arg(programs::folder()).arg(BOOT);
        Machine::start(&setup, dir)
    }

    /// A machine whose system is the one in `system`, a folder in `dir`.
    pub fn of(system: &Path, dir: TempDir) -> Option<Machine> {
        let mut setup = Command::new("sh");
        setup.args(["-c", OTHER, "setup"]);
        setup.arg(system).arg(BOOT);
        Machine::start(&setup, dir)
    }

    fn start(setup: &Command, dir: TempDir) -> Option<Machine> {
        let mut holder = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "--propagation", "private"])
            .arg(setup.get_program())
            .args(setup.get_args())
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = holder.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        if line != "ready\n" {
            let output = holder.wait_with_output().unwrap();
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            let may_not = why.contains("unshare failed") || why.contains("permission denied");
            assert!(may_not && std::env::var_os("CI").is_none(), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let inside = *children(holder.id()).first().unwrap();
        Some(Machine {
            holder,
            inside,
            _dir: dir,
        })
    }

    /// A process in the machine's namespaces.
    pub fn inside(&self) -> u32 {
        self.inside
    }

    /// Does what the README says in `section`, as root in `/root`.
    pub fn follow(&self, section: &str) {
        self.follow_as("root", section);
    }

    /// Does what the README says in `section`, as `user` in their home.
    pub fn follow_as(&self, user: &str, section: &str) {
        for script in readme::commands(section) {
            self.ok(user, &script);
        }
    }

    /// Somebody with an account and a key, whose public half lies in
    /// `/root/NAME.pub`.
    pub fn add_person(&self, name: &str) {
        self.ok(
            "root",
            &format!("useradd --create-home --shell /bin/bash {name}"),
        );
        self.ok(
            name,
            &format!(
                "mkdir -m 700 .ssh
                 ssh-keygen -q -t ed25519 -N '' -C {name} -f .ssh/id_ed25519
                 git config --global user.name {name}
                 git config --global user.email {name}@example.org
                 git config --global init.defaultBranch main"
            ),
        );
        self.ok(
            "root",
            &format!("cp /home/{name}/.ssh/id_ed25519.pub {name}.pub"),
        );
    }

    /// A worktree `~/work` of somebody, whose `origin` is `url`.
    pub fn add_worktree(&self, name: &str, url: &str) {
        self.ok(
            name,
            &format!("git init -q work && git -C work remote add origin {url}"),
        );
    }

    /// Runs a shell script as `user` in their home.
    pub fn run(&self, user: &str, script: &str) -> Ran {
        let mut command = Command::new("timeout");
        command
            // Nothing here takes that long.
            .args(["120", "nsenter"])
            .args(["--mount", "--net", "--pid", "--root", "--wd", "--target"])
            .arg(self.inside.to_string())
            .args([
                "setpriv",
                "--init-groups",
                "--reset-env",
                "--reuid",
                user,
                "--regid",
                user,
            ])
            .args(["sh", "-c", "cd && PATH=$0 && exec sh -eu", PATH])
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        // A script that ends early does not read all of itself.
        let _ = stdin.write_all(script.as_bytes());
        drop(stdin);
        Ran {
            what: format!("{user}: {script}"),
            output: process.wait_with_output().unwrap(),
        }
    }

    /// [`Machine::run`] for a script that must succeed; its standard output.
    pub fn ok(&self, user: &str, script: &str) -> String {
        self.run(user, script).expect(0, "").stdout()
    }

    /// Writes a file of root's with mode 644.
    pub fn write(&self, path: &str, text: &str) {
        self.ok(
            "root",
            &format!("umask 022; cat >{path} <<'END OF FILE'\n{text}\nEND OF FILE"),
        );
    }
}

/// Where programs are looked for, as in a fresh login of root.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Drop for Machine {
    fn drop(&mut self) {
        // It ends with the machine's last process, which its folder outlives.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A script that has run.
pub struct Ran {
    what: String,
    output: Output,
}

impl Ran {
    /// Asserts the exit code, and that `part` is in the output.
    #[track_caller]
    pub fn expect(self, exit: i32, part: &str) -> Ran {
        let shown = format!(
            "{}\n{:?}\n{}{}",
            self.what,
            self.output.status.code(),
            self.stdout(),
            self.stderr()
        );
        assert_eq!(self.output.status.code(), Some(exit), "{shown}");
        assert!(
            self.stdout().contains(part) || self.stderr().contains(part),
            "{part:?} is missing: {shown}"
        );
        self
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The reply.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let text = self.stdout();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}: {text}{}", self.what, self.stderr()))
    }
}

/// The line that every unknown and unauthorised repository gets.
pub const NOT_FOUND: &str = "error: repository not found\n";

/// Reads a file of the source tree.
pub fn source(path: &str) -> String {
    fs::read_to_string(programs::source().join(path)).unwrap()
}

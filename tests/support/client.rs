//! People, their homes and worktrees, and the commands that they type.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::assert::Assert;

use super::forge::keygen;
use super::programs;

/// Nothing that a test waits for takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody with a home, an `ssh` that knows the forge, and a key.
#[derive(Clone)]
pub struct Person {
    name: String,
    home: PathBuf,
}

impl Person {
    pub fn new(name: &str, home: PathBuf) -> Person {
        Person {
            name: name.to_owned(),
            home,
        }
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Makes the home: git's configuration, and an `ssh` of its own, as ssh
    /// takes its configuration from the account's home, whatever `$HOME` says.
    pub fn make_home(&self) {
        for folder in ["bin", "run"] {
            fs::create_dir_all(self.home.join(folder)).unwrap();
        }
        fs::set_permissions(self.home.join("run"), fs::Permissions::from_mode(0o700)).unwrap();
        let name = &self.name;
        fs::write(
            self.home.join("gitconfig"),
            format!("[user]\n\tname = {name}\n\temail = {name}@example.org\n"),
        )
        .unwrap();
        self.make_program(
            "ssh",
            &format!(
                "exec {} -F {}/ssh_config \"$@\"",
                programs::need("ssh").display(),
                self.home.display()
            ),
        );
        fs::write(self.home.join("ssh_config"), "").unwrap();
    }

    /// Puts a shell script in front of the PATH.
    pub fn make_program(&self, name: &str, script: &str) {
        let file = self.home.join("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes the key and gives its public half.
    pub fn make_key(&self) -> String {
        keygen(&self.key(), &self.name);
        let public = fs::read_to_string(self.home.join("key.pub")).unwrap();
        public.trim_end().to_owned()
    }

    /// The file with the private key.
    pub fn key(&self) -> PathBuf {
        self.home.join("key")
    }

    /// Tells this person's ssh where `host` is and whose keys it may have.
    pub fn knows_host(&self, host: &str, port: u16, known_hosts: &Path) {
        let user = login_name();
        let mut config = fs::OpenOptions::new()
            .append(true)
            .open(self.home.join("ssh_config"))
            .unwrap();
        write!(
            config,
            "Host {host}\n\
             \x20   HostName 127.0.0.1\n\
             \x20   Port {port}\n\
             \x20   User {user}\n\
             \x20   IdentityFile {key}\n\
             \x20   IdentitiesOnly yes\n\
             \x20   IdentityAgent none\n\
             \x20   UserKnownHostsFile {known}\n\
             \x20   GlobalKnownHostsFile /dev/null\n",
            key = self.key().display(),
            known = known_hosts.display(),
        )
        .unwrap();
    }

    /// This person in a folder that is there.
    pub fn at(&self, dir: impl Into<PathBuf>) -> Client {
        Client {
            person: self.clone(),
            dir: dir.into(),
        }
    }

    /// A new, empty worktree whose `origin` is `url`.
    pub fn worktree(&self, url: &str) -> Client {
        let name = (1..)
            .map(|n| format!("work{n}"))
            .find(|name| !self.home.join(name).exists())
            .unwrap();
        let client = Client {
            person: self.clone(),
            dir: self.home.join(name),
        };
        fs::create_dir(&client.dir).unwrap();
        client.git(["init", "-q", "-b", "main"]).assert().success();
        client
            .git(["remote", "add", "origin", url])
            .assert()
            .success();
        client
    }

    /// A command in `dir`, with nothing of the test's own environment.
    pub fn command(&self, program: impl AsRef<OsStr>, dir: &Path) -> assert_cmd::Command {
        assert_cmd::Command::from_std(self.std_command(program, dir))
    }

    /// The same for a test that deals with the process itself.
    pub fn std_command(&self, program: impl AsRef<OsStr>, dir: &Path) -> std::process::Command {
        let mut path = self.home.join("bin").into_os_string();
        path.push(":");
        path.push(programs::folder());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        // Ours must be found as git finds it; a bare name would be looked up
        // in the test's own PATH.
        let mut command = std::process::Command::new("/usr/bin/env");
        command
            .arg(program)
            .current_dir(dir)
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", self.home.join("run"))
            .env("XDG_CONFIG_HOME", self.home.join(".config"))
            .env("XDG_CACHE_HOME", self.home.join(".cache"))
            .env("TMPDIR", self.home.join("run"))
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", self.home.join("gitconfig"));
        command
    }
}

/// The name of the account that the tests run as; sshd lets it log in.
fn login_name() -> String {
    let output = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// A worktree of somebody's: one session.
#[derive(Clone)]
pub struct Client {
    person: Person,
    dir: PathBuf,
}

impl Client {
    pub fn person(&self) -> &Person {
        &self.person
    }

    /// The worktree.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same person in another folder.
    pub fn at(&self, dir: impl Into<PathBuf>) -> Client {
        self.person.at(dir)
    }

    /// Any command, run in the worktree.
    pub fn command(&self, program: impl AsRef<OsStr>) -> assert_cmd::Command {
        let mut command = self.person.command(program, &self.dir);
        command.timeout(PATIENCE);
        command
    }

    /// `git …`.
    pub fn git<I, S>(&self, args: I) -> assert_cmd::Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command("git");
        command.args(args);
        command
    }

    /// Types a line of words: `client.run("git claim 42 --ttl 2h")`.
    pub fn run(&self, line: &str) -> Assert {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().unwrap());
        command.args(words).assert()
    }

    /// [`Client::run`] for a command that must succeed; its standard output.
    pub fn ok(&self, line: &str) -> String {
        stdout(&self.run(line).success())
    }

    /// [`Client::run`] with `--json` for an exit code; the reply.
    pub fn json(&self, line: &str, exit: i32) -> serde_json::Value {
        let assert = self.run(&format!("{line} --json")).code(exit);
        let text = stdout(&assert);
        serde_json::from_str(&text).unwrap_or_else(|error| {
            let stderr = stderr(&assert);
            panic!("`{line} --json` gave no JSON ({error}): {text:?}, and on stderr {stderr:?}")
        })
    }

    /// The verb itself, through plain ssh: `client.verb("list acme/app.git")`.
    pub fn verb(&self, line: &str) -> Assert {
        self.ssh(format!("collab-lease {line}")).assert()
    }

    /// One exec request with the bytes of `command`, as plain ssh sends it.
    pub fn ssh(&self, command: impl AsRef<OsStr>) -> assert_cmd::Command {
        let mut ssh = assert_cmd::Command::from_std(self.std_ssh(command));
        ssh.timeout(PATIENCE);
        ssh
    }

    /// The same for a test that deals with the process itself.
    pub fn std_ssh(&self, command: impl AsRef<OsStr>) -> std::process::Command {
        let mut ssh = self.person.std_command("ssh", &self.dir);
        ssh.arg("-S").arg(self.connection());
        ssh.arg("forge").arg(command);
        ssh
    }

    /// The socket of a connection for [`Client::ssh`], so that a table of
    /// requests does not log in for each. It ends with the forge.
    fn connection(&self) -> PathBuf {
        let socket = self.person.home.join("plain-ssh");
        if !socket.exists() {
            let mut master = self.command("ssh");
            master.arg("-fNMS").arg(&socket).arg("forge");
            master.assert().success();
        }
        socket
    }
}

/// A finished command's standard output.
pub fn stdout(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// A finished command's standard error.
pub fn stderr(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

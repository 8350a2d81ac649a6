//! The connection: reused, never trusted blindly, never left behind.

use std::cell::RefCell;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::client::{Client, Person, stderr};
use crate::support::forge::{Forge, REPO, url};
use crate::support::{eventually, words_of_waiting};

/// The processes that have `person`'s home in their command line.
fn processes(person: &Person) -> Vec<String> {
    let home = person.home().to_str().unwrap();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(home))
        .collect()
}

/// What lies in the folders for temporary files and sockets.
fn left_behind(person: &Person) -> Vec<PathBuf> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            }
            found.push(path);
        }
    }
    let mut found = Vec::new();
    files(&person.home().join("run"), &mut found);
    found
}

fn nothing_is_left(person: &Person) {
    eventually("the end of every process", || processes(person).is_empty());
    // The folder itself may stay for the next call; nothing in it.
    let left: Vec<PathBuf> = left_behind(person)
        .into_iter()
        .filter(|path| {
            !path.is_dir() || path.file_name().unwrap().to_str().unwrap().starts_with('.')
        })
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

/// Starts `git claim …` as a shell would, in a process group of its own.
fn start(client: &Client, words: &[&str]) -> Child {
    client
        .person()
        .std_command("git", client.dir())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Ctrl-C: the terminal sends it to the whole group.
fn interrupt(child: Child) {
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let ended = output.status;
    assert!(
        ended.signal() == Some(2) || ended.code() == Some(130),
        "{ended}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn several_commands_share_one_login() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c051");
    alice.ok("git claim renew ae1c051 --ttl 1h");
    alice.ok("git claims");
    forge.client("alice").run("git claim ae1c051").code(4);
    alice.ok("git unclaim ae1c051");
    assert_eq!(forge.logins(), 1);
    assert_eq!(
        processes(alice.person()).len(),
        1,
        "{:?}",
        processes(alice.person())
    );
}

/// sshd has MaxSessions 10: what is full is replaced, not tried by each call.
#[test]
fn a_full_connection_makes_room_for_another() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c051");
    let bob = forge.client("bob");
    bob.ok("git claims");
    let logins = forge.logins();
    let mut waiters: Vec<Child> = (0..10)
        .map(|_| {
            start(
                &forge.client("bob"),
                &["claim", "ae1c051", "--wait", "--verbose"],
            )
        })
        .collect();
    for waiter in &mut waiters {
        // It says for whom it waits, over a session that stays open.
        assert!(words_of_waiting(waiter).contains("alice"));
    }
    assert_eq!(forge.logins(), logins);
    for _ in 0..3 {
        bob.ok("git claims");
        assert_eq!(forge.logins(), logins + 1);
    }
    for waiter in waiters {
        interrupt(waiter);
    }
}

#[test]
fn a_connection_of_ones_own_is_used_first() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let config = alice.person().home().join("ssh_config");
    let mine = alice.person().home().join("mine");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        format!("{text}    ControlPath {}\n", mine.display()),
    )
    .unwrap();
    let mut master = alice.command("ssh");
    master.args(["-fNM", "forge"]).assert().success();
    alice.ok("git claim ae1c051");
    alice.ok("git claims");
    assert_eq!(forge.logins(), 1);
    // It is the user's: it stays.
    let mut check = alice.command("ssh");
    check.args(["-O", "check", "forge"]).assert().success();
}

#[test]
fn control_persist_no_leaves_nothing() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git config claim.controlPersist no");
    alice.ok("git claim ae1c051");
    alice.ok("git claims");
    assert_eq!(forge.logins(), 2);
    // One that stays open meanwhile.
    alice.ok("git claim run ae1c051 -- true");
    assert_eq!(forge.logins(), 3);
    nothing_is_left(alice.person());
}

#[test]
fn ctrl_c_while_connecting_leaves_nothing() {
    let forge = Forge::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let person = forge.person("alice");
    let port = silent.local_addr().unwrap().port();
    person.knows_host("silent", port, Path::new("/dev/null"));
    let client = person.worktree("ssh://silent/acme/app.git");
    let child = start(&client, &["claim", "ae1c051"]);
    silent.set_nonblocking(true).unwrap();
    let connection = RefCell::new(None);
    eventually("the connection", || {
        connection.replace(silent.accept().ok());
        connection.borrow().is_some()
    });
    interrupt(child);
    drop(connection);
    nothing_is_left(&person);
}

#[test]
fn ctrl_c_while_the_server_works_leaves_nothing() {
    let forge = Forge::new();
    let running = forge.dir().join("running");
    let command = format!("touch {}; sleep 1000", running.display());
    let person = forge.person_behind("alice", &format!("restrict,command=\"{command}\""));
    let client = person.worktree(&url(REPO));
    client.ok("git config claim.controlPersist no");
    let child = start(&client, &["claim", "ae1c051"]);
    eventually("the request", || running.exists());
    interrupt(child);
    nothing_is_left(&person);
}

#[test]
fn an_unknown_host_key_is_never_accepted() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let known = forge.dir().join("sshd/known_hosts");
    fs::write(&known, "").unwrap();
    for config in [
        "",
        "StrictHostKeyChecking accept-new\n",
        "StrictHostKeyChecking no\n",
    ] {
        let file = alice.person().home().join("ssh_config");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.lines().filter(|line| !line.contains("StrictHostKey"));
        let text: String = text.map(|line| format!("{line}\n")).collect();
        fs::write(&file, format!("{text}    {config}")).unwrap();
        let assert = alice.run("git claim ae1c051").code(6).stdout("");
        let error = stderr(&assert).to_lowercase();
        assert!(error.contains("host key"), "{error}");
        assert_eq!(fs::read_to_string(&known).unwrap(), "");
    }
    assert_eq!(forge.logins(), 0);
}

#[test]
fn a_wrong_host_key_is_never_accepted() {
    let forge = Forge::new();
    let other = Forge::new();
    let alice = forge.client("alice");
    let known = forge.dir().join("sshd/known_hosts");
    let right = fs::read_to_string(&known).unwrap();
    let wrong = fs::read_to_string(other.dir().join("sshd/host_key.pub")).unwrap();
    let wrong = format!("{} {wrong}", right.split(' ').next().unwrap());
    fs::write(&known, &wrong).unwrap();
    let assert = alice.run("git claim ae1c051").code(6).stdout("");
    let error = stderr(&assert).to_lowercase();
    assert!(error.contains("host key"), "{error}");
    assert_eq!(fs::read_to_string(&known).unwrap(), wrong);
    assert_eq!(forge.logins(), 0);
}

#[test]
fn the_command_that_git_would_run_is_run() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let person = alice.person();
    let log = person.home().join("log");
    for name in ["one", "two", "three", "four"] {
        let log = log.display();
        person.make_program(
            &format!("ssh-{name}"),
            &format!("echo {name} \"$@\" >>{log}\nexec ssh \"$@\""),
        );
    }
    let mut variables: Vec<(&str, String)> = Vec::new();
    // Each is stronger than those before it.
    let steps = [
        (
            "four",
            "GIT_SSH",
            person.home().join("bin/ssh-four").display().to_string(),
        ),
        ("three", "", "ssh-three".to_owned()),
        // Through a shell, as git does.
        (
            "two",
            "GIT_SSH_COMMAND",
            "X=1; ssh-two -o 'LogLevel ERROR'".to_owned(),
        ),
        ("one", "GIT_CLAIM_SSH_COMMAND", "ssh-one".to_owned()),
    ];
    for (name, variable, value) in steps {
        if variable.is_empty() {
            alice
                .git(["config", "core.sshCommand", &value])
                .assert()
                .success();
        } else {
            variables.push((variable, value));
        }
        let _ = fs::remove_file(&log);
        let mut command = alice.git(["claim", "ae1c051", "--ttl", "1h"]);
        command.envs(variables.iter().map(|(k, v)| (k, v)));
        command.assert().success();
        let said = fs::read_to_string(&log).unwrap();
        assert!(said.starts_with(name), "{name}: {said}");
        assert!(said.contains("collab-lease acquire"), "{said}");
    }
    // Once they are gone, so is every trace of them.
    alice.ok("git config --unset core.sshCommand");
    fs::remove_file(&log).unwrap();
    alice.ok("git claim ae1c051");
    assert!(!log.exists());
}

#[test]
fn a_url_that_is_an_option_is_refused() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for url in [
        "ssh://-oProxyCommand=touch%20owned/x.git",
        "-oProxyCommand=id:x.git",
        "forge:-x.git",
    ] {
        alice
            .git(["config", "remote.origin.url", url])
            .assert()
            .success();
        let assert = alice.run("git claim ae1c051").failure().stdout("");
        assert!(
            stderr(&assert).starts_with("error: "),
            "{url}: {}",
            stderr(&assert)
        );
        assert!(!alice.dir().join("owned").exists());
    }
    assert_eq!(forge.logins(), 0);
}

#[test]
fn a_claim_url_is_asked_instead_of_the_remote() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git remote set-url origin https://example.org/acme/app.git");
    alice
        .git(["config", "remote.origin.claimUrl", "forge:acme/app.git"])
        .assert()
        .success();
    alice.ok("git claim ae1c051");
    // insteadOf counts as it does for git, also from the command line.
    alice.ok("git config --unset remote.origin.claimUrl");
    alice.ok("git -c url.ssh://forge/.pushInsteadOf=https://example.org/ claim ae1c051");
}

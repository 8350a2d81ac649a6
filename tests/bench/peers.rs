//! Locks made in other ways, beside `ssh host true` as a claim is: by pushing a
//! ref that only one can create, by gitolite's `lock`, and by `git lfs lock`.
//!
//! The server for git-lfs is lfsx-server (`cargo install lfsx-server`). Of what
//! crates.io has it is the one that knows locks: rudolfs and engulfs don't, and
//! git-lfs and git-lfs-api are clients. It is asked without TLS and without a
//! login, so this is the least that such a lock costs.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::client::Client;
use crate::support::forge::{Forge, REPO, git, import};
use crate::support::{eventually, programs};
use crate::{Row, Target, compare, master, ssh, time};

const PEER: Target = Target::None("a peer");

/// What is locked.
const FILE: &str = "file";

pub fn rows(forge: &Forge, plain: &Client, rows: &mut Vec<Row>) {
    let client = forge.client("alice");
    let mut number = 0;
    rows.push(compare(
        "git push of a unique commit as a lock",
        PEER,
        || {
            number += 1;
            push(&client, number)
        },
        || time(&mut ssh(plain, &[])),
    ));
    gitolite(forge, plain, rows);
    git_lfs(forge, plain, rows);
}

/// A lock made by pushing a ref that points at a commit of one's own.
fn push(client: &Client, number: u32) -> Duration {
    let dir = client.dir();
    let tree = git(dir, &["mktree"]);
    let commit = git(
        dir,
        &["commit-tree", &tree, "-m", &format!("lock {number}")],
    );
    let mut command = client.person().std_command("git", dir);
    let refspec = format!("{commit}:refs/locks/{number}");
    time(command.args(["push", "-q", "origin", &refspec]))
}

/// gitolite in a home of its own, behind the forge's sshd.
fn gitolite(forge: &Forge, plain: &Client, rows: &mut Vec<Row>) {
    let Some(home) = set_gitolite_up(forge) else {
        println!("gitolite's lock: gitolite is not here (Debian: gitolite3)");
        return;
    };
    let shell = format!(
        "restrict,command=\"env HOME={} {} alice\"",
        home.display(),
        gitolite_in(&home, &["query-rc", "GL_BINDIR"]) + "/gitolite-shell"
    );
    let alice = forge
        .person_behind("alice-of-gitolite", &shell)
        .worktree("forge:acme/app");
    let ask = |options: &[&str], operation: &str| {
        let mut command = alice.person().std_command("ssh", alice.dir());
        command.args(options).arg("forge");
        time(command.args(["lock", operation, "acme/app", FILE]))
    };
    let lock = |options: &[&str]| {
        let taken = ask(options, "-l");
        // Nobody locks what is locked, be it theirs.
        ask(options, "-u");
        taken
    };
    rows.push(compare(
        "gitolite's lock, no connection open",
        PEER,
        || lock(&[]),
        || time(&mut ssh(plain, &[])),
    ));
    let (theirs, ours) = (master(&alice), master(plain));
    rows.push(compare(
        "the same over a connection that is open",
        Target::None("a peer, beside ssh -S master host true"),
        || lock(&["-S", &theirs]),
        || time(&mut ssh(plain, &["-S", &ours])),
    ));
}

/// `None` where it is not installed.
fn set_gitolite_up(forge: &Forge) -> Option<PathBuf> {
    programs::find("gitolite")?;
    let home = forge.dir().join("gitolite");
    fs::create_dir(&home).unwrap();
    gitolite_in(&home, &["setup", "-a", "admin"]);
    let rc = home.join(".gitolite.rc");
    let text = fs::read_to_string(&rc).unwrap();
    fs::write(&rc, text.replace("ENABLE => [", "ENABLE => [ 'lock',")).unwrap();
    let rules = "repo gitolite-admin\n    RW+ = admin\nrepo acme/app\n    RW+ = alice\n";
    fs::write(home.join(".gitolite/conf/gitolite.conf"), rules).unwrap();
    gitolite_in(&home, &["compile"]);
    let repo = home.join("repositories/acme/app.git");
    // It locks what is in a branch.
    let stream = format!(
        "commit refs/heads/main\ncommitter forge <forge@example.org> 0 +0000\n\
         data 0\nM 644 inline {FILE}\ndata 0\n"
    );
    import(&repo, &stream, &[]);
    Some(home)
}

/// Runs gitolite in `home`; what it says.
fn gitolite_in(home: &Path, args: &[&str]) -> String {
    let output = Command::new("gitolite")
        .args(args)
        .env("HOME", home)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A server of git-lfs; it ends when it is dropped.
struct Lfs {
    process: Child,
    url: String,
}

impl Lfs {
    /// `None` where it is not installed.
    fn start(forge: &Forge) -> Option<Lfs> {
        let program = programs::find("lfsx-server")?;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = free.local_addr().unwrap();
        drop(free);
        let process = Command::new(program)
            .env("LFSX_BIND", place.to_string())
            .env("LFSX_STORAGE_ROOT", forge.dir().join("lfs"))
            .env("LFSX_AUTH", "disabled")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lfs = Lfs {
            process,
            url: format!("http://{place}/{}", REPO.trim_end_matches(".git")),
        };
        eventually("lfsx-server's start", || TcpStream::connect(place).is_ok());
        Some(lfs)
    }
}

impl Drop for Lfs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn git_lfs(forge: &Forge, plain: &Client, rows: &mut Vec<Row>) {
    let lfs = programs::find("git-lfs").and_then(|_| Lfs::start(forge));
    let Some(lfs) = lfs else {
        println!("git lfs lock: not here (Debian: git-lfs; `cargo install lfsx-server`)");
        return;
    };
    let client = forge.client("alice");
    client
        .git(["config", "lfs.url", &lfs.url])
        .assert()
        .success();
    let mut number = 0;
    rows.push(compare(
        "git lfs lock, neither TLS nor login",
        PEER,
        || {
            number += 1;
            let mut command = client.person().std_command("git", client.dir());
            time(command.args(["lfs", "lock", &format!("{FILE}-{number}")]))
        },
        || time(&mut ssh(plain, &[])),
    ));
}

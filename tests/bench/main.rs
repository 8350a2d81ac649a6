//! What a claim costs beside what ssh and a process cost, over a real sshd on
//! loopback: `make bench`.
//!
//! Every figure is the median ratio of two commands run in turn, so that a slow
//! or a busy machine changes both. `make bench` lets the forge lie in memory: what
//! a claim costs the disk is the plugin's own bench. The programs are copies, as an
//! installation has them: how a file was written shows in what it costs to load.
//! The peers beside it are locks made in other ways.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alike;
mod peers;
mod pushes;
#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports)] // the tests need more of it
mod support;
mod trackers;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use support::client::Client;
use support::forge::{Forge, REPO, RIGHTS};
use support::{issue, programs};

/// How many pairs each ratio is the median of.
const PAIRS: usize = 41;

/// The same where the two are nearly alike.
const MANY_PAIRS: usize = 401;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, program, rest @ ..] = args.as_slice()
        && flag == "--peak"
    {
        print_peak(program, rest);
        return ExitCode::SUCCESS;
    }
    let forge = Forge::new();
    let client = forge.client("alice");
    // Somebody whom sshd lets run anything: `ssh host true`.
    let plain = forge
        .person_behind("plain", "restrict")
        .worktree("forge:none");
    let mut rows = Vec::new();
    cold(&client, &plain, &mut rows);
    warm(&client, &plain, &mut rows);
    peers::rows(&forge, &plain, &mut rows);
    completion(&client, &mut rows);
    server_call(&forge, &mut rows);
    denied(&forge, &mut rows);
    etcds_client(&mut rows);
    memory(&forge, &mut rows);
    trackers::rows(&forge, &mut rows);
    pushes::rows(&forge, &mut rows);
    println!(
        "{:<44} {:>10} {:>10} {:>9}  target",
        "a claim", "median", "beside", "measured"
    );
    for row in &rows {
        println!("{row}");
    }
    if rows.iter().all(Row::is_met) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One line of the result.
struct Row {
    what: String,
    ours: String,
    beside: String,
    measured: f64,
    target: Target,
}

/// What is wanted of what was measured.
#[derive(Clone, Copy)]
enum Target {
    /// So many times what is beside it, and what that is.
    AtMost(f64, &'static str),
    /// So many milliseconds more than what is beside it.
    AtMostMore(f64, &'static str),
    /// Nothing: it is there to be compared.
    None(&'static str),
}

impl Row {
    fn is_met(&self) -> bool {
        match self.target {
            Target::AtMost(most, _) | Target::AtMostMore(most, _) => self.measured <= most,
            Target::None(_) => true,
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<44} {:>10} {:>10} {:>9.2}  ",
            self.what, self.ours, self.beside, self.measured
        )?;
        match self.target {
            Target::AtMost(most, unit) => write!(f, "≤ {most} × {unit}")?,
            Target::AtMostMore(most, unit) => write!(f, "≤ {most} ms more than {unit}")?,
            Target::None(what) => write!(f, "({what})")?,
        }
        f.write_str(if self.is_met() { "" } else { "  MISSED" })
    }
}

/// The time of a command that must succeed.
fn time(command: &mut Command) -> Duration {
    time_to(0, command)
}

/// The time of a command that must end with `exit`.
fn time_to(exit: i32, command: &mut Command) -> Duration {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().unwrap();
    let elapsed = start.elapsed();
    assert_eq!(status.code(), Some(exit), "{command:?}");
    elapsed
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs two commands in turn, and compares them.
fn compare(
    what: &str,
    target: Target,
    ours: impl FnMut() -> Duration,
    beside: impl FnMut() -> Duration,
) -> Row {
    compare_in(PAIRS, what, target, ours, beside)
}

/// The same in so many pairs: fewer of what takes long, more of what differs
/// little.
fn compare_in(
    pairs: usize,
    what: &str,
    target: Target,
    mut ours: impl FnMut() -> Duration,
    mut beside: impl FnMut() -> Duration,
) -> Row {
    let pairs: Vec<(f64, f64)> = (0..pairs)
        .map(|_| (ours().as_secs_f64(), beside().as_secs_f64()))
        .collect();
    let shown = |value: f64| format!("{:.1} ms", value * 1_000.0);
    let compared = |(ours, beside): &(f64, f64)| match target {
        Target::AtMostMore(..) => (ours - beside) * 1_000.0,
        Target::AtMost(..) | Target::None(_) => ours / beside,
    };
    Row {
        what: what.to_owned(),
        ours: shown(median(pairs.iter().map(|(ours, _)| *ours).collect())),
        beside: shown(median(pairs.iter().map(|(_, beside)| *beside).collect())),
        measured: median(pairs.iter().map(compared).collect()),
        target,
    }
}

fn claim(client: &Client, config: &str) -> Command {
    let mut command = client.person().std_command("git", client.dir());
    command.args(["-c", config, "claim", issue::CRASH, "--ttl", "2h"]);
    command
}

fn ssh(client: &Client, options: &[&str]) -> Command {
    let mut command = client.person().std_command("ssh", client.dir());
    command.args(options).args(["forge", "true"]);
    command
}

/// The socket of a connection that ssh keeps for `client`.
fn master(client: &Client) -> String {
    let socket = client.person().home().join("run/master");
    if !socket.exists() {
        let mut master = client.person().std_command("ssh", client.dir());
        time(master.args(["-fNMS", socket.to_str().unwrap(), "forge"]));
    }
    socket.display().to_string()
}

/// No connection is open: ssh's own start-up and handshake are the floor.
fn cold(client: &Client, plain: &Client, rows: &mut Vec<Row>) {
    const NO_PERSIST: &str = "claim.controlPersist=no";
    rows.push(compare(
        "git claim, no connection open",
        Target::AtMost(1.08, "ssh host true"),
        || time(&mut claim(client, NO_PERSIST)),
        || time(&mut ssh(plain, &[])),
    ));
}

/// A second call within the idle time.
fn warm(client: &Client, plain: &Client, rows: &mut Vec<Row>) {
    let socket = master(plain);
    time(&mut claim(client, "claim.controlPersist=60"));
    rows.push(compare(
        "git claim, within the idle time",
        Target::AtMost(1.3, "ssh -S master host true"),
        || time(&mut claim(client, "claim.controlPersist=60")),
        || time(&mut ssh(plain, &["-S", &socket])),
    ));
}

/// What a TAB behind `git claim` costs: one git that runs us, and two that we ask.
fn completion(client: &Client, rows: &mut Vec<Row>) {
    rows.push(compare(
        "completing `git claim `",
        Target::AtMost(5.0, "git rev-parse"),
        || {
            let mut command = client.person().std_command("git", client.dir());
            time(command.args(["claim", "--complete", "bash", "63", "80", "claim", ""]))
        },
        || {
            let mut command = client.person().std_command("git", client.dir());
            time(command.args(["rev-parse", "--git-dir"]))
        },
    ));
}

fn server(forge: &Forge, request: &str) -> Command {
    server_as("alice", forge, request)
}

fn server_as(name: &str, forge: &Forge, request: &str) -> Command {
    let mut command = Command::new(programs::server());
    command
        .args(["openssh", "--as", name, "--config"])
        .arg(forge.config())
        .env("SSH_ORIGINAL_COMMAND", request);
    command
}

/// One server call from process start to exit, without ssh.
fn server_call(forge: &Forge, rows: &mut Vec<Row>) {
    rows.push(compare(
        "one server call (list), without ssh",
        Target::AtMost(4.0, "/bin/true"),
        || time(&mut server(forge, &format!("collab-lease list {REPO}"))),
        || time(&mut Command::new("/bin/true")),
    ));
}

/// Whether the time tells a repository that one may not see from none at all.
fn denied(forge: &Forge, rows: &mut Vec<Row>) {
    let ask = |repo: &str| {
        let request = format!("collab-lease list {repo}");
        time_to(1, &mut server_as("eve", forge, &request))
    };
    // Behind one of each, as many again: the difference is small.
    let several = |repo: &str| (0..10).map(|_| ask(repo)).sum();
    rows.push(compare(
        "10 server calls, a repository that is not theirs",
        Target::AtMost(1.05, "one that is not there"),
        || several(REPO),
        || several("acme/nix.git"),
    ));
    rows.extend(alike::rows(
        "how unlike the times of one call are",
        "by chance, 99 of 100 times",
        || ask(REPO),
        || ask("acme/nix.git"),
    ));
}

/// The same call beside one with a plugin that has no client for etcd in it, which
/// `make bench` puts beside the programs.
fn etcds_client(rows: &mut Vec<Row>) {
    let without = programs::folder().join("without-etcd.so");
    if !without.exists() {
        return;
    }
    let forge =
        |plugin: &Path| Forge::without_sshd(&format!("{RIGHTS}\tplugin = {}\n", plugin.display()));
    let (with, without) = (forge(&programs::plugin()), forge(&without));
    let list = format!("collab-lease list {REPO}");
    rows.push(compare_in(
        MANY_PAIRS,
        "one server call, ledger in a file",
        Target::AtMost(1.05, "without etcd's client"),
        || time(&mut server(&with, &list)),
        || time(&mut server(&without, &list)),
    ));
}

/// The most memory that the kernel ever saw a server call use.
fn memory(forge: &Forge, rows: &mut Vec<Row>) {
    let request = format!("collab-lease acquire {REPO} {}", issue::REVIEW);
    rows.push(memory_of(
        "memory of a server call (acquire)",
        forge,
        &request,
        15.0,
    ));
}

/// The same of one `request`, which may use so many MiB.
fn memory_of(what: &str, forge: &Forge, request: &str, most: f64) -> Row {
    const MIB: f64 = 1024.0 * 1024.0;
    let call = server(forge, request);
    // The kernel tells of all children together, so the call gets a parent of
    // its own.
    let mut parent = Command::new(std::env::current_exe().unwrap());
    parent
        .arg("--peak")
        .arg(call.get_program())
        .args(call.get_args());
    parent.env("SSH_ORIGINAL_COMMAND", request);
    let output = parent.output().unwrap();
    let peak: f64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    Row {
        what: what.to_owned(),
        ours: format!("{:.1} MiB", peak / MIB),
        beside: "1.0 MiB".to_owned(),
        measured: peak / MIB,
        target: Target::AtMost(most, "1 MiB"),
    }
}

/// Runs one command and prints the most memory that it used, in bytes.
fn print_peak(program: &str, args: &[String]) {
    let mut command = Command::new(program);
    time(command.args(args));
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    println!("{}", usage.max_rss() * 1024);
}

//! `git claim run`: real commands, real signals, real ends of claims.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::{Forge, children};
use crate::support::terminal::Terminal;
use crate::support::{eventually, programs};

/// `git claim run …` with words that are no test's to split. The process is
/// the wrapper itself.
fn command(client: &Client, words: &[&str]) -> Command {
    let mut command = client.person().std_command("git-claim", client.dir());
    command
        .arg("run")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn start(client: &Client, words: &[&str]) -> Child {
    command(client, words).spawn().unwrap()
}

fn finish(child: Child) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    (
        status.code(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

fn run(client: &Client, words: &[&str]) -> (Option<i32>, String, String) {
    finish(start(client, words))
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(pid(child.id()), signal).unwrap();
}

/// A folder for what commands write, and a look at them.
struct Traces(PathBuf);

impl Traces {
    fn of(client: &Client) -> Traces {
        let folder = client.dir().join("traces");
        fs::create_dir_all(&folder).unwrap();
        Traces(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The number of the process that has written it there.
    fn pid(&self, name: &str) -> Pid {
        let file = self.file(name);
        let read = || fs::read_to_string(&file).unwrap_or_default();
        eventually(name, || read().ends_with('\n'));
        pid(read().trim().parse().unwrap())
    }

    /// Whether the process that has written its number there is gone.
    fn is_gone(&self, name: &str) -> bool {
        let pid = self.pid(name);
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        // A zombie runs no more.
        test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    }
}

/// A command that will not end, with descendants of all kinds: each writes its
/// number, and none minds SIGTERM.
const STUBBORN: &str = "trap '' TERM HUP INT
    echo $$ >traces/command
    sh -c 'echo $$ >traces/child; while :; do sleep 0.1; done' &
    setsid sh -c 'echo $$ >traces/session; while :; do sleep 0.1; done' &
    (setsid env -i PATH=\"$PATH\" sh -c 'echo $$ >traces/orphan; while :; do sleep 0.1; done' &)
    (setsid sh -c 'setsid sh -c \"echo \\$\\$ >traces/daemon; while :; do sleep 0.1; done\" &' &)
    while :; do sleep 0.1; done";

const FAMILY: [&str; 5] = ["command", "child", "session", "orphan", "daemon"];

fn family_is_gone(traces: &Traces) -> bool {
    FAMILY.iter().all(|name| traces.is_gone(name))
}

fn wait_for_family(traces: &Traces) {
    for name in FAMILY {
        traces.pid(name);
    }
}

/// A worktree whose ssh finds no server while a file is there.
fn with_switch(client: &Client) -> PathBuf {
    let down = client.person().home().join("down");
    client.person().make_program(
        "ssh-switched",
        &format!(
            "[ -e {down} ] && {{ echo x >>{down}.met; echo 'ssh: connect to host forge: down' >&2; exit 255; }}\n\
             exec ssh \"$@\"",
            down = down.display()
        ),
    );
    client.ok("git config core.sshCommand ssh-switched");
    client.ok("git config ssh.variant ssh");
    down
}

/// The process of ours that watches the command of a run.
fn watchdog(child: &Child) -> Pid {
    let is_ours = |pid: &u32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        words.is_ok_and(|words| words.contains("--watchdog"))
    };
    let found: Vec<u32> = children(child.id()).into_iter().filter(is_ours).collect();
    assert_eq!(found.len(), 1);
    pid(found[0])
}

/// Takes the server away from a run: what has been connected is sent `signal`,
/// and nothing connects any more.
fn take_away(down: &Path, child: &Child, signal: Signal) {
    fs::write(down, "").unwrap();
    let is_ssh = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "ssh\n")
    };
    let connected: Vec<u32> = children(child.id()).into_iter().filter(is_ssh).collect();
    assert_eq!(connected.len(), 1, "one connection for all requests");
    kill_process(pid(connected[0]), signal).unwrap();
}

fn holders(client: &Client) -> Vec<String> {
    let list = client.json("git claims", 0);
    let leases = list["leases"].as_array().unwrap().clone();
    leases
        .iter()
        .map(|lease| lease["holder"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_command_gets_its_words_as_they_are() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let words: [&[u8]; 9] = [
        b"a b",
        b"",
        b"$(touch owned)",
        b"-t",
        b"--json",
        b"--",
        b"'\"\\",
        b"two\nlines",
        b"\xff\xfe",
    ];
    for front in [&["ae1c051", "-t", "1h", "--"][..], &["-t", "1h", "--next"]] {
        let mut command = command(&alice, front);
        command.args(["sh", "-c", "printf '%s\\0' \"$@\"", "name"]);
        command.args(words.map(OsStr::from_bytes));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let mut expected = words.join(&0);
        expected.push(0);
        assert_eq!(output.stdout, expected, "{front:?}");
        assert!(!alice.dir().join("owned").exists());
        assert!(holders(&alice).is_empty());
    }
}

#[test]
fn it_finds_its_claim_in_the_environment() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let script = "echo $GIT_CLAIM_ISSUE $GIT_CLAIM_TOKEN $GIT_CLAIM_EXPIRES
        git claims --json --mine; git claim verify 2>/dev/null
        test \"$GIT_CLAIM_SESSION\" = \"$1\"";
    alice.ok("git claim 537daeb");
    let session = alice.json("git claim 537daeb", 0)["session"].clone();
    let (code, out, err) = run(
        &alice,
        &["ae1c", "sh", "-c", script, "x", session.as_str().unwrap()],
    );
    assert_eq!(code, Some(0), "{err}");
    let (first, list) = out.split_once('\n').unwrap();
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let lease = list["leases"]
        .as_array()
        .unwrap()
        .iter()
        .find(|lease| lease["token"] == 1 && lease["ttl"] == 600)
        .unwrap();
    assert_eq!(
        first,
        format!(
            "{} 1 {}",
            lease["issue"].as_str().unwrap(),
            lease["expires_at"].as_str().unwrap()
        )
    );
    assert_eq!(lease["mine"], true);
}

#[test]
fn its_exit_code_is_returned_as_a_shell_would() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    fs::write(alice.dir().join("file"), "").unwrap();
    for (words, expected) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 105"], 105),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["no-such-program"], 127),
        (&["./file"], 126),
        (&[""], 127),
    ] {
        let (code, _, err) = run(&alice, &[&["ae1c051", "--"], words].concat());
        assert_eq!(code, Some(expected), "{words:?}: {err}");
        assert!(holders(&alice).is_empty(), "{words:?}");
    }
}

#[test]
fn its_own_outcomes_are_above_100() {
    let mut forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051");
    for (line, expected, said) in [
        (
            "git claim run ae1c051 -- touch ran",
            104,
            "is claimed by alice",
        ),
        ("git claim run ddf3587 -- touch ran", 101, "closed"),
        ("git claim run 0123456 -- touch ran", 101, "0123456"),
        ("git claim run ae1c051", 102, "no command"),
        ("git claim run --next", 102, "no command to run\nhint: "),
        ("git claim run", 102, "no command to run\nhint: "),
        ("git claim run a..b -- touch ran", 102, "a..b"),
    ] {
        let assert = bob.run(line).code(expected).stdout("");
        let text = stderr(&assert);
        assert!(
            text.starts_with("error: ") && text.contains(said),
            "{line}: {text}"
        );
    }
    for _ in 0..4 {
        alice.ok("git claim --next");
    }
    bob.run("git claim run --next touch ran").code(103);
    let assert = bob.run("git claim run --json ae1c051 touch ran").code(104);
    let error: serde_json::Value = serde_json::from_str(&stderr(&assert)).unwrap();
    assert_eq!(error["exit"], 104);
    bob.ok("git remote set-url origin forge-does-not-speak:x");
    forge.stop_sshd();
    let alice = alice.run("git claim run ae1c051 -- touch ran");
    alice.code(106);
    assert!(!bob.dir().join("ran").exists());
}

#[test]
fn stdin_and_stdout_are_the_commands() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let mut child = command(&alice, &["ae1c051", "--", "tr", "a-z", "A-Z"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    assert_eq!(finish(child).1, "HELLO");
}

#[test]
fn a_claim_is_left_as_it_was_found() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let ttl = |of: &Client| of.json("git claims", 0)["leases"][0]["ttl"].clone();
    alice.ok("git claim run ae1c051 -t 5m --keep -- true");
    assert_eq!(ttl(&alice), 300);
    // It is held already: so it stays.
    alice.ok("git claim run ae1c051 -- true");
    assert_eq!(ttl(&alice), 300);
    alice.ok("git claim run ae1c051 -t 1h -- true");
    assert_eq!(ttl(&alice), 300);
    alice.ok("git claim ae1c051");
    alice.ok("git claim run ae1c051 -t 1h -- true");
    assert_eq!(ttl(&alice), serde_json::Value::Null);
    assert_eq!(alice.json("git claim ae1c051", 0)["token"], 1);
}

#[test]
fn signals_are_passed_on() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    for (number, name, code) in [
        (Signal::TERM, "TERM", 15),
        (Signal::HUP, "HUP", 1),
        (Signal::INT, "INT", 2),
        (Signal::USR1, "USR1", 10),
    ] {
        let _ = fs::remove_file(traces.file("command"));
        let script = format!(
            "trap 'echo got; exit {code}' {name}
             echo $$ >traces/command
             while :; do sleep 0.05; done"
        );
        let child = start(&alice, &["ae1c051", "sh", "-c", &script]);
        traces.pid("command");
        signal(&child, number);
        let (ended, out, err) = finish(child);
        assert_eq!(
            (ended, out.as_str()),
            (Some(code), "got\n"),
            "{name}: {err}"
        );
        assert!(holders(&alice).is_empty());
    }
    // One that does not care goes on.
    let _ = fs::remove_file(traces.file("command"));
    let script = "trap '' TERM; echo $$ >traces/command; while [ ! -e go ]; do sleep 0.05; done";
    let child = start(&alice, &["ae1c051", "sh", "-c", script]);
    traces.pid("command");
    signal(&child, Signal::TERM);
    fs::write(alice.dir().join("go"), "").unwrap();
    assert_eq!(finish(child).0, Some(0));
}

#[test]
fn what_is_ignored_stays_ignored() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let sets = |trap: &str| {
        let script = format!(
            "{trap}\nexec git-claim run ae1c051 -- grep -E '^Sig(Ign|Blk)' /proc/self/status"
        );
        let mut command = alice.person().std_command("sh", alice.dir());
        let output = command.args(["-c", &script]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // Without those of the C library's own, above the first 31.
        let set = |line: &str| {
            u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16).unwrap() & 0x7fff_ffff
        };
        text.lines().map(set).collect::<Vec<u64>>()
    };
    const HANGUP: u64 = 1;
    assert_eq!(sets("trap '' HUP"), [0, HANGUP]);
    assert_eq!(sets(""), [0, 0]);
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    // The last line is what the command itself goes on with.
    let (script, _) = STUBBORN.rsplit_once('\n').unwrap();
    let script = format!(
        "{script}\nfor f in child session orphan daemon; do until [ -s traces/$f ]; do sleep 0.05; done; done; exit 9"
    );
    let (code, _, err) = run(&alice, &["ae1c051", "sh", "-c", &script]);
    assert_eq!(code, Some(9), "{err}");
    assert!(family_is_gone(&traces));
    assert!(holders(&alice).is_empty());
}

#[test]
fn a_claim_lives_as_long_as_its_command() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    // Three times its time to live.
    let child = start(&alice, &["ae1c051", "-t", "2s", "--", "sleep", "6"]);
    eventually("the claim", || holders(&bob) == ["alice"]);
    let waiter = bob.run("git claim ae1c051 --wait=1h --json");
    assert_eq!(finish(child).0, Some(0));
    let reply: serde_json::Value = serde_json::from_str(&stdout(&waiter.code(0))).unwrap();
    assert_eq!(reply["token"], 2);
    let log = bob.json("git claim log ae1c051", 0);
    assert_eq!(log["tenures"][1]["how"], "released", "{log}");
}

#[test]
fn a_claim_that_is_taken_over_ends_the_command() {
    let forge = Forge::new();
    let (alice, carol) = (forge.client("alice"), forge.client("carol"));
    let traces = Traces::of(&alice);
    let child = start(&alice, &["ae1c051", "-t", "6s", "--", "sh", "-c", STUBBORN]);
    wait_for_family(&traces);
    carol.ok("git claim ae1c051 --take-over --reason leave --expected-token 1");
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(105), "{err}");
    assert!(err.contains("taken over by carol: leave"), "{err}");
    assert!(family_is_gone(&traces));
    assert_eq!(holders(&carol), ["carol"]);
}

#[test]
fn a_server_that_is_away_for_less_than_the_claim_is_no_matter() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let down = with_switch(&alice);
    let traces = Traces::of(&alice);
    let script = "echo $$ >traces/command; while [ ! -e go ]; do sleep 0.05; done";
    let child = start(&alice, &["ae1c051", "-t", "12s", "--", "sh", "-c", script]);
    traces.pid("command");
    let renewed = || alice.json("git claims", 0)["leases"][0]["heartbeat_at"].clone();
    take_away(&down, &child, Signal::KILL);
    let met = down.with_extension("met");
    eventually("a heartbeat that fails", || met.exists());
    fs::remove_file(&down).unwrap();
    let before = renewed();
    eventually("a heartbeat", || renewed() != before);
    fs::write(alice.dir().join("go"), "").unwrap();
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(0), "{err}");
}

/// Whoever gets the claim finds nothing of the one before alive.
fn rival_finds_nobody(bob: &Client, traces: &Traces) {
    assert_eq!(bob.json("git claim ae1c051 --wait=1m", 0)["token"], 2);
    assert!(family_is_gone(traces), "two work on it at once");
}

#[test]
fn a_server_that_is_away_for_longer_ends_the_command_in_time() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    let down = with_switch(&alice);
    let traces = Traces::of(&alice);
    let child = start(&alice, &["ae1c051", "-t", "4s", "--", "sh", "-c", STUBBORN]);
    wait_for_family(&traces);
    take_away(&down, &child, Signal::KILL);
    rival_finds_nobody(&bob, &traces);
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(105), "{err}");
    assert!(err.contains("cannot be reached"), "{err}");
}

#[test]
fn a_server_that_hangs_ends_the_command_in_time() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    let traces = Traces::of(&alice);
    let down = with_switch(&alice);
    alice.person().make_program(
        "ssh-switched",
        &format!(
            "[ -e {} ] && exec sleep 1000\nexec ssh \"$@\"",
            down.display()
        ),
    );
    let child = start(&alice, &["ae1c051", "-t", "4s", "--", "sh", "-c", STUBBORN]);
    wait_for_family(&traces);
    take_away(&down, &child, Signal::STOP);
    rival_finds_nobody(&bob, &traces);
    assert_eq!(finish(child).0, Some(105));
}

#[test]
fn a_stopped_wrapper_does_not_keep_the_command_beyond_the_end() {
    for with_rival in [true, false] {
        let forge = Forge::new();
        let (alice, bob) = (forge.client("alice"), forge.client("bob"));
        let traces = Traces::of(&alice);
        let child = start(&alice, &["ae1c051", "-t", "4s", "--", "sh", "-c", STUBBORN]);
        wait_for_family(&traces);
        signal(&child, Signal::STOP);
        if with_rival {
            rival_finds_nobody(&bob, &traces);
        } else {
            eventually("the end", || holders(&bob).is_empty());
            assert!(family_is_gone(&traces));
        }
        signal(&child, Signal::CONT);
        let (code, _, err) = finish(child);
        assert_eq!(code, Some(105), "{with_rival}: {err}");
        let expected: &[&str] = if with_rival { &["bob"] } else { &[] };
        assert_eq!(holders(&bob), expected);
    }
}

#[test]
fn a_killed_wrapper_takes_the_command_with_it() {
    let forge = Forge::new();
    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    let traces = Traces::of(&alice);
    let child = start(&alice, &["ae1c051", "-t", "6s", "--", "sh", "-c", STUBBORN]);
    wait_for_family(&traces);
    let watchdog = watchdog(&child);
    signal(&child, Signal::KILL);
    rival_finds_nobody(&bob, &traces);
    eventually("the watchdog's end", || {
        test_kill_process(watchdog).is_err()
    });
    // Its pipes are closed too.
    assert_eq!(finish(child).0, None);
}

#[test]
fn a_killed_or_stopped_watchdog_takes_the_command_with_it() {
    for number in [Signal::KILL, Signal::STOP] {
        let forge = Forge::new();
        let (alice, bob) = (forge.client("alice"), forge.client("bob"));
        let down = with_switch(&alice);
        let traces = Traces::of(&alice);
        let child = start(&alice, &["ae1c051", "-t", "4s", "--", "sh", "-c", STUBBORN]);
        wait_for_family(&traces);
        take_away(&down, &child, Signal::KILL);
        kill_process(watchdog(&child), number).unwrap();
        bob.ok("git claim ae1c051 --wait=1m");
        // Who left the family by itself is seen by the watchdog alone.
        for name in ["command", "child", "session", "daemon"] {
            assert!(traces.is_gone(name), "{number:?}: {name}");
        }
        let _ = kill_process(traces.pid("orphan"), Signal::KILL);
        assert_eq!(finish(child).0, Some(105));
    }
}

#[test]
fn one_run_of_a_claim_at_a_time() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    let script = "echo $$ >traces/command; while [ ! -e go ]; do sleep 0.05; done";
    let child = start(&alice, &["ae1c051", "-t", "1h", "--", "sh", "-c", script]);
    traces.pid("command");
    let (code, _, err) = run(&alice, &["ae1c", "-t", "1s", "--", "touch", "ran"]);
    assert_eq!(code, Some(104), "{err}");
    assert!(err.contains("another `git claim run`"), "{err}");
    assert!(!alice.dir().join("ran").exists());
    assert_eq!(alice.json("git claims", 0)["leases"][0]["ttl"], 3_600);
    // Another worktree of hers is another session.
    assert_eq!(run(&forge.client("alice"), &["ae1c", "true"]).0, Some(104));
    fs::write(alice.dir().join("go"), "").unwrap();
    assert_eq!(finish(child).0, Some(0));
    assert_eq!(run(&alice, &["ae1c", "true"]).0, Some(0));
}

#[test]
fn a_released_claim_ends_the_command() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    let child = start(&alice, &["ae1c051", "-t", "3s", "--", "sh", "-c", STUBBORN]);
    wait_for_family(&traces);
    alice.ok("git unclaim ae1c051");
    let (code, _, err) = finish(child);
    assert_eq!(code, Some(105), "{err}");
    assert!(err.contains("was released"), "{err}");
    assert!(family_is_gone(&traces));
}

/// Whether a process has been stopped.
fn is_stopped(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| stat.contains(") T "))
}

#[test]
fn resume_goes_on_where_nobody_had_it_since() {
    for with_rival in [false, true] {
        let forge = Forge::new();
        let (alice, bob) = (forge.client("alice"), forge.client("bob"));
        let down = with_switch(&alice);
        let traces = Traces::of(&alice);
        let script = "echo $$ >traces/command; while [ ! -e go ]; do sleep 0.05; done";
        let words = ["ae1c051", "-t", "5s", "--resume", "--", "sh", "-c", script];
        let child = start(&alice, &words);
        let command = traces.pid("command");
        take_away(&down, &child, Signal::KILL);
        eventually("the end", || holders(&bob).is_empty());
        assert!(is_stopped(command), "{with_rival}");
        if with_rival {
            bob.ok("git claim ae1c051");
            bob.ok("git unclaim ae1c051");
        }
        fs::remove_file(&down).unwrap();
        if with_rival {
            let (code, _, err) = finish(child);
            assert_eq!(code, Some(105), "{err}");
            assert!(traces.is_gone("command"));
            continue;
        }
        eventually("the claim", || holders(&bob) == ["alice"]);
        eventually("the command", || !is_stopped(command));
        // A machine that is busy for so long may have lost it once more since.
        assert!(bob.json("git claim ae1c051", 4)["token"].as_u64() > Some(1));
        fs::write(alice.dir().join("go"), "").unwrap();
        let (code, _, err) = finish(child);
        assert_eq!(code, Some(0), "{err}");
        assert!(holders(&bob).is_empty());
    }
}

#[test]
fn the_terminals_keys_reach_the_command() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    let script = "n=0; trap 'n=$((n+1)); echo; echo got $n' INT
        echo $$ >traces/command; echo ready
        while :; do
            read -t 0.1 line && echo read $line
            [ \"$line\" = end ] && exit 5
        done";
    fs::write(alice.dir().join("script"), script).unwrap();
    let mut terminal = Terminal::new(&alice, "bash --norc --noprofile -i");
    terminal.types("git claim run ae1c051 -t 1h -- bash script; echo code $?\n");
    terminal.shows("ready");
    // Each key comes once.
    terminal.types("\x03");
    terminal.shows("got 1");
    terminal.types("\x03");
    terminal.shows("got 2");
    terminal.types("hello\n");
    terminal.shows("read hello");
    // Ctrl-Z stops all of it, and the shell has the terminal.
    let command = traces.pid("command");
    terminal.types("\x1a");
    eventually("the stop", || is_stopped(command));
    terminal.types("echo shell\n");
    terminal.shows("shell");
    terminal.types("fg\n");
    eventually("the command", || !is_stopped(command));
    terminal.types("again\n");
    terminal.shows("read again");
    terminal.types("end\n");
    terminal.shows("read end");
    terminal.types("echo after\n");
    terminal.shows("after");
    assert!(holders(&alice).is_empty());
}

#[test]
fn a_terminal_that_goes_away_ends_the_command_as_ever() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let traces = Traces::of(&alice);
    let mut terminal = Terminal::new(&alice, "bash --norc --noprofile -i");
    terminal.types("git claim run ae1c051 -t 1h -- sh -c 'echo $$ >traces/command; sleep 1000'\n");
    traces.pid("command");
    drop(terminal);
    eventually("the end", || traces.is_gone("command"));
    eventually("the release", || holders(&alice).is_empty());
}

/// The loop that the README shows, with work that closes its issue.
#[test]
fn the_readmes_loop_works_until_nothing_is_left() {
    let readme = fs::read_to_string(programs::source().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("<!-- worker -->\n```sh\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    let forge = Forge::new();
    let alice = forge.client("alice");
    let work = alice.dir().join("work-on-it");
    let text = "#!/bin/sh
        set -e
        name=refs/issues/$GIT_CLAIM_ISSUE
        git fetch -q origin $name
        tree=$(git rev-parse FETCH_HEAD^{tree})
        closed=$(git commit-tree $tree -p FETCH_HEAD -m Close -m 'State: closed')
        git push -q origin $closed:$name
        echo $GIT_CLAIM_ISSUE >>done";
    fs::write(&work, text).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = alice.person().std_command("sh", alice.dir());
    command.args(["-c", script]).process_group(0);
    let mut worker = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(worker.stderr.take().unwrap()).lines();
    let is_nothing_left = |line: &str| line.contains("nothing left to take");
    assert!(said.any(|line| is_nothing_left(&line.unwrap())));
    kill_process_group(pid(worker.id()), Signal::KILL).unwrap();
    worker.wait().unwrap();
    let done = fs::read_to_string(alice.dir().join("done")).unwrap();
    let mut done: Vec<&str> = done.lines().collect();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 5);
    assert!(holders(&alice).is_empty());
}

#[test]
fn run_next_in_a_loop_is_a_worker() {
    let forge = Forge::new();
    let done = forge.dir().join("done");
    let workers: Vec<Client> = (0..3).map(|_| forge.client("alice")).collect();
    let script = format!(
        "while git claim run --next -t 30s -- sh -c 'echo $GIT_CLAIM_ISSUE >>{done}; \
         git claim run --keep $GIT_CLAIM_ISSUE -- true; test $? = 104'; do
             [ $(wc -l <{done}) -ge 20 ] && exit 0
         done",
        done = done.display()
    );
    std::thread::scope(|scope| {
        for worker in &workers {
            scope.spawn(|| {
                let mut command = worker.command("sh");
                command.args(["-c", &script]).assert().success();
            });
        }
    });
    assert!(fs::read_to_string(&done).unwrap().lines().count() >= 20);
    assert!(holders(&workers[0]).is_empty());
}

/// Nothing of ours is left where a run has ended.
#[test]
fn nothing_is_left_but_the_lock() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim run ae1c051 -- true");
    let folder: &Path = &alice.dir().join(".git/claims/origin");
    let names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [format!("{}.run", crate::support::issue::CRASH)]);
}

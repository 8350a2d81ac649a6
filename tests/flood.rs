//! Floods: more connections, more requests and more bytes than anybody needs, and
//! clients that do not read, do not go on or do not stop. Whatever one does costs
//! the server a bounded amount of memory, and nobody else their answer.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};

use rustix::io::{ioctl_fionbio, ioctl_fionread};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::client::{Client, stderr};
use crate::support::clock::Clock;
use crate::support::forge::{Forge, REPO, RIGHTS, git};
use crate::support::serving::Connection;
use crate::support::way::Way;
use crate::support::{eventually, issue, programs};

/// What a server process may take beyond what it took for its first requests, in
/// KiB.
const MORE: u64 = 4 * 1024;

/// More bytes than all pipes and buffers on the way to a server hold, by far.
const MANY: usize = 16 * 1024 * 1024;

/// The most memory that a process has had until now, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().trim().strip_suffix(" kB").unwrap();
    number.parse().unwrap()
}

/// The processes among `pids` that are the server's program.
fn our_servers(pids: Vec<u32>) -> Vec<u32> {
    let is_ours = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // The kernel keeps 15 bytes of it.
        name.trim_end() == "git-claim-serve"
    };
    pids.into_iter().filter(is_ours).collect()
}

/// The server on this machine, without sshd, as it serves alice.
fn server(forge: &Forge, request: &str) -> Command {
    let mut server = Command::new(programs::server());
    server
        .args(["openssh", "--as", "alice", "--config"])
        .arg(forge.config())
        .env(
            "SSH_ORIGINAL_COMMAND",
            format!("collab-lease {request} {REPO}"),
        );
    server
}

/// A forge on which every valid id is an issue.
fn of_any_issue(settings: &str) -> Forge {
    let forge = Forge::with_settings(settings);
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.tracker", "none"]);
    forge
}

/// So many requests, mostly looks.
fn requests(ids: std::ops::Range<u32>) -> String {
    ids.map(|id| {
        let request = match id % 10 {
            0 => json!({"id":id,"op":"renew","issue":issue::CRASH,"ttl":300,"session":"s"}),
            1 => json!({"id":id,"op":"list","ready":true}),
            2 => json!({"id":id,"op":"log"}),
            3 => json!({"id":id,"op":"verify","issue":issue::CRASH,"token":1}),
            4 => json!({"id":id,"op":"acquire","issue":"none-such"}),
            5 => json!({"id":id,"op":"nonsense"}),
            _ => json!({"id":id,"op":"show","issue":"ae1c"}),
        };
        format!("{request}\n")
    })
    .collect()
}

#[test]
fn ten_thousand_requests_on_one_connection_take_no_more_memory_than_some() {
    let forge = Forge::new();
    let mut connection = Connection::open(&forge.client("alice"));
    let take = json!({"id":0,"op":"acquire","issue":"ae1c","ttl":300,"session":"s"});
    assert_eq!(connection.ask(&take)["exit"], 0);
    let &[server] = our_servers(forge.servers()).as_slice() else {
        panic!("one server");
    };
    let mut peaks = Vec::new();
    for ids in [1..200, 200..10_000] {
        // All of them at once: it is read from as fast as it answers.
        connection.send(&requests(ids.clone()));
        for id in ids {
            assert_eq!(connection.next()["id"], id);
        }
        peaks.push(peak(server));
    }
    assert!(peaks[1] < peaks[0] + MORE, "{peaks:?}");
    assert_eq!(connection.end(), 0);
}

/// Twenty logins with the ten sessions each that sshd allows.
#[test]
fn two_hundred_connections_at_once_are_all_served() {
    let forge = of_any_issue("\twrite = *\n");
    let people: Vec<Client> = (0..20)
        .map(|n| forge.client(&format!("worker{n}")))
        .collect();
    let mut connections: Vec<Connection> = people
        .iter()
        .flat_map(|client| (0..10).map(|_| client.std_ssh(format!("collab-lease serve {REPO}"))))
        .map(Connection::of)
        .collect();
    for (n, connection) in connections.iter_mut().enumerate() {
        let take = json!({"id":n,"op":"acquire","issue":format!("i-{n}"),"ttl":3600});
        connection.send(&format!("{take}\n"));
    }
    for (n, connection) in connections.iter().enumerate() {
        let reply = connection.next();
        assert_eq!((&reply["id"], &reply["exit"]), (&json!(n), &json!(0)));
    }
    let servers = our_servers(forge.servers());
    assert_eq!(servers.len(), connections.len());
    let peaks = || servers.iter().map(|server| peak(*server));
    assert!(peaks().max() < peaks().min().map(|least| least + MORE));
    // Somebody who comes now, and sees all of them.
    let alice = forge.client("alice");
    alice.ok("git claim one-more");
    let claims = alice.json("git claims", 0);
    assert_eq!(claims["leases"].as_array().unwrap().len(), 201);
    for connection in connections {
        assert_eq!(connection.end(), 0);
    }
    assert_eq!(forge.ledger().integrity(), "ok");
}

/// sshd turns away whom it can't take on (`MaxStartups`); who was turned away tries
/// again.
#[test]
fn forty_clients_at_once_all_get_their_answer() {
    let forge = of_any_issue("\twrite = *\n");
    let clients: Vec<Client> = (0..40)
        .map(|n| forge.client(&format!("worker{n}")))
        .collect();
    for client in &clients {
        client.ok("git config claim.controlPersist no");
        client.ok("git config claim.timeout 100s");
    }
    let barrier = Arc::new(Barrier::new(clients.len()));
    let threads: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(n, client)| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                client.ok(&format!("git claim i-{n} --ttl 1h"));
                let list = client.json("git claims --mine", 0);
                assert_eq!(list["leases"][0]["issue"], format!("i-{n}"));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let claims = forge.client("alice").json("git claims", 0);
    assert_eq!(claims["leases"].as_array().unwrap().len(), 40);
}

/// Three times as many as sshd takes on without turning some away: connections
/// that were begun and say nothing.
#[test]
fn connections_that_never_log_in_keep_nobody_out() {
    let forge = Forge::new();
    let silent: Vec<TcpStream> = (0..30)
        .map(|_| TcpStream::connect(("127.0.0.1", forge.port())).unwrap())
        .collect();
    let alice = forge.client("alice");
    alice.ok("git config claim.controlPersist no");
    alice.ok("git config claim.timeout 100s");
    for line in ["git claim ae1c --ttl 1h", "git claims", "git unclaim ae1c"] {
        alice.ok(line);
    }
    drop(silent);
}

/// Clients that stand still: half a request, or nothing, and no end.
#[test]
fn connections_that_stand_still_are_in_nobodys_way() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let bob = forge.client("bob");
    let mut still = Vec::new();
    for last in ["", "{\"op\":\"acquire\",\"iss", "{\"op\":\"watch\"}\n"] {
        for _ in 0..3 {
            let mut connection =
                Connection::of(alice.std_ssh(format!("collab-lease serve {REPO}")));
            let take = json!({"op":"acquire","issue":"862b","session":"s"});
            assert_eq!(connection.ask(&take)["exit"], 0);
            connection.send(last);
            stop(connection.id());
            still.push(connection);
        }
    }
    let servers = our_servers(forge.servers());
    assert_eq!(servers.len(), still.len());
    for _ in 0..10 {
        bob.ok("git claim ae1c --ttl 1h");
        bob.ok("git unclaim ae1c");
    }
    bob.run("git claim 862b").code(4);
    for connection in &mut still {
        connection.kill();
    }
    eventually("the end of their servers", || {
        our_servers(forge.servers()).is_empty()
    });
    assert_eq!(forge.ledger().integrity(), "ok");
}

/// No byte gets through, and no end: whoever asks is told in time, and is in
/// nobody's way.
#[test]
fn a_connection_that_goes_dead_is_given_up_in_time() {
    let forge = Forge::new();
    let way = Way::to(&forge);
    let alice = way.worktree(&forge, &forge.person("alice"));
    alice.ok("git claim 862b --ttl 1h");
    alice.ok("git config claim.timeout 2s");
    assert_eq!(way.go_dead(), 1);
    let told = alice.run("git claim ae1c --ttl 1h").code(6);
    let said = stderr(&told);
    assert!(said.contains("no answer from far within 2s"), "{said}");
    let bob = forge.client("bob");
    bob.ok("git claim ae1c --ttl 1h");
    bob.run("git claim 862b").code(4);
    // The next call does not try what is dead.
    alice.ok("git config claim.timeout 100s");
    alice.ok("git unclaim 862b");
    alice.run("git claim ae1c").code(4);
    assert_eq!(forge.logins(), 3);
}

/// Half a request, nothing, or a watch, and then neither a byte nor an end: with
/// sshd's `ClientAliveInterval` their servers end.
#[test]
fn a_client_that_is_cut_off_is_noticed_by_sshd() {
    let forge = Forge::with_sshd_settings(RIGHTS, "ClientAliveInterval 2\nClientAliveCountMax 1\n");
    let way = Way::to(&forge);
    let alice = way.worktree(&forge, &forge.person("alice"));
    let mut cut_off = Vec::new();
    for last in ["", "{\"op\":\"acquire\",\"iss", "{\"op\":\"watch\"}\n"] {
        let mut connection = serving(&alice);
        let take = json!({"op":"acquire","issue":"862b","session":"s"});
        assert_eq!(connection.ask(&take)["exit"], 0);
        connection.send(last);
        cut_off.push(connection);
    }
    assert_eq!(cut_off[2].next()["reply"]["status"], "watching");
    assert_eq!(our_servers(forge.servers()).len(), 3);
    assert_eq!(way.go_dead(), 3);
    forge.client("bob").run("git claim 862b").code(4);
    eventually("the end of their servers", || {
        our_servers(forge.servers()).is_empty()
    });
    for connection in &mut cut_off {
        connection.kill();
    }
}

/// Whatever sshd does, ten minutes without a request are the end.
#[test]
fn a_server_that_is_asked_nothing_ends_though_its_client_is_cut_off() {
    let forge = Forge::new();
    let clock = Clock::new(forge.dir());
    let command = format!(
        "env {} {} openssh --config {} --as alice",
        clock.assignments(),
        programs::server().display(),
        forge.config().display()
    );
    let person = forge.person_behind("alice", &format!("restrict,command=\"{command}\""));
    let way = Way::to(&forge);
    let mut connection = serving(&way.worktree(&forge, &person));
    assert_eq!(connection.ask(&json!({"op":"list"}))["exit"], 0);
    assert_eq!(way.go_dead(), 1);
    assert_eq!(our_servers(forge.servers()).len(), 1);
    clock.turn(3_600);
    eventually("the end of its server", || {
        our_servers(forge.servers()).is_empty()
    });
    connection.kill();
}

/// A login of its own, at whose other end `serve` is, on the remote's host.
fn serving(client: &Client) -> Connection {
    let mut ssh = client.person().std_command("ssh", client.dir());
    ssh.args(["far", &format!("collab-lease serve {REPO}")]);
    Connection::of(ssh)
}

fn stop(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
}

/// A server whose client sends, and never reads a reply.
struct Deaf {
    server: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// How many bytes it was sent.
    sent: usize,
}

impl Deaf {
    fn start(forge: &Forge) -> Deaf {
        let mut server = server(forge, "serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = server.stdin.take().unwrap();
        ioctl_fionbio(&input, true).unwrap();
        Deaf {
            input,
            output: server.stdout.take().unwrap(),
            server,
            sent: 0,
        }
    }

    /// Sends until the server takes no more and has nothing more to say.
    fn fill_with(&mut self, text: &str) {
        let mut unchanged = 0;
        let mut waiting = 0;
        while unchanged < 50 {
            match self.input.write(text.as_bytes()) {
                Ok(bytes) => {
                    self.sent += bytes;
                    unchanged = 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let now = ioctl_fionread(&self.output).unwrap();
                    unchanged = if now == waiting { unchanged + 1 } else { 0 };
                    waiting = now;
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
            assert!(self.sent < MANY, "it is read from without an end");
        }
    }
}

#[test]
fn clients_that_never_read_cost_a_bounded_amount_and_nobody_waits() {
    let forge = Forge::without_sshd("\twrite = *\n");
    let mut other = Connection::of(server(&forge, "serve"));
    let take = json!({"op":"acquire","issue":"ae1c","session":"s"});
    assert_eq!(other.ask(&take)["exit"], 0);
    let lone = peak(other.id());

    let mut deaf: Vec<Deaf> = (0..4).map(|_| Deaf::start(&forge)).collect();
    for (n, deaf) in deaf.iter_mut().enumerate() {
        // Of some who ask on and on, and of some who only want to be told.
        if n % 2 == 0 {
            deaf.fill_with(&format!("{}\n", json!({"op":"log"})));
        } else {
            deaf.input.write_all(b"{\"op\":\"watch\"}\n").unwrap();
        }
    }
    // More changes than the pipe of one who is told of them holds.
    let renew = json!({"op":"renew","issue":issue::CRASH,"ttl":300,"session":"s"});
    for _ in 0..300 {
        assert_eq!(other.ask(&renew)["exit"], 0);
    }
    for deaf in &deaf {
        assert!(peak(deaf.server.id()) < lone + MORE, "{}", deaf.server.id());
    }
    for deaf in deaf {
        let Deaf {
            mut server,
            input,
            output,
            ..
        } = deaf;
        drop((input, output));
        server.wait().unwrap();
    }
    assert_eq!(other.end(), 0);
}

/// How many bytes a process has written until now.
fn written(pid: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let count = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    count.unwrap().parse().unwrap()
}

/// The issues of a reply to `list`.
fn listed(reply: &Value) -> Vec<&str> {
    let leases = reply["reply"]["leases"].as_array().unwrap();
    let issues = leases.iter().map(|lease| lease["issue"].as_str());
    issues.map(Option::unwrap).collect()
}

/// Thousands of requests at once, of which some have large answers, and an answer
/// is read a piece at a time, with something else done in between.
#[test]
fn a_client_that_reads_slowly_gets_every_answer_and_is_in_nobodys_way() {
    const REQUESTS: u64 = 2_000;
    let forge = of_any_issue("\twrite = *\n");
    let elsewhere = "acme/elsewhere.git";
    git(
        &forge.add_repo(elsewhere),
        &["config", "claim.tracker", "none"],
    );
    let alice = forge.client("alice");
    alice.ok("git claim issue-1 --ttl 1h");
    forge.ledger().repeat("issue-1", 1_000);
    let mut ssh = alice
        .std_ssh(format!("collab-lease serve {REPO}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (ssh.stdin.take().unwrap(), ssh.stdout.take().unwrap());
    let mut output = BufReader::with_capacity(1, output);
    let mut all = String::new();
    input.write_all(b"{\"op\":\"list\"}\n").unwrap();
    output.read_line(&mut all).unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(listed(&all).len(), 1_000);
    let &[server] = our_servers(forge.servers()).as_slice() else {
        panic!("one server");
    };
    let (lone, before) = (peak(server), written(server));

    let asking = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            let request = match id % 200 {
                0 => json!({"id":id,"op":"list"}),
                n => json!({"id":id,"op":"show","issue":format!("issue-{n}")}),
            };
            input.write_all(format!("{request}\n").as_bytes()).unwrap();
        }
        input
    });
    // What it writes before anything is read fills the way, and no more.
    let seen = Cell::new(before);
    eventually("a server that waits for its reader", || {
        let last = seen.replace(written(server));
        last > before && seen.get() == last
    });
    let unread = seen.get() - before;

    let mut other = forge.client("bob").person().std_command("ssh", alice.dir());
    other.args(["forge", &format!("collab-lease serve {elsewhere}")]);
    let mut other = Connection::of(other);
    let mut output = output.into_inner();
    let (mut read, mut text, mut answers) = (0, Vec::new(), 0);
    let mut sizes = [1, 7, 300, 64 * 1024].into_iter().cycle();
    while answers < REQUESTS {
        let mut piece = vec![0; sizes.next().unwrap()];
        if piece.len() == 1 {
            let take = json!({"op":"acquire","issue":"one","session":"s"});
            assert_eq!(other.ask(&take)["exit"], 0);
        }
        let got = output.read(&mut piece).unwrap();
        assert_ne!(got, 0, "{answers} answers");
        read += got as u64;
        text.extend_from_slice(&piece[..got]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let answer: Value = serde_json::from_slice(&line).unwrap();
            assert_eq!(
                (&answer["id"], &answer["exit"]),
                (&json!(answers), &json!(0))
            );
            match answers % 200 {
                0 => assert_eq!(listed(&answer), listed(&all)),
                n => assert_eq!(answer["reply"]["issue"], format!("issue-{n}")),
            }
            answers += 1;
        }
    }
    assert!(text.is_empty());
    assert!(unread < read, "{unread} of {read} bytes");
    assert!(peak(server) < lone + MORE, "{lone}, {}", peak(server));
    drop(asking.join().unwrap());
    assert!(ssh.wait().unwrap().success());
    assert_eq!(other.end(), 0);
}

#[test]
fn a_line_without_an_end_is_not_read_for_ever() {
    let forge = Forge::without_sshd("\twrite = *\n");
    let mut lone = Connection::of(server(&forge, "serve"));
    assert_eq!(lone.ask(&json!({"op":"list"}))["exit"], 0);
    let mut endless = server(&forge, "serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = endless.stdin.take().unwrap();
    let piece = [b'x'; 4 * 1024];
    for _ in 0..15 {
        input.write_all(&piece).unwrap();
    }
    // All of these 60 KiB have been read once the pipe is empty.
    eventually("the reading", || ioctl_fionread(&input).unwrap() == 0);
    assert!(peak(endless.id()) < peak(lone.id()) + MORE);
    let sent = (0..MANY / piece.len()).find(|_| input.write_all(&piece).is_err());
    assert!(sent.is_some(), "it is read from without an end");
    let output = endless.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["error"], "a line is longer than 65536 bytes");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lone.end(), 0);
}

/// What a request does not read is no reason to wait for its end.
#[test]
fn a_request_that_reads_nothing_ends_whatever_is_sent_to_it() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let mut ssh = alice
        .std_ssh(format!("collab-lease list {REPO}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = ssh.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || while input.write_all(&[b'y'; 4 * 1024]).is_ok() {});
    let output = ssh.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let reply: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reply["leases"], json!([]));
    feeder.join().unwrap();
}

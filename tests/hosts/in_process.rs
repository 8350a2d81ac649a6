//! A forge that loads the plugin into its own process: the example
//! `in_process`, with the stock `ssh` and git as its clients.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::client::{Client, Person, stderr};
use crate::support::forge::{Forge, REPO, keygen, url};
use crate::support::{issue, programs};

const RIGHTS: &str = "[claim]\n\tread = dave\n\twrite = alice\n\twrite = bob\n";

/// The running example.
struct InProcess {
    forge: Forge,
    process: Child,
}

impl InProcess {
    /// The forge, with a worktree of [`REPO`] for each of `names`.
    fn start(names: &[&str]) -> (InProcess, Vec<Client>) {
        let forge = Forge::without_sshd(RIGHTS);
        let people: Vec<Person> = names
            .iter()
            .map(|name| Person::new(name, forge.dir().join(name)))
            .collect();
        let plugin = programs::plugin();
        let mut settings = format!("\tplugin = {}\n{RIGHTS}", plugin.display());
        for (name, person) in names.iter().zip(&people) {
            person.make_home();
            person.make_key();
            let key = fingerprint(&person.key());
            settings.push_str(&format!("[claimUser \"{name}\"]\n\tkey = {key}\n"));
        }
        forge.configure(&settings);
        let host_key = forge.dir().join("host_key");
        keygen(&host_key, "forge");

        let program = programs::folder().join("examples/in_process");
        assert!(
            program.is_file(),
            "{} is missing; run `make test`",
            program.display()
        );
        let mut process = Command::new(program)
            .arg(forge.config())
            .arg(&host_key)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let (_, port) = line.trim_end().rsplit_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        let known = forge.dir().join("known_hosts");
        let public = fs::read_to_string(forge.dir().join("host_key.pub")).unwrap();
        fs::write(&known, format!("[127.0.0.1]:{port} {public}")).unwrap();
        let clients = people
            .iter()
            .map(|person| {
                person.knows_host("forge", port, &known);
                person.worktree(&url(REPO))
            })
            .collect();
        (InProcess { forge, process }, clients)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn fingerprint(key: &Path) -> String {
    let output = Command::new(programs::need("ssh-keygen"))
        .arg("-lf")
        .arg(key)
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn one_process_serves_claims_and_git() {
    let (_forge, clients) = InProcess::start(&["alice", "bob", "dave"]);
    let [alice, bob, dave] = clients.as_slice() else {
        panic!("three clients");
    };
    let whoami = alice.json("git claim whoami", 0);
    assert_eq!(whoami["name"], "alice");
    assert_eq!(whoami["key"], fingerprint(&alice.person().key()).as_str());
    alice.ok("git claim ae1c --ttl 1h");
    assert_eq!(bob.json("git claim ae1c", 4)["holder"], "alice");
    assert_eq!(
        dave.json("git claims", 0)["leases"][0]["issue"],
        issue::CRASH
    );

    // It keeps no connection open for many requests, and is asked call by call.
    let assert = alice.run("git claim renew -v ae1c ae1c --ttl 2h").code(0);
    let said = stderr(&assert);
    assert!(said.contains("serves one request a call"), "{said}");
    let mut waiter = bob.person().std_command("git-claim", bob.dir());
    let mut waiter = waiter.args(["ae1c", "--wait"]).spawn().unwrap();
    alice.ok("git unclaim ae1c");
    assert!(waiter.wait().unwrap().success());
    bob.ok("git unclaim ae1c");
    alice.ok("git claim ae1c --ttl 1h");

    alice.ok("git fetch -q origin");
    alice.ok("git checkout -q -b work origin/main");
    alice.ok("git push -q origin work");
    bob.ok("git fetch -q origin work");
    dave.ok("git fetch -q origin");
    let refused = dave.run("git push -q origin origin/main:refs/heads/dave");
    assert!(stderr(&refused.code(128)).contains("repository not found"));
}

#[test]
fn what_is_not_there_and_who_may_not_see_it_are_one_answer() {
    let (_forge, clients) = InProcess::start(&["alice", "eve"]);
    let [alice, eve] = clients.as_slice() else {
        panic!("two clients");
    };
    let unknown = stderr(&alice.verb("list acme/nowhere.git").code(1));
    assert_eq!(unknown, "error: repository not found\n");
    assert_eq!(stderr(&eve.verb("list acme/app.git").code(1)), unknown);
    let git = eve.ssh("git-upload-pack 'acme/app.git'").assert().code(1);
    assert_eq!(stderr(&git), unknown);
    for command in ["sh -c id", "git-upload-pack", "git-shell x", ""] {
        let mut ssh = alice.ssh(command);
        assert!(!ssh.assert().get_output().status.success(), "{command}");
    }
}

#[test]
fn a_key_that_nobody_owns_does_not_log_in() {
    let (forge, clients) = InProcess::start(&["alice"]);
    let stranger = forge.forge.dir().join("stranger");
    keygen(&stranger, "stranger");
    let mut ssh = clients[0].command("ssh");
    ssh.args(["-o", "BatchMode=yes", "-o", "IdentityFile=none", "-i"])
        .arg(&stranger);
    // The person's own key is named in their configuration.
    fs::remove_file(clients[0].person().key()).unwrap();
    let refused = ssh.args(["forge", "collab-lease whoami"]).assert();
    assert!(stderr(&refused.code(255)).contains("Permission denied"));
}

#[test]
fn a_key_that_is_only_offered_names_nobody() {
    let (_forge, clients) = InProcess::start(&["alice", "bob"]);
    let [alice, bob] = clients.as_slice() else {
        panic!("two clients");
    };
    // bob's public key, which anybody may have, and nothing to sign with.
    let offered = alice.dir().join("offered");
    let public = bob.person().home().join("key.pub");
    fs::copy(public, alice.dir().join("offered.pub")).unwrap();
    let mut ssh = alice.command("ssh");
    ssh.args(["-v", "-o"])
        .arg(format!("IdentityFile={}", offered.display()));
    let assert = ssh.args(["forge", "collab-lease whoami"]).assert();
    let trace = stderr(&assert);
    assert!(trace.contains("Server accepts key: "), "{trace}");
    let reply = assert.success().get_output().stdout.clone();
    let reply: serde_json::Value = serde_json::from_slice(&reply).unwrap();
    assert_eq!(reply["name"], "alice");
    let accepted = trace.matches("Server accepts key: ").count();
    assert_eq!(accepted, 2, "bob's key was offered first: {trace}");
}

#[test]
fn a_hundred_requests_at_once_have_one_winner() {
    const EACH: usize = 50;
    let (forge, clients) = InProcess::start(&["alice", "bob"]);
    // The connections are there before the race begins.
    for client in &clients {
        client.verb("whoami").success();
    }
    let answers: Vec<(i32, serde_json::Value)> = std::thread::scope(|scope| {
        let racers: Vec<_> = clients
            .iter()
            .flat_map(|client| (0..EACH).map(move |n| (client, n)))
            .map(|(client, n)| {
                scope.spawn(move || {
                    let line = format!("acquire acme/app.git ae1c --ttl 600 --session s{n}");
                    let assert = client.verb(&line);
                    let output = assert.get_output();
                    let reply = serde_json::from_slice(&output.stdout)
                        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&assert)));
                    (output.status.code().unwrap(), reply)
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    let won: Vec<_> = answers.iter().filter(|(exit, _)| *exit == 0).collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    let winner = &won[0].1["holder"];
    let lost = answers
        .iter()
        .filter(|(exit, reply)| *exit == 4 && reply["holder"] == *winner && reply["token"] == 1);
    assert_eq!(lost.count(), 2 * EACH - 1);
    assert_eq!(forge.forge.ledger().token(issue::CRASH), 1);
}

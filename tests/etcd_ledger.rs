//! The ledger on etcd as administrators set it up, by the README's own words.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assert_cmd::assert::Assert;

use crate::hosts::readme;
use crate::support::client::{stderr, stdout};
use crate::support::forge::{Forge, RIGHTS};
use crate::support::{eventually, programs};

/// Nodes that end with the test.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn sh(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-euc", script])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn server(forge: &Forge, words: &[&str]) -> Assert {
    let (kind, rest) = words.split_first().unwrap();
    assert_cmd::Command::new(programs::server())
        .args([*kind, "--config"])
        .arg(forge.config())
        .args(rest)
        .assert()
}

#[test]
fn three_nodes_by_the_readme_serve_every_front_end() {
    let blocks = readme::commands("etcd");
    let [certificates, node, init] = &blocks[..] else {
        panic!("{blocks:?}");
    };
    // Addresses of this test's own on loopback.
    let id = std::process::id();
    let net = format!("127.{}.{}.", id / 250 % 250 + 1, id % 250 + 1);
    let here = |text: &str| text.replace("10.0.0.", &net);
    let forge = Forge::new();
    let dir = forge.dir().join("etcd");
    fs::create_dir(&dir).unwrap();
    // Nodes on loopback come to each other from another address than their own.
    let certificates = here(certificates).replace("IP:$name", "IP:$name, IP:127.0.0.1");
    let made = sh(&dir, &certificates).status().unwrap();
    assert!(made.success());
    let start = here(node).replace("etcd --name", "exec setpriv --pdeathsig KILL etcd --name");
    let mut nodes = Nodes(
        (1..=3)
            .map(|number| {
                let node = format!("{net}{number}");
                sh(&dir, &start).env("node", node).spawn().unwrap()
            })
            .collect(),
    );
    let place = here("etcd://10.0.0.1,10.0.0.2,10.0.0.3/claims");
    let with = |files: &[(&str, &str)]| {
        let mut settings = format!("{RIGHTS}\tledger = {place}\n");
        for (key, file) in files {
            settings.push_str(&format!("\t{key} = {}\n", dir.join(file).display()));
        }
        forge.configure(&settings);
    };
    let files = [
        ("etcdCa", "ca.pem"),
        ("etcdCert", "front-end.pem"),
        ("etcdKey", "front-end.key"),
    ];
    with(&files);
    assert_eq!(init.trim(), "git-claim-server init");
    eventually("the cluster takes a ledger", || {
        server(&forge, &["init"]).try_success().is_ok()
    });
    let again = server(&forge, &["init"]).code(6);
    assert!(stderr(&again).contains("is there already"));
    let checked = stdout(&server(&forge, &["check"]));
    let shown = here("ledger etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/claims");
    assert!(checked.contains(&shown), "{checked}");

    let (alice, bob) = (forge.client("alice"), forge.client("bob"));
    alice.ok("git claim ae1c051 --ttl 1h");
    assert_eq!(bob.json("git claims", 0)["leases"][0]["holder"], "alice");
    assert_eq!(bob.json("git claim ae1c051", 4)["reason"], "held");
    nodes.0[0].kill().unwrap();
    alice.ok("git claim renew ae1c051 --ttl 2h");

    // A certificate is needed, and its key is nobody else's to read.
    with(&files[..1]);
    bob.run("git claims").code(6);
    with(&files);
    let key = dir.join("front-end.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = server(&forge, &["backup", "/tmp/never"]).code(6);
    assert!(stderr(&refused).contains("make it 0600"), "{refused}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();

    let file = forge.dir().join("moved.db");
    let file = file.to_str().unwrap();
    server(&forge, &["migrate", &place, file]).success();
    let gone = server(&forge, &["check"]).failure();
    assert!(stdout(&gone).contains("has moved to"), "{gone}");
    forge.configure(&format!("{RIGHTS}\tledger = {file}\n"));
    let list = bob.json("git claims", 0);
    assert_eq!(list["leases"][0]["holder"], "alice", "{list}");
    alice.ok("git unclaim ae1c051");
    bob.ok("git claim ae1c051");
    assert_eq!(bob.json("git claims", 0)["leases"][0]["token"], 2);
}

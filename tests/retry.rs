//! A claim whose connection breaks, at whatever moment, is had once.

use std::fs;

use serde_json::Value;

use crate::support::client::{Client, stdout};
use crate::support::forge::{Forge, REPO, url};
use crate::support::programs;

/// What becomes of the first call of ssh.
const BREAKS: [(&str, &str); 4] = [
    ("before anything was sent", "kill -9 $$"),
    (
        "while the server works",
        "ssh \"$@\" & sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' '); kill -9 $! $$",
    ),
    (
        "before the reply came",
        "ssh \"$@\" >\"$0.reply\"; kill -9 $$",
    ),
    (
        "behind half of the reply",
        "ssh \"$@\" | head -c 20; kill -9 $$",
    ),
];

/// A worktree whose first call of ssh goes wrong, and how many there were.
fn breaking(forge: &Forge, how: &str) -> Client {
    let client = forge.client("alice");
    let person = client.person();
    let calls = person.home().join("calls");
    let _ = fs::remove_file(&calls);
    let calls = calls.display();
    person.make_program(
        "ssh-breaking",
        &format!("echo x >>{calls}\n[ $(wc -l <{calls}) = 1 ] || exec ssh \"$@\"\n{how}"),
    );
    client.ok("git config core.sshCommand ssh-breaking");
    client.ok("git config ssh.variant ssh");
    client
}

fn calls(client: &Client) -> usize {
    let calls = fs::read_to_string(client.person().home().join("calls")).unwrap();
    calls.lines().count()
}

fn live(client: &Client) -> Vec<Value> {
    let list = client.json("git claims", 0);
    list["leases"].as_array().unwrap().clone()
}

#[test]
fn a_broken_connection_is_made_again_and_the_claim_is_one() {
    for (moment, how) in BREAKS {
        for line in ["git claim ae1c051 --ttl 1h", "git claim --next --ttl 1h"] {
            let forge = Forge::new();
            let client = breaking(&forge, how);
            let reply = client.json(line, 0);
            assert_eq!(reply["status"], "acquired", "{moment}: {reply}");
            assert_eq!(reply["token"], 1, "{moment}: {reply}");
            assert_eq!(calls(&client), 2, "{moment}");
            let live = live(&client);
            assert_eq!(live.len(), 1, "{moment}: {live:?}");
            assert_eq!(live[0]["issue"], reply["issue"], "{moment}");
        }
    }
}

#[test]
fn it_is_asked_twice_and_no_more() {
    let forge = Forge::new();
    let client = breaking(&forge, "");
    client.person().make_program(
        "ssh-breaking",
        &format!(
            "echo x >>{}/calls\nkill -9 $$",
            client.person().home().display()
        ),
    );
    let text = stdout(&client.run("git claim --next").code(6));
    assert_eq!(text, "");
    assert_eq!(calls(&client), 2);
}

/// The same over a shared connection: the server ends sshd's process for it
/// behind its work.
#[test]
fn a_shared_connection_that_breaks_is_replaced() {
    let forge = Forge::new();
    let once = forge.dir().join("once");
    let script = forge.dir().join("breaking-server");
    let server = programs::server();
    fs::write(
        &script,
        format!(
            "#!/bin/sh\n\
             server() {{ {} openssh --config {} --as alice; }}\n\
             [ -e {once} ] && {{ server; exit; }}\n\
             : >{once}\n\
             server >/dev/null\n\
             kill -9 $PPID\n",
            server.display(),
            forge.config().display(),
            once = once.display(),
        ),
    )
    .unwrap();
    let command = format!("restrict,command=\"sh {}\"", script.display());
    let client = forge.person_behind("alice", &command).worktree(&url(REPO));
    let reply = client.json("git claim --next --ttl 1h", 0);
    assert_eq!(
        (&reply["status"], &reply["token"]),
        (&"acquired".into(), &1.into())
    );
    assert_eq!(live(&client).len(), 1);
    assert_eq!(forge.logins(), 2);
}

#[test]
fn nothing_left_to_take_is_3() {
    let forge = Forge::with_settings("[claim]\n\twrite = *\n");
    let alice = forge.client("alice");
    for _ in 0..5 {
        alice.ok("git claim --next --ttl 1h");
    }
    assert_eq!(
        stdout(&alice.run("git claim --next").code(3)),
        "nothing left to take\n"
    );
    assert_eq!(alice.json("git claim --next", 3)["status"], "none");
}

//! Forgejo and Gitea, contract-tested: a real sshd, the exact line that the
//! forge writes into authorized_keys, and a stub of its HTTP server that keeps
//! every request. Not run against a forge: none can be had where this is built.

use serde_json::{Value, json};

use super::forge_stub::{Answer, Stub};
use super::machine::{Machine, NOT_FOUND, Ran};

const INTERNAL: &str = "internal.secret.of-the-forge";
const API: &str = "0123456789abcdef0123456789abcdef01234567";

/// The forge's program, as far as the README and sshd run it.
const FORGEJO: &str = r##"#!/bin/sh
case $* in
*" generate-access-token "*) echo 0123456789abcdef0123456789abcdef01234567 ;;
*" user create "*) ;;
*" regenerate keys")
    template=$(sed -n 's/^SSH_AUTHORIZED_KEYS_COMMAND_TEMPLATE = //p' /etc/forgejo/app.ini)
    for key in 7:alice 8:bob 9:robot; do
        command=$(echo "$template" | sed -e 's|{{.AppPath}}|/usr/local/bin/forgejo|' \
            -e 's|{{.CustomConf}}|/etc/forgejo/app.ini|' -e "s|{{.Key.ID}}|${key%:*}|")
        echo "# gitea public key"
        echo "command=\"$command\",no-port-forwarding,no-X11-forwarding,no-agent-forwarding,no-pty,no-user-rc,restrict $(cut -d' ' -f1,2 /srv/keys/${key#*:}.pub) user-${key%:*}"
    done >~/.ssh/authorized_keys ;;
*" serv "*)
    echo "args: $*"
    echo "asked: $SSH_ORIGINAL_COMMAND" ;;
*) exit 64 ;;
esac
"##;

/// A site with the README's section on it, and the stub where the forge would
/// listen. alice has key 7, bob 8, a deploy key is 9.
fn machine() -> Option<(Machine, Stub)> {
    let machine = Machine::new()?;
    for name in ["alice", "bob", "robot"] {
        machine.add_person(name);
        machine.add_worktree(name, "git@localhost:acme/app.git");
    }
    machine.ok(
        "root",
        "useradd --system --create-home --home-dir /srv/git --shell /bin/sh git
         usermod -p '*' git
         install -d -m 700 -o git -g git /srv/git/.ssh
         mkdir /etc/forgejo /srv/keys
         cp *.pub /srv/keys",
    );
    machine.write(
        "/etc/forgejo/app.ini",
        &format!("[server]\nHTTP_PORT = 3000\n[security]\nINTERNAL_TOKEN = {INTERNAL}"),
    );
    machine.write("/usr/local/bin/forgejo", FORGEJO);
    machine.ok("root", "chmod 755 /usr/local/bin/forgejo");
    machine.follow("forgejo");
    let stub = Stub::listen(machine.inside(), 3000);
    Some((machine, stub))
}

fn verb(machine: &Machine, who: &str, words: &str) -> Ran {
    machine.run(who, &format!("ssh git@localhost collab-lease {words}"))
}

/// The target of a question about a key in a repository.
fn serv(key: u32, repo: &str, mode: u32) -> String {
    format!("/api/internal/serv/command/{key}/{repo}?mode={mode}&verb=git-upload-pack")
}

/// The question as the stub must have got it.
fn internal(target: &str) -> String {
    format!(
        "GET {target} | authorization: Bearer {INTERNAL} | x-gitea-internal-auth: Bearer {INTERNAL}"
    )
}

fn public(target: &str, sudo: Option<&str>) -> String {
    let sudo = sudo
        .map(|name| format!(" | sudo: {name}"))
        .unwrap_or_default();
    format!("GET {target} | authorization: token {API}{sudo}")
}

/// What the forge says of somebody in `acme/app`, whose number is 12.
fn results(key: u32, user: &str) -> Value {
    json!({
        "IsWiki": false, "DeployKeyID": 0, "KeyID": key, "KeyName": "laptop",
        "UserName": user, "UserEmail": "x@example.org", "UserID": 3,
        "OwnerName": "acme", "RepoName": "app", "RepoID": 12,
    })
}

fn denied(status: u16) -> Answer {
    Answer::Json(status, json!({"err": "not authorized", "user_msg": "no"}))
}

fn issue(number: u32, state: &str) -> Value {
    json!({
        "id": 1000 + number, "number": number, "state": state, "title": "Crash", "body": "x",
        "pull_request": null, "repository": {"id": 12, "full_name": "acme/app"},
    })
}

/// Grants `key` everything up to `mode`.
fn grant(stub: &Stub, key: u32, user: &str, most: u32) {
    for mode in 1..=3 {
        let answer = if mode <= most {
            Answer::Json(200, results(key, user))
        } else {
            denied(401)
        };
        stub.answer(&serv(key, "acme/app", mode), answer);
    }
}

fn add_issue(stub: &Stub, number: u32, state: &str) {
    let target = format!("/api/v1/repos/acme/app/issues/{number}");
    stub.answer(&target, Answer::Json(200, issue(number, state)));
}

#[test]
fn claims_are_served_and_all_else_is_the_forges() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    grant(&stub, 7, "alice", 3);
    grant(&stub, 8, "bob", 2);
    add_issue(&stub, 4, "open");
    machine
        .run("alice", "cd work; git claim 4 --ttl 2h")
        .expect(0, "Crash");
    assert_eq!(
        stub.asked(),
        [
            internal(&serv(7, "acme/app", 2)),
            public("/api/v1/repos/acme/app/issues/4", Some("alice")),
        ]
    );
    machine
        .run("bob", "cd work; git claim 4")
        .expect(4, "claimed by alice");
    let reply = verb(&machine, "alice", "whoami acme/app")
        .expect(0, "")
        .json();
    for (key, value) in [
        ("name", "alice"),
        ("key", "forgejo-key:7"),
        ("access", "admin"),
        ("repo", "12"),
        ("tracker", "host"),
    ] {
        assert_eq!(reply[key], value, "{key}");
    }
    // Several requests share one connection.
    machine
        .run("alice", "cd work; git claim renew -v 4 4 --ttl 1h")
        .expect(0, "over the connection of the request before");
    stub.asked();
    // Ending another's claim takes administration.
    let force = "release acme/app 4 --force --reason x --expected-token 1";
    verb(&machine, "bob", force).expect(1, "");
    assert_eq!(
        stub.asked(),
        [
            internal(&serv(8, "acme/app", 3)),
            internal(&serv(8, "acme/app", 2))
        ]
    );
    verb(&machine, "alice", force).expect(0, "released");

    // Without a repository the key alone is asked about.
    stub.answer(
        "/api/internal/serv/none/7",
        Answer::Json(
            200,
            json!({"key": {"ID": 7}, "user": {"ID": 3, "Name": "alice"}}),
        ),
    );
    stub.asked();
    let reply = verb(&machine, "alice", "whoami").expect(0, "").json();
    assert_eq!(reply["name"], "alice");
    assert_eq!(stub.asked(), [internal("/api/internal/serv/none/7")]);

    for words in [
        "git-upload-pack 'acme/app.git'",
        "",
        "git-lfs-authenticate a b",
        "collab-leases",
    ] {
        let asked = machine.ok("bob", &format!("ssh git@localhost {}", quoted(words)));
        assert_eq!(
            asked,
            format!("args: --config=/etc/forgejo/app.ini serv key-8\nasked: {words}\n")
        );
    }
    assert_eq!(stub.asked(), [""; 0]);
}

/// `words` as one argument of a shell; none for no words.
fn quoted(words: &str) -> String {
    if words.is_empty() {
        return String::new();
    }
    format!("'{}'", words.replace('\'', "'\\''"))
}

#[test]
fn denials_look_like_a_missing_repository_and_failures_do_not() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    let mode = |mode| serv(8, "acme/app", mode);
    // A reader learns what is missing.
    grant(&stub, 8, "bob", 1);
    add_issue(&stub, 4, "open");
    verb(&machine, "bob", "acquire acme/app 4").expect(1, "bob may see the claims");
    assert_eq!(stub.asked(), [internal(&mode(2)), internal(&mode(1))]);
    verb(&machine, "bob", "list acme/app").expect(0, "leases");
    assert_eq!(stub.asked(), [internal(&mode(1))]);
    for status in [401, 403, 404] {
        for mode in 1..=3 {
            stub.answer(&serv(8, "acme/app", mode), denied(status));
        }
        for words in ["list acme/app", "acquire acme/app 4", "whoami acme/app"] {
            let ran = verb(&machine, "bob", words).expect(1, "");
            assert_eq!(ran.stderr(), NOT_FOUND, "{status} {words}");
        }
    }
    // What cannot be one is not even asked for, nor a wiki, which would be made.
    stub.asked();
    for repo in [
        "app",
        "acme/app/x",
        "acme/../app",
        "acme/app.wiki",
        "acme/app%2f..",
        "@/@",
    ] {
        let ran = verb(&machine, "bob", &format!("list {repo}")).expect(1, "");
        assert_eq!(ran.stderr(), NOT_FOUND, "{repo}");
    }
    assert_eq!(stub.asked(), [""; 0]);

    // Our token refused, the forge's own trouble, a proxy's page.
    let page = |status| Answer::Raw(status, String::new(), b"<html>no</html>".to_vec());
    for answer in [
        page(403),
        page(404),
        page(500),
        page(502),
        page(200),
        Answer::Json(500, json!({"err": "x"})),
    ] {
        stub.answer(&mode(1), answer);
        verb(&machine, "bob", "list acme/app").expect(6, "error: the forge could not say");
    }
}

#[test]
fn a_deploy_key_is_itself_and_not_the_owner() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    let mut deploy = results(9, "acme");
    deploy["DeployKeyID"] = 5.into();
    stub.answer(&serv(9, "acme/app", 2), Answer::Json(200, deploy.clone()));
    stub.answer(&serv(9, "acme/app", 1), Answer::Json(200, deploy));
    stub.answer(&serv(9, "acme/app", 3), denied(401));
    add_issue(&stub, 4, "open");
    verb(&machine, "robot", "acquire acme/app 4").expect(0, "\"holder\":\"deploy-key:5\"");
    assert_eq!(
        stub.asked(),
        [
            internal(&serv(9, "acme/app", 2)),
            public("/api/v1/repos/acme/app/issues/4", None),
        ]
    );
    let whoami = verb(&machine, "robot", "whoami acme/app")
        .expect(0, "")
        .json();
    assert_eq!(
        (&whoami["name"], &whoami["access"]),
        (&"deploy-key:5".into(), &"write".into())
    );
    // It is nobody's.
    stub.answer(
        "/api/internal/serv/none/9",
        Answer::Json(200, json!({"key": {"ID": 9}, "user": null})),
    );
    verb(&machine, "robot", "whoami").expect(1, "hint: name a repository");
    // Nobody else gets its name.
    let mut forged = results(8, "deploy-key:5");
    forged["UserName"] = "deploy-key:5".into();
    stub.answer(&serv(8, "acme/app", 2), Answer::Json(200, forged));
    verb(&machine, "bob", "acquire acme/app 4").expect(6, "could not say");
}

#[test]
fn issues_are_the_forges_and_a_rename_keeps_claims() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    grant(&stub, 7, "alice", 2);
    add_issue(&stub, 4, "open");
    add_issue(&stub, 5, "closed");
    let mut pull = issue(6, "open");
    pull["pull_request"] = json!({"merged": false});
    stub.answer("/api/v1/repos/acme/app/issues/6", Answer::Json(200, pull));
    stub.answer(
        "/api/v1/repos/acme/app/issues/7",
        Answer::Json(404, json!({"message": "x"})),
    );
    verb(&machine, "alice", "acquire acme/app 4").expect(0, "acquired");
    verb(&machine, "alice", "acquire acme/app 5").expect(1, "closed");
    for id in ["6", "7", "8"] {
        verb(&machine, "alice", &format!("acquire acme/app {id}"))
            .expect(1, &format!("there is no issue '{id}'"));
    }
    stub.asked();
    for id in ["04", "abc", "4.x"] {
        verb(&machine, "alice", &format!("acquire acme/app {id}")).expect(1, "there is no issue");
        assert_eq!(stub.asked(), [internal(&serv(7, "acme/app", 2))], "{id}");
    }
    // What cannot be read is neither missing nor open.
    for answer in [
        Answer::Json(500, json!({})),
        Answer::Json(401, json!({"message": "token"})),
        Answer::Json(403, json!({"message": "scope"})),
        Answer::Json(200, issue(4, "ajar")),
        Answer::Json(200, issue(5, "open")),
        Answer::Json(
            200,
            json!({"number": 9, "state": "open", "title": "t", "repository": {"id": 13}}),
        ),
        Answer::Raw(200, String::new(), b"{".to_vec()),
    ] {
        stub.answer("/api/v1/repos/acme/app/issues/9", answer);
        verb(&machine, "alice", "acquire acme/app 9").expect(6, "the tracker host cannot be read");
    }

    let mut renamed = results(7, "alice");
    renamed["OwnerName"] = "corp".into();
    renamed["RepoName"] = "product".into();
    stub.answer(&serv(7, "corp/product", 1), Answer::Json(200, renamed));
    stub.answer(
        "/api/v1/repos/corp/product/issues/4",
        Answer::Json(200, issue(4, "closed")),
    );
    let list = verb(&machine, "alice", "list corp/product")
        .expect(0, "")
        .json();
    assert_eq!(list["leases"][0]["issue"], "4");
    assert_eq!(list["leases"][0]["issue_state"], "closed");
}

#[test]
fn a_lying_forge_is_not_believed() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    add_issue(&stub, 4, "open");
    let lie = |key: &str, value: Value| {
        let mut results = results(8, "bob");
        results[key] = value;
        Answer::Json(200, results)
    };
    let elsewhere = Answer::Raw(
        302,
        format!(
            "Location: http://localhost:3000{}\r\n",
            serv(8, "acme/app", 1)
        ),
        Vec::new(),
    );
    stub.answer(
        &serv(8, "acme/app", 1),
        Answer::Json(200, results(8, "bob")),
    );
    for answer in [
        lie("KeyID", 7.into()),
        lie("RepoID", 0.into()),
        lie("RepoID", "12".into()),
        lie("IsWiki", true.into()),
        lie("UserName", "@devs".into()),
        lie("UserName", "".into()),
        lie("UserName", "bob\u{202e}".into()),
        lie("OwnerName", "../..".into()),
        Answer::Json(200, json!([])),
        Answer::Json(200, json!({"UserName": "bob", "RepoID": 12, "KeyID": 8})),
        Answer::Raw(200, String::new(), vec![b' '; 5 * 1024 * 1024]),
        elsewhere,
    ] {
        stub.asked();
        stub.answer(&serv(8, "acme/app", 2), answer);
        verb(&machine, "bob", "acquire acme/app 4").expect(6, "error: the forge could not say");
        assert_eq!(stub.asked(), [internal(&serv(8, "acme/app", 2))]);
    }
    assert_eq!(machine.ok("git", "ls /var/lib/git-claim"), "");
}

/// Takes as long as a request may wait for the forge.
#[test]
fn a_slow_or_missing_forge_is_not_now() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    for answer in [Answer::Nothing, Answer::Dribble] {
        stub.answer(&serv(8, "acme/app", 1), answer);
        verb(&machine, "bob", "list acme/app").expect(6, "the forge could not say");
    }
    machine.ok("root", "sed -i s/:3000/:3001/ /etc/git-claim/config");
    verb(&machine, "bob", "list acme/app").expect(6, "the forge could not say");
}

#[test]
fn what_a_client_sends_steers_nothing_and_a_broken_setup_stops_no_git() {
    let Some((machine, stub)) = machine() else {
        return;
    };
    grant(&stub, 8, "bob", 2);
    machine.write("/etc/ssh/sshd_config.d/weak.conf", "AcceptEnv *");
    machine.ok("root", "systemctl reload ssh");
    // Whoever could name a proxy would get the tokens.
    let proxy = Stub::listen(machine.inside(), 3128);
    let reply = machine
        .run(
            "bob",
            "for name in http_proxy HTTP_PROXY all_proxy ALL_PROXY; do
                 export $name=http://127.0.0.1:3128
             done
             export GITEA_PUSHER_NAME=alice GL_USER=alice USER=alice GIT_CLAIM_PRINCIPAL=alice
             export SSH_USER_AUTH=/tmp/x GITEA_KEY_ID=7
             ssh -o SendEnv='*_proxy *_PROXY GITEA_* GL_* USER GIT_* SSH_USER_AUTH' \\
                 git@localhost collab-lease whoami acme/app",
        )
        .expect(0, "")
        .json();
    assert_eq!(
        (&reply["name"], &reply["key"]),
        (&"bob".into(), &"forgejo-key:8".into())
    );
    assert_eq!(proxy.asked(), [""; 0]);
    // Other words of ours than the verb are the forge's business.
    machine
        .run("bob", "ssh git@localhost git-claim-server local")
        .expect(0, "asked: git-claim-server local");
    verb(&machine, "bob", "list acme/app -- serv key-7").expect(1, "error: ");

    for (breaking, why) in [
        (
            "chmod 644 /etc/git-claim/api-token",
            "everybody may read it",
        ),
        ("chmod 660 /etc/git-claim/api-token", "others may write it"),
        (
            "chmod 640 /etc/git-claim/api-token; : >/etc/git-claim/internal-token",
            "one token",
        ),
        (
            "git config -f /etc/git-claim/config claim.read '*'",
            "claim.read counts for nothing",
        ),
        (
            "git config -f /etc/git-claim/config claimForgejo.url http://forge.example.org/",
            "LOCAL_ROOT_URL",
        ),
        ("echo '[' >/etc/git-claim/config", "settings file"),
    ] {
        machine.ok("root", breaking);
        machine
            .run("git", "git-claim-server check --kind forgejo")
            .expect(1, "problem: ");
        verb(&machine, "bob", "list acme/app").expect(6, why);
        machine
            .run("bob", "ssh git@localhost git-upload-pack acme/app")
            .expect(0, "asked: git-upload-pack acme/app");
    }
}

//! Who may do what, where, and under which spelling; and that nobody learns
//! what is not theirs to know.

use std::fs;
use std::os::unix::fs::symlink;

use assert_cmd::assert::Assert;
use assert_fs::TempDir;
use predicates::prelude::*;

use crate::support::client::{stderr, stdout};
use crate::support::forge::{Forge, REPO, git, url};

/// One request of every subverb about a repository.
fn every_request(repo: &str) -> Vec<String> {
    [
        "acquire REPO ae1c051",
        "acquire REPO ae1c051 --ttl 60 --take-over --reason x --expected-token 1",
        "next REPO",
        "renew REPO ae1c051 --ttl 60",
        "release REPO ae1c051",
        "list REPO",
        "show REPO ae1c051",
        "log REPO",
        "verify REPO ae1c051 --token 1",
        "recover REPO ae1c051 --session s --branch b --worktree w --machine m --head HEAD",
        "whoami REPO",
        "serve REPO",
    ]
    .map(|line| {
        line.replace("REPO", repo)
            .replace("HEAD", &"0123456789".repeat(4))
    })
    .to_vec()
}

/// All that a client sees of a request.
fn answer(assert: &Assert) -> (Option<i32>, String, String) {
    let exit = assert.get_output().status.code();
    (exit, stdout(assert), stderr(assert))
}

#[test]
fn unknown_and_unauthorised_are_the_same_byte_for_byte() {
    let forge = Forge::new();
    forge.client("alice").ok("git claim ae1c");
    fs::create_dir(forge.repos().join("no-repository.git")).unwrap();
    let before = forge.ledger().dump();
    for name in ["dave", "eve"] {
        let client = forge.client(name);
        for (known, unknown) in every_request(REPO)
            .iter()
            .zip(every_request("acme/nix.git"))
        {
            let unknown = answer(&client.verb(&unknown));
            assert_eq!((unknown.0, unknown.1.as_str()), (Some(1), ""), "{known}");
            // `serve` is not built yet, wherever it is asked for.
            if !known.starts_with("serve ") {
                assert_eq!(unknown.2, "error: repository not found\n", "{known}");
            }
            if name == "eve" {
                assert_eq!(answer(&client.verb(known)), unknown, "{known}");
            }
        }
        client
            .verb("list no-repository.git")
            .code(1)
            .stdout("")
            .stderr("error: repository not found\n");
    }
    assert_eq!(forge.ledger().dump(), before);
}

/// Who may read knows that the repository is there, and is told what is missing.
#[test]
fn who_may_only_read_changes_nothing() {
    let forge = Forge::new();
    forge
        .client("alice")
        .ok("git claim ae1c --ttl 1h --session shared");
    let before = forge.ledger().dump();
    let dave = forge.client("dave");
    for line in [
        "acquire REPO 537daeb",
        "acquire REPO ae1c051 --session shared",
        "acquire REPO ae1c051 --take-over --reason x --expected-token 1",
        "renew REPO ae1c051 --ttl 60",
        "release REPO ae1c051",
        "release REPO ae1c051 --force --reason x --expected-token 1",
    ] {
        let assert = dave.verb(&line.replace("REPO", REPO)).code(1).stdout("");
        let error = stderr(&assert);
        assert!(error.starts_with("error: dave may see"), "{line}: {error}");
    }
    assert_eq!(forge.ledger().dump(), before);
}

#[test]
fn nothing_set_means_that_nobody_may() {
    let forge = Forge::with_settings("");
    let alice = forge.client("alice");
    alice
        .run("git claims")
        .code(1)
        .stderr(predicate::str::starts_with("error: repository not found\n"));
}

#[test]
fn groups_and_repositories_of_their_own_rules() {
    let forge = Forge::with_settings(
        "\twrite = @devs\n\tread = *\n[claimGroup \"devs\"]\n\tmember = alice\n\tmember = bob\n",
    );
    forge.client("alice").ok("git claim ae1c");
    let zoe = forge.client("zoe");
    zoe.ok("git claims");
    zoe.run("git claim 537d").code(1);
    // A repository's own rules count instead of the file's, not beside it.
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.write", "zoe"]);
    zoe.ok("git claim 537d");
    forge.client("bob").run("git claim 862b").code(1);
}

#[test]
fn every_spelling_of_a_repository_is_one_repository() {
    let forge = Forge::new();
    symlink("app.git", forge.repos().join("acme/alias.git")).unwrap();
    symlink("acme", forge.repos().join("org")).unwrap();
    let alice = forge.client("alice");
    alice
        .verb(&format!("acquire {REPO} ae1c051 --session s1"))
        .success();
    let absolute = forge.repos().join(REPO);
    for spelling in [
        "acme/app.git",
        "acme/app",
        "/acme/app.git",
        "'~/acme/app.git'",
        "acme/app.git/",
        "acme/app/",
        "acme//app.git",
        "./acme/./app.git",
        "acme/../acme/app.git",
        "'acme/app.git'",
        "acme/alias.git",
        "acme/alias",
        "org/app.git",
        "'a'cme/app.git",
        absolute.to_str().unwrap(),
    ] {
        let assert = alice.verb(&format!("acquire {spelling} ae1c051 --session s1"));
        let reply: serde_json::Value = serde_json::from_str(&stdout(&assert.success())).unwrap();
        assert_eq!(reply["repo"], REPO, "{spelling}");
        assert_eq!(reply["tenure"], "own", "{spelling}");
    }
}

#[test]
fn nothing_outside_of_repos_dir_is_reachable() {
    let forge = Forge::new();
    let outside = TempDir::new().unwrap();
    let secret = outside.path().join("secret.git");
    fs::create_dir(&secret).unwrap();
    git(&secret, &["init", "-q", "--bare"]);
    git(forge.dir(), &["init", "-q", "--bare", "beside.git"]);
    symlink(&secret, forge.repos().join("link.git")).unwrap();
    symlink(outside.path(), forge.repos().join("folder")).unwrap();
    let alice = forge.client("alice");
    let before = forge.ledger().dump();
    for path in [
        "../beside.git",
        "acme/../../beside.git",
        "/../beside.git",
        "link.git",
        "folder/secret.git",
        secret.to_str().unwrap(),
        "acme",
        ".",
        "..",
        "/",
        "acme/app.git/objects",
        "acme/app.git/../../..",
    ] {
        alice
            .verb(&format!("acquire {path} 42"))
            .code(1)
            .stdout("")
            .stderr("error: repository not found\n");
        let mut fetch = alice.ssh(format!("git-upload-pack '{path}'"));
        let assert = fetch.assert().failure().stdout("");
        assert!(!stderr(&assert).contains("0000"), "{path}");
    }
    assert_eq!(forge.ledger().dump(), before);
}

#[test]
fn clone_and_push_go_over_the_same_key() {
    let forge = Forge::new();
    let person = forge.person("alice");
    let clone = person.home().join("clone");
    person
        .command("git", person.home())
        .args(["clone", "-q", &url(REPO)])
        .arg(&clone)
        .assert()
        .success();
    for line in [
        "git commit -q --allow-empty -m change",
        "git push -q origin HEAD:refs/heads/topic",
        "git claim ae1c051",
        "git unclaim ae1c051",
    ] {
        let mut words = line.split(' ');
        let mut command = person.command(words.next().unwrap(), &clone);
        command.args(words).assert().success();
    }
    git(
        &forge.repos().join(REPO),
        &["rev-parse", "--verify", "topic"],
    );
    // As git itself would call it, under both names.
    let alice = forge.client("alice");
    for command in [
        "git-upload-pack 'acme/app.git'",
        "git upload-pack 'acme/app.git'",
    ] {
        alice
            .ssh(command)
            .write_stdin("0000")
            .assert()
            .success()
            .stdout(predicate::str::contains("refs/heads/topic"));
    }
}

#[test]
fn no_other_command_is_run() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    for command in [
        "id",
        "sh -c id",
        "collab-lease-x list acme/app.git",
        "git-shell",
        "git-upload-pack",
        "git-upload-pack 'acme/app.git' 'acme/app.git'",
        "git-upload-pack --upload-pack=id 'acme/app.git'",
        "git-upload-pack '-x'",
        "git-upload-pack 'acme/app.git'; id",
        "git-upload-pack 'acme/app.git' && id",
        "git-upload-pack $(id)",
        "git-upload-pack `id`",
        "git-receive-pack \"acme/app.git\"",
        "git clone 'acme/app.git'",
        "git -c core.pager=id log",
        "scp -t /tmp",
        "collab-lease list acme/app.git; id",
        "collab-lease list acme/app.git\nid",
        "/usr/bin/git-upload-pack 'acme/app.git'",
    ] {
        let assert = alice.ssh(command).assert().code(1).stdout("");
        let error = stderr(&assert);
        assert!(error.starts_with("error: "), "{command}: {error}");
        assert_eq!(error.lines().count(), 1, "{command}: {error}");
    }
    // No command at all is a login, which is refused too.
    let mut login = alice.command("ssh");
    login.arg("forge").assert().failure().stdout("");
}

/// The forge's sshd takes every variable that a client sends (`AcceptEnv *`).
#[test]
fn what_a_client_sends_as_environment_changes_nothing() {
    let forge = Forge::new();
    let eve = forge.client("eve");
    let forged = forge.dir().join("forged");
    let key = fs::read_to_string(forge.person("alice").home().join("key.pub")).unwrap();
    fs::write(&forged, format!("publickey {key}")).unwrap();
    let variables = [
        ("SSH_USER_AUTH", forged.to_str().unwrap()),
        ("GL_USER", "alice"),
        ("GITEA_PUSHER_NAME", "alice"),
        ("GIT_CLAIM_PRINCIPAL", "alice"),
        ("GIT_CLAIM_KEY", "SHA256:x"),
        ("USER", "alice"),
        ("LOGNAME", "alice"),
        ("HOME", "/nowhere"),
        ("GIT_CONFIG_GLOBAL", forged.to_str().unwrap()),
        ("GIT_DIR", "/nowhere"),
        ("XDG_CONFIG_HOME", "/nowhere"),
    ];
    let mut command = eve.command("ssh");
    let mut names = vec!["-o".to_owned()];
    names.push(format!(
        "SendEnv={}",
        variables.map(|(name, _)| name).join(" ")
    ));
    command
        .args(names)
        .args(["forge", "collab-lease whoami"])
        .envs(variables);
    let reply: serde_json::Value =
        serde_json::from_str(&stdout(&command.assert().success())).unwrap();
    assert_eq!(reply["name"], "eve");

    // Settings that a client points at run no program of its choice.
    let mut command = forge.client("alice").command("ssh");
    let touched = forge.dir().join("touched");
    let program = format!("!touch {}", touched.display());
    command
        .args([
            "-o",
            "SendEnv=GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0",
        ])
        .args(["forge", "git-upload-pack 'acme/app.git'"])
        .envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "uploadpack.packObjectsHook"),
            ("GIT_CONFIG_VALUE_0", program.as_str()),
        ])
        .write_stdin("0000")
        .output()
        .unwrap();
    assert!(!touched.exists());
}

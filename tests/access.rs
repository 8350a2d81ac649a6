//! Who may do what, where, and under which spelling; and that nobody learns
//! what is not theirs to know.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use assert_cmd::assert::Assert;
use assert_fs::TempDir;
use predicates::prelude::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::support::client::{stderr, stdout};
use crate::support::forge::{Forge, REPO, RIGHTS, git, url};
use crate::support::programs;

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

/// They cost the same too, as far as anybody could measure it: neither asks the
/// ledger, nor waits for it, nor asks the tracker.
#[test]
fn unknown_and_unauthorised_are_looked_up_no_further() {
    let forge = Forge::without_sshd(RIGHTS);
    let ask = |line: &str| {
        let mut asked = server(&forge, "eve", &format!("collab-lease {line}"));
        let output = asked.output().unwrap();
        (output.status.code(), output.stdout, output.stderr)
    };
    let asked = forge.dir().join("asked");
    let tracker = forge.dir().join("tracker");
    fs::write(&tracker, format!("#!/bin/sh\ntouch {}\n", asked.display())).unwrap();
    fs::set_permissions(&tracker, fs::Permissions::from_mode(0o755)).unwrap();
    let repo = forge.repos().join(REPO);
    git(&repo, &["config", "claim.tracker", "command"]);
    git(
        &repo,
        &["config", "claim.trackerCommand", tracker.to_str().unwrap()],
    );
    let pairs = || {
        every_request(REPO)
            .into_iter()
            .zip(every_request("acme/nix.git"))
    };
    let not_found = (
        Some(1),
        Vec::new(),
        b"error: repository not found\n".to_vec(),
    );
    // There is no ledger, and none is made.
    for (known, unknown) in pairs() {
        assert_eq!(ask(&known), not_found, "{known}");
        assert_eq!(ask(&unknown), not_found, "{unknown}");
    }
    assert!(!forge.ledger().file().exists());
    // The ledger is busy, for as long as it takes.
    server(&forge, "alice", &format!("collab-lease acquire {REPO} a-1"))
        .status()
        .unwrap();
    fs::remove_file(&asked).unwrap();
    let queue = forge.repos().join("collab.db-queue");
    let file = fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(queue)
        .unwrap();
    file.lock().unwrap();
    for (known, unknown) in pairs() {
        assert_eq!(ask(&known), not_found, "{known}");
        assert_eq!(ask(&unknown), not_found, "{unknown}");
    }
    assert!(!asked.exists());
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

/// The server on this machine, as sshd starts it.
fn server(forge: &Forge, name: &str, request: &str) -> Command {
    let mut server = Command::new(programs::server());
    server
        .args(["openssh", "--as", name, "--config"])
        .arg(forge.config())
        .env("SSH_ORIGINAL_COMMAND", request)
        .stdin(Stdio::null());
    server
}

/// Somebody who may rename in reposDir, as fast as they can: what has the name when
/// rights are looked up is not what has it a moment later.
#[test]
fn a_folder_swapped_for_a_link_while_requests_run_leads_nowhere() {
    let forge = Forge::without_sshd(RIGHTS);
    let outside = TempDir::new().unwrap();
    let secret = outside.path().join("app.git");
    fs::create_dir(&secret).unwrap();
    git(&secret, &["init", "-q", "--bare"]);
    git(&secret, &["config", "claim.read", "eve"]);
    git(&secret, &["config", "claim.tracker", "none"]);
    let tree = git(&secret, &["mktree"]);
    let commit = git(&secret, &["commit-tree", "-m", "secret", &tree]);
    git(&secret, &["update-ref", "refs/heads/secret", &commit]);
    let link = forge.repos().join("link");
    symlink(outside.path(), &link).unwrap();

    let folder = forge.repos().join("acme");
    let is_over = AtomicBool::new(false);
    let swap = || renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                swap();
            }
        });
        let _over = OnDrop(|| is_over.store(true, Ordering::Relaxed));
        for _ in 0..150 {
            let list = server(&forge, "eve", &format!("collab-lease list {REPO}"));
            let output = { list }.output().unwrap();
            assert_eq!(output.stderr, b"error: repository not found\n");
            assert_eq!(output.stdout, b"");
        }
        let mut served = 0;
        for _ in 0..100 {
            let fetch = server(&forge, "alice", &format!("git-upload-pack '{REPO}'"));
            let output = { fetch }.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(!said.contains("refs/heads/secret"), "{said}");
            served += u32::from(said.contains("refs/heads/main"));
        }
        assert!(served > 0);
    });
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Whatever is in a tree, and whatever refs are called.
#[test]
fn what_is_pushed_configures_nothing_and_is_no_repository() {
    let forge = Forge::new();
    let repo = forge.repos().join(REPO);
    // Its own rules are narrower than the site's.
    git(&repo, &["config", "claim.read", "alice"]);
    git(&repo, &["config", "claim.write", "alice"]);
    let config = fs::read(repo.join("config")).unwrap();
    let alice = forge.client("alice");
    let touched = forge.dir().join("touched");
    let program = alice.dir().join("program");
    let script = format!("#!/bin/sh\ntouch {}\n", touched.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let hostile = alice.dir().join("hostile");
    let program = program.display();
    fs::write(
        &hostile,
        format!(
            "[claim]\n\tread = *\n\twrite = *\n\tadmin = *\n\ttracker = command\n\
             \ttrackerCommand = {program}\n\tfence = off\n\
             [core]\n\thooksPath = hooks\n\tfsmonitor = {program}\n\
             [include]\n\tpath = config\n\
             [uploadpack]\n\tpackObjectsHook = {program}\n"
        ),
    )
    .unwrap();
    let blob = |file: &str| git(alice.dir(), &["hash-object", "-w", file]);
    let tree = |entries: &str| {
        let mut mktree = alice.git(["mktree"]);
        let made = mktree.write_stdin(entries).assert().success();
        stdout(&made).trim_end().to_owned()
    };
    let (config_blob, program_blob) = (blob("hostile"), blob("program"));
    let hooks: String = ["post-claim", "pre-receive", "update", "post-receive"]
        .map(|name| format!("100755 blob {program_blob}\t{name}\n"))
        .concat();
    let hooks = tree(&hooks);
    let git_folder = format!("100644 blob {config_blob}\tconfig\n040000 tree {hooks}\thooks\n");
    let inner = tree(&git_folder);
    let files: String = [".gitconfig", ".gitmodules", "config", "config.worktree"]
        .map(|name| format!("100644 blob {config_blob}\t{name}\n"))
        .concat();
    // A folder `.git` too, which git itself would not put into a tree.
    let all = tree(&format!(
        "{files}040000 tree {hooks}\thooks\n040000 tree {inner}\t.git\n"
    ));
    let commit = stdout(
        &alice
            .git(["commit-tree", "-m", "x", &all])
            .assert()
            .success(),
    );
    let commit = commit.trim_end();
    for names in [
        &["main", "config", "hooks/post-claim"][..],
        // Folders that look like a repository, where refs are files.
        &["x/HEAD", "x/objects/a", "x/refs/a", "x/hooks/pre-receive"],
        &["after"],
    ] {
        let mut push = alice.git(["push", "-q", "--force", "origin"]);
        push.args(
            names
                .iter()
                .map(|name| format!("{commit}:refs/heads/{name}")),
        );
        push.assert().success();
        alice.ok("git claim ae1c");
        alice.ok("git unclaim ae1c");
    }
    assert!(repo.join("refs/heads/x/objects").is_dir());
    let inside = format!("{REPO}/refs/heads/x");
    for (name, path) in [("eve", REPO), ("bob", REPO), ("bob", &inside)] {
        forge
            .client(name)
            .verb(&format!("list {path}"))
            .code(1)
            .stderr("error: repository not found\n");
    }
    let mut fetch = forge
        .client("bob")
        .ssh(format!("git-upload-pack '{inside}'"));
    fetch.assert().code(1).stdout("");
    assert_eq!(fs::read(repo.join("config")).unwrap(), config);
    assert!(!touched.exists());
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

/// git refuses it, in words that name no path.
#[test]
fn a_repository_of_another_user_is_named() {
    if !programs::is_root() {
        eprintln!("skipped: only root can give a repository away");
        return;
    }
    let forge = Forge::without_sshd(RIGHTS);
    let repo = forge.repos().join(REPO);
    let fetch = || {
        let mut fetch = server(&forge, "alice", &format!("git-upload-pack '{REPO}'"));
        fetch.env("HOME", forge.dir()).env_remove("XDG_CONFIG_HOME");
        let output = fetch.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let (refs, said) = fetch();
    assert!(refs.contains("refs/heads/main"), "{said}");
    assert!(!said.contains("another user"), "{said}");
    let nobody = Command::new("chown")
        .arg("-R")
        .arg("65534")
        .arg(&repo)
        .status();
    assert!(nobody.unwrap().success());
    let (refs, said) = fetch();
    assert!(!refs.contains("refs/heads/main"), "{refs}");
    let real = repo.canonicalize().unwrap();
    let first = format!("warning: {} belongs to another user\n", real.display());
    assert!(said.starts_with(&first), "{said}");
    let line = format!("[safe]\n\tdirectory = {}\n", real.display());
    fs::write(forge.dir().join(".gitconfig"), line).unwrap();
    let (refs, said) = fetch();
    assert!(refs.contains("refs/heads/main"), "{said}");
    assert!(!said.contains("another user"), "{said}");
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

    // Nor hooks of its choice, at a push.
    let alice = forge.client("alice");
    let hooks = forge.dir().join("hooks");
    fs::create_dir(&hooks).unwrap();
    for name in ["pre-receive", "update", "post-receive"] {
        let hook = hooks.join(name);
        fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", touched.display())).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
    alice.person().make_program(
        "ssh-sending",
        &format!(
            "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0={}\n\
             exec ssh -o SendEnv='GIT_CONFIG_*' \"$@\"",
            hooks.display()
        ),
    );
    let mut commit = alice.git(["commit", "-q", "--allow-empty", "-m", "x"]);
    commit.assert().success();
    let mut push = alice.git(["push", "-q", "origin", "HEAD:refs/heads/topic"]);
    push.env("GIT_SSH_COMMAND", "ssh-sending");
    push.assert().success();
    git(
        &forge.repos().join(REPO),
        &["rev-parse", "-q", "--verify", "topic"],
    );
    assert!(!touched.exists());
}

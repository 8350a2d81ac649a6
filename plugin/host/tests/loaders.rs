//! The programs themselves, with the real plugin and git but without an sshd:
//! the tests stand where sshd would, and set what it would set.

// Says to clippy that unwrap and panic are a test's way to fail.
#![cfg(test)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_fs::TempDir;
use assert_fs::prelude::*;

const SERVER: &str = env!("CARGO_BIN_EXE_git-claim-server");
const COLLAB_LEASE: &str = env!("CARGO_BIN_EXE_collab-lease");

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAg8P3kqeqFf3LK7URUyGX5pozP0wSUETFE5Hkm9BKbZ";
const FINGERPRINT: &str = "SHA256:g+2GzTXCdFjxrT4djG5jLFniPhHT5IBdcGCWbKXugTg";

const NOT_FOUND: &str = "error: repository not found\n";

/// A server: settings, repositories without a tracker, nothing of this
/// machine's user.
struct Site(TempDir);

impl Site {
    /// alice is admin, bob may claim, eve may see; in `secret.git` only alice.
    fn new() -> Site {
        assert!(
            Path::new(SERVER)
                .with_file_name("libgit_claim_plugin.so")
                .exists(),
            "build the plugin first: cargo build -p git-claim-plugin"
        );
        let site = Site(TempDir::new().unwrap());
        fs::set_permissions(site.0.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["r.git", "secret.git"] {
            let path = site.path("git").join(name);
            site.git(&["init", "--quiet", "--bare", path.to_str().unwrap()]);
            site.git(&[
                "-C",
                path.to_str().unwrap(),
                "config",
                "claim.tracker",
                "none",
            ]);
        }
        for key in ["claim.read", "claim.write"] {
            let secret = site.path("git/secret.git");
            site.git(&["-C", secret.to_str().unwrap(), "config", key, "alice"]);
        }
        let settings = format!(
            "[claim]\nreposDir = {}\nread = *\nwrite = bob\nadmin = alice\n\
             [claimUser \"ann\"]\nkey = {FINGERPRINT}\n",
            site.path("git").display()
        );
        site.write(".config/git-claim/config", &settings);
        site
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.child(below).path().to_owned()
    }

    fn write(&self, below: &str, text: &str) {
        self.0.child(below).write_str(text).unwrap();
        for path in self.path(below).ancestors() {
            if path == self.0.path() {
                break;
            }
            let mode = if path.is_dir() { 0o755 } else { 0o644 };
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    }

    fn config(&self) -> PathBuf {
        self.path(".config/git-claim/config")
    }

    /// `program` with the environment of a fresh session.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.0.path())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn git(&self, args: &[&str]) -> String {
        let output = self
            .command("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {}", show(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a client with the forced command `--as name` gets for `command`.
    fn openssh(&self, name: &str, command: &str) -> Output {
        self.command(SERVER)
            .args(["openssh", "--as", name])
            .env("SSH_ORIGINAL_COMMAND", command)
            .output()
            .unwrap()
    }

    fn admin(&self, args: &[&str]) -> Output {
        self.command(SERVER).args(args).output().unwrap()
    }
}

fn show(output: &Output) -> String {
    format!(
        "{:?}\n{}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Asserts the exit code, and that `part` is in the output.
#[track_caller]
fn expect(output: &Output, exit: i32, part: &str) {
    let shown = show(output);
    assert_eq!(output.status.code(), Some(exit), "{shown}");
    assert!(shown.contains(part), "{part:?} is not in: {shown}");
    if exit != 0 && exit != 4 {
        assert!(output.stderr.starts_with(b"error: "), "{shown}");
    }
}

#[test]
fn a_claim_goes_to_one_and_the_settings_say_who_may_ask() {
    let site = Site::new();
    let acquire = "collab-lease acquire r.git 42 --session s";
    expect(&site.openssh("bob", acquire), 0, r#""holder":"bob""#);
    expect(&site.openssh("alice", acquire), 4, r#""holder":"bob""#);
    expect(&site.openssh("eve", acquire), 1, "write access");
    let list = site.openssh("eve", "collab-lease list /r");
    expect(&list, 0, r#""repo":"r.git""#);
    expect(&list, 0, r#""issue":"42""#);
    let rename = site.openssh("alice", "collab-lease rename r.git q.git");
    expect(&rename, 1, "no subverb 'rename'");
}

#[test]
fn unknown_and_unauthorised_repositories_are_one_answer() {
    let site = Site::new();
    expect(
        &site.openssh("alice", "collab-lease list secret.git"),
        0,
        "leases",
    );
    for request in [
        "collab-lease list REPO",
        "collab-lease acquire REPO 1",
        "collab-lease whoami REPO",
        "collab-lease log REPO",
    ] {
        let ask = |repo| site.openssh("bob", &request.replace("REPO", repo));
        let secret = ask("secret.git");
        assert_eq!(
            String::from_utf8_lossy(&secret.stderr),
            NOT_FOUND,
            "{request}"
        );
        for unknown in ["nothing.git", "../outside.git", "secret.git/../nothing"] {
            assert_eq!(ask(unknown), secret, "{request} {unknown}");
        }
    }
    let git = site.openssh("bob", "git-upload-pack 'nothing.git'");
    assert_eq!(String::from_utf8_lossy(&git.stderr), NOT_FOUND);
    assert_eq!(git.status.code(), Some(1));
}

#[test]
fn clone_and_push_go_on_to_git_with_the_principal_and_nothing_of_the_clients() {
    let site = Site::new();
    // Where git would run ssh: the last word is what the client asks for.
    site.write(
        "ssh",
        &format!(
            "#!/bin/sh\nfor last; do :; done\n\
             SSH_ORIGINAL_COMMAND=$last GIT_CLAIM_PRINCIPAL=mallory GIT_TRACE=/dev/stderr \\\n\
             exec '{SERVER}' openssh --as bob --key {FINGERPRINT}\n"
        ),
    );
    site.write(
        "git/r.git/hooks/pre-receive",
        "#!/bin/sh\necho \"$GIT_CLAIM_PRINCIPAL $GIT_CLAIM_KEY $GIT_TRACE\" >pushed-by\n",
    );
    for program in ["ssh", "git/r.git/hooks/pre-receive"] {
        fs::set_permissions(site.path(program), Permissions::from_mode(0o755)).unwrap();
    }
    let ssh = format!("core.sshCommand={}", site.path("ssh").display());
    site.git(&["-c", &ssh, "clone", "--quiet", "git@forge:r.git", "clone"]);
    site.git(&[
        "-C",
        "clone",
        "commit",
        "--quiet",
        "--allow-empty",
        "-m",
        "one",
    ]);
    site.git(&[
        "-C",
        "clone",
        "-c",
        &ssh,
        "push",
        "--quiet",
        "origin",
        "HEAD:refs/heads/main",
    ]);
    assert_eq!(
        fs::read_to_string(site.path("git/r.git/pushed-by")).unwrap(),
        format!("bob {FINGERPRINT} \n")
    );
}

#[test]
fn without_a_principal_nothing_is_served() {
    let site = Site::new();
    for command in ["collab-lease list r.git", "git-upload-pack 'r.git'"] {
        let output = site
            .command(SERVER)
            .arg("openssh")
            .env("SSH_ORIGINAL_COMMAND", command)
            .env("GIT_CLAIM_PRINCIPAL", "alice")
            .env("GL_USER", "alice")
            .env("USER", "alice")
            .output()
            .unwrap();
        expect(&output, 1, "does not know who you are");
    }
}

#[test]
fn a_person_who_tries_their_key_is_greeted_by_name() {
    let site = Site::new();
    let output = site.admin(&["openssh", "--as", "bob"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("Hello bob, your key works."), "{text}");
}

#[test]
fn git_shell_runs_collab_lease_for_the_key_of_the_login() {
    let site = Site::new();
    site.write("login", &format!("publickey {KEY}\n"));
    fs::set_permissions(site.path("login"), Permissions::from_mode(0o600)).unwrap();
    let run = |args: &[&str], login: Option<&str>| {
        let mut command = site.command(COLLAB_LEASE);
        command.args(args);
        if let Some(login) = login {
            command.env("SSH_USER_AUTH", site.path(login));
        }
        command.output().unwrap()
    };
    let whoami = run(&["whoami", "r.git"], Some("login"));
    expect(&whoami, 0, r#""name":"ann""#);
    expect(&whoami, 0, FINGERPRINT);
    expect(&run(&["whoami"], None), 1, "ExposeAuthInfo");
    expect(&run(&["whoami"], Some("none")), 1, "SSH_USER_AUTH");
    let options = run(&["openssh", "--as", "alice"], Some("login"));
    expect(&options, 1, "no subverb 'openssh'");
    expect(
        &run(&["--config", "x"], Some("login")),
        1,
        "no subverb '--config'",
    );
}

#[test]
fn the_server_refuses_to_run_where_clients_choose_its_words() {
    let site = Site::new();
    let folder = site.path("git-shell-commands");
    fs::create_dir(&folder).unwrap();
    let program = folder.join("git-claim-server");
    symlink(SERVER, &program).unwrap();
    let output = site
        .command(&program)
        .args(["openssh", "--as", "alice"])
        .env("SSH_ORIGINAL_COMMAND", "collab-lease list r.git")
        .output()
        .unwrap();
    expect(&output, 1, "git-shell-commands");
}

#[test]
fn a_setup_that_is_broken_is_not_now() {
    let site = Site::new();
    let list = || site.openssh("bob", "collab-lease list r.git");
    let whole = fs::read_to_string(site.config()).unwrap();
    for (broken, why) in [
        (
            whole.replace("reposDir", "reposDirs"),
            "unknown key claim.reposDirs (line 2)",
        ),
        (
            whole.replace("reposDir = ", "reposDir = /nothing"),
            "No such file",
        ),
        (
            format!("{whole}[claim]\nplugin = /bin/sh\n"),
            "no plugin of git-claim",
        ),
        (format!("{whole}[claim]\nledger = /dev/null\n"), "/dev/null"),
    ] {
        fs::write(site.config(), broken).unwrap();
        expect(&list(), 6, why);
    }
    fs::write(site.config(), &whole).unwrap();
    expect(&list(), 0, "leases");
    fs::set_permissions(site.config(), Permissions::from_mode(0o664)).unwrap();
    expect(&list(), 6, "others may write it");
    fs::remove_file(site.config()).unwrap();
    expect(&list(), 6, "no settings file");
}

#[test]
fn a_plugin_that_others_may_write_is_not_loaded() {
    let site = Site::new();
    let plugin = site.path("lib/libgit_claim_plugin.so");
    site.write("lib/libgit_claim_plugin.so", "");
    fs::copy(
        Path::new(SERVER).with_file_name("libgit_claim_plugin.so"),
        &plugin,
    )
    .unwrap();
    let settings = fs::read_to_string(site.config()).unwrap();
    let settings = format!("{settings}[claim]\nplugin = {}\n", plugin.display());
    fs::write(site.config(), settings).unwrap();
    let list = || site.openssh("bob", "collab-lease list r.git");
    for (path, mode, exit, part) in [
        ("lib/libgit_claim_plugin.so", 0o755, 0, "leases"),
        (
            "lib/libgit_claim_plugin.so",
            0o775,
            6,
            "others may write it",
        ),
        ("lib/libgit_claim_plugin.so", 0o755, 0, "leases"),
        ("lib", 0o777, 6, "others may write it"),
    ] {
        fs::set_permissions(site.path(path), Permissions::from_mode(mode)).unwrap();
        expect(&list(), exit, part);
    }
}

#[test]
fn check_says_what_everyone_else_may_not_know() {
    let site = Site::new();
    let check = |args: &[&str]| {
        let output = site.admin(&[&["check"], args].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    };
    let (exit, text) = check(&["r", "--as", "bob"]);
    assert_eq!(exit, 0, "{text}");
    assert!(text.contains("ok: repository r is r.git\n"), "{text}");
    assert!(text.contains("ok: r.git: tracker none"), "{text}");
    assert!(
        text.contains("ok: bob has write access: claim.write in the settings file lists bob\n"),
        "{text}"
    );
    let (exit, text) = check(&["secret.git", "--as", "alice"]);
    assert_eq!(exit, 0, "{text}");
    assert!(
        text.contains("alice has admin access: claim.admin in the settings file"),
        "{text}"
    );

    let secret = site.path("git/secret.git");
    site.git(&[
        "-C",
        secret.to_str().unwrap(),
        "config",
        "claim.writers",
        "bob",
    ]);
    for (args, problem) in [
        (
            &["secret.git", "--as", "bob"][..],
            "problem: bob may do nothing",
        ),
        (
            &["secret.git"],
            "problem: secret.git: claim.writers means nothing",
        ),
        (
            &["nothing"],
            "problem: repository nothing: there is none below",
        ),
        (&["--config", "/nothing"], "problem: settings file /nothing"),
    ] {
        let (exit, text) = check(args);
        assert_eq!(exit, 1, "{text}");
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn check_says_whether_pushes_are_looked_at_and_what_has_them_be() {
    let site = Site::new();
    let check = || {
        let output = site.admin(&["check", "r"]);
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), text)
    };
    // Nobody has to want that.
    let (exit, text) = check();
    assert_eq!(exit, 0, "{text}");
    let note = "note: no push is looked at, as there are no hooks for it; \
                `git-claim-server setup r` puts them in place\n";
    assert!(text.contains(note), "{text}");
    expect(&site.admin(&["setup", "r"]), 0, "added");
    let (exit, text) = check();
    assert_eq!(exit, 0, "{text}");
    assert!(text.contains("ok: pushes are looked at"), "{text}");
    for damage in [
        &["config", "receive.advertisePushOptions", "false"][..],
        &["config", "core.hooksPath", "/nowhere"],
    ] {
        site.git(&[&["-C", "git/r.git"], damage].concat());
        let (exit, text) = check();
        let is_off = damage[1] == "core.hooksPath";
        assert_eq!(exit, i32::from(!is_off), "{text}");
        assert!(text.contains("`git-claim-server setup r` puts "), "{text}");
    }
    site.git(&["-C", "git/r.git", "config", "--unset", "core.hooksPath"]);
    expect(&site.admin(&["setup", "r"]), 0, "is true now");
    fs::remove_file(site.path("git/r.git/hooks/post-receive")).unwrap();
    let (exit, text) = check();
    assert_eq!(exit, 1, "{text}");
    let problem = "problem: pushes are looked at in part: without hooks/post-receive; ";
    assert!(text.contains(problem), "{text}");
}

#[test]
fn a_repository_on_this_machine_is_checked_without_settings() {
    let site = Site::new();
    fs::remove_file(site.config()).unwrap();
    for args in [&["check"][..], &["check", "r"], &["setup", "r"]] {
        let output = site.admin(args);
        let told = show(&output);
        assert!(!output.status.success(), "{told}");
        assert!(told.contains("no settings file: neither "), "{told}");
        assert!(
            told.contains("`--config <file>` names one; `--kind local`"),
            "{told}"
        );
    }
    let told = show(&site.admin(&["backup", "copy.db"]));
    assert!(told.contains("`--config <file>` names one\n"), "{told}");

    site.git(&["init", "--quiet", "work"]);
    for path in ["work", site.path("work/.git").to_str().unwrap()] {
        let check = site.admin(&["check", "--kind", "local", path]);
        let told = String::from_utf8(check.stdout).unwrap();
        assert!(check.status.success(), "{told}");
        for line in [
            format!("ok: repository {path} is "),
            "/work/.git/collab.db, made with the first claim\n".to_owned(),
            "/work/.git: tracker none, ".to_owned(),
            format!("`git-claim-server setup --kind local {path}` puts them in place\n"),
        ] {
            assert!(told.contains(&line), "{line}: {told}");
        }
    }
    expect(
        &site.admin(&["setup", "--kind", "local", "work"]),
        0,
        "added",
    );
    for (args, exit, words) in [
        (&["work"][..], 0, "ok: pushes are looked at"),
        (
            &["nowhere"],
            1,
            "problem: repository nowhere: repository not found; name the path",
        ),
        (
            &["work", "--as", "bob"],
            1,
            "problem: on this machine the rights of files",
        ),
    ] {
        let check = site.admin(&[&["check", "--kind", "local"], args].concat());
        assert_eq!(check.status.code(), Some(exit), "{}", show(&check));
        assert!(show(&check).contains(words), "{}", show(&check));
    }
}

#[test]
fn rename_carries_claims_along_and_backup_copies_them() {
    let site = Site::new();
    expect(
        &site.openssh("bob", "collab-lease acquire r.git 42"),
        0,
        "acquired",
    );
    fs::rename(site.path("git/r.git"), site.path("git/q.git")).unwrap();
    expect(&site.admin(&["rename", "r.git", "q"]), 0, "q.git");
    expect(
        &site.openssh("bob", "collab-lease list q"),
        0,
        r#""issue":"42""#,
    );
    expect(
        &site.admin(&["rename", "r.git", "other.git"]),
        1,
        "nothing of r.git",
    );

    expect(&site.admin(&["backup", "copy.db"]), 0, "copied 1 rows");
    assert!(site.path("copy.db").exists());
    expect(&site.admin(&["backup", "copy.db"]), 6, "exists");
}

#[test]
fn a_local_repository_has_a_ledger_of_its_own() {
    let site = Site::new();
    fs::remove_file(site.config()).unwrap();
    site.git(&["init", "--quiet", "work"]);
    let work = site.path("work");
    let ask = |command: &str| {
        site.command(SERVER)
            .arg("local")
            .env("SSH_ORIGINAL_COMMAND", command)
            .output()
            .unwrap()
    };
    let acquire = ask(&format!(
        "collab-lease acquire {} 42 --session s",
        work.display()
    ));
    expect(&acquire, 0, r#""holder":"local:"#);
    assert!(work.join(".git/collab.db").exists());
    let again = ask(&format!(
        "collab-lease acquire --session t {}/.git/ 42",
        work.display()
    ));
    expect(&again, 4, r#""reason":"other-session""#);
    expect(
        &ask("collab-lease list /nothing"),
        1,
        "repository not found",
    );
    expect(&ask("collab-lease whoami"), 1, "name a repository");
    expect(&ask("collab-lease steal x"), 1, "no subverb");
    expect(
        &ask("git-upload-pack x"),
        1,
        "not a request for collab-lease",
    );
}

#[test]
fn a_local_repository_below_reposdir_has_the_ledger_of_the_site() {
    let site = Site::new();
    let ask = |command: &str| {
        site.command(SERVER)
            .arg("local")
            .env("SSH_ORIGINAL_COMMAND", command)
            .output()
            .unwrap()
    };
    expect(
        &site.openssh("bob", "collab-lease acquire r.git 42"),
        0,
        "acquired",
    );
    let repo = site.path("git/r");
    let held = ask(&format!("collab-lease acquire {} 42", repo.display()));
    expect(&held, 4, r#""holder":"bob""#);
    fs::write(site.path("git/collab.db"), "damaged").unwrap();
    let refused = ask(&format!("collab-lease acquire {} 43", repo.display()));
    expect(&refused, 6, "collab.db");
    assert!(!site.path("git/r.git/collab.db").exists());
}

/// Needs root, who alone can become somebody else.
#[test]
fn a_local_repository_of_somebody_else_is_not_read_without_ones_word() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new();
    fs::remove_file(site.config()).unwrap();
    // Where another user can run them.
    for name in ["git-claim-server", "libgit_claim_plugin.so"] {
        fs::copy(Path::new(SERVER).with_file_name(name), site.path(name)).unwrap();
    }
    let repo = site.path("git/r.git");
    let as_nobody = || {
        site.command("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(site.path("git-claim-server"))
            .arg("local")
            .env(
                "SSH_ORIGINAL_COMMAND",
                format!("collab-lease acquire {} 42", repo.display()),
            )
            .output()
            .unwrap()
    };
    let refused = as_nobody();
    expect(&refused, 1, "belongs to another user");
    expect(
        &refused,
        1,
        "hint: if you trust it: git config --global --add safe.directory",
    );

    site.write(
        ".gitconfig",
        &format!("[safe]\ndirectory = {}\n", repo.display()),
    );
    // Trusted now, but the file system lets nobody write nothing.
    let refused = as_nobody();
    assert_ne!(refused.status.code(), Some(0), "{}", show(&refused));
    assert!(
        !show(&refused).contains("belongs to another user"),
        "{}",
        show(&refused)
    );
    assert!(!repo.join("collab.db").exists());
}

/// Takes as long as the deadline of a request.
#[test]
fn a_request_behind_a_stopped_one_ends_in_time() {
    let site = Site::new();
    let acquire = "collab-lease acquire r.git 42";
    expect(&site.openssh("bob", acquire), 0, "acquired");
    let queue = fs::File::open(site.path("git/collab.db-queue")).unwrap();
    queue.lock().unwrap();
    expect(
        &site.openssh("bob", acquire),
        6,
        "error: the ledger is busy",
    );
    queue.unlock().unwrap();
    expect(&site.openssh("bob", acquire), 0, "acquired");
}

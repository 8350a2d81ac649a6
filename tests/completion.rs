//! What is offered at a TAB, asked of the programs as the shells ask them. The
//! shells themselves are in `tab`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use assert_fs::TempDir;
use serde_json::json;

use crate::support::client::{Client, Person, stdout};
use crate::support::forge::Forge;
use crate::support::terminal::Terminal;

/// The answer to a shell in whose command line `line` was typed.
fn answer(client: &Client, shell: &[&str], line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = client.command(words.next().unwrap());
    command.arg("--complete").args(shell).arg("it").args(words);
    stdout(&command.assert().success().stderr(""))
}

/// What is offered, without the words about it.
fn offered(client: &Client, line: &str) -> Vec<String> {
    let answer = answer(client, &["fish"], line);
    let values = answer.lines().map(|line| line.split('\t').next().unwrap());
    values.map(str::to_owned).collect()
}

/// `git claims`, typed at a terminal.
fn lists_at_a_terminal(client: &Client) {
    let mut terminal = Terminal::new(client, "sh");
    terminal.types("git claims; echo en''d\n");
    terminal.take_until("end");
}

/// The folder for what was seen in a worktree.
fn folder(client: &Client) -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    client.dir().join(format!(".git/claim-seen-{uid}"))
}

/// The only file in it.
fn file(client: &Client) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder(client)).unwrap().collect();
    let [Ok(file)] = &files[..] else {
        panic!("{files:?}");
    };
    file.path()
}

const FREE: [&str; 5] = ["ae1c051b", "d9286661", "537daeba", "862b6f3d", "766dbfeb"];

#[test]
fn each_command_is_offered_the_issues_that_it_takes() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    let elsewhere = alice.at(alice.dir().join("elsewhere"));
    forge.client("bob").ok("git claim 766d");
    assert_eq!(offered(&alice, "git-claim a"), Vec::<String>::new());
    lists_at_a_terminal(&alice);
    alice.ok("git -c user.email=a@example.org commit -q --allow-empty -m x");
    alice.ok("git worktree add -q elsewhere");
    alice.ok("git claim ae1c");
    elsewhere.ok("git claim d928 --ttl 1h");
    let ids = |client: &Client, line: &str| -> Vec<String> {
        let mut offered = offered(client, line);
        offered.retain(|word| FREE.contains(&word.as_str()));
        offered
    };
    let free = ["537daeba", "862b6f3d"];
    for (line, expected) in [
        ("git-claim ", &free[..]),
        ("git-claim --json -t 2h ", &free),
        ("git-claim -- ", &free),
        ("git-claim start ", &free),
        ("git-claim --json start --here ", &free),
        ("git-claim run ", &free),
        ("git-claim run --resume -t 5m ", &free),
        ("git-claim --next ", &[]),
        ("git-claim 537d ", &[]),
        (
            "git-claim --take-over --reason x ",
            &["ae1c051b", "d9286661", "766dbfeb"],
        ),
        ("git-claim renew ", &["ae1c051b"]),
        ("git-claim heartbeat ", &["ae1c051b"]),
        ("git-claim renew ae1c051b ", &[]),
        (
            "git-unclaim --force -- ae1c051b ",
            &["d9286661", "766dbfeb"],
        ),
        (
            "git-unclaim 42 --force 43 ",
            &["ae1c051b", "d9286661", "766dbfeb"],
        ),
        ("git-unclaim ", &["ae1c051b"]),
        (
            "git-unclaim --force ",
            &["ae1c051b", "d9286661", "766dbfeb"],
        ),
        ("git-unclaim --session other ", &[]),
        ("git-claim inspect ", &["ae1c051b", "d9286661"]),
        ("git-claim recover ", &["ae1c051b", "d9286661"]),
        ("git-claim log ", &FREE),
        ("git-claim whoami ", &[]),
        ("git-claim -r nowhere ", &[]),
        ("git-claim -m ", &[]),
        ("git-claim -m log ", &free),
        ("git-claims ", &[]),
    ] {
        assert_eq!(ids(&alice, line), expected, "{line}");
    }
    // The other worktree is another session of the same repository.
    assert_eq!(ids(&elsewhere, "git-unclaim "), ["d9286661"]);
    assert_eq!(ids(&elsewhere, "git-claim "), free);
    elsewhere.ok("git unclaim d928");
    assert_eq!(ids(&alice, "git-claim d"), ["d9286661"]);
    // As much of an id as was typed, and the whole of it where that is more.
    assert_eq!(
        offered(&alice, "git-claim 537daeba-8"),
        ["537daeba-8004-48ff-8610-173fd2746dc5"]
    );
}

#[test]
fn a_shell_is_told_of_words_in_its_own_way() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    forge.client("bob").ok("git claim 766d");
    lists_at_a_terminal(&alice);
    let bash = |kind: &str, width: &str, line: &str| answer(&alice, &["bash", kind, width], line);
    // Only where bash lists does it get titles: else they would be typed.
    assert_eq!(bash("9", "80", "git-claim log 7"), "766dbfeb\n");
    for kind in ["9", "37", "42", ""] {
        let first = bash(kind, "80", "git-claim start ");
        assert_eq!(first.lines().next(), Some("ae1c051b"), "{kind}");
    }
    for kind in ["33", "63", "64"] {
        assert_eq!(bash(kind, "80", "git-claim log 7"), "766dbfeb\n");
        let first = bash(kind, "80", "git-claim start ");
        assert_eq!(first.lines().next(), Some("ae1c051b  Crash on empty input"));
    }
    let narrow = bash("63", "20", "git-claim start ");
    assert_eq!(narrow.lines().next(), Some("ae1c051b  Crash on…"));
    assert_eq!(
        answer(&alice, &["fish"], "git-claim log 7"),
        "766dbfeb\tIn review (bob)\n"
    );
    assert_eq!(
        answer(&alice, &["zsh"], "git-claim log 7"),
        "766dbfeb:In review (bob)\n"
    );
}

#[test]
fn subcommands_options_remotes_and_holders_are_offered() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git remote add upstream ssh://forge/acme/other.git");
    forge.client("bob").ok("git claim 766d");
    alice.ok("git claims -r origin");
    for (line, expected) in [
        ("git-claim re", &["renew", "recover"][..]),
        ("git-claim hea", &["heartbeat"]),
        ("git-claim help re", &["renew", "recover"]),
        ("git-claim 42 re", &[]),
        ("git-claim -- re", &[]),
        ("git-claim completions ", &["bash", "zsh", "fish"]),
        ("git-claim --ta", &["--take-over"]),
        (
            "git-claim log -",
            &[
                "--remote",
                "--session",
                "--json",
                "--quiet",
                "--verbose",
                "--help",
                "--version",
            ],
        ),
        ("git-claim renew --ta", &[]),
        ("git-claim run 42 --ke", &["--keep"]),
        ("git-claim run --next --ke", &["--keep"]),
        ("git-claim start 42 --worktr", &["--worktree"]),
        (
            "git-claims --",
            &[
                "--mine",
                "--holder",
                "--ended",
                "--ready",
                "--watch",
                "--help",
                "--version",
                "--remote",
                "--session",
                "--json",
                "--quiet",
                "--verbose",
            ],
        ),
        ("git-claim -r ", &["origin", "upstream"]),
        ("git-claim --remote=up", &["--remote=upstream"]),
        ("git-claim renew -r up", &["upstream"]),
        ("git-claims -r origin --holder ", &["bob"]),
        ("git-claims -r upstream --holder ", &[]),
    ] {
        assert_eq!(offered(&alice, line), expected, "{line}");
    }
    assert!(!offered(&alice, "git-claim ").contains(&"--ttl".to_owned()));
    assert!(!offered(&alice, "git-claim ").contains(&"heartbeat".to_owned()));
    // Outside of a repository there are options still.
    let nowhere = alice.at(alice.person().home());
    assert_eq!(offered(&nowhere, "git-claim -r "), Vec::<String>::new());
    assert_eq!(offered(&nowhere, "git-claim ren"), ["renew"]);
    // The shell knows better what a command and its words are.
    for line in [
        "git-claim run 42 ma",
        "git-claim run --next ma",
        "git-claim run -t 5m 42 -- make -",
        "git-claim start 42 --worktree ../",
        "git-claim start 42 --worktree=../",
    ] {
        let mut words = line.split(' ');
        let mut command = alice.command(words.next().unwrap());
        command.args(["--complete", "zsh", "it"]).args(words);
        command.assert().code(3).stdout("");
    }
}

#[test]
fn what_is_kept_is_what_the_server_has_shown_to_this_user() {
    let forge = Forge::new();
    let bob = forge.client("bob");
    bob.ok("git claim 766d --note secret");
    let alice = forge.client("alice");
    alice.run("git claim ddf3").code(1);
    assert!(!folder(&alice).exists());
    // A program asks for no more than it needs.
    alice.ok("git claim ae1c");
    alice.ok("git claims --json");
    let text = fs::read_to_string(file(&alice)).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&text).unwrap();
    let issues: Vec<_> = kept["issues"].as_array().unwrap().iter().collect();
    assert_eq!(issues.len(), 2, "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(offered(&alice, "git-claim 7"), Vec::<String>::new());
    alice.run("git claim 862b --take-over --reason x --expected-token 9");
    bob.ok("git unclaim 766d");
    alice.ok("git claims");
    assert_eq!(offered(&alice, "git-claim 7"), ["766dbfeb"]);

    for (path, mode) in [(folder(&alice), 0o700), (file(&alice), 0o600)] {
        let permissions = fs::metadata(path).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o777, mode);
    }
    // Another server's issues are others.
    alice.ok("git remote set-url origin ssh://forge/acme/other.git");
    assert_eq!(offered(&alice, "git-claim 7"), Vec::<String>::new());
    // What nobody may see is not shown, and nothing of it kept.
    let eve = forge.client("eve");
    eve.run("git claims").code(1);
    assert!(!folder(&eve).exists());
}

#[test]
fn what_was_kept_is_never_shown_raw() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c");
    let text = fs::read_to_string(file(&alice)).unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(&text).unwrap();
    let until = serde_json::Value::Null;
    kept["issues"] = json!([
        { "issue": "evil", "title": "\u{1b}[2J\nrm\u{202e}\t`id`" },
        { "issue": "evil2", "title": "x", "held": {
            "holder": "$(touch /tmp/x)", "own": false, "session": null, "until": until } },
        { "issue": "evil3", "title": "x", "held": {
            "holder": "bob\u{9b}", "own": false, "session": null, "until": until } },
    ]);
    fs::write(file(&alice), kept.to_string()).unwrap();
    for shell in [&["bash", "63", "80"][..], &["zsh"], &["fish"]] {
        for line in ["git-claim ", "git-claim log ", "git-claims --holder "] {
            let answer = answer(&alice, shell, line);
            let is_raw = |c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}';
            assert!(!answer.contains(is_raw), "{answer:?}");
            assert!(!answer.contains("\nrm"), "{answer:?}");
        }
    }
    assert!(answer(&alice, &["fish"], "git-claim e").contains("\\u001b[2J\\u000arm"));
    // What a shell would not take for one plain word is not offered to it.
    assert_eq!(
        offered(&alice, "git-claims --holder "),
        Vec::<String>::new()
    );
}

/// An ssh that writes down what is asked of it.
fn listens(client: &Client, and: &str) -> PathBuf {
    let log = client.person().home().join("asked");
    let ssh = client.person().home().join("bin/ssh");
    let real = fs::read_to_string(&ssh).unwrap();
    let real = real.lines().last().unwrap();
    let script = format!("echo \"$*\" >>{}\n{and}\n{real}", log.display());
    client.person().make_program("ssh", &script);
    log
}

#[test]
fn nobody_is_asked() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    alice.ok("git claim ae1c");
    alice.ok("git -c user.email=a@example.org commit -q --allow-empty -m x");
    let log = listens(&alice, "");
    for line in [
        "git-claim ",
        "git-claim -r ",
        "git-claim log ",
        "git-claim start ",
        "git-claim re",
        "git-unclaim ",
        "git-claims --holder ",
        "git-claims -",
    ] {
        answer(&alice, &["fish"], line);
    }
    assert!(!log.exists());
}

#[test]
fn what_is_ready_is_asked_for_at_a_terminal_and_of_servers_that_tell() {
    let forge = Forge::new();
    let alice = forge.client("alice");
    // Without connections that stay open, each request is a call of ssh.
    alice.ok("git config claim.controlPersist no");
    let asked = |log: &PathBuf| {
        let text = fs::read_to_string(log).unwrap_or_default();
        let asked: Vec<bool> = text
            .lines()
            .filter(|line| line.contains("collab-lease list"))
            .map(|line| line.contains("--ready"))
            .collect();
        let _ = fs::remove_file(log);
        asked
    };
    alice.ok("git config core.sshCommand ssh");
    let log = listens(&alice, "");
    alice.ok("git claims");
    assert_eq!(asked(&log), [false]);
    lists_at_a_terminal(&alice);
    assert_eq!(asked(&log), [true]);
    // Not again before a hundred times as long has passed.
    lists_at_a_terminal(&alice);
    assert_eq!(asked(&log), [false]);
    let mut kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(file(&alice)).unwrap()).unwrap();
    kept["ask_again_at"] = json!(1_000_000_000);
    fs::write(file(&alice), kept.to_string()).unwrap();
    lists_at_a_terminal(&alice);
    assert_eq!(asked(&log), [true]);

    // A server that does not know the option still lists, and is not asked again
    // soon.
    forge.client("bob").ok("git claim 766d");
    let bob = forge.person("alice").worktree("ssh://forge/acme/app.git");
    bob.ok("git config core.sshCommand ssh");
    let old =
        "case $* in *--ready*) echo \"error: list has no option '--ready'\" >&2; exit 1;; esac";
    let log = listens(&bob, old);
    let mut terminal = Terminal::new(&bob, "sh");
    terminal.types("git claims; echo en''d\n");
    let shown = terminal.take_until("end");
    assert!(
        shown.contains("In review") && !shown.contains("error"),
        "{shown}"
    );
    assert_eq!(asked(&log), [true, false]);
    lists_at_a_terminal(&bob);
    assert_eq!(asked(&log), [false]);
    assert_eq!(offered(&bob, "git-claim log "), ["766dbfeb"]);
}

#[test]
fn whoever_installed_by_hand_loads_them_by_hand() {
    let dir = TempDir::new().unwrap();
    let person = Person::new("ann", dir.path().to_owned());
    person.make_home();
    for (shell, script) in [
        (
            &["bash", "--norc", "-euc"][..],
            "source <(git claim completions bash)
             for name in git-claim git-claims git-unclaim; do complete -p $name; done
             declare -F _git_claim _git_claims _git_unclaim",
        ),
        (
            &["zsh", "-fec"],
            "autoload -Uz compinit; compinit -u -D
             source <(git claim completions zsh)
             for name in git-claim git-claims git-unclaim; do
                 [[ $_comps[$name] == _$name ]] && whence -v _$name
             done",
        ),
        (
            &["fish", "--no-config", "-c"],
            "git claim completions fish | source
             for name in git-claim git-claims git-unclaim
                 complete -c $name | string match -q \"*_offer*\"; or exit 1
             end; echo git-claim",
        ),
    ] {
        let mut command = person.command(shell[0], dir.path());
        let assert = command.args(&shell[1..]).arg(script).assert().success();
        assert!(stdout(&assert).contains("git"), "{shell:?}");
    }
}

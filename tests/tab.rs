//! TAB in the shells themselves: each on a terminal, with what `make install`
//! installs.

use assert_fs::TempDir;

use crate::install::make;
use crate::support::client::Client;
use crate::support::forge::{Forge, git, url};
use crate::support::terminal::Terminal;

/// A shell that somebody types into.
struct Shell {
    terminal: Terminal,
    /// What makes it list all that fits.
    list: &'static str,
    steps: usize,
}

impl Shell {
    fn bash(client: &Client, share: &str) -> Shell {
        let mut shell = Shell::start(client, share, "bash --norc --noprofile -i", "\t\t");
        shell.runs("PS1='rea''dy> '");
        shell.runs("bind 'set completion-query-items 0'; bind 'set page-completions off'");
        shell.runs("source /usr/share/bash-completion/bash_completion");
        shell
    }

    fn zsh(client: &Client, share: &str) -> Shell {
        let mut shell = Shell::start(client, share, "zsh -f -i", "\t");
        shell.runs("PS1='rea''dy> '");
        shell.runs(&format!("fpath=({share}/zsh/site-functions $fpath)"));
        shell.runs("autoload -Uz compinit; compinit -u -D");
        shell
    }

    fn fish(client: &Client, share: &str) -> Shell {
        // Else fish would go through all manual pages at its first start.
        let data = client
            .person()
            .home()
            .join("data/fish/generated_completions");
        std::fs::create_dir_all(data).unwrap();
        let mut shell = Shell::start(client, share, "fish -i", "\t");
        shell.runs("function fish_prompt; echo -n 'rea''dy> '; end");
        shell.runs("set -g fish_autosuggestion_enabled 0");
        shell
    }

    fn start(client: &Client, share: &str, program: &str, list: &'static str) -> Shell {
        let data = client.person().home().join("data");
        let program = format!(
            "env LC_ALL=C.UTF-8 XDG_DATA_HOME={} XDG_DATA_DIRS={share}:/usr/share {program}",
            data.display()
        );
        Shell {
            terminal: Terminal::new(client, &program),
            list,
            steps: 0,
        }
    }

    /// Runs a command, and gives what was shown until it had ended.
    fn runs(&mut self, line: &str) -> String {
        self.steps += 1;
        // What is typed is shown too, but not in this form.
        self.terminal
            .types(&format!("{line}; echo en''d{}\n", self.steps));
        let shown = self.terminal.take_until(&format!("end{}", self.steps));
        // Keys that come before the shell listens are the terminal's to interpret.
        self.terminal.take_until("ready> ");
        shown
    }

    /// What is listed at a TAB behind `line`, all of `expected` among it.
    fn lists(&mut self, line: &str, expected: &[&str]) -> String {
        self.terminal.types(&format!("{line}{}", self.list));
        // Ctrl-U takes the line away.
        let listed = self.runs("\x15true");
        for text in expected {
            assert!(
                listed.contains(text),
                "{line}: {text:?} is missing:\n{listed}"
            );
        }
        listed
    }

    /// Runs `line` once a TAB has completed it, so that `shown` appears.
    fn completes(&mut self, line: &str, shown: &str) {
        self.terminal.types(&format!("{line}\t"));
        let text = self.runs("");
        assert!(
            text.contains(shown),
            "{line}: {shown:?} is missing:\n{text}"
        );
    }
}

const TITLES: [&str; 3] = [
    "Crash on empty input",
    "New title",
    "Closed and opened again",
];

fn completes(start: impl Fn(&Client, &str) -> Shell) {
    let dir = TempDir::new().unwrap();
    make("install", dir.path());
    let share = dir.path().join("usr/share").display().to_string();

    let forge = Forge::new();
    forge.client("bob").ok("git claim 766d");
    let tools = forge.add_repo("acme/tools.git");
    let tree = git(&tools, &["mktree"]);
    let saw = git(&tools, &["commit-tree", &tree, "-m", "Sharpen the saw"]);
    git(
        &tools,
        &[
            "update-ref",
            "refs/issues/5a3b2c1d-0000-4000-8000-000000000000",
            &saw,
        ],
    );
    let alice = forge.person("alice");
    let app = alice.worktree(&url("acme/app.git"));
    let tools = alice.worktree(&url("acme/tools.git"));
    std::fs::rename(tools.dir(), alice.home().join("the tools")).unwrap();

    let mut shell = start(&app, &share);
    shell.runs("git claims");
    shell.runs("git -C '../the tools' claims");

    // What is free, with its title, and the subcommands.
    for line in ["git claim ", "git-claim ", "git claim start "] {
        let listed = shell.lists(line, &TITLES);
        for title in ["In review", "Sharpen the saw", "--ttl"] {
            assert!(!listed.contains(title), "{line}: {listed}");
        }
        assert_eq!(
            listed.contains("renew"),
            !line.contains("start"),
            "{listed}"
        );
    }
    let listed = shell.lists(
        "git -C '../the tools' claim ",
        &["Sharpen the saw", "renew"],
    );
    assert!(!listed.contains("New title"), "{listed}");
    shell.lists("git claim", &["claims"]);
    shell.lists("git claim --", &["--take-over", "--remote"]);
    shell.lists("git claims --", &["--holder", "--remote"]);

    shell.completes("git claim ae1", "claimed ae1c051b");
    shell.completes("git-claim 862b", "claimed 862b6f3d");
    shell.completes("git -C '../the tools' claim 5", "claimed 5a3b2c1d");
    // Mine, and nobody else's.
    for line in ["git unclaim ", "git-unclaim ", "git claim renew "] {
        let listed = shell.lists(line, &TITLES[..2]);
        assert!(!listed.contains("opened again"), "{line}: {listed}");
    }
    shell.completes("git -C '../the tools' unclaim ", "released 5a3b2c1d");
    shell.completes("git-unclaim 8", "released 862b6f3d");
    shell.completes("git claim ren", "no claim is bound");
    // Who holds what, and which server is asked.
    shell.completes("git claims --holder b", "In review");
    shell.completes("git claims --holder=b", "In review");
    shell.completes("git-claims -r o", "In review");
    shell.completes("git claims --mi", "Crash on empty input");
    // The words of a command are the shell's to complete.
    std::fs::write(app.dir().join("saw.txt"), "it works").unwrap();
    shell.completes("git claim run 537d -- cat saw", "it works");
    shell.completes("git-claim run 537d cat sa", "it works");
}

#[test]
fn bash_completes() {
    completes(Shell::bash);
}

#[test]
fn zsh_completes() {
    completes(Shell::zsh);
}

#[test]
fn fish_completes() {
    completes(Shell::fish);
}

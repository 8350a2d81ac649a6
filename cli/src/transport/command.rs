//! The ssh command that git would run, by git's own rules: for where the user
//! has set one.

use std::fs::File;
use std::io::IsTerminal as _;
use std::process::Stdio;

use git_claim_api::text::escape;
use tokio::process::Command;

use super::line::Line;
use super::words::{Login, Trouble};
use super::{open, run};
use crate::answer::Answer;
use crate::git::Config;
use crate::url::Ssh;

/// A way to run ssh.
#[derive(Debug)]
pub struct SshCommand {
    ssh: Ssh,
    program: Program,
    variant: Option<Variant>,
    options: Vec<&'static str>,
    without: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    /// Words for a shell: `GIT_SSH_COMMAND`.
    Shell(String),
    /// A program's name alone: `GIT_SSH`.
    Plain(String),
}

/// What is run where nobody has set anything.
const PLAIN: &str = "ssh";

/// Whose options a program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    OpenSsh,
    /// Also PuTTY.
    Plink,
    TortoisePlink,
    /// Host and command, and no options at all.
    Simple,
}

impl SshCommand {
    /// What the user has set, if anything.
    pub fn configured(ssh: &Ssh, config: &Config, without: &[String]) -> Option<SshCommand> {
        let set = |variable: &str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let program = choose(&set, config.get("core.sshcommand"))?;
        let named = set("GIT_SSH_VARIANT").or_else(|| config.get("ssh.variant").map(str::to_owned));
        let variant = match named.as_deref() {
            Some(name) if name != "auto" => Some(variant_named(name)),
            _ => variant_of(&program),
        };
        Some(SshCommand {
            ssh: ssh.clone(),
            program,
            variant,
            options: Vec::new(),
            without: without.to_vec(),
        })
    }

    /// Plain `ssh`.
    pub fn plain(ssh: &Ssh, without: &[String]) -> SshCommand {
        SshCommand {
            ssh: ssh.clone(),
            program: Program::Plain(PLAIN.to_owned()),
            variant: Some(Variant::OpenSsh),
            options: Vec::new(),
            without: without.to_vec(),
        }
    }

    /// The same, never asking and never taking an unknown host key.
    pub fn strict(mut self) -> SshCommand {
        self.options = vec!["-oBatchMode=yes", "-oStrictHostKeyChecking=yes"];
        self
    }

    pub async fn ask(&mut self, line: &str) -> Result<Answer, Trouble> {
        let answer = run(&mut self.command_for(line).await?)
            .await
            .map_err(cannot_be_run)?;
        self.judge(answer)
    }

    pub async fn open(&mut self, line: &str) -> Result<Line, Trouble> {
        open(&mut self.command_for(line).await?).map_err(cannot_be_run)
    }

    /// The answer, unless it is ssh's own.
    pub fn judge(&self, answer: Answer) -> Result<Answer, Trouble> {
        if answer.code == Some(255) && answer.stdout.is_empty() {
            let said = String::from_utf8_lossy(&answer.stderr);
            return Err(Trouble::running(&said, &self.login()));
        }
        Ok(answer)
    }

    fn login(&self) -> Login {
        let (program, is_set) = match &self.program {
            Program::Shell(words) => (words, true),
            Program::Plain(name) => (name, name != PLAIN),
        };
        Login {
            program: escape(program),
            is_set,
            destination: destination(&self.ssh, self.port_option()),
        }
    }

    fn port_option(&self) -> &'static str {
        match self.variant {
            Some(Variant::Plink | Variant::TortoisePlink) => "-P",
            Some(Variant::OpenSsh | Variant::Simple) | None => "-p",
        }
    }

    async fn command_for(&mut self, line: &str) -> Result<Command, Trouble> {
        let variant = match self.variant {
            Some(variant) => variant,
            None => {
                let variant = self.probe().await;
                self.variant = Some(variant);
                variant
            }
        };
        Ok(self.command(self.arguments(variant, line)?))
    }

    /// What git passes: options, host, and the command as one argument.
    fn arguments(&self, variant: Variant, line: &str) -> Result<Vec<String>, Trouble> {
        let mut arguments: Vec<String> = self.options.iter().map(|&o| o.to_owned()).collect();
        if variant == Variant::TortoisePlink {
            arguments.push("-batch".to_owned());
        }
        if let Some(port) = self.ssh.port {
            let option = match variant {
                Variant::OpenSsh => "-p",
                Variant::Plink | Variant::TortoisePlink => "-P",
                Variant::Simple => {
                    return Err(Trouble::Unreachable {
                        words: "the ssh variant 'simple' does not support setting a port"
                            .to_owned(),
                        hint: "`git config ssh.variant ssh` says that it is like OpenSSH"
                            .to_owned(),
                    });
                }
            };
            arguments.push(option.to_owned());
            arguments.push(port.to_string());
        }
        arguments.push(self.ssh.host.clone());
        arguments.push(line.to_owned());
        Ok(arguments)
    }

    /// Asks an unknown program, as git does, whether it takes OpenSSH's `-G`.
    async fn probe(&self) -> Variant {
        let mut arguments = vec!["-G".to_owned()];
        if let Some(port) = self.ssh.port {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        arguments.push(self.ssh.host.clone());
        let status = self
            .command(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await;
        match status {
            Ok(status) if status.success() => Variant::OpenSsh,
            _ => Variant::Simple,
        }
    }

    fn command(&self, arguments: Vec<String>) -> Command {
        let mut command = match &self.program {
            Program::Plain(name) => Command::new(name),
            Program::Shell(words) if !needs_shell(words) => Command::new(words),
            Program::Shell(words) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{words} \"$@\""), words]);
                shell
            }
        };
        for variable in &self.without {
            command.env_remove(variable);
        }
        command.args(arguments);
        command
    }
}

fn cannot_be_run(error: std::io::Error) -> Trouble {
    Trouble::Unreachable {
        words: format!("ssh cannot be run: {error}"),
        hint: "is OpenSSH installed, and what is GIT_SSH_COMMAND?".to_owned(),
    }
}

/// The program that is set first; ours before git's.
fn choose(set: &impl Fn(&str) -> Option<String>, configured: Option<&str>) -> Option<Program> {
    set("GIT_CLAIM_SSH_COMMAND")
        .or_else(|| set("GIT_SSH_COMMAND"))
        .or_else(|| {
            configured
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        })
        .map(Program::Shell)
        .or_else(|| set("GIT_SSH").map(Program::Plain))
}

/// Whether anything in `words` means something to a shell; the list is git's.
fn needs_shell(words: &str) -> bool {
    words
        .chars()
        .any(|c| "|&;<>()$`\\\"' \t\n*?[#~=%".contains(c))
}

fn variant_named(name: &str) -> Variant {
    match name {
        "plink" | "putty" => Variant::Plink,
        "tortoiseplink" => Variant::TortoisePlink,
        "simple" => Variant::Simple,
        _ => Variant::OpenSsh,
    }
}

/// The variant that a program's name tells; `None`: it must be probed.
fn variant_of(program: &Program) -> Option<Variant> {
    let name = match program {
        Program::Plain(name) => name.as_str(),
        Program::Shell(words) => first_word(words),
    };
    let base = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    match base.strip_suffix(".exe").unwrap_or(&base) {
        "ssh" => Some(Variant::OpenSsh),
        "plink" => Some(Variant::Plink),
        "tortoiseplink" => Some(Variant::TortoisePlink),
        _ => None,
    }
}

fn first_word(words: &str) -> &str {
    let words = words.trim_start();
    match words.chars().next() {
        Some(quote @ ('\'' | '"')) => words[1..].split(quote).next().unwrap_or_default(),
        _ => words.split_whitespace().next().unwrap_or_default(),
    }
}

/// What one types after the program to get there.
pub fn destination(ssh: &Ssh, port_option: &str) -> String {
    let host = escape(&ssh.host);
    match ssh.port {
        Some(port) => format!("{port_option} {port} {host}"),
        None => host,
    }
}

/// Whether a passphrase can be asked for: at a terminal, or by a program with a
/// window (ssh(1), `SSH_ASKPASS`).
pub fn somebody_can_type() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_forced = std::env::var_os("SSH_ASKPASS_REQUIRE").is_some_and(|value| value == "force");
    let has_display = set("DISPLAY") || set("WAYLAND_DISPLAY");
    let askpass = set("SSH_ASKPASS") && (has_display || is_forced);
    let terminal = std::io::stderr().is_terminal() && File::open("/dev/tty").is_ok();
    askpass || terminal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(port: Option<u16>) -> Ssh {
        Ssh {
            host: "git@h".to_owned(),
            port,
            path: "p".to_owned(),
        }
    }

    #[test]
    fn the_first_that_is_set_counts() {
        let shell = |words: &str| Some(Program::Shell(words.to_owned()));
        for (environment, configured, expected) in [
            (&[][..], None, None),
            (
                &[("GIT_SSH", "/a b/ssh")],
                None,
                Some(Program::Plain("/a b/ssh".into())),
            ),
            (&[("GIT_SSH", "x")], Some("y"), shell("y")),
            (
                &[("GIT_SSH_COMMAND", "z"), ("GIT_SSH", "x")],
                Some("y"),
                shell("z"),
            ),
            (
                &[("GIT_CLAIM_SSH_COMMAND", "w"), ("GIT_SSH_COMMAND", "z")],
                Some("y"),
                shell("w"),
            ),
        ] {
            let set = |name: &str| {
                environment
                    .iter()
                    .find(|(variable, _)| *variable == name)
                    .map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(choose(&set, configured), expected);
        }
    }

    #[test]
    fn a_name_tells_the_variant() {
        for (words, variant) in [
            ("ssh", Some(Variant::OpenSsh)),
            ("/usr/bin/ssh -i key", Some(Variant::OpenSsh)),
            ("'/a b/plink.exe' -x", Some(Variant::Plink)),
            ("TortoisePlink.exe", Some(Variant::TortoisePlink)),
            ("my-wrapper", None),
        ] {
            assert_eq!(
                variant_of(&Program::Shell(words.into())),
                variant,
                "{words}"
            );
        }
    }

    #[test]
    fn options_are_those_of_the_variant() {
        let command = SshCommand::plain(&ssh(Some(22)), &[]);
        for (variant, expected) in [
            (Variant::OpenSsh, Some("-p 22 git@h do it")),
            (Variant::Plink, Some("-P 22 git@h do it")),
            (Variant::TortoisePlink, Some("-batch -P 22 git@h do it")),
            (Variant::Simple, None),
        ] {
            let arguments = command.arguments(variant, "do it").ok();
            assert_eq!(arguments.map(|a| a.join(" ")).as_deref(), expected);
        }
        let command = SshCommand::plain(&ssh(None), &[]);
        let arguments = command.arguments(Variant::Simple, "do it").unwrap();
        assert_eq!(arguments, ["git@h", "do it"]);
    }
}

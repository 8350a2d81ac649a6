//! The command line of `git-claim-server`, which is the admin's.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::admin;
use crate::cgi;
use crate::forgejo;
use crate::gitolite;
use crate::hook;
use crate::local;
use crate::openssh::{self, Forced};
use crate::principal::Name;
use crate::report::Failure;
use crate::ssh_key::Fingerprint;

/// Serves `collab-lease` behind an SSH forge, and helps its administrator.
#[derive(Debug, Parser)]
#[command(name = "git-claim-server", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Serve a request behind a forced command of OpenSSH.
    #[command(after_help = "\
In authorized_keys, on one line:
  restrict,command=\"git-claim-server openssh --as alice\" ssh-ed25519 AAAA…")]
    Openssh {
        #[command(flatten)]
        settings: SettingsFile,
        /// Whose key this line is; else `ExposeAuthInfo yes` has to tell.
        #[arg(long = "as", value_name = "NAME")]
        name: Option<Name>,
        /// The key's fingerprint, as AuthorizedKeysCommand gets it in %f.
        #[arg(long, value_name = "SHA256:…")]
        key: Option<Fingerprint>,
    },
    /// Serve a request as gitolite's command collab-lease.
    #[command(after_help = "\
In LOCAL_CODE/commands/collab-lease, with 'collab-lease', in ENABLE:
  exec git-claim-server gitolite -- \"$@\"")]
    Gitolite {
        #[command(flatten)]
        settings: SettingsFile,
        /// The client's words behind the verb.
        #[arg(last = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Serve claims in front of Forgejo's or Gitea's own command.
    #[command(after_help = "\
In the forge's app.ini, in the section [server], on one line:
  SSH_AUTHORIZED_KEYS_COMMAND_TEMPLATE = /usr/local/bin/git-claim-server forgejo -- \
{{.AppPath}} --config={{.CustomConf}} serv key-{{.Key.ID}}")]
    Forgejo {
        #[command(flatten)]
        settings: SettingsFile,
        /// The command that the forge puts into authorized_keys by itself.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        original: Vec<OsString>,
    },
    /// Serve a request on this machine, as git-claim does for a local path.
    Local {
        #[command(flatten)]
        settings: SettingsFile,
    },
    /// Show who holds what to a web browser, as a CGI program.
    #[command(after_help = "\
Two lines that a web server runs as the owner of the repositories, without
handing any words on:
  #!/bin/sh
  exec git-claim-server cgi")]
    Cgi {
        #[command(flatten)]
        settings: SettingsFile,
    },
    /// Do what git's hooks behind a push are for; `setup` puts it in place.
    Hook {
        #[command(flatten)]
        settings: SettingsFile,
        /// The host behind which the push comes in.
        #[arg(long, value_enum)]
        kind: hook::Kind,
        /// Which hook it is.
        #[arg(value_enum)]
        when: hook::When,
    },
    /// Put the hooks behind a push into a repository, and let it take push
    /// options.
    Setup {
        #[command(flatten)]
        settings: SettingsFile,
        /// The host behind which pushes come in.
        #[arg(long, value_enum, default_value_t)]
        kind: hook::Kind,
        /// The repository, as a client would name it.
        repo: String,
    },
    /// Say what is wrong with the setup.
    Check {
        #[command(flatten)]
        settings: SettingsFile,
        /// Look at this repository too, as a client would name it.
        repo: Option<String>,
        /// Say what this principal may do, and why.
        #[arg(long = "as", value_name = "NAME")]
        name: Option<Name>,
        /// The host that claims are served behind.
        #[arg(long, value_enum, default_value_t)]
        kind: hook::Kind,
    },
    /// Carry the claims of a repository along to its new name.
    Rename {
        #[command(flatten)]
        settings: SettingsFile,
        /// The repository's id, as replies show it.
        old: String,
        /// The new one, as a client would name it.
        new: String,
    },
    /// Make an empty ledger in the etcd cluster that claim.ledger names.
    Init {
        #[command(flatten)]
        settings: SettingsFile,
    },
    /// Move the ledger to another place, with all claims and their history.
    #[command(after_help = "\
A place is a file or etcd://host:2379,host:2379/prefix. From its beginning the
ledger at FROM takes no change any more, and in the end it says where it went.
What was not finished can be run again.")]
    Migrate {
        #[command(flatten)]
        settings: SettingsFile,
        /// Where the ledger is.
        from: String,
        /// Where it is to be; nothing may be there yet.
        to: String,
    },
    /// Copy the ledger to a new file, while it is in use.
    Backup {
        #[command(flatten)]
        settings: SettingsFile,
        /// Where to; nothing may be there yet.
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct SettingsFile {
    /// The settings file; else /etc/git-claim/config, else
    /// ~/.config/git-claim/config.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SettingsFile {
    /// The file as an admin means it, who types in some folder.
    fn typed(self) -> Result<Option<PathBuf>, Failure> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path)
                .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
        };
        self.config.map(absolute).transpose()
    }
}

/// The definition of the command line, for the manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// The program.
pub fn main() -> ExitCode {
    match refuse_to_be_a_clients().and_then(|()| run(Cli::parse().kind)) {
        Ok(code) => code.into(),
        Err(failure) => failure.print().into(),
    }
}

fn run(kind: Kind) -> Result<u8, Failure> {
    match kind {
        Kind::Openssh {
            settings,
            name,
            key,
        } => openssh::run(&Forced {
            config: settings.config,
            name,
            key,
        }),
        Kind::Gitolite { settings, words } => gitolite::run(settings.config.as_deref(), &words),
        Kind::Forgejo { settings, original } => forgejo::run(settings.config.as_deref(), &original),
        Kind::Local { settings } => local::run(settings.config.as_deref()),
        Kind::Cgi { settings } => cgi::run(settings.config.as_deref()),
        Kind::Hook {
            settings,
            kind,
            when,
        } => hook::run(kind, settings.config.as_deref(), when),
        Kind::Setup {
            settings,
            kind,
            repo,
        } => admin::setup::run(kind, settings.typed()?.as_deref(), &repo),
        Kind::Check {
            settings,
            repo,
            name,
            kind,
        } => Ok(admin::check::run(
            kind,
            settings.typed()?.as_deref(),
            repo.as_deref(),
            name.as_ref(),
        )),
        Kind::Rename { settings, old, new } => {
            admin::rename::run(settings.typed()?.as_deref(), &old, &new)
        }
        Kind::Init { settings } => admin::init::run(settings.typed()?.as_deref()),
        Kind::Migrate { settings, from, to } => {
            admin::migrate::run(settings.typed()?.as_deref(), &from, &to)
        }
        Kind::Backup { settings, file } => admin::backup::run(settings.typed()?.as_deref(), &file),
    }
}

/// The folder from which git-shell lets a client run programs, with words of
/// the client's choice.
const CLIENTS_FOLDER: &str = "git-shell-commands";

/// Refuses to run where a client could write `--as root`.
fn refuse_to_be_a_clients() -> Result<(), Failure> {
    let called = std::env::args_os().next().map(PathBuf::from);
    let program = std::env::current_exe().ok();
    let here = |path: Option<PathBuf>| path.is_some_and(|path| is_the_clients(&path));
    if !here(called) && !here(program) {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "git-claim-server does not run from {CLIENTS_FOLDER}, where clients choose its options"
    ))
    .hint("put collab-lease there instead"))
}

fn is_the_clients(program: &Path) -> bool {
    program
        .parent()
        .and_then(Path::file_name)
        .is_some_and(|folder| folder == OsStr::new(CLIENTS_FOLDER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn an_unknown_kind_or_a_bad_name_is_a_usage_error() {
        for args in [
            vec!["x"],
            vec!["x", "github"],
            vec!["x", "gitolite", "list", "r"],
            vec!["x", "forgejo"],
            vec!["x", "forgejo", "serv", "key-1"],
            vec!["x", "openssh", "--as", "@devs"],
            vec!["x", "openssh", "--as", ""],
            vec!["x", "openssh", "--key", "MD5:00"],
            vec!["x", "openssh", "alice"],
            vec!["x", "openssh", "--as", "a", "--as", "b"],
            vec!["x", "local", "--as", "alice"],
            vec!["x", "rename", "a.git"],
        ] {
            let error = Cli::try_parse_from(&args).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{args:?}");
        }
    }

    #[test]
    fn a_clients_folder_is_known_by_its_name() {
        for (path, clients) in [
            ("git-shell-commands/git-claim-server", true),
            ("/home/git/git-shell-commands/git-claim-server", true),
            ("/usr/bin/git-claim-server", false),
            ("git-claim-server", false),
        ] {
            assert_eq!(is_the_clients(Path::new(path)), clients, "{path}");
        }
    }
}

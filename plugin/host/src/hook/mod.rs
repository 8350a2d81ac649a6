//! git's own hooks behind a push: pre-receive asks the plugin whether the push
//! may pass, post-receive which claims it has done with.
//!
//! Nothing unclaimed is ever in the way: where the claims cannot be looked at,
//! only a push that shows a token or moves a branch named after an issue is
//! refused.

mod place;
mod pusher;

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use git_claim_api::exit::Exit;
use git_claim_api::push::{Fence, Push, Update};
use git_claim_api::reply::{FenceReply, SettleReply};
use git_claim_api::text::escape;
use git_claim_api::verb::{RepoArg, Request};

use self::place::Place;
use crate::host::Input;
use crate::kept::Kept;
use crate::log::{Level, log};
use crate::report::Failure;
use crate::request::Job;
use crate::watchdog::Watchdog;

/// Behind which forge a hook runs. It is fixed when the hook is set up, and only
/// that forge's variables are read: others a client may be able to set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    #[default]
    Openssh,
    Gitolite,
    Forgejo,
    Local,
}

impl Kind {
    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Openssh => "openssh",
            Kind::Gitolite => "gitolite",
            Kind::Forgejo => "forgejo",
            Kind::Local => "local",
        }
    }
}

/// Which hook it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    PreReceive,
    PostReceive,
}

impl When {
    /// The hook's file name.
    pub const fn name(self) -> &'static str {
        match self {
            When::PreReceive => "pre-receive",
            When::PostReceive => "post-receive",
        }
    }
}

/// Does what the hook is for, with the refs on stdin. The exit code is git's to
/// read: 0, or 1 to refuse the push.
///
/// # Errors
/// What git hands over is not understood.
pub fn run(kind: Kind, config: Option<&Path>, when: When) -> Result<u8, Failure> {
    let push = Push {
        pusher: None,
        options: options(),
        updates: updates(io::stdin().lock()).map_err(Failure::refused)?,
    };
    let hook = Hook {
        kind,
        config,
        git_dir: git_dir().map_err(Failure::refused)?,
    };
    Ok(match when {
        When::PreReceive => hook.pre_receive(push),
        When::PostReceive => hook.post_receive(push),
    })
}

struct Hook<'a> {
    kind: Kind,
    config: Option<&'a Path>,
    git_dir: PathBuf,
}

impl Hook<'_> {
    fn pre_receive(&self, push: Push) -> u8 {
        let fence = match fence(&self.git_dir) {
            Ok(Fence::Off) => return Exit::Done.code(),
            Ok(fence) => fence,
            // The plugin says the same, and nobody passes by a typing error.
            Err(_) => Fence::On,
        };
        let must_ask = fence != Fence::Warn && push.needs_the_ledger();
        let asked = self.ask(
            push,
            |repo| Request::Fence { repo },
            move |failure| without_ledger(failure, must_ask),
        );
        let reply: FenceReply = match asked {
            Ok(reply) => reply,
            Err(failure) => return without_ledger(&failure, must_ask),
        };
        let refused = reply.status == "refused";
        let mut text = String::new();
        for objection in &reply.objections {
            let kind = if refused { "error" } else { "warning" };
            text.push_str(&format!(
                "{kind}: {}\nhint: {}\n",
                escape(&objection.error),
                escape(&objection.hint)
            ));
        }
        tell(&text);
        u8::from(refused)
    }

    /// What was pushed stays pushed, whatever comes of this.
    fn post_receive(&self, push: Push) -> u8 {
        let asked = self.ask(
            push,
            |repo| Request::Settle { repo },
            |failure| {
                log(Level::Warn, &format!("post-receive: {}", failure.error));
                tell(&format!(
                    "warning: it is not known which claims this push has released: {}\n",
                    escape(&failure.error)
                ));
                Exit::Done.code()
            },
        );
        let reply: SettleReply = match asked {
            Ok(reply) => reply,
            Err(failure) => {
                not_settled(&failure);
                return Exit::Done.code();
            }
        };
        let mut text = String::new();
        for ended in &reply.ended {
            text.push_str(&format!(
                "{}'s claim on issue {} is released: {}\n",
                escape(&ended.holder),
                ended.issue,
                escape(&ended.why)
            ));
        }
        tell(&text);
        Exit::Done.code()
    }

    /// Asks the plugin about the push. `late` is for a ledger that does not
    /// answer at all: it ends the process with its exit code.
    fn ask<T: serde::de::DeserializeOwned>(
        &self,
        mut push: Push,
        request: impl FnOnce(RepoArg) -> Request,
        late: impl FnOnce(&Failure) -> u8 + Send + 'static,
    ) -> Result<T, Failure> {
        let watchdog = Watchdog::start_with(late).map_err(Failure::not_now)?;
        let asked = (|| {
            let place = Place::find(self.kind, self.config, &self.git_dir)?;
            push.pusher = pusher::find(self.kind, &place.settings);
            let command = request(place.id.parse().map_err(Failure::refused)?).command();
            let job = Job {
                settings: &place.settings,
                ledger: place.ledger.clone(),
                command: command.as_bytes(),
                // The pusher is told with the push: there may be none.
                user: "hook",
                key: "",
                of_host: true,
            };
            let told = Told::new(&push).map_err(Failure::not_now)?;
            let kept = Kept::default();
            let exit = job.run_with(&place, &kept, &told)?;
            if exit == Exit::Done.code() || exit == Exit::Conflict.code() {
                return kept.reply();
            }
            Err(Failure::not_now(kept.complaint()))
        })();
        if !watchdog.settle() {
            // The watchdog is just ending the process.
            loop {
                std::thread::park();
            }
        }
        asked
    }
}

/// The answer to a push where the claims cannot be looked at.
fn without_ledger(failure: &Failure, must_ask: bool) -> u8 {
    let (kind, hint) = if must_ask {
        (
            "error",
            "nothing was pushed; try again later. A push that shows no claim-token and moves no \
             claim/* branch passes meanwhile",
        )
    } else {
        ("warning", "the push passes without a look at the claims")
    };
    log(Level::Warn, &format!("pre-receive: {}", failure.error));
    tell(&format!(
        "{kind}: the claims here cannot be looked at: {}\nhint: {hint}\n",
        escape(&failure.error)
    ));
    u8::from(must_ask)
}

fn not_settled(failure: &Failure) {
    log(Level::Warn, &format!("post-receive: {}", failure.error));
    tell(&format!(
        "warning: no claim was released by this push: {}\n",
        escape(&failure.error)
    ));
}

/// git shows it to the one who pushes. Nobody is left to tell when stderr is
/// gone.
fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The repository's setting, before anything else is read.
fn fence(git_dir: &Path) -> Result<Fence, Failure> {
    let config = git2::Config::open(&git_dir.join("config")).map_err(Failure::not_now)?;
    match config.get_string("claim.fence") {
        Ok(value) => value.parse().map_err(Failure::not_now),
        Err(_) => Ok(Fence::default()),
    }
}

/// The git directory, in which git runs its hooks.
fn git_dir() -> io::Result<PathBuf> {
    let named = std::env::var_os("GIT_DIR").unwrap_or_else(|| OsString::from("."));
    Path::new(&named).canonicalize()
}

/// The refs that git says move.
fn updates(stdin: impl io::BufRead) -> Result<Vec<Update>, String> {
    let mut updates = Vec::new();
    for line in stdin.split(b'\n') {
        let line = line.map_err(|error| error.to_string())?;
        // A claim's branch is UTF-8, and no other ref is looked at.
        let line = String::from_utf8_lossy(&line);
        if !line.is_empty() {
            updates.push(line.parse().map_err(|error| format!("{error}"))?);
        }
    }
    Ok(updates)
}

/// The push options, as git hands them to its hooks.
fn options() -> Vec<String> {
    let count = std::env::var("GIT_PUSH_OPTION_COUNT")
        .ok()
        .and_then(|count| count.parse::<usize>().ok())
        .unwrap_or(0);
    (0..count)
        .map_while(|n| std::env::var_os(format!("GIT_PUSH_OPTION_{n}")))
        .map(|option| String::from_utf8_lossy(option.as_bytes()).into_owned())
        .collect()
}

/// The push, as the plugin reads it.
struct Told {
    lines: Vec<u8>,
    read: Cell<usize>,
}

impl Told {
    fn new(push: &Push) -> Result<Told, serde_json::Error> {
        let mut lines = Vec::new();
        for fact in push.facts() {
            serde_json::to_writer(&mut lines, &fact)?;
            lines.push(b'\n');
        }
        Ok(Told {
            lines,
            read: Cell::new(0),
        })
    }
}

impl Input for Told {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut left = &self.lines[self.read.get()..];
        let got = io::Read::read(&mut left, buffer)?;
        self.read.set(self.read.get() + got);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_are_read_whatever_they_are_called() {
        let (zero, one) = ("0".repeat(40), "1".repeat(40));
        let lines = [
            format!("{zero} {one} refs/heads/a\n").into_bytes(),
            [one.as_bytes(), b" ", zero.as_bytes(), b" refs/heads/\xff\n"].concat(),
        ];
        let updates = updates(lines.concat().as_slice()).unwrap();
        assert_eq!(updates.len(), 2);
        assert_eq!(updates[1].reference, "refs/heads/\u{fffd}");
        assert!(super::updates(b"garbage\n".as_slice()).is_err());
    }

    #[test]
    fn without_the_ledger_only_what_claims_could_concern_is_refused() {
        let failure = Failure::not_now("the ledger is busy");
        assert_eq!(without_ledger(&failure, true), 1);
        assert_eq!(without_ledger(&failure, false), 0);
    }
}

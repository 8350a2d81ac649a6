//! One request, the same way for every kind: load the plugin, open the ledger,
//! hand the command over, pass the exit code on.

use std::cell::Cell;
use std::io;
use std::net::IpAddr;

use git_claim_api::REQUEST_DEADLINE_MS;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::verb::Request;

use crate::abi::{self, CallError, Instance, OpenError, Plugin};
use crate::host::{Host, Input, NoInput, Output, Stream, reader_has_gone};
use crate::log::{Level, log};
use crate::plugin_file::PluginFile;
use crate::report::Failure;
use crate::serve::Line;
use crate::settings::Settings;
use crate::watchdog::{Watchdog, busy};

/// What is asked, by whom, and of which ledger.
#[derive(Debug)]
pub struct Job<'a> {
    pub settings: &'a Settings,
    pub ledger: LedgerPlace,
    /// The raw command, the verb included.
    pub command: &'a [u8],
    pub user: &'a str,
    /// The principal's profile.
    pub key: &'a str,
    /// The command is the admin's, not a client's.
    pub of_host: bool,
}

impl Job<'_> {
    /// Does it, with the answer on stdout and stderr, and gives the exit code.
    ///
    /// # Errors
    /// It could not be done; nothing was printed.
    pub fn run(&self, host: &dyn Host) -> Result<u8, Failure> {
        let watchdog = match Request::parse(self.command) {
            Ok(Request::Serve { .. }) => {
                let line = Line::open().map_err(Failure::not_now)?;
                return self.run_with(host, &line, &line);
            }
            Ok(request) if request.only_looks() => Watchdog::idle(),
            _ => Watchdog::start().map_err(Failure::not_now)?,
        };
        let answer = Answer {
            watchdog: &watchdog,
            begun: Cell::new(false),
        };
        let done = self.run_to(host, &answer);
        if !answer.begun.get() && !watchdog.settle() {
            // The watchdog is just ending the process.
            loop {
                std::thread::park();
            }
        }
        done
    }

    /// Does it with the answer to `output`.
    ///
    /// # Errors
    /// It could not be done.
    pub fn run_to(&self, host: &dyn Host, output: &dyn Output) -> Result<u8, Failure> {
        self.run_with(host, output, &NoInput)
    }

    /// Does it with the answer to `output`, and what it reads from `input`.
    ///
    /// # Errors
    /// It could not be done.
    pub fn run_with(
        &self,
        host: &dyn Host,
        output: &dyn Output,
        input: &dyn Input,
    ) -> Result<u8, Failure> {
        let plugin = load(self.settings)?;
        let instance = open(
            &plugin,
            self.settings,
            self.ledger.clone(),
            host.has_tracker(),
        )?;
        let peer = peer();
        let request = abi::Request {
            command: self.command,
            user: self.user,
            key: self.key,
            peer: &peer,
            deadline_ms: REQUEST_DEADLINE_MS,
            of_host: self.of_host,
        };
        instance.exec(&request, host, output, input).map_err(failed)
    }
}

/// Loads the plugin of `settings`.
///
/// # Errors
/// It is nowhere, may not be trusted, or is none.
pub fn load(settings: &Settings) -> Result<Plugin, Failure> {
    let out_of_order = |error: &dyn std::fmt::Display| Failure::set_up_wrongly(error);
    let path = settings.plugin().map_err(|error| out_of_order(&error))?;
    let file = PluginFile::open(&path).map_err(|error| out_of_order(&error))?;
    let real = file.file().path().display().to_string();
    let plugin = Plugin::load(file).map_err(|error| out_of_order(&error))?;
    let version = version(&plugin).unwrap_or_else(|| "unknown".to_owned());
    log(Level::Info, &format!("loaded {real}, version {version}"));
    Ok(plugin)
}

/// The version that the plugin reports of itself.
pub fn version(plugin: &Plugin) -> Option<String> {
    let facts: serde_json::Value = serde_json::from_str(&plugin.describe().ok()?).ok()?;
    Some(facts.get("version")?.as_str()?.to_owned())
}

/// Opens the plugin on `ledger`; `has_tracker` as [`Plugin::open`] takes it.
///
/// # Errors
/// The ledger is busy, out of order, or refused.
pub fn open(
    plugin: &Plugin,
    settings: &Settings,
    ledger: LedgerPlace,
    has_tracker: bool,
) -> Result<Instance, Failure> {
    let settings = serde_json::to_string(&settings.for_plugin(ledger)).map_err(Failure::not_now)?;
    plugin
        .open(&settings, has_tracker)
        .map_err(|error| match error {
            OpenError {
                status: CallError::Busy,
                ..
            } => busy(),
            error => Failure::set_up_wrongly(error),
        })
}

/// What a failed call means for the one who asked.
fn failed(status: CallError) -> Failure {
    match status {
        CallError::Busy => busy(),
        CallError::NotFound | CallError::Denied => Failure::repository_not_found(),
        CallError::Invalid => Failure::refused(status),
        CallError::Cancelled => Failure::not_now(status),
        CallError::Config
        | CallError::Io
        | CallError::Forked
        | CallError::Panicked
        | CallError::Unknown(_) => Failure::set_up_wrongly(status),
    }
}

/// The client's address as sshd gives it, or nothing.
fn peer() -> String {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    let address = connection.split(' ').next().unwrap_or_default();
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => String::new(),
    }
}

/// The process's own outputs. The first byte of an answer is its end for the
/// watchdog: what is answered is answered.
struct Answer<'a> {
    watchdog: &'a Watchdog,
    begun: Cell<bool>,
}

impl Output for Answer<'_> {
    fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()> {
        if !self.begun.get() {
            if !self.watchdog.settle() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.begun.set(true);
        }
        stream.write(data)
    }

    fn is_given_up(&self) -> bool {
        reader_has_gone() || !self.watchdog.may_change()
    }
}

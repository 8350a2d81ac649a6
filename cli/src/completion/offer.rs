//! What fits where: each argument says what it takes, and here is where that
//! comes from.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, LazyLock};

use clap::builder::{ArgExt, StyledStr};
use clap::{Arg, ValueHint};
use clap_complete::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use git_claim_api::ids::Session;
use git_claim_api::text::escape;

use super::typed::Typed;
use crate::client::session_of_environment;
use crate::git::Git;
use crate::output::people::short_id;
use crate::remote;
use crate::seen::{Held, Memory, Seen, now};
use crate::session;

/// What an argument takes, said where it is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Remote,
    Holder,
    /// An issue to claim: one that nobody holds; to take over, one that is held.
    Free,
    /// The same, or with `--next` the command that is run.
    FreeOrCommand,
    /// An issue to give back or to renew: this session's; by force, any that is
    /// held.
    Mine,
    /// An issue that is this user's, in whatever session.
    Own,
    /// Any issue that was seen.
    Any,
    Subcommand,
}

impl ArgExt for Offer {}

/// Makes clap's engine offer what the arguments of `definition` take.
pub fn attach(definition: clap::Command, typed: &Typed) -> clap::Command {
    let place = Arc::new(Place::lazy(typed));
    let subcommands: Vec<(String, Option<StyledStr>)> = definition
        .get_subcommands()
        .map(|known| (known.get_name().to_owned(), known.get_about().cloned()))
        .collect();
    let attach = |arg: Arg| match arg.get::<Offer>().copied() {
        Some(Offer::Subcommand) => {
            let subcommands = subcommands.clone();
            arg.add(ArgValueCandidates::new(move || {
                let known = subcommands.iter().cloned();
                known
                    .map(|(name, about)| CompletionCandidate::new(name).help(about))
                    .collect()
            }))
        }
        Some(Offer::FreeOrCommand) if typed.next => arg.add(for_the_shell(typed)),
        Some(offer) => {
            let place = Arc::clone(&place);
            arg.add(ArgValueCompleter::new(move |current: &OsStr| {
                // Who begins an option needs no look at the repository.
                let current = current.to_str().filter(|text| !text.starts_with('-'));
                match (current, current.and(place.as_ref().as_ref())) {
                    (Some(current), Some(place)) => place.offer(offer, current),
                    _ => Vec::new(),
                }
            }))
        }
        None => match arg.get_value_hint() {
            ValueHint::DirPath | ValueHint::CommandWithArguments => arg.add(for_the_shell(typed)),
            _ => arg,
        },
    };
    definition
        .mut_args(&attach)
        .mut_subcommands(|subcommand| subcommand.mut_args(&attach))
}

const SHELLS_OWN: &str = "what the shell itself completes";

fn for_the_shell(typed: &Typed) -> ArgValueCompleter {
    let takes_options = !typed.is_escaped;
    ArgValueCompleter::new(move |current: &OsStr| {
        let is_option = takes_options && current.as_encoded_bytes().starts_with(b"-");
        let own = || CompletionCandidate::new("").id(Some(SHELLS_OWN.to_owned()));
        (!is_option).then(own).into_iter().collect()
    })
}

/// Whether this stands for what the shell itself completes.
pub fn is_shells_own(candidate: &CompletionCandidate) -> bool {
    candidate.get_id().is_some_and(|id| id == SHELLS_OWN)
}

/// The repository that a command line is about.
struct Place {
    git: Git,
    issues: Vec<Seen>,
    session: Option<Session>,
    typed: Typed,
    now: i64,
}

/// Most of what is completed needs no look at the repository.
type LazyPlace = LazyLock<Option<Place>, Box<dyn FnOnce() -> Option<Place> + Send + Sync>>;

impl Place {
    fn lazy(typed: &Typed) -> LazyPlace {
        let typed = typed.clone();
        LazyLock::new(Box::new(move || Place::find(&typed)))
    }

    fn find(typed: &Typed) -> Option<Place> {
        let git = Git::discover().ok()?;
        let remote = remote::name(&git.config, typed.remote.as_deref(), || git.branch());
        let issues = match remote {
            Ok(remote) => Memory::of(&git, &remote).issues(),
            Err(_) => Vec::new(),
        };
        let session = match &typed.session {
            Some(session) => Some(session.clone()),
            None => match session_of_environment() {
                Ok(Some(session)) => Some(session),
                _ => session::known(&git.git_dir).ok()?,
            },
        };
        Some(Place {
            issues,
            session,
            typed: typed.clone(),
            now: now(),
            git,
        })
    }

    fn offer(&self, offer: Offer, current: &str) -> Vec<CompletionCandidate> {
        match offer {
            Offer::Remote => words(remote::names(&self.git.config).into_iter(), current),
            Offer::Holder => self.holders(current),
            Offer::Free | Offer::FreeOrCommand | Offer::Mine | Offer::Own | Offer::Any => {
                self.ids(offer, current)
            }
            Offer::Subcommand => Vec::new(),
        }
    }

    fn holders(&self, current: &str) -> Vec<CompletionCandidate> {
        let mut claims: BTreeMap<&str, usize> = BTreeMap::new();
        let held = self.issues.iter().filter_map(|seen| seen.held(self.now));
        for holder in held.filter_map(|held| held.holder.as_deref()) {
            *claims.entry(holder).or_default() += 1;
        }
        words(claims.into_keys(), current)
    }

    fn ids(&self, offer: Offer, current: &str) -> Vec<CompletionCandidate> {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for seen in &self.issues {
            *times.entry(short_id(seen.issue.as_str())).or_default() += 1;
        }
        let fitting = self.issues.iter().filter_map(|seen| {
            let held = seen.held(self.now);
            if !self.fits(offer, held) {
                return None;
            }
            let full = seen.issue.as_str();
            let short = short_id(full);
            // Nobody means one twice.
            let is_typed = |word: &OsString| *word == *full || *word == *short;
            if self.typed.plain.iter().any(is_typed) {
                return None;
            }
            // As people see it, unless that is not enough.
            let is_enough = times.get(&short) == Some(&1) && short.starts_with(current);
            let id = if is_enough { &short } else { full };
            if !id.starts_with(current) {
                return None;
            }
            let about = about(seen, held).map(|about| escape(&about).into());
            Some(CompletionCandidate::new(id).help(about))
        });
        fitting.collect()
    }

    fn fits(&self, offer: Offer, held: Option<&Held>) -> bool {
        let is_own = held.is_some_and(|held| held.own);
        match offer {
            Offer::Free if self.typed.next => false,
            Offer::Free | Offer::Mine if self.typed.evicts => held.is_some(),
            Offer::Free | Offer::FreeOrCommand => held.is_none(),
            Offer::Mine => held.is_some_and(|held| held.own && self.is_here(held)),
            Offer::Own => is_own,
            Offer::Any => true,
            Offer::Remote | Offer::Holder | Offer::Subcommand => false,
        }
    }

    /// Whether one's own claim is this session's. One without a session is
    /// everybody's who has its name.
    fn is_here(&self, held: &Held) -> bool {
        held.session.is_none() || held.session == self.session
    }
}

/// What is said about an issue: its title, and who else holds it.
fn about(seen: &Seen, held: Option<&Held>) -> Option<String> {
    let holder = held
        .filter(|held| !held.own)
        .and_then(|held| held.holder.as_deref());
    match (seen.title.as_deref(), holder) {
        (Some(title), Some(holder)) => Some(format!("{title} ({holder})")),
        (Some(title), None) => Some(title.to_owned()),
        (None, Some(holder)) => Some(format!("({holder})")),
        (None, None) => None,
    }
}

fn words<'a>(words: impl Iterator<Item = &'a str>, current: &str) -> Vec<CompletionCandidate> {
    words
        .filter(|word| word.starts_with(current))
        .map(CompletionCandidate::new)
        .collect()
}

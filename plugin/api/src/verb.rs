//! The verb `collab-lease`: its subverbs and options, from words and to words.
//!
//! The client writes a [`Request`] with [`Request::command`], the server reads
//! it with [`Request::parse`]; both are here so that they cannot drift apart.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::VERB;
use crate::ids::{Branch, Invalid, IssueId, Oid, RequestId, Session, Text, Token, Ttl, decimal};
use crate::words::{self, BadWords};

/// A repository as a client names it: the path in the git URL. The host turns
/// it into the repository's permanent id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoArg(String);

impl RepoArg {
    /// The path as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepoArg {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let bad = |why| Err(Invalid::new("a repository", text, why));
        if text.is_empty() {
            return bad("it is empty");
        }
        if text.starts_with('-') {
            return bad("it begins with `-`");
        }
        if text.len() > 4_096 {
            return bad("it is longer than 4096 bytes");
        }
        if text.chars().any(char::is_control) {
            return bad("it holds control characters");
        }
        Ok(RepoArg(text.to_owned()))
    }
}

/// How to end a claim that is another's, or one's own in another session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub reason: Text,
    pub expected_token: Option<Token>,
}

/// Where a bound claim's work happens, as the client tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The client's name for the remote; `origin` if it does not say.
    pub remote: Option<Text>,
    pub branch: Branch,
    pub worktree: Text,
    pub machine: Text,
}

/// What `acquire` and `next` share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Take {
    /// `None`: open-ended, an assignment to a person.
    pub ttl: Option<Ttl>,
    pub session: Option<Session>,
    pub note: Option<Text>,
    pub binding: Option<Binding>,
    pub request: Option<RequestId>,
    /// Only if the last tenure had this number; 0: if there never was one.
    pub if_token: Option<u64>,
    pub take_over: Option<Eviction>,
}

/// One request, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Acquire {
        repo: RepoArg,
        issue: IssueId,
        take: Take,
    },
    Next {
        repo: RepoArg,
        take: Take,
    },
    Renew {
        repo: RepoArg,
        issue: IssueId,
        /// `None` keeps what the claim has.
        ttl: Option<Ttl>,
        session: Option<Session>,
        token: Option<Token>,
    },
    Release {
        repo: RepoArg,
        issue: IssueId,
        session: Option<Session>,
        token: Option<Token>,
        force: Option<Eviction>,
    },
    List {
        repo: RepoArg,
        holder: Option<Text>,
        mine: bool,
        ended: bool,
        limit: Option<u32>,
        after: Option<IssueId>,
        /// The open issues that nobody holds too, as far as they are quickly had.
        ready: bool,
        /// Whose `mine` is meant in the reply; any session if `None`.
        session: Option<Session>,
    },
    Show {
        repo: RepoArg,
        issue: IssueId,
        session: Option<Session>,
    },
    Log {
        repo: RepoArg,
        issue: Option<IssueId>,
        limit: Option<u32>,
    },
    Verify {
        repo: RepoArg,
        issue: IssueId,
        token: Token,
        session: Option<Session>,
    },
    Recover {
        repo: RepoArg,
        issue: IssueId,
        session: Session,
        binding: Binding,
        head: Oid,
        /// Only if the last tenure still has this number: what was decided on
        /// has not changed since.
        if_token: Option<u64>,
        dry_run: bool,
    },
    Whoami {
        repo: Option<RepoArg>,
    },
    Serve {
        repo: RepoArg,
    },
    /// For the host alone: carry a repository's claims to another id.
    Rename {
        old: RepoArg,
        new: RepoArg,
    },
    /// For the host alone: copy the ledger to a new file, an absolute path.
    Backup {
        file: Text,
    },
    /// For the host alone: look whether the ledger can be used.
    Look,
    /// For the host alone: make an empty ledger where it is to be.
    Init,
    /// For the host alone: move the ledger to another place.
    Migrate {
        to: Text,
    },
    /// For the host alone: may the push that is told line by line pass?
    Fence {
        repo: RepoArg,
    },
    /// For the host alone: end the claims that the push, which is told line by
    /// line, has done with.
    Settle {
        repo: RepoArg,
    },
}

/// Why a command is refused before anything was looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error(transparent)]
    Words(#[from] BadWords),
    #[error(transparent)]
    Value(#[from] Invalid),
    #[error("this is not a request for {VERB}")]
    NotTheVerb,
    #[error("{VERB} needs a subverb: {}", SUBVERBS.join(", "))]
    NoSubverb,
    #[error("{VERB} has no subverb '{}'", crate::text::escape(.0))]
    UnknownSubverb(String),
    #[error("{subverb} needs {what}")]
    Missing {
        subverb: &'static str,
        what: &'static str,
    },
    #[error("{subverb} has no option '{}'", crate::text::escape(.option))]
    UnknownOption {
        subverb: &'static str,
        option: String,
    },
    #[error("option {0} is given twice")]
    Twice(&'static str),
    #[error("option {0} needs a value that does not begin with `-`")]
    NoValue(&'static str),
    #[error("option {0} goes with {1} alone")]
    Without(&'static str, &'static str),
    #[error("{subverb} does not take the word '{}'", crate::text::escape(.word))]
    LeftOver { subverb: &'static str, word: String },
}

/// The subverbs that a client may send, in the order of the protocol.
pub const SUBVERBS: [&str; 11] = [
    "acquire", "next", "renew", "release", "list", "show", "log", "verify", "recover", "whoami",
    "serve",
];

/// The subverbs that are the host's own, with [`crate::abi::GCLAIM_REQUEST_HOST`].
pub const HOST_SUBVERBS: [&str; 7] = [
    "rename", "backup", "look", "init", "migrate", "fence", "settle",
];

/// One option: its name and whether a value follows.
type Opt = (&'static str, bool);

const TAKE: [Opt; 12] = [
    ("--ttl", true),
    ("--session", true),
    ("--note", true),
    ("--remote", true),
    ("--branch", true),
    ("--worktree", true),
    ("--machine", true),
    ("--request", true),
    ("--if-token", true),
    ("--take-over", false),
    ("--reason", true),
    ("--expected-token", true),
];

/// What a subverb is called, its words and its options.
struct Shape {
    name: &'static str,
    words: &'static [&'static str],
    /// How many of `words` must be there.
    required: usize,
    options: &'static [Opt],
}

const SHAPES: [Shape; 18] = [
    Shape {
        name: "acquire",
        words: &["a repository", "an issue"],
        required: 2,
        options: &TAKE,
    },
    Shape {
        name: "next",
        words: &["a repository"],
        required: 1,
        options: &TAKE,
    },
    Shape {
        name: "renew",
        words: &["a repository", "an issue"],
        required: 2,
        options: &[("--ttl", true), ("--session", true), ("--token", true)],
    },
    Shape {
        name: "release",
        words: &["a repository", "an issue"],
        required: 2,
        options: &[
            ("--session", true),
            ("--token", true),
            ("--force", false),
            ("--reason", true),
            ("--expected-token", true),
        ],
    },
    Shape {
        name: "list",
        words: &["a repository"],
        required: 1,
        options: &[
            ("--holder", true),
            ("--mine", false),
            ("--ended", false),
            ("--limit", true),
            ("--after", true),
            ("--ready", false),
            ("--session", true),
        ],
    },
    Shape {
        name: "show",
        words: &["a repository", "an issue"],
        required: 2,
        options: &[("--session", true)],
    },
    Shape {
        name: "log",
        words: &["a repository", "an issue"],
        required: 1,
        options: &[("--limit", true)],
    },
    Shape {
        name: "verify",
        words: &["a repository", "an issue"],
        required: 2,
        options: &[("--token", true), ("--session", true)],
    },
    Shape {
        name: "recover",
        words: &["a repository", "an issue"],
        required: 2,
        options: &[
            ("--session", true),
            ("--remote", true),
            ("--branch", true),
            ("--worktree", true),
            ("--machine", true),
            ("--head", true),
            ("--if-token", true),
            ("--dry-run", false),
        ],
    },
    Shape {
        name: "whoami",
        words: &["a repository"],
        required: 0,
        options: &[],
    },
    Shape {
        name: "serve",
        words: &["a repository"],
        required: 1,
        options: &[],
    },
    Shape {
        name: "rename",
        words: &["the old repository", "the new repository"],
        required: 2,
        options: &[],
    },
    Shape {
        name: "backup",
        words: &["a file"],
        required: 1,
        options: &[],
    },
    Shape {
        name: "look",
        words: &[],
        required: 0,
        options: &[],
    },
    Shape {
        name: "init",
        words: &[],
        required: 0,
        options: &[],
    },
    Shape {
        name: "migrate",
        words: &["a place"],
        required: 1,
        options: &[],
    },
    Shape {
        name: "fence",
        words: &["a repository"],
        required: 1,
        options: &[],
    },
    Shape {
        name: "settle",
        words: &["a repository"],
        required: 1,
        options: &[],
    },
];

/// The words of one command, sorted into what its subverb takes.
struct Sorted {
    subverb: &'static str,
    words: std::vec::IntoIter<String>,
    options: BTreeMap<&'static str, String>,
}

impl Sorted {
    /// Sorts `words`; what the subverb does not take is refused.
    fn new(words: Vec<String>) -> Result<Sorted, BadCommand> {
        let mut words = words.into_iter();
        if words.next().as_deref() != Some(VERB) {
            return Err(BadCommand::NotTheVerb);
        }
        let name = words.next().ok_or(BadCommand::NoSubverb)?;
        let shape = SHAPES
            .iter()
            .find(|shape| shape.name == name)
            .ok_or(BadCommand::UnknownSubverb(name))?;
        let mut plain = Vec::new();
        let mut options = BTreeMap::new();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                if plain.len() == shape.words.len() {
                    return Err(BadCommand::LeftOver {
                        subverb: shape.name,
                        word,
                    });
                }
                plain.push(word);
                continue;
            }
            let Some((option, has_value)) = shape.options.iter().find(|(name, _)| *name == word)
            else {
                return Err(BadCommand::UnknownOption {
                    subverb: shape.name,
                    option: word,
                });
            };
            let value = if *has_value {
                words
                    .next()
                    .filter(|value| !value.starts_with('-'))
                    .ok_or(BadCommand::NoValue(option))?
            } else {
                String::new()
            };
            if options.insert(*option, value).is_some() {
                return Err(BadCommand::Twice(option));
            }
        }
        if let Some(what) = shape.words[..shape.required].get(plain.len()) {
            return Err(BadCommand::Missing {
                subverb: shape.name,
                what,
            });
        }
        Ok(Sorted {
            subverb: shape.name,
            words: plain.into_iter(),
            options,
        })
    }

    /// The next plain word; `Sorted::new` has counted them.
    fn word<T: FromStr<Err = Invalid>>(&mut self) -> Result<T, BadCommand> {
        self.words
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(BadCommand::Value)
    }

    fn optional_word<T: FromStr<Err = Invalid>>(&mut self) -> Result<Option<T>, BadCommand> {
        match self.words.next() {
            None => Ok(None),
            Some(word) => Ok(Some(word.parse()?)),
        }
    }

    fn flag(&mut self, option: &'static str) -> bool {
        self.options.remove(option).is_some()
    }

    /// An option's value as it stands.
    fn value<T: FromStr<Err = Invalid>>(
        &mut self,
        option: &'static str,
    ) -> Result<Option<T>, BadCommand> {
        match self.options.remove(option) {
            None => Ok(None),
            Some(word) => Ok(Some(word.parse()?)),
        }
    }

    /// An option's value that travels percent-encoded.
    fn free<T: FromStr<Err = Invalid>>(
        &mut self,
        option: &'static str,
    ) -> Result<Option<T>, BadCommand> {
        match self.options.remove(option) {
            None => Ok(None),
            Some(word) => Ok(Some(words::decode(&word)?.parse()?)),
        }
    }

    fn number(&mut self, option: &'static str, least: u64) -> Result<Option<u64>, BadCommand> {
        let Some(word) = self.options.remove(option) else {
            return Ok(None);
        };
        match decimal(&word) {
            Some(number) if number >= least && i64::try_from(number).is_ok() => Ok(Some(number)),
            _ => Err(Invalid::new("a number", &word, "it must be a whole number in range").into()),
        }
    }

    fn limit(&mut self) -> Result<Option<u32>, BadCommand> {
        let limit = self.number("--limit", 1)?;
        Ok(limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX)))
    }

    /// `--branch`, `--worktree` and `--machine`, which only make sense together.
    fn binding(&mut self) -> Result<Option<Binding>, BadCommand> {
        let remote = self.free("--remote")?;
        match (
            self.free("--branch")?,
            self.free("--worktree")?,
            self.free("--machine")?,
        ) {
            (None, None, None) if remote.is_some() => {
                Err(BadCommand::Without("--remote", "--branch"))
            }
            (None, None, None) => Ok(None),
            (Some(branch), Some(worktree), Some(machine)) => Ok(Some(Binding {
                remote,
                branch,
                worktree,
                machine,
            })),
            _ => Err(BadCommand::Missing {
                subverb: self.subverb,
                what: "--branch, --worktree and --machine together",
            }),
        }
    }

    /// `flag` with its `--reason` and `--expected-token`.
    fn eviction(&mut self, flag: &'static str) -> Result<Option<Eviction>, BadCommand> {
        let wanted = self.flag(flag);
        let reason = self.free("--reason")?;
        let expected_token = self.value("--expected-token")?;
        match (wanted, reason) {
            (true, Some(reason)) => Ok(Some(Eviction {
                reason,
                expected_token,
            })),
            (true, None) => Err(BadCommand::Without(flag, "--reason")),
            (false, Some(_)) => Err(BadCommand::Without("--reason", flag)),
            (false, None) if expected_token.is_some() => {
                Err(BadCommand::Without("--expected-token", flag))
            }
            (false, None) => Ok(None),
        }
    }

    fn take(&mut self) -> Result<Take, BadCommand> {
        Ok(Take {
            ttl: self.value("--ttl")?,
            session: self.value("--session")?,
            note: self.free("--note")?,
            binding: self.binding()?,
            request: self.value("--request")?,
            if_token: self.number("--if-token", 0)?,
            take_over: self.eviction("--take-over")?,
        })
    }

    /// A value that the subverb can't do without.
    fn required<T>(&self, value: Option<T>, what: &'static str) -> Result<T, BadCommand> {
        value.ok_or(BadCommand::Missing {
            subverb: self.subverb,
            what,
        })
    }
}

impl Request {
    /// Reads one command line, the verb included.
    ///
    /// # Errors
    /// Everything that the protocol refuses; nothing was looked at yet.
    pub fn parse(command: &[u8]) -> Result<Request, BadCommand> {
        let mut sorted = Sorted::new(words::split(command)?)?;
        let s = &mut sorted;
        Ok(match s.subverb {
            "acquire" => Request::Acquire {
                repo: s.word()?,
                issue: s.word()?,
                take: s.take()?,
            },
            "next" => Request::Next {
                repo: s.word()?,
                take: s.take()?,
            },
            "renew" => Request::Renew {
                repo: s.word()?,
                issue: s.word()?,
                ttl: s.value("--ttl")?,
                session: s.value("--session")?,
                token: s.value("--token")?,
            },
            "release" => Request::Release {
                repo: s.word()?,
                issue: s.word()?,
                session: s.value("--session")?,
                token: s.value("--token")?,
                force: s.eviction("--force")?,
            },
            "list" => Request::List {
                repo: s.word()?,
                holder: s.free("--holder")?,
                mine: s.flag("--mine"),
                ended: s.flag("--ended"),
                limit: s.limit()?,
                after: s.value("--after")?,
                ready: s.flag("--ready"),
                session: s.value("--session")?,
            },
            "show" => Request::Show {
                repo: s.word()?,
                issue: s.word()?,
                session: s.value("--session")?,
            },
            "log" => Request::Log {
                repo: s.word()?,
                issue: s.optional_word()?,
                limit: s.limit()?,
            },
            "verify" => {
                let repo = s.word()?;
                let issue = s.word()?;
                let token = s.value("--token")?;
                Request::Verify {
                    repo,
                    issue,
                    token: s.required(token, "--token")?,
                    session: s.value("--session")?,
                }
            }
            "recover" => {
                let repo = s.word()?;
                let issue = s.word()?;
                let session = s.value("--session")?;
                let binding = s.binding()?;
                let head = s.value("--head")?;
                Request::Recover {
                    repo,
                    issue,
                    session: s.required(session, "--session")?,
                    binding: s.required(binding, "--branch, --worktree and --machine")?,
                    head: s.required(head, "--head")?,
                    if_token: s.number("--if-token", 0)?,
                    dry_run: s.flag("--dry-run"),
                }
            }
            "whoami" => Request::Whoami {
                repo: s.optional_word()?,
            },
            "serve" => Request::Serve { repo: s.word()? },
            "rename" => Request::Rename {
                old: s.word()?,
                new: s.word()?,
            },
            "fence" => Request::Fence { repo: s.word()? },
            "settle" => Request::Settle { repo: s.word()? },
            "look" => Request::Look,
            "init" => Request::Init,
            "migrate" => Request::Migrate {
                to: words::decode(&s.words.next().unwrap_or_default())?.parse()?,
            },
            // `Sorted::new` knows no other.
            _ => Request::Backup {
                file: words::decode(&s.words.next().unwrap_or_default())?.parse()?,
            },
        })
    }

    /// The command line that asks for this; [`Request::parse`] undoes it.
    pub fn command(&self) -> String {
        let mut line = Line::new(self.subverb());
        match self {
            Request::Acquire { repo, issue, take } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.take(take);
            }
            Request::Next { repo, take } => {
                line.word(repo.as_str());
                line.take(take);
            }
            Request::Renew {
                repo,
                issue,
                ttl,
                session,
                token,
            } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.value("--ttl", ttl.as_ref());
                line.value("--session", session.as_ref());
                line.value("--token", token.as_ref());
            }
            Request::Release {
                repo,
                issue,
                session,
                token,
                force,
            } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.value("--session", session.as_ref());
                line.value("--token", token.as_ref());
                line.eviction("--force", force.as_ref());
            }
            Request::List {
                repo,
                holder,
                mine,
                ended,
                limit,
                after,
                ready,
                session,
            } => {
                line.word(repo.as_str());
                line.free("--holder", holder.as_ref());
                line.flag("--mine", *mine);
                line.flag("--ended", *ended);
                line.value("--limit", limit.as_ref());
                line.value("--after", after.as_ref());
                line.flag("--ready", *ready);
                line.value("--session", session.as_ref());
            }
            Request::Show {
                repo,
                issue,
                session,
            } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.value("--session", session.as_ref());
            }
            Request::Log { repo, issue, limit } => {
                line.word(repo.as_str());
                if let Some(issue) = issue {
                    line.word(issue.as_str());
                }
                line.value("--limit", limit.as_ref());
            }
            Request::Verify {
                repo,
                issue,
                token,
                session,
            } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.value("--token", Some(token));
                line.value("--session", session.as_ref());
            }
            Request::Recover {
                repo,
                issue,
                session,
                binding,
                head,
                if_token,
                dry_run,
            } => {
                line.word(repo.as_str());
                line.word(issue.as_str());
                line.value("--session", Some(session));
                line.binding(binding);
                line.value("--head", Some(head));
                line.value("--if-token", if_token.as_ref());
                line.flag("--dry-run", *dry_run);
            }
            Request::Whoami { repo } => {
                if let Some(repo) = repo {
                    line.word(repo.as_str());
                }
            }
            Request::Serve { repo } | Request::Fence { repo } | Request::Settle { repo } => {
                line.word(repo.as_str());
            }
            Request::Rename { old, new } => {
                line.word(old.as_str());
                line.word(new.as_str());
            }
            Request::Backup { file: place } | Request::Migrate { to: place } => {
                line.word(&words::encode(place.as_str()));
            }
            Request::Look | Request::Init => {}
        }
        line.0
    }

    /// The subverb's name.
    pub fn subverb(&self) -> &'static str {
        match self {
            Request::Acquire { .. } => "acquire",
            Request::Next { .. } => "next",
            Request::Renew { .. } => "renew",
            Request::Release { .. } => "release",
            Request::List { .. } => "list",
            Request::Show { .. } => "show",
            Request::Log { .. } => "log",
            Request::Verify { .. } => "verify",
            Request::Recover { .. } => "recover",
            Request::Whoami { .. } => "whoami",
            Request::Serve { .. } => "serve",
            Request::Rename { .. } => "rename",
            Request::Backup { .. } => "backup",
            Request::Look => "look",
            Request::Init => "init",
            Request::Migrate { .. } => "migrate",
            Request::Fence { .. } => "fence",
            Request::Settle { .. } => "settle",
        }
    }

    /// The repository that a user's request is about. `None` for a bare
    /// `whoami` and for the host's own requests.
    pub fn repo(&self) -> Option<&RepoArg> {
        match self {
            Request::Acquire { repo, .. }
            | Request::Next { repo, .. }
            | Request::Renew { repo, .. }
            | Request::Release { repo, .. }
            | Request::List { repo, .. }
            | Request::Show { repo, .. }
            | Request::Log { repo, .. }
            | Request::Verify { repo, .. }
            | Request::Recover { repo, .. }
            | Request::Serve { repo } => Some(repo),
            Request::Whoami { repo } => repo.as_ref(),
            Request::Rename { .. }
            | Request::Backup { .. }
            | Request::Look
            | Request::Init
            | Request::Migrate { .. }
            | Request::Fence { .. }
            | Request::Settle { .. } => None,
        }
    }

    /// Whether this changes nothing, whatever comes of it.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Request::List { .. }
                | Request::Show { .. }
                | Request::Log { .. }
                | Request::Verify { .. }
                | Request::Whoami { .. }
        )
    }

    /// Whether only the host itself may ask for this.
    pub fn is_host_only(&self) -> bool {
        HOST_SUBVERBS.contains(&self.subverb())
    }
}

/// A command line under construction.
struct Line(String);

impl Line {
    fn new(subverb: &str) -> Line {
        Line(format!("{VERB} {subverb}"))
    }

    fn word(&mut self, word: &str) {
        self.0.push(' ');
        self.0.push_str(&words::quote(word));
    }

    fn flag(&mut self, option: &str, set: bool) {
        if set {
            self.word(option);
        }
    }

    fn value<T: fmt::Display>(&mut self, option: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.word(option);
            self.word(&value.to_string());
        }
    }

    fn free<T: fmt::Display>(&mut self, option: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.word(option);
            self.word(&words::encode(&value.to_string()));
        }
    }

    fn binding(&mut self, binding: &Binding) {
        self.free("--remote", binding.remote.as_ref());
        self.free("--branch", Some(&binding.branch));
        self.free("--worktree", Some(&binding.worktree));
        self.free("--machine", Some(&binding.machine));
    }

    fn eviction(&mut self, flag: &str, eviction: Option<&Eviction>) {
        if let Some(eviction) = eviction {
            self.flag(flag, true);
            self.free("--reason", Some(&eviction.reason));
            self.value("--expected-token", eviction.expected_token.as_ref());
        }
    }

    fn take(&mut self, take: &Take) {
        self.value("--ttl", take.ttl.as_ref());
        self.value("--session", take.session.as_ref());
        self.free("--note", take.note.as_ref());
        if let Some(binding) = &take.binding {
            self.binding(binding);
        }
        self.value("--request", take.request.as_ref());
        self.value("--if-token", take.if_token.as_ref());
        self.eviction("--take-over", take.take_over.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One command a line; each is read, written and read again.
    const GOOD: &str = "\
collab-lease acquire acme/app.git 42
collab-lease acquire acme/app.git 42 --ttl 7200 --session s1 --note fix%20it --request r-1 --if-token 0
collab-lease acquire acme/app.git 42 --session s --branch claim/42 --worktree /w%20x --machine box
collab-lease acquire acme/app.git 42 --session s --remote up --branch claim/42 --worktree /w --machine box
collab-lease acquire acme/app.git 42 --take-over --reason he%20left --expected-token 3
collab-lease next acme/app.git --ttl 60 --session s --request r
collab-lease renew acme/app.git 42 --ttl 300 --session s --token 7
collab-lease renew acme/app.git 42
collab-lease release '/srv/my repo.git' 42 --session s --token 7
collab-lease release r.git 42 --force --reason gone --expected-token 7
collab-lease list r.git --holder ann%20b --mine --ended --limit 5 --after a1b2 --ready --session s
collab-lease show r.git 42
collab-lease log r.git
collab-lease log r.git 42 --limit 3
collab-lease verify r.git 42 --token 1 --session s
collab-lease recover r.git 42 --session s --branch b --worktree /w --machine m --head 0123456789012345678901234567890123456789 --if-token 3 --dry-run
collab-lease whoami
collab-lease whoami r.git
collab-lease serve r.git
collab-lease rename old.git new.git
collab-lease backup /var/backup/a%20b.db
collab-lease fence acme/app.git
collab-lease settle acme/app.git";

    #[test]
    fn writing_undoes_reading() {
        for line in GOOD.lines() {
            let request = Request::parse(line.as_bytes()).unwrap();
            assert_eq!(request.command(), line);
        }
    }

    #[test]
    fn each_refused_command_says_why() {
        for (line, error) in [
            (
                "collab-lease",
                "collab-lease needs a subverb: acquire, next",
            ),
            ("collab-lease steal r.git 1", "no subverb 'steal'"),
            ("git-upload-pack r.git", "not a request for collab-lease"),
            ("collab-lease acquire", "acquire needs a repository"),
            ("collab-lease acquire r.git", "acquire needs an issue"),
            ("collab-lease acquire -r.git 1", "no option '-r.git'"),
            (
                "collab-lease acquire r.git 1 2",
                "does not take the word '2'",
            ),
            ("collab-lease acquire r.git 1 --tll 5", "no option '--tll'"),
            (
                "collab-lease acquire r.git 1 --ttl=5",
                "no option '--ttl=5'",
            ),
            ("collab-lease acquire r.git 1 --ttl", "--ttl needs a value"),
            (
                "collab-lease acquire r.git 1 --ttl -5",
                "--ttl needs a value",
            ),
            (
                "collab-lease acquire r.git 1 --ttl --session s",
                "--ttl needs a value",
            ),
            (
                "collab-lease acquire r.git 1 --ttl 0",
                "'0' is not a time to live",
            ),
            (
                "collab-lease acquire r.git 1 --ttl 5 --ttl 6",
                "--ttl is given twice",
            ),
            (
                "collab-lease acquire r.git 1 --take-over",
                "--take-over goes with --reason",
            ),
            (
                "collab-lease acquire r.git 1 --reason x",
                "--reason goes with --take-over",
            ),
            (
                "collab-lease acquire r.git 1 --expected-token 1",
                "--expected-token goes with --take-over",
            ),
            (
                "collab-lease acquire r.git 1 --branch b",
                "--branch, --worktree and --machine together",
            ),
            (
                "collab-lease acquire r.git 1 --note %0a",
                "is not text: it is more than one line",
            ),
            (
                "collab-lease acquire r.git 1 --note %00",
                "is not text: it holds control characters",
            ),
            (
                "collab-lease acquire r.git 1 --note %e2%80%ae",
                "is not text: it holds control characters",
            ),
            ("collab-lease acquire r.git 1 --note %ff", "percent-encoded"),
            (
                "collab-lease acquire r.git 1 --note 100%",
                "percent-encoded",
            ),
            ("collab-lease acquire r.git .. ", "is not an issue id"),
            ("collab-lease acquire r.git '#4'", "is not an issue id"),
            (
                "collab-lease acquire r.git 1 --session a/b",
                "is not a session",
            ),
            (
                "collab-lease acquire r.git 1 --if-token -1",
                "--if-token needs a value",
            ),
            ("collab-lease verify r.git 1", "verify needs --token"),
            ("collab-lease list r.git --limit 0", "is not a number"),
            (
                "collab-lease list r.git --mine --mine",
                "--mine is given twice",
            ),
            (
                "collab-lease release r.git 1 --force",
                "--force goes with --reason",
            ),
            ("collab-lease whoami a b", "does not take the word 'b'"),
            ("collab-lease acquire 'r.git 1", "never closed"),
            ("collab-lease acquire \"r.git\" 1", "double quotes"),
            (
                "collab-lease acquire '' 1",
                "a word in the command is empty",
            ),
        ] {
            let message = Request::parse(line.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(error), "{line}: {message}");
            assert!(!message.contains('\n'), "{line}: {message}");
        }
    }

    #[test]
    fn every_subverb_has_a_shape_and_only_those() {
        let shapes: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        let named: Vec<&str> = SUBVERBS.into_iter().chain(HOST_SUBVERBS).collect();
        assert_eq!(shapes, named);
    }
}

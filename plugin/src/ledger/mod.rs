//! Where records are kept. The interface is small, so that another engine can
//! serve it without touching a decision: look at records, and change them in
//! one atomic step that may be tried more than once.

mod contents;
mod copy;
#[cfg(feature = "etcd")]
mod etcd;
mod lock_file;
mod sqlite;

use std::path::Path;
use std::time::Instant;

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::PluginSettings;

use crate::claim::{Claim, Ended, Now};

pub use contents::Contents;
pub use copy::migrate;
#[cfg(feature = "etcd")]
pub use etcd::EtcdLedger;
pub use sqlite::SqliteLedger;

/// How far back in an issue's history its former holders are looked for.
const RECENT_TENURES: u64 = 100;

/// Why the ledger could not serve. But for [`LedgerError::Unsure`] nothing was
/// changed.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The deadline passed while others were served.
    #[error("the ledger is busy")]
    Busy,
    #[error("the disk with {} is full", .0.display())]
    Full(std::path::PathBuf),
    /// The file is not one that may be used; nothing was written to it.
    #[error("the ledger {} {why}", .path.display())]
    Unfit {
        path: std::path::PathBuf,
        why: String,
    },
    /// A repository that has claims of its own can't take over another's.
    #[error("repository {0} has claims already")]
    Taken(String),
    #[error("the ledger's row for issue {issue} in {repo} is damaged: {what}")]
    Damaged {
        repo: String,
        issue: String,
        what: String,
    },
    /// What was being looked at is not there any more; a new look is needed.
    #[error("the ledger was changed while it was read; try again")]
    Again,
    #[error("the etcd cluster of the ledger {0} has no space left by its quota")]
    Quota(String),
    #[error("the ledger {ledger} can't be reached: {why}")]
    Unreachable { ledger: String, why: String },
    /// The change may have been made, or not.
    #[error(
        "the ledger {ledger} can't tell whether the change was made: {why}; the same request again tells"
    )]
    Unsure { ledger: String, why: String },
    #[error("the ledger {ledger} failed: {why}")]
    Etcd { ledger: String, why: String },
    #[error("the ledger {} failed: {}", .path.display(), without_sql(source))]
    Sqlite {
        path: std::path::PathBuf,
        source: rusqlite::Error,
    },
}

/// What SQLite says, without the statement that it says it of.
fn without_sql(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

/// Which live claims to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this name's.
    pub holder: Option<String>,
    /// Only those behind this issue's place in the list.
    pub after: Option<IssueId>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl Filter {
    /// The wanted part of ended tenures that are in no order: the last that ended
    /// first.
    fn of_ended(&self, mut found: Vec<(IssueId, Ended)>) -> Vec<(IssueId, Ended)> {
        found.sort_by(|(a_issue, a), (b_issue, b)| {
            b.ended_at
                .cmp(&a.ended_at)
                .then_with(|| a_issue.cmp(b_issue))
        });
        if let Some(after) = &self.after
            && let Some(place) = found.iter().position(|(issue, _)| issue == after)
        {
            found.drain(..=place);
        }
        if let Some(limit) = self.limit {
            found.truncate(limit as usize);
        }
        found
    }
}

/// The host's clock.
pub trait Clock {
    fn now(&self) -> Now;
}

impl<F: Fn() -> Now> Clock for F {
    fn now(&self) -> Now {
        self()
    }
}

/// The times that a use of the ledger goes by.
#[derive(Clone, Copy)]
pub struct When<'a> {
    /// Counts where the engine has no clock of its own.
    pub clock: &'a dyn Clock,
    /// After it nothing is changed any more.
    pub deadline: Instant,
}

/// How far the ledger has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Another one once somebody else has changed the ledger.
    pub number: u64,
    pub at: Now,
}

/// A consistent look at the ledger.
pub trait View {
    /// The ledger's time: what ends are tested against and computed from here.
    fn now(&self) -> Now;

    /// The ledger's own random id, minted when it was created: by the first
    /// change.
    ///
    /// # Errors
    /// [`LedgerError`], as for every method here.
    fn ledger_id(&self) -> Result<String, LedgerError>;

    /// The issue's row; the default if it never had one.
    ///
    /// # Errors
    /// [`LedgerError`], as for every method here.
    fn claim(&self, repo: &str, issue: &IssueId) -> Result<Claim, LedgerError>;

    /// The last ended tenure of an issue by this name and session, if it is
    /// among the issue's recent ones.
    fn last_of(
        &self,
        repo: &str,
        issue: &IssueId,
        name: &str,
        session: Option<&Session>,
    ) -> Result<Option<Ended>, LedgerError>;

    /// The issue and number of the tenure that this session's request began,
    /// and whether that tenure is still the row's.
    fn begun_by(
        &self,
        repo: &str,
        name: &str,
        session: Option<&Session>,
        request: &RequestId,
    ) -> Result<Option<(IssueId, u64)>, LedgerError>;

    /// The tenure of an issue with this lease, if it is over.
    fn past_lease(
        &self,
        repo: &str,
        issue: &IssueId,
        lease_id: &str,
    ) -> Result<Option<Ended>, LedgerError>;

    /// The issue whose live claim is bound to `branch`.
    fn bound_to(&self, repo: &str, branch: &Branch) -> Result<Option<IssueId>, LedgerError>;

    /// The issues with a row whose ids are `typed` or begin with it, at most
    /// `most`.
    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError>;

    /// The live claims of a repository, the oldest tenure first.
    fn live(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Claim)>, LedgerError>;

    /// The issues that nobody holds any more, with the tenure that ended last,
    /// the newest end first.
    fn ended(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Ended)>, LedgerError>;

    /// The tenures of a repository or an issue that are over, the newest first.
    fn history(
        &self,
        repo: &str,
        issue: Option<&IssueId>,
        limit: Option<u32>,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError>;
}

/// A change under way: what it reads cannot be changed by others before it is
/// stored.
pub trait Transaction: View {
    /// Stores the row of an issue, and puts a tenure that is over into the
    /// history. Where the engine grants another time to live than the claim
    /// has, `claim` says so afterwards.
    ///
    /// # Errors
    /// Also where the row's token would fall.
    fn store(
        &mut self,
        repo: &str,
        issue: &IssueId,
        claim: &mut Claim,
        ended: Option<&Ended>,
    ) -> Result<(), LedgerError>;

    /// A number for a tenure that begins: above that of each that began before.
    fn next_seq(&mut self) -> Result<u64, LedgerError>;

    /// Carries the rows and the history of `old` to `new`, which has none.
    /// Answers how many rows there were.
    fn rename(&mut self, old: &str, new: &str) -> Result<u64, LedgerError>;
}

/// Whether a change is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    /// Nothing was changed, or nothing of it is to stay.
    Discard,
}

/// A storage engine.
pub trait Ledger: Send + Sync {
    /// Looks at the ledger; writes nothing.
    ///
    /// # Errors
    /// [`LedgerError`], or what `look` answers.
    fn read(
        &self,
        when: When<'_>,
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError>;

    /// Runs `work` as one atomic change, which is durable when this returns.
    /// `work` may be run again from the start.
    ///
    /// # Errors
    /// [`LedgerError`], or what `work` answers; then nothing was changed.
    fn change(
        &self,
        when: When<'_>,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), LedgerError>;

    /// Copies the whole ledger into a new file; answers its number of rows.
    ///
    /// # Errors
    /// Also where the file is there already.
    fn backup(&self, when: When<'_>, file: &Path) -> Result<u64, LedgerError>;

    /// Makes an empty ledger, where there is none. A file is made by the first
    /// change instead.
    ///
    /// # Errors
    /// Also where there is one.
    fn create(&self, when: When<'_>) -> Result<(), LedgerError>;

    /// All that the ledger holds, also once it is retired.
    ///
    /// # Errors
    /// [`LedgerError`].
    fn contents(&self, when: When<'_>) -> Result<Contents, LedgerError>;

    /// Takes the ledger out of service: whoever uses it learns that it has moved
    /// to `to`. `None` puts it back. Answers whether it was in service.
    ///
    /// # Errors
    /// Also where it has moved to another place already.
    fn retire(&self, when: When<'_>, to: Option<&str>) -> Result<bool, LedgerError>;

    /// How far the ledger has come; costs next to nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    fn version(&self, when: When<'_>) -> Result<Version, LedgerError>;
}

/// Opens the ledger that the settings name.
///
/// # Errors
/// It may not be used as it is set up.
pub fn open(settings: &PluginSettings) -> Result<Box<dyn Ledger>, LedgerError> {
    Ok(match &settings.ledger {
        LedgerPlace::File(path) => Box::new(SqliteLedger::open(path)?),
        #[cfg(feature = "etcd")]
        LedgerPlace::Etcd(place) => Box::new(EtcdLedger::open(place, &settings.etcd)?),
        #[cfg(not(feature = "etcd"))]
        LedgerPlace::Etcd(place) => return Err(without_etcd(place)),
    })
}

/// Why a ledger on etcd can't be opened where its client was left out.
#[cfg(not(feature = "etcd"))]
fn without_etcd(place: &git_claim_api::ledger::EtcdPlace) -> LedgerError {
    LedgerError::Unfit {
        path: place.to_string().into(),
        why: "can't be reached: this plugin was built without etcd's client".to_owned(),
    }
}

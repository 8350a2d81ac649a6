//! Where records are kept. The interface is small, so that another engine can
//! serve it without touching a decision: look at records, and change them in
//! one atomic step that may be tried more than once.

mod file;
mod queue;
mod rows;
mod schema;
mod sqlite;

use std::path::Path;
use std::time::Instant;

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};

use crate::claim::{Claim, Ended, Now};

pub use sqlite::SqliteLedger;

/// Why the ledger could not serve. None of these means that a change was made.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The deadline passed while others were served.
    #[error("the ledger is busy")]
    Busy,
    #[error("the disk with the ledger {} is full", .0.display())]
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

/// A consistent look at the ledger.
pub trait View {
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
    fn bound_to(
        &self,
        repo: &str,
        branch: &Branch,
        now: Now,
    ) -> Result<Option<IssueId>, LedgerError>;

    /// The issues with a row whose ids are `typed` or begin with it, at most
    /// `most`.
    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError>;

    /// The live claims of a repository, the oldest tenure first.
    fn live(
        &self,
        repo: &str,
        filter: &Filter,
        now: Now,
    ) -> Result<Vec<(IssueId, Claim)>, LedgerError>;

    /// The issues that nobody holds any more, with the tenure that ended last,
    /// the newest end first.
    fn ended(
        &self,
        repo: &str,
        filter: &Filter,
        now: Now,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError>;

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
    /// history.
    ///
    /// # Errors
    /// Also where the row's token would fall.
    fn store(
        &mut self,
        repo: &str,
        issue: &IssueId,
        claim: &Claim,
        ended: Option<&Ended>,
    ) -> Result<(), LedgerError>;

    /// The next number in the order of tenures; each is given once.
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
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError>;

    /// Runs `work` as one atomic change, which is durable when this returns.
    /// `work` may be run again from the start; after `deadline` nothing is
    /// changed any more.
    ///
    /// # Errors
    /// [`LedgerError`], or what `work` answers; then nothing was changed.
    fn change(
        &self,
        deadline: Instant,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), LedgerError>;

    /// Copies the whole ledger into a new file; answers its number of rows.
    ///
    /// # Errors
    /// Also where the file is there already.
    fn backup(&self, file: &Path) -> Result<u64, LedgerError>;

    /// A number that is another one once somebody else has changed the ledger.
    ///
    /// # Errors
    /// [`LedgerError`].
    fn version(&self) -> Result<u64, LedgerError>;

    /// The ledger's own random id, minted when it was created: by the first
    /// change.
    ///
    /// # Errors
    /// [`LedgerError`].
    fn id(&self) -> Result<String, LedgerError>;
}

//! Rows to records and back. The file is not trusted: a value that can't be
//! what its column should hold makes the row damaged, never a guess.

use std::str::FromStr;

use git_claim_api::ids::{Invalid, IssueId, Ttl};
use git_claim_api::lock::Recovery;
use git_claim_api::reply::End;
use rusqlite::types::FromSql;
use rusqlite::{Row, ToSql};

use crate::claim::{Bound, Claim, Ended, Minted, Tenure};
use crate::ledger::LedgerError;

/// The columns of a tenure in both tables, in the order in which they are read
/// and written.
pub const TENURE: &str = "holder, acquired_at, expires_at, session, profile, seq, ttl, \
     heartbeat_at, heartbeat_count, note, title, lease_id, request, \
     branch, remote, worktree, machine, base, source, minted_by, minted_at, recovery";

/// How many columns [`TENURE`] names.
pub const TENURE_COLUMNS: usize = 22;

/// What stands before [`TENURE`] in a query of `leases`.
pub const LEASE: &str = "issue_id, token, generation, written_token";

/// What stands before [`TENURE`] in a query of `tenures`.
pub const ENDED: &str = "issue_id, token, ended_at, how, ended_by, why";

/// Why a row could not be read, before its issue is known.
#[derive(Debug)]
pub struct Damage(String);

impl Damage {
    /// The error for a row of `repo`.
    pub fn of(self, repo: &str, row: &Row<'_>) -> LedgerError {
        LedgerError::Damaged {
            repo: repo.to_owned(),
            issue: row.get(0).unwrap_or_else(|_| "?".to_owned()),
            what: self.0,
        }
    }
}

impl From<rusqlite::Error> for Damage {
    fn from(error: rusqlite::Error) -> Damage {
        Damage(match error {
            rusqlite::Error::InvalidColumnType(_, column, kind) => {
                format!("{column} can't be {kind}")
            }
            error => error.to_string(),
        })
    }
}

impl From<Invalid> for Damage {
    fn from(error: Invalid) -> Damage {
        Damage(error.to_string())
    }
}

/// The cells of a row, one after the other.
struct Cells<'a, 'row> {
    row: &'a Row<'row>,
    next: usize,
}

impl Cells<'_, '_> {
    fn cell<T: FromSql>(&mut self) -> Result<T, Damage> {
        self.next += 1;
        Ok(self.row.get(self.next - 1)?)
    }

    fn whole(&mut self) -> Result<u64, Damage> {
        let number: i64 = self.cell()?;
        u64::try_from(number).map_err(|_| Damage(format!("{number} is below zero")))
    }

    fn optional_whole(&mut self) -> Result<Option<u64>, Damage> {
        let number: Option<i64> = self.cell()?;
        number
            .map(|n| u64::try_from(n).map_err(|_| Damage(format!("{n} is below zero"))))
            .transpose()
    }

    fn parsed<T: FromStr<Err = Invalid>>(&mut self) -> Result<Option<T>, Damage> {
        let text: Option<String> = self.cell()?;
        Ok(text.map(|text| text.parse()).transpose()?)
    }

    /// The columns of [`TENURE`]; `None` where nobody holds the row.
    fn tenure(&mut self) -> Result<Option<Tenure>, Damage> {
        let Some(holder) = self.cell()? else {
            return Ok(None);
        };
        Ok(Some(Tenure {
            holder,
            acquired_at: self.cell()?,
            expires_at: self.cell()?,
            session: self.parsed()?,
            profile: self.cell()?,
            seq: self.optional_whole()?,
            ttl: self.optional_whole()?.map(Ttl::new).transpose()?,
            heartbeat_at: self.cell()?,
            heartbeat_count: self.optional_whole()?.unwrap_or(0),
            note: self.cell()?,
            title: self.cell()?,
            lease_id: self.cell()?,
            request: self.parsed()?,
            binding: self.binding()?,
            recovery: self.recovery()?,
        }))
    }

    fn binding(&mut self) -> Result<Option<Bound>, Damage> {
        let branch = self.parsed()?;
        let remote: Option<String> = self.cell()?;
        let worktree: Option<String> = self.cell()?;
        let machine: Option<String> = self.cell()?;
        let base = self.parsed()?;
        let source: Option<String> = self.cell()?;
        let by: Option<String> = self.cell()?;
        let at: Option<i64> = self.cell()?;
        // A record that lacks any of it is incomplete; empty is what the
        // reader of records takes for missing.
        Ok(branch.map(|branch| Bound {
            remote: remote.unwrap_or_default(),
            branch,
            worktree: worktree.unwrap_or_default(),
            machine: machine.unwrap_or_default(),
            base,
            minted: Minted {
                source: source.unwrap_or_default(),
                by: by.unwrap_or_default(),
                at: at.unwrap_or_default(),
            },
        }))
    }

    fn recovery(&mut self) -> Result<Option<Recovery>, Damage> {
        let json: Option<String> = self.cell()?;
        json.map(|json| serde_json::from_str(&json))
            .transpose()
            .map_err(|error| Damage(error.to_string()))
    }
}

/// A row of `leases`, queried as [`LEASE`] and [`TENURE`].
///
/// # Errors
/// What is wrong with it.
pub fn lease(row: &Row<'_>) -> Result<(IssueId, Claim), Damage> {
    let mut cells = Cells { row, next: 0 };
    let issue: String = cells.cell()?;
    let issue = issue.parse::<IssueId>()?;
    let token = cells.whole()?;
    let generation = cells.optional_whole()?.unwrap_or(0);
    let written_token = cells.optional_whole()?;
    let mut tenure = cells.tenure()?;
    if written_token != Some(token) {
        // An older server wrote this tenure: only its own columns count.
        tenure = tenure.map(|tenure| Tenure {
            holder: tenure.holder,
            acquired_at: tenure.acquired_at,
            expires_at: tenure.expires_at,
            session: None,
            profile: None,
            seq: None,
            ttl: None,
            heartbeat_at: None,
            heartbeat_count: 0,
            note: None,
            title: None,
            lease_id: None,
            request: None,
            binding: None,
            recovery: None,
        });
    }
    let claim = Claim {
        token,
        generation,
        tenure,
    };
    Ok((issue, claim))
}

/// A row of `tenures`, queried as [`ENDED`] and [`TENURE`].
///
/// # Errors
/// What is wrong with it.
pub fn ended(row: &Row<'_>) -> Result<(IssueId, Ended), Damage> {
    let mut cells = Cells { row, next: 0 };
    let issue: String = cells.cell()?;
    let issue = issue.parse::<IssueId>()?;
    let token = cells.whole()?;
    let ended_at = cells.cell()?;
    let how: String = cells.cell()?;
    let how = End::from_name(&how).ok_or_else(|| Damage(format!("no end is called '{how}'")))?;
    let by = cells.cell()?;
    let why = cells.cell()?;
    let tenure = cells
        .tenure()?
        .ok_or_else(|| Damage("a past tenure has no holder".to_owned()))?;
    let ended = Ended {
        token,
        tenure,
        ended_at,
        how,
        by,
        why,
    };
    Ok((issue, ended))
}

/// A tenure as the values of the columns [`TENURE`].
pub fn values(tenure: &Tenure) -> [Box<dyn ToSql>; TENURE_COLUMNS] {
    let bound = tenure.binding.as_ref();
    [
        Box::new(tenure.holder.clone()),
        Box::new(tenure.acquired_at),
        Box::new(tenure.expires_at),
        Box::new(tenure.session.as_ref().map(ToString::to_string)),
        Box::new(tenure.profile.clone()),
        Box::new(tenure.seq.map(u64::cast_signed)),
        Box::new(tenure.ttl.map(|ttl| ttl.seconds().cast_signed())),
        Box::new(tenure.heartbeat_at),
        Box::new(tenure.heartbeat_count.cast_signed()),
        Box::new(tenure.note.clone()),
        Box::new(tenure.title.clone()),
        Box::new(tenure.lease_id.clone()),
        Box::new(tenure.request.as_ref().map(ToString::to_string)),
        Box::new(bound.map(|bound| bound.branch.to_string())),
        Box::new(bound.map(|bound| bound.remote.clone())),
        Box::new(bound.map(|bound| bound.worktree.clone())),
        Box::new(bound.map(|bound| bound.machine.clone())),
        Box::new(bound.and_then(|bound| bound.base.as_ref().map(ToString::to_string))),
        Box::new(bound.map(|bound| bound.minted.source.clone())),
        Box::new(bound.map(|bound| bound.minted.by.clone())),
        Box::new(bound.map(|bound| bound.minted.at)),
        Box::new(
            tenure
                .recovery
                .as_ref()
                .and_then(|recovery| serde_json::to_string(recovery).ok()),
        ),
    ]
}

//! What is asked of the tables, and what is written to them.

use std::path::Path;

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, ToSql, named_params, params};

use super::rows::{self, Damage, ENDED, LEASE, TENURE, TENURE_COLUMNS};
use super::schema::ledger_error;
use crate::claim::{Claim, Ended, Now};
use crate::ledger::{Filter, LedgerError, RECENT_TENURES, Transaction, View};

/// Compiles what most changes ask, and keeps it with the connection: while it has
/// its turn, all others wait.
///
/// # Errors
/// SQLite's.
pub fn compile(connection: &Connection) -> Result<(), rusqlite::Error> {
    for statement in [&claim_query(), NEXT_SEQ, USE_SEQ, &update_statement()] {
        connection.prepare_cached(statement)?;
    }
    Ok(())
}

/// The row of an issue.
fn claim_query() -> String {
    format!("SELECT {LEASE}, {TENURE} FROM leases WHERE repo = ?1 AND issue_id = ?2")
}

/// The number of the next tenure, and that it is taken.
const NEXT_SEQ: &str = "SELECT next_seq FROM ledger";
const USE_SEQ: &str = "UPDATE ledger SET next_seq = ?1 + 1 WHERE next_seq = ?1";

/// A transaction, read or write.
pub struct SqliteTransaction<'a> {
    pub connection: &'a Connection,
    pub path: &'a Path,
    pub now: Now,
}

impl SqliteTransaction<'_> {
    fn sql(&self, error: rusqlite::Error) -> LedgerError {
        ledger_error(self.path, error)
    }

    /// The rows of a query, each read by `read`.
    pub fn rows<T>(
        &self,
        repo: &str,
        query: &str,
        params: impl Params,
        read: fn(&Row<'_>) -> Result<T, Damage>,
    ) -> Result<Vec<T>, LedgerError> {
        let mut statement = self
            .connection
            .prepare_cached(query)
            .map_err(|error| self.sql(error))?;
        let mut rows = statement.query(params).map_err(|error| self.sql(error))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|error| self.sql(error))? {
            out.push(read(row).map_err(|damage| damage.of(repo, row))?);
        }
        Ok(out)
    }

    pub fn execute(&self, statement: &str, params: impl Params) -> Result<usize, LedgerError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute(params))
            .map_err(|error| self.sql(error))
    }

    /// Where an issue's last tenure stands in the list, be it live or not.
    fn place_of(&self, repo: &str, issue: &IssueId) -> Result<Option<Place>, LedgerError> {
        self.connection
            .prepare_cached("SELECT seq, acquired_at FROM leases WHERE repo = ?1 AND issue_id = ?2")
            .and_then(|mut statement| {
                statement
                    .query_row(params![repo, issue.as_str()], |row| {
                        Ok(Place {
                            seq: row.get::<_, Option<i64>>(0)?.map_or(0, i64::cast_unsigned),
                            acquired_at: row.get::<_, Option<i64>>(1)?.unwrap_or(0),
                            issue: issue.clone(),
                        })
                    })
                    .optional()
            })
            .map_err(|error| self.sql(error))
    }
}

/// A place in the list of live claims: in the order in which the tenures began;
/// before them those of an older server, which knew whole seconds alone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    seq: u64,
    acquired_at: i64,
    issue: IssueId,
}

impl Place {
    fn of(issue: &IssueId, claim: &Claim) -> Place {
        let tenure = claim.tenure.as_ref();
        Place {
            seq: tenure.and_then(|tenure| tenure.seq).unwrap_or(0),
            acquired_at: tenure.map_or(0, |tenure| tenure.acquired_at),
            issue: issue.clone(),
        }
    }
}

fn truncate<T>(list: &mut Vec<T>, limit: Option<u32>) {
    if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) {
        list.truncate(limit);
    }
}

/// SQLite's "no limit".
fn sql_limit(limit: Option<u32>) -> i64 {
    limit.map_or(-1, i64::from)
}

impl View for SqliteTransaction<'_> {
    fn now(&self) -> Now {
        self.now
    }

    fn ledger_id(&self) -> Result<String, LedgerError> {
        self.connection
            .query_row("SELECT id FROM ledger", [], |row| row.get(0))
            .map_err(|error| self.sql(error))
    }

    fn claim(&self, repo: &str, issue: &IssueId) -> Result<Claim, LedgerError> {
        let key = params![repo, issue.as_str()];
        let found = self.rows(repo, &claim_query(), key, rows::lease)?;
        Ok(found
            .into_iter()
            .next()
            .map(|(_, claim)| claim)
            .unwrap_or_default())
    }

    fn last_of(
        &self,
        repo: &str,
        issue: &IssueId,
        name: &str,
        session: Option<&Session>,
    ) -> Result<Option<Ended>, LedgerError> {
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures
             WHERE repo = :repo AND issue_id = :issue AND holder = :name AND session IS :session
               AND token > (SELECT token FROM leases WHERE repo = :repo AND issue_id = :issue) - :recent
             ORDER BY token DESC LIMIT 1"
        );
        let params = named_params! {
            ":repo": repo,
            ":issue": issue.as_str(),
            ":name": name,
            ":session": session.map(Session::as_str),
            ":recent": RECENT_TENURES.cast_signed(),
        };
        let found = self.rows(repo, &query, params, rows::ended)?;
        Ok(found.into_iter().next().map(|(_, ended)| ended))
    }

    fn begun_by(
        &self,
        repo: &str,
        name: &str,
        session: Option<&Session>,
        request: &RequestId,
    ) -> Result<Option<(IssueId, u64)>, LedgerError> {
        let read = |row: &Row<'_>| -> Result<(IssueId, u64), Damage> {
            let issue: String = row.get(0)?;
            let token: i64 = row.get(1)?;
            Ok((issue.parse()?, token.cast_unsigned()))
        };
        let found = self.rows(
            repo,
            "SELECT issue_id, token FROM leases
             WHERE repo = :repo AND request = :request AND session IS :session
               AND holder = :name AND written_token = token
             UNION ALL
             SELECT issue_id, token FROM tenures
             WHERE repo = :repo AND request = :request AND session IS :session AND holder = :name
             LIMIT 1",
            named_params! {
                ":repo": repo,
                ":request": request.as_str(),
                ":session": session.map(Session::as_str),
                ":name": name,
            },
            read,
        )?;
        Ok(found.into_iter().next())
    }

    fn past_lease(
        &self,
        repo: &str,
        issue: &IssueId,
        lease_id: &str,
    ) -> Result<Option<Ended>, LedgerError> {
        // The issue's own tenures, by the index of the table's key.
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures
             WHERE repo = ?1 AND issue_id = ?2 AND lease_id = ?3"
        );
        let params = params![repo, issue.as_str(), lease_id];
        let found = self.rows(repo, &query, params, rows::ended)?;
        Ok(found.into_iter().next().map(|(_, ended)| ended))
    }

    fn bound_to(&self, repo: &str, branch: &Branch) -> Result<Option<IssueId>, LedgerError> {
        let query = format!("SELECT {LEASE}, {TENURE} FROM leases WHERE repo = ?1 AND branch = ?2");
        let found = self.rows(repo, &query, params![repo, branch.as_str()], rows::lease)?;
        Ok(found
            .into_iter()
            .find(|(_, claim)| {
                claim
                    .live(self.now)
                    .and_then(|tenure| tenure.binding.as_ref())
                    .is_some_and(|bound| bound.branch == *branch)
            })
            .map(|(issue, _)| issue))
    }

    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError> {
        let read = |row: &Row<'_>| -> Result<IssueId, Damage> {
            let issue: String = row.get(0)?;
            Ok(issue.parse()?)
        };
        // Ids are ASCII, so what begins with `typed` lies below `typed` and DEL.
        let found = self.rows(
            repo,
            "SELECT issue_id FROM leases
             WHERE repo = ?1 AND issue_id >= ?2 AND issue_id < ?2 || char(127)
             ORDER BY issue_id LIMIT ?3",
            params![repo, typed.as_str(), most],
            read,
        )?;
        Ok(found
            .into_iter()
            .filter(|issue| typed.stands_for(issue.as_str()))
            .collect())
    }

    fn live(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Claim)>, LedgerError> {
        // Two ranges of one index: an OR would read every row that ever was held.
        let held = format!(
            "SELECT {LEASE}, {TENURE} FROM leases
             WHERE repo = :repo AND holder IS NOT NULL AND (:name IS NULL OR holder = :name)"
        );
        let query = format!("{held} AND expires_at IS NULL UNION ALL {held} AND expires_at > :now");
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":now": self.now.floor(),
        };
        let mut found: Vec<(Place, Claim)> = self
            .rows(repo, &query, params, rows::lease)?
            .into_iter()
            .map(|(issue, claim)| (Place::of(&issue, &claim), claim))
            .collect();
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        if let Some(after) = &filter.after
            && let Some(place) = self.place_of(repo, after)?
        {
            found.retain(|(found, _)| *found > place);
        }
        truncate(&mut found, filter.limit);
        Ok(found
            .into_iter()
            .map(|(place, claim)| (place.issue, claim))
            .collect())
    }

    fn ended(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        // What stands before `after` is needed to find the place behind it.
        let enough = filter.limit.filter(|_| filter.after.is_none());
        let ran_out = format!(
            "SELECT {LEASE}, {TENURE} FROM leases
             WHERE repo = :repo AND holder IS NOT NULL AND expires_at <= :now
               AND (:name IS NULL OR holder = :name)
             ORDER BY expires_at DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":now": self.now.floor(),
            ":limit": sql_limit(enough),
        };
        let mut found: Vec<(IssueId, Ended)> = self
            .rows(repo, &ran_out, params, rows::lease)?
            .into_iter()
            .filter_map(|(issue, claim)| {
                let ended = claim.tenure.as_ref()?.expired(claim.token);
                Some((issue, ended))
            })
            .collect();
        let given_back = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures AS t
             WHERE repo = :repo AND (:name IS NULL OR holder = :name)
               AND EXISTS (SELECT 1 FROM leases AS l
                           WHERE l.repo = t.repo AND l.issue_id = t.issue_id
                             AND l.token = t.token AND l.holder IS NULL)
             ORDER BY id DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":name": filter.holder,
            ":limit": sql_limit(enough),
        };
        found.extend(self.rows(repo, &given_back, params, rows::ended)?);
        Ok(filter.of_ended(found))
    }

    fn history(
        &self,
        repo: &str,
        issue: Option<&IssueId>,
        limit: Option<u32>,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        let (of_issue, order) = match issue {
            Some(_) => ("AND issue_id = :issue", "token"),
            None => ("AND :issue IS NULL", "id"),
        };
        let query = format!(
            "SELECT {ENDED}, {TENURE} FROM tenures WHERE repo = :repo {of_issue}
             ORDER BY {order} DESC LIMIT :limit"
        );
        let params = named_params! {
            ":repo": repo,
            ":issue": issue.map(IssueId::as_str),
            ":limit": sql_limit(limit),
        };
        self.rows(repo, &query, params, rows::ended)
    }
}

impl Transaction for SqliteTransaction<'_> {
    fn store(
        &mut self,
        repo: &str,
        issue: &IssueId,
        claim: &mut Claim,
        ended: Option<&Ended>,
    ) -> Result<(), LedgerError> {
        if let Some(ended) = ended {
            self.store_ended(repo, issue, ended)?;
        }
        let changed = match &claim.tenure {
            None => self.execute(
                "UPDATE leases SET holder = NULL, expires_at = NULL, generation = ?3,
                                   request = NULL, branch = NULL
                 WHERE repo = ?1 AND issue_id = ?2 AND token = ?4",
                params![
                    repo,
                    issue.as_str(),
                    claim.generation.cast_signed(),
                    claim.token.cast_signed()
                ],
            )?,
            Some(tenure) => {
                if let Some(seq) = tenure.seq {
                    self.execute(USE_SEQ, params![seq.cast_signed()])?;
                }
                let values = rows::values(tenure);
                let token = claim.token.cast_signed();
                let generation = claim.generation.cast_signed();
                let issue = issue.as_str();
                let key: [&dyn ToSql; 5] = [&repo, &issue, &token, &generation, &token];
                let all: Vec<&dyn ToSql> = key
                    .into_iter()
                    .chain(values.iter().map(|value| &**value))
                    .collect();
                match self.execute(&update_statement(), &*all)? {
                    0 => self.execute(&insert_statement(), &*all)?,
                    changed => changed,
                }
            }
        };
        if changed == 1 {
            Ok(())
        } else {
            Err(LedgerError::Damaged {
                repo: repo.to_owned(),
                issue: issue.to_string(),
                what: format!("its token is above {} already", claim.token),
            })
        }
    }

    fn next_seq(&mut self) -> Result<u64, LedgerError> {
        let next: i64 = self
            .connection
            .prepare_cached(NEXT_SEQ)
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(|error| self.sql(error))?;
        Ok(next.cast_unsigned())
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<u64, LedgerError> {
        let taken: bool = self
            .connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM leases WHERE repo = ?1)
                     OR EXISTS (SELECT 1 FROM tenures WHERE repo = ?1)",
                params![new],
                |row| row.get(0),
            )
            .map_err(|error| self.sql(error))?;
        if taken {
            return Err(LedgerError::Taken(new.to_owned()));
        }
        self.execute(
            "UPDATE tenures SET repo = ?2 WHERE repo = ?1",
            params![old, new],
        )?;
        let rows = self.execute(
            "UPDATE leases SET repo = ?2 WHERE repo = ?1",
            params![old, new],
        )?;
        Ok(rows as u64)
    }
}

impl SqliteTransaction<'_> {
    pub fn store_ended(
        &self,
        repo: &str,
        issue: &IssueId,
        ended: &Ended,
    ) -> Result<(), LedgerError> {
        let values = rows::values(&ended.tenure);
        let token = ended.token.cast_signed();
        let how = ended.how.name();
        let issue = issue.as_str();
        let key: [&dyn ToSql; 7] = [
            &repo,
            &issue,
            &token,
            &ended.ended_at,
            &how,
            &ended.by,
            &ended.why,
        ];
        let all: Vec<&dyn ToSql> = key
            .into_iter()
            .chain(values.iter().map(|value| &**value))
            .collect();
        // A token that is there already was an older server's, which may have
        // begun again at 1: what was written first stays.
        let statement = format!(
            "INSERT INTO tenures (repo, {ENDED}, {TENURE}) VALUES ({}) ON CONFLICT DO NOTHING",
            placeholders(all.len())
        );
        self.execute(&statement, &*all)?;
        Ok(())
    }
}

/// The columns of a row that [`SqliteTransaction::store`] writes, behind its key.
fn stored_columns() -> String {
    format!("token, generation, written_token, {TENURE}")
}

/// Writes a row that is there, unless its token is above the new one.
fn update_statement() -> String {
    let assignments = stored_columns()
        .split(',')
        .zip(3..)
        .map(|(column, number)| format!("{} = ?{number}", column.trim()))
        .collect::<Vec<_>>()
        .join(", ");
    format!("UPDATE leases SET {assignments} WHERE repo = ?1 AND issue_id = ?2 AND token <= ?3")
}

/// Writes the row of an issue that has none.
fn insert_statement() -> String {
    format!(
        "INSERT INTO leases (repo, issue_id, {}) VALUES ({}) ON CONFLICT DO NOTHING",
        stored_columns(),
        placeholders(5 + TENURE_COLUMNS)
    )
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

//! Rows that anybody could have written into the file, in memory alone.

use std::path::Path;

use proptest::prelude::*;
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::rows::{self, Damage, TENURE_COLUMNS};
use super::schema;
use super::transaction::SqliteTransaction;
use crate::claim::{Now, Tenure};
use crate::fuzz::harness::{Checked, QUICK, fuzz, of, same};
use crate::fuzz::rows::{put_rows, rows_pieces, values};
use crate::ledger::{Filter, Transaction as _, View as _};

const LEASE: usize = 4 + TENURE_COLUMNS;
const ENDED: usize = 6 + TENURE_COLUMNS;

/// What `read` makes of a row of these values.
fn row<T, V: ToSql>(
    connection: &Connection,
    values: impl IntoIterator<Item = V, IntoIter: ExactSizeIterator>,
    read: fn(&Row<'_>) -> Result<T, Damage>,
) -> Result<T, String> {
    let values = values.into_iter();
    let query = format!("SELECT {}", vec!["?"; values.len()].join(", "));
    let mut statement = connection.prepare_cached(&query).unwrap();
    let mut rows = statement.query(params_from_iter(values)).unwrap();
    let row = rows.next().unwrap().unwrap();
    read(row).map_err(|damage| damage.of("r.git", row).to_string())
}

/// The values of a tenure behind `before`, as they are stored.
fn stored(before: Vec<Box<dyn ToSql>>, tenure: Option<&Tenure>) -> Vec<Box<dyn ToSql>> {
    let none = || std::array::from_fn(|_| Box::new(None::<i64>) as Box<dyn ToSql>);
    before
        .into_iter()
        .chain(tenure.map_or_else(none, rows::values))
        .collect()
}

#[test]
fn a_row_of_any_values_is_named_or_read_as_it_is_stored_again() {
    let connection = Connection::open_in_memory().unwrap();
    let own = of(
        &[
            "t1\x1f",
            "i5\x1f",
            "n\x1f",
            "n\x1f",
            "n\x1f",
            "tann\x1f",
            "i1788609600\x1f",
            "i-1\x1f",
            "r1.5\x1f",
            "bx\x1f",
            "treleased\x1f",
            "ts1\x1f",
            "tclaim/1\x1f",
            "t{}\x1f",
            "i9223372036854775807\x1f",
        ],
        30,
    );
    fuzz("row", QUICK, own, |input| {
        let lease = row(&connection, values::<LEASE>(input), rows::lease);
        if let Ok((issue, claim)) = lease {
            let before: Vec<Box<dyn ToSql>> = vec![
                Box::new(issue.to_string()),
                Box::new(claim.token.cast_signed()),
                Box::new(claim.generation.cast_signed()),
                Box::new(claim.token.cast_signed()),
            ];
            let stored = stored(before, claim.tenure.as_ref());
            same(&row(&connection, stored, rows::lease), &Ok((issue, claim)))?;
        }
        let ended = row(&connection, values::<ENDED>(input), rows::ended);
        if let Ok((issue, ended)) = ended {
            let before: Vec<Box<dyn ToSql>> = vec![
                Box::new(issue.to_string()),
                Box::new(ended.token.cast_signed()),
                Box::new(ended.ended_at),
                Box::new(ended.how.name()),
                Box::new(ended.by.clone()),
                Box::new(ended.why.clone()),
            ];
            let stored = stored(before, Some(&ended.tenure));
            same(&row(&connection, stored, rows::ended), &Ok((issue, ended)))?;
        }
        Ok(())
    });
}

/// An older server's table, brought up to date; without types, so that nothing
/// is made of what is put in.
fn older() -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch(
            "CREATE TABLE leases (repo, issue_id, holder, token, acquired_at, expires_at,
                                  PRIMARY KEY (repo, issue_id))",
        )
        .unwrap();
    let transaction = connection.transaction().unwrap();
    schema::make(&transaction).unwrap();
    transaction.commit().unwrap();
    connection
}

/// Whatever an older server's rows hold: what can be read of them is the same
/// from each side, and no token falls.
fn is_bearable(ledger: &mut SqliteTransaction<'_>) -> Checked {
    let repo = "r.git";
    let Ok(issues) = ledger.issues_like(repo, &"1".parse().unwrap(), 5) else {
        return Ok(());
    };
    let live = ledger.live(repo, &Filter::default());
    for issue in issues {
        let Ok(claim) = ledger.claim(repo, &issue) else {
            continue;
        };
        if let Ok(live) = &live {
            let listed = live.iter().find(|(listed, _)| *listed == issue);
            same(&listed.is_some(), &claim.live(ledger.now).is_some())?;
            prop_assert!(listed.is_none_or(|(_, listed)| *listed == claim));
        }
        let mut other = claim.clone();
        if let Some(lower) = claim.token.checked_sub(1) {
            other.token = lower;
            prop_assert!(ledger.store(repo, &issue, &mut other, None).is_err());
            same(&ledger.claim(repo, &issue).unwrap(), &claim)?;
        }
        if claim.tenure.is_some() && claim.token < i64::MAX.cast_unsigned() {
            other.token = claim.token + 1;
            prop_assert!(ledger.store(repo, &issue, &mut other, None).is_ok());
            same(&ledger.claim(repo, &issue).unwrap(), &other)?;
        }
    }
    Ok(())
}

#[test]
fn an_older_servers_rows_are_named_or_read_the_same_from_each_side() {
    let connection = older();
    fuzz("old-row", QUICK, rows_pieces(), |input| {
        connection.execute_batch("BEGIN").unwrap();
        put_rows(&connection, input);
        let checked = is_bearable(&mut SqliteTransaction {
            connection: &connection,
            path: Path::new("collab.db"),
            now: Now(1_788_609_600_000),
        });
        connection.execute_batch("ROLLBACK").unwrap();
        checked
    });
}

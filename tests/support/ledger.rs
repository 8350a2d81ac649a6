//! A look into the ledger's file past the server, and a way to make time pass.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value;

/// The claims, and their history.
const TABLES: [&str; 2] = ["leases", "tenures"];

/// A ledger's file.
pub struct Ledger {
    file: PathBuf,
}

impl Ledger {
    pub fn at(file: PathBuf) -> Ledger {
        Ledger { file }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Makes every claim `seconds` older, as if that time had passed. No test
    /// has to wait for a claim to run out.
    pub fn rewind(&self, seconds: i64) {
        let connection = self.connection();
        for table in TABLES {
            for column in ["acquired_at", "expires_at", "heartbeat_at", "ended_at"] {
                let sql = format!("UPDATE {table} SET {column} = {column} - ?1");
                if columns(&connection, table)
                    .iter()
                    .any(|name| name == column)
                {
                    connection.execute(&sql, [seconds]).unwrap();
                }
            }
        }
    }

    /// Makes the claim on `issue` one of `count` like it, on `issue-2` and so on.
    pub fn repeat(&self, issue: &str, count: u32) {
        let connection = self.connection();
        let named = columns(&connection, "leases").into_iter();
        let others: Vec<String> = named.filter(|name| name != "issue_id").collect();
        let others = others.join(", ");
        let sql = format!(
            "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
             INSERT INTO leases (issue_id, {others})
             SELECT 'issue-' || n, {others} FROM leases, numbers WHERE issue_id = ?1"
        );
        connection.execute(&sql, (issue, count)).unwrap();
    }

    /// Every claim and every past tenure, as text to compare.
    pub fn dump(&self) -> Vec<String> {
        if !self.file.exists() {
            return Vec::new();
        }
        let connection = self.connection();
        let mut rows = Vec::new();
        for table in TABLES {
            if columns(&connection, table).is_empty() {
                continue;
            }
            let mut statement = connection
                .prepare(&format!("SELECT * FROM \"{table}\""))
                .unwrap();
            let width = statement.column_count();
            let mut cursor = statement.query([]).unwrap();
            while let Some(row) = cursor.next().unwrap() {
                let values: Vec<Value> = (0..width).map(|i| row.get(i).unwrap()).collect();
                rows.push(format!("{table}: {values:?}"));
            }
        }
        rows.sort();
        rows
    }

    /// The token of an issue's row.
    pub fn token(&self, issue: &str) -> i64 {
        self.connection()
            .query_row(
                "SELECT token FROM leases WHERE issue_id = ?1",
                [issue],
                |row| row.get(0),
            )
            .unwrap()
    }

    /// What SQLite finds wrong with the file; `ok` if nothing.
    pub fn integrity(&self) -> String {
        column_of_text(&self.connection(), "PRAGMA integrity_check").join("\n")
    }

    /// A connection of the test's own, for what the rest does not offer.
    pub fn connection(&self) -> Connection {
        let connection = Connection::open(&self.file).unwrap();
        connection
            .busy_timeout(std::time::Duration::from_secs(30))
            .unwrap();
        connection
    }
}

fn columns(connection: &Connection, table: &str) -> Vec<String> {
    column_of_text(
        connection,
        &format!("SELECT name FROM pragma_table_info('{table}')"),
    )
}

fn column_of_text(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

//! What an input stands for in a table of SQLite's.

use proptest::prelude::*;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::harness::of;

/// The values of an input, which divides them by `\x1f`: as many as there are
/// places for.
pub fn values<const MANY: usize>(input: &[u8]) -> [ToSqlOutput<'_>; MANY] {
    let mut values = input.split(|byte| *byte == 0x1f);
    std::array::from_fn(|_| value(values.next().unwrap_or_default()))
}

/// A value of any kind that SQLite knows: the first byte says which.
fn value(said: &[u8]) -> ToSqlOutput<'_> {
    let (kind, rest) = said.split_first().unwrap_or((&b'n', &[]));
    let number = str::from_utf8(rest).unwrap_or_default();
    ToSqlOutput::Borrowed(match kind {
        b'i' => ValueRef::Integer(number.parse().unwrap_or(0)),
        b'r' => ValueRef::Real(number.parse().unwrap_or(0.5)),
        // Which may be no UTF-8.
        b't' => ValueRef::Text(rest),
        b'b' => ValueRef::Blob(rest),
        _ => ValueRef::Null,
    })
}

/// Puts in rows of an older server, which the input divides by `\x1e`.
pub fn put_rows(into: &Connection, input: &[u8]) {
    let mut insert = into
        .prepare_cached(
            "INSERT OR REPLACE INTO leases
             (repo, issue_id, holder, token, acquired_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
        )
        .unwrap();
    for row in input.split(|byte| *byte == 0x1e) {
        insert.execute(params_from_iter(values::<6>(row))).unwrap();
    }
}

/// What rows are made of.
pub fn rows_pieces() -> impl Strategy<Value = Vec<u8>> {
    of(
        &[
            "tr.git\x1ft1\x1f",
            "tr.git\x1ft",
            "tann",
            "n",
            "i",
            "r",
            "b",
            "t",
            "\x1f",
            "\x1f",
            "\x1f",
            "\x1e",
            "5",
            "1788609600",
            "1e300",
            "9223372036854775807",
            "-1",
            "1",
            "é",
        ],
        24,
    )
}

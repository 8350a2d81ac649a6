//! etcd's keys and values, its transactions and its leases, as the gateway
//! speaks of them.

use std::time::Instant;

use serde_json::{Value, json};

use super::client::{CallError, Client, decode, encode};
use super::keys::end_of;
use crate::claim::Now;

/// How many operations etcd takes in one transaction unless it is told.
pub const MOST_OPERATIONS: usize = 128;

/// A key with its value.
#[derive(Debug, Clone)]
pub struct Pair {
    pub key: String,
    pub value: Vec<u8>,
    /// The revision of its last write.
    pub written_at: i64,
    /// How often it was written since it was made.
    pub writes: i64,
    /// The lease that it hangs on; 0 for none.
    pub lease: i64,
}

/// What a node says of the cluster with every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub cluster: u64,
    pub revision: i64,
    pub at: Now,
}

/// What is wanted of a range.
#[derive(Debug, Clone)]
pub struct Range {
    pub key: String,
    /// All keys that begin with it.
    pub is_prefix: bool,
    /// Begin behind this key.
    pub after: Option<String>,
    pub limit: usize,
    pub keys_only: bool,
    pub count_only: bool,
}

/// What a range gave.
#[derive(Debug, Default)]
pub struct Found {
    pub pairs: Vec<Pair>,
    /// How many there are, the limit aside.
    pub count: u64,
}

impl Range {
    pub fn one(key: String) -> Range {
        Range {
            key,
            is_prefix: false,
            after: None,
            limit: 0,
            keys_only: false,
            count_only: false,
        }
    }

    pub fn prefix(key: String) -> Range {
        Range {
            is_prefix: true,
            ..Range::one(key)
        }
    }

    /// At `revision`, else now. A node answers what is `local` by itself, and
    /// all else by the word of a majority.
    fn body(&self, revision: Option<i64>, local: bool) -> Value {
        let begin = match &self.after {
            Some(after) => format!("{after}\0"),
            None => self.key.clone(),
        };
        let mut body = json!({ "key": encode(begin) });
        if self.is_prefix {
            body["range_end"] = encode(end_of(&self.key)).into();
        }
        if self.limit > 0 {
            body["limit"] = self.limit.to_string().into();
        }
        if self.keys_only {
            body["keys_only"] = true.into();
        }
        if self.count_only {
            body["count_only"] = true.into();
        }
        if let Some(revision) = revision {
            body["revision"] = revision.to_string().into();
        }
        if local {
            body["serializable"] = true.into();
        }
        body
    }
}

/// What a key must be for a transaction to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Its last write was at this revision; 0: it is not there.
    WrittenAt(i64),
    /// No key begins so.
    NoneBelow,
}

/// What a transaction does to a key.
#[derive(Debug, Clone)]
pub enum Edit {
    Put { value: Vec<u8>, lease: i64 },
    Delete,
    DeleteBelow,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Made,
    /// A guard did not hold.
    Conflict,
}

/// A lease that was granted.
#[derive(Debug, Clone, Copy)]
pub struct Granted {
    pub id: i64,
    /// Seconds; etcd may give more than was asked for.
    pub ttl: i64,
}

impl Client {
    /// Several ranges at one revision: at `revision`, else now.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn ranges(
        &self,
        ranges: &[Range],
        revision: Option<i64>,
        deadline: Instant,
    ) -> Result<(Header, Vec<Found>), CallError> {
        let body = |local| {
            let operations: Vec<Value> = ranges
                .iter()
                .map(|range| json!({ "request_range": range.body(revision, local) }))
                .collect();
            json!({ "success": operations })
        };
        // The node that named the revision has it; another may not, yet.
        let local = match revision {
            Some(_) => self.once("/v3/kv/txn", &body(true), deadline).ok(),
            None => None,
        };
        let answer = match local {
            Some(answer) => answer,
            None => self.ask("/v3/kv/txn", &body(false), deadline)?,
        };
        let header = header(&answer.body, answer.at)?;
        let found = answer.body["responses"]
            .as_array()
            .map(|responses| {
                responses
                    .iter()
                    .map(|response| found(&response["response_range"]))
                    .collect::<Option<Vec<Found>>>()
            })
            .unwrap_or_default()
            .filter(|found| found.len() == ranges.len())
            .ok_or_else(strange)?;
        Ok((header, found))
    }

    /// Makes all `edits` at once, if all `guards` hold. Asks one node, once.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn transaction(
        &self,
        guards: &[(String, Guard)],
        edits: &[(String, Edit)],
        deadline: Instant,
    ) -> Result<(Header, Outcome), CallError> {
        let compare: Vec<Value> = guards
            .iter()
            .map(|(key, guard)| match guard {
                Guard::WrittenAt(revision) => json!({
                    "key": encode(key), "target": "MOD", "result": "EQUAL",
                    "mod_revision": revision.to_string(),
                }),
                Guard::NoneBelow => json!({
                    "key": encode(key), "range_end": encode(end_of(key)),
                    "target": "VERSION", "result": "EQUAL", "version": "0",
                }),
            })
            .collect();
        let success: Vec<Value> = edits
            .iter()
            .map(|(key, edit)| match edit {
                Edit::Put { value, lease } => json!({ "request_put": {
                    "key": encode(key), "value": encode(value), "lease": lease.to_string(),
                }}),
                Edit::Delete => json!({ "request_delete_range": { "key": encode(key) } }),
                Edit::DeleteBelow => json!({ "request_delete_range": {
                    "key": encode(key), "range_end": encode(end_of(key)),
                }}),
            })
            .collect();
        let body = json!({ "compare": compare, "success": success });
        let answer = self.once("/v3/kv/txn", &body, deadline)?;
        let outcome = if answer.body["succeeded"] == true {
            Outcome::Made
        } else {
            Outcome::Conflict
        };
        Ok((header(&answer.body, answer.at)?, outcome))
    }

    /// A new lease of at least `ttl` seconds. One that is not used after all
    /// runs out by itself.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn grant(&self, ttl: i64, deadline: Instant) -> Result<Granted, CallError> {
        let body = json!({ "TTL": ttl.to_string() });
        let answer = self.ask("/v3/lease/grant", &body, deadline)?;
        Ok(Granted {
            id: number(&answer.body["ID"]).ok_or_else(strange)?,
            ttl: number(&answer.body["TTL"]).ok_or_else(strange)?,
        })
    }

    /// Begins a lease anew; false if it has run out.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn keep_alive(&self, lease: i64, deadline: Instant) -> Result<bool, CallError> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.ask("/v3/lease/keepalive", &body, deadline)?;
        let kept = &answer.body["result"];
        if !kept.is_object() {
            return Err(strange());
        }
        Ok(number(&kept["TTL"]).is_some_and(|ttl| ttl > 0))
    }

    /// How many whole seconds a lease has left, and how many it was granted;
    /// `None` if it has run out.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn time_left(&self, lease: i64, deadline: Instant) -> Result<Option<Left>, CallError> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.ask("/v3/lease/timetolive", &body, deadline)?;
        let left = number(&answer.body["TTL"]).unwrap_or(0);
        let granted = number(&answer.body["grantedTTL"]).unwrap_or(0);
        Ok((left >= 0 && granted > 0).then_some(Left { left, granted }))
    }

    /// Ends a lease that nothing hangs on any more. If that fails, it runs out.
    pub fn revoke(&self, lease: i64, deadline: Instant) {
        let body = json!({ "ID": lease.to_string() });
        let _ = self.once("/v3/lease/revoke", &body, deadline);
    }
}

/// What is left of a lease, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Left {
    pub left: i64,
    pub granted: i64,
}

fn strange() -> CallError {
    CallError::Unknown("etcd's gateway answers what can't be read".to_owned())
}

fn header(body: &Value, at: Now) -> Result<Header, CallError> {
    let header = &body["header"];
    let cluster = header["cluster_id"].as_str().and_then(|id| id.parse().ok());
    Ok(Header {
        cluster: cluster.ok_or_else(strange)?,
        revision: number(&header["revision"]).ok_or_else(strange)?,
        at,
    })
}

/// The gateway writes numbers of 64 bits as text, and leaves zeros out.
fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
}

fn found(range: &Value) -> Option<Found> {
    let pairs = match range.get("kvs") {
        None => Vec::new(),
        Some(pairs) => pairs.as_array()?.iter().map(pair).collect::<Option<_>>()?,
    };
    let count = number(&range["count"]).unwrap_or(0);
    Some(Found {
        pairs,
        count: count.unsigned_abs(),
    })
}

fn pair(pair: &Value) -> Option<Pair> {
    let value = match pair.get("value") {
        None => Vec::new(),
        Some(value) => decode(value.as_str()?)?,
    };
    Some(Pair {
        key: String::from_utf8(decode(pair["key"].as_str()?)?).ok()?,
        value,
        written_at: number(&pair["mod_revision"])?,
        writes: number(&pair["version"]).unwrap_or(0),
        lease: number(&pair["lease"]).unwrap_or(0),
    })
}

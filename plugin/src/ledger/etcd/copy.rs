//! The whole ledger at once: out of a cluster, and into one.

use std::collections::HashMap;
use std::time::Instant;

use git_claim_api::ids::IssueId;
use git_claim_api::ledger::{EtcdPlace, LedgerPlace};
use git_claim_api::settings::EtcdFiles;

use super::EtcdLedger;
use super::keys::{RepoKeys, end_part, unescaped};
use super::kv::{Edit, Found, Guard, Header, MOST_OPERATIONS, Outcome, Pair, Range};
use super::look::Look;
use super::record::{self, Alias, Begun, Meta, Place, Row, SCHEMA};
use crate::claim::{Ended, Tenure};
use crate::ledger::contents::Contents;
use crate::ledger::copy::{self, Room};
use crate::ledger::{Ledger, LedgerError, View as _, When};

/// How many keys are asked for at once.
const PAGE: usize = 1_000;

/// How it stands where a ledger is to be put.
struct Before {
    found: Room,
    meta: Guard,
    cluster: u64,
}

impl EtcdLedger {
    /// All that it holds.
    ///
    /// # Errors
    /// What can't be read.
    pub fn contents(&self, look: &Look<'_>) -> Result<Contents, LedgerError> {
        let all = |kind: &str| self.all(look, &format!("{}{kind}/", self.keys.all()));
        let mut repos = HashMap::new();
        for pair in all("alias")? {
            let alias: Alias = self.read(&pair)?;
            repos.insert(alias.name, unescaped(end_part(&pair.key, 0)));
        }
        let repo_of = |key: &str, depth: usize| {
            let name = end_part(key, depth);
            repos.get(name).cloned().unwrap_or_else(|| unescaped(name))
        };
        let mut held: HashMap<String, Pair> = by_place(all("held")?);
        let mut live: HashMap<String, Pair> = by_place(all("live")?);
        let mut contents = Contents {
            id: look.meta().id.clone(),
            at: look.now().floor(),
            ..Contents::default()
        };
        for pair in all("row")? {
            let issue = self.issue(&pair, end_part(&pair.key, 0))?;
            let place = place_of(&pair.key);
            let repo = repo_of(&pair.key, 1);
            let (held, live) = (held.remove(&place), live.remove(&place));
            let mut seen = look.row(&repo, &issue, Some(&pair), held.as_ref(), live.as_ref())?;
            if let Some(live) = &mut seen.live {
                let left = self.client.time_left(live.lease, look.deadline);
                live.left = left.map_err(|error| self.failed(error))?;
            }
            contents.rows.push((repo, issue, seen.claim(look.now())));
        }
        for pair in all("ended")? {
            let issue = self.issue(&pair, end_part(&pair.key, 1))?;
            let ended = self.read(&pair)?;
            contents.past.push((repo_of(&pair.key, 3), issue, ended));
        }
        // The keys have the newest of each repository first.
        contents.past.reverse();
        contents.past.sort_by_key(|(_, _, ended)| ended.ended_at);
        Ok(contents)
    }

    fn all(&self, look: &Look<'_>, prefix: &str) -> Result<Vec<Pair>, LedgerError> {
        let mut pairs: Vec<Pair> = Vec::new();
        loop {
            let page = Range {
                after: pairs.last().map(|pair| pair.key.clone()),
                limit: PAGE,
                ..Range::prefix(prefix.to_owned())
            };
            let found = look.ranges(&[page])?;
            let found: Vec<Pair> = found.into_iter().flat_map(|found| found.pairs).collect();
            let is_last = found.len() < PAGE;
            pairs.extend(found);
            if is_last {
                return Ok(pairs);
            }
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&self, pair: &Pair) -> Result<T, LedgerError> {
        record::read(&pair.value)
            .map_err(|why| self.unfit(&format!("has a damaged {}: {why}", pair.key)))
    }

    fn issue(&self, pair: &Pair, name: &str) -> Result<IssueId, LedgerError> {
        name.parse()
            .map_err(|_| self.unfit(&format!("has a key that is no issue's: {}", pair.key)))
    }

    /// What is there of the ledger `id`.
    fn look_for_room(&self, id: &str, deadline: Instant) -> Result<Before, LedgerError> {
        let count = Range {
            count_only: true,
            ..Range::prefix(self.keys.all())
        };
        let ranges = [
            Range::one(self.keys.meta()),
            Range::one(self.keys.loading()),
            count,
        ];
        let (header, found) = self
            .client
            .ranges(&ranges, None, deadline)
            .map_err(|error| self.failed(error))?;
        let value = |found: Option<&Found>| found.and_then(|found| found.pairs.first()).cloned();
        let meta = value(found.first());
        let begun = value(found.get(1));
        let is_empty = found.get(2).is_none_or(|found| found.count == 0);
        let room = match &meta {
            None if is_empty => Room::Free,
            None if begun.is_some_and(|begun| begun.value == id.as_bytes()) => Room::Free,
            None => Room::Another,
            Some(pair) => {
                let meta: Meta = self.read(pair)?;
                match (meta.id == id, meta.moved_to) {
                    (false, _) => Room::Another,
                    (true, None) => Room::Itself,
                    (true, Some(_)) => Room::Free,
                }
            }
        };
        Ok(Before {
            found: room,
            meta: Guard::WrittenAt(meta.map_or(0, |pair| pair.written_at)),
            cluster: header.cluster,
        })
    }

    /// Puts `contents` where there is room. When all of it is there, it says that
    /// it has moved to `from`, where it comes from.
    ///
    /// # Errors
    /// [`LedgerError::Busy`]: another such load has begun since this one did.
    pub fn load(
        &self,
        contents: &Contents,
        from: &str,
        deadline: Instant,
    ) -> Result<(), LedgerError> {
        let before = self.look_for_room(&contents.id, deadline)?;
        if before.found != Room::Free {
            return Err(LedgerError::Busy);
        }
        let away = [(self.keys.all(), Edit::DeleteBelow)];
        self.must(&[(self.keys.meta(), before.meta)], &away, deadline)?;
        let loading = self.keys.loading();
        let absent = (self.keys.meta(), Guard::WrittenAt(0));
        let mark = put(loading.clone(), contents.id.clone().into_bytes());
        let nobody_else = (loading.clone(), Guard::WrittenAt(0));
        let marked = self.must(&[absent.clone(), nobody_else], &[mark], deadline)?;
        // Whoever begins anew makes another mark. What is still on its way to
        // the cluster then comes too late.
        let mine = [absent, (loading.clone(), Guard::WrittenAt(marked.revision))];
        let mut edits = Vec::new();
        // Above the numbers of all that is carried.
        let seq_base = contents.last_seq().max(contents.past.len() as u64 + 1);
        for (repo, issue, claim) in &contents.rows {
            let keys = self.keys.of(repo, None);
            let row = Row {
                token: claim.token,
                generation: claim.generation,
                ..Row::default()
            };
            edits.push(put(keys.row(issue.as_str()), record::write(&row)));
            if let Some(tenure) = &claim.tenure {
                edits.push(put(keys.held(issue.as_str()), record::write(tenure)));
                self.load_tenure(&mut edits, &keys, issue, claim.token, tenure);
                let left = tenure.expires_at.map(|end| end - contents.at);
                if let Some(left) = left.filter(|left| *left > 0) {
                    let granted = self.client.grant(left, deadline);
                    let lease = granted.map_err(|error| self.failed(error))?.id;
                    let value = claim.token.to_string().into_bytes();
                    edits.push((keys.live(issue.as_str()), Edit::Put { value, lease }));
                }
            }
        }
        for (number, (repo, issue, ended)) in contents.past.iter().enumerate() {
            let keys = self.keys.of(repo, None);
            self.load_ended(&mut edits, &keys, issue, number as u64 + 1, ended);
        }
        // Only the last of several is to be written to a key of one transaction.
        for chunk in edits.chunks(MOST_OPERATIONS / 2) {
            let last: HashMap<&String, &Edit> =
                chunk.iter().map(|(key, edit)| (key, edit)).collect();
            let chunk: Vec<(String, Edit)> = last
                .into_iter()
                .map(|(key, edit)| (key.clone(), edit.clone()))
                .collect();
            self.must(&mine, &chunk, deadline)?;
        }
        let meta = Meta {
            schema: SCHEMA,
            id: contents.id.clone(),
            cluster: before.cluster,
            seq_base,
            moved_to: Some(from.to_owned()),
        };
        let done = [
            put(self.keys.meta(), record::write(&meta)),
            (loading, Edit::Delete),
        ];
        self.must(&mine, &done, deadline).map(|_| ())
    }

    fn load_tenure(
        &self,
        edits: &mut Vec<(String, Edit)>,
        keys: &RepoKeys,
        issue: &IssueId,
        token: u64,
        tenure: &Tenure,
    ) {
        if let Some(bound) = &tenure.binding {
            edits.push(put(keys.branch(&bound.branch), record::write(issue)));
        }
        if let Some(request) = &tenure.request {
            let begun = Begun {
                issue: issue.clone(),
                token,
            };
            let key = keys.request(&tenure.holder, tenure.session.as_ref(), request);
            edits.push(put(key, record::write(&begun)));
        }
    }

    fn load_ended(
        &self,
        edits: &mut Vec<(String, Edit)>,
        keys: &RepoKeys,
        issue: &IssueId,
        time: u64,
        ended: &Ended,
    ) {
        let tenure = &ended.tenure;
        let place = record::write(&Place {
            time,
            token: ended.token,
        });
        let last = keys.last(issue, &tenure.holder, tenure.session.as_ref());
        edits.push(put(
            keys.ended(time, issue, ended.token),
            record::write(ended),
        ));
        edits.push(put(keys.past(issue, ended.token), place.clone()));
        edits.push(put(last, place));
        if let Some(request) = &tenure.request {
            let begun = Begun {
                issue: issue.clone(),
                token: ended.token,
            };
            let key = keys.request(&tenure.holder, tenure.session.as_ref(), request);
            edits.push(put(key, record::write(&begun)));
        }
    }

    /// Makes a transaction that nobody else should be in the way of.
    pub(super) fn must(
        &self,
        guards: &[(String, Guard)],
        edits: &[(String, Edit)],
        deadline: Instant,
    ) -> Result<Header, LedgerError> {
        match self.client.transaction(guards, edits, deadline) {
            Ok((header, Outcome::Made)) => Ok(header),
            Ok((_, Outcome::Conflict)) => Err(LedgerError::Busy),
            Err(error) => Err(self.failed(error)),
        }
    }
}

/// A prefix in etcd, which says until the end that the ledger is where it comes
/// from.
pub struct Target<'a> {
    ledger: EtcdLedger,
    from: String,
    when: When<'a>,
}

impl<'a> Target<'a> {
    /// For a ledger that comes from `from`.
    ///
    /// # Errors
    /// As [`EtcdLedger::open`].
    pub fn new(
        place: &EtcdPlace,
        files: &EtcdFiles,
        from: &LedgerPlace,
        when: When<'a>,
    ) -> Result<Target<'a>, LedgerError> {
        Ok(Target {
            ledger: EtcdLedger::open(place, files)?,
            from: from.to_string(),
            when,
        })
    }
}

impl copy::Target for Target<'_> {
    fn found(&self, id: &str) -> Result<Room, LedgerError> {
        let before = self.ledger.look_for_room(id, self.when.deadline)?;
        Ok(before.found)
    }

    fn fill(&self, contents: &Contents) -> Result<Contents, LedgerError> {
        let deadline = self.when.deadline;
        self.ledger.load(contents, &self.from, deadline)?;
        Ledger::contents(&self.ledger, self.when)
    }

    fn open(&self) -> Result<(), LedgerError> {
        self.ledger.retire(self.when, None).map(|_| ())
    }
}

fn put(key: String, value: Vec<u8>) -> (String, Edit) {
    (key, Edit::Put { value, lease: 0 })
}

/// The repository's name and the issue in a key that ends with them.
fn place_of(key: &str) -> String {
    format!("{}/{}", end_part(key, 1), end_part(key, 0))
}

fn by_place(pairs: Vec<Pair>) -> HashMap<String, Pair> {
    pairs
        .into_iter()
        .map(|pair| (place_of(&pair.key), pair))
        .collect()
}

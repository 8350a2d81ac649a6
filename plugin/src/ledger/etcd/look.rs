//! A look at the ledger: everything at the one revision that it began at.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Instant;

use git_claim_api::ids::{Branch, IssueId, RequestId, Session};
use serde::de::DeserializeOwned;

use super::EtcdLedger;
use super::client::CallError;
use super::keys::{RepoKeys, last_part};
use super::kv::{Found, Guard, Header, Left, MOST_OPERATIONS, Pair, Range};
use super::record::{self, Alias, Begun, Meta, Place, Row, SCHEMA};
use crate::claim::{Claim, Ended, Now, Tenure};
use crate::ledger::{Filter, LedgerError, RECENT_TENURES, View};

/// How many keys are asked for at once.
const PAGE: usize = 1_000;

/// A consistent look.
#[derive(Debug)]
pub struct Look<'a> {
    pub ledger: &'a EtcdLedger,
    pub deadline: Instant,
    header: Header,
    meta: Meta,
    repos: RefCell<HashMap<String, RepoKeys>>,
    seen: RefCell<HashMap<(String, IssueId), Seen>>,
    /// What must still be so for a change that is decided here.
    guards: RefCell<HashMap<String, Guard>>,
}

/// An issue's row as it was found.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub row: Row,
    /// When the row was written last, and how often it was.
    pub written_at: i64,
    pub writes: i64,
    pub tenure: Option<Tenure>,
    /// The key that lives as long as a tenure with an end does.
    pub live: Option<Live>,
}

#[derive(Debug, Clone, Copy)]
pub struct Live {
    pub written_at: i64,
    pub lease: i64,
    /// What is left of the lease, if that was asked for.
    pub left: Option<Left>,
}

impl Seen {
    /// The claim as it stands at `now`.
    pub fn claim(&self, now: Now) -> Claim {
        let mut tenure = self.tenure.clone();
        if let Some(tenure) = &mut tenure
            && let Some(end) = &mut tenure.expires_at
        {
            *end = match self.live {
                // It lives, whatever was expected when it was granted: a new
                // leader begins all leases anew.
                Some(live) => match live.left {
                    Some(left) => now.floor() + left.left.max(1),
                    None => (*end).max(now.floor() + 1),
                },
                None => (*end).min(now.floor()),
            };
        }
        Claim {
            token: self.row.token,
            generation: self.row.generation,
            tenure,
        }
    }
}

impl<'a> Look<'a> {
    /// Asks a majority how far it has come.
    ///
    /// # Errors
    /// There is no ledger, or it is not one that may be used.
    pub fn begin(ledger: &'a EtcdLedger, deadline: Instant) -> Result<Look<'a>, LedgerError> {
        let look = Look::begin_anyway(ledger, deadline)?;
        match &look.meta.moved_to {
            None => Ok(look),
            Some(place) => {
                Err(ledger.unfit(&format!("has moved to {place}; set claim.ledger to that")))
            }
        }
    }

    /// The same for a ledger that has moved away.
    ///
    /// # Errors
    /// There is none.
    pub fn begin_anyway(
        ledger: &'a EtcdLedger,
        deadline: Instant,
    ) -> Result<Look<'a>, LedgerError> {
        let key = ledger.keys.meta();
        let (header, found) = ledger
            .client
            .ranges(&[Range::one(key.clone())], None, deadline)
            .map_err(|error| ledger.failed(error))?;
        let Some(pair) = found.first().and_then(|found| found.pairs.first()) else {
            return Err(ledger.unfit(
                "is not there; if this is the right cluster, `git-claim-server init` makes it",
            ));
        };
        let meta: Meta = record::read(&pair.value)
            .map_err(|why| ledger.unfit(&format!("can't be read: {why}")))?;
        if meta.schema != SCHEMA {
            return Err(ledger.unfit(&format!(
                "has schema version {}, and this program knows {SCHEMA}; use a newer git-claim",
                meta.schema
            )));
        }
        if meta.cluster != header.cluster {
            return Err(ledger.unfit("was made in another cluster than the one that answers"));
        }
        let guard = (key, Guard::WrittenAt(pair.written_at));
        Ok(Look {
            ledger,
            deadline,
            header,
            meta,
            repos: RefCell::default(),
            seen: RefCell::default(),
            guards: RefCell::new(HashMap::from([guard])),
        })
    }

    pub fn revision(&self) -> u64 {
        self.header.revision.unsigned_abs()
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// A number above those of all tenures that had begun.
    pub fn next_seq(&self) -> u64 {
        self.meta.seq_base + self.revision() + 1
    }

    pub fn failed(&self, error: CallError) -> LedgerError {
        self.ledger.failed(error)
    }

    /// Ranges at the revision of this look.
    pub fn ranges(&self, ranges: &[Range]) -> Result<Vec<Found>, LedgerError> {
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let (header, found) = self
            .ledger
            .client
            .ranges(ranges, Some(self.header.revision), self.deadline)
            .map_err(|error| self.failed(error))?;
        if header.cluster != self.header.cluster {
            return Err(self
                .ledger
                .unfit("names nodes that do not belong to one cluster"));
        }
        Ok(found)
    }

    /// Ranges in a repository, whose name in keys may have to be found first.
    pub fn in_repo(
        &self,
        repo: &str,
        ranges: impl Fn(&RepoKeys) -> Vec<Range>,
    ) -> Result<(RepoKeys, Vec<Found>), LedgerError> {
        if let Some(keys) = self.repos.borrow().get(repo) {
            let found = self.ranges(&ranges(keys))?;
            return Ok((keys.clone(), found));
        }
        // Few repositories have another name: ask for both at once.
        let alias_key = self.ledger.keys.alias(repo);
        let plain = self.ledger.keys.of(repo, None);
        let mut all = ranges(&plain);
        all.push(Range::one(alias_key.clone()));
        let mut found = self.ranges(&all)?;
        let alias = found.pop().and_then(|found| found.pairs.into_iter().next());
        let written_at = alias.as_ref().map_or(0, |pair| pair.written_at);
        self.guard(alias_key, written_at);
        let keys = match &alias {
            None => plain,
            Some(pair) => {
                let alias: Alias = record::read(&pair.value)
                    .map_err(|why| self.ledger.unfit(&format!("has a damaged alias: {why}")))?;
                self.ledger.keys.of(repo, Some(&alias.name))
            }
        };
        self.repos
            .borrow_mut()
            .insert(repo.to_owned(), keys.clone());
        if alias.is_some() {
            found = self.ranges(&ranges(&keys))?;
        }
        Ok((keys, found))
    }

    /// A change that is decided here needs `key` as it was found first.
    pub fn guard(&self, key: String, written_at: i64) {
        let mut guards = self.guards.borrow_mut();
        guards.entry(key).or_insert(Guard::WrittenAt(written_at));
    }

    pub fn guard_none_below(&self, key: String) {
        self.guards.borrow_mut().insert(key, Guard::NoneBelow);
    }

    pub fn guards(&self) -> Vec<(String, Guard)> {
        let guards = self.guards.borrow();
        guards
            .iter()
            .map(|(key, guard)| (key.clone(), *guard))
            .collect()
    }

    /// The row of an issue.
    pub fn seen(&self, repo: &str, issue: &IssueId) -> Result<Seen, LedgerError> {
        let place = (repo.to_owned(), issue.clone());
        if let Some(seen) = self.seen.borrow().get(&place) {
            return Ok(seen.clone());
        }
        let (_, found) = self.in_repo(repo, |keys| {
            let issue = issue.as_str();
            [keys.row(issue), keys.held(issue), keys.live(issue)]
                .map(Range::one)
                .to_vec()
        })?;
        let pairs = found.iter().map(|found| found.pairs.first());
        let [row, held, live] = pairs.collect::<Vec<_>>()[..] else {
            return Err(LedgerError::Again);
        };
        let seen = self.row(repo, issue, row, held, live)?;
        self.seen.borrow_mut().insert(place, seen.clone());
        Ok(seen)
    }

    pub fn row(
        &self,
        repo: &str,
        issue: &IssueId,
        row: Option<&Pair>,
        held: Option<&Pair>,
        live: Option<&Pair>,
    ) -> Result<Seen, LedgerError> {
        let damaged = |what: String| damaged(repo, issue, what);
        let Some(row) = row else {
            return match held.or(live) {
                None => Ok(Seen::default()),
                Some(_) => Err(damaged("it has a tenure, and no token".to_owned())),
            };
        };
        let read: Row = record::read(&row.value).map_err(damaged)?;
        let tenure: Option<Tenure> = held
            .map(|held| record::read(&held.value))
            .transpose()
            .map_err(damaged)?;
        let is_of_this_tenure = |live: &&Pair| live.value == read.token.to_string().as_bytes();
        Ok(Seen {
            written_at: row.written_at,
            writes: row.writes,
            tenure,
            live: live.filter(is_of_this_tenure).map(|live| Live {
                written_at: live.written_at,
                lease: live.lease,
                left: None,
            }),
            row: read,
        })
    }

    /// The row of an issue, with what is left of its lease.
    fn seen_to_the_end(&self, repo: &str, issue: &IssueId) -> Result<Seen, LedgerError> {
        let mut seen = self.seen(repo, issue)?;
        if let Some(live) = &mut seen.live
            && live.left.is_none()
        {
            live.left = self
                .ledger
                .client
                .time_left(live.lease, self.deadline)
                .map_err(|error| self.failed(error))?;
            let place = (repo.to_owned(), issue.clone());
            self.seen.borrow_mut().insert(place, seen.clone());
        }
        Ok(seen)
    }

    /// What was stored, for whoever looks again.
    pub fn note(&self, repo: &str, issue: &IssueId, seen: Seen) {
        let place = (repo.to_owned(), issue.clone());
        self.seen.borrow_mut().insert(place, seen);
    }

    /// The values of several keys of a repository, each of them there.
    fn values<T: DeserializeOwned>(
        &self,
        repo: &str,
        keys: &[String],
    ) -> Result<Vec<T>, LedgerError> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MOST_OPERATIONS) {
            let ranges: Vec<Range> = keys.iter().cloned().map(Range::one).collect();
            for (key, found) in keys.iter().zip(self.ranges(&ranges)?) {
                let pair = found.pairs.first();
                let value = pair.ok_or("it is missing".to_owned());
                let value = value
                    .and_then(|pair| record::read(&pair.value))
                    .map_err(|what| LedgerError::Damaged {
                        repo: repo.to_owned(),
                        issue: key.clone(),
                        what,
                    })?;
                values.push(value);
            }
        }
        Ok(values)
    }

    /// All keys that begin with what `prefix` answers, page by page, until
    /// `each` has enough.
    fn pages(
        &self,
        repo: &str,
        page: usize,
        keys_only: bool,
        prefix: impl Fn(&RepoKeys) -> String,
        mut each: impl FnMut(&RepoKeys, Vec<Pair>) -> Result<bool, LedgerError>,
    ) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let (keys, mut found) = self.in_repo(repo, |keys| {
                vec![Range {
                    after: after.clone(),
                    limit: page,
                    keys_only,
                    ..Range::prefix(prefix(keys))
                }]
            })?;
            let pairs = found.pop().unwrap_or_default().pairs;
            let is_last = pairs.len() < page;
            after = pairs.last().map(|pair| pair.key.clone());
            if each(&keys, pairs)? || is_last {
                return Ok(());
            }
        }
    }

    /// The rows that name a tenure, live or not.
    fn held(&self, repo: &str) -> Result<Vec<(IssueId, Seen)>, LedgerError> {
        let mut live = HashMap::new();
        self.pages(
            repo,
            PAGE,
            false,
            |keys| keys.live(""),
            |_, pairs| {
                live.extend(pairs.into_iter().map(|pair| {
                    let issue = last_part(&pair.key).to_owned();
                    (issue, pair)
                }));
                Ok(false)
            },
        )?;
        let mut rows = HashMap::new();
        let mut held = Vec::new();
        self.pages(
            repo,
            PAGE,
            false,
            |keys| keys.held(""),
            |keys, pairs| {
                // The rows of the same issues: there may be many others.
                let of = |pair: &Pair| keys.row(last_part(&pair.key));
                for pairs in pairs.chunks(MOST_OPERATIONS) {
                    let ranges: Vec<Range> = pairs.iter().map(of).map(Range::one).collect();
                    for found in self.ranges(&ranges)? {
                        rows.extend(found.pairs.into_iter().map(|pair| {
                            let issue = last_part(&pair.key).to_owned();
                            (issue, pair)
                        }));
                    }
                }
                held.extend(pairs);
                Ok(false)
            },
        )?;
        held.iter()
            .map(|pair| {
                let name = last_part(&pair.key);
                let issue: IssueId = name.parse().map_err(|error| LedgerError::Damaged {
                    repo: repo.to_owned(),
                    issue: name.to_owned(),
                    what: format!("{error}"),
                })?;
                let seen = self.row(repo, &issue, rows.get(name), Some(pair), live.get(name))?;
                Ok((issue, seen))
            })
            .collect()
    }

    /// The tenures of a repository that are over, the newest first, until `each`
    /// has enough.
    fn over(
        &self,
        repo: &str,
        page: usize,
        mut each: impl FnMut(&RepoKeys, Vec<(IssueId, Ended)>) -> Result<bool, LedgerError>,
    ) -> Result<(), LedgerError> {
        self.pages(repo, page, false, RepoKeys::all_ended, |keys, pairs| {
            let read = |pair: &Pair| -> Result<(IssueId, Ended), LedgerError> {
                let issue = RepoKeys::issue_of_ended(&pair.key);
                let damaged = |what| LedgerError::Damaged {
                    repo: repo.to_owned(),
                    issue: pair.key.clone(),
                    what,
                };
                let issue = issue.ok_or_else(|| damaged("it is no issue's".to_owned()))?;
                let ended = record::read(&pair.value).map_err(damaged)?;
                Ok((issue, ended))
            };
            let ended: Vec<_> = pairs.iter().map(read).collect::<Result<_, _>>()?;
            each(keys, ended)
        })
    }
}

/// The error for a record of an issue that can't be read.
pub fn damaged(repo: &str, issue: &IssueId, what: String) -> LedgerError {
    LedgerError::Damaged {
        repo: repo.to_owned(),
        issue: issue.to_string(),
        what,
    }
}

/// A limit of ours as one that always is one.
fn limit_of(limit: Option<u32>) -> usize {
    limit.map_or(usize::MAX, |limit| limit as usize)
}

impl View for Look<'_> {
    fn now(&self) -> Now {
        self.header.at
    }

    fn ledger_id(&self) -> Result<String, LedgerError> {
        Ok(self.meta.id.clone())
    }

    fn claim(&self, repo: &str, issue: &IssueId) -> Result<Claim, LedgerError> {
        Ok(self.seen_to_the_end(repo, issue)?.claim(self.now()))
    }

    fn last_of(
        &self,
        repo: &str,
        issue: &IssueId,
        name: &str,
        session: Option<&Session>,
    ) -> Result<Option<Ended>, LedgerError> {
        let token = self.seen(repo, issue)?.row.token;
        if token == 0 {
            return Ok(None);
        }
        let (keys, found) = self.in_repo(repo, |keys| {
            vec![Range::one(keys.last(issue, name, session))]
        })?;
        let Some(pair) = found.first().and_then(|found| found.pairs.first()) else {
            return Ok(None);
        };
        let last: Place = record::read(&pair.value).map_err(|what| damaged(repo, issue, what))?;
        if last.token + RECENT_TENURES <= token {
            return Ok(None);
        }
        let key = keys.ended(last.time, issue, last.token);
        Ok(self.values(repo, &[key])?.pop())
    }

    fn begun_by(
        &self,
        repo: &str,
        name: &str,
        session: Option<&Session>,
        request: &RequestId,
    ) -> Result<Option<(IssueId, u64)>, LedgerError> {
        let key = Cell::new(String::new());
        let (_, found) = self.in_repo(repo, |keys| {
            key.set(keys.request(name, session, request));
            vec![Range::one(keys.request(name, session, request))]
        })?;
        let pair = found.first().and_then(|found| found.pairs.first());
        self.guard(key.take(), pair.map_or(0, |pair| pair.written_at));
        let Some(pair) = pair else {
            return Ok(None);
        };
        let begun: Begun = record::read(&pair.value).map_err(|what| LedgerError::Damaged {
            repo: repo.to_owned(),
            issue: format!("of request {request}"),
            what,
        })?;
        Ok(Some((begun.issue, begun.token)))
    }

    fn past_lease(
        &self,
        repo: &str,
        issue: &IssueId,
        lease_id: &str,
    ) -> Result<Option<Ended>, LedgerError> {
        let past = self.history(repo, Some(issue), None)?;
        Ok(past
            .into_iter()
            .map(|(_, ended)| ended)
            .find(|ended| ended.tenure.lease_id.as_deref() == Some(lease_id)))
    }

    fn bound_to(&self, repo: &str, branch: &Branch) -> Result<Option<IssueId>, LedgerError> {
        let key = Cell::new(String::new());
        let (_, found) = self.in_repo(repo, |keys| {
            key.set(keys.branch(branch));
            vec![Range::one(keys.branch(branch))]
        })?;
        let pair = found.first().and_then(|found| found.pairs.first());
        self.guard(key.take(), pair.map_or(0, |pair| pair.written_at));
        let Some(pair) = pair else {
            return Ok(None);
        };
        let issue: IssueId = record::read(&pair.value).map_err(|what| LedgerError::Damaged {
            repo: repo.to_owned(),
            issue: format!("of branch {branch}"),
            what,
        })?;
        let claim = self.seen(repo, &issue)?.claim(self.now());
        let is_bound = claim
            .live(self.now())
            .and_then(|tenure| tenure.binding.as_ref())
            .is_some_and(|bound| bound.branch == *branch);
        Ok(is_bound.then_some(issue))
    }

    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError> {
        let (_, found) = self.in_repo(repo, |keys| {
            vec![Range {
                limit: most as usize,
                keys_only: true,
                ..Range::prefix(keys.row(typed.as_str()))
            }]
        })?;
        let pairs = found.into_iter().flat_map(|found| found.pairs);
        Ok(pairs
            .filter_map(|pair| last_part(&pair.key).parse().ok())
            .filter(|issue: &IssueId| typed.stands_for(issue.as_str()))
            .collect())
    }

    fn live(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Claim)>, LedgerError> {
        let now = self.now();
        let place = |issue: &IssueId, claim: &Claim| {
            let tenure = claim.tenure.as_ref();
            (
                tenure.and_then(|tenure| tenure.seq).unwrap_or(0),
                tenure.map_or(0, |tenure| tenure.acquired_at),
                issue.clone(),
            )
        };
        let mut found: Vec<(IssueId, Claim)> = self
            .held(repo)?
            .into_iter()
            .map(|(issue, seen)| (issue, seen.claim(now)))
            .filter(|(_, claim)| {
                claim.live(now).is_some_and(|tenure| {
                    let wanted = filter.holder.as_ref();
                    wanted.is_none_or(|holder| *holder == tenure.holder)
                })
            })
            .collect();
        found.sort_by_cached_key(|(issue, claim)| place(issue, claim));
        if let Some(after) = &filter.after {
            // A place is kept by an issue that nobody holds any more, too.
            let mut behind = self.seen(repo, after)?.claim(now);
            if behind.tenure.is_none()
                && let Some((_, ended)) = self.history(repo, Some(after), Some(1))?.pop()
            {
                behind.tenure = Some(ended.tenure);
            }
            let behind = place(after, &behind);
            found.retain(|(issue, claim)| place(issue, claim) > behind);
        }
        found.truncate(limit_of(filter.limit));
        Ok(found)
    }

    fn ended(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        let now = self.now();
        let is_wanted = |tenure: &Tenure| {
            let wanted = filter.holder.as_ref();
            wanted.is_none_or(|holder| *holder == tenure.holder)
        };
        let ran_out = |(issue, seen): (IssueId, Seen)| {
            let claim = seen.claim(now);
            let tenure = claim.tenure.as_ref()?;
            let is_over = !tenure.is_live(now) && is_wanted(tenure);
            is_over.then(|| (issue, tenure.expired(claim.token)))
        };
        let mut found: Vec<(IssueId, Ended)> =
            self.held(repo)?.into_iter().filter_map(ran_out).collect();
        // What stands before `after` is needed to find the place behind it.
        let enough = match &filter.after {
            None => limit_of(filter.limit),
            Some(_) => usize::MAX,
        };
        let mut given_back = Vec::new();
        // Most that ended last is still free.
        let page = PAGE.min(enough.max(MOST_OPERATIONS));
        self.over(repo, page, |keys, ended| {
            for ended in ended.chunks(MOST_OPERATIONS) {
                let of = |(issue, _): &(IssueId, Ended)| keys.row(issue.as_str());
                let row_keys: Vec<String> = ended.iter().map(of).collect();
                let rows: Vec<Row> = self.values(repo, &row_keys)?;
                let held_keys = ended.iter().map(|(issue, _)| keys.held(issue.as_str()));
                let held: Vec<Range> = held_keys
                    .map(|key| Range {
                        keys_only: true,
                        ..Range::one(key)
                    })
                    .collect();
                let held = self.ranges(&held)?;
                for ((entry, row), held) in ended.iter().zip(rows).zip(held) {
                    let is_free = row.token == entry.1.token && held.pairs.is_empty();
                    if is_free && is_wanted(&entry.1.tenure) {
                        given_back.push(entry.clone());
                    }
                }
            }
            Ok(given_back.len() >= enough)
        })?;
        found.extend(given_back);
        Ok(filter.of_ended(found))
    }

    fn history(
        &self,
        repo: &str,
        issue: Option<&IssueId>,
        limit: Option<u32>,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        let most = limit_of(limit);
        let mut found = Vec::new();
        let Some(issue) = issue else {
            self.over(repo, PAGE.min(most.max(1)), |_, ended| {
                found.extend(ended);
                Ok(found.len() >= most)
            })?;
            found.truncate(most);
            return Ok(found);
        };
        self.pages(
            repo,
            PAGE.min(most.max(1)),
            false,
            |keys| keys.all_past(issue),
            |keys, pairs| {
                let places = pairs.iter().map(|pair| record::read::<Place>(&pair.value));
                let places: Vec<Place> = places
                    .collect::<Result<_, _>>()
                    .map_err(|what| damaged(repo, issue, what))?;
                let ended_keys: Vec<String> = places
                    .iter()
                    .map(|place| keys.ended(place.time, issue, place.token))
                    .collect();
                let ended = self.values(repo, &ended_keys)?;
                found.extend(ended.into_iter().map(|ended| (issue.clone(), ended)));
                Ok(found.len() >= most)
            },
        )?;
        found.truncate(most);
        Ok(found)
    }
}

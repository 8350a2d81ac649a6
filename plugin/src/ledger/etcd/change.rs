//! A change under way: what it stores is collected, and made at once if all
//! that it was decided by is still so.

use std::cell::RefCell;
use std::collections::BTreeMap;

use git_claim_api::ids::{Branch, IssueId, RequestId, Session, Ttl};

use super::client::CallError;
use super::keys::RepoKeys;
use super::kv::{Edit, Granted, Guard, Left, Outcome, Range};
use super::look::{Live, Look, Seen, damaged};
use super::record::{self, Alias, Begun, Place, Row};
use super::turn::{self, Turn};
use crate::claim::{Claim, Ended, Now, Tenure};
use crate::ledger::{Filter, LedgerError, Transaction, View};
use crate::random;

/// A transaction that is being put together.
#[derive(Debug)]
pub struct Change<'a> {
    look: Look<'a>,
    /// The change's own name.
    name: &'a str,
    edits: BTreeMap<String, Edit>,
    /// A lease that was granted for this change.
    lease: Option<Granted>,
    turn: RefCell<Option<Turn>>,
    /// Leases that nothing hangs on once the change is made.
    left_over: Vec<i64>,
    witness: Option<Witnessed>,
}

/// Where it can be seen whether a change was made.
#[derive(Debug, Clone)]
pub struct Witnessed {
    /// A key that it writes.
    pub key: String,
    /// How often that had been written before.
    pub writes: i64,
}

/// What one try has, and the next can use.
#[derive(Debug, Default)]
pub struct Kept {
    /// A lease that was granted for this change.
    lease: Option<Granted>,
    turn: Option<Turn>,
}

/// What came of a try.
pub enum Tried {
    Made,
    /// It has to look anew.
    Not(Kept),
    /// Others were first.
    Conflict(Kept),
    /// No answer.
    Open {
        witness: Witnessed,
        kept: Kept,
    },
    /// The quota is used up, maybe by this very change.
    Full(Witnessed),
}

impl<'a> Change<'a> {
    pub fn new(look: Look<'a>, name: &'a str, kept: Kept) -> Change<'a> {
        Change {
            look,
            name,
            edits: BTreeMap::new(),
            lease: kept.lease,
            turn: RefCell::new(kept.turn),
            left_over: Vec::new(),
            witness: None,
        }
    }

    /// Makes the change, in one transaction.
    ///
    /// # Errors
    /// etcd refuses it.
    pub fn commit(mut self) -> Result<Tried, LedgerError> {
        let Some(witness) = self.witness.clone() else {
            return Ok(Tried::Made);
        };
        let edits = std::mem::take(&mut self.edits);
        let edits: Vec<(String, Edit)> = edits.into_iter().collect();
        let client = &self.look.ledger.client;
        let deadline = self.look.deadline;
        match client.transaction(&self.look.guards(), &edits, deadline) {
            Ok((_, Outcome::Made)) => {
                for lease in self.left_over {
                    client.revoke(lease, deadline);
                }
                Ok(Tried::Made)
            }
            Ok((_, Outcome::Conflict)) | Err(CallError::Unsent(_)) => {
                Ok(Tried::Conflict(self.kept()))
            }
            Err(CallError::Unknown(_)) => Ok(Tried::Open {
                witness,
                kept: self.kept(),
            }),
            Err(CallError::Refused(refusal)) if refusal.is_full() => Ok(Tried::Full(witness)),
            Err(CallError::Refused(refusal)) if refusal.is_lost_lease() => {
                self.lease = None;
                Ok(Tried::Conflict(self.kept()))
            }
            Err(error) => Err(self.look.failed(error)),
        }
    }

    /// What another try can use.
    pub fn kept(self) -> Kept {
        Kept {
            lease: self.lease,
            turn: self.turn.into_inner(),
        }
    }

    /// Ends a change that stores nothing after all.
    pub fn leave(self) {
        if let Some(unused) = self.lease {
            self.look
                .ledger
                .client
                .revoke(unused.id, self.look.deadline);
        }
    }

    /// Waits until nobody else on this machine changes the issue. A change takes
    /// one turn, at the issue that it looks at first.
    fn take_turn(&self, repo: &str, issue: &IssueId) -> Result<(), LedgerError> {
        let mut turn = self.turn.borrow_mut();
        if turn.is_some() {
            return Ok(());
        }
        let ledger = self.look.ledger.keys.all();
        *turn = turn::take(&ledger, repo, issue, self.look.deadline);
        match &*turn {
            // What this look saw is old by now.
            Some(turn) if turn.has_waited => Err(LedgerError::Again),
            _ => Ok(()),
        }
    }

    fn put(&mut self, key: String, value: Vec<u8>) {
        self.edits.insert(key, Edit::Put { value, lease: 0 });
    }

    fn delete(&mut self, key: String) {
        self.edits.insert(key, Edit::Delete);
    }

    /// Puts a tenure that is over into the history.
    fn store_ended(&mut self, keys: &RepoKeys, issue: &IssueId, ended: &Ended) {
        let place = Place {
            // Above that of all that had ended; no two of one issue are alike.
            time: self.look.next_seq(),
            token: ended.token,
        };
        let tenure = &ended.tenure;
        let last = keys.last(issue, &tenure.holder, tenure.session.as_ref());
        self.put(
            keys.ended(place.time, issue, ended.token),
            record::write(ended),
        );
        self.put(keys.past(issue, ended.token), record::write(&place));
        self.put(last, record::write(&place));
    }

    /// Puts a tenure on a lease, if it has an end, and the end right that etcd
    /// granted. The lease's key is answered.
    fn hang(
        &mut self,
        keys: &RepoKeys,
        issue: &IssueId,
        seen: &Seen,
        token: u64,
        tenure: &mut Tenure,
    ) -> Result<Option<Live>, LedgerError> {
        let key = keys.live(issue.as_str());
        let Some(end) = tenure.expires_at else {
            self.let_go(key, seen);
            return Ok(None);
        };
        let now = self.now().floor();
        let seconds = match tenure.ttl {
            Some(ttl) => ttl.seconds().cast_signed(),
            None => (end - now).max(1),
        };
        let own = seen.live.filter(|_| seen.row.token == token);
        let (live, granted) = match own {
            Some(live) if live.left.is_some_and(|left| left.granted == seconds) => {
                if !self.keep_alive(live.lease)? {
                    return Err(LedgerError::Again);
                }
                (live, seconds)
            }
            _ => {
                let lease = self.lease(seconds)?;
                self.let_go(key.clone(), seen);
                let value = token.to_string().into_bytes();
                let edit = Edit::Put {
                    value,
                    lease: lease.id,
                };
                self.edits.insert(key, edit);
                let live = Live {
                    written_at: 0,
                    lease: lease.id,
                    left: Some(Left {
                        left: lease.ttl,
                        granted: lease.ttl,
                    }),
                };
                (live, lease.ttl)
            }
        };
        if let Ok(ttl) = Ttl::new(granted.unsigned_abs())
            && tenure.ttl.is_some()
        {
            tenure.ttl = Some(ttl);
        }
        tenure.expires_at = Some(now + granted);
        Ok(Some(live))
    }

    /// Takes a row off its lease.
    fn let_go(&mut self, key: String, seen: &Seen) {
        if let Some(live) = seen.live {
            self.left_over.push(live.lease);
            self.delete(key);
        }
    }

    /// A lease of so many seconds from now.
    fn lease(&mut self, seconds: i64) -> Result<Granted, LedgerError> {
        if let Some(kept) = self.lease.take() {
            if kept.ttl == seconds && self.keep_alive(kept.id)? {
                self.lease = Some(kept);
                return Ok(kept);
            }
            self.left_over.push(kept.id);
        }
        let granted = self
            .look
            .ledger
            .client
            .grant(seconds, self.look.deadline)
            .map_err(|error| self.look.failed(error))?;
        self.lease = Some(granted);
        Ok(granted)
    }

    fn keep_alive(&self, lease: i64) -> Result<bool, LedgerError> {
        self.look
            .ledger
            .client
            .keep_alive(lease, self.look.deadline)
            .map_err(|error| self.look.failed(error))
    }
}

impl View for Change<'_> {
    fn now(&self) -> Now {
        self.look.now()
    }

    fn ledger_id(&self) -> Result<String, LedgerError> {
        self.look.ledger_id()
    }

    fn claim(&self, repo: &str, issue: &IssueId) -> Result<Claim, LedgerError> {
        self.take_turn(repo, issue)?;
        self.look.claim(repo, issue)
    }

    fn last_of(
        &self,
        repo: &str,
        issue: &IssueId,
        name: &str,
        session: Option<&Session>,
    ) -> Result<Option<Ended>, LedgerError> {
        self.look.last_of(repo, issue, name, session)
    }

    fn begun_by(
        &self,
        repo: &str,
        name: &str,
        session: Option<&Session>,
        request: &RequestId,
    ) -> Result<Option<(IssueId, u64)>, LedgerError> {
        self.look.begun_by(repo, name, session, request)
    }

    fn past_lease(
        &self,
        repo: &str,
        issue: &IssueId,
        lease_id: &str,
    ) -> Result<Option<Ended>, LedgerError> {
        self.look.past_lease(repo, issue, lease_id)
    }

    fn bound_to(&self, repo: &str, branch: &Branch) -> Result<Option<IssueId>, LedgerError> {
        self.look.bound_to(repo, branch)
    }

    fn issues_like(
        &self,
        repo: &str,
        typed: &IssueId,
        most: u32,
    ) -> Result<Vec<IssueId>, LedgerError> {
        self.look.issues_like(repo, typed, most)
    }

    fn live(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Claim)>, LedgerError> {
        self.look.live(repo, filter)
    }

    fn ended(&self, repo: &str, filter: &Filter) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        self.look.ended(repo, filter)
    }

    fn history(
        &self,
        repo: &str,
        issue: Option<&IssueId>,
        limit: Option<u32>,
    ) -> Result<Vec<(IssueId, Ended)>, LedgerError> {
        self.look.history(repo, issue, limit)
    }
}

impl Transaction for Change<'_> {
    fn store(
        &mut self,
        repo: &str,
        issue: &IssueId,
        claim: &mut Claim,
        ended: Option<&Ended>,
    ) -> Result<(), LedgerError> {
        let seen = self.look.seen(repo, issue)?;
        let (keys, _) = self.look.in_repo(repo, |_| Vec::new())?;
        let is_same_tenure = claim.token == seen.row.token;
        if claim.token < seen.row.token || (claim.tenure.is_none() && !is_same_tenure) {
            let what = format!("its token is above {} already", claim.token);
            return Err(damaged(repo, issue, what));
        }
        let row_key = keys.row(issue.as_str());
        self.look.guard(row_key.clone(), seen.written_at);
        let live_written_at = seen.live.map_or(0, |live| live.written_at);
        self.look.guard(keys.live(issue.as_str()), live_written_at);
        if let Some(ended) = ended {
            self.store_ended(&keys, issue, ended);
        }
        let held_key = keys.held(issue.as_str());
        let live = match &mut claim.tenure {
            None => {
                self.delete(held_key);
                self.let_go(keys.live(issue.as_str()), &seen);
                None
            }
            Some(tenure) => {
                let live = self.hang(&keys, issue, &seen, claim.token, tenure)?;
                self.put(held_key, record::write(tenure));
                if let Some(bound) = &tenure.binding {
                    self.put(keys.branch(&bound.branch), record::write(issue));
                }
                if let Some(request) = tenure.request.as_ref().filter(|_| !is_same_tenure) {
                    let key = keys.request(&tenure.holder, tenure.session.as_ref(), request);
                    let begun = Begun {
                        issue: issue.clone(),
                        token: claim.token,
                    };
                    self.put(key, record::write(&begun));
                }
                live
            }
        };
        let row = Row {
            token: claim.token,
            generation: claim.generation,
            writes: seen.row.writes.and(self.name),
        };
        self.put(row_key.clone(), record::write(&row));
        self.witness = Some(Witnessed {
            key: row_key,
            writes: seen.writes,
        });
        let stored = Seen {
            row,
            tenure: claim.tenure.clone(),
            live,
            ..seen
        };
        self.look.note(repo, issue, stored);
        Ok(())
    }

    fn next_seq(&mut self) -> Result<u64, LedgerError> {
        Ok(self.look.next_seq())
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<u64, LedgerError> {
        let counted = |keys: &RepoKeys| {
            let rows = Range::prefix(keys.row(""));
            vec![Range {
                count_only: true,
                ..rows
            }]
        };
        let (old_keys, moved) = self.look.in_repo(old, counted)?;
        let (new_keys, there) = self.look.in_repo(new, counted)?;
        let count = |found: &[super::kv::Found]| found.first().map_or(0, |found| found.count);
        if count(&there) > 0 {
            return Err(LedgerError::Taken(new.to_owned()));
        }
        self.look.guard_none_below(new_keys.row(""));
        let keys = &self.look.ledger.keys;
        let (old_alias, new_alias) = (keys.alias(old), keys.alias(new));
        let alias = |name: String, write: &str| {
            record::write(&Alias {
                name,
                writes: record::Writes::default().and(write),
            })
        };
        let here = alias(old_keys.name().to_owned(), self.name);
        // Whoever has the old name later begins with nothing. No repository's
        // own name in keys has a `~`.
        let gone = alias(format!("~{}", random::id()), self.name);
        self.put(new_alias.clone(), here);
        self.put(old_alias, gone);
        // With an alias from before it can't be told how often it was written.
        let is_first =
            |(key, guard): &(String, Guard)| *key == new_alias && *guard == Guard::WrittenAt(0);
        let writes = if self.look.guards().iter().any(is_first) {
            0
        } else {
            -1_000
        };
        self.witness = Some(Witnessed {
            key: new_alias,
            writes,
        });
        Ok(count(&moved))
    }
}

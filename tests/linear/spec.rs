//! What one request makes of one issue: the protocol's promises, without I/O
//! and without a clock of its own. The checker compares every answer with it.

use std::collections::BTreeSet;
use std::rc::Rc;

use git_claim_api::reply::Reason;

use super::ask::{Ask, Client, What};

/// One issue's claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Issue {
    pub token: u64,
    pub held: Option<Held>,
    /// The requests that began a tenure. Of the thousands there may be, each way
    /// that is followed has most in common with the others.
    pub begun: Rc<BTreeSet<Rc<str>>>,
}

/// The tenure that holds or held the claim last, unless it was given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub who: Client,
    pub end: End,
    pub note: String,
}

/// When a tenure ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Never,
    At(i64),
    /// It has an end, which only a request without an answer knows.
    Unknown,
    /// With its lease, which the ledger ends by a time of its own: not before
    /// this moment.
    Lease(u64),
}

/// When an issue is looked at.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// What the server's clock says.
    pub now: i64,
    /// The moment by which the answer was there.
    pub by: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A tenure begins.
    New,
    /// One's own goes on.
    Own,
    Renewed,
    Released,
    /// One's own that had run out is given up for good.
    LetGo,
    /// There was nothing to release.
    Nothing,
    Valid,
    Shown,
    /// Somebody else's, or nobody's.
    Conflict,
    /// The tenure is not the one that the request names.
    Stale,
    WrongExpected,
    RequestEnded,
    /// Not this client's to ask.
    Refused,
}

impl Outcome {
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Outcome::New | Outcome::Own | Outcome::Renewed | Outcome::Released | Outcome::LetGo
        )
    }

    /// The outcome that a conflict's reason stands for.
    pub fn of_reason(reason: Option<Reason>) -> Outcome {
        match reason {
            Some(Reason::StaleToken) => Outcome::Stale,
            Some(Reason::WrongExpectedToken) => Outcome::WrongExpected,
            Some(Reason::RequestEnded) => Outcome::RequestEnded,
            _ => Outcome::Conflict,
        }
    }
}

impl Issue {
    /// Whether somebody holds it; `None` if that can't be known.
    pub fn is_live(&self, at: At) -> Option<bool> {
        match self.held.as_ref().map(|held| held.end) {
            None => Some(false),
            Some(End::Never) => Some(true),
            Some(End::At(end)) => Some(at.now < end),
            Some(End::Lease(end)) if at.by < end => Some(true),
            Some(End::Lease(_) | End::Unknown) => None,
        }
    }

    /// Whether the claim may be live, and whether it may have run out, where
    /// nobody knows what the server's clock said.
    pub fn may_be_live(&self) -> Vec<bool> {
        match self.held.as_ref().map(|held| held.end) {
            None => vec![false],
            Some(End::Never) => vec![true],
            Some(End::At(_) | End::Lease(_) | End::Unknown) => vec![true, false],
        }
    }

    fn is_held_by(&self, client: &Client) -> bool {
        self.held.as_ref().is_some_and(|held| held.who == *client)
    }

    /// What becomes of `ask` where the claim is live, or is not.
    pub fn decide(&self, ask: &Ask, is_live: bool) -> Outcome {
        let is_own = is_live && self.is_held_by(&ask.client);
        let is_stale = |token: &Option<u64>| token.is_some_and(|token| token != self.token);
        match &ask.what {
            What::Acquire {
                id,
                if_token,
                take_over,
                ..
            } => {
                if is_own {
                    Outcome::Own
                } else if self.begun.contains(id.as_str()) {
                    Outcome::RequestEnded
                } else if !is_live {
                    if is_stale(if_token) {
                        Outcome::Stale
                    } else {
                        Outcome::New
                    }
                } else {
                    match take_over {
                        None => Outcome::Conflict,
                        Some(eviction) => self.evict(&ask.client, eviction.expected, Outcome::New),
                    }
                }
            }
            What::Next { id, .. } => {
                if self.begun.contains(id.as_str()) {
                    if is_own {
                        Outcome::Own
                    } else {
                        Outcome::RequestEnded
                    }
                } else if is_live {
                    Outcome::Conflict
                } else {
                    Outcome::New
                }
            }
            What::Renew { token, .. } => match (is_own, is_stale(token)) {
                (false, _) => Outcome::Conflict,
                (true, true) => Outcome::Stale,
                (true, false) => Outcome::Renewed,
            },
            What::Release { token, force, .. } => {
                let outcome = if is_own {
                    Outcome::Released
                } else if is_live {
                    match force {
                        None => Outcome::Conflict,
                        Some(eviction) => {
                            self.evict(&ask.client, eviction.expected, Outcome::Released)
                        }
                    }
                } else if self.is_held_by(&ask.client) {
                    Outcome::LetGo
                } else {
                    Outcome::Nothing
                };
                let is_granted = outcome.is_change() || outcome == Outcome::Nothing;
                if is_granted && is_stale(token) {
                    Outcome::Stale
                } else {
                    outcome
                }
            }
            What::Verify { token, .. } => match (is_own, *token == self.token) {
                (false, _) => Outcome::Conflict,
                (true, false) => Outcome::Stale,
                (true, true) => Outcome::Valid,
            },
            What::Show { .. } | What::List => Outcome::Shown,
        }
    }

    /// What becomes of a try to end the live claim of another holder.
    fn evict(&self, client: &Client, expected: Option<u64>, granted: Outcome) -> Outcome {
        let is_anothers = self
            .held
            .as_ref()
            .is_some_and(|held| held.who.name != client.name);
        if is_anothers && (!client.is_admin() || expected.is_none()) {
            Outcome::Refused
        } else if expected.is_some_and(|expected| expected != self.token) {
            Outcome::WrongExpected
        } else {
            granted
        }
    }

    /// Makes the change that `outcome` is; `end` is that of the tenure then.
    pub fn change(&mut self, ask: &Ask, outcome: Outcome, end: End) {
        match outcome {
            Outcome::New => {
                let id = id(ask);
                self.token += 1;
                Rc::make_mut(&mut self.begun).insert(id.as_str().into());
                self.held = Some(Held {
                    who: ask.client.clone(),
                    end,
                    note: id,
                });
            }
            Outcome::Own => {
                if let Some(held) = &mut self.held {
                    held.end = end;
                    held.note = id(ask);
                }
            }
            Outcome::Renewed => {
                if let Some(held) = &mut self.held {
                    held.end = end;
                }
            }
            Outcome::Released | Outcome::LetGo => self.held = None,
            _ => {}
        }
    }
}

/// That of a request that takes something.
fn id(ask: &Ask) -> String {
    ask.id().unwrap().to_owned()
}

/// The time to live that a request asks for.
pub fn ttl(ask: &Ask) -> Option<u64> {
    match &ask.what {
        What::Acquire { ttl, .. } | What::Next { ttl, .. } => *ttl,
        What::Renew { ttl, .. } => Some(*ttl),
        _ => None,
    }
}

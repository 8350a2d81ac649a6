//! A client that asks at random: for what it holds, for what others hold, with
//! what it knows and with what it no longer knows.

use std::collections::BTreeMap;

use super::answer::Answer;
use super::ask::{ADMIN, Ask, Client, Eviction, What};

/// What there is to ask for.
#[derive(Clone)]
pub struct Backlog {
    pub issues: Vec<String>,
    /// Whether the tracker has an order, so that one may ask for the next.
    pub has_order: bool,
}

/// One client, with what it has learnt.
pub struct Walker {
    random: Random,
    me: Client,
    backlog: Backlog,
    /// What its ids begin with; nobody else's do.
    prefix: String,
    asked: u64,
    /// What the client holds, as far as it knows: as whom, and the token.
    held: BTreeMap<String, (Client, u64)>,
    /// The last token that was seen of an issue.
    tokens: BTreeMap<String, u64>,
    /// A request that got no answer.
    lost: Option<Ask>,
}

impl Walker {
    /// `prefix` tells it from its earlier lives, too. `lost` is what such a life
    /// had asked for last, and was not told of.
    pub fn new(me: Client, prefix: &str, backlog: Backlog, lost: Option<Ask>) -> Walker {
        Walker {
            random: Random::new(),
            me,
            backlog,
            prefix: prefix.to_owned(),
            asked: 0,
            held: BTreeMap::new(),
            tokens: BTreeMap::new(),
            lost,
        }
    }

    /// What it asks for now.
    pub fn ask(&mut self) -> Ask {
        if let Some(lost) = self.lost.take()
            && self.random.one_in(2)
        {
            return lost;
        }
        let held = self.random.pick(
            self.held
                .iter()
                .map(|(issue, (as_whom, token))| (issue.clone(), as_whom.clone(), *token)),
        );
        match held {
            Some((issue, as_whom, token)) if !self.random.one_in(4) => {
                self.about_its_own(issue, as_whom, token)
            }
            _ => self.about_any(),
        }
    }

    fn about_its_own(&mut self, issue: String, client: Client, token: u64) -> Ask {
        let token = (!self.random.one_in(8)).then_some(token);
        let what = match (self.random.below(10), token) {
            (0..2, Some(token)) => What::Verify { issue, token },
            (0..5, _) => What::Renew {
                issue,
                ttl: self.ttl().unwrap_or(3_600),
                token,
            },
            (5, _) => self.acquire(issue, None),
            _ => What::Release {
                issue,
                token,
                force: None,
            },
        };
        Ask { client, what }
    }

    fn about_any(&mut self) -> Ask {
        let issue = self
            .random
            .pick(self.backlog.issues.iter().cloned())
            .unwrap();
        let token = self.tokens.get(&issue).copied();
        let mut client = self.me.clone();
        let what = match self.random.below(40) {
            0..3 => What::Show { issue },
            3 => What::List,
            4..6 => What::Verify {
                issue,
                token: token.unwrap_or(1),
            },
            6 => What::Renew {
                issue,
                ttl: 60,
                token,
            },
            7..9 => What::Release {
                issue,
                token,
                force: None,
            },
            9 => What::Acquire {
                issue,
                id: self.id(),
                ttl: Some(60),
                if_token: token,
                take_over: None,
            },
            // One's own in another session, or nobody's to take.
            10..12 => self.acquire(issue, Some(Eviction { expected: None })),
            12 => What::Release {
                issue,
                token: None,
                force: Some(Eviction { expected: token }),
            },
            13 => {
                ADMIN.clone_into(&mut client.name);
                self.acquire(issue, Some(Eviction { expected: token }))
            }
            14 => {
                ADMIN.clone_into(&mut client.name);
                What::Release {
                    issue,
                    token: None,
                    force: Some(Eviction { expected: token }),
                }
            }
            15..20 if self.backlog.has_order => What::Next {
                id: self.id(),
                ttl: self.ttl(),
            },
            _ => self.acquire(issue, None),
        };
        Ask { client, what }
    }

    fn acquire(&mut self, issue: String, take_over: Option<Eviction>) -> What {
        What::Acquire {
            issue,
            id: self.id(),
            ttl: self.ttl(),
            if_token: None,
            take_over,
        }
    }

    fn id(&mut self) -> String {
        self.asked += 1;
        format!("{}.{}", self.prefix, self.asked)
    }

    /// Mostly so short that it runs out by itself now and then.
    fn ttl(&mut self) -> Option<u64> {
        match self.random.below(6) {
            0 => None,
            1 | 2 => Some(3_600),
            few => Some(few - 2),
        }
    }

    /// What it learns from an answer, or from none.
    pub fn learn(&mut self, ask: &Ask, answer: Option<&Answer>) {
        let Some(answer) = answer else {
            self.lost = Some(ask.clone());
            return;
        };
        for seen in &answer.seen {
            // 0 is none.
            if seen.token > 0 {
                self.tokens.insert(seen.issue.clone(), seen.token);
            }
            match &seen.live {
                // Nobody else has its session, under whatever name.
                Some(live) if live.holder.session == self.me.session => {
                    let mine = (live.holder.clone(), seen.token);
                    self.held.insert(seen.issue.clone(), mine);
                }
                _ => {
                    self.held.remove(&seen.issue);
                }
            }
        }
    }
}

/// Random numbers, good enough to choose by.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random(getrandom::u64().unwrap())
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of several; nothing if there are none.
    pub fn pick<T>(&mut self, from: impl Iterator<Item = T>) -> Option<T> {
        let mut all: Vec<T> = from.collect();
        if all.is_empty() {
            return None;
        }
        let at = usize::try_from(self.below(all.len() as u64)).unwrap();
        Some(all.swap_remove(at))
    }
}

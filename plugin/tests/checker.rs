//! The checker of histories itself: what it must let pass, and what it must not.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use git_claim_api::reply::{Reason, Status, Tenure};
use git_claim_plugin::ledger::{
    Contents, Ledger, LedgerError, SqliteLedger, Transaction, Verdict, Version, View, When,
};

use crate::linear::Operation;
use crate::linear::answer::{Answer, Live, Logged, Seen};
use crate::linear::ask::{Ask, Client, Eviction, What};
use crate::linear::check::{Kind, Summary, Time, check};
use crate::linear::client::{Backlog, Random, Walker};
use crate::linear::spec::{At, End, Issue, Outcome, ttl};
use crate::torture::Place;

const START: i64 = 1_788_609_600;

fn client(name: &str) -> Client {
    Client {
        name: name.to_owned(),
        session: format!("{name}-s"),
    }
}

/// A right history of issue 1, made one request after the other.
struct Play {
    /// The server's clock.
    now: i64,
    moment: u64,
    asked: u64,
    issue: Issue,
    generation: u64,
    history: Vec<Operation>,
    log: Vec<Logged>,
}

impl Play {
    fn new() -> Play {
        Play {
            now: START,
            moment: 0,
            asked: 0,
            issue: Issue::default(),
            generation: 0,
            history: Vec::new(),
            log: Vec::new(),
        }
    }

    fn takes(&mut self, name: &str, ttl: Option<u64>) -> usize {
        let what = self.acquire(ttl);
        self.asks(name, what)
    }

    fn acquire(&mut self, ttl: Option<u64>) -> What {
        self.asked += 1;
        What::Acquire {
            issue: "1".to_owned(),
            id: format!("id{}", self.asked),
            ttl,
            if_token: None,
            take_over: None,
        }
    }

    fn renews(&mut self, name: &str, ttl: u64) -> usize {
        let issue = "1".to_owned();
        let token = None;
        self.asks(name, What::Renew { issue, ttl, token })
    }

    fn releases(&mut self, name: &str) -> usize {
        self.asks(name, release())
    }

    fn looks(&mut self, name: &str) -> usize {
        let issue = "1".to_owned();
        self.asks(name, What::Show { issue })
    }

    fn asks(&mut self, name: &str, what: What) -> usize {
        let ask = Ask {
            client: client(name),
            what,
        };
        let start = self.tick();
        let answer = self.serve(&ask);
        let end = self.tick();
        self.history.push(Operation {
            ask,
            start,
            answer: Some((end, answer)),
        });
        self.history.len() - 1
    }

    /// Takes the answer of a request away.
    fn lose(&mut self, op: usize) {
        self.history[op].answer = None;
    }

    fn seen(&mut self, op: usize) -> &mut Seen {
        &mut self.history[op].answer.as_mut().unwrap().1.seen[0]
    }

    fn tick(&mut self) -> u64 {
        self.moment += 10;
        self.moment
    }

    fn serve(&mut self, ask: &Ask) -> Answer {
        let is_live = self.is_live();
        let outcome = self.issue.decide(ask, is_live);
        if outcome.is_change() {
            self.generation += 1;
            let end = ttl(ask).map_or(End::Never, |ttl| {
                End::At(self.now.saturating_add_unsigned(ttl))
            });
            self.issue.change(ask, outcome, end);
        }
        if outcome == Outcome::New {
            self.log.push(Logged {
                issue: "1".to_owned(),
                token: self.issue.token,
                holder: ask.client.name.clone(),
            });
        }
        let (exit, status) = match outcome {
            Outcome::New | Outcome::Own => (0, Some(Status::Acquired)),
            Outcome::Renewed => (0, Some(Status::Renewed)),
            Outcome::Released | Outcome::LetGo | Outcome::Nothing => (0, Some(Status::Released)),
            Outcome::Valid => (0, Some(Status::Valid)),
            Outcome::Shown => (0, Some(Status::Shown)),
            Outcome::Refused => (1, None),
            _ => (4, Some(Status::Held)),
        };
        let mut answer = Answer {
            exit,
            status,
            reason: match outcome {
                Outcome::Conflict => Some(Reason::Held),
                Outcome::Stale => Some(Reason::StaleToken),
                Outcome::WrongExpected => Some(Reason::WrongExpectedToken),
                Outcome::RequestEnded => Some(Reason::RequestEnded),
                _ => None,
            },
            tenure: match outcome {
                Outcome::New => Some(Tenure::New),
                Outcome::Own => Some(Tenure::Own),
                _ => None,
            },
            was_held: (status == Some(Status::Released)).then_some(outcome == Outcome::Released),
            seen: Vec::new(),
        };
        if exit != 1 {
            answer.seen.push(self.sight());
        }
        answer
    }

    fn is_live(&self) -> bool {
        let at = At {
            now: self.now,
            by: self.moment,
        };
        self.issue.is_live(at).unwrap()
    }

    /// The issue as it stands.
    fn sight(&self) -> Seen {
        let held = self.issue.held.as_ref();
        let live = held.filter(|_| self.is_live());
        Seen {
            issue: "1".to_owned(),
            generation: self.generation,
            token: self.issue.token,
            live: live.map(|held| Live {
                holder: held.who.clone(),
                expires_at: match held.end {
                    End::At(end) => Some(end),
                    _ => None,
                },
                note: held.note.clone(),
            }),
            now: self.now,
        }
    }

    fn check(&self) -> Result<Summary, Kind> {
        check(&self.history, &self.log, Time::Clock).map_err(|found| found.kind)
    }
}

fn release() -> What {
    What::Release {
        issue: "1".to_owned(),
        token: None,
        force: None,
    }
}

/// Ann takes it, bob meets a conflict, ann goes on, gives it back, bob takes it.
fn two_in_turn() -> (Play, [usize; 6]) {
    let mut play = Play::new();
    let ops = [
        play.takes("ann", None),
        play.takes("bob", None),
        play.renews("ann", 60),
        play.releases("ann"),
        play.takes("bob", Some(60)),
        play.looks("cid"),
    ];
    (play, ops)
}

#[test]
fn what_is_right_passes() {
    let (play, _) = two_in_turn();
    let expected = Summary {
        operations: 6,
        lost: 0,
        changes: 4,
        unanswered_changes: 0,
        tenures: 2,
    };
    assert_eq!(play.check(), Ok(expected));
}

#[test]
fn one_while_another_holds_it_is_found() {
    let mut play = Play::new();
    play.takes("ann", None);
    // As if ann's had not been there.
    let held = play.issue.held.take();
    play.takes("bob", None);
    assert!(held.is_some());
    assert_eq!(play.check(), Err(Kind::TwoHolders));
    // Nor does a clock that was never there make it right.
    let mut play = Play::new();
    play.takes("ann", Some(60));
    play.issue.held = None;
    play.takes("bob", None);
    assert_eq!(play.check(), Err(Kind::TwoHolders));
}

#[test]
fn a_clock_that_jumps_is_no_fault_of_the_ledgers() {
    let mut play = Play::new();
    play.takes("ann", Some(60));
    play.now += 3_600;
    play.looks("bob");
    play.now -= 3_600;
    // Alive again: nobody has taken it.
    play.renews("ann", 60);
    play.now += 3_600;
    play.takes("bob", Some(60));
    play.now -= 7_200;
    play.takes("ann", None);
    play.looks("cid");
    assert!(
        play.check().is_ok(),
        "{:?}",
        check(&play.history, &play.log, Time::Clock)
    );
}

#[test]
fn a_ledger_with_a_time_of_its_own_ends_nothing_early() {
    let mut play = Play::new();
    play.takes("ann", Some(60));
    play.issue.held = None;
    let hung = play.moment;
    play.takes("bob", Some(60));
    let check = |play: &Play, but_for: &[(u64, u64)]| {
        let time = Time::Ledger { but_for };
        check(&play.history, &play.log, time).map_err(|found| found.kind)
    };
    assert_eq!(check(&play, &[]), Err(Kind::TwoHolders));
    let (before, behind) = ((0, hung - 10), (hung + 30, u64::MAX));
    assert_eq!(check(&play, &[before, behind]), Err(Kind::TwoHolders));
    assert!(check(&play, &[(hung, hung + 10)]).is_ok());
    // Late is not early.
    play.moment += 61_000_000_000;
    play.issue.held = None;
    play.takes("ann", Some(60));
    assert!(check(&play, &[(hung, hung + 10)]).is_ok());
    // Nor is an end that is expected otherwise than before, or not at all.
    let looks = play.looks("cid");
    play.seen(looks).live.as_mut().unwrap().expires_at = Some(START + 77);
    assert!(check(&play, &[(hung, hung + 10)]).is_ok());
    play.seen(looks).live.as_mut().unwrap().expires_at = None;
    assert_eq!(check(&play, &[(hung, hung + 10)]), Err(Kind::WrongAnswer));
}

#[test]
fn what_ran_out_and_was_given_up_does_not_live_again() {
    let mut play = Play::new();
    play.takes("ann", Some(60));
    play.now += 3_600;
    let before = play.issue.clone();
    play.releases("ann");
    play.looks("bob");
    assert!(play.check().is_ok());
    // It was said to be nothing, and left there.
    play.issue = before;
    play.now -= 3_600;
    play.looks("bob");
    assert_eq!(play.check(), Err(Kind::WrongAnswer));
}

#[test]
fn a_token_that_is_given_twice_is_found() {
    let (mut play, ops) = two_in_turn();
    play.seen(ops[4]).token = 1;
    assert_eq!(play.check(), Err(Kind::TokenTwice));
}

#[test]
fn a_token_that_falls_is_found() {
    let (mut play, _) = two_in_turn();
    play.releases("bob");
    play.issue.token = 0;
    let third = play.takes("cid", None);
    play.seen(third).token = 3;
    let look = play.looks("dan");
    play.seen(look).token = 2;
    play.log[2].token = 3;
    assert_eq!(play.check(), Err(Kind::WrongAnswer));
}

#[test]
fn an_acknowledged_change_that_is_gone_is_found() {
    // The last one is gone, and somebody sees what was before it.
    let mut play = Play::new();
    play.takes("ann", None);
    let (issue, generation) = (play.issue.clone(), play.generation);
    play.releases("ann");
    (play.issue, play.generation) = (issue, generation);
    play.looks("bob");
    assert_eq!(play.check(), Err(Kind::Gone));
    // It is gone, and the next change stands in its place.
    let mut play = Play::new();
    play.takes("ann", None);
    let (issue, generation) = (play.issue.clone(), play.generation);
    play.releases("ann");
    (play.issue, play.generation) = (issue, generation);
    play.renews("ann", 60);
    assert_eq!(play.check(), Err(Kind::Gone));
    // A tenure that the ledger's log does not know.
    let (mut play, _) = two_in_turn();
    play.log.pop();
    assert_eq!(play.check(), Err(Kind::Gone));
    let (mut play, _) = two_in_turn();
    "ann".clone_into(&mut play.log[1].holder);
    assert_eq!(play.check(), Err(Kind::Gone));
}

#[test]
fn an_old_sight_is_found() {
    let (mut play, _) = two_in_turn();
    let look = play.looks("cid");
    let old = play.seen(5).clone();
    play.renews("bob", 3_600);
    // It began behind the renewal.
    let (start, end) = (play.tick(), play.tick());
    play.history[look].start = start;
    play.history[look].answer.as_mut().unwrap().0 = end;
    *play.seen(look) = old;
    assert_eq!(play.check(), Err(Kind::Gone));
}

#[test]
fn what_overlaps_may_stand_in_either_order() {
    let (mut play, ops) = two_in_turn();
    // Bob's look at ann's claim lasts until the end, though it saw the beginning.
    let end = play.tick();
    play.history[ops[1]].answer.as_mut().unwrap().0 = end;
    assert!(play.check().is_ok());
    // Ann's release is sent before bob asked, and takes its time.
    play.history[ops[3]].start = 1;
    assert!(play.check().is_ok());
}

#[test]
fn a_change_that_nobody_asked_for_is_found() {
    let (mut play, ops) = two_in_turn();
    play.history.remove(ops[3]);
    assert_eq!(play.check(), Err(Kind::Unasked));
    // Nor is it explained by what was asked for later.
    let (mut play, ops) = two_in_turn();
    play.lose(ops[3]);
    play.history[ops[3]].start = play.tick();
    assert_eq!(play.check(), Err(Kind::Unasked));
    // Nor by somebody else.
    let (mut play, ops) = two_in_turn();
    play.lose(ops[3]);
    play.history[ops[3]].ask.client = client("cid");
    assert_eq!(play.check(), Err(Kind::Unasked));
    // Nor by a request that was refused.
    let (mut play, ops) = two_in_turn();
    let (_, answer) = play.history[ops[3]].answer.as_mut().unwrap();
    *answer = Answer::read(6, "");
    assert_eq!(play.check(), Err(Kind::Unasked));
}

#[test]
fn a_request_without_an_answer_may_have_been_done_or_not() {
    for lost in [&[0][..], &[2], &[3], &[4], &[2, 3], &[0, 2, 3], &[2, 3, 4]] {
        let (mut play, ops) = two_in_turn();
        for lost in lost {
            play.lose(ops[*lost]);
        }
        let summary = check(&play.history, &play.log, Time::Clock);
        let summary = summary.unwrap_or_else(|found| panic!("{lost:?}: {found}"));
        assert_eq!(summary.lost, lost.len());
        assert_eq!(summary.unanswered_changes, lost.len(), "{lost:?}");
    }
    // Two lost renewals, of which one was done.
    let (mut play, _) = two_in_turn();
    let renewal = play.renews("bob", 60);
    play.lose(renewal);
    play.history.push(play.history[renewal].clone());
    play.looks("cid");
    assert!(play.check().is_ok());
    // But not twice.
    play.generation += 2;
    play.looks("cid");
    assert_eq!(play.check(), Err(Kind::Unasked));
}

#[test]
fn what_a_lost_request_did_is_held_against_what_is_seen_of_it() {
    let mut play = Play::new();
    let taken = play.takes("ann", Some(60));
    play.lose(taken);
    play.looks("bob");
    let again = play.looks("bob");
    assert!(play.check().is_ok());
    // Its end does not change by itself.
    let now = play.now;
    play.seen(again).live.as_mut().unwrap().expires_at = Some(now + 61);
    assert_eq!(play.check(), Err(Kind::WrongAnswer));
}

#[test]
fn wrong_answers_are_found() {
    type Tamper = fn(&mut Play, [usize; 6]);
    let tampers: [(&str, Tamper); 8] = [
        ("a conflict without a holder", |play, ops| {
            play.seen(ops[1]).live = None
        }),
        ("another holder", |play, ops| {
            play.seen(ops[1]).live.as_mut().unwrap().holder = client("cid");
        }),
        ("another's note", |play, ops| {
            "id9".clone_into(&mut play.seen(ops[5]).live.as_mut().unwrap().note);
        }),
        ("another end", |play, ops| {
            play.seen(ops[5]).live.as_mut().unwrap().expires_at = Some(START + 61);
        }),
        ("not what was asked for", |play, ops| {
            for op in &ops[4..] {
                play.seen(*op).live.as_mut().unwrap().expires_at = Some(START + 3_600);
            }
        }),
        ("live, and has run out", |play, ops| {
            play.seen(ops[5]).now = START + 60
        }),
        ("not live, and has not run out", |play, ops| {
            play.seen(ops[5]).live = None
        }),
        ("a conflict where it was free", |play, ops| {
            let (_, answer) = play.history[ops[5]].answer.as_mut().unwrap();
            answer.status = Some(Status::Held);
        }),
    ];
    for (what, tamper) in tampers {
        let (mut play, ops) = two_in_turn();
        tamper(&mut play, ops);
        assert_eq!(play.check(), Err(Kind::WrongAnswer), "{what}");
    }
}

#[test]
fn one_request_begins_one_tenure() {
    let mut play = Play::new();
    let take = play.acquire(None);
    play.asks("ann", take.clone());
    play.asks("ann", take.clone());
    play.releases("ann");
    let again = play.asks("ann", take.clone());
    assert_eq!(play.history[again].answer.as_ref().unwrap().1.exit, 4);
    assert!(play.check().is_ok());
    play.issue.begun = Rc::default();
    play.asks("ann", take);
    assert_eq!(play.check(), Err(Kind::WrongAnswer));
}

#[test]
fn one_request_for_any_issue_gets_one() {
    let mut play = Play::new();
    let id = "next1".to_owned();
    play.asks("ann", What::Next { id, ttl: None });
    assert!(play.check().is_ok());
    let mut other = play.history[0].clone();
    other.answer.as_mut().unwrap().1.seen[0].issue = "2".to_owned();
    play.history.push(other);
    let issue = "2".to_owned();
    play.log.push(Logged {
        issue,
        ..play.log[0].clone()
    });
    assert_eq!(play.check(), Err(Kind::WrongAnswer));
}

#[test]
fn who_may_end_anothers_claim() {
    for (name, expected, passes) in [("root", Some(1), true), ("bob", Some(1), false)] {
        let mut play = Play::new();
        play.takes("ann", None);
        let force = Some(Eviction { expected });
        let what = What::Release {
            issue: "1".to_owned(),
            token: None,
            force,
        };
        play.asks("root", what);
        play.history[1].ask.client = client(name);
        assert_eq!(play.check().is_ok(), passes, "{name}");
    }
}

/// Many clients in turn over `ledger`, and what they were answered.
fn walk(dir: &Path, ledger: &dyn Ledger, steps: usize) -> Result<Summary, Kind> {
    let place = Place::at(dir);
    let backlog = Backlog {
        issues: vec!["1".to_owned(), "2".to_owned()],
        has_order: false,
    };
    let walker = |number: usize| {
        let me = client(&format!("n{number}"));
        Walker::new(me, &format!("p{number}"), backlog.clone(), None)
    };
    let mut walkers: Vec<Walker> = (0..4).map(walker).collect();
    let mut random = Random::new();
    let mut moment = 0;
    let mut tick = || {
        moment += 1;
        moment
    };
    let mut history = Vec::new();
    for step in 0..steps {
        let hours = i64::try_from(random.below(3)).unwrap() - 1;
        place.set_clock(hours * 3_600_000);
        let walker = &mut walkers[step % 4];
        let ask = walker.ask();
        let start = tick();
        let answer = place.serve(ledger, &ask);
        // Some answers get lost on their way.
        let told = answer.filter(|_| !random.one_in(10));
        walker.learn(&ask, told.as_ref());
        history.push(Operation {
            ask,
            start,
            answer: told.map(|answer| (tick(), answer)),
        });
    }
    let (last, log) = place.look(ledger, &backlog.issues);
    history.extend(last);
    check(&history, &log, Time::Clock).map_err(|found| {
        println!("{found}");
        found.kind
    })
}

#[test]
fn the_real_ledger_passes_one_request_after_the_other() {
    let dir = assert_fs::TempDir::new().unwrap();
    let ledger = SqliteLedger::open(&dir.path().join("collab.db")).unwrap();
    assert!(walk(dir.path(), &ledger, 600).is_ok());
}

/// A ledger that forgets one of so many changes that it has acknowledged.
struct Forgetful {
    ledger: SqliteLedger,
    changes: AtomicU64,
    every: u64,
}

impl Ledger for Forgetful {
    fn read(
        &self,
        when: When<'_>,
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        self.ledger.read(when, look)
    }

    fn change(
        &self,
        when: When<'_>,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), LedgerError> {
        self.ledger.change(when, &mut |transaction| {
            let verdict = work(transaction)?;
            let changes = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
            let forgets = verdict == Verdict::Commit && changes.is_multiple_of(self.every);
            Ok(if forgets { Verdict::Discard } else { verdict })
        })
    }

    fn backup(&self, when: When<'_>, file: &Path) -> Result<u64, LedgerError> {
        self.ledger.backup(when, file)
    }

    fn create(&self, when: When<'_>) -> Result<(), LedgerError> {
        self.ledger.create(when)
    }

    fn contents(&self, when: When<'_>) -> Result<Contents, LedgerError> {
        self.ledger.contents(when)
    }

    fn retire(&self, when: When<'_>, to: Option<&str>) -> Result<bool, LedgerError> {
        self.ledger.retire(when, to)
    }

    fn version(&self, when: When<'_>) -> Result<Version, LedgerError> {
        self.ledger.version(when)
    }
}

#[test]
fn a_ledger_that_forgets_is_found() {
    let dir = assert_fs::TempDir::new().unwrap();
    let ledger = Forgetful {
        ledger: SqliteLedger::open(&dir.path().join("collab.db")).unwrap(),
        changes: AtomicU64::new(0),
        every: 20,
    };
    assert!(walk(dir.path(), &ledger, 600).is_err());
}

//! The checker: is there an order of all requests, one after the other, in which
//! every answer is right and nothing comes before what had ended when it began?
//!
//! Finding such an order is hard in general. Here the answers give it away: each
//! change of an issue's record raises its generation by one, and each answer
//! about an issue shows the generation that it saw. So changes stand in the
//! order of their generations, and who only looked stands behind the change that
//! it saw. That order is checked, against [`spec`](super::spec) and against
//! the time. If it holds, the history is linearizable; if it does not, the ledger
//! broke its word, be it only about generations.
//!
//! A request without an answer may have been done at any time since it was sent,
//! or never, but no later than a server lives. It is put where a generation is
//! missing that nobody was told of.
//! What is known of it is then what others saw. Where several could have been
//! it, each of them is followed.
//!
//! Issues have nothing to do with each other, so each is checked alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;

use git_claim_api::reply::{Status, Tenure};

use super::Operation;
use super::answer::{Answer, Logged, Seen};
use super::ask::{Client, What};
use super::spec::{At, End, Held, Issue, Outcome, ttl};

/// Who says when a claim with an end is over.
#[derive(Debug, Clone, Copy)]
pub enum Time<'a> {
    /// The server's clock, whatever it says.
    Clock,
    /// The ledger, by a time of its own that nobody turns: never early, but for
    /// these spans of moments. The ends that it shows are what it expects.
    Ledger { but_for: &'a [(u64, u64)] },
}

/// How long after it was sent a request may still be done, in nanoseconds: many
/// times what a server gives itself, as it may be stopped meanwhile.
const LIVES: u64 = 120 * 1_000_000_000;

/// What was checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub operations: usize,
    /// Of these, without an answer.
    pub lost: usize,
    pub changes: usize,
    /// Changes whose request got no answer.
    pub unanswered_changes: usize,
    pub tenures: usize,
}

/// What a history shows that must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Somebody was given what another still held.
    TwoHolders,
    /// A tenure began with a token that was given out before.
    TokenTwice,
    /// Something that was acknowledged is not there any more.
    Gone,
    /// The record changed, and nobody had asked for it.
    Unasked,
    /// An answer that the protocol does not allow.
    WrongAnswer,
}

#[derive(Debug)]
pub struct Violation {
    pub kind: Kind,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

fn violation(kind: Kind, what: impl Into<String>) -> Violation {
    Violation {
        kind,
        what: what.into(),
    }
}

/// Checks a whole history. `log` is every tenure that the ledger knows in the
/// end.
///
/// # Errors
/// The first thing that must not be.
pub fn check(history: &[Operation], log: &[Logged], time: Time<'_>) -> Result<Summary, Violation> {
    let mut summary = Summary {
        operations: history.len(),
        lost: history.iter().filter(|op| op.answer.is_none()).count(),
        ..Summary::default()
    };
    let mut logs: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    for tenure in log {
        let of_issue = logs.entry(&tenure.issue).or_default();
        if let Some(other) = of_issue.insert(tenure.token, &tenure.holder) {
            let what = format!("{tenure:?} is in the log for {other} too");
            return Err(violation(Kind::TokenTwice, what));
        }
    }
    once_in_all(history)?;
    let repeated = repeated(history);
    let over = over(history, &repeated);
    for (issue, story) in stories(history) {
        let log = logs.remove(issue).unwrap_or_default();
        let checked = Checker {
            history,
            story: &story,
            log: &log,
            repeated: &repeated,
            over: &over,
            time,
        }
        .run(&mut summary);
        checked.map_err(|found| Violation {
            what: format!("issue {issue}: {}", found.what),
            ..found
        })?;
    }
    match logs.keys().next() {
        None => Ok(summary),
        Some(issue) => Err(violation(
            Kind::Unasked,
            format!("the log has tenures of {issue}, which nobody asked for"),
        )),
    }
}

/// A request for any issue gets one, however often it is repeated.
fn once_in_all(history: &[Operation]) -> Result<(), Violation> {
    let mut given: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for op in history {
        let What::Next { id, .. } = &op.ask.what else {
            continue;
        };
        for seen in op.answer.iter().flat_map(|(_, answer)| &answer.seen) {
            let tenure = (seen.issue.as_str(), seen.token);
            let is_granted = seen.live.as_ref().is_some_and(|live| live.note == *id);
            if is_granted && *given.entry(id).or_insert(tenure) != tenure {
                let what = format!(
                    "{id} was given {:?} before {}",
                    given[id.as_str()],
                    shown(op)
                );
                return Err(violation(Kind::WrongAnswer, what));
            }
        }
    }
    Ok(())
}

/// The ids of requests that were made more than once.
fn repeated(history: &[Operation]) -> BTreeSet<&str> {
    let mut once = BTreeSet::new();
    let ids = history.iter().filter_map(|op| op.ask.id());
    ids.filter(|id| !once.insert(*id)).collect()
}

/// Those ids, by when no request with it can be done any more.
fn over<'a>(history: &'a [Operation], repeated: &BTreeSet<&'a str>) -> BTreeSet<(u64, &'a str)> {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for op in history {
        if let Some(id) = op.ask.id()
            && repeated.contains(id)
        {
            let over = last.entry(id).or_default();
            *over = (*over).max(over_at(op));
        }
    }
    last.into_iter().map(|(id, over)| (over, id)).collect()
}

/// The moment from which the request can't be done any more.
fn over_at(op: &Operation) -> u64 {
    match &op.answer {
        Some((end, _)) => *end,
        None => op.start.saturating_add(LIVES),
    }
}

/// What is known of one issue.
#[derive(Default)]
struct Story<'a> {
    /// Answered requests and what they saw, by generation.
    seen: BTreeMap<u64, Vec<Sight<'a>>>,
    /// Requests without an answer that can have changed it.
    lost: BTreeMap<&'a Client, Vec<usize>>,
}

/// An answered request and what it saw of one issue.
#[derive(Clone, Copy)]
struct Sight<'a> {
    op: usize,
    seen: &'a Seen,
    outcome: Outcome,
}

impl Sight<'_> {
    /// Whether the generation that it saw is of its own making.
    fn is_change(&self) -> bool {
        self.outcome.is_change()
    }
}

fn stories(history: &[Operation]) -> BTreeMap<&str, Story<'_>> {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for (op, operation) in history.iter().enumerate() {
        if let Some((_, answer)) = &operation.answer {
            for seen in &answer.seen {
                let outcome = outcome(answer);
                let story = stories.entry(&seen.issue).or_default();
                let sights = story.seen.entry(seen.generation).or_default();
                sights.push(Sight { op, seen, outcome });
            }
        }
    }
    for (op, operation) in history.iter().enumerate() {
        if operation.answer.is_some() {
            continue;
        }
        let client = &operation.ask.client;
        match (operation.ask.issue(), &operation.ask.what) {
            (Some(issue), _) => {
                let story = stories.entry(issue).or_default();
                story.lost.entry(client).or_default().push(op);
            }
            (None, What::Next { .. }) => {
                for story in stories.values_mut() {
                    story.lost.entry(client).or_default().push(op);
                }
            }
            (None, _) => {}
        }
    }
    stories
}

/// What an answer says became of the request.
fn outcome(answer: &Answer) -> Outcome {
    match (answer.status, answer.tenure, answer.was_held) {
        (Some(Status::Acquired), Some(Tenure::New), _) => Outcome::New,
        (Some(Status::Acquired), _, _) => Outcome::Own,
        (Some(Status::Renewed), _, _) => Outcome::Renewed,
        (Some(Status::Released), _, Some(true)) => Outcome::Released,
        // Whether it changed anything shows in what was there before.
        (Some(Status::Released), _, _) => Outcome::Nothing,
        (Some(Status::Valid), _, _) => Outcome::Valid,
        (Some(Status::Held), _, _) => Outcome::of_reason(answer.reason),
        _ => Outcome::Shown,
    }
}

fn shown(op: &Operation) -> String {
    serde_json::to_string(op).unwrap()
}

/// How an issue may stand, and the requests without an answer that led there.
#[derive(Clone, PartialEq)]
struct Path {
    issue: Issue,
    used: BTreeSet<usize>,
}

struct Checker<'a> {
    history: &'a [Operation],
    story: &'a Story<'a>,
    /// Who held each tenure, by token, as the ledger says in the end.
    log: &'a BTreeMap<u64, &'a str>,
    repeated: &'a BTreeSet<&'a str>,
    over: &'a BTreeSet<(u64, &'a str)>,
    time: Time<'a>,
}

impl Checker<'_> {
    fn run(&self, summary: &mut Summary) -> Result<(), Violation> {
        self.each_generation_once()?;
        self.in_time()?;
        let last = self.story.seen.keys().next_back().copied().unwrap_or(0);
        let first_end_behind = self.first_ends(last);
        let mut paths = vec![Path {
            issue: Issue::default(),
            used: BTreeSet::new(),
        }];
        // All that follows was done behind this moment.
        let mut now = 0;
        let mut over = self.over.iter().peekable();
        for generation in 0..=last {
            while let Some((_, id)) = over.next_if(|(end, _)| *end < now) {
                paths = forget(paths, id);
            }
            if generation > 0 {
                summary.changes += 1;
                paths = match self.change_at(generation) {
                    Some(sight) => self.follow(paths, |path| self.answered(path, sight))?,
                    None => {
                        summary.unanswered_changes += 1;
                        let deadline = first_end_behind[&generation];
                        self.unanswered(&paths, generation, now..=deadline)?
                    }
                };
            }
            let starts = self.sights(generation).map(|s| self.history[s.op].start);
            now = starts.max().map_or(now, |start| now.max(start));
            // Those who saw it held tell more than those who did not.
            let mut sights: Vec<Sight<'_>> = self.sights(generation).copied().collect();
            sights.retain(|sight| !sight.is_change());
            sights.sort_by_key(|sight| sight.seen.live.is_none());
            for sight in sights {
                paths = self.follow(paths, |path| self.looked(path, sight))?;
            }
        }
        let tokens: BTreeSet<u64> = paths.iter().map(|path| path.issue.token).collect();
        let known = self.log.len() as u64;
        if !tokens.contains(&known) || self.log.keys().copied().ne(1..=known) {
            let what = format!("the last token is {tokens:?}, and the log has {known} tenures");
            return Err(violation(Kind::Gone, what));
        }
        summary.tenures += self.log.len();
        Ok(())
    }

    fn sights(&self, generation: u64) -> impl Iterator<Item = &Sight<'_>> {
        self.story.seen.get(&generation).into_iter().flatten()
    }

    fn change_at(&self, generation: u64) -> Option<Sight<'_>> {
        self.sights(generation)
            .find(|sight| sight.is_change())
            .copied()
    }

    fn end(&self, op: usize) -> u64 {
        self.history[op]
            .answer
            .as_ref()
            .map_or(u64::MAX, |(end, _)| *end)
    }

    /// When a request that was answered looked at the issue.
    fn at(&self, sight: Sight<'_>) -> At {
        At {
            now: sight.seen.now,
            by: self.end(sight.op),
        }
    }

    /// When a tenure is over that a request has set an end to, if it is known
    /// to be `shown`.
    fn end_by(&self, op: usize, shown: Option<i64>) -> End {
        let operation = &self.history[op];
        match (self.time, ttl(&operation.ask), shown) {
            (_, None, _) => End::Never,
            (Time::Clock, _, Some(end)) => End::At(end),
            (Time::Clock, _, None) => End::Unknown,
            // The lease was granted when the request had been sent.
            (Time::Ledger { but_for }, Some(ttl), _) => {
                let start = operation.start;
                let end = start.saturating_add(ttl.saturating_mul(1_000_000_000));
                let spans = but_for.iter().filter(|(_, over)| start < *over);
                let sure = spans.map(|(from, _)| (*from).max(start)).min();
                End::Lease(sure.map_or(end, |sure| sure.min(end)))
            }
        }
    }

    fn about(&self, op: usize) -> String {
        shown(&self.history[op])
    }

    /// No two changes made the same generation, nor the same token.
    fn each_generation_once(&self) -> Result<(), Violation> {
        let mut began: BTreeMap<u64, usize> = BTreeMap::new();
        for sight in self.story.seen.values().flatten() {
            if sight.outcome != Outcome::New {
                continue;
            }
            if let Some(other) = began.insert(sight.seen.token, sight.op) {
                let what = format!("{}\nand {}", self.about(other), self.about(sight.op));
                return Err(violation(Kind::TokenTwice, what));
            }
        }
        for sights in self.story.seen.values() {
            let mut changes = sights.iter().filter(|sight| sight.is_change());
            if let (Some(one), Some(other)) = (changes.next(), changes.next()) {
                let what = format!(
                    "two changes made one generation: {}\nand {}",
                    self.about(one.op),
                    self.about(other.op)
                );
                return Err(violation(Kind::Gone, what));
            }
        }
        Ok(())
    }

    /// Nothing stands before what had ended when it began.
    fn in_time(&self) -> Result<(), Violation> {
        // The latest start among all that stand before.
        let mut latest: Option<(u64, usize)> = None;
        for sights in self.story.seen.values() {
            let (changes, looks): (Vec<&Sight<'_>>, Vec<&Sight<'_>>) =
                sights.iter().partition(|sight| sight.is_change());
            for group in [changes, looks] {
                for sight in &group {
                    if let Some((start, before)) = latest
                        && self.end(sight.op) < start
                    {
                        let what = format!(
                            "{}\nhad ended when this began, which saw what was before it: {}",
                            self.about(sight.op),
                            self.about(before)
                        );
                        return Err(violation(Kind::Gone, what));
                    }
                }
                let starts = group.iter().map(|s| (self.history[s.op].start, s.op));
                latest = latest.into_iter().chain(starts).max();
            }
        }
        Ok(())
    }

    /// For each generation, when the first of all that stand behind the change
    /// that made it had ended: what made it had been sent by then.
    fn first_ends(&self, last: u64) -> BTreeMap<u64, u64> {
        let mut first = u64::MAX;
        let mut ends = BTreeMap::new();
        for generation in (1..=last).rev() {
            for sight in self.sights(generation) {
                first = first.min(self.end(sight.op));
            }
            ends.insert(generation, first);
        }
        ends
    }

    /// Takes each path one step on. Where none goes on, the first says why.
    fn follow(
        &self,
        paths: Vec<Path>,
        step: impl Fn(Path) -> Result<Path, Violation>,
    ) -> Result<Vec<Path>, Violation> {
        let mut first = None;
        let mut on = Vec::new();
        for path in paths {
            match step(path) {
                Ok(path) => add(&mut on, path),
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(error) if on.is_empty() => Err(error),
            _ => Ok(on),
        }
    }

    /// A change whose request was answered.
    fn answered(&self, mut path: Path, sight: Sight<'_>) -> Result<Path, Violation> {
        let Sight { op, seen, outcome } = sight;
        let ask = &self.history[op].ask;
        self.is_allowed(&path.issue, sight)?;
        let shown = match (&seen.live, outcome) {
            (_, Outcome::Released) => None,
            (Some(live), _) => live.expires_at,
            (None, _) => return Err(self.wrong(op, "it holds nothing then")),
        };
        let is_right_end = match (outcome, shown, ttl(ask)) {
            (Outcome::Released, _, _) | (_, None, None) => true,
            // Computed from the time rounded up, shown with the time rounded down.
            (_, Some(end), Some(ttl)) => {
                let from = end.saturating_sub_unsigned(ttl);
                (seen.now..=seen.now + 1).contains(&from)
            }
            _ => false,
        };
        if !is_right_end {
            return Err(self.wrong(op, "that is not the end it asked for"));
        }
        path.issue.change(ask, outcome, self.end_by(op, shown));
        self.forget_if_not_repeated(&mut path.issue);
        self.is_in_log(&path.issue, op)?;
        self.fits(&mut path.issue, sight)?;
        Ok(path)
    }

    /// What requests without an answer can have made of the issue at
    /// `generation`, which was made some time within `when`.
    fn unanswered(
        &self,
        paths: &[Path],
        generation: u64,
        when: RangeInclusive<u64>,
    ) -> Result<Vec<Path>, Violation> {
        let mut on = Vec::new();
        for path in paths {
            for sight in self.sights(generation) {
                // A release that said "nothing" has given up what had run out.
                let ask = &self.history[sight.op].ask;
                let is_let_go = sight.outcome == Outcome::Nothing
                    && path.issue.decide(ask, false) == Outcome::LetGo
                    && path.issue.is_live(self.at(*sight)) != Some(true);
                if is_let_go {
                    let mut next = path.clone();
                    next.issue.change(ask, Outcome::LetGo, End::Never);
                    add(&mut on, next);
                }
            }
            for op in self.story.lost.values().flatten() {
                let operation = &self.history[*op];
                let may_be_done =
                    operation.start <= *when.end() && over_at(operation) >= *when.start();
                if !may_be_done || path.used.contains(op) {
                    continue;
                }
                for is_live in path.issue.may_be_live() {
                    let outcome = path.issue.decide(&operation.ask, is_live);
                    if !outcome.is_change() || !self.may_have_begun(&path.issue, *op, outcome) {
                        continue;
                    }
                    let mut issue = path.issue.clone();
                    issue.change(&operation.ask, outcome, self.end_by(*op, None));
                    self.forget_if_not_repeated(&mut issue);
                    if is_new(&on, &issue) {
                        let mut used = path.used.clone();
                        used.insert(*op);
                        on.push(Path { issue, used });
                    }
                }
            }
        }
        if on.is_empty() {
            let before: Vec<&Issue> = paths.iter().map(|path| &path.issue).collect();
            let what = format!("nobody asked for generation {generation}, after {before:?}");
            return Err(violation(Kind::Unasked, what));
        }
        Ok(on)
    }

    /// Whether the ledger's log has the next tenure for who asked for it.
    fn may_have_begun(&self, before: &Issue, op: usize, outcome: Outcome) -> bool {
        let holder = self.log.get(&(before.token + 1));
        outcome != Outcome::New || holder == Some(&self.history[op].ask.client.name.as_str())
    }

    /// A request that changed nothing.
    fn looked(&self, mut path: Path, sight: Sight<'_>) -> Result<Path, Violation> {
        self.is_allowed(&path.issue, sight)?;
        self.fits(&mut path.issue, sight)?;
        Ok(path)
    }

    /// Whether the request may come to its outcome here.
    fn is_allowed(&self, before: &Issue, sight: Sight<'_>) -> Result<(), Violation> {
        let ask = &self.history[sight.op].ask;
        // A change shows what is after it; else what is shown was there.
        let is_live = if sight.is_change() || sight.outcome == Outcome::Nothing {
            before.is_live(self.at(sight))
        } else {
            Some(sight.seen.live.is_some())
        };
        let lives = is_live.map_or(vec![true, false], |is_live| vec![is_live]);
        let due: Vec<Outcome> = lives
            .iter()
            .map(|is_live| before.decide(ask, *is_live))
            .collect();
        if due.contains(&sight.outcome) {
            return Ok(());
        }
        let kind = match (sight.outcome, &before.held) {
            (Outcome::New, Some(_)) if due == [Outcome::Conflict] => Kind::TwoHolders,
            _ => Kind::WrongAnswer,
        };
        let what = format!(
            "{due:?} was due after {before:?}, not {:?}: {}",
            sight.outcome,
            self.about(sight.op)
        );
        Err(violation(kind, what))
    }

    /// Whether the issue stands as the answer shows it; what the answer knows
    /// better is taken over.
    fn fits(&self, issue: &mut Issue, sight: Sight<'_>) -> Result<(), Violation> {
        let Sight { op, seen, .. } = sight;
        let differs = |issue: &Issue, what: &str| {
            let what = format!("{what}: it stands as {issue:?}, and {}", self.about(op));
            Err(violation(Kind::WrongAnswer, what))
        };
        if seen.token != issue.token {
            return differs(issue, "another token");
        }
        let Some(live) = &seen.live else {
            return match issue.is_live(self.at(sight)) {
                Some(true) => differs(issue, "it is live"),
                _ => Ok(()),
            };
        };
        let end = live.expires_at.map_or(End::Never, End::At);
        match &mut issue.held {
            Some(held) => {
                if held.end == End::Unknown && end != End::Never {
                    held.end = end;
                }
                let shown = Held {
                    who: live.holder.clone(),
                    // That of a lease is not known to the second.
                    end: match held.end {
                        End::Lease(_) if end != End::Never => held.end,
                        _ => end,
                    },
                    note: live.note.clone(),
                };
                if *held != shown {
                    return differs(issue, "another holder");
                }
            }
            None => return differs(issue, "it is free"),
        }
        match end {
            End::At(end) if end <= seen.now => differs(issue, "it has run out"),
            _ => Ok(()),
        }
    }

    /// Whether the ledger's log has the tenure that an answer told of.
    fn is_in_log(&self, issue: &Issue, op: usize) -> Result<(), Violation> {
        let holder = issue.held.as_ref().map(|held| held.who.name.as_str());
        let Some(holder) = holder else {
            return Ok(());
        };
        match self.log.get(&issue.token) {
            Some(logged) if *logged == holder => Ok(()),
            logged => Err(violation(
                Kind::Gone,
                format!("the log has {logged:?} for {}", self.about(op)),
            )),
        }
    }

    fn wrong(&self, op: usize, why: &str) -> Violation {
        violation(Kind::WrongAnswer, format!("{why}: {}", self.about(op)))
    }

    /// Which request began a tenure matters only if it is made again.
    fn forget_if_not_repeated(&self, issue: &mut Issue) {
        if let Some(held) = &issue.held
            && issue.begun.contains(held.note.as_str())
            && !self.repeated.contains(held.note.as_str())
        {
            Rc::make_mut(&mut issue.begun).remove(held.note.as_str());
        }
    }
}

/// The same paths without what they know of requests with that id.
fn forget(paths: Vec<Path>, id: &str) -> Vec<Path> {
    if !paths.iter().any(|path| path.issue.begun.contains(id)) {
        return paths;
    }
    let mut rest = Vec::new();
    for mut path in paths {
        Rc::make_mut(&mut path.issue.begun).remove(id);
        add(&mut rest, path);
    }
    rest
}

/// Adds a path, unless there is one already that can't be told from it.
fn add(paths: &mut Vec<Path>, path: Path) {
    if is_new(paths, &path.issue) {
        paths.push(path);
    }
}

fn is_new(paths: &[Path], issue: &Issue) -> bool {
    !paths.iter().any(|there| there.issue == *issue)
}

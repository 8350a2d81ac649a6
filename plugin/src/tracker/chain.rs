//! The commits that an issue consists of: each before its parents, where two
//! chains were joined the newer ones first.

use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};

use git2::{Commit, Oid};

use super::objects::Objects;
use super::unreadable::Unreadable;

/// Walks from an issue's newest commit to its root. As long as no commit has
/// two parents, only what is asked for is read.
pub struct Chain<'o, 'a> {
    objects: &'o Objects<'a>,
    next: Option<Oid>,
    /// What lies below the first merge, in reverse order.
    rest: Vec<Commit<'a>>,
}

impl<'o, 'a> Chain<'o, 'a> {
    pub fn from(objects: &'o Objects<'a>, tip: Oid) -> Chain<'o, 'a> {
        Chain {
            objects,
            next: Some(tip),
            rest: Vec::new(),
        }
    }

    fn step(&mut self, oid: Oid) -> Result<Commit<'a>, Unreadable> {
        let commit = self.objects.commit(oid)?;
        match commit.parent_count() {
            0 => {}
            1 => self.next = Some(commit.parent_id(0)?),
            _ => {
                self.rest = ordered(self.objects, &commit)?;
                self.rest.reverse();
            }
        }
        Ok(commit)
    }
}

impl<'a> Iterator for Chain<'_, 'a> {
    type Item = Result<Commit<'a>, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next.take() {
            Some(oid) => Some(self.step(oid)),
            None => self.rest.pop().map(Ok),
        }
    }
}

/// All ancestors of `merge`, each before its parents; of several that could be
/// next, the newest. By time alone a wrong clock could put a parent first.
fn ordered<'a>(objects: &Objects<'a>, merge: &Commit<'a>) -> Result<Vec<Commit<'a>>, Unreadable> {
    let mut found: HashMap<Oid, Commit<'a>> = HashMap::new();
    let mut children: HashMap<Oid, usize> = HashMap::new();
    let mut unread: Vec<Oid> = merge.parent_ids().collect();
    for oid in &unread {
        *children.entry(*oid).or_default() += 1;
    }
    while let Some(oid) = unread.pop() {
        let Entry::Vacant(place) = found.entry(oid) else {
            continue;
        };
        let commit = objects.commit(oid)?;
        for parent in commit.parent_ids() {
            *children.entry(parent).or_default() += 1;
            unread.push(parent);
        }
        place.insert(commit);
    }
    let mut ready: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
    let mut done = |oid: Oid, found: &HashMap<Oid, Commit<'a>>, ready: &mut BinaryHeap<_>| {
        let Some(left) = children.get_mut(&oid) else {
            return;
        };
        *left -= 1;
        if *left == 0
            && let Some(commit) = found.get(&oid)
        {
            ready.push((commit.time().seconds(), oid));
        }
    };
    for parent in merge.parent_ids() {
        done(parent, &found, &mut ready);
    }
    let mut order = Vec::with_capacity(found.len());
    while let Some((_, oid)) = ready.pop() {
        let Some(commit) = found.remove(&oid) else {
            continue;
        };
        for parent in commit.parent_ids() {
            done(parent, &found, &mut ready);
        }
        order.push(commit);
    }
    Ok(order)
}

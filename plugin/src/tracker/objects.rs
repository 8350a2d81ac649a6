//! Reads git objects that anyone who may push could have made: kind and size
//! are looked at before an object is read, and all that is read for one answer
//! comes out of one budget.

use std::cell::Cell;

use git2::{Blob, Commit, ObjectType, Odb, Oid, Repository, Tree};

use super::unreadable::Unreadable;

/// What an object costs beside its size, so that very many small ones come to
/// an end too.
const OVERHEAD: usize = 1024;

/// The objects of a repository, within a budget.
pub struct Objects<'a> {
    git: &'a Repository,
    odb: Odb<'a>,
    budget: usize,
    left: Cell<usize>,
}

impl<'a> Objects<'a> {
    /// `budget` is in bytes, and what is left of it after each answer.
    ///
    /// # Errors
    /// The object store can't be opened.
    pub fn new(git: &'a Repository, budget: usize) -> Result<Objects<'a>, Unreadable> {
        Ok(Objects {
            git,
            odb: git.odb()?,
            budget,
            left: Cell::new(budget),
        })
    }

    /// Begins anew, with the whole budget.
    pub fn refill(&self) {
        self.left.set(self.budget);
    }

    /// # Errors
    /// It is missing, damaged, no commit, or more than the budget allows.
    pub fn commit(&self, oid: Oid) -> Result<Commit<'a>, Unreadable> {
        self.charge(oid, ObjectType::Commit)?;
        Ok(self.git.find_commit(oid)?)
    }

    /// # Errors
    /// It is missing, damaged, no tree, or more than the budget allows.
    pub fn tree(&self, oid: Oid) -> Result<Tree<'a>, Unreadable> {
        self.charge(oid, ObjectType::Tree)?;
        Ok(self.git.find_tree(oid)?)
    }

    /// # Errors
    /// It is missing, damaged, no blob, or more than the budget allows.
    pub fn blob(&self, oid: Oid) -> Result<Blob<'a>, Unreadable> {
        self.charge(oid, ObjectType::Blob)?;
        Ok(self.git.find_blob(oid)?)
    }

    fn charge(&self, oid: Oid, wanted: ObjectType) -> Result<(), Unreadable> {
        let (size, kind) = self.odb.read_header(oid)?;
        if kind != wanted {
            return Err(Unreadable(format!("{oid} is a {kind}, not a {wanted}")));
        }
        let cost = size.saturating_add(OVERHEAD);
        match self.left.get().checked_sub(cost) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(Unreadable(format!(
                "there is more of it than {} MiB",
                self.budget >> 20
            ))),
        }
    }
}

//! The server side of git-claim: the verb `collab-lease` and its ledger, as a
//! plugin that a forge loads through a C ABI.
//!
//! ```text
//! abi        the C ABI: the only unsafe code, and where panics stop
//! host       what the plugin asks of the forge, as a trait
//! input      the lines that a peer sends
//! brought    what a push brought to the default branch
//! server     one request: parse, authorise, hand to a verb, print
//!   verbs    one file a subverb: load, decide, store, reply
//!   queries  one file a question of a forge's own pages: look, reply
//!   view     a claim as the one who asks may see it
//! serve      many requests on one connection
//!   watch    what has changed in a repository since the last look
//! claim      the heart: records and decisions, pure functions
//! ledger     where records are kept: the storage interface, and SQLite
//! tracker    where issues live: does this one exist, is it open?
//! ```

#[cfg(panic = "abort")]
compile_error!("git-claim-plugin must be built with panic=unwind: a panic may not cross the C ABI");

#[allow(unsafe_code)] // the C ABI; denied everywhere else
pub mod abi;
mod brought;
pub mod claim;
#[cfg(test)]
#[path = "../../tests/fuzz"]
mod fuzz {
    pub mod harness;
    pub mod issues;
    pub mod rows;
}
pub mod host;
mod input;
pub mod ledger;
pub mod queries;
mod random;
mod repository;
mod serve;
pub mod server;
pub mod tracker;
mod verbs;
mod view;
mod watch;

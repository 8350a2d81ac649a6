//! What git-claim's client, its server-side loader and its plugin share: the
//! words of the verb `collab-lease`, its replies, its exit codes, and the C
//! ABI between a forge and the plugin.
//!
//! Nothing here does I/O. A value that was parsed here is valid everywhere.

#[allow(non_camel_case_types)] // the names of the header
pub mod abi;
pub mod access;
pub mod duration;
pub mod event;
pub mod exit;
pub mod ids;
pub mod ledger;
pub mod lock;
pub mod push;
pub mod query;
pub mod reply;
pub mod serve;
pub mod settings;
pub mod text;
pub mod time;
pub mod verb;
pub mod words;

/// The verb that a client asks the server for.
pub const VERB: &str = "collab-lease";

/// The version of the protocol that `whoami` reports.
pub const PROTOCOL: u32 = 1;

/// How long the server works on a request before it gives up, in milliseconds.
pub const REQUEST_DEADLINE_MS: u32 = 10_000;

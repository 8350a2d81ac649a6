//! The plugin without a forge: the whole verb over real ledger files, with a
//! clock that the tests set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod events;
mod fence;
mod git_issue;
mod ledger;
mod model;
mod serve;
mod settle;
mod support;
mod trackers;
mod verb;

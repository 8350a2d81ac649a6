//! The plugin without a forge: the whole verb over real ledgers, with a clock
//! that the tests set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::duplicate_mod)] // the same tests run over each engine

#[path = "../../tests/linear/mod.rs"]
mod linear;

mod checker;
mod engines;
#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code)] // shared with the end-to-end tests
mod etcd;
mod etcd_faults;
mod etcd_ledger;
mod fuzz;
mod ledger;
mod moves;
mod network;
mod power;
mod support;
mod time_machine;
mod torture;

/// The same tests over each engine.
macro_rules! over {
    ($name:ident, $engine:ty) => {
        #[path = "."]
        mod $name {
            type Forge = crate::support::Forge<$engine>;

            mod events;
            mod fence;
            mod git_issue;
            mod model;
            mod serve;
            mod settle;
            mod trackers;
            mod verb;
        }
    };
}

over!(on_sqlite, crate::engines::Sqlite);
over!(on_etcd, crate::engines::Etcd);

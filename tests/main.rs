//! End-to-end tests: the real programs, git, a real sshd, a real ledger.
//!
//! `make test` builds what they need beside the command and runs them. Each
//! module is one theme; `support` holds what they stand on.

// `cfg(test)` says to clippy that unwrap and panic are a test's way to fail.
#[cfg(test)]
mod support;

#[cfg(test)]
#[allow(dead_code)] // the plugin's tests need more of it
mod linear;

#[cfg(test)]
mod abi;
#[cfg(test)]
mod access;
#[cfg(test)]
mod check;
#[cfg(test)]
mod claim;
#[cfg(test)]
mod clock;
#[cfg(test)]
mod completion;
#[cfg(test)]
mod connection;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod escapes;
#[cfg(test)]
mod etcd_ledger;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod fence;
#[cfg(test)]
mod first_use;
#[cfg(test)]
mod flood;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod habits;
#[cfg(test)]
mod hook;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod in_use;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod install;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod large;
#[cfg(test)]
mod ledger_file;
#[cfg(test)]
mod line;
#[cfg(test)]
mod local;
#[cfg(test)]
mod logged;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod page;
#[cfg(test)]
mod plugin_manual;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod race;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod records;
#[cfg(test)]
mod recover;
#[cfg(test)]
mod repositories;
#[cfg(test)]
mod retry;
#[cfg(test)]
mod run;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod several;
#[cfg(test)]
mod soak;
#[cfg(test)]
mod start;
#[cfg(test)]
mod storage;
#[cfg(test)]
mod tab;
#[cfg(test)]
mod torture;
#[cfg(test)]
mod undone;
#[cfg(test)]
mod wait;
#[cfg(test)]
mod way_out;
#[cfg(test)]
mod wire;

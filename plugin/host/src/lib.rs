//! The loaders of git-claim's plugin: `git-claim-server`, whose argv is the
//! admin's, and `collab-lease`, whose argv is the client's.
//!
//! A forge starts one of them once per request. It works out who is asking
//! ([`principal`]), which repository is meant ([`repos`]) and what they may do
//! there ([`access`]), loads the plugin ([`plugin_file`], [`abi`]) and hands
//! over ([`request`]). Start-up is most of what a request costs, so nothing is
//! read, opened or spawned before it is needed.

pub mod abi;
pub mod access;
pub mod admin;
pub mod cgi;
pub mod cli;
pub mod collab_lease;
pub mod environment;
pub mod forgejo;
#[cfg(test)]
#[path = "../../../tests/fuzz"]
mod fuzz {
    pub mod config;
    pub mod harness;
}
pub mod gitolite;
pub mod hook;
pub mod host;
pub mod kept;
pub mod local;
pub mod log;
pub mod login;
pub mod openssh;
pub mod plugin_file;
pub mod post_claim;
pub mod principal;
pub mod repo_config;
pub mod report;
pub mod repos;
pub mod request;
pub mod rights;
pub mod serve;
pub mod settings;
pub mod site;
pub mod ssh_key;
pub mod trusted;
pub mod watchdog;
pub mod written_key;

//! The hosts that people run, set up by the README's own words on a machine of
//! the test's own.

mod forge_stub;
mod forgejo;
mod git_shell;
mod gitolite;
mod in_process;
mod lease_server;
pub mod machine;
mod openssh;
pub mod readme;

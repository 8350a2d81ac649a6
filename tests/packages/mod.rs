//! What is handed out: the crates.

mod crates;

use crate::hosts::machine::source;

/// The version in the workspace's manifest.
fn version() -> String {
    let manifest = source("Cargo.toml");
    let (_, rest) = manifest.split_once("\nversion = \"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

//! Links the plugin so that it is never unloaded: SQLite's and libgit2's state
//! and the POSIX locks of this process would not survive it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

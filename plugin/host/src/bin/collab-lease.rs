//! `collab-lease`: every word of argv is the client's.

fn main() -> std::process::ExitCode {
    git_claim_server::collab_lease::main()
}

//! `git-claim-server`: argv is the admin's.

fn main() -> std::process::ExitCode {
    git_claim_server::cli::main()
}

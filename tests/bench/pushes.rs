//! A push that has nothing to do with any claim, with the hooks of the fence and
//! without them.

use std::time::Duration;

use crate::support::client::Client;
use crate::support::forge::{Forge, REPO, url};
use crate::support::issue;
use crate::{Row, Target, compare, master, time};

/// Without the hooks.
const PLAIN: &str = "acme/plain.git";

pub fn rows(forge: &Forge, rows: &mut Vec<Row>) {
    forge.add_repo(PLAIN);
    forge.fetch_issues(PLAIN);
    forge.set_up_fence();
    let [fenced, plain] = [REPO, PLAIN].map(|repo| pusher(forge, repo));
    // Others hold some, one of them for a branch.
    let other = forge.client("bob");
    other.ok(&format!("git claim {} --ttl 2h", issue::UNICODE));
    other
        .verb(&format!(
            "acquire {REPO} {} --ttl 7200 --session s --branch b --worktree /w --machine m",
            issue::RETITLED
        ))
        .success();
    for (what, name) in [
        ("a push without a claim, to a branch", "refs/heads/side"),
        ("the same to the default branch", "refs/heads/main"),
    ] {
        rows.push(compare(
            what,
            Target::AtMostMore(10.0, "without hooks"),
            || push(&fenced, name),
            || push(&plain, name),
        ));
    }
}

/// Somebody with a connection that their ssh keeps, so that what logging in
/// costs is not in the way of what the hooks do.
fn pusher(forge: &Forge, repo: &str) -> Client {
    let client = forge.person("alice").worktree(&url(repo));
    client.ok("git fetch -q origin");
    client.ok("git reset -q --hard origin/main");
    let command = format!("ssh -S {}", master(&client));
    client
        .git(["config", "core.sshCommand", &command])
        .assert()
        .success();
    client
}

/// One more commit.
fn push(client: &Client, name: &str) -> Duration {
    client.ok("git commit -q --allow-empty -m x");
    let mut command = client.person().std_command("git", client.dir());
    let refspec = format!("HEAD:{name}");
    time(command.args(["push", "-q", "origin", &refspec]))
}

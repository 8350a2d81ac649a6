//! git's own commands, so that one key and one connection serve claims, fetches
//! and pushes.

use std::process::Stdio;

use anyhow::{Context as _, Result};
use git_claim_api::access::Access;
use git_claim_api::words;
use git_claim_server::host::Host as _;
use git_claim_server::openssh::{KEY, PRINCIPAL};
use git_claim_server::principal::Principal;
use git_claim_server::site::Site;
use russh::Channel;
use russh::server::Msg;
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::process::Command;

use crate::Forge;
use crate::claims::{STDERR, finish};

/// Serves one of git's two commands on one repository, and nothing else.
pub async fn serve(
    forge: &Forge,
    who: &Principal,
    command: &[u8],
    mut channel: Channel<Msg>,
) -> Result<()> {
    let Some(mut git) = git(forge, who, command) else {
        let refusal = &b"error: repository not found\n"[..];
        channel.extended_data_bytes(STDERR, refusal).await?;
        return finish(channel, 1).await;
    };
    let mut git = git
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A client that goes takes its git along.
        .kill_on_drop(true)
        .spawn()?;
    let mut input = git.stdin.take().context("git's input")?;
    let mut output = git.stdout.take().context("git's output")?;
    let mut errors = git.stderr.take().context("git's errors")?;
    let mut to_client = channel.make_writer();
    let mut errors_to_client = channel.make_writer_ext(Some(STDERR));
    let exit = {
        let mut from_client = channel.make_reader();
        let feed = async {
            // git may stop to read before the client stops to send.
            let _ = copy(&mut from_client, &mut input).await;
            let _ = input.shutdown().await;
            drop(input);
            std::future::pending::<()>().await;
        };
        let run = async {
            tokio::try_join!(
                copy(&mut output, &mut to_client),
                copy(&mut errors, &mut errors_to_client),
            )?;
            git.wait().await
        };
        tokio::select! {
            () = feed => None,
            status = run => status?.code(),
        }
    };
    finish(channel, exit.map_or(1, i32::unsigned_abs)).await
}

/// The command, if the client may have it: who may see claims may fetch, who may
/// take some may push.
fn git(forge: &Forge, who: &Principal, command: &[u8]) -> Option<Command> {
    let words = words::split(command).ok()?;
    let [program, name] = words.as_slice() else {
        return None;
    };
    let access = match program.as_str() {
        "git-upload-pack" => Access::Read,
        "git-receive-pack" => Access::Write,
        _ => return None,
    };
    let site = Site::new(&forge.settings, who).ok()?;
    let repo = site.resolve_repo(name)?;
    if !site.authorize(&repo, access) {
        return None;
    }
    let mut git = Command::new(program);
    git.arg(site.repo_path(&repo)?)
        // Whom the hooks behind a push are to take for the pusher.
        .env(PRINCIPAL, who.name.as_str())
        .env(KEY, &who.profile);
    Some(git)
}

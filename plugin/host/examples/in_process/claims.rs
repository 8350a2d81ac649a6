//! The verb: the plugin blocks, so it gets a thread, and what it writes goes
//! through a bounded channel to the client.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use git_claim_api::REQUEST_DEADLINE_MS;
use git_claim_server::abi::Request;
use git_claim_server::host::{NoInput, Output, Stream};
use git_claim_server::principal::Principal;
use git_claim_server::site::Site;
use russh::Channel;
use russh::server::Msg;
use tokio::sync::mpsc;

use crate::Forge;

/// SSH's number for standard error.
pub const STDERR: u32 = 1;
/// How many pieces of output may wait for a slow client before the plugin does.
const WAITING: usize = 16;

/// Serves `command`, the verb included.
pub async fn serve(
    forge: Arc<Forge>,
    who: Principal,
    peer: IpAddr,
    command: Vec<u8>,
    channel: Channel<Msg>,
) -> Result<()> {
    let (sender, mut pieces) = mpsc::channel(WAITING);
    let exec =
        tokio::task::spawn_blocking(move || exec(&forge, &who, peer, &command, Pipe(sender)));
    while let Some((stream, data)) = pieces.recv().await {
        match stream {
            Stream::Stdout => channel.data_bytes(data).await?,
            Stream::Stderr => channel.extended_data_bytes(STDERR, data).await?,
        }
    }
    // After the last byte, or a client may miss it.
    finish(channel, exec.await?.into()).await
}

/// Ends a channel with an exit status.
pub async fn finish(channel: Channel<Msg>, exit: u32) -> Result<()> {
    channel.exit_status(exit).await?;
    channel.eof().await?;
    channel.close().await?;
    Ok(())
}

/// Runs on a thread that may block; gives the exit code.
fn exec(forge: &Forge, who: &Principal, peer: IpAddr, command: &[u8], pipe: Pipe) -> u8 {
    let site = match Site::new(&forge.settings, who) {
        Ok(site) => site,
        Err(failure) => return pipe.error(&failure.error, failure.exit.code()),
    };
    let request = Request {
        command,
        user: who.name.as_str(),
        key: &who.profile,
        peer: &peer.to_string(),
        deadline_ms: REQUEST_DEADLINE_MS,
        of_host: false,
    };
    // `serve` alone would read what the client sends.
    match forge.plugin.exec(&request, &site, &pipe, &NoInput) {
        Ok(exit) => exit,
        // Nothing was promised to the client: it may try again.
        Err(status) => pipe.error(&status.to_string(), 6),
    }
}

/// Where the plugin writes to.
struct Pipe(mpsc::Sender<(Stream, Vec<u8>)>);

impl Pipe {
    /// Says why there is no answer.
    fn error(&self, why: &str, exit: u8) -> u8 {
        let _ = self.write(Stream::Stderr, format!("error: {why}\n").as_bytes());
        exit
    }
}

impl Output for Pipe {
    fn write(&self, stream: Stream, data: &[u8]) -> io::Result<()> {
        self.0
            .blocking_send((stream, data.to_vec()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn is_given_up(&self) -> bool {
        self.0.is_closed()
    }
}

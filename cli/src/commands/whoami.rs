//! `git claim whoami`: what the server takes one for.

use git_claim_api::exit::Exit;
use git_claim_api::reply::WhoamiReply;
use git_claim_api::verb::Request;

use crate::answer::Reply;
use crate::client::Client;
use crate::error::Result;
use crate::output::{Output, people};

/// Show who you are to the server, and what you may do
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The server's answer, and the reply that it stands in.
pub async fn asked(client: &mut Client, output: &mut Output) -> Result<(WhoamiReply, Reply)> {
    let request = Request::Whoami {
        repo: Some(client.repo()?),
    };
    let reply = client.ask(&request, output).await?;
    Ok((reply.read()?, reply))
}

pub async fn run(_args: &Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let (whoami, reply) = asked(client, output).await?;
    if output.json() {
        output.reply(&reply.line)?;
    } else {
        let session = client.known_session()?;
        output.text(&people::whoami(&whoami, session.as_ref()))?;
    }
    Ok(reply.exit)
}

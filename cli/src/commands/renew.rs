//! `git claim renew`: the heartbeat of one's own claim.

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Ttl};
use git_claim_api::reply::Status;
use git_claim_api::verb::Request;

use super::{answer, named, own_token};
use crate::args::{issue_id, ttl};
use crate::client::Client;
use crate::error::Result;
use crate::noted;
use crate::output::{Output, people};

/// Set the end of your claim anew, counted from now
///
/// Fails with exit code 4 if the claim is yours no more.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id)]
    pub id: Option<IssueId>,

    /// How long the claim lives from now on; without it, as long as before
    #[arg(short, long, value_name = "DURATION", value_hint = ValueHint::Other, value_parser = ttl)]
    pub ttl: Option<Ttl>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let issue = named(args.id, client, "git claim renew")?;
    let token = own_token(client, &issue, output).await?;
    let request = Request::Renew {
        repo: client.repo()?,
        issue,
        ttl: args.ttl,
        session: Some(client.session()?),
        token,
    };
    let reply = client.ask(&request, output).await?;
    if reply.exit == Exit::Done {
        noted::held(client, &reply, output);
    }
    answer(
        &reply,
        Status::Renewed,
        people::Doing::Renew,
        output,
        people::renewed,
    )
}

//! `git claim renew`: the heartbeat of one's own claim.

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Ttl};
use git_claim_api::reply::Status;
use git_claim_api::verb::Request;

use super::{answer, own_token, several};
use crate::args::{issue_id, ttl};
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::Result;
use crate::noted;
use crate::output::{Output, people};

/// Set the end of your claim anew, counted from now
///
/// Fails with exit code 4 if the claim is yours no more.
///
/// Several issues are renewed over one connection, each for itself. The exit
/// code is the highest of theirs; with --json there is one object a line for
/// each, in the order given, errors among them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id; several may be given
    #[arg(value_name = "ID", value_parser = issue_id, add = Offer::Mine)]
    pub ids: Vec<IssueId>,

    /// How long the claim lives from now on; without it, as long as before
    #[arg(short, long, value_name = "DURATION", value_hint = ValueHint::Other, value_parser = ttl)]
    pub ttl: Option<Ttl>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let Args { ids, ttl } = args;
    let renew = async |issue, client: &mut Client, output: &mut Output| {
        one(issue, ttl, client, output).await
    };
    several::each(ids, "git claim renew", client, output, renew).await
}

async fn one(
    issue: IssueId,
    ttl: Option<Ttl>,
    client: &mut Client,
    output: &mut Output,
) -> Result<Exit> {
    let token = own_token(client, &issue, output).await?;
    let request = Request::Renew {
        repo: client.repo()?,
        issue,
        ttl,
        session: Some(client.session()?),
        token,
    };
    let reply = client.ask(&request, output).await?;
    match reply.exit {
        Exit::Done => noted::held(client, &reply, output),
        _ => noted::told(client, &reply, output),
    }
    answer(
        &reply,
        Status::Renewed,
        people::Doing::Renew,
        output,
        people::renewed,
    )
}

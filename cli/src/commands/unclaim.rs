//! `git unclaim`: give an issue back.

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Text, Token};
use git_claim_api::reply::Status;
use git_claim_api::verb::{Eviction, Request};

use super::{answer, eviction, own_token, several};
use crate::args::issue_id;
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::{Failure, Result};
use crate::noted;
use crate::output::{Output, people};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id; several may be given
    #[arg(value_name = "ID", value_parser = issue_id, add = Offer::Mine)]
    pub ids: Vec<IssueId>,

    /// Release a claim that is another's, or yours in another session
    ///
    /// Your own claim in another session needs the right to claim; a claim of
    /// another name needs the right `admin` and --expected-token.
    #[arg(long, requires = "reason")]
    pub force: bool,

    /// Why; goes to the history, and to the one who loses the claim
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other, requires = "force")]
    pub reason: Option<Text>,

    /// The token of the very tenure that is meant
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, requires = "force")]
    pub expected_token: Option<Token>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    if args.expected_token.is_some() && args.ids.len() > 1 {
        return Err(
            Failure::usage("--expected-token means one tenure, and so one issue")
                .hint("each needs a call of its own"),
        );
    }
    let force = eviction("--force", args.force, args.reason, args.expected_token)?;
    let release = async |issue, client: &mut Client, output: &mut Output| {
        one(issue, force.clone(), client, output).await
    };
    several::each(args.ids, "git unclaim", client, output, release).await
}

async fn one(
    issue: IssueId,
    force: Option<Eviction>,
    client: &mut Client,
    output: &mut Output,
) -> Result<Exit> {
    // By force it is another session's tenure that ends: the token kept here
    // says nothing about it.
    let token = match force {
        Some(_) => None,
        None => own_token(client, &issue, output).await?,
    };
    let request = Request::Release {
        repo: client.repo()?,
        issue,
        session: Some(client.session()?),
        token,
        force,
    };
    let reply = client.ask(&request, output).await?;
    noted::over(client, &reply, output);
    answer(
        &reply,
        Status::Released,
        people::Doing::Release,
        output,
        people::released,
    )
}

//! `git unclaim`: give an issue back.

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Text, Token};
use git_claim_api::reply::Status;
use git_claim_api::verb::Request;

use super::{answer, eviction, named, own_token};
use crate::args::issue_id;
use crate::client::Client;
use crate::error::Result;
use crate::noted;
use crate::output::{Output, people};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id)]
    pub id: Option<IssueId>,

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
    let issue = named(args.id, client, "git unclaim")?;
    let force = eviction("--force", args.force, args.reason, args.expected_token)?;
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

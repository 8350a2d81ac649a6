//! `git claim log`: the history.

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::reply::LogReply;
use git_claim_api::verb::Request;

use super::named;
use crate::args::issue_id;
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::Result;
use crate::output::{Output, table};

/// Show who held an issue, when, and how it ended
///
/// The newest first. `git claims --ended` lists those of all issues.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id, add = Offer::Any)]
    pub id: Option<IssueId>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let issue = named(args.id, client, "git claim log")?;
    let request = Request::Log {
        repo: client.repo()?,
        issue: Some(issue.clone()),
        limit: None,
    };
    let reply = client.ask(&request, output).await?;
    let log: LogReply = reply.read()?;
    if output.json() {
        output.reply(&reply.line)?;
    } else if log.tenures.is_empty() {
        output.remark(&table::no_history(&log, &issue));
    } else {
        let table = table::history(&log, output.layout());
        output.long_text(&table, client.git())?;
        if log.more {
            output.remark("there is more than the server sends at once");
        }
    }
    Ok(reply.exit)
}

//! `git claims`: who works on what.

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::Text;
use git_claim_api::reply::ListReply;
use git_claim_api::verb::Request;

use crate::client::Client;
use crate::error::Result;
use crate::output::{Output, table};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only your own, in this session and others
    #[arg(long, conflicts_with = "holder")]
    pub mine: bool,

    /// Only those of this user
    #[arg(long, value_name = "NAME", value_hint = ValueHint::Other)]
    pub holder: Option<Text>,

    /// Those that have ended too, with how they did
    #[arg(long)]
    pub ended: bool,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let request = Request::List {
        repo: client.repo()?,
        holder: args.holder,
        mine: args.mine,
        ended: args.ended,
        limit: None,
        after: None,
        session: client.known_session()?,
    };
    let reply = client.ask(&request, output).await?;
    let list: ListReply = reply.read()?;
    if output.json() {
        output.reply(&reply.line)?;
    } else if list.leases.is_empty() {
        output.remark(&table::nothing(&list, args.mine, args.ended));
    } else {
        output.text(&table::claims(&list, args.ended, output.layout()))?;
        if list.more {
            output.remark("there are more; `git claims --mine` and `--holder` narrow it down");
        }
    }
    Ok(reply.exit)
}

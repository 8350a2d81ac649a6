//! `git claim <id>`: take an issue, or extend one's own claim.

use std::time::Duration;

use clap::ValueHint;
use git_claim_api::duration::short;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Text, Token, Ttl};
use git_claim_api::reply::Status;
use git_claim_api::verb::{Request, Take};

use super::{answer, eviction};
use crate::args::{issue_id, ttl};
use crate::client::{Client, request_id};
use crate::completion::offer::Offer;
use crate::error::{Failure, Result};
use crate::noted;
use crate::output::{Output, people};
use crate::wait::{self, Waited};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id: `42`, `'#42'`, or at least 4 characters of a long one
    #[arg(value_parser = issue_id, add = Offer::Free, required_unless_present = "next")]
    pub id: Option<IssueId>,

    /// Take the first open issue that nobody holds
    #[arg(long, conflicts_with_all = ["id", "take_over"])]
    pub next: bool,

    /// How long the claim lives unless it is renewed: `300`, `90s`, `1h30m`, `2d`
    ///
    /// Without it the claim lasts until it is released: an assignment.
    #[arg(short, long, value_name = "DURATION", value_hint = ValueHint::Other, value_parser = ttl)]
    pub ttl: Option<Ttl>,

    /// A line for others to read
    #[arg(short = 'm', long, value_name = "TEXT", value_hint = ValueHint::Other)]
    pub note: Option<Text>,

    /// Wait while somebody else has it; with a duration, at most so long
    ///
    /// With --next: wait until there is something to take.
    #[arg(long, value_name = "DURATION", value_hint = ValueHint::Other, num_args = 0..=1, require_equals = true, value_parser = ttl, conflicts_with = "take_over")]
    pub wait: Option<Option<Ttl>>,

    /// Take the claim from whoever holds it, for a reason that they are told
    ///
    /// Your own claim in another session needs the right to claim; a claim of
    /// another name needs the right `admin` and --expected-token.
    #[arg(long, requires = "reason")]
    pub take_over: bool,

    /// Why; goes to the history, and to the one who loses the claim
    #[arg(long, value_name = "TEXT", value_hint = ValueHint::Other, requires = "take_over")]
    pub reason: Option<Text>,

    /// The token of the very tenure that is meant
    #[arg(long, value_name = "N", value_hint = ValueHint::Other, requires = "take_over")]
    pub expected_token: Option<Token>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let take = Take {
        ttl: args.ttl,
        session: Some(client.session()?),
        note: args.note,
        request: Some(request_id()?),
        take_over: eviction(
            "--take-over",
            args.take_over,
            args.reason,
            args.expected_token,
        )?,
        ..Take::default()
    };
    let took_over = take.take_over.is_some();
    let repo = client.repo()?;
    let request = match args.id {
        Some(issue) => Request::Acquire { repo, issue, take },
        None => Request::Next { repo, take },
    };
    let patience = args.wait.flatten();
    let waited = match args.wait {
        None => Waited {
            taken: client.take(&request, output).await?,
            in_vain: false,
        },
        Some(patience) => {
            let patience = patience.map(|ttl| Duration::from_secs(ttl.seconds()));
            wait::for_claim(client, &request, patience, output).await?
        }
    };
    let reply = waited.taken.reply;
    match reply.exit {
        Exit::Done => noted::held(client, &reply, output),
        _ => noted::told(client, &reply, output),
    }
    answer(
        &reply,
        Status::Acquired,
        people::Doing::Claim,
        output,
        |claim| people::claimed(claim, took_over),
    )
    .map_err(|failure| match patience {
        Some(time) if waited.in_vain => Failure {
            message: format!("{} (waited {})", failure.message, short(time.seconds())),
            ..failure
        },
        _ => failure,
    })
}

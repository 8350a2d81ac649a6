//! `git claim recover`: make one incomplete or orphaned record canonical again.

use std::path::PathBuf;

use clap::ValueHint;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Oid, Session};
use git_claim_api::reply::{ClaimReply, RefusalCode, Status, WhoamiReply};
use git_claim_api::text::escape;
use git_claim_api::verb::Request;

use crate::answer::Reply;
use crate::args::issue_id;
use crate::bound::journal::Journal;
use crate::bound::making::{make_worktree, store};
use crate::bound::place::{NoPlace, Place};
use crate::bound::push_option;
use crate::bound::quote::{addressed, without_hooks};
use crate::bound::recovery::{Looked, Target, Wanted};
use crate::bound::refused::Refused;
use crate::bound::repository::{HookFailed, Over, Repository};
use crate::bound::survey::Survey;
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::{Failure, Kind, Result};
use crate::interrupt;
use crate::output::{Output, people};
use crate::session;

/// Make the record of your bound claim sound again
///
/// Writes a lost copy anew, completes what an older server left incomplete,
/// takes a claim that ran out again for the same branch, or builds a worktree
/// that is gone. It takes nothing from anybody, and never moves the branch.
#[derive(Debug, clap::Args)]
#[command(override_usage = "git claim recover [OPTIONS] --expected-head <OID> <ID>")]
pub struct Args {
    /// The issue's id
    #[arg(value_parser = issue_id, add = Offer::Own)]
    pub id: IssueId,

    /// Where the branch must be, as a full object id
    #[arg(long, value_name = "OID", value_hint = ValueHint::Other)]
    pub expected_head: Oid,

    /// The worktree; built anew if it is gone
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub worktree: Option<PathBuf>,

    /// Say what would be done, and write nothing anywhere
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let present = Repository::of(client.git())?;
    let mut made = Made::default();
    let outcome = interrupt::or_stop(steps(&args, &present, &mut made, client, output)).await;
    // What may have been done on the server stays: the next try goes on with it.
    let is_unsure = |failure: &Failure| {
        made.is_asked && (failure.kind.is_not_now() || matches!(failure.kind, Kind::Interrupted(_)))
    };
    if let Err(failure) = &outcome
        && !made.is_granted
        && !is_unsure(failure)
    {
        for trouble in made.journal.undo(&present) {
            output.warning(&format!("this could not be undone: {trouble}"));
        }
    }
    outcome
}

/// What a call has made here, and how far the server was asked.
#[derive(Debug, Default)]
struct Made {
    journal: Journal,
    /// Kept until all is unmade.
    place: Option<Place>,
    is_asked: bool,
    /// The server has done its part, and says so to whoever asks again.
    is_granted: bool,
}

async fn steps(
    args: &Args,
    present: &Repository,
    made: &mut Made,
    client: &mut Client,
    output: &mut Output,
) -> Result<Exit> {
    // Two that recover in one repository do so one after the other.
    let _alone = match args.dry_run {
        true => None,
        false => Some(present.alone_to_recover().await?),
    };
    let whoami = who_asks(&args.id, client, output).await?;
    let wanted = Wanted {
        issue: args.id.clone(),
        head: args.expected_head.clone(),
        worktree: args.worktree.clone(),
    };
    let looked = Looked::take(wanted, present.clone(), client, output).await?;
    let session = looked.session(client)?;
    let would = looked.request(&session, true, client)?;
    let would = client.ask(&would, output).await?;
    let decision: ClaimReply = would.read()?;
    if let Some(refused) = looked.refused(&whoami, &decision) {
        return Err(refused.addressed(client.address()).into());
    }
    if args.dry_run {
        return say(&would, &decision, args, output);
    }
    let next = addressed(&looked.wanted.command(), client.address());
    let worktree = prepare(&looked, &session, made).await;
    let worktree = worktree.map_err(|error| {
        let (failure, next) = match error.downcast_ref::<NoPlace>() {
            Some(NoPlace::Busy(_)) => (Failure::not_now(error.to_string()), next.clone()),
            Some(NoPlace::Unmade { path, .. }) => {
                let next = looked.in_another_place(path);
                let next = addressed(&next, client.address());
                (Failure::error(error.to_string()), next)
            }
            None if error.is::<HookFailed>() => (Failure::from(error), without_hooks(&next)),
            None => (Failure::from(error), next.clone()),
        };
        failure.hint(format!("next: {}", escape(&next)))
    })?;
    let request = looked.request(&session, false, client)?;
    made.is_asked = true;
    let reply = client.ask(&request, output).await;
    let reply = reply.map_err(|failure| failure.hint(format!("next: {}", escape(&next))))?;
    let recovered: ClaimReply = reply.read()?;
    if recovered.status != Status::Recovered {
        return Err(looked
            .refused_by_server(&recovered)
            .addressed(client.address())
            .into());
    }
    made.is_granted = true;
    let stored = store(
        &worktree,
        client.remote(),
        &looked.wanted.issue,
        &recovered,
        &mut made.journal,
    );
    stored.map_err(|error| Failure::from(error).hint(format!("next: {}", escape(&next))))?;
    let survey = Survey::take(
        client,
        worktree.clone(),
        looked.wanted.issue.clone(),
        output,
    )
    .await?;
    let lock = survey.judge()?;
    let option = push_option::of(&lock);
    let alone = worktree.alone()?;
    if push_option::is_taken_everywhere(&client.git().config, client.remote(), &whoami) {
        push_option::set(&worktree, &option, &mut made.journal, &alone)?;
    } else {
        push_option::keep_true(&worktree, &option, &alone)?;
    }
    say(&reply, &recovered, args, output)
}

/// Whom the server takes the caller for.
async fn who_asks(
    issue: &IssueId,
    client: &mut Client,
    output: &mut Output,
) -> Result<WhoamiReply> {
    client.log_in_once()?;
    let here = Request::Whoami {
        repo: Some(client.repo()?),
    };
    let failure = match client.ask(&here, output).await {
        Ok(reply) => return reply.read(),
        Err(failure) => failure,
    };
    let is_refused = |failure: &Failure| failure.kind == Kind::Exit(Exit::Error);
    let anywhere = Request::Whoami { repo: None };
    // Who is somebody is told so, whatever they may see.
    if is_refused(&failure)
        && client
            .ask(&anywhere, output)
            .await
            .as_ref()
            .is_err_and(is_refused)
    {
        let next = "git claim whoami".to_owned();
        return Err(Refused::new(RefusalCode::IdentityUnresolved, issue, next)
            .addressed(client.address())
            .into());
    }
    Err(failure)
}

/// The worktree with the session, built if it is to be.
async fn prepare(
    looked: &Looked,
    session: &Session,
    made: &mut Made,
) -> anyhow::Result<Repository> {
    let journal = &mut made.journal;
    match (&looked.target, &looked.branch) {
        (Target::Build(path), Some(branch)) => {
            let place = made.place.insert(Place::take(path, journal)?);
            make_worktree(&looked.present, place, branch, Over::Gone, session, journal).await
        }
        (Target::There(worktree), _) => {
            made.place = Some(Place::take(&worktree.top, journal)?);
            if session::known(&worktree.git_dir)?.is_none() {
                journal.file(&session::file(&worktree.git_dir))?;
                session::replace(&worktree.git_dir, session)?;
            }
            Ok(worktree.clone())
        }
        (Target::Build(_) | Target::Invalid(_), _) => {
            anyhow::bail!("there is no worktree to recover")
        }
    }
}

fn say(reply: &Reply, recovered: &ClaimReply, args: &Args, output: &Output) -> Result<Exit> {
    if output.json() {
        output.reply(&reply.line)?;
    } else {
        output.sentence(&people::recovered(
            recovered,
            &args.expected_head,
            args.dry_run,
        ))?;
    }
    Ok(Exit::Done)
}

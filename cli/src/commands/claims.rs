//! `git claims`: who works on what.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use git_claim_api::exit::Exit;
use git_claim_api::ids::Text;
use git_claim_api::reply::{Lease, ListReply};
use git_claim_api::verb::Request;
use tokio::time::sleep;

use crate::answer::Reply;
use crate::client::Client;
use crate::clock::Moment;
use crate::commands::whoami;
use crate::completion::offer::Offer;
use crate::error::{Failure, Kind, Result};
use crate::noted;
use crate::output::{Output, records, table};
use crate::wait;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only your own, in this session and others
    #[arg(long, conflicts_with = "holder")]
    pub mine: bool,

    /// Only those of this user
    #[arg(long, value_name = "NAME", add = Offer::Holder)]
    pub holder: Option<Text>,

    /// Those that have ended, with how they did
    #[arg(long)]
    pub ended: bool,

    /// The open issues that nobody holds, the next to be taken first
    ///
    /// As many as the server looks at for one list; not where the tracker knows no
    /// order.
    #[arg(long, conflicts_with_all = ["mine", "holder", "ended", "nul", "watch"])]
    pub ready: bool,

    /// For scripts: one record a claim, ended by NUL
    ///
    /// Its fields are parted by TAB: the full id, holder, token, since when,
    /// until when, how it ended, title and note. Empty: there is none.
    #[arg(short = 'z', conflicts_with_all = ["json", "watch"])]
    pub nul: bool,

    /// Show them anew whenever they change, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

impl Args {
    /// Whether no live claim is left out.
    fn lists_all(&self) -> bool {
        !self.mine && self.holder.is_none()
    }
}

fn nothing(list: &ListReply, args: &Args) -> String {
    table::nothing(list, args.holder.as_ref(), args.mine, args.ended)
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let request = Request::List {
        repo: client.repo()?,
        holder: args.holder.clone(),
        mine: args.mine,
        ended: args.ended,
        limit: None,
        after: None,
        ready: args.ready,
        session: client.known_session()?,
    };
    if args.watch {
        client.keep_line()?;
    }
    let reply = match with_what_is_ready(&request, &args, client, output).await? {
        Some(reply) => reply,
        None => client.ask(&request, output).await?,
    };
    if args.ready && !output.json() && reply.read::<ListReply>()?.ready.is_none() {
        return Err(no_order(client, output).await);
    }
    if !args.watch {
        show(&reply, &args, client, output)?;
        return Ok(reply.exit);
    }
    tokio::select! {
        failure = watch(reply, &request, &args, client, output) => failure.map(|never| match never {}),
        // That is how one ends it.
        _ = tokio::signal::ctrl_c() => Ok(Exit::Done),
    }
}

/// The same list with what is ready to be claimed, for the completions of
/// whoever sits at the terminal. `None`: nobody does, or this server has no
/// answer to it.
async fn with_what_is_ready(
    request: &Request,
    args: &Args,
    client: &mut Client,
    output: &mut Output,
) -> Result<Option<Reply>> {
    let mut request = request.clone();
    let Request::List { ready, .. } = &mut request else {
        return Ok(None);
    };
    *ready = true;
    let is_plain = args.lists_all() && !args.ended && !args.ready && !args.nul && !args.watch;
    if !is_plain || !output.is_read_at_a_terminal() || !client.memory().wants_what_is_ready() {
        return Ok(None);
    }
    let asked = Instant::now();
    let (reply, has_told) = match client.ask(&request, output).await {
        // An older server refuses what it does not know.
        Err(failure) if failure.kind == Kind::Exit(Exit::Error) => (None, false),
        reply => {
            let reply = reply?;
            let has_told = reply.read::<ListReply>()?.ready.is_some();
            (Some(reply), has_told)
        }
    };
    let memory = client.memory();
    noted::seen(
        memory.has_asked_what_is_ready(asked.elapsed(), has_told),
        output,
    );
    Ok(reply)
}

/// Keeps a list for completions.
fn keep(list: &ListReply, args: &Args, client: &Client, output: &Output) {
    if !args.ended {
        let is_all = args.lists_all() && !list.more;
        noted::seen(client.memory().keep_list(list, is_all), output);
    }
}

fn show(reply: &Reply, args: &Args, client: &Client, output: &mut Output) -> Result<()> {
    let list: ListReply = reply.read()?;
    keep(&list, args, client, output);
    if output.json() {
        return output.reply(&reply.line);
    }
    if args.ready {
        return show_ready(&list, client, output);
    }
    if args.nul {
        output.text(&records::claims(&list))?;
    } else if list.leases.is_empty() {
        output.remark(&nothing(&list, args));
    } else {
        let table = table::claims(&list, args.ended, output.layout());
        output.long_text(&table, client.git())?;
    }
    if list.more {
        output.remark("there are more; `git claims --mine` and `--holder` narrow it down");
    }
    Ok(())
}

/// Why nothing is known to be ready: a repository without a tracker has no
/// issues to list, any other may have too many.
async fn no_order(client: &mut Client, output: &mut Output) -> Failure {
    let whoami = whoami::asked(client, output).await;
    let tracker = whoami.ok().and_then(|(whoami, _)| whoami.tracker);
    match tracker.as_deref() {
        Some("none") => Failure::error(
            "this repository has no issue tracker, so nobody knows which issues are open",
        )
        .hint("`git claim <id>` claims any id that you agree on"),
        _ => Failure::error(
            "the tracker does not say which issues are open, or not in so short a time",
        )
        .hint("`git claim whoami` shows which tracker it is; `git claim <id>` asks for one issue"),
    }
}

fn show_ready(list: &ListReply, client: &Client, output: &mut Output) -> Result<()> {
    let ready = list.ready.as_deref().unwrap_or_default();
    if ready.is_empty() {
        output.remark(&table::nothing_ready(list));
        return Ok(());
    }
    output.long_text(&table::ready(ready, output.layout()), client.git())
}

/// Shows the list again and again: on a terminal with what is left of each
/// claim, elsewhere only when a claim has begun, changed or ended.
async fn watch(
    mut reply: Reply,
    request: &Request,
    args: &Args,
    client: &mut Client,
    output: &mut Output,
) -> Result<Infallible> {
    let mut shown = None;
    let mut has_begun_to_watch = false;
    loop {
        let asked = Moment::now();
        let mut list: ListReply = reply.read()?;
        let claims = unchanging(&list);
        let is_new = shown.as_ref() != Some(&claims);
        if is_new {
            keep(&list, args, client, output);
        }
        if output.json() {
            if is_new {
                output.reply(&reply.line)?;
            }
        } else if is_new || (output.redraws() && !has_begun_to_watch) {
            redraw(&list, args, output)?;
        }
        shown = Some(claims);
        // As for whoever waits.
        has_begun_to_watch = !has_begun_to_watch && !client.watches() && client.watch().await;
        if !has_begun_to_watch {
            let again = asked + wait::pause(client);
            let mut drawn = asked;
            while !again.is_past() {
                let redraws = output.redraws() && !output.json();
                let pause = if redraws { TICK } else { Duration::MAX };
                if wait::changed_within(pause.min(again.left()), client, |_| true).await {
                    break;
                }
                if redraws {
                    let now = Moment::now();
                    grow_older(&mut list, drawn.until(now));
                    drawn = now;
                    redraw(&list, args, output)?;
                }
            }
        }
        reply = loop {
            match client.ask(request, output).await {
                Ok(reply) => break reply,
                Err(failure) if failure.kind.is_not_now() => {
                    output.progress(&format!("as it was; {}", failure.message));
                    sleep(wait::soon()).await;
                }
                Err(failure) => return Err(failure),
            }
        };
        output.end_of_progress();
    }
}

/// How often what is left of each claim is shown.
const TICK: Duration = Duration::from_secs(1);

fn redraw(list: &ListReply, args: &Args, output: &Output) -> Result<()> {
    let text = match list.leases.is_empty() {
        true => nothing(list, args) + "\n",
        false => table::claims(list, args.ended, output.layout()),
    };
    output.redraw(&text)
}

/// As it is after some time in which nobody has done anything.
fn grow_older(list: &mut ListReply, by: Duration) {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    for lease in &mut list.leases {
        if let Some(left) = &mut lease.claim.ttl_left_ms {
            *left = left.saturating_sub(by).max(0);
        }
    }
}

/// What does not change by itself as time goes by.
fn unchanging(list: &ListReply) -> Vec<Lease> {
    let mut leases = list.leases.clone();
    for lease in &mut leases {
        lease.claim.ttl_left_ms = None;
    }
    leases
}

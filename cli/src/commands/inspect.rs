//! `git claim inspect`: both records, the branch and the worktree, and what is
//! wrong. Strictly read-only.

use git_claim_api::exit::Exit;
use git_claim_api::ids::IssueId;
use git_claim_api::lock::{self, Reading};
use git_claim_api::reply::State;
use git_claim_api::text::escape;
use serde_json::{Value, json};

use crate::args::issue_id;
use crate::bound::refusal::{Refusal, flaws};
use crate::bound::repository::{Head, Repository};
use crate::bound::survey::{self, Survey, bound_worktree};
use crate::client::Client;
use crate::completion::offer::Offer;
use crate::error::{Kind, Result};
use crate::output::{Output, people};

/// Show a bound claim as it stands here and on the server
///
/// Both records, the branch, the worktree, what is missing or differs, and the
/// command that helps. Changes nothing, and works on records that nothing else
/// accepts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The issue's id; without it, the one that this worktree is bound to
    #[arg(value_parser = issue_id, add = Offer::Own)]
    pub id: Option<IssueId>,
}

pub async fn run(args: Args, client: &mut Client, output: &mut Output) -> Result<Exit> {
    let present = Repository::of(client.git())?;
    let mut survey = match args.id {
        Some(id) => Survey::take(client, present.clone(), id, output).await?,
        None => survey::bound(client, present.clone(), output).await?,
    };
    // A plain claim of this very worktree is not the one that a record elsewhere
    // was made of.
    let is_plain_here = survey.server.as_ref().is_ok_and(|shown| {
        shown.state == Some(State::Live) && shown.claim.mine && shown.claim.branch.is_none()
    });
    if survey.copy.is_none()
        && !is_plain_here
        && let Some(bound) = bound_worktree(&present, client.remote(), &survey.issue)?
    {
        survey = Survey::take(client, bound, survey.issue.clone(), output).await?;
    }
    if let (None, Err(failure)) = (&survey.copy, &survey.server)
        && failure.kind == Kind::Exit(Exit::Error)
    {
        // There is no such issue, or none to be seen: nothing to show of it.
        return Err(failure.clone());
    }
    let found = survey.judge().err();
    if output.json() {
        output.value(&as_json(&survey, found.as_ref()))?;
    } else {
        output.text(&told(&survey, found.as_ref()))?;
    }
    // What was asked for could only be had in part.
    match &survey.server {
        Ok(_) => Ok(Exit::Done),
        Err(failure) => match failure.kind {
            Kind::Exit(exit) => Ok(exit),
            kind if kind.is_not_now() => Ok(Exit::NotNow),
            _ => Err(failure.clone()),
        },
    }
}

fn as_json(survey: &Survey, found: Option<&Refusal>) -> Value {
    let branch = survey.branch();
    json!({
        "status": "inspected",
        "issue": survey.issue,
        "sound": found.is_none(),
        "reason_code": found.map(|refusal| refusal.reason),
        "message": found.map(|refusal| &refusal.message),
        "exact_next_action": found.map(|refusal| &refusal.next),
        "server": survey.server.as_ref().ok(),
        "server_error": survey.server.as_ref().err().map(|failure| &failure.message),
        "server_missing": survey.record().map(missing),
        "record": survey.copy,
        "record_missing": survey.copy.as_ref().map(missing),
        "branch": branch.as_ref().map(|branch| json!({
            "name": branch,
            "head": survey.worktree.tip(branch),
        })),
        "worktree": {
            "path": survey.worktree.top.to_string_lossy(),
            "registered": survey.is_registered,
            "branch": match &survey.head {
                Head::Branch(name) => Some(name),
                Head::Detached | Head::Bare => None,
            },
            "session": survey.session,
        },
    })
}

fn told(survey: &Survey, found: Option<&Refusal>) -> String {
    let server = match &survey.server {
        Ok(shown) => people::held_how(shown),
        Err(failure) => failure.message.clone(),
    };
    let record = |record: Option<&Value>| match record {
        None => "none".to_owned(),
        Some(record) => match missing(record).as_slice() {
            [] => "complete".to_owned(),
            missing => flaws(Some(record), missing),
        },
    };
    let branch = match survey.branch() {
        None => "not known".to_owned(),
        Some(branch) => match survey.worktree.tip(&branch) {
            Some(tip) => format!("{branch} at {tip}"),
            None => format!("{branch}, which is not here"),
        },
    };
    let head = match &survey.head {
        Head::Branch(name) => format!("on {}", escape(name)),
        Head::Detached => "HEAD is detached".to_owned(),
        Head::Bare => "bare".to_owned(),
    };
    let registered = match survey.is_registered {
        true => "",
        false => ", not registered",
    };
    let worktree = format!(
        "{}, {head}{registered}",
        escape(&survey.worktree.top.to_string_lossy())
    );
    let mut facts = vec![
        ("issue", survey.issue.to_string()),
        ("claim", server),
        ("server's record", record(survey.record())),
        ("record here", record(survey.copy.as_ref())),
        ("branch", branch),
        ("worktree", worktree),
    ];
    match found {
        None => facts.push(("all in all", "sound".to_owned())),
        Some(refusal) => {
            facts.push(("wrong", refusal.message.clone()));
            facts.push(("next", escape(&refusal.next)));
        }
    }
    facts
        .iter()
        .map(|(name, value)| format!("{name:<16} {value}\n"))
        .collect()
}

/// What a record lacks.
fn missing(record: &Value) -> Vec<String> {
    match lock::read(record) {
        Reading::Canonical(_) => Vec::new(),
        Reading::Incomplete { missing, .. } => missing,
    }
}

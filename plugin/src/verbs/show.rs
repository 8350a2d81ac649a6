//! `show`: the whole record of one issue, and what is missing from it.

use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::ids::{IssueId, Session};
use git_claim_api::reply::{ClaimReply, Status};

use crate::claim::Claim;
use crate::server::{Admitted, Answer, Failure};
use crate::verbs::{full_id, look_at};
use crate::view::Viewer;

pub fn run(
    admitted: &Admitted<'_>,
    typed: &IssueId,
    session: Option<&Session>,
) -> Result<Answer, Failure> {
    let issue = full_id(admitted, typed)?;
    let caller = admitted.caller(session);
    let claim = look_at(admitted, &issue)?;
    let is_bound = claim
        .tenure
        .as_ref()
        .is_some_and(|tenure| tenure.binding.is_some());
    let viewer = Viewer {
        caller: &caller,
        may_write: is_bound && admitted.may(Access::Write),
        now: admitted.call.time(),
    };
    let reply = ClaimReply {
        claim: viewer.recorded(&claim),
        state: Some(viewer.state(&claim)),
        missing: Some(missing(&claim)),
        ..viewer.reply(Status::Shown, &admitted.repo, &issue, &claim)
    };
    Answer::new(Exit::Done, &reply)
}

/// The fields that a complete record would have and this one has not, by their
/// paths in it.
fn missing(claim: &Claim) -> Vec<String> {
    let Some(tenure) = &claim.tenure else {
        return Vec::new();
    };
    let mut missing = Vec::new();
    let mut need = |path: &str, is_there: bool| {
        if !is_there {
            missing.push(path.to_owned());
        }
    };
    need("branch_name", tenure.binding.is_some());
    need("worktree_path", tenure.binding.is_some());
    need("work_lease.lease_id", tenure.lease_id.is_some());
    need("work_lease.claimant.profile", tenure.profile.is_some());
    need("work_lease.task_session_id", tenure.session.is_some());
    need("work_lease.expires_at", tenure.expires_at.is_some());
    need(
        "work_lease.last_heartbeat_at",
        tenure.heartbeat_at.is_some(),
    );
    missing
}

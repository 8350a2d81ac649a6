//! The canonical record of a bound claim (`git-claim/lock/1`), built here and
//! nowhere else. What a row does not say stays out of it, so that the one
//! reader, [`git_claim_api::lock::read`], names it as missing.

use git_claim_api::ids::IssueId;
use git_claim_api::lock::{CONTRACT, LIFECYCLE, Reading, org_and_repo, read};
use git_claim_api::time::rfc3339;
use serde_json::{Map, Value, json};

use super::{Claim, Tenure};

/// Where a record belongs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub ledger_id: &'a str,
    /// The repository's permanent id.
    pub repo: &'a str,
    pub issue: &'a IssueId,
}

/// The record of the tenure that `claim` names, be it live or not; `None` where
/// nobody holds it.
pub fn build(place: Place<'_>, claim: &Claim) -> Option<Value> {
    let tenure = claim.tenure.as_ref()?;
    let bound = tenure.binding.as_ref();
    let (org, repo) = org_and_repo(place.repo);
    let mut record = json!({
        "contract": CONTRACT,
        "remote": bound.map(|bound| &bound.remote),
        "org": org,
        "repo": repo,
        "issue_number": place.issue,
        "branch_name": bound.map(|bound| &bound.branch),
        "worktree_path": bound.map(|bound| &bound.worktree),
        "lock_generation": claim.generation,
        "lock_provenance": bound.map(|bound| json!({
            "source": bound.minted.source,
            "minted_by": bound.minted.by,
            "minted_at": rfc3339(bound.minted.at),
            "ledger_id": place.ledger_id,
        })),
        "work_lease": lease(claim.token, tenure),
    });
    if let (Some(recovery), Some(record)) = (&tenure.recovery, record.as_object_mut()) {
        record.insert("bootstrap_lock_recovery".to_owned(), json!(recovery));
    }
    Some(without_nulls(record))
}

/// What a complete record would have and the record of `claim` has not.
pub fn missing(place: Place<'_>, claim: &Claim) -> Vec<String> {
    match build(place, claim).as_ref().map(read) {
        None | Some(Reading::Canonical(_)) => Vec::new(),
        Some(Reading::Incomplete { missing, .. }) => missing,
    }
}

fn lease(token: u64, tenure: &Tenure) -> Value {
    // An older server's row has no heartbeat, and so no such life.
    let lifecycle = tenure.heartbeat_at.map(|_| LIFECYCLE);
    json!({
        "lease_id": tenure.lease_id,
        "token": token,
        "claimant": { "username": tenure.holder, "profile": tenure.profile },
        "task_session_id": tenure.session,
        "acquired_at": rfc3339(tenure.acquired_at),
        "expires_at": tenure.expires_at.and_then(rfc3339),
        "last_heartbeat_at": tenure.heartbeat_at.and_then(rfc3339),
        "heartbeat_count": tenure.heartbeat_count,
        "lifecycle_version": lifecycle,
    })
}

/// `value` without its null members, at every depth.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(key, member)| (key, without_nulls(member)))
            .collect::<Map<_, _>>()
            .into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn place(issue: &IssueId) -> Place<'_> {
        Place {
            ledger_id: "l",
            repo: "acme/app.git",
            issue,
        }
    }

    #[test]
    fn a_bound_claims_record_is_canonical() {
        let issue = "42".parse().unwrap();
        let claim = bound(claim_of(&caller("ann", "s"), 7, Some(60)));
        let record = build(place(&issue), &claim).unwrap();
        let Reading::Canonical(lock) = read(&record) else {
            panic!("{:?}", missing(place(&issue), &claim));
        };
        assert_eq!((lock.org.as_str(), lock.repo.as_str()), ("acme", "app"));
        assert_eq!(lock.work_lease.token.get(), 7);
        assert_eq!(lock.work_lease.claimant.profile, "SHA256:ann");
        assert_eq!(serde_json::to_value(&lock).unwrap(), record);
    }

    #[test]
    fn an_older_servers_row_names_what_it_lacks() {
        let issue = "42".parse().unwrap();
        let mut claim = claim_of(&caller("ann", "s"), 7, Some(60));
        let tenure = claim.tenure.as_mut().unwrap();
        (tenure.session, tenure.profile, tenure.lease_id) = (None, None, None);
        assert_eq!(
            missing(place(&issue), &claim),
            [
                "remote",
                "branch_name",
                "worktree_path",
                "lock_provenance.source",
                "lock_provenance.minted_by",
                "lock_provenance.minted_at",
                "lock_provenance.ledger_id",
                "work_lease.lease_id",
                "work_lease.claimant.profile",
                "work_lease.task_session_id",
                "work_lease.last_heartbeat_at",
                "work_lease.lifecycle_version",
            ]
        );
    }

    #[test]
    fn a_bound_claim_without_an_end_is_incomplete() {
        let issue = "42".parse().unwrap();
        let claim = bound(claim_of(&caller("ann", "s"), 7, None));
        assert_eq!(missing(place(&issue), &claim), ["work_lease.expires_at"]);
    }

    #[test]
    fn nobodys_claim_has_no_record() {
        let issue = "42".parse().unwrap();
        assert_eq!(build(place(&issue), &Claim::default()), None);
    }
}

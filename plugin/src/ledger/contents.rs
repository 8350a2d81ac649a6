//! All that a ledger holds, so that another one can hold it.

use git_claim_api::ids::IssueId;

use crate::claim::{Claim, Ended, Now};

/// The rows and the history of a ledger at one moment.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// The ledger's own id, which the records of bound claims name.
    pub id: String,
    /// When that was, by the ledger's time.
    pub at: i64,
    pub rows: Vec<(String, IssueId, Claim)>,
    /// In the order in which they ended.
    pub past: Vec<(String, IssueId, Ended)>,
}

impl Contents {
    /// The highest number in the order of tenures.
    pub fn last_seq(&self) -> u64 {
        let of_rows = self.rows.iter().filter_map(|(_, _, claim)| {
            let tenure = claim.tenure.as_ref()?;
            tenure.seq
        });
        let of_past = self.past.iter().filter_map(|(.., ended)| ended.tenure.seq);
        of_rows.chain(of_past).max().unwrap_or(0)
    }

    /// The same, where it is `now`: claims that live have as long to live as
    /// they had.
    pub fn moved_to(mut self, now: Now) -> Contents {
        let shift = now.floor() - self.at;
        for (_, _, claim) in &mut self.rows {
            if let Some(tenure) = &mut claim.tenure
                && let Some(end) = &mut tenure.expires_at
                && *end > self.at
            {
                *end += shift;
            }
        }
        self.at = now.floor();
        self
    }

    /// The first difference to what another ledger holds, if there is one. Time
    /// has passed in between: of claims with an end it counts that they have one.
    pub fn differs_from(&self, other: &Contents) -> Option<String> {
        let row = |(repo, issue, claim): &(String, IssueId, Claim)| {
            let mut claim = claim.clone();
            if let Some(tenure) = &mut claim.tenure {
                tenure.expires_at = tenure.expires_at.map(|_| 0);
                tenure.ttl = None;
            }
            (repo.clone(), issue.clone(), claim)
        };
        if self.id != other.id {
            return Some("the ledger's id".to_owned());
        }
        let sorted = |contents: &Contents| {
            let mut rows: Vec<_> = contents.rows.iter().map(row).collect();
            rows.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
            rows
        };
        let (ours, theirs) = (sorted(self), sorted(other));
        if let Some((repo, issue, _)) = first_difference(&ours, &theirs) {
            return Some(format!("the row of issue {issue} in {repo}"));
        }
        let sorted = |contents: &Contents| {
            let mut past = contents.past.clone();
            past.sort_by(|a, b| (&a.0, &a.1, a.2.token).cmp(&(&b.0, &b.1, b.2.token)));
            past
        };
        let (ours, theirs) = (sorted(self), sorted(other));
        let past = first_difference(&ours, &theirs);
        past.map(|(repo, issue, ended)| {
            format!("tenure {} of issue {issue} in {repo}", ended.token)
        })
    }
}

fn first_difference<'a, T: PartialEq>(a: &'a [T], b: &'a [T]) -> Option<&'a T> {
    let unequal = a.iter().zip(b).find(|(a, b)| a != b).map(|(a, _)| a);
    unequal
        .or_else(|| a.get(b.len()))
        .or_else(|| b.get(a.len()))
}

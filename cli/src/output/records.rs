//! `git claims -z`: records for programs that read lines rather than JSON.

use git_claim_api::reply::{Lease, ListReply};
use git_claim_api::text::escape;

/// One record a claim, ended by NUL, its fields parted by TAB: the full id,
/// holder, token, since when, until when, how it ended, title and note. What
/// there is not is empty; times are as in JSON.
pub fn claims(list: &ListReply) -> String {
    list.leases.iter().map(record).collect()
}

fn record(lease: &Lease) -> String {
    let claim = &lease.claim;
    let text = |text: &Option<String>| text.as_deref().map(escape).unwrap_or_default();
    let ended = lease.ended.as_ref();
    let fields = [
        escape(&lease.issue),
        text(&claim.holder),
        claim.token.to_string(),
        text(&claim.acquired_at),
        text(&claim.expires_at),
        ended.map_or("", |ended| ended.how.name()).to_owned(),
        text(&claim.title),
        text(&claim.note),
    ];
    fields.join("\t") + "\0"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_field_parts_it() {
        let list: ListReply = serde_json::from_value(serde_json::json!({
            "repo": "r.git", "now": "2026-09-05T12:00:00Z", "more": false,
            "leases": [
                {
                    "issue": "42", "holder": "ann", "token": 7,
                    "acquired_at": "2026-09-05T11:00:00Z", "expires_at": null,
                    "title": "a\tb\nc\u{0}", "note": "\u{1b}[2J",
                },
                {
                    "issue": "43", "holder": "bob", "token": 1, "expires_at": null,
                    "how": "expired", "ended_at": "2026-09-05T11:30:00Z",
                },
            ],
        }))
        .unwrap();
        assert_eq!(
            claims(&list),
            "42\tann\t7\t2026-09-05T11:00:00Z\t\t\ta\\u0009b\\u000ac\\u0000\t\\u001b[2J\0\
             43\tbob\t1\t\t\texpired\t\t\0"
        );
    }
}

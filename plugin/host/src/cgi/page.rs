//! The pages as HTML, which `maud` escapes. They work without a script, and say
//! in words what a colour says.

use git_claim_api::ids::short_id;
use git_claim_api::query::{ClaimHistoryReply, ClaimsReply, HeldIssue, IssueState, Listing};
use git_claim_api::reply::{Claim, End, Ending, PastTenure};
use git_claim_api::text::escape;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::address::Address;
use super::moment::Moment;

/// The style that every page carries.
pub const STYLE: &str = include_str!("style.css");

/// The open issues of a repository: what is held, and what is free.
pub fn repository(address: &Address<'_>, reply: &ClaimsReply) -> String {
    let now = Moment::of(Some(&reply.now));
    let (held, free): (Vec<&HeldIssue>, Vec<&HeldIssue>) =
        reply.issues.iter().partition(|issue| issue.claim.is_some());
    let body = html! {
        header {
            h1 { (text(&reply.repo)) }
            p.soft { (held.len()) @if reply.more { "+" } " claimed, " (free_count(reply, free.len())) }
        }
        main {
            h2 { "Claimed " span.count { (held.len()) @if reply.more { "+" } } }
            @if held.is_empty() { p.soft { "Nobody holds an issue." } } @else {
                ol {
                    @for issue in &held { li.held {
                        (heading(address, issue))
                        @if let Some(claim) = &issue.claim { (holder(claim, now)) }
                    } }
                }
            }
            h2 { "Free " span.count { (free.len()) @if reply.listing == Listing::Some { "+" } } }
            @if !free.is_empty() {
                ol { @for issue in &free { li.free { (heading(address, issue)) } } }
            }
            @match reply.listing {
                Listing::All => { @if free.is_empty() { p.soft { "No open issue is free." } } }
                Listing::Some => { p.soft { "There are more open issues than these." } }
                Listing::None => { p.soft {
                    "The tracker of this repository can't be listed here. An issue that is not above is free to claim by its id."
                } }
            }
        }
        (footer(now, html! { "Take one with " code { "git claim ID" } ". " }))
    };
    document(&reply.repo, &body)
}

fn free_count(reply: &ClaimsReply, free: usize) -> String {
    match reply.listing {
        Listing::All => format!("{free} free"),
        Listing::Some => format!("{free}+ free"),
        Listing::None => "free ones not listed".to_owned(),
    }
}

/// One issue, who holds it, and who did before.
pub fn issue(address: &Address<'_>, reply: &ClaimHistoryReply) -> String {
    let now = Moment::of(Some(&reply.now));
    let issue = &reply.issue;
    let title = issue.title.as_deref().unwrap_or(&issue.issue);
    let body = html! {
        header {
            p { a href=(address.to_repository()) { (text(&reply.repo)) } }
            h1 { (text(title)) }
            p { code { (text(&issue.issue)) } (closed(issue)) }
        }
        main {
            @if let Some(claim) = &issue.claim {
                div.card.held { (holder(claim, now)) }
            } @else if issue.state == Some(IssueState::Closed) {
                div.card { p { "Closed, and nobody holds it." } }
            } @else {
                div.card.free {
                    p { span.none { "Free" } ": nobody holds it." }
                    p.soft { "Take it with " code { "git claim " (short_id(&issue.issue)) } }
                }
            }
            h2 { "History " span.count { (reply.tenures.len()) @if reply.more { "+" } } }
            @if reply.tenures.is_empty() { p.soft { "Nobody has held it yet." } } @else {
                ol { @for tenure in &reply.tenures { li { (past(tenure, now)) } } }
            }
            @if reply.more { p.soft { "There are older ones; " code { "git claim log" } " has them." } }
        }
        (footer(now, html! {}))
    };
    document(title, &body)
}

/// A page that only says something; it repeats nothing of a request.
pub fn message(title: &str, sentence: &str) -> String {
    document(
        title,
        &html! { main { h1 { (title) } p.soft { (sentence) } } },
    )
}

fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (text(title)) " - claims" }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

fn footer(now: Option<Moment>, advice: Markup) -> Markup {
    html! {
        footer { p {
            (advice)
            @if let Some(now) = now { "As of " (time(now)) ". " }
            "Times are UTC."
        } }
    }
}

/// Text from outside; what could turn the line around is shown as a code.
fn text(text: &str) -> String {
    escape(text)
}

fn time(moment: Moment) -> Markup {
    html! { time datetime=(moment.exact()) { (moment.shown()) } }
}

/// A time, and how far away it is.
fn distance(moment: Moment, now: Option<Moment>) -> Markup {
    html! {
        (time(moment))
        @if let Some(now) = now { " " span.soft { "(" (moment.from(now)) ")" } }
    }
}

fn closed(issue: &HeldIssue) -> Markup {
    html! { @if issue.state == Some(IssueState::Closed) { " " span.tag { "closed" } } }
}

/// An issue's title, as a link to its page, and its id.
fn heading(address: &Address<'_>, issue: &HeldIssue) -> Markup {
    let id = short_id(&issue.issue);
    let title = issue.title.as_deref().unwrap_or(id);
    html! {
        p {
            a.title href=(address.to_issue(&issue.issue)) { (text(title)) } " "
            @if issue.title.is_some() { code { (text(id)) } }
            (closed(issue))
        }
    }
}

/// Who holds an issue, since and until when, and what they say of it.
fn holder(claim: &Claim, now: Option<Moment>) -> Markup {
    html! {
        p {
            @if let Some(holder) = &claim.holder { span.who { (text(holder)) } }
            @if claim.same_principal { " " span.tag { "you" } }
            @if let Some(since) = Moment::of(claim.acquired_at.as_deref()) {
                " since " (distance(since, now))
            }
        }
        @match Moment::of(claim.expires_at.as_deref()) {
            Some(end) => { p { "until " (distance(end, now)) } }
            None => { p { "until it is released" } }
        }
        (work(claim.note.as_deref(), claim.branch.as_deref(), claim.session.as_deref()))
    }
}

/// What the holder says of the work, and where it happens.
fn work(note: Option<&str>, branch: Option<&str>, session: Option<&str>) -> Markup {
    html! {
        @if let Some(note) = note { p.note { (text(note)) } }
        @if branch.is_some() || session.is_some() {
            p.soft {
                @if let Some(branch) = branch { "branch " code { (text(branch)) } " " }
                @if let Some(session) = session { "session " code { (text(session)) } }
            }
        }
    }
}

/// One tenure of an issue's history.
fn past(tenure: &PastTenure, now: Option<Moment>) -> Markup {
    html! {
        p {
            code { "#" (tenure.token) } " " span.title { (text(&tenure.holder)) }
            @if tenure.ended.is_none() { " " span.tag { "now" } }
        }
        p.soft {
            @if let Some(since) = Moment::of(tenure.acquired_at.as_deref()) { "from " (time(since)) " " }
            @match &tenure.ended {
                Some(ended) => { (ending(ended, now)) }
                None => { @match Moment::of(tenure.expires_at.as_deref()) {
                    Some(end) => { "until " (distance(end, now)) }
                    None => { "until it is released" }
                } }
            }
        }
        (work(tenure.note.as_deref(), tenure.branch.as_deref(), tenure.session.as_deref()))
    }
}

/// How a tenure ended.
fn ending(ended: &Ending, now: Option<Moment>) -> Markup {
    let how = match ended.how {
        End::Expired => "ran out",
        End::Released => "given back",
        End::Forced => "ended",
        End::TakenOver => "taken over",
        End::Closed => "ended as the issue was closed",
        End::Merged => "ended as the branch was merged",
        End::Recovered => "recovered",
    };
    html! {
        @if let Some(end) = Moment::of(ended.ended_at.as_deref()) { "to " (distance(end, now)) ", " }
        (how)
        @if let Some(by) = &ended.by { " by " (text(by)) }
        @if let Some(why) = &ended.why { ": " (text(why)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>\" onload='x' &amp; \u{202e}gnp";

    fn address() -> Address<'static> {
        Address {
            repo: "acme/app.git",
            issue: None,
        }
    }

    fn claim() -> Claim {
        Claim {
            holder: Some(HOSTILE.to_owned()),
            session: Some(HOSTILE.to_owned()),
            acquired_at: Some("2026-09-05T10:00:00Z".to_owned()),
            expires_at: Some("2026-09-05T12:30:00Z".to_owned()),
            note: Some(HOSTILE.to_owned()),
            branch: Some(HOSTILE.to_owned()),
            ..Claim::default()
        }
    }

    fn held(issue: &str, claim: Option<Claim>) -> HeldIssue {
        HeldIssue {
            issue: issue.to_owned(),
            title: Some(format!("{issue} {HOSTILE}")),
            state: Some(IssueState::Open),
            claim,
        }
    }

    fn claims(issues: Vec<HeldIssue>, listing: Listing) -> String {
        let reply = ClaimsReply {
            repo: HOSTILE.to_owned(),
            issues,
            listing,
            more: false,
            now: "2026-09-05T12:00:00Z".to_owned(),
        };
        repository(&address(), &reply)
    }

    fn history(claim: Option<Claim>, state: Option<IssueState>) -> String {
        let ended = Ending {
            ended_at: Some("2026-09-05T09:00:00Z".to_owned()),
            how: End::Forced,
            by: Some(HOSTILE.to_owned()),
            why: Some(HOSTILE.to_owned()),
        };
        let tenure = PastTenure {
            issue: "42".to_owned(),
            token: 1,
            holder: HOSTILE.to_owned(),
            session: Some(HOSTILE.to_owned()),
            acquired_at: Some("2026-09-05T08:00:00Z".to_owned()),
            expires_at: None,
            note: Some(HOSTILE.to_owned()),
            branch: Some(HOSTILE.to_owned()),
            ended: Some(ended),
        };
        let reply = ClaimHistoryReply {
            repo: HOSTILE.to_owned(),
            issue: HeldIssue {
                state,
                ..held("42", claim)
            },
            tenures: vec![tenure],
            more: true,
            now: "2026-09-05T12:00:00Z".to_owned(),
        };
        issue(&address(), &reply)
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        for page in [
            claims(
                vec![held("1", Some(claim())), held("2", None)],
                Listing::All,
            ),
            history(Some(claim()), None),
            history(None, Some(IssueState::Closed)),
        ] {
            assert!(!page.contains("<script"), "{page}");
            assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"));
            assert!(page.contains("&amp;amp;"), "{page}");
            assert!(!page.contains('\u{202e}') && page.contains("\\u202egnp"));
        }
    }

    #[test]
    fn what_is_held_comes_first_with_since_and_until() {
        let page = claims(
            vec![held("1", None), held("2", Some(claim()))],
            Listing::All,
        );
        let at = |what: &str| {
            page.find(what)
                .unwrap_or_else(|| panic!("no {what} in {page}"))
        };
        assert!(at("Claimed ") < at("./app.git/2\"") && at("./app.git/2\"") < at("Free "));
        assert!(at("Free ") < at("./app.git/1\""));
        at(
            "since <time datetime=\"2026-09-05T10:00:00Z\">2026-09-05 10:00</time> <span class=\"soft\">(2h ago)",
        );
        at(
            "until <time datetime=\"2026-09-05T12:30:00Z\">2026-09-05 12:30</time> <span class=\"soft\">(in 30m)",
        );
    }

    #[test]
    fn what_the_page_does_not_know_it_says() {
        for (listing, sentence) in [
            (Listing::All, "No open issue is free."),
            (Listing::Some, "There are more open issues than these."),
            (Listing::None, "can't be listed here"),
        ] {
            assert!(
                claims(Vec::new(), listing).contains(sentence),
                "{listing:?}"
            );
        }
        assert!(history(None, Some(IssueState::Open)).contains("git claim 42"));
        let closed = history(None, Some(IssueState::Closed));
        assert!(!closed.contains("git claim 42") && closed.contains(">closed<"));
    }

    #[test]
    fn long_ids_are_shown_short() {
        let id = "ae1c051b-e411-4fe3-9f28-157f2d8dccc0";
        let page = claims(vec![held(id, None)], Listing::All);
        assert!(page.contains("<code>ae1c051b</code>"), "{page}");
        assert!(page.contains(&format!("./app.git/{id}\"")));
    }
}

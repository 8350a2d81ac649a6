//! Tables that fit the terminal: what is too wide for it is cut, in columns of
//! the screen and not in bytes.

use git_claim_api::ids::{IssueId, Text};
use git_claim_api::reply::{Claim, Ending, Lease, ListReply, LogReply, ReadyIssue};
use git_claim_api::text::escape;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::Layout;
use super::people::short_id;
use super::time::{left, moment};

struct Column {
    heading: &'static str,
    /// The least it may be cut to; `None`: it is never cut.
    least: Option<usize>,
    /// The higher, the sooner it is left out where not even the least of all
    /// fits; 0: never.
    spare: u8,
}

impl Column {
    /// The same, to be left out before those that are less spare.
    const fn spare(mut self, spare: u8) -> Column {
        self.spare = spare;
        self
    }
}

const fn whole(heading: &'static str) -> Column {
    Column {
        heading,
        least: None,
        spare: 0,
    }
}

const fn cut(heading: &'static str, least: usize) -> Column {
    Column {
        heading,
        least: Some(least),
        spare: 0,
    }
}

/// A row, and whether it is one's own.
struct Row {
    cells: Vec<String>,
    own: bool,
}

/// The live claims, and with `ended` the others.
pub fn claims(list: &ListReply, ended: bool, layout: Layout) -> String {
    let columns = [
        whole(""),
        whole("ISSUE"),
        cut("TITLE", 10).spare(3),
        cut("HOLDER", 8).spare(1),
        whole("SINCE").spare(4),
        whole(if ended { "UNTIL / ENDED" } else { "UNTIL" }).spare(2),
        cut("NOTE", 8).spare(5),
    ];
    let rows = list.leases.iter().map(|lease| Row {
        cells: vec![
            mark(&lease.claim).to_owned(),
            short_id(&lease.issue),
            title(lease),
            lease
                .claim
                .holder
                .as_deref()
                .map_or_else(|| "-".to_owned(), escape),
            at(lease.claim.acquired_at.as_deref(), &list.now),
            match &lease.ended {
                Some(ending) => ended_how(ending, &list.now),
                None => until(&lease.claim, &list.now),
            },
            lease.claim.note.as_deref().map(escape).unwrap_or_default(),
        ],
        own: lease.claim.mine,
    });
    table(&columns, &rows.collect::<Vec<_>>(), layout)
}

/// The issues that are free.
pub fn ready(ready: &[ReadyIssue], layout: Layout) -> String {
    let columns = [whole("ISSUE"), cut("TITLE", 10)];
    let rows = ready.iter().map(|issue| Row {
        cells: vec![
            short_id(&issue.issue),
            issue.title.as_deref().map(escape).unwrap_or_default(),
        ],
        own: false,
    });
    table(&columns, &rows.collect::<Vec<_>>(), layout)
}

/// No issue is free.
pub fn nothing_ready(list: &ListReply) -> String {
    format!("nothing is left to take in {}", escape(&list.repo))
}

/// Every tenure.
pub fn history(log: &LogReply, layout: Layout) -> String {
    let columns = [
        whole("ISSUE"),
        whole("TOKEN"),
        cut("HOLDER", 8).spare(1),
        whole("FROM").spare(3),
        cut("ENDED", 16).spare(2),
        cut("NOTE", 8).spare(4),
    ];
    let rows = log.tenures.iter().map(|tenure| Row {
        cells: vec![
            short_id(&tenure.issue),
            tenure.token.to_string(),
            escape(&tenure.holder),
            at(tenure.acquired_at.as_deref(), &log.now),
            match (&tenure.ended, &tenure.expires_at) {
                (Some(ending), _) => ended_how(ending, &log.now),
                (None, Some(end)) => format!("lives until {}", moment(end, &log.now)),
                (None, None) => "lives".to_owned(),
            },
            tenure.note.as_deref().map(escape).unwrap_or_default(),
        ],
        own: false,
    });
    table(&columns, &rows.collect::<Vec<_>>(), layout)
}

/// There is nothing to list.
pub fn nothing(list: &ListReply, holder: Option<&Text>, mine: bool, ended: bool) -> String {
    let repo = escape(&list.repo);
    let whose = match holder {
        Some(holder) => format!(" by {}", escape(holder.as_str())),
        None if mine => " by you".to_owned(),
        None => String::new(),
    };
    match ended {
        true => format!("no claim{whose} has ended in {repo}"),
        false => format!("nothing is claimed{whose} in {repo}"),
    }
}

/// There is no history of what was asked for.
pub fn no_history(log: &LogReply, issue: &IssueId) -> String {
    format!("{issue} was never claimed in {}", escape(&log.repo))
}

/// `*` this worktree's own, `+` one's own elsewhere.
fn mark(claim: &Claim) -> &'static str {
    match (claim.mine, claim.same_principal) {
        (true, _) => "*",
        (false, true) => "+",
        (false, false) => "",
    }
}

fn title(lease: &Lease) -> String {
    let title = lease.claim.title.as_deref().map(escape).unwrap_or_default();
    match lease.claim.issue_state.as_deref() {
        Some("closed") => format!("(closed) {title}"),
        _ => title,
    }
}

fn at(time: Option<&str>, now: &str) -> String {
    time.map_or_else(|| "-".to_owned(), |time| moment(time, now))
}

fn until(claim: &Claim, now: &str) -> String {
    let Some(end) = &claim.expires_at else {
        return "released".to_owned();
    };
    match claim.ttl_left_ms {
        Some(milliseconds) => format!("{} ({})", moment(end, now), left(milliseconds)),
        None => moment(end, now),
    }
}

fn ended_how(ending: &Ending, now: &str) -> String {
    let mut text = format!(
        "{} {}",
        ending.how.name(),
        at(ending.ended_at.as_deref(), now)
    );
    if let Some(by) = &ending.by {
        text.push_str(&format!(" by {}", escape(by)));
    }
    if let Some(why) = &ending.why {
        text.push_str(&format!(": {}", escape(why)));
    }
    text
}

/// The most that a cell is filled up to where nothing is cut.
const WIDEST: usize = 50;

fn table(columns: &[Column], rows: &[Row], layout: Layout) -> String {
    // A column with nothing in it is left out.
    let mut shown: Vec<usize> = (0..columns.len())
        .filter(|&at| rows.iter().any(|row| !row.cells[at].is_empty()))
        .collect();
    let wanted = |at: usize| {
        let cells = rows.iter().map(|row| row.cells[at].width());
        cells.max().unwrap_or(0).max(columns[at].heading.width())
    };
    if let Some(width) = layout.width {
        leave_out(&mut shown, columns, wanted, width);
    }
    let mut widths: Vec<usize> = shown.iter().map(|&at| wanted(at)).collect();
    match layout.width {
        Some(width) => {
            let least: Vec<Option<usize>> = shown.iter().map(|&at| columns[at].least).collect();
            shrink(&mut widths, &least, width);
        }
        None => widths
            .iter_mut()
            .for_each(|width| *width = (*width).min(WIDEST)),
    }
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| {
            match layout.width {
                // Nothing is cut, and what is longer makes no other line longer.
                None if cell.width() > *width => (*cell).to_owned(),
                _ => fit(cell, *width),
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end();
        match layout.width {
            Some(width) if line.width() > width => fit(line, width),
            _ => line.to_owned(),
        }
    };
    let heading = line(shown.iter().map(|&at| columns[at].heading).collect());
    let mut out = layout.style.heading(&heading) + "\n";
    for row in rows {
        let text = line(shown.iter().map(|&at| row.cells[at].as_str()).collect());
        out.push_str(&match row.own {
            true => layout.style.own(&text),
            false => text,
        });
        out.push('\n');
    }
    out
}

/// Leaves out what can be spared until the least of each column fits.
fn leave_out(
    shown: &mut Vec<usize>,
    columns: &[Column],
    wanted: impl Fn(usize) -> usize,
    width: usize,
) {
    let least = |at: usize| columns[at].least.unwrap_or(usize::MAX).min(wanted(at));
    loop {
        let gaps = 2 * shown.len().saturating_sub(1);
        let total = shown.iter().map(|&at| least(at)).sum::<usize>() + gaps;
        let sparest = (0..shown.len())
            .filter(|&at| columns[shown[at]].spare > 0)
            .max_by_key(|&at| columns[shown[at]].spare);
        match sparest {
            Some(at) if total > width => shown.remove(at),
            _ => return,
        };
    }
}

/// Takes from the widest column that may be cut until all fit, or none may be
/// cut any more.
fn shrink(widths: &mut [usize], least: &[Option<usize>], width: usize) {
    let gaps = 2 * widths.len().saturating_sub(1);
    loop {
        let total: usize = widths.iter().sum::<usize>() + gaps;
        let Some(over) = total.checked_sub(width).filter(|over| *over > 0) else {
            return;
        };
        let widest = (0..widths.len())
            .filter(|&at| least[at].is_some_and(|least| widths[at] > least))
            .max_by_key(|&at| widths[at]);
        let Some(at) = widest else { return };
        let least = least[at].unwrap_or(0);
        // Down to the next widest one at most, so that they share the loss.
        let next = (0..widths.len())
            .filter(|&other| widths[other] < widths[at])
            .map(|other| widths[other])
            .max()
            .unwrap_or(0);
        let room = widths[at] - least.max(next);
        widths[at] -= over.min(room.max(1));
    }
}

/// `text` in exactly `width` columns.
pub fn fit(text: &str, width: usize) -> String {
    let has = text.width();
    if has <= width {
        return format!("{text}{}", " ".repeat(width - has));
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push('…');
    out.push_str(&" ".repeat(width.saturating_sub(used + 1)));
    out
}

#[cfg(test)]
mod tests {
    use super::super::style::Style;
    use super::*;

    const NOW: &str = "2026-09-05T12:00:00Z";

    fn list(titles: &[&str]) -> ListReply {
        let leases = titles.iter().enumerate().map(|(at, title)| Lease {
            issue: (at + 1).to_string(),
            claim: Claim {
                holder: Some("ann".into()),
                mine: at == 0,
                same_principal: at <= 1,
                acquired_at: Some(NOW.into()),
                title: Some((*title).into()),
                ..Claim::default()
            },
            ended: None,
        });
        ListReply {
            leases: leases.collect(),
            repo: "r.git".into(),
            now: NOW.into(),
            more: false,
            ready: None,
        }
    }

    fn shown(list: &ListReply, width: Option<usize>) -> String {
        let layout = Layout {
            width,
            style: Style::PLAIN,
        };
        claims(list, false, layout)
    }

    #[test]
    fn own_rows_are_marked_and_empty_columns_left_out() {
        let text = shown(&list(&["one", "two", "three"]), None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("   ISSUE  TITLE  HOLDER  SINCE"),
            "{text}"
        );
        assert!(!lines[0].contains("NOTE"), "{text}");
        assert!(lines[1].starts_with("*  1      one"), "{text}");
        assert!(lines[2].starts_with("+  2      two"), "{text}");
        assert!(lines[3].starts_with("   3      three"), "{text}");
        assert!(lines[1].ends_with("released"), "{text}");
    }

    #[test]
    fn one_long_title_makes_no_other_line_long_and_is_whole_in_a_pipe() {
        let long = "a".repeat(500);
        let text = shown(&list(&["one", &long]), None);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains(&long), "{text}");
        assert!(lines[0].len() < 100 && lines[1].len() < 100, "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let wide = "漢字".repeat(40);
        let long = "a".repeat(200);
        for width in [60, 80, 100] {
            let text = shown(&list(&[&wide, &long, "x"]), Some(width));
            for line in text.lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
            assert!(text.contains('…'), "{text}");
        }
        assert!(
            shown(&list(&[&long]), None).contains(&long),
            "a pipe gets it all"
        );
    }

    #[test]
    fn what_can_be_spared_is_left_out_of_a_narrow_terminal() {
        let mut list = list(&["Crash on empty input"]);
        list.leases[0].claim.note = Some("looking into it".into());
        list.leases[0].issue = "ae1c051b-e411-4fe3-9f28-157f2d8dccc0".into();
        for (width, there, gone) in [
            (
                60,
                &["TITLE", "HOLDER", "SINCE", "UNTIL", "NOTE"][..],
                &[][..],
            ),
            (48, &["TITLE", "HOLDER", "SINCE", "UNTIL"], &["NOTE"]),
            (44, &["TITLE", "HOLDER", "UNTIL"], &["SINCE", "NOTE"]),
            (30, &["HOLDER", "UNTIL"], &["TITLE", "SINCE", "NOTE"]),
            (20, &["HOLDER"], &["TITLE", "SINCE", "UNTIL", "NOTE"]),
            (12, &["ISSUE"], &["HOLDER"]),
            (5, &[], &["HOLDER"]),
            (1, &[], &[]),
        ] {
            let text = shown(&list, Some(width));
            for line in text.lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
            let heading = text.lines().next().unwrap();
            assert!(
                there.iter().all(|name| heading.contains(name)),
                "{width}: {text}"
            );
            assert!(
                !gone.iter().any(|name| heading.contains(name)),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn cells_are_cut_by_columns_of_the_screen() {
        for (text, width, cell) in [
            ("abc", 5, "abc  "),
            ("abcdef", 4, "abc…"),
            ("漢字漢", 4, "漢… "),
            ("漢字", 4, "漢字"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
        ] {
            assert_eq!(fit(text, width), cell, "{text}");
        }
    }

    #[test]
    fn what_a_server_sent_is_escaped() {
        let text = shown(&list(&["\x1b[2J"]), None);
        assert!(
            text.contains("\\u001b[2J") && !text.contains('\x1b'),
            "{text}"
        );
    }
}

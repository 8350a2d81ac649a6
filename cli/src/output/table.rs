//! Tables that fit the terminal: what is too wide for it is cut, in columns of
//! the screen and not in bytes.

use git_claim_api::reply::{Claim, Ending, Lease, ListReply, LogReply};
use git_claim_api::text::escape;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::Layout;
use super::people::short_id;
use super::time::{left, moment};

/// A column: its heading, and the least it may be cut to; `None`: it is never
/// cut.
struct Column {
    heading: &'static str,
    least: Option<usize>,
}

const fn whole(heading: &'static str) -> Column {
    Column {
        heading,
        least: None,
    }
}

const fn cut(heading: &'static str, least: usize) -> Column {
    Column {
        heading,
        least: Some(least),
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
        cut("TITLE", 10),
        cut("HOLDER", 8),
        whole("SINCE"),
        whole(if ended { "UNTIL / ENDED" } else { "UNTIL" }),
        cut("NOTE", 8),
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

/// Every tenure.
pub fn history(log: &LogReply, layout: Layout) -> String {
    let columns = [
        whole("ISSUE"),
        whole("TOKEN"),
        cut("HOLDER", 8),
        whole("FROM"),
        cut("ENDED", 16),
        cut("NOTE", 8),
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
pub fn nothing(list: &ListReply, mine: bool, ended: bool) -> String {
    let repo = escape(&list.repo);
    match (mine, ended) {
        (true, _) => format!("you have claimed nothing in {repo}"),
        (false, true) => format!("nothing was ever claimed in {repo}"),
        (false, false) => format!("nothing is claimed in {repo}"),
    }
}

/// There is no history.
pub fn no_history(log: &LogReply) -> String {
    format!("it was never claimed in {}", escape(&log.repo))
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

fn table(columns: &[Column], rows: &[Row], layout: Layout) -> String {
    // A column with nothing in it is left out.
    let shown: Vec<usize> = (0..columns.len())
        .filter(|&at| rows.iter().any(|row| !row.cells[at].is_empty()))
        .collect();
    let mut widths: Vec<usize> = shown
        .iter()
        .map(|&at| {
            let cells = rows.iter().map(|row| row.cells[at].width());
            cells.max().unwrap_or(0).max(columns[at].heading.width())
        })
        .collect();
    if let Some(width) = layout.width {
        let least: Vec<Option<usize>> = shown.iter().map(|&at| columns[at].least).collect();
        shrink(&mut widths, &least, width);
    }
    let line = |cells: Vec<&str>| {
        let cells = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| fit(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
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
fn fit(text: &str, width: usize) -> String {
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

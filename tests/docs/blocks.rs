//! Texts by hand, with blocks in them that the code knows better. A block stands
//! between two comments, `from the code: NAME` and `end`.

/// How a kind of text writes a comment.
#[derive(Clone, Copy)]
pub struct Comment {
    begin: &'static str,
    end: &'static str,
}

pub const ROFF: Comment = Comment {
    begin: ".\\\" ",
    end: "",
};

pub const MARKDOWN: Comment = Comment {
    begin: "<!-- ",
    end: " -->",
};

/// `text` with each block written anew; `block` answers what is in the one of
/// a name.
pub fn filled(text: &str, comment: Comment, block: impl Fn(&str) -> String) -> String {
    let said = |line: &'_ str| -> Option<String> {
        let inner = line.strip_prefix(comment.begin)?;
        inner.strip_suffix(comment.end).map(str::to_owned)
    };
    let mut filled = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        filled.push_str(line);
        filled.push('\n');
        let comment = said(line);
        let Some(name) = comment.as_deref().and_then(|c| c.strip_prefix(FROM)) else {
            continue;
        };
        filled.push_str(&block(name));
        let end = lines.find(|line| said(line).as_deref() == Some("end"));
        filled.push_str(end.unwrap_or_else(|| panic!("the block '{name}' has no end")));
        filled.push('\n');
    }
    filled
}

const FROM: &str = "from the code: ";

#[test]
fn a_block_is_replaced_and_the_rest_is_not() {
    let text = "a\n<!-- from the code: x y -->\nold\n<!-- end -->\nb\n<!-- end -->\n";
    let written = filled(text, MARKDOWN, |name| format!("new {name}\n"));
    assert_eq!(
        written,
        "a\n<!-- from the code: x y -->\nnew x y\n<!-- end -->\nb\n<!-- end -->\n"
    );
    let page = ".\\\" from the code: x\n.\\\" end\n";
    let written = filled(page, ROFF, |_| ".Pp\n".to_owned());
    assert_eq!(written, ".\\\" from the code: x\n.Pp\n.\\\" end\n");
    assert_eq!(filled(&written, ROFF, |_| ".Pp\n".to_owned()), written);
}

//! The README's own commands, so that what it tells people is what is tested.

use super::machine::source;

/// The commands in `section`: what stands in code blocks marked `sh` between
/// the lines `<!-- test: SECTION -->` and `<!-- end -->`.
pub fn commands(section: &str) -> Vec<String> {
    let found = parse(&source("README.md"), section);
    assert!(!found.is_empty(), "README.md has no section {section}");
    found
}

fn parse(text: &str, section: &str) -> Vec<String> {
    let begin = format!("<!-- test: {section} -->");
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    let lines = text
        .lines()
        .skip_while(|line| *line != begin)
        .take_while(|line| *line != "<!-- end -->");
    for line in lines {
        match &mut block {
            None if line == "```sh" => block = Some(String::new()),
            None => {}
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some(script) => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    blocks
}

#[test]
fn the_marked_blocks_of_one_section_are_read() {
    let text = "x\n<!-- test: a -->\nfirst\n```sh\none\ntwo\n```\n```\nnot run\n```\n```sh\n\
                three\n```\n<!-- end -->\n<!-- test: b -->\n```sh\nfour\n```\n<!-- end -->\n";
    assert_eq!(parse(text, "a"), ["one\ntwo\n", "three\n"]);
    assert_eq!(parse(text, "b"), ["four\n"]);
    assert!(parse(text, "c").is_empty());
}

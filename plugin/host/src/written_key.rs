//! Where a key stands in a file of git's syntax, and how it is written there:
//! libgit2 tells neither. For messages alone.

/// A key as somebody has typed it.
#[derive(Debug, PartialEq, Eq)]
pub struct WrittenKey {
    pub key: String,
    /// From 1.
    pub line: usize,
}

/// The first line of `text` that sets `key`, which is as libgit2 reports it.
/// `None`: the file is written in a way that is not worth to be followed.
pub fn find(text: &str, key: &str) -> Option<WrittenKey> {
    let (section, name) = key.rsplit_once('.')?;
    let mut present = None;
    for (line, number) in text.lines().zip(1..) {
        let mut rest = line.trim_start();
        if rest.starts_with('[') {
            let (header, behind) = rest[1..].split_once(']')?;
            present = Some(header);
            rest = behind.trim_start();
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let written = &rest[..end.unwrap_or(rest.len())];
        if written.eq_ignore_ascii_case(name)
            && let Some(header) = present
            && section_key(header) == section
        {
            let section = header.replacen(" \"", ".", 1).replace('"', "");
            return Some(WrittenKey {
                key: format!("{section}.{written}"),
                line: number,
            });
        }
    }
    None
}

/// `[claimGroup "devs"]` as libgit2 puts it in front of a name.
fn section_key(header: &str) -> String {
    match header.split_once(" \"") {
        Some((section, name)) => {
            format!(
                "{}.{}",
                section.to_ascii_lowercase(),
                name.trim_end_matches('"')
            )
        }
        None => header.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    const FILE: &str = "[claim]\n\treposDir = /srv\n\n; readAll\n\
                        [claimGroup \"Devs\"]\n\tmember = a\n\tMembers = b\n\
                        [claim] ReadAll = *\n\twriteAll\n";

    #[test]
    fn a_key_is_found_as_it_is_written() {
        for (key, written) in [
            ("claim.reposdir", Some(("claim.reposDir", 2))),
            ("claim.readall", Some(("claim.ReadAll", 8))),
            ("claim.writeall", Some(("claim.writeAll", 9))),
            (
                "claimgroup.Devs.members",
                Some(("claimGroup.Devs.Members", 7)),
            ),
            ("claim.members", None),
            ("nothing", None),
        ] {
            let found = find(FILE, key);
            let found = found.as_ref().map(|found| (found.key.as_str(), found.line));
            assert_eq!(found, written, "{key}");
        }
    }
}

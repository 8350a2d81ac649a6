//! Words of a command that is to be typed.

/// `word` as a shell takes it for one word, whatever is in it: who shows it to
/// people escapes it.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// `line`, a command of ours, as git runs it without the user's hooks.
pub fn without_hooks(line: &str) -> String {
    line.replacen("git claim", "git -c core.hooksPath=/dev/null claim", 1)
}

/// `line` with the options in `address`, if it is a command of ours.
///
/// In another worktree the session is that worktree's own.
pub fn addressed(line: &str, address: &str) -> String {
    let is_elsewhere = line.starts_with("git -C ");
    let is_ours = line.starts_with("git claim")
        || line.starts_with("git unclaim")
        || line.starts_with("git -") && (line.contains(" claim ") || line.contains(" unclaim "));
    let session = address.find(" --session ").unwrap_or(address.len());
    let (remote, session) = address.split_at(session);
    match is_ours {
        false => line.to_owned(),
        true if is_elsewhere || line.contains(" --session ") => format!("{line}{remote}"),
        true => format!("{line}{remote}{session}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{addressed, quote};

    #[test]
    fn only_what_a_shell_would_touch_is_quoted() {
        for (word, quoted) in [
            ("/home/ann/app.claims/42", "/home/ann/app.claims/42"),
            ("", "''"),
            ("a b", "'a b'"),
            ("ann's", r"'ann'\''s'"),
            ("$(x)", "'$(x)'"),
            ("ünï", "'ünï'"),
            ("#42", "'#42'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quote(word), quoted);
        }
    }

    #[test]
    fn only_our_own_commands_are_addressed() {
        let address = " -r up --session s";
        for (line, added) in [
            ("git claim start 42", address),
            ("git claims --mine", address),
            ("git unclaim 42", address),
            ("git claim start 42 --session t", " -r up"),
            ("git -C /w claim inspect 42", " -r up"),
            ("git -C /w switch claim/42", ""),
            ("git fetch origin", ""),
        ] {
            assert_eq!(addressed(line, address), format!("{line}{added}"));
            assert_eq!(addressed(line, ""), line);
        }
    }
}

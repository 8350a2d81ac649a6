//! Words of a command that is to be typed.

use git_claim_api::text::escape;

/// `word` as a shell takes it for one word.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", escape(word).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

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
        ] {
            assert_eq!(quote(word), quoted);
        }
    }
}

//! mdoc(7), the language of the manual pages, as far as the code writes it.

/// Where lines of prose are broken.
const WIDTH: usize = 78;

/// A part of a page.
#[derive(Default)]
pub struct Mdoc(String);

impl Mdoc {
    /// A request with its arguments, which are mdoc themselves.
    pub fn request(&mut self, name: &str, arguments: &str) {
        let line = format!(".{name} {arguments}");
        self.0.push_str(line.trim_end());
        self.0.push('\n');
    }

    /// Paragraphs with a blank line between them; `code` stands in backticks.
    pub fn prose(&mut self, text: &str) {
        for (at, paragraph) in text.split("\n\n").enumerate() {
            if at > 0 {
                self.request("Pp", "");
            }
            self.paragraph(paragraph);
        }
    }

    /// Each sentence begins a line, as roff wants it.
    fn paragraph(&mut self, text: &str) {
        let mut line = String::new();
        for word in words(text) {
            let sentence_ends = line.ends_with(['.', '!', '?']);
            if !line.is_empty() && (sentence_ends || line.len() + word.len() >= WIDTH) {
                self.line(&line);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
        self.line(&line);
    }

    fn line(&mut self, text: &str) {
        let is_request = text.starts_with(['.', '\'']);
        self.0.push_str(if is_request { "\\&" } else { "" });
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// A list of terms, which are mdoc themselves, with what they mean.
    pub fn list(&mut self, entries: impl IntoIterator<Item = (String, String)>) {
        self.request("Bl", "-tag -width Ds");
        for (term, meaning) in entries {
            self.request("It", &term);
            self.prose(&meaning);
        }
        self.request("El", "");
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// One line of prose.
pub fn flowing(text: &str) -> String {
    words(text).join(" ")
}

/// The words of `text` as roff has them: options and code with hyphens that can
/// be typed again, code in quotes and unbroken.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut goes_on = false;
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            let code = format!("\\(oq{}\\(cq", literal(part).replace(' ', "\\ "));
            join(&mut words, &code, goes_on);
            goes_on = true;
            continue;
        }
        goes_on &= !part.starts_with(char::is_whitespace);
        for word in part.split_whitespace() {
            let is_option = word.trim_start_matches('(').starts_with('-');
            let word = match is_option {
                // Never hyphenated.
                true => format!("\\%{}", literal(word)),
                false => word.replace('\\', "\\e"),
            };
            join(&mut words, &word, goes_on);
            goes_on = false;
        }
        goes_on = !part.ends_with(char::is_whitespace);
    }
    words
}

fn join(words: &mut Vec<String>, word: &str, goes_on: bool) {
    match words.last_mut() {
        Some(last) if goes_on => last.push_str(word),
        _ => words.push(word.to_owned()),
    }
}

/// Text that is shown to the last character as it is typed.
pub fn literal(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '…' => escaped.push_str("..."),
            c => escaped.push(c),
        }
    }
    escaped
}

/// What a reader sees of [`literal`] text, a line of it perhaps behind `\&`.
pub fn shown(text: &str) -> String {
    text.replace("\\&", "")
        .replace("\\-", "-")
        .replace("\\(aq", "'")
        .replace("\\(ga", "`")
        .replace("\\(ha", "^")
        .replace("\\(ti", "~")
        .replace("\\e", "\\")
}

#[test]
fn prose_is_typeset() {
    let mut page = Mdoc::default();
    page.prose("Not with --next (`-x`, or\n'x'). A second `git a'b`: sentence.\n\n.hidden");
    assert_eq!(
        page.into_text(),
        "Not with \\%\\-\\-next (\\(oq\\-x\\(cq, or 'x').\n\
         A second \\(oqgit\\ a\\(aqb\\(cq: sentence.\n\
         .Pp\n\\&.hidden\n"
    );
}

#[test]
fn literal_text_is_shown_as_it_is() {
    let text = "git claim --next 'it' ~/x^2 `a` \\n";
    assert_eq!(shown(&literal(text)), text);
}

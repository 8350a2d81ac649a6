//! Colour, on terminals that want it.

/// Whether and how text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    on: bool,
}

impl Style {
    /// No colour at all.
    #[cfg(test)]
    pub const PLAIN: Style = Style { on: false };

    /// The style of a stream; `setting` is git's `color.ui`.
    pub fn of(is_terminal: bool, setting: Option<&str>) -> Style {
        let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
        let able = is_terminal
            && set("NO_COLOR").is_none()
            && set("TERM").is_some_and(|terminal| terminal != "dumb");
        let on = match setting.map(str::to_ascii_lowercase).as_deref() {
            Some("always") => set("NO_COLOR").is_none(),
            Some("never" | "false" | "no" | "off" | "0") => false,
            _ => able,
        };
        Style { on }
    }

    pub fn error(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub fn warning(self, text: &str) -> String {
        self.paint("1;33", text)
    }

    pub fn hint(self, text: &str) -> String {
        self.paint("1;36", text)
    }

    pub fn heading(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What is one's own.
    pub fn own(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self.on {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

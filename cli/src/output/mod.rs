//! What the user sees: replies on stdout, everything else on stderr.

pub mod json;
mod pager;
pub mod people;
pub mod records;
mod style;
pub mod table;
pub mod time;

use std::io::{self, IsTerminal as _, Write as _};

use git_claim_api::text::{escape, json_line};

use crate::args::Global;
use crate::error::{Failure, Result};
use crate::git::{Config, Git};
use style::Style;

/// Where and how a call's output goes.
#[derive(Debug)]
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    stdout: Style,
    stderr: Style,
    /// What the line of progress says now, if there is one.
    progress: Option<String>,
}

/// How wide and how colourful a table may be.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Columns; `None` where it is not for a terminal.
    pub width: Option<usize>,
    pub style: Style,
}

impl Output {
    pub fn new(global: &Global) -> Output {
        Output {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            stdout: Style::of(is_seen(), None),
            stderr: Style::of(io::stderr().is_terminal(), None),
            progress: None,
        }
    }

    /// Obeys the user's `color.ui`.
    pub fn configure(&mut self, config: &Config) {
        let setting = config.get("color.ui");
        self.stdout = Style::of(is_seen(), setting);
        self.stderr = Style::of(io::stderr().is_terminal(), setting);
    }

    /// Whether replies are wanted as JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    pub fn layout(&self) -> Layout {
        Layout {
            width: terminal_width(),
            style: self.stdout,
        }
    }

    /// The server's reply, as it came.
    pub fn reply(&self, line: &str) -> Result<()> {
        write(&format!("{line}\n"))
    }

    /// A reply of the command's own.
    pub fn value(&self, value: &serde_json::Value) -> Result<()> {
        let line = json_line(value)
            .map_err(|error| Failure::error(format!("the reply cannot be written: {error}")))?;
        self.reply(&line)
    }

    /// One sentence that all went well.
    pub fn sentence(&self, sentence: &str) -> Result<()> {
        if self.quiet {
            return Ok(());
        }
        write(&format!("{sentence}\n"))
    }

    /// What was asked to be shown.
    pub fn text(&self, text: &str) -> Result<()> {
        write(text)
    }

    /// The same, through the user's pager where it is longer than the terminal.
    pub fn long_text(&self, text: &str, git: &Git) -> Result<()> {
        let is_long = terminal_height().is_some_and(|height| text.lines().count() >= height);
        match is_long.then(|| pager::of(git)).flatten() {
            // A pager that can't be had hides nothing.
            Some(pager) if pager::show(&pager, text).is_ok() => Ok(()),
            _ => write(text),
        }
    }

    /// A word beside the reply, on stderr.
    pub fn remark(&self, remark: &str) {
        if !self.quiet && !self.json {
            eprint(&format!("{remark}\n"));
        }
    }

    /// What is being waited for: on a terminal one line that is written over. A
    /// file is for what happened; there `--verbose` has it said, once.
    pub fn progress(&mut self, words: &str) {
        if self.quiet || self.json || self.progress.as_deref() == Some(words) {
            return;
        }
        if io::stderr().is_terminal() {
            eprint(&format!("\r\x1b[K{words}"));
        } else if self.progress.is_none() {
            self.detail(words);
        }
        self.progress = Some(words.to_owned());
    }

    /// Takes the line of progress away.
    pub fn end_of_progress(&mut self) {
        if self.progress.take().is_some() && io::stderr().is_terminal() {
            eprint("\r\x1b[K");
        }
    }

    /// Whether somebody reads the reply at a terminal.
    pub fn is_read_at_a_terminal(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// Whether what was shown can be replaced.
    pub fn redraws(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// What is to be shown in place of what was shown before; where there is no
    /// terminal, below it.
    pub fn redraw(&self, text: &str) -> Result<()> {
        if io::stdout().is_terminal() {
            write(&format!("\x1b[H\x1b[2J{text}"))
        } else {
            write(text)
        }
    }

    /// Something that is not as the user may think.
    pub fn warning(&self, warning: &str) {
        if !self.quiet {
            eprint(&format!("{} {warning}\n", self.stderr.warning("warning:")));
        }
    }

    /// For `--verbose`.
    pub fn detail(&self, detail: &str) {
        if self.verbose {
            eprint(&format!("{detail}\n"));
        }
    }

    /// What the server said beside its reply: its warnings, or with
    /// `--verbose` all of it.
    pub fn server_words(&self, stderr: &[u8]) {
        let text = String::from_utf8_lossy(stderr);
        for line in text.lines().map(str::trim_end) {
            if let Some(warning) = line.strip_prefix("warning: ") {
                self.warning(&escape(warning));
            } else if self.verbose && !line.is_empty() {
                eprint(&format!("server: {}\n", escape(line)));
            }
        }
    }

    pub fn failure(&self, failure: &Failure) {
        if self.progress.is_some() && io::stderr().is_terminal() {
            eprint("\n");
        }
        if self.json {
            // What a command found out is its reply; what kept it from finding
            // out is an error.
            return match failure.reply.as_ref().map(json_line) {
                Some(Ok(line)) => {
                    let _ = write(&format!("{line}\n"));
                }
                _ => eprint(&format!("{}\n", json::failure(failure))),
            };
        }
        let mut text = format!("{} {}\n", self.stderr.error("error:"), failure.message);
        if let Some(hint) = &failure.hint {
            text.push_str(&format!("{} {hint}\n", self.stderr.hint("hint:")));
        }
        eprint(&text);
    }
}

/// Writes to stdout. A reader that has gone away has read enough; anything
/// else that goes wrong is an error, as the reply is lost.
fn write(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::error(format!(
            "the reply could not be written: {error}"
        ))
        .hint("what was asked has been done; `git claims --mine` tells")),
        _ => Ok(()),
    }
}

/// Writes to stderr; there is nobody left to tell if that fails.
fn eprint(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether a person sees what goes to stdout: on a terminal, or in the pager
/// that git has started for this call.
fn is_seen() -> bool {
    let pager = std::env::var(pager::IN_USE);
    io::stdout().is_terminal() || pager.is_ok_and(|value| value == "true" || value == "1")
}

/// The columns of the terminal, or what COLUMNS says, as git says it to what
/// runs below its pager.
fn terminal_width() -> Option<usize> {
    is_seen().then(|| said("COLUMNS").or_else(|| Some(size()?.0)).unwrap_or(80))
}

/// The lines of the terminal that stdout is, or what LINES says.
fn terminal_height() -> Option<usize> {
    let is_terminal = io::stdout().is_terminal();
    is_terminal.then(|| said("LINES").or_else(|| Some(size()?.1)).unwrap_or(24))
}

fn said(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Columns and lines of the terminal that stdout is.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let known = size.ws_col > 0 && size.ws_row > 0;
    known.then(|| (size.ws_col.into(), size.ws_row.into()))
}

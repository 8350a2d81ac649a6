//! A terminal: what is typed into it, and what it shows.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::client::Client;

/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// An interactive program on a terminal of its own.
pub struct Terminal {
    child: Child,
    screen: Arc<Screen>,
}

#[derive(Default)]
struct Screen {
    text: Mutex<String>,
    grown: Condvar,
}

impl Terminal {
    /// A terminal of 100 columns and 60 lines with `program`, a line for `sh`, in
    /// the client's worktree.
    pub fn new(client: &Client, program: &str) -> Terminal {
        let line = format!("stty cols 100 rows 60; exec {program}");
        let mut child = client
            .person()
            .std_command("script", client.dir())
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let screen = Arc::<Screen>::default();
        let writer = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // A character may come in two pieces.
            let mut pending = Vec::new();
            while let Ok(length @ 1..) = stdout.read(&mut bytes) {
                pending.extend_from_slice(&bytes[..length]);
                let whole = match std::str::from_utf8(&pending) {
                    Ok(_) => pending.len(),
                    Err(error) => match error.error_len() {
                        None => error.valid_up_to(),
                        Some(_) => pending.len(),
                    },
                };
                let text: Vec<u8> = pending.drain(..whole).collect();
                let mut screen = writer.text.lock().unwrap();
                screen.push_str(&String::from_utf8_lossy(&text));
                writer.grown.notify_all();
            }
        });
        Terminal { child, screen }
    }

    pub fn types(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits until `text` stands at the beginning of a line, and takes what is
    /// above away.
    pub fn shows(&self, text: &str) {
        self.take_until(&format!("\n{text}"));
    }

    /// Waits until `text` is there, and takes it and all before away: as plain
    /// text, without what moves the cursor or changes colours.
    pub fn take_until(&self, text: &str) -> String {
        let mut screen = self.screen.text.lock().unwrap();
        loop {
            let plain = plain(&screen);
            if let Some(at) = plain.find(text) {
                let end = at + text.len();
                *screen = plain[end..].to_owned();
                return plain[..end].to_owned();
            }
            let (grown, waited) = self.screen.grown.wait_timeout(screen, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "{text:?} is not shown:\n{plain}");
            screen = grown;
        }
    }
}

/// `text` without carriage returns and escape sequences; of these one that is not
/// all there yet stays.
fn plain(text: &str) -> String {
    let text = text.replace('\r', "");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&rest[..at]);
        let Some(length) = sequence(&rest[at..]) else {
            return out + &rest[at..];
        };
        rest = &rest[at + length..];
    }
    out + rest
}

/// How long the escape sequence is that `text` begins with.
fn sequence(text: &str) -> Option<usize> {
    let from = |at: usize, is_end: fn(char) -> bool| {
        let rest = &text[at..];
        rest.find(is_end).map(|end| at + end + 1)
    };
    match text[1..].chars().next()? {
        '[' => from(2, |c| ('@'..='~').contains(&c)),
        ']' => from(2, |c| c == '\x07' || c == '\\'),
        '(' | ')' => from(2, |_| true),
        other => Some(1 + other.len_utf8()),
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command line writes to a terminal of this many columns and lines.
pub fn seen(client: &Client, (columns, lines): (u16, u16), command: &str) -> String {
    let size = format!("stty cols {columns} rows {lines} -onlcr; {command}");
    let mut script = client.command("script");
    script
        .env("TERM", "xterm-256color")
        .args(["-qec", &size, "/dev/null"]);
    let output = script.output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

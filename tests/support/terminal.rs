//! A terminal, and what stands on it.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use super::client::Client;
use super::eventually;

/// An interactive shell on a terminal of its own.
pub struct Terminal {
    child: Child,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    pub fn new(client: &Client) -> Terminal {
        let mut child = client
            .person()
            .std_command("script", client.dir())
            .args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let writer = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(length @ 1..) = stdout.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                writer.lock().unwrap().push_str(&text);
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
        let line = format!("\n{text}");
        eventually(text, || {
            let mut screen = self.screen.lock().unwrap();
            let Some(at) = screen.find(&line) else {
                return false;
            };
            screen.drain(..at + line.len());
            true
        });
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

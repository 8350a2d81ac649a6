//! A connection with `serve` at its other end: many requests, one after the
//! other, as lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::forge::REPO;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection with its lines.
pub struct Connection {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Connection {
    /// `ssh forge collab-lease serve …`, over a login of its own.
    pub fn open(client: &Client) -> Connection {
        let mut ssh = client.person().std_command("ssh", client.dir());
        ssh.arg("forge").arg(format!("collab-lease serve {REPO}"));
        Connection::of(ssh)
    }

    /// The one that `command` is.
    pub fn of(mut command: Command) -> Connection {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Connection {
            input: process.stdin.take(),
            process,
            lines,
        }
    }

    /// The number of the process at this end.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn send(&mut self, text: &str) {
        // A server that has ended the connection reads no more.
        let _ = self.input.as_mut().unwrap().write_all(text.as_bytes());
    }

    pub fn next(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        serde_json::from_str(&line).unwrap()
    }

    pub fn ask(&mut self, request: &Value) -> Value {
        self.send(&format!("{request}\n"));
        self.next()
    }

    /// Ends the client's side; how the server's ended.
    pub fn end(mut self) -> i32 {
        self.input = None;
        self.ended()
    }

    /// Waits for the server to end the connection; how it did.
    pub fn ended(&mut self) -> i32 {
        self.process.wait().unwrap().code().unwrap()
    }

    /// The client is gone without a word.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

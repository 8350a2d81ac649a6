//! Stands in for a forge's HTTP server: answers what the test says, and keeps
//! every request for the test to compare. It listens inside a machine.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How a path is answered.
#[derive(Clone)]
pub enum Answer {
    /// A status and a body of JSON.
    Json(u16, serde_json::Value),
    /// A status, the headers besides the usual ones, and a body.
    Raw(u16, String, Vec<u8>),
    /// Takes the request and never says anything.
    Nothing,
    /// Begins to answer and sends a byte now and then, for ever.
    Dribble,
}

/// The stub; it ends with the test.
#[derive(Clone, Default)]
pub struct Stub {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Answer>,
    requests: Vec<String>,
}

impl Stub {
    /// Listens on `port` of loopback, in the network of the process `inside`.
    pub fn listen(inside: u32, port: u16) -> Stub {
        let stub = Stub::default();
        let served = stub.clone();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let network = File::open(format!("/proc/{inside}/ns/net")).unwrap();
            // Of this thread alone; what it starts stays there too.
            move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&network),
                Some(LinkNameSpaceType::Network),
            )
            .unwrap();
            let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
            ready.send(()).unwrap();
            for stream in listener.incoming().map_while(Result::ok) {
                let stub = served.clone();
                std::thread::spawn(move || stub.serve(stream));
            }
        });
        is_ready.recv().unwrap();
        stub
    }

    /// Answers `target`, a path with its query, from now on.
    pub fn answer(&self, target: &str, answer: Answer) {
        let mut state = self.state.lock().unwrap();
        state.answers.insert(target.to_owned(), answer);
    }

    /// What was asked since the last call: method, target, and the headers that
    /// carry a secret or a name, in their order.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    fn serve(&self, mut stream: TcpStream) {
        let Some((line, target)) = read_request(&stream) else {
            return;
        };
        let answer = {
            let mut state = self.state.lock().unwrap();
            state.requests.push(line);
            state.answers.get(&target).cloned()
        };
        // The peer may go at any time.
        let _ = match answer {
            Some(answer) => send(&mut stream, answer),
            // Like a path that the forge does not know.
            None => send(
                &mut stream,
                Answer::Raw(404, String::new(), b"Not found.\n".to_vec()),
            ),
        };
    }
}

/// The request as [`Stub::asked`] gives it, and its target.
fn read_request(stream: &TcpStream) -> Option<(String, String)> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = format!("{method} {target}");
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let name = name.to_ascii_lowercase();
        if [
            "authorization",
            "x-gitea-internal-auth",
            "sudo",
            "content-length",
        ]
        .contains(&name.as_str())
        {
            request.push_str(&format!(" | {name}: {}", value.trim()));
        }
    }
    Some((request, target.to_owned()))
}

fn send(stream: &mut TcpStream, answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::Json(status, json) => {
            let headers = "Content-Type: application/json\r\n".to_owned();
            send(
                stream,
                Answer::Raw(status, headers, json.to_string().into_bytes()),
            )
        }
        Answer::Raw(status, headers, body) => {
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} Stub\r\nConnection: close\r\nContent-Length: {length}\r\n\
                 {headers}\r\n"
            )?;
            stream.write_all(&body)
        }
        Answer::Nothing => {
            // Until the peer gives up.
            stream.read(&mut [0]).map(|_| ())
        }
        Answer::Dribble => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
            loop {
                stream.write_all(b" ")?;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

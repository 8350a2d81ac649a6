//! A gateway before etcd's own, in which tests let time pass: it answers with
//! dates of its own, and ends leases by them. All else is etcd's.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The shortest lease that the etcd behind grants, in seconds.
const SHORTEST: i64 = 1;

/// A lease as it is seen from before the gateway.
#[derive(Clone, Copy)]
struct Lease {
    granted: i64,
    end_ms: i64,
}

struct State {
    agent: ureq::Agent,
    etcd: String,
    now_ms: i64,
    leases: HashMap<i64, Lease>,
    /// Swallows the answers to so many transactions that write, once made.
    swallow: u32,
    traffic: Traffic,
}

/// What went through the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub calls: usize,
    /// Keys that were answered.
    pub keys: usize,
}

/// Ends when the test does.
pub struct TimeMachine {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl TimeMachine {
    pub fn before(etcd_port: u16, now_ms: i64) -> TimeMachine {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build();
        let state = Arc::new(Mutex::new(State {
            agent: agent.into(),
            etcd: format!("http://127.0.0.1:{etcd_port}"),
            now_ms,
            leases: HashMap::new(),
            swallow: 0,
            traffic: Traffic::default(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream.unwrap(), &shared));
            }
        });
        TimeMachine { port, state }
    }

    /// Lets time pass, or go back.
    pub fn step_ms(&self, ms: i64) {
        let mut state = self.state.lock().unwrap();
        state.now_ms += ms;
        let now = state.now_ms;
        let over: Vec<i64> = state
            .leases
            .iter()
            .filter(|(_, lease)| lease.end_ms <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            state.leases.remove(&id);
            state.forward("/v3/lease/revoke", &json!({ "ID": id.to_string() }));
        }
    }

    /// What went through since this was asked last.
    pub fn traffic(&self) -> Traffic {
        std::mem::take(&mut self.state.lock().unwrap().traffic)
    }

    /// Lets etcd make the next `count` changes, and nobody learn of it.
    pub fn swallow_answers(&self, count: u32) {
        self.state.lock().unwrap().swallow = count;
    }
}

impl State {
    /// What etcd says, with its status.
    fn forward(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut response = self
            .agent
            .post(format!("{}{path}", self.etcd))
            .send(body.to_string())
            .unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        let body = serde_json::from_str(&text).unwrap();
        (response.status().as_u16(), body)
    }

    /// The answer to a call; none is swallowed.
    fn answer(&mut self, path: &str, mut body: Value) -> Option<(u16, Value)> {
        let id = |body: &Value| body["ID"].as_str().and_then(|id| id.parse::<i64>().ok());
        let lease = id(&body).and_then(|id| self.leases.get(&id).copied());
        match path {
            "/v3/lease/grant" => {
                let wanted: i64 = body["TTL"].as_str().unwrap().parse().unwrap();
                let granted = wanted.max(SHORTEST);
                // In etcd's own time it outlives the test.
                body["TTL"] = "100000".into();
                let (status, mut said) = self.forward(path, &body);
                let lease = Lease {
                    granted,
                    end_ms: self.now_ms + granted * 1_000,
                };
                self.leases.insert(id(&said).unwrap(), lease);
                said["TTL"] = granted.to_string().into();
                Some((status, said))
            }
            "/v3/lease/keepalive" => {
                let (status, mut said) = self.forward(path, &body);
                if let Some(lease) = lease {
                    let end_ms = self.now_ms + lease.granted * 1_000;
                    self.leases
                        .insert(id(&body).unwrap(), Lease { end_ms, ..lease });
                    said["result"]["TTL"] = lease.granted.to_string().into();
                }
                Some((status, said))
            }
            "/v3/lease/timetolive" => {
                let (status, mut said) = self.forward(path, &body);
                if let Some(lease) = lease {
                    let left = (lease.end_ms - self.now_ms).div_euclid(1_000);
                    said["TTL"] = left.to_string().into();
                    said["grantedTTL"] = lease.granted.to_string().into();
                }
                Some((status, said))
            }
            _ => {
                let writes = body.to_string().contains("request_put");
                let answer = self.forward(path, &body);
                if writes && self.swallow > 0 {
                    self.swallow -= 1;
                    return None;
                }
                Some(answer)
            }
        }
    }

    fn date(&self) -> String {
        let time = chrono::DateTime::from_timestamp_millis(self.now_ms).unwrap();
        time.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
    }
}

/// Serves the calls of one connection.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_ascii_lowercase());
        }
        let path = lines.first()?.split(' ').nth(1)?.to_owned();
        let length = lines
            .iter()
            .find_map(|line| line.strip_prefix("content-length:"))?;
        let mut body = vec![0; length.trim().parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        let mut state = state.lock().unwrap();
        let (status, said) = state.answer(&path, body)?;
        let responses = said["responses"].as_array().into_iter().flatten();
        let keys = responses.filter_map(|response| response["response_range"]["kvs"].as_array());
        state.traffic.calls += 1;
        state.traffic.keys += keys.map(Vec::len).sum::<usize>();
        let date = state.date();
        drop(state);
        let said = said.to_string();
        let length = said.len();
        // In one piece: the kernel holds a second one back.
        let whole = format!(
            "HTTP/1.1 {status} X\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n{said}"
        );
        let mut out = stream;
        out.write_all(whole.as_bytes()).ok()?;
    }
}

//! etcd over its JSON gateway, which every node serves beside gRPC: one POST a
//! call, one node after the other until one answers. No thread, no runtime.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use git_claim_api::ledger::EtcdPlace;
use git_claim_api::settings::EtcdFiles;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, http};

use super::pause::pause;
use crate::claim::Now;

/// How long one node may take: to be reached, and to answer. One that is cut
/// off from the others takes the calls and answers none.
const TO_CONNECT: Duration = Duration::from_millis(500);
const TO_ANSWER: Duration = Duration::from_secs(2);

/// The longest answer that is read.
const MOST: u64 = 256 * 1024 * 1024;

/// Why a call has no answer.
#[derive(Debug)]
pub enum CallError {
    /// etcd has answered that it did not do it.
    Refused(Refusal),
    /// Nothing came back, or that it may still happen.
    Unknown(String),
    /// It was never sent.
    Unsent(String),
}

/// etcd's own no.
#[derive(Debug, Clone, Deserialize)]
pub struct Refusal {
    pub code: u32,
    #[serde(rename = "error")]
    pub message: String,
}

/// The codes of gRPC that mean something here.
mod code {
    pub const CANCELLED: u32 = 1;
    pub const UNKNOWN: u32 = 2;
    pub const DEADLINE_EXCEEDED: u32 = 4;
    pub const INTERNAL: u32 = 13;
    pub const UNAVAILABLE: u32 = 14;
    pub const UNAUTHENTICATED: u32 = 16;
}

impl Refusal {
    /// Whether the change may be under way all the same.
    fn is_open(&self) -> bool {
        matches!(
            self.code,
            code::CANCELLED
                | code::UNKNOWN
                | code::DEADLINE_EXCEEDED
                | code::INTERNAL
                | code::UNAVAILABLE
        ) || self.message.contains("too many requests")
    }

    /// The cluster's quota is used up.
    pub fn is_full(&self) -> bool {
        self.message.contains("database space exceeded")
    }

    /// The lease of a change has run out or been revoked.
    pub fn is_lost_lease(&self) -> bool {
        self.message.contains("lease not found")
    }

    /// The revision that is read at is not kept any more.
    pub fn is_compacted(&self) -> bool {
        self.message.contains("has been compacted")
    }

    fn wants_login(&self) -> bool {
        self.code == code::UNAUTHENTICATED || self.message.contains("user name is empty")
    }
}

/// An answer, and when the node gave it, by its own clock.
#[derive(Debug)]
pub struct Answer {
    pub body: Value,
    pub at: Now,
}

/// The nodes of a cluster.
#[derive(Debug)]
pub struct Client {
    urls: Vec<String>,
    agent: Agent,
    /// The node that is asked first: the one that answered last.
    first: AtomicUsize,
    login: Option<Login>,
}

#[derive(Debug)]
struct Login {
    name: String,
    password: String,
    token: Mutex<Option<String>>,
}

impl Client {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// A file that can't be used, and why.
    pub fn new(place: &EtcdPlace, files: &EtcdFiles) -> Result<Client, String> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("git-claim");
        let scheme = match &files.ca {
            Some(ca) => {
                config = config.tls_config(tls(ca, files.cert.as_deref(), files.key.as_deref())?);
                "https"
            }
            None if files.cert.is_some() || files.key.is_some() => {
                return Err("has a client certificate, and no authority to know the nodes by (claim.etcdCa)".to_owned());
            }
            None => "http",
        };
        let urls: Vec<String> = place
            .nodes
            .iter()
            .map(|node| format!("{scheme}://{node}"))
            .collect();
        // Many short calls, spread over the nodes.
        let first = std::process::id() as usize % urls.len();
        Ok(Client {
            urls,
            agent: Agent::with_parts(config.build(), DefaultConnector::default(), SystemNames),
            first: AtomicUsize::new(first),
            login: files.password.as_deref().map(login).transpose()?,
        })
    }

    /// Asks until somebody answers; for what may be done twice.
    ///
    /// # Errors
    /// etcd's refusal, or that nobody has answered until `deadline`.
    pub fn ask(&self, path: &str, body: &Value, deadline: Instant) -> Result<Answer, CallError> {
        let mut round = 0;
        loop {
            for _ in 0..self.urls.len() {
                match self.once(path, body, deadline) {
                    Err(CallError::Unknown(why) | CallError::Unsent(why)) => {
                        if Instant::now() >= deadline {
                            return Err(CallError::Unsent(why));
                        }
                    }
                    answered => return answered,
                }
            }
            round += 1;
            pause(round, deadline);
        }
    }

    /// Asks one node, once. If it does not answer, the next call goes to another.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn once(&self, path: &str, body: &Value, deadline: Instant) -> Result<Answer, CallError> {
        let at = self.first.load(Ordering::Relaxed) % self.urls.len();
        let mut outcome = self.post(at, path, body, deadline);
        if let Err(CallError::Refused(refusal)) = &outcome
            && refusal.wants_login()
            && let Some(login) = &self.login
        {
            self.log_in(at, login, deadline)?;
            outcome = self.post(at, path, body, deadline);
        }
        let outcome = match outcome {
            Err(CallError::Refused(refusal)) if refusal.is_open() => {
                Err(CallError::Unknown(refusal.message))
            }
            other => other,
        };
        if let Err(CallError::Unknown(_) | CallError::Unsent(_)) = &outcome {
            self.first.store(at + 1, Ordering::Relaxed);
        }
        outcome
    }

    fn log_in(&self, at: usize, login: &Login, deadline: Instant) -> Result<(), CallError> {
        let who = json!({ "name": login.name, "password": login.password });
        // What goes wrong here, the call itself was not made.
        let answer = self
            .post(at, "/v3/auth/authenticate", &who, deadline)
            .map_err(|error| match error {
                CallError::Unknown(why) => CallError::Unsent(why),
                other => other,
            })?;
        let token = answer.body["token"].as_str().map(str::to_owned);
        *login.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    fn post(
        &self,
        at: usize,
        path: &str,
        body: &Value,
        deadline: Instant,
    ) -> Result<Answer, CallError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CallError::Unsent("there was no time left".to_owned()));
        }
        let mut request = self
            .agent
            .post(format!("{}{path}", self.urls[at]))
            .config()
            .timeout_connect(Some(TO_CONNECT.min(left)))
            .timeout_recv_response(Some(TO_ANSWER.min(left)))
            .timeout_global(Some(left))
            .build();
        if let Some(login) = &self.login
            && let Some(token) = &*login.token.lock().unwrap_or_else(PoisonError::into_inner)
        {
            request = request.header("Authorization", token);
        }
        let unknown = |error: ureq::Error| CallError::Unknown(self.of_node(at, &error));
        let mut response = request
            .send(body.to_string())
            .map_err(|error| match &error {
                ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
                | ureq::Error::HostNotFound
                | ureq::Error::ConnectionFailed
                | ureq::Error::Rustls(_)
                | ureq::Error::Tls(_) => CallError::Unsent(self.of_node(at, &error)),
                ureq::Error::Io(io) if io.kind() == std::io::ErrorKind::ConnectionRefused => {
                    CallError::Unsent(self.of_node(at, &error))
                }
                _ => unknown(error),
            })?;
        let time = node_time(&response);
        let is_ok = response.status().is_success();
        let mut text = Vec::new();
        response
            .body_mut()
            .with_config()
            .limit(MOST)
            .reader()
            .read_to_end(&mut text)
            .map_err(|error| unknown(error.into()))?;
        let strange = || {
            CallError::Unknown(format!(
                "{} does not answer as etcd's gateway does",
                self.urls[at]
            ))
        };
        if is_ok {
            Ok(Answer {
                body: serde_json::from_slice(&text).map_err(|_| strange())?,
                at: time.ok_or_else(strange)?,
            })
        } else {
            let refusal = serde_json::from_slice(&text).map_err(|_| strange())?;
            Err(CallError::Refused(refusal))
        }
    }

    fn of_node(&self, at: usize, error: &ureq::Error) -> String {
        format!("{}: {error}", self.urls[at])
    }
}

/// The clock of the node that has answered, in whole seconds.
fn node_time<T>(response: &http::Response<T>) -> Option<Now> {
    let date = response.headers().get("date")?.to_str().ok()?;
    Some(Now(git_claim_api::time::parse_http_date(date)? * 1_000))
}

/// Names are looked up by the system, in the caller's own thread.
#[derive(Debug)]
struct SystemNames;

impl Resolver for SystemNames {
    fn resolve(
        &self,
        uri: &http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let node = uri.authority().ok_or(ureq::Error::HostNotFound)?;
        let found = std::net::ToSocketAddrs::to_socket_addrs(node.as_str())
            .map_err(|_| ureq::Error::HostNotFound)?;
        let mut addresses = self.empty();
        for address in found.take(8) {
            addresses.push(address);
        }
        if addresses.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        Ok(addresses)
    }
}

fn tls(ca: &Path, cert: Option<&Path>, key: Option<&Path>) -> Result<TlsConfig, String> {
    let authorities = certificates(ca)?;
    let mut config = TlsConfig::builder()
        .root_certs(RootCerts::from(authorities.into_iter()))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    config = match (cert, key) {
        (Some(cert), Some(key)) => {
            let secret = secret(key)?;
            let key = PrivateKey::from_pem(secret.as_bytes())
                .map_err(|error| format!("can't use the key {}: {error}", key.display()))?;
            config.client_cert(Some(ClientCert::new_with_certs(&certificates(cert)?, key)))
        }
        (None, None) => config,
        _ => {
            return Err(
                "has a client certificate without its key, or a key without its certificate"
                    .to_owned(),
            );
        }
    };
    Ok(config.build())
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let shown = file.display();
    let pem = fs::read(file).map_err(|error| format!("can't read {shown}: {error}"))?;
    let found: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(format!("can't use {shown}: there is no certificate in it"));
    }
    Ok(found)
}

/// The one line `name:password` of a file.
fn login(file: &Path) -> Result<Login, String> {
    let text = secret(file)?;
    let (name, password) = text
        .trim_end_matches(['\n', '\r'])
        .split_once(':')
        .ok_or_else(|| format!("can't use {}: it is no line name:password", file.display()))?;
    Ok(Login {
        name: name.to_owned(),
        password: password.to_owned(),
        token: Mutex::default(),
    })
}

/// What is in a file that is nobody else's to read.
fn secret(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let cannot = |error: std::io::Error| format!("can't read {shown}: {error}");
    let mut opened = fs::File::open(file).map_err(cannot)?;
    let mode = opened.metadata().map_err(cannot)?.mode() & 0o7777;
    if mode & 0o177 != 0 {
        return Err(format!(
            "does not use the secret in {shown}, which others may read (mode {mode:04o}); make it 0600"
        ));
    }
    let mut text = String::new();
    opened.read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Bytes as the gateway takes them.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes)
}

/// Bytes as the gateway gives them.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

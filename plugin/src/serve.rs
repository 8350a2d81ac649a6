//! `serve`: many requests on one connection, one after the other.
//!
//! A request is read only when the one before it is answered, so a client has
//! one under way at a time and the rest wait in its own pipe. Nothing of the
//! ledger is held while the client is read from or written to: one that stands
//! still, or is gone, is in nobody's way.

use std::time::{Duration, Instant};

use git_claim_api::REQUEST_DEADLINE_MS;
use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::serve::{self as wire, Op};
use git_claim_api::text::{escape, json_line};
use git_claim_api::verb::{RepoArg, Request};
use serde_json::{Value, json};

use crate::host::{Level, Stream};
use crate::input::{BadInput, Lines, Next};
use crate::server::{Asker, Failure, Remedy, Server};
use crate::watch::Watch;

/// How long a client may ask for nothing, unless it watches, in milliseconds.
const IDLE_MS: i64 = 600_000;

/// How often a watched repository is looked at by a client that is busy.
const LOOK: Duration = Duration::from_millis(500);

/// Serves the connection until the client ends it.
///
/// # Errors
/// The repository is not the client's to see; nothing was printed.
pub fn run(server: &Server<'_>, repo: &RepoArg, asker: Asker<'_>) -> Result<Exit, Failure> {
    server.call(asker, deadline()).admit(repo, Access::Read)?;
    let connection = Connection {
        server,
        repo,
        asker,
    };
    let mut lines = Lines::of(server.host);
    let mut watch: Option<Watch> = None;
    // By the host's clock: nothing hangs on it but that one connects again.
    let mut heard = server.host.now_ms();
    let mut looked = Instant::now();
    loop {
        let next = lines.next();
        // Where there is nothing else to do, at the pace of the host.
        let may_look = matches!(next, Ok(Next::NotYet)) || looked.elapsed() >= LOOK;
        match next {
            Ok(Next::Line(line)) => {
                heard = server.host.now_ms();
                let Ok(line) = wire::read(repo, &line) else {
                    return connection.end(&wire::NoObject.to_string());
                };
                let reply = match line.op {
                    Op::Request(request) => connection.answer(*request, &line.id)?,
                    Op::Watch => connection.begin(&mut watch, &line.id)?,
                    Op::Bad(why) => error(&line.id, Exit::Error, &why, None),
                };
                connection.say(&reply)?;
                if let Some(watch) = &mut watch {
                    watch.touch();
                }
            }
            Ok(Next::NotYet) => {
                if server.host.is_cancelled() {
                    return Err(Failure::Gone);
                }
                if watch.is_none() && server.host.now_ms() - heard > IDLE_MS {
                    return connection.end("the connection was idle for too long");
                }
            }
            Ok(Next::End) => return Ok(Exit::Done),
            Err(BadInput::Gone) => return Err(Failure::Gone),
            Err(error) => return connection.end(&error.to_string()),
        }
        if let Some(watch) = &mut watch
            && may_look
        {
            looked = Instant::now();
            connection.look(watch)?;
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_millis(REQUEST_DEADLINE_MS.into())
}

fn error(id: &Value, exit: Exit, why: &str, remedy: Option<Remedy>) -> String {
    let mut line = json!({ "id": id, "exit": exit.code(), "error": why });
    if let Some(remedy) = remedy {
        line["hint"] = remedy.hint().into();
    }
    escape(&line.to_string())
}

struct Connection<'a> {
    server: &'a Server<'a>,
    repo: &'a RepoArg,
    asker: Asker<'a>,
}

impl Connection<'_> {
    /// The reply to one request, which is authorised by itself.
    fn answer(&self, request: Request, id: &Value) -> Result<String, Failure> {
        match self.server.answer(request, self.asker, deadline()) {
            Ok(answer) => Ok(format!(
                r#"{{"id":{},"exit":{},"reply":{}}}"#,
                escape(&id.to_string()),
                answer.exit.code(),
                answer.json
            )),
            Err(failure) => self.refusal(id, failure),
        }
    }

    /// Why there is no reply to one request; the connection goes on.
    fn refusal(&self, id: &Value, failure: Failure) -> Result<String, Failure> {
        let (why, remedy) = match failure {
            Failure::Refused(why) => return Ok(error(id, Exit::Error, &why, None)),
            Failure::NotNow(why) => (why, None),
            Failure::Lasting { why, remedy } => (why, Some(remedy)),
            Failure::Gone => return Err(Failure::Gone),
        };
        self.server.host.log(Level::Warn, &escape(&why));
        Ok(error(id, Exit::NotNow, &why, remedy))
    }

    /// Begins to watch, from now on.
    fn begin(&self, watch: &mut Option<Watch>, id: &Value) -> Result<String, Failure> {
        let call = self.server.call(self.asker, deadline());
        let begun = call
            .admit(self.repo, Access::Read)
            .and_then(|admitted| Watch::begin(&admitted));
        match begun {
            Ok(begun) => *watch = Some(begun),
            Err(failure) => return self.refusal(id, failure),
        }
        let reply =
            json!({ "id": id, "exit": Exit::Done.code(), "reply": { "status": "watching" } });
        Ok(escape(&reply.to_string()))
    }

    /// Tells what has changed since the last look, to whoever may still see it.
    fn look(&self, watch: &mut Watch) -> Result<(), Failure> {
        let call = self.server.call(self.asker, deadline());
        if !watch.is_due(&call)? {
            return Ok(());
        }
        let admitted = call.admit(self.repo, Access::Read)?;
        for event in watch.look(&admitted)? {
            let line = json_line(&json!({ "event": event }));
            self.say(&line.map_err(|error| Failure::NotNow(error.to_string()))?)?;
        }
        Ok(())
    }

    fn say(&self, line: &str) -> Result<(), Failure> {
        let line = format!("{line}\n");
        let written = self.server.host.write(Stream::Stdout, line.as_bytes());
        written.map_err(|_| Failure::Gone)
    }

    /// Ends a connection on which the two sides don't understand each other.
    fn end(&self, why: &str) -> Result<Exit, Failure> {
        self.say(&escape(&json!({ "error": why }).to_string()))?;
        Ok(Exit::Error)
    }
}

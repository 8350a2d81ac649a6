//! One connection that many requests go over, one after the other: the
//! server's `serve`, a JSON object a line each way.
//!
//! A reply becomes what a call of its own would have brought, and is read and
//! doubted as that is. Half a line is nothing, and where what comes cannot be
//! meant, nobody listens any longer.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use git_claim_api::event::Event;
use git_claim_api::serve::{self as wire, WATCH};
use git_claim_api::text::escape;
use git_claim_api::verb::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::MOST_BYTES;
use crate::answer::Answer;

/// How much is kept of what a server says beside its replies.
const MOST_WORDS: usize = 64 * 1024;

/// How long a program that has closed its output may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

type Input = Box<dyn AsyncWrite + Unpin>;
type Output = Box<dyn AsyncRead + Unpin>;

/// The connection.
pub struct Line {
    input: Option<Input>,
    /// `None`: the other side has closed it.
    output: Option<Output>,
    errors: Option<Output>,
    /// The exit code of the program at the other end. One of this machine is
    /// killed when this is dropped.
    ended: Pin<Box<dyn Future<Output = Option<i32>>>>,
    /// What has come of lines that are not whole yet; up to `searched` there is
    /// no end of one.
    partial: Vec<u8>,
    searched: usize,
    /// What it said beside its replies.
    words: Vec<u8>,
    last_id: u64,
    has_answered: bool,
    watches: bool,
}

/// A change in the repository; `None`: of a kind that is not known here.
pub type Change = Option<Box<Event>>;

/// What a watch has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Changed(Change),
    /// Nothing any more: the line is over.
    Over,
}

/// How a line came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Before it had answered anything; what a call would have brought.
    Unserved(Answer),
    /// Later on. What was asked last may have been heard.
    Broken { code: Option<i32>, why: String },
    /// What it said cannot be meant.
    Nonsense(String),
}

/// What comes on a line.
enum Heard {
    Reply {
        id: u64,
        answer: Answer,
    },
    Change(Change),
    /// The server ends the line, for this reason.
    Farewell(String),
    Nothing,
}

/// The members of all that a server sends.
#[derive(Deserialize)]
struct Said<'a> {
    id: Option<u64>,
    exit: Option<u8>,
    #[serde(borrow)]
    reply: Option<&'a RawValue>,
    error: Option<String>,
    /// Goes with an error.
    hint: Option<String>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
}

impl Line {
    /// The line to a program that was started with these pipes.
    pub fn to(
        input: Option<impl AsyncWrite + Unpin + 'static>,
        output: Option<impl AsyncRead + Unpin + 'static>,
        errors: Option<impl AsyncRead + Unpin + 'static>,
        ended: impl Future<Output = Option<i32>> + 'static,
    ) -> Line {
        Line {
            input: input.map(|pipe| Box::new(pipe) as Input),
            output: output.map(|pipe| Box::new(pipe) as Output),
            errors: errors.map(|pipe| Box::new(pipe) as Output),
            ended: Box::pin(ended),
            partial: Vec::new(),
            searched: 0,
            words: Vec::new(),
            last_id: 0,
            has_answered: false,
            watches: false,
        }
    }

    /// Asks, and waits for the reply. A line that was not waited for is of no
    /// more use.
    ///
    /// # Errors
    /// The line is over.
    pub async fn ask(&mut self, request: &Request) -> Result<Answer, End> {
        let object =
            wire::object(&self.next_id(), request).map_err(|why| End::Nonsense(why.to_string()))?;
        self.converse(&object).await
    }

    /// Asks to be told of changes from now on; answers whether that is done.
    ///
    /// # Errors
    /// The line is over.
    pub async fn watch(&mut self) -> Result<bool, End> {
        let object = json!({ "id": self.next_id(), "op": WATCH });
        self.watches = self.converse(&object).await?.code == Some(0);
        Ok(self.watches)
    }

    /// Whether changes are told of.
    pub fn watches(&self) -> bool {
        self.watches
    }

    /// The next change behind the last reply, which knows of all that were told
    /// before it. Can be given up and called again.
    pub async fn news(&mut self) -> News {
        match self.hear().await {
            Ok(Heard::Change(change)) => News::Changed(change),
            _ => News::Over,
        }
    }

    /// Looks whether the other side has ended the line while nobody listened.
    ///
    /// # Errors
    /// It has, or says what nobody asked for.
    pub async fn look(&mut self) -> Result<(), End> {
        // Only what is there already.
        while let Ok(heard) = timeout(Duration::ZERO, self.hear()).await {
            match heard? {
                Heard::Change(_) => {}
                Heard::Reply { .. } => return Err(unasked()),
                Heard::Farewell(why) => return Err(self.end(why).await),
                Heard::Nothing => return Err(self.end(String::new()).await),
            }
        }
        Ok(())
    }

    /// Ends it, and waits until the program at the other end has ended too.
    pub async fn close(mut self) {
        (self.input, self.output, self.errors) = (None, None, None);
        let _ = timeout(LAST_WORDS, self.ended).await;
    }

    fn next_id(&mut self) -> Value {
        self.last_id += 1;
        self.last_id.into()
    }

    async fn converse(&mut self, object: &Value) -> Result<Answer, End> {
        // Who cannot be told anything may still have said why.
        let _ = self.say(object).await;
        loop {
            match self.hear().await? {
                Heard::Reply { id, answer } if id == self.last_id => {
                    self.has_answered = true;
                    return Ok(answer);
                }
                Heard::Reply { .. } => return Err(unasked()),
                Heard::Change(_) => {}
                Heard::Farewell(why) => return Err(self.end(why).await),
                Heard::Nothing => return Err(self.end(String::new()).await),
            }
        }
    }

    async fn say(&mut self, object: &Value) -> io::Result<()> {
        let line = format!("{object}\n");
        match &mut self.input {
            Some(input) => {
                input.write_all(line.as_bytes()).await?;
                input.flush().await
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn hear(&mut self) -> Result<Heard, End> {
        while let Some(line) = self.next_line().await? {
            match read(&line) {
                Ok(Heard::Reply { id, mut answer }) => {
                    answer.stderr.append(&mut self.words);
                    return Ok(Heard::Reply { id, answer });
                }
                Ok(heard) => return Ok(heard),
                // A login shell may be chatty.
                Err(NotUnderstood::NoObject) if !self.has_answered => {}
                Err(NotUnderstood::NoObject) => {
                    return Err(End::Nonsense("a line is no JSON object".to_owned()));
                }
                Err(NotUnderstood::Senseless(why)) => return Err(End::Nonsense(why)),
            }
        }
        Ok(Heard::Nothing)
    }

    /// The next whole line; `None`: there will be none.
    async fn next_line(&mut self) -> Result<Option<Vec<u8>>, End> {
        loop {
            let rest = &self.partial[self.searched..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.searched + at;
                self.searched = 0;
                return Ok(Some(self.partial.drain(..=end).collect()));
            }
            self.searched = self.partial.len();
            if self.searched as u64 > MOST_BYTES {
                return Err(End::Nonsense("a line is too long".to_owned()));
            }
            if self.output.is_none() {
                return Ok(None);
            }
            self.read_on().await;
        }
    }

    /// Takes in more of what is said, wherever it is said.
    async fn read_on(&mut self) {
        let (output, errors) = (&mut self.output, &mut self.errors);
        tokio::select! {
            biased;
            open = read_more(output, &mut self.partial) => if !open {
                self.output = None;
            },
            open = read_more(errors, &mut self.words) => if !open {
                self.errors = None;
            },
        }
        self.words.truncate(MOST_WORDS);
    }

    /// How it ended, now that nothing comes any more.
    async fn end(&mut self, why: String) -> End {
        self.input = None;
        self.output = None;
        let last_words = async {
            while self.errors.is_some() {
                self.read_on().await;
            }
            self.ended.as_mut().await
        };
        let code = timeout(LAST_WORDS, last_words).await.ok().flatten();
        let said = std::mem::take(&mut self.words);
        if self.has_answered || !why.is_empty() {
            return End::Broken { code, why };
        }
        End::Unserved(Answer {
            code,
            stdout: Vec::new(),
            stderr: said,
        })
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("asked", &self.last_id)
            .field("watches", &self.watches)
            .finish_non_exhaustive()
    }
}

fn unasked() -> End {
    End::Nonsense("it answers what nobody asked".to_owned())
}

/// Whether the pipe stays open. Never comes back from one that is closed.
async fn read_more(pipe: &mut Option<Output>, into: &mut Vec<u8>) -> bool {
    match pipe {
        Some(pipe) => matches!(pipe.read_buf(into).await, Ok(1..)),
        None => std::future::pending().await,
    }
}

enum NotUnderstood {
    NoObject,
    Senseless(String),
}

fn read(line: &[u8]) -> Result<Heard, NotUnderstood> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err(NotUnderstood::NoObject);
    }
    let said: Said<'_> = serde_json::from_slice(line)
        .map_err(|error| NotUnderstood::Senseless(error.to_string()))?;
    match said {
        Said {
            id: None,
            exit: None,
            reply: None,
            error: None,
            hint: _,
            event: Some(event),
        } => Ok(Heard::Change(serde_json::from_str(event.get()).ok())),
        Said {
            id: None,
            exit: None,
            reply: None,
            error: Some(why),
            hint: _,
            event: None,
        } => Ok(Heard::Farewell(escape(&why))),
        Said {
            id: Some(id),
            exit: Some(exit),
            reply: Some(reply),
            error: None,
            hint: _,
            event: None,
        } => Ok(answered(id, exit, reply.get(), None)),
        Said {
            id: Some(id),
            exit: Some(exit),
            reply: None,
            error: Some(why),
            hint,
            event: None,
        } => Ok(answered(id, exit, "", Some((&why, hint.as_deref())))),
        _ => Err(NotUnderstood::Senseless(
            "it is neither a reply nor an event".to_owned(),
        )),
    }
}

/// What a call of its own would have brought.
fn answered(id: u64, exit: u8, reply: &str, error: Option<(&str, Option<&str>)>) -> Heard {
    let mut stderr = String::new();
    if let Some((error, hint)) = error {
        stderr = format!("error: {}\n", escape(error));
        if let Some(hint) = hint {
            stderr += &format!("hint: {}\n", escape(hint));
        }
    }
    let answer = Answer {
        code: Some(exit.into()),
        stdout: reply.into(),
        stderr: stderr.into_bytes(),
    };
    Heard::Reply { id, answer }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex, empty, sink};

    use super::*;

    fn request() -> Request {
        Request::parse(b"collab-lease renew r.git 42 --ttl 60").unwrap()
    }

    /// A line on which `text` comes, and then the end.
    fn says(text: &'static str, errors: &'static str, code: Option<i32>) -> Line {
        Line::to(
            Some(sink()),
            Some(text.as_bytes()),
            Some(errors.as_bytes()),
            std::future::ready(code),
        )
    }

    /// A line that stays open, and its other end.
    fn open() -> (Line, DuplexStream) {
        let (ours, theirs) = duplex(4_096);
        let ended = std::future::pending();
        let line = Line::to(Some(sink()), Some(ours), Some(empty()), ended);
        (line, theirs)
    }

    fn answer(code: i32, stdout: &str, stderr: &str) -> Answer {
        Answer {
            code: Some(code),
            stdout: stdout.into(),
            stderr: stderr.into(),
        }
    }

    const REPLY: &str = "{\"id\":1,\"exit\":0,\"reply\":{\"status\":\"renewed\", \"x\":1}}\n";
    const EVENT: &str = r#"{"event":{"event":"released","repo":"r","issue":"42","at":"","before":null,"after":null}}"#;

    #[tokio::test]
    async fn a_reply_is_what_a_call_would_have_brought() {
        for (text, expected) in [
            (REPLY, answer(0, r#"{"status":"renewed", "x":1}"#, "")),
            (
                "{\"id\":1,\"exit\":4,\"reply\":{\"status\":\"held\"}}\n",
                answer(4, r#"{"status":"held"}"#, ""),
            ),
            (
                "{\"id\":1,\"exit\":6,\"error\":\"busy\\n\\u001b[2J\"}\n",
                answer(6, "", "error: busy\\u000a\\u001b[2J\n"),
            ),
            (
                "{\"id\":1,\"exit\":6,\"error\":\"full\",\"hint\":\"mend\\nit\"}\n",
                answer(6, "", "error: full\nhint: mend\\u000ait\n"),
            ),
            // What a login shell says comes first.
            (
                concat!(
                    "Welcome!\n\n",
                    "{\"id\":1,\"exit\":0,\"reply\":{\"status\":\"renewed\"},\"new\":[]}\n"
                ),
                answer(0, r#"{"status":"renewed"}"#, ""),
            ),
        ] {
            let heard = says(text, "", None).ask(&request()).await;
            assert_eq!(heard, Ok(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn each_request_has_its_own_reply() {
        let (mut line, mut server) = open();
        for id in 1..4 {
            let exit = id % 2;
            let reply = format!("{EVENT}\n{{\"id\":{id},\"exit\":{exit},\"error\":\"no\"}}\n");
            server.write_all(reply.as_bytes()).await.unwrap();
            let heard = line.ask(&request()).await.unwrap();
            assert_eq!(heard, answer(exit, "", "error: no\n"));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_meant_is_not_believed() {
        for text in [
            "{\"id\":2,\"exit\":0,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":0,\"exit\":0,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":\"1\",\"exit\":0,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"exit\":0,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":1,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":1,\"exit\":\"0\",\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":1,\"exit\":256,\"reply\":{\"status\":\"renewed\"}}\n",
            "{\"id\":1,\"exit\":0}\n",
            "{\"id\":1,\"exit\":0,\"reply\":{},\"error\":\"no\"}\n",
            "{\"id\":1,\"exit\":0,\"reply\":{},\"event\":{}}\n",
            "{\"id\":1,\"event\":{}}\n",
            "{\"id\":1,\"exit\":0,\"reply\":{}\n",
            "{\"id\":1,\"id\":1,\"exit\":0,\"reply\":{}}\n",
            "{}\n",
        ] {
            let heard = says(text, "", Some(0)).ask(&request()).await;
            assert!(matches!(heard, Err(End::Nonsense(_))), "{text}: {heard:?}");
        }
        // Behind a reply nobody may be chatty any more.
        for text in ["hello\n", "[]\n", "\u{0}\n"] {
            let (mut line, mut server) = open();
            server.write_all(REPLY.as_bytes()).await.unwrap();
            line.ask(&request()).await.unwrap();
            server.write_all(text.as_bytes()).await.unwrap();
            let heard = line.ask(&request()).await;
            assert!(matches!(heard, Err(End::Nonsense(_))), "{text}: {heard:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_at_once_is_no_line() {
        let refused = "error: there is no subverb 'serve'\n";
        for (code, text) in [
            (Some(1), ""),
            (Some(0), "Welcome!\n"),
            (
                None,
                "{\"id\":1,\"exit\":0,\"reply\":{\"status\":\"renewed\"}}",
            ),
        ] {
            let heard = says(text, refused, code).ask(&request()).await;
            let ended = Answer {
                code,
                stdout: Vec::new(),
                stderr: refused.into(),
            };
            assert_eq!(heard, Err(End::Unserved(ended)), "{text}");
        }
    }

    #[tokio::test]
    async fn a_line_may_end_later_and_say_why() {
        for (text, why) in [
            ("", ""),
            // Half a reply is none.
            (
                "{\"id\":2,\"exit\":0,\"reply\":{\"status\":\"renewed\"}}",
                "",
            ),
            ("{\"error\":\"idle\\n\"}\n", "idle\\u000a"),
        ] {
            let (mut line, mut server) = open();
            line.ended = Box::pin(std::future::ready(Some(1)));
            server.write_all(REPLY.as_bytes()).await.unwrap();
            line.ask(&request()).await.unwrap();
            server.write_all(text.as_bytes()).await.unwrap();
            drop(server);
            let broken = End::Broken {
                code: Some(1),
                why: why.to_owned(),
            };
            assert_eq!(line.ask(&request()).await, Err(broken), "{text}");
        }
    }

    #[tokio::test]
    async fn an_end_is_noticed_before_anything_is_asked() {
        let (mut line, mut server) = open();
        line.ended = Box::pin(std::future::ready(None));
        assert_eq!(line.look().await, Ok(()));
        server.write_all(REPLY.as_bytes()).await.unwrap();
        line.ask(&request()).await.unwrap();
        server.write_all(EVENT.as_bytes()).await.unwrap();
        assert_eq!(line.look().await, Ok(()));
        server.write_all(b"\n").await.unwrap();
        assert_eq!(line.look().await, Ok(()));
        drop(server);
        let broken = End::Broken {
            code: None,
            why: String::new(),
        };
        assert_eq!(line.look().await, Err(broken));
        let (mut line, mut server) = open();
        server.write_all(REPLY.as_bytes()).await.unwrap();
        assert_eq!(line.look().await, Err(unasked()));
    }

    #[tokio::test]
    async fn changes_are_told_behind_the_last_reply() {
        let (mut line, mut server) = open();
        let watching = "{\"id\":1,\"exit\":0,\"reply\":{\"status\":\"watching\"}}\n";
        server
            .write_all(format!("{EVENT}\n{watching}").as_bytes())
            .await
            .unwrap();
        assert_eq!(line.watch().await, Ok(true));
        // In pieces, and to one who gives up in between.
        let (first, rest) = EVENT.split_at(20);
        server.write_all(first.as_bytes()).await.unwrap();
        let given_up = timeout(Duration::from_millis(1), line.news()).await;
        assert!(given_up.is_err());
        let unknown = "{\"event\":{\"event\":\"renamed\",\"issue\":\"42\"}}";
        server
            .write_all(format!("{rest}\n{unknown}\n").as_bytes())
            .await
            .unwrap();
        let News::Changed(Some(event)) = line.news().await else {
            panic!("no event");
        };
        assert_eq!(event.issue, "42");
        assert_eq!(line.news().await, News::Changed(None));
        drop(server);
        assert_eq!(line.news().await, News::Over);
    }

    #[tokio::test]
    async fn a_watch_may_be_refused() {
        let refused = "{\"id\":1,\"exit\":1,\"error\":\"there is no subverb 'watch'\"}\n";
        let mut line = says(refused, "", Some(0));
        assert_eq!(line.watch().await, Ok(false));
        assert!(!line.watches());
    }

    #[tokio::test]
    async fn warnings_come_with_the_next_reply() {
        let (mut line, mut server) = open();
        line.errors = Some(Box::new("warning: old\n".as_bytes()));
        line.read_on().await;
        server.write_all(REPLY.as_bytes()).await.unwrap();
        let heard = line.ask(&request()).await.unwrap();
        assert_eq!(heard.stderr, b"warning: old\n");
    }
}

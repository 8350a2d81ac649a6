//! A forge in this process: a host with a clock that tests set, two
//! repositories, and users with fixed rights.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use assert_fs::TempDir;
use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::push::Push;
use git_claim_api::settings::PluginSettings;
use git_claim_plugin::claim::Now;
use git_claim_plugin::host::{Host, HostError, Input, Level, Stream};
use git_claim_plugin::ledger::{Ledger, View, When};
use git_claim_plugin::server::{Asker, Server};
use serde_json::Value;

use crate::engines::{Engine, Sqlite};

/// Where the clock of a new forge stands: seconds since the epoch.
pub const START: i64 = 1_788_609_600;

/// Where syncing costs nothing, if there is such a place: for tests that are not
/// about that.
pub fn memory() -> &'static Path {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        memory
    } else {
        Path::new("/tmp")
    }
}

/// One request's outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub exit: u8,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

pub struct Forge<E = Sqlite> {
    pub dir: TempDir,
    pub engine: E,
    pub ledger: Box<dyn Ledger>,
    settings: PluginSettings,
    host: TestHost,
}

struct TestHost {
    now_ms: Cell<i64>,
    user: RefCell<String>,
    repos: Vec<(String, Option<PathBuf>)>,
    out: RefCell<[Vec<u8>; 2]>,
    /// What the peer does, one thing after the other.
    input: RefCell<VecDeque<Peer>>,
    /// Whether the peer leaves before it is answered.
    leaves: Cell<bool>,
    events: RefCell<Vec<Value>>,
}

/// What the peer of a request does.
enum Peer {
    Sends(Vec<u8>),
    /// Nothing for so many milliseconds.
    Waits(i64),
}

impl<E: Engine> Forge<E> {
    pub const WHOLE_SECONDS: bool = E::WHOLE_SECONDS;
    pub const BY_HOSTS_CLOCK: bool = E::BY_HOSTS_CLOCK;

    /// A forge with `r.git` and `other.git`, which have no tracker.
    pub fn new() -> Forge<E> {
        Forge::with_repos(vec![
            ("r.git".to_owned(), None),
            ("other.git".to_owned(), None),
        ])
    }

    pub fn with_repos(repos: Vec<(String, Option<PathBuf>)>) -> Forge<E> {
        Forge::over(TempDir::new().unwrap(), repos)
    }

    pub fn over(dir: TempDir, repos: Vec<(String, Option<PathBuf>)>) -> Forge<E> {
        let engine = E::new(dir.path(), START * 1_000);
        Forge::with(dir, engine, repos)
    }

    pub fn with(dir: TempDir, engine: E, repos: Vec<(String, Option<PathBuf>)>) -> Forge<E> {
        let ledger = engine.open();
        Forge::with_ledger(dir, engine, ledger, repos)
    }

    /// A forge with a ledger that is open already.
    pub fn with_ledger(
        dir: TempDir,
        engine: E,
        ledger: Box<dyn Ledger>,
        repos: Vec<(String, Option<PathBuf>)>,
    ) -> Forge<E> {
        let settings = serde_json::json!({ "ledger": engine.place() });
        Forge {
            dir,
            engine,
            ledger,
            settings: serde_json::from_value(settings).unwrap(),
            host: TestHost {
                now_ms: Cell::new(START * 1_000),
                user: RefCell::default(),
                repos,
                out: RefCell::default(),
                input: RefCell::default(),
                leaves: Cell::new(false),
                events: RefCell::default(),
            },
        }
    }

    /// Lets time pass, or go back.
    pub fn step_ms(&self, ms: i64) {
        self.host.now_ms.set(self.host.now_ms.get() + ms);
        self.engine.step_ms(ms);
    }

    /// The ledger's own id.
    pub fn ledger_id(&self) -> String {
        let when = When {
            clock: &|| Now(self.host.now_ms.get()),
            deadline: Instant::now() + Duration::from_secs(10),
        };
        let mut id = String::new();
        let look = &mut |view: &dyn View| {
            id = view.ledger_id()?;
            Ok(())
        };
        self.ledger.read(when, look).unwrap();
        id
    }

    /// Runs `collab-lease <words>` for `user`. `root` is an admin, `guest` may
    /// read, `nobody` may nothing, everybody else may write.
    pub fn ask(&self, user: &str, words: &str) -> Said {
        self.ask_with_key(user, &format!("SHA256:{user}"), words)
    }

    pub fn ask_with_key(&self, user: &str, key: &str, words: &str) -> Said {
        self.exec(user, key, &format!("collab-lease {words}"), false)
    }

    pub fn ask_as_host(&self, words: &str) -> Said {
        self.exec("host", "", &format!("collab-lease {words}"), true)
    }

    /// The same with a peer that has gone by the time of the change; whether there
    /// is an answer all the same.
    pub fn ask_and_leave(&self, user: &str, words: &str, is_host: bool) -> bool {
        self.host.leaves.set(true);
        let exit = self.run(user, "", &format!("collab-lease {words}"), is_host);
        self.host.leaves.set(false);
        exit.is_some()
    }

    /// The hook `subverb` about a push to `repo`.
    pub fn hook(&self, subverb: &str, repo: &str, push: &Push) -> Said {
        let lines = push
            .facts()
            .map(|fact| format!("{}\n", serde_json::to_string(&fact).unwrap()));
        let lines: String = lines.collect();
        self.sends(lines.as_bytes());
        self.ask_as_host(&format!("{subverb} {repo}"))
    }

    /// Lets the peer of the next request send this.
    pub fn sends(&self, bytes: &[u8]) {
        let pieces = bytes.chunks(1_000);
        let pieces = pieces.map(|piece| Peer::Sends(piece.to_vec()));
        self.host.input.borrow_mut().extend(pieces);
    }

    /// Lets it then do nothing for so long.
    pub fn waits_ms(&self, ms: i64) {
        self.host.input.borrow_mut().push_back(Peer::Waits(ms));
    }

    /// Throws away what the last request has not read.
    pub fn drop_input(&self) {
        self.host.input.borrow_mut().clear();
    }

    /// Runs `steps` while `user` watches `r.git` through another connection; the
    /// events that they are told after each.
    pub fn watch(&self, user: &str, steps: &[Step<'_, E>]) -> Vec<Vec<Value>> {
        let watcher = Watcher {
            forge: self,
            user,
            steps,
            reads: Cell::new(0),
            out: RefCell::default(),
            told: RefCell::default(),
        };
        let ledger = self.engine.open();
        let exit = Server {
            ledger: &*ledger,
            settings: &self.settings,
            host: &watcher,
        }
        .exec(
            b"collab-lease serve r.git",
            Asker {
                name: user,
                key: None,
                is_host: false,
            },
            Instant::now() + Duration::from_secs(10),
        );
        assert_eq!(exit.unwrap().code(), 0, "{:?}", watcher.out.borrow());
        watcher.told.take()
    }

    /// The events since the last look.
    pub fn events(&self) -> Vec<Value> {
        self.host.events.take()
    }

    fn exec(&self, user: &str, key: &str, command: &str, is_host: bool) -> Said {
        let exit = self.run(user, key, command, is_host);
        let [stdout, stderr] = self.host.out.take();
        Said {
            exit: exit.expect("the peer is there").code(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    fn run(&self, user: &str, key: &str, command: &str, is_host: bool) -> Option<Exit> {
        *self.host.user.borrow_mut() = user.to_owned();
        *self.host.out.borrow_mut() = Default::default();
        Server {
            ledger: &*self.ledger,
            settings: &self.settings,
            host: &self.host,
        }
        .exec(
            command.as_bytes(),
            Asker {
                name: user,
                key: Some(key),
                is_host,
            },
            Instant::now() + Duration::from_secs(10),
        )
    }
}

/// What others do between two looks.
type Step<'a, E> = &'a dyn Fn(&Forge<E>);

/// A host whose peer watches, and between whose looks others do something.
struct Watcher<'a, E> {
    forge: &'a Forge<E>,
    user: &'a str,
    steps: &'a [Step<'a, E>],
    reads: Cell<usize>,
    out: RefCell<String>,
    told: RefCell<Vec<Vec<Value>>>,
}

impl<E: Engine> Host for Watcher<'_, E> {
    fn now_ms(&self) -> i64 {
        self.forge.host.now_ms()
    }

    fn log(&self, _: Level, _: &str) {}

    fn resolve_repo(&self, name: &str) -> Result<String, HostError> {
        self.forge.host.resolve_repo(name)
    }

    fn authorize(&self, repo: &str, access: Access) -> bool {
        *self.forge.host.user.borrow_mut() = self.user.to_owned();
        self.forge.host.authorize(repo, access)
    }

    fn write(&self, _: Stream, data: &[u8]) -> Result<(), HostError> {
        self.out
            .borrow_mut()
            .push_str(std::str::from_utf8(data).unwrap());
        Ok(())
    }

    fn read(&self, buffer: &mut [u8]) -> Result<Input, HostError> {
        let reads = self.reads.get();
        self.reads.set(reads + 1);
        let out = self.out.take();
        let lines = out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        match reads {
            0 => {
                let line = b"{\"op\":\"watch\"}\n";
                buffer[..line.len()].copy_from_slice(line);
                return Ok(Input::Bytes(line.len()));
            }
            1 => assert!(out.contains("watching"), "{out}"),
            _ => {
                let events = lines.map(|line| line["event"].clone());
                self.told.borrow_mut().push(events.collect());
            }
        }
        match self.steps.get(reads - 1) {
            None => Ok(Input::End),
            Some(step) => {
                step(self.forge);
                Ok(Input::NotYet)
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn repo_path(&self, repo: &str) -> Result<Option<PathBuf>, HostError> {
        self.forge.host.repo_path(repo)
    }

    fn has_tracker(&self) -> bool {
        false
    }

    fn resolve_issue(&self, _: &str, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }
}

impl Host for TestHost {
    fn now_ms(&self) -> i64 {
        self.now_ms.get()
    }

    fn log(&self, _: Level, _: &str) {}

    fn resolve_repo(&self, name: &str) -> Result<String, HostError> {
        self.repos
            .iter()
            .find(|(id, _)| id == name)
            .map(|(id, _)| id.clone())
            .ok_or(HostError::NotFound)
    }

    fn authorize(&self, _: &str, access: Access) -> bool {
        match self.user.borrow().as_str() {
            "root" => true,
            "guest" => access == Access::Read,
            "nobody" => false,
            _ => access <= Access::Write,
        }
    }

    fn write(&self, stream: Stream, data: &[u8]) -> Result<(), HostError> {
        let at = usize::from(stream == Stream::Stderr);
        self.out.borrow_mut()[at].extend_from_slice(data);
        Ok(())
    }

    fn read(&self, buffer: &mut [u8]) -> Result<Input, HostError> {
        match self.input.borrow_mut().pop_front() {
            None => Ok(Input::End),
            Some(Peer::Waits(ms)) => {
                self.now_ms.set(self.now_ms.get() + ms);
                Ok(Input::NotYet)
            }
            Some(Peer::Sends(piece)) => {
                buffer[..piece.len()].copy_from_slice(&piece);
                Ok(Input::Bytes(piece.len()))
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.leaves.get()
    }

    fn repo_path(&self, repo: &str) -> Result<Option<PathBuf>, HostError> {
        let found = self.repos.iter().find(|(id, _)| id == repo);
        Ok(found.and_then(|(_, path)| path.clone()))
    }

    fn has_tracker(&self) -> bool {
        false
    }

    fn resolve_issue(&self, _: &str, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }

    fn hears_events(&self) -> bool {
        true
    }

    fn event(&self, json: &str) -> Result<(), HostError> {
        let event = serde_json::from_str(json).unwrap();
        self.events.borrow_mut().push(event);
        Ok(())
    }
}

/// A bare repository with the six issues of `tests/cases/git-issue.bundle`.
pub fn git_issue_repository(dir: &Path) -> PathBuf {
    let bundle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/git-issue.bundle");
    let repository = dir.join("app.git");
    let git = |args: &[&std::ffi::OsStr]| {
        let done = std::process::Command::new("git")
            .arg("-C")
            .arg(dir)
            .args(args)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    git(&[
        "init".as_ref(),
        "-q".as_ref(),
        "--bare".as_ref(),
        repository.as_ref(),
    ]);
    git(&[
        "--git-dir".as_ref(),
        repository.as_ref(),
        "fetch".as_ref(),
        "-q".as_ref(),
        bundle.as_ref(),
        "refs/*:refs/*".as_ref(),
    ]);
    repository
}

//! Many processes straight on one ledger, killed, stopped and with a clock that
//! jumps; what they were answered must be linearizable. The ledger on etcd has
//! its nodes killed and stopped beside them.

mod nodes;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use assert_fs::TempDir;
use git_claim_api::access::Access;
use git_claim_api::ledger::LedgerPlace;
use git_claim_api::settings::PluginSettings;
use git_claim_plugin::claim::Now;
use git_claim_plugin::host::{Host, HostError, Level, Stream};
use git_claim_plugin::ledger::{self, Ledger, When};
use git_claim_plugin::server::{Asker, Server};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::linear::answer::{Answer, Logged, logged};
use crate::linear::ask::{Ask, Client, What};
use crate::linear::check::{Time, check};
use crate::linear::client::{Backlog, Random, Walker};
use crate::linear::record::{self, Recorder};
use crate::linear::{self, Operation};
use crate::support::Said;
use nodes::Nodes;

const PROCESSES: usize = 64;
const ISSUES: usize = 16;
const REPO: &str = "r.git";
const HOUR_MS: i64 = 3_600_000;

/// So many answers are there from one blow to the next.
const EVERY: u64 = 20;

/// How long a process is stopped at most.
const STOP: u64 = 3_000;

/// Of how many operations one is made on etcd: each is several calls there.
const ETCD_SHARE: u64 = 6;

/// How many front ends, with a queue each, the processes on etcd belong to.
const FRONT_ENDS: usize = 4;

/// Says to a process of this test which one it is.
const PROCESS: &str = "TORTURE_PROCESS";

/// Where the processes of one run meet.
pub struct Place {
    folder: PathBuf,
    ledger: LedgerPlace,
}

impl Place {
    /// With the ledger in a file.
    pub fn at(folder: &Path) -> Place {
        let file = folder.join("collab.db");
        Place::with(folder, LedgerPlace::File(file))
    }

    fn with(folder: &Path, ledger: LedgerPlace) -> Place {
        Place {
            folder: folder.to_owned(),
            ledger,
        }
    }

    fn settings(&self) -> PluginSettings {
        let settings = serde_json::json!({ "ledger": self.ledger });
        serde_json::from_value(settings).unwrap()
    }

    /// How far the clock is off, in milliseconds.
    fn clock(&self) -> PathBuf {
        self.folder.join("clock")
    }

    pub fn set_clock(&self, ms: i64) {
        let new = self.folder.join("clock.new");
        fs::write(&new, ms.to_string()).unwrap();
        fs::rename(new, self.clock()).unwrap();
    }

    /// Grows by one byte with each answer.
    fn answers(&self) -> PathBuf {
        self.folder.join("answers")
    }

    /// Is there when all are to end.
    fn end(&self) -> PathBuf {
        self.folder.join("end")
    }

    fn history(&self) -> PathBuf {
        self.folder.join("history")
    }

    fn history_of(&self, process: usize, life: usize) -> PathBuf {
        self.history().join(format!("{process:02}-{life:06}"))
    }

    /// What `ledger` answers at the place's time; `None` if it can't say whether
    /// it was done.
    pub fn serve(&self, ledger: &dyn Ledger, ask: &Ask) -> Option<Answer> {
        let said = exec(ledger, self, &ask.client, &ask.words(REPO));
        let is_sure = !said.stderr.contains("whether the change was made");
        is_sure.then(|| Answer::read(said.exit, &said.stdout))
    }

    /// How everything stands in the end: what an observer is answered, and the
    /// log.
    pub fn look(&self, ledger: &dyn Ledger, issues: &[String]) -> (Vec<Operation>, Vec<Logged>) {
        let client = Client {
            name: "observer".to_owned(),
            session: "o".to_owned(),
        };
        let mut operations = Vec::new();
        let mut log = Vec::new();
        for issue in issues {
            let ask = Ask {
                client: client.clone(),
                what: What::Show {
                    issue: issue.clone(),
                },
            };
            let start = linear::moment();
            let answer = self.serve(ledger, &ask).unwrap();
            assert_eq!(answer.exit, 0);
            operations.push(Operation {
                ask,
                start,
                answer: Some((linear::moment(), answer)),
            });
            let words = format!("log {REPO} {issue} --limit 1000000");
            let said = exec(ledger, self, &client, &words);
            assert_eq!(said.exit, 0, "{}", said.stderr);
            log.extend(logged(&said.stdout));
        }
        (operations, log)
    }
}

fn backlog() -> Backlog {
    Backlog {
        issues: (1..=ISSUES).map(|number| number.to_string()).collect(),
        has_order: false,
    }
}

/// A forge with the place's clock, for one request.
struct TurnedHost<'a> {
    place: &'a Place,
    client: &'a Client,
    out: RefCell<Vec<u8>>,
    err: RefCell<Vec<u8>>,
}

impl Host for TurnedHost<'_> {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let off: i64 = fs::read_to_string(self.place.clock())
            .unwrap()
            .parse()
            .unwrap();
        i64::try_from(since.as_millis()).unwrap() + off
    }

    fn log(&self, _: Level, _: &str) {}

    fn resolve_repo(&self, name: &str) -> Result<String, HostError> {
        Ok(name.to_owned())
    }

    fn authorize(&self, _: &str, access: Access) -> bool {
        access <= Access::Write || self.client.is_admin()
    }

    fn write(&self, stream: Stream, data: &[u8]) -> Result<(), HostError> {
        let to = match stream {
            Stream::Stdout => &self.out,
            Stream::Stderr => &self.err,
        };
        to.borrow_mut().extend_from_slice(data);
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn repo_path(&self, _: &str) -> Result<Option<PathBuf>, HostError> {
        Ok(None)
    }

    fn has_tracker(&self) -> bool {
        false
    }

    fn resolve_issue(&self, _: &str, _: &str) -> Result<String, HostError> {
        Err(HostError::NotFound)
    }
}

/// Runs `collab-lease <words>` for `client`.
fn exec(ledger: &dyn Ledger, place: &Place, client: &Client, words: &str) -> Said {
    let settings = place.settings();
    let host = TurnedHost {
        place,
        client,
        out: RefCell::default(),
        err: RefCell::default(),
    };
    let server = Server {
        ledger,
        settings: &settings,
        host: &host,
    };
    let asker = Asker {
        name: &client.name,
        key: None,
        is_host: false,
    };
    let command = format!("collab-lease {words}");
    let deadline = Instant::now() + Duration::from_secs(10);
    let exit = server.exec(command.as_bytes(), asker, deadline);
    let text = |bytes: RefCell<Vec<u8>>| String::from_utf8(bytes.into_inner()).unwrap();
    Said {
        exit: exit.expect("somebody reads").code(),
        stdout: text(host.out),
        stderr: text(host.err),
    }
}

/// One of the processes of the tests below, in one of its lives.
#[test]
#[ignore = "a process that another test starts"]
fn process() {
    let Ok(said) = std::env::var(PROCESS) else {
        return;
    };
    let mut said = said.splitn(4, ' ');
    let process: usize = said.next().unwrap().parse().unwrap();
    let life: usize = said.next().unwrap().parse().unwrap();
    let ledger = said.next().unwrap().parse().unwrap();
    let place = Place::with(Path::new(said.next().unwrap()), ledger);
    // Two sessions a name: one's own elsewhere can be taken over.
    let me = Client {
        name: format!("name{}", process / 2),
        session: format!("s{process}"),
    };
    // What the life before had asked for last, if it got that far.
    let before = (life > 0).then(|| place.history_of(process, life - 1));
    let lost = before
        .filter(|file| file.exists())
        .and_then(|file| record::read(&file).pop())
        .filter(|last| last.answer.is_none())
        .map(|last| last.ask);
    let mut walker = Walker::new(me, &format!("p{process}.{life}"), backlog(), lost);
    let mut recorder = Recorder::create(&place.history_of(process, life));
    let mut answers = fs::OpenOptions::new()
        .append(true)
        .open(place.answers())
        .unwrap();
    let open = || ledger::open(&place.settings());
    // Half of them stay with a connection, half open one for each request.
    let stays = process.is_multiple_of(2).then(|| open().unwrap());
    while !place.end().exists() {
        let ask = walker.ask();
        let answer = recorder.run(&ask, || match &stays {
            Some(ledger) => place.serve(&**ledger, &ask),
            None => match open() {
                Ok(ledger) => place.serve(&*ledger, &ask),
                Err(_) => Some(Answer::read(6, "")),
            },
        });
        walker.learn(&ask, answer.as_ref());
        io::Write::write_all(&mut answers, b".").unwrap();
    }
}

/// A process that runs, or has been stopped for a while.
struct Running {
    child: Child,
    life: usize,
    stopped_until: Option<Instant>,
}

impl Running {
    fn start(place: &Place, process: usize, life: usize) -> Running {
        let errors = place.folder.join(format!("errors-{process:02}"));
        let folder = place.folder.display();
        let said = format!("{process} {life} {} {folder}", place.ledger);
        let front_end = place.folder.join(format!("tmp-{}", process % FRONT_ENDS));
        fs::create_dir_all(&front_end).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "torture::process", "--ignored", "--nocapture"])
            .env(PROCESS, said)
            .env("TMPDIR", front_end)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(errors).unwrap())
            .spawn()
            .unwrap();
        Running {
            child,
            life,
            stopped_until: None,
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    fn stop(&mut self, random: &mut Random) {
        self.signal(Signal::STOP);
        let time = Duration::from_millis(random.below(STOP));
        self.stopped_until = Some(Instant::now() + time);
    }

    fn go_on(&mut self) {
        self.signal(Signal::CONT);
        self.stopped_until = None;
    }
}

/// What the processes have to bear.
#[derive(Debug, Default)]
struct Borne {
    kills: u32,
    stops: u32,
    jumps: u32,
}

/// Kills, stops and turns the clock until there are enough answers, and does
/// the like to the nodes of the ledger, if it has any.
fn torment(
    place: &Place,
    running: &mut [Running],
    mut nodes: Option<&mut Nodes>,
    enough: u64,
) -> Borne {
    let mut random = Random::new();
    let mut borne = Borne::default();
    let mut due = 0;
    loop {
        let answers = fs::metadata(place.answers()).unwrap().len();
        if answers >= enough {
            return borne;
        }
        let now = Instant::now();
        for process in running.iter_mut() {
            if process.stopped_until.is_some_and(|until| until <= now) {
                process.go_on();
            }
        }
        // By what is done, not by the time: a slow machine bears as much.
        if answers < due {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        due += EVERY;
        if let Some(nodes) = &mut nodes {
            nodes.bear(answers, &mut random);
        }
        // Every other time whoever has the ledger's lock, in mid-change.
        let at = match holder_of_the_lock(place, running) {
            Some(at) if random.one_in(2) => at,
            _ => usize::try_from(random.below(PROCESSES as u64)).unwrap(),
        };
        match random.below(40) {
            0..24 => {
                borne.kills += 1;
                let process = &mut running[at];
                process.child.kill().unwrap();
                process.child.wait().unwrap();
                *process = Running::start(place, at, process.life + 1);
            }
            24 if running[at].stopped_until.is_none() => {
                borne.stops += 1;
                running[at].stop(&mut random);
            }
            25..28 => {
                borne.jumps += 1;
                let hours = i64::try_from(random.below(3)).unwrap() - 1;
                place.set_clock(hours * HOUR_MS);
            }
            _ => {}
        }
    }
}

/// Which process stands first in the queue before the ledger.
fn holder_of_the_lock(place: &Place, running: &[Running]) -> Option<usize> {
    let inode = fs::metadata(place.folder.join("collab.db-queue"))
        .ok()?
        .ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF; who waits has a `->`.
    let pid: u32 = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.get(1) == Some(&"FLOCK")
            && words.get(5)?.rsplit(':').next()? == inode.to_string();
        is_it.then(|| words[4].parse().ok()).flatten()
    })?;
    running.iter().position(|process| process.child.id() == pid)
}

/// Lets all come to their end.
fn end(place: &Place, mut running: Vec<Running>) {
    fs::write(place.end(), "").unwrap();
    // One that is stopped may have the lock that another waits for.
    running.iter_mut().for_each(Running::go_on);
    for (process, mut running) in running.into_iter().enumerate() {
        let status = running.child.wait().unwrap();
        let errors = fs::read_to_string(place.folder.join(format!("errors-{process:02}"))).unwrap();
        assert!(status.success(), "process {process}: {errors}");
    }
}

/// A folder for a run. What a power cut does is another test; here memory is as
/// good as a disk.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() {
        TempDir::new_in(memory).unwrap()
    } else {
        TempDir::new().unwrap()
    };
    fs::create_dir(dir.path().join("history")).unwrap();
    fs::write(dir.path().join("answers"), "").unwrap();
    dir
}

/// All processes at `place` until there are enough answers, and what they were
/// answered.
fn run(place: &Place, nodes: Option<&mut Nodes>, enough: u64) -> Vec<Operation> {
    place.set_clock(0);
    let mut running: Vec<Running> = (0..PROCESSES)
        .map(|process| Running::start(place, process, 0))
        .collect();
    let began = Instant::now();
    let borne = torment(place, &mut running, nodes, enough);
    end(place, running);
    println!("{borne:?} in {:.1?}", began.elapsed());
    record::read_all(&place.history())
}

/// Whether all that happened can have happened one after the other.
fn is_linearizable(place: &Place, mut history: Vec<Operation>, time: Time<'_>) {
    let ledger = ledger::open(&place.settings()).unwrap();
    let (last, log) = place.look(&*ledger, &backlog().issues);
    history.extend(last);
    let exits = |code: u8| {
        let answers = history.iter().filter_map(|op| op.answer.as_ref());
        answers.filter(|(_, answer)| answer.exit == code).count()
    };
    println!("exits: {:?}", [0, 1, 4, 6].map(|code| (code, exits(code))));
    let checked =
        check(&history, &log, time).unwrap_or_else(|found| linear::give_up(&found, &history));
    println!("{checked:?}");
}

#[test]
fn processes_killed_and_stopped_under_a_clock_that_jumps_are_linearizable() {
    let dir = folder();
    let place = Place::at(dir.path());
    let history = run(&place, None, linear::operations());
    is_linearizable(&place, history, Time::Clock);
    let connection = Connection::open(dir.path().join("collab.db")).unwrap();
    let integrity: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
}

#[test]
fn the_same_on_etcd_while_its_nodes_are_killed_and_stopped() {
    let dir = folder();
    let mut nodes = Nodes::start();
    let place = Place::with(dir.path(), nodes.place());
    let when = When {
        clock: &|| Now(0),
        deadline: Instant::now() + Duration::from_secs(10),
    };
    let ledger = ledger::open(&place.settings()).unwrap();
    ledger.create(when).unwrap();
    let enough = linear::operations() / ETCD_SHARE;
    let history = run(&place, Some(&mut nodes), enough);
    let hung = nodes.mend();
    is_linearizable(&place, history, Time::Ledger { but_for: &hung });
}

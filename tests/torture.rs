//! Many clients over a real sshd; they, the servers and what is between are
//! killed and stopped, and the server's clock jumps. What the clients were
//! answered must be linearizable.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use git_claim_api::serve;
use git_claim_api::verb::Request;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::linear::answer::{Answer, logged};
use crate::linear::ask::{ADMIN, Ask, What};
use crate::linear::check::{Time, check};
use crate::linear::client::{Backlog, Random, Walker};
use crate::linear::{self, Operation, ask};
use crate::support::client::{Client, Person, stdout};
use crate::support::clock::Clock;
use crate::support::forge::{Forge, REPO, url};
use crate::support::{issue, programs};

const CLIENTS: usize = 32;
const HOUR: i64 = 3_600;

/// Of how many operations one is made here; the others are made straight on the
/// ledger, by the plugin's tests.
const SHARE: u64 = 5;

/// So many answers are there from one blow to the next.
const EVERY: u64 = 10;

/// How long a process is stopped at most.
const STOP: u64 = 3_000;

/// The open issues of the bundle.
fn backlog() -> Backlog {
    let issues = [
        issue::CRASH,
        issue::UNICODE,
        issue::REOPENED,
        issue::RETITLED,
        issue::REVIEW,
    ];
    Backlog {
        issues: issues.map(str::to_owned).to_vec(),
        has_order: true,
    }
}

/// One `collab-lease serve`, from this side.
struct Connection {
    ssh: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Connection {
    fn open(person: &Person) -> Connection {
        let mut ssh = person
            .std_command("ssh", person.home())
            .args(["-S", "none", "forge"])
            .arg(format!("collab-lease serve {REPO}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Connection {
            to: ssh.stdin.take().unwrap(),
            from: BufReader::new(ssh.stdout.take().unwrap()),
            ssh,
        }
    }

    /// Asks one thing. `None`: the connection broke before the answer was there.
    fn ask(&mut self, ask: &Ask) -> Option<Answer> {
        let command = format!("collab-lease {}", ask.words(REPO));
        let request = Request::parse(command.as_bytes()).unwrap();
        let mut line = serve::object(&1.into(), &request).unwrap().to_string();
        line.push('\n');
        self.to.write_all(line.as_bytes()).ok()?;
        let mut line = String::new();
        self.from.read_line(&mut line).ok()?;
        let reply: Value = serde_json::from_str(line.strip_suffix('\n')?).unwrap();
        let exit = u8::try_from(reply["exit"].as_u64()?).unwrap();
        Some(Answer::read(exit, &reply["reply"].to_string()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// What all threads share.
struct Run<'a> {
    /// The people, by name; the admin among them.
    people: &'a BTreeMap<String, Person>,
    /// The processes of the clients.
    clients: Mutex<Vec<u32>>,
    answers: AtomicU64,
    /// The answer behind which the next blow falls.
    next_blow: AtomicU64,
    is_over: AtomicBool,
}

impl Run<'_> {
    /// Waits for a blow that is overdue: so it does not depend on how fast the
    /// machine is what a client has to bear.
    fn await_blow(&self) {
        let overdue = || {
            let next = self.next_blow.load(Ordering::Relaxed);
            self.answers.load(Ordering::Relaxed) > next + 2 * EVERY
        };
        while overdue() && !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One client, who goes on until the run is over.
struct Tormented<'a> {
    run: &'a Run<'a>,
    number: usize,
    /// Its worktree, for the commands that it types.
    worktree: Client,
    connections: BTreeMap<String, Connection>,
    random: Random,
}

impl Tormented<'_> {
    fn go(mut self, me: ask::Client) -> Vec<Operation> {
        let prefix = format!("p{}", self.number);
        let mut walker = Walker::new(me.clone(), &prefix, backlog(), None);
        let mut history = Vec::new();
        let mut sent = BTreeSet::new();
        while !self.run.is_over.load(Ordering::Relaxed) {
            self.run.await_blow();
            let ask = walker.ask();
            // The admin has a worktree elsewhere; and what is typed is a request of
            // its own, so it repeats none.
            let is_new = ask.id().is_none_or(|id| sent.insert(id.to_owned()));
            let is_typed = is_new && ask.client == me && self.random.one_in(20);
            let start = linear::moment();
            let answer = match typed(&ask).filter(|_| is_typed) {
                Some(words) => {
                    let answer = self.types(&words);
                    // It asks again where a connection broke, and what it asked
                    // first may still be done.
                    if answer.as_ref().is_some_and(|answer| answer.exit != 0) {
                        history.push(Operation {
                            ask: ask.clone(),
                            start,
                            answer: None,
                        });
                    }
                    answer
                }
                None => {
                    let answer = self.sends(&ask);
                    walker.learn(&ask, answer.as_ref());
                    answer
                }
            };
            if answer.is_some() {
                self.run.answers.fetch_add(1, Ordering::Relaxed);
            }
            history.push(Operation {
                ask,
                start,
                answer: answer.map(|answer| (linear::moment(), answer)),
            });
        }
        history
    }

    /// Over a connection that carries many requests.
    fn sends(&mut self, ask: &Ask) -> Option<Answer> {
        let name = &ask.client.name;
        if !self.connections.contains_key(name) {
            let connection = Connection::open(&self.run.people[name]);
            self.run.clients.lock().unwrap().push(connection.ssh.id());
            self.connections.insert(name.clone(), connection);
        }
        let answer = self.connections.get_mut(name)?.ask(ask);
        if answer.is_none()
            && let Some(broken) = self.connections.remove(name)
        {
            let pid = broken.ssh.id();
            self.run
                .clients
                .lock()
                .unwrap()
                .retain(|other| *other != pid);
        }
        answer
    }

    /// As a person does it. What isn't an answer of the server's is none.
    fn types(&self, words: &[String]) -> Option<Answer> {
        let mut child = self
            .worktree
            .person()
            .std_command("git", self.worktree.dir())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        self.run.clients.lock().unwrap().push(pid);
        let mut out = String::new();
        let read = child.stdout.take().unwrap().read_to_string(&mut out);
        // While it is listed, no other process can have its number.
        self.run
            .clients
            .lock()
            .unwrap()
            .retain(|other| *other != pid);
        let status = child.wait().unwrap();
        read.unwrap();
        let exit = status.code().filter(|exit| matches!(exit, 0 | 1 | 4))?;
        Some(Answer::read(u8::try_from(exit).unwrap(), &out))
    }
}

/// The words behind `git` for what a person would type. The command brings a
/// request id and a token of its own, so it is not for everything.
fn typed(ask: &Ask) -> Option<Vec<String>> {
    let mut words = match &ask.what {
        What::Acquire {
            issue,
            id,
            ttl,
            if_token: None,
            take_over: None,
        } => {
            let mut words = vec!["claim".to_owned(), issue.clone()];
            words.extend(["--note".to_owned(), id.clone()]);
            words.extend(ttl.iter().map(|ttl| format!("--ttl={ttl}s")));
            words
        }
        What::List => vec!["claims".to_owned()],
        _ => return None,
    };
    words.push(format!("--session={}", ask.client.session));
    words.push("--json".to_owned());
    Some(words)
}

/// What the processes have to bear.
#[derive(Debug, Default)]
struct Borne {
    clients_killed: u32,
    servers_killed: u32,
    stops: u32,
    jumps: u32,
}

/// Kills, stops and turns the clock until there are enough answers.
fn torment(run: &Run<'_>, forge: &Forge, clock: &Clock, enough: u64) -> Borne {
    let mut random = Random::new();
    let mut borne = Borne::default();
    let mut stopped: Vec<(u32, Instant)> = Vec::new();
    loop {
        let answers = run.answers.load(Ordering::Relaxed);
        if answers >= enough {
            break;
        }
        let now = Instant::now();
        stopped.retain(|(pid, until)| {
            let goes_on = *until <= now;
            if goes_on {
                signal(*pid, Signal::CONT);
            }
            !goes_on
        });
        if answers < run.next_blow.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        run.next_blow.fetch_add(EVERY, Ordering::Relaxed);
        let is_client = random.one_in(3);
        let pid = if is_client {
            random.pick(run.clients.lock().unwrap().iter().copied())
        } else if random.one_in(4) {
            random.pick(servers(forge).into_iter())
        } else {
            random.pick(forge.servers().into_iter())
        };
        match (random.below(30), pid) {
            (0..20, Some(pid)) => {
                signal(pid, Signal::KILL);
                *(if is_client {
                    &mut borne.clients_killed
                } else {
                    &mut borne.servers_killed
                }) += 1;
            }
            (20, Some(pid)) => {
                signal(pid, Signal::STOP);
                let time = Duration::from_millis(random.below(STOP));
                stopped.push((pid, now + time));
                borne.stops += 1;
            }
            (21..25, _) => {
                let hours = i64::try_from(random.below(3)).unwrap() - 1;
                clock.turn(hours * HOUR);
                borne.jumps += 1;
            }
            _ => {}
        }
    }
    run.is_over.store(true, Ordering::Relaxed);
    for (pid, _) in stopped {
        signal(pid, Signal::CONT);
    }
    borne
}

/// To a process that may be gone already.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// The processes at the forge's side: what sshd has started, and servers whose
/// session is gone already.
fn servers(forge: &Forge) -> Vec<u32> {
    let mut all = forge.servers();
    let config = forge.config();
    let config = config.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    all.extend(processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let words = fs::read_to_string(process.path().join("cmdline")).ok()?;
        let is_one = words.contains("git-claim-server") && words.contains(config);
        is_one.then_some(pid)
    }));
    all.sort_unstable();
    all.dedup();
    all
}

/// Ends whoever still works on a request that its client has given up.
fn settle(forge: &Forge) {
    loop {
        let servers = servers(forge);
        if servers.is_empty() {
            return;
        }
        for pid in servers {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn clients_and_servers_killed_under_a_clock_that_jumps_are_linearizable() {
    let forge = Forge::with_settings("\twrite = *\n\tadmin = root\n");
    let clock = Clock::new(forge.dir());
    let person = |name: &str| {
        let command = format!(
            "env {} {} openssh --config {} --as {name}",
            clock.assignments(),
            programs::server().display(),
            forge.config().display()
        );
        forge.person_behind(name, &format!("restrict,command=\"{command}\""))
    };
    // Two sessions a name: one's own elsewhere can be taken over.
    let names: Vec<String> = (0..CLIENTS)
        .map(|number| format!("name{}", number / 2))
        .collect();
    let mut people: BTreeMap<String, Person> = BTreeMap::new();
    for name in names.iter().map(String::as_str).chain([ADMIN, "observer"]) {
        people
            .entry(name.to_owned())
            .or_insert_with(|| person(name));
    }
    let run = Run {
        people: &people,
        clients: Mutex::default(),
        answers: AtomicU64::new(0),
        next_blow: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let tormented: Vec<(ask::Client, Tormented<'_>)> = names
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let me = ask::Client {
                name: name.clone(),
                session: format!("s{number}"),
            };
            let tormented = Tormented {
                run: &run,
                number,
                worktree: people[name].worktree(&url(REPO)),
                connections: BTreeMap::new(),
                random: Random::new(),
            };
            (me, tormented)
        })
        .collect();
    let began = Instant::now();
    let (borne, mut history) = std::thread::scope(|scope| {
        let clients: Vec<_> = tormented
            .into_iter()
            .map(|(me, tormented)| scope.spawn(move || tormented.go(me)))
            .collect();
        let enough = linear::operations() / SHARE;
        let borne = torment(&run, &forge, &clock, enough);
        let histories = clients.into_iter().map(|client| client.join().unwrap());
        (borne, histories.flatten().collect::<Vec<_>>())
    });
    println!("{borne:?} in {:.1?}", began.elapsed());
    settle(&forge);

    let observer = people["observer"].worktree(&url(REPO));
    let mut log = Vec::new();
    for issue in backlog().issues {
        let client = ask::Client {
            name: "observer".to_owned(),
            session: "o".to_owned(),
        };
        let what = What::Show {
            issue: issue.clone(),
        };
        let ask = Ask { client, what };
        let start = linear::moment();
        let shown = observer.verb(&ask.words(REPO)).success();
        let answer = Answer::read(0, &stdout(&shown));
        history.push(Operation {
            ask,
            start,
            answer: Some((linear::moment(), answer)),
        });
        let words = format!("log {REPO} {issue} --limit 1000000");
        log.extend(logged(&stdout(&observer.verb(&words).success())));
    }
    let exits = |code: u8| {
        let answers = history.iter().filter_map(|op| op.answer.as_ref());
        answers.filter(|(_, answer)| answer.exit == code).count()
    };
    println!(
        "exits: {:?}",
        [0, 1, 3, 4, 6].map(|code| (code, exits(code)))
    );
    let checked = check(&history, &log, Time::Clock)
        .unwrap_or_else(|found| linear::give_up(&found, &history));
    println!("{checked:?}");
    assert_eq!(forge.ledger().integrity(), "ok");
}

//! Many workers over a real sshd, killed at random like the servers that they
//! talk to, with claims that live for a few seconds.
//!
//! An issue is worked by the push that closes it. That it was worked once is
//! read from the bare repository; by whom, from what git's own hook saw; that
//! they held it then, from the history.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chrono::DateTime;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::support::bound::fetched;
use crate::support::client::{Client, stderr, stdout};
use crate::support::forge::{Forge, REPO, descendants, git};
use crate::support::{eventually, issue, random};

const WORKERS: usize = 16;
/// With those of the bundle that are open.
const ISSUES: usize = 150;
/// A few share a key; each is a session of its own.
const PEOPLE: [&str; 4] = ["ann", "ben", "cleo", "dan"];

/// Nothing is to be this late, on whatever machine.
const DEADLINE: Duration = Duration::from_secs(540);

/// Takes issues until there is a file `stop`. Where a tenure ends otherwise than
/// well, so does the worker: another one begins in a clone of its own, as on a
/// new machine.
const WORKER: &str = r#"
while [ ! -e "$SOAK/stop" ]; do
    ttl=$(($(od -An -N1 -tu1 /dev/urandom) % 3 + 2))s
    case $1 in
        run)
            git claim run --next -t $ttl -- sh -c '
                git claim start "$GIT_CLAIM_ISSUE" -t '$ttl' &&
                cd "../$(basename "$PWD").claims/$GIT_CLAIM_ISSUE" && exec sh "$SOAK/work"'
            code=$?
            ;;
        start)
            started=$(git claim start --next -t $ttl --json)
            code=$?
            if [ $code = 0 ]; then
                issue=$(expr "$started" : '.*"issue":"\([^"]*\)"')
                cd "../$(basename "$PWD").claims/$issue" || exit
                git claim run "$issue" -t $ttl -- sh "$SOAK/work"
                code=$?
                cd "$OLDPWD" || exit
            fi
            ;;
    esac
    echo $1 $code >>"$SOAK/codes"
    case $code in
        0) ;;
        3 | 4 | 6 | 103 | 104 | 106) sleep 1.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ') ;;
        *) exit ;;
    esac
done
"#;

/// The work on an issue, in the worktree that is bound to its claim: a commit on
/// its branch, and one that closes it.
const WORK: &str = r#"
set -e
git fetch -q origin "refs/issues/$GIT_CLAIM_ISSUE"
case $(git log -1 --format='%(trailers:key=State,valueonly)' FETCH_HEAD) in
    closed*) exit 0 ;; # by a push that passed the fence just before this tenure began
esac
option=$(git config push.pushOption)
token=${option#*:} token=${token%:*}
# Some also leave it to somebody else, whom no watchdog sees, to push for them.
if [ $(($(od -An -N1 -tu1 /dev/urandom) % 5)) = 0 ]; then
    echo "$option" >"$SOAK/late/.$GIT_CLAIM_ISSUE.$token"
    mv "$SOAK/late/.$GIT_CLAIM_ISSUE.$token" "$SOAK/late/$(basename "$HOME").$GIT_CLAIM_ISSUE.$token"
fi
sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')
git commit -q --allow-empty -m "Work on $GIT_CLAIM_ISSUE" -m "Token: $token"
closing=$(git commit-tree -p FETCH_HEAD -m "Close" -m "State: closed
Token: $token" 'FETCH_HEAD^{tree}')
exec git push -q --atomic origin "+HEAD:refs/heads/claim/$GIT_CLAIM_ISSUE" "$closing:refs/issues/$GIT_CLAIM_ISSUE"
"#;

/// In place of the hook that `setup` has made, which it asks: notes each push.
const HOOK: &str = r#"#!/bin/sh
refs=$(cat)
began=$(date +%s.%N)
said=$(printf '%s\n' "$refs" | "$0.fence" 2>&1)
code=$?
ended=$(date +%s.%N)
echo "$said" >&2
case $code-$said in
    0-*) verdict=passed ;;
    1-*"is not yours"*) verdict=stale ;;
    *) verdict=broken ;;
esac
echo "$began $ended $verdict $GIT_CLAIM_PRINCIPAL ${GIT_PUSH_OPTION_0:--}" $refs >>SOAK/pushes
exit $code
"#;

/// One worker, until it is dropped.
struct Worker(Child);

impl Worker {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = kill_process_group(pid(self.0.id()), Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// One of them, if there is any.
fn any<T>(mut of: Vec<T>) -> Option<T> {
    let length = u64::try_from(of.len()).unwrap();
    (length > 0).then(|| of.swap_remove(usize::try_from(random(length)).unwrap()))
}

/// What a process runs.
fn program(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

struct Soak<'a> {
    forge: &'a Forge,
    /// What the scripts write into.
    dir: PathBuf,
    /// A clone of each person's, of which the workers get copies.
    clones: Vec<Client>,
    hired: usize,
    workers: Vec<Worker>,
    /// Who was stopped, and until when.
    stopped: Vec<(u32, Instant)>,
    /// What was killed or stopped, and how often.
    killed: BTreeMap<String, usize>,
}

impl Soak<'_> {
    fn new(forge: &Forge) -> Soak<'_> {
        let dir = forge.dir().join("soak");
        for folder in ["late", "taken"] {
            fs::create_dir_all(dir.join(folder)).unwrap();
        }
        fs::write(dir.join("work"), WORK).unwrap();
        forge.set_up_fence();
        let hook = repo(forge).join("hooks/pre-receive");
        fs::rename(&hook, hook.with_extension("fence")).unwrap();
        fs::write(&hook, HOOK.replace("SOAK", dir.to_str().unwrap())).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        forge.add_issues(ISSUES - 5);
        let clones = PEOPLE.map(|name| fetched(forge, name));
        for clone in &clones {
            let home = clone.person().home();
            let file = home.join("ssh_config");
            let socket = home.join("connection");
            let config = read(&file) + &format!("    ControlPath {}\n", socket.display());
            fs::write(&file, config).unwrap();
            log_in(clone);
        }
        Soak {
            clones: clones.into(),
            forge,
            dir,
            hired: 0,
            workers: Vec::new(),
            stopped: Vec::new(),
            killed: BTreeMap::new(),
        }
    }

    fn hire(&mut self) {
        let clone = &self.clones[self.hired % PEOPLE.len()];
        let kind = ["run", "start"][self.hired / PEOPLE.len() % 2];
        self.hired += 1;
        let folder = clone.dir().with_file_name(format!("clone{}", self.hired));
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(clone.dir()).arg(&folder);
        assert!(copy.status().unwrap().success());
        let said = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("said"))
            .unwrap();
        let mut command = clone.person().std_command("sh", &folder);
        command
            .args(["-c", WORKER, "worker", kind])
            .env("SOAK", &self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .process_group(0);
        self.workers.push(Worker(command.spawn().unwrap()));
    }

    /// Until every issue is closed. What goes wrong goes by what was done, not by
    /// the time: a slow machine has as much of it as a fast one.
    fn run(&mut self) {
        let end = Instant::now() + DEADLINE;
        let mut closed = 0;
        while closed < ISSUES {
            let before = std::mem::replace(&mut closed, self.closed());
            for _ in before..closed {
                self.make_trouble();
            }
            let now = Instant::now();
            self.stopped.retain(|(stopped, until)| {
                let is_over = *until <= now;
                if is_over {
                    let _ = kill_process(pid(*stopped), Signal::CONT);
                }
                !is_over
            });
            self.workers.retain_mut(|worker| !worker.has_ended());
            while self.workers.len() < WORKERS {
                self.hire();
            }
            for clone in &self.clones {
                log_in(clone);
            }
            assert!(now < end, "{closed} of {ISSUES} are done; {}", self.tell());
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stop();
        for (stopped, _) in self.stopped.drain(..) {
            let _ = kill_process(pid(stopped), Signal::CONT);
        }
        for worker in &mut self.workers {
            worker.0.wait().unwrap();
        }
        self.workers.clear();
    }

    fn stop(&self) {
        let _ = fs::write(self.dir.join("stop"), "");
    }

    fn closed(&self) -> usize {
        let states = git(
            &repo(self.forge),
            &[
                "for-each-ref",
                "--format=%(contents:trailers:key=State,valueonly)",
                "refs/issues",
            ],
        );
        states.lines().filter(|state| *state == "closed").count()
    }

    fn make_trouble(&mut self) {
        let worker = any(self.workers.iter().collect());
        let worker = worker.map(|worker| worker.0.id()).unwrap();
        match random(8) {
            0 | 1 => {
                if let Some(victim) = any(descendants(worker)) {
                    self.kill("a worker's", victim, Signal::KILL);
                }
            }
            2 => {
                let _ = kill_process_group(pid(worker), Signal::KILL);
                *self.killed.entry("a whole worker".to_owned()).or_default() += 1;
            }
            3 => {
                if let Some(victim) = any(descendants(worker)) {
                    self.kill("stopped a worker's", victim, Signal::STOP);
                    let until = Instant::now() + Duration::from_secs(5);
                    self.stopped.push((victim, until));
                }
            }
            4 | 5 => {
                let mut servers = self.forge.servers();
                // sshd is there all the time, and others for a moment.
                if random(2) == 0 {
                    servers.retain(|server| !program(*server).starts_with("sshd"));
                }
                if let Some(victim) = any(servers) {
                    // git itself would leave its locks.
                    let signal = match program(victim).as_str() {
                        "git" => Signal::TERM,
                        _ => Signal::KILL,
                    };
                    self.kill("a server's", victim, signal);
                }
            }
            _ => {}
        }
    }

    fn kill(&mut self, whose: &str, victim: u32, signal: Signal) {
        let what = format!("{whose} {}", program(victim));
        if kill_process(pid(victim), signal).is_ok() {
            *self.killed.entry(what).or_default() += 1;
        }
    }

    /// What happened so far, for whoever has to find out.
    fn tell(&self) -> String {
        let mut codes = BTreeMap::<String, usize>::new();
        for line in read(&self.dir.join("codes")).lines() {
            *codes.entry(line.to_owned()).or_default() += 1;
        }
        let mut verdicts = BTreeMap::<String, usize>::new();
        for push in self.pushes() {
            *verdicts.entry(push.verdict).or_default() += 1;
        }
        let said = read(&self.dir.join("said"));
        let said: Vec<&str> = said.lines().rev().take(40).collect();
        format!(
            "{} workers ended with {codes:?}, pushes {verdicts:?}, killed {:?}; at last they said\n{}",
            self.hired,
            self.killed,
            said.join("\n")
        )
    }

    fn pushes(&self) -> Vec<Push> {
        read(&self.dir.join("pushes"))
            .lines()
            .map(Push::parse)
            .collect()
    }
}

/// Keeps a connection for all that somebody runs, as one's ssh_config may have
/// it: it costs much less than one for each.
fn log_in(client: &Client) {
    let home = client.person().home();
    let socket = home.join("connection");
    if !socket.exists() {
        let mut ssh = client.command("ssh");
        // If it is killed in this very moment, the next look is soon.
        ssh.args(["-fNM", "forge"]).ok().ok();
    }
}

impl Drop for Soak<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn repo(forge: &Forge) -> PathBuf {
    forge.repos().join(REPO)
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// A push, as the hook has noted it.
struct Push {
    began: f64,
    ended: f64,
    verdict: String,
    pusher: String,
    issue: String,
    token: u64,
    /// Old, new, name, and so on.
    refs: Vec<String>,
}

impl Push {
    fn parse(line: &str) -> Push {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_else(|| panic!("{line}"));
        let (began, ended, verdict, pusher, option) = (next(), next(), next(), next(), next());
        let option: Vec<&str> = option.split(':').collect();
        Push {
            began: began.parse().unwrap(),
            ended: ended.parse().unwrap(),
            verdict,
            pusher,
            issue: option[0].strip_prefix("claim-token=").unwrap().to_owned(),
            token: option[1].parse().unwrap(),
            refs: words.collect(),
        }
    }

    /// The tenure whose token it shows.
    fn tenure(&self) -> (String, u64) {
        (self.issue.clone(), self.token)
    }
}

/// A tenure, as the history tells it.
struct Tenure {
    holder: String,
    from: f64,
    ended: f64,
    /// When it was over for certain.
    until: f64,
    how: String,
}

/// Every tenure by issue and token.
type History = BTreeMap<(String, u64), Tenure>;

fn history(client: &Client) -> History {
    let log = stdout(&client.verb(&format!("log {REPO} --limit 100000")).success());
    let log: Value = serde_json::from_str(&log).unwrap();
    let time = |value: &Value| DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap();
    #[allow(clippy::cast_precision_loss)] // seconds of this century
    let seconds = |value: &Value| time(value).timestamp() as f64;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let tenure = |tenure: &Value| {
        let ended = seconds(&tenure["ended_at"]);
        let how = text(&tenure["how"]);
        // A second that has begun counts, but for an end that was set before.
        let rest = if how == "expired" { 0.0 } else { 1.0 };
        Tenure {
            holder: text(&tenure["holder"]),
            from: seconds(&tenure["acquired_at"]),
            ended,
            until: ended + rest,
            how,
        }
    };
    let tenures = log["tenures"].as_array().unwrap().iter();
    tenures
        .map(|entry| {
            let key = (text(&entry["issue"]), entry["token"].as_u64().unwrap());
            (key, tenure(entry))
        })
        .collect()
}

/// Pushes what workers have left to it, with the token that they had: some at
/// once, others when their claim is over, and then nothing may come of it.
/// Answers how often that was.
fn push_late(spare: &[Client], dir: &Path) -> usize {
    let mut refused = 0;
    loop {
        let is_over = dir.join("stop").exists();
        let names = fs::read_dir(dir.join("late")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let Some(name) = names.find(|name| !name.starts_with('.')) else {
            if is_over {
                return refused;
            }
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let taken = dir.join("taken").join(&name);
        if fs::rename(dir.join("late").join(&name), &taken).is_err() {
            continue;
        }
        let [person, issue, token] = name.split('.').collect::<Vec<_>>()[..] else {
            panic!("{name}");
        };
        let person = PEOPLE.iter().position(|name| *name == person).unwrap();
        let client = &spare[person];
        let option = read(&taken);
        let branch = format!("+HEAD:refs/heads/late/{issue}.{token}");
        let push = || {
            client
                .git(["push", "-q", "-o", option.trim_end(), "origin", &branch])
                .assert()
        };
        if random(2) == 0 {
            push();
            continue;
        }
        let token: u64 = token.parse().unwrap();
        while !ended(client, issue, token) {
            std::thread::sleep(Duration::from_millis(500));
        }
        eventually("the refusal", || {
            let told = push();
            assert!(!told.get_output().status.success(), "{name} was pushed");
            // Else the server was killed.
            stderr(&told).contains("is not yours any more")
        });
        refused += 1;
    }
}

/// Whether the server says that a tenure is over.
fn ended(client: &Client, issue: &str, token: u64) -> bool {
    let asked = client.run(&format!("git claim log {issue} --json"));
    let Ok(log) = serde_json::from_str::<Value>(&stdout(&asked)) else {
        return false;
    };
    let tenures = log["tenures"].as_array().unwrap();
    let tenure = tenures.iter().find(|tenure| tenure["token"] == token);
    !tenure.unwrap()["ended_at"].is_null()
}

#[test]
fn every_issue_is_worked_once_by_its_holder_whatever_is_killed() {
    let forge = Forge::with_settings("\twrite = *\n");
    let soak = Soak::new(&forge);
    let (dir, spare) = (soak.dir.clone(), soak.clones.clone());
    let (soak, refused) = std::thread::scope(|scope| {
        // Its end is theirs too, however it comes.
        let mut soak = soak;
        let late = [(); 2].map(|()| scope.spawn(|| push_late(&spare, &dir)));
        soak.run();
        let refused: usize = late.into_iter().map(|late| late.join().unwrap()).sum();
        (soak, refused)
    });
    eventually("the end of all claims", || {
        spare[0].json("git claims", 0)["leases"] == serde_json::json!([])
    });
    let pushes = soak.pushes();
    let history = history(&spare[0]);
    every_issue_was_worked_once(&repo(&forge), &pushes, &history);
    what_passed_was_held(&pushes, &history);
    no_two_held_an_issue_at_once(&history);
    assert_eq!(forge.ledger().integrity(), "ok");
    // It was no calm day.
    let stale = pushes.iter().filter(|push| push.verdict == "stale").count();
    let killed: usize = soak.killed.values().sum();
    assert!(
        refused > 0 && stale > 0 && killed >= ISSUES / 3,
        "{}",
        soak.tell()
    );
}

/// Each issue was closed by one commit, which came by a push with the token that
/// the commit names, as did the branch.
fn every_issue_was_worked_once(repo: &Path, pushes: &[Push], history: &History) {
    let closed = git(
        repo,
        &[
            "for-each-ref",
            "--format=%(refname:lstrip=2) %(objectname) %(parent) %(contents:trailers:key=Token,valueonly)",
            "refs/issues",
        ],
    );
    let lines = closed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(issue::CLOSED));
    let mut worked = 0;
    for line in lines {
        let [issue, closing, before, token] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        worked += 1;
        let states = git(
            repo,
            &["log", "--format=%(trailers:key=Token,valueonly)", closing],
        );
        assert_eq!(
            states.lines().filter(|state| !state.is_empty()).count(),
            1,
            "{issue}"
        );
        let branch = format!("refs/heads/claim/{issue}");
        let on_branch = git(
            repo,
            &[
                "log",
                "-1",
                "--format=%(trailers:key=Token,valueonly)",
                &branch,
            ],
        );
        assert_eq!(on_branch, token, "{issue}");
        let moved = [before, closing, &format!("refs/issues/{issue}")];
        let push = pushes.iter().find(|push| {
            push.verdict == "passed" && push.refs.windows(3).any(|refs| refs == moved)
        });
        let push = push.unwrap_or_else(|| panic!("{issue} was closed by no push that passed"));
        assert_eq!((&*push.issue, &*push.token.to_string()), (issue, token));
        let how = &history[&push.tenure()].how;
        assert!(
            matches!(&**how, "closed" | "released" | "expired"),
            "{issue}: {how}"
        );
    }
    assert_eq!(worked, ISSUES);
}

/// The fence let nobody pass whose claim was over when it began, and refused
/// nobody whose claim went on.
fn what_passed_was_held(pushes: &[Push], history: &History) {
    for push in pushes {
        let key = push.tenure();
        let tenure = &history[&key];
        assert_eq!(push.pusher, tenure.holder, "{key:?}");
        match &*push.verdict {
            "passed" => assert!(
                tenure.from <= push.ended && push.began < tenure.until,
                "{key:?} passed"
            ),
            "stale" => assert!(tenure.ended <= push.ended, "{key:?} was refused"),
            _ => {}
        }
    }
}

fn no_two_held_an_issue_at_once(history: &History) {
    let mut before: Option<(&(String, u64), &Tenure)> = None;
    for (key, tenure) in history {
        match before {
            Some((last, over)) if last.0 == key.0 => {
                assert_eq!(last.1 + 1, key.1, "{key:?}");
                assert!(over.ended <= tenure.from, "{last:?} and {key:?}");
            }
            _ => assert_eq!(key.1, 1, "{key:?}"),
        }
        before = Some((key, tenure));
    }
}

//! A throwaway forge: a real sshd on loopback, and bare repositories behind
//! `git-claim-server openssh`.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use assert_fs::TempDir;

use super::client::{Client, Person};
use super::ledger::Ledger;
use super::programs;

/// The repository that every forge has, as clients name it.
pub const REPO: &str = "acme/app.git";

/// Who may do what on every forge; `eve` has a key and no right.
pub const RIGHTS: &str = "[claim]
\tread = dave
\twrite = alice
\twrite = bob
\tadmin = carol
";

/// A forge; all of it is gone when it is dropped.
pub struct Forge {
    dir: TempDir,
    sshd: Option<Sshd>,
    /// Whose key sshd knows already.
    people: RefCell<BTreeSet<String>>,
}

impl Forge {
    /// A forge with [`REPO`], the six issues of the bundle in it, and the
    /// rights above.
    pub fn new() -> Forge {
        Forge::with_settings(RIGHTS)
    }

    /// The same with other settings behind `reposDir`.
    pub fn with_settings(settings: &str) -> Forge {
        Forge::with_sshd_settings(settings, "")
    }

    /// The same, and `sshd` behind what all sshds here are told.
    pub fn with_sshd_settings(settings: &str, sshd: &str) -> Forge {
        let mut forge = Forge::without_sshd(settings);
        forge.start_sshd(sshd);
        forge
    }

    /// Repositories and settings alone; nobody listens.
    pub fn without_sshd(settings: &str) -> Forge {
        Forge::below(TempDir::new().unwrap(), settings)
    }

    /// The same in memory, where there is such a folder: for tests to which the
    /// disk is nothing but slow.
    pub fn in_memory(settings: &str) -> Forge {
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new());
        Forge::below(dir.unwrap(), settings)
    }

    fn below(dir: TempDir, settings: &str) -> Forge {
        let forge = Forge {
            dir,
            sshd: None,
            people: RefCell::default(),
        };
        fs::create_dir_all(forge.repos()).unwrap();
        forge.configure(settings);
        forge.add_repo(REPO);
        forge.fetch_issues(REPO);
        forge
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `claim.reposDir`.
    pub fn repos(&self) -> PathBuf {
        self.dir().join("repos")
    }

    /// The settings file.
    pub fn config(&self) -> PathBuf {
        self.dir().join("config")
    }

    /// Writes the settings file: `reposDir`, and `settings` behind it.
    pub fn configure(&self, settings: &str) {
        let repos = self.repos();
        let text = format!("[claim]\n\treposDir = {}\n{settings}", repos.display());
        fs::write(self.config(), text).unwrap();
    }

    /// A bare repository at `path` below `reposDir`, with one commit.
    pub fn add_repo(&self, path: &str) -> PathBuf {
        let repo = self.repos().join(path);
        fs::create_dir_all(&repo).unwrap();
        git(&repo, &["init", "-q", "--bare", "-b", "main"]);
        git(
            &repo,
            &["fetch", "-q", &bundle(), "refs/heads/*:refs/heads/*"],
        );
        repo
    }

    /// Gives a repository the six issues.
    pub fn fetch_issues(&self, path: &str) {
        let repo = self.repos().join(path);
        git(
            &repo,
            &["fetch", "-q", &bundle(), "refs/issues/*:refs/issues/*"],
        );
    }

    /// Adds so many open issues to the five of the bundle, each younger than the
    /// one before.
    pub fn add_issues(&self, count: usize) {
        let stream: String = (0..count)
            .map(|n| {
                format!(
                    "commit refs/issues/{n:08x}-0000-4000-8000-000000000000\n\
                     committer forge <forge@example.org> {} +0000\n\
                     data 14\nIssue {n:08x}\n",
                    1_800_000_000 + n
                )
            })
            .collect();
        import(&self.repos().join(REPO), &stream, &[]);
    }

    /// What `git-claim-server setup` says, which puts the fence into [`REPO`].
    pub fn set_up_fence(&self) -> String {
        let output = Command::new(programs::server())
            .args(["setup", REPO, "--config"])
            .arg(self.config())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The ledger as it lies on the disk.
    pub fn ledger(&self) -> Ledger {
        Ledger::at(self.repos().join("collab.db"))
    }

    /// Somebody whose key the forge knows under `name`.
    pub fn person(&self, name: &str) -> Person {
        self.person_behind_server(name, &format!("--as {name}"))
    }

    /// A second key, `key`, of the person whom the forge knows under `name`.
    pub fn second_key(&self, key: &str, name: &str) -> Person {
        self.person_behind_server(key, &format!("--as {name} --key SHA256:{key:A<43}"))
    }

    /// Somebody whose forced command has these words.
    pub fn person_behind_server(&self, name: &str, words: &str) -> Person {
        let command = format!(
            "{} openssh --config {} {words}",
            programs::server().display(),
            self.config().display()
        );
        self.person_behind(name, &format!("restrict,command=\"{command}\""))
    }

    /// Somebody of whose calls the forge keeps count. `script` is run for each,
    /// and finds the server's words in `$server`.
    pub fn counted_person(&self, name: &str, script: &str) -> (Person, Calls) {
        let folder = self.dir().join("calls");
        fs::create_dir_all(&folder).unwrap();
        let calls = Calls(folder.join(name));
        let file = folder.join(format!("{name}.sh"));
        let text = format!(
            "echo \"$SSH_ORIGINAL_COMMAND\" >>{calls}\n\
             server='{server} openssh --config {config} --as {name}'\n\
             {script}\n",
            calls = calls.0.display(),
            server = programs::server().display(),
            config = self.config().display(),
        );
        fs::write(&file, text).unwrap();
        let options = format!("restrict,command=\"sh {}\"", file.display());
        (self.person_behind(name, &options), calls)
    }

    /// Somebody whose line in authorized_keys begins with `options`.
    pub fn person_behind(&self, name: &str, options: &str) -> Person {
        let home = self.dir().join(name);
        let person = Person::new(name, home);
        if self.people.borrow_mut().insert(name.to_owned()) {
            person.make_home();
            let public = person.make_key();
            let mut keys = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.sshd_dir().join("authorized_keys"))
                .unwrap();
            writeln!(keys, "{options} {public}").unwrap();
            if let Some(sshd) = &self.sshd {
                person.knows_host("forge", sshd.port, &self.sshd_dir().join("known_hosts"));
            }
        }
        person
    }

    /// A new worktree of [`REPO`], and so a new session, of `name`.
    pub fn client(&self, name: &str) -> Client {
        self.person(name).worktree(&url(REPO))
    }

    /// All processes that serve somebody at this moment: sshd's own for each
    /// connection, and what runs behind them.
    pub fn servers(&self) -> Vec<u32> {
        descendants(self.sshd.as_ref().expect("sshd runs").process.id())
    }

    /// Where sshd listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.sshd.as_ref().expect("sshd runs").port
    }

    /// What sshd has logged until now.
    pub fn log(&self) -> Vec<String> {
        self.sshd.as_ref().expect("sshd runs").lines()
    }

    /// How often somebody has logged in.
    pub fn logins(&self) -> usize {
        self.log()
            .iter()
            .filter(|line| line.contains("Accepted publickey"))
            .count()
    }

    /// Ends sshd and every connection; the port is then closed.
    pub fn stop_sshd(&mut self) {
        self.sshd = None;
    }

    fn sshd_dir(&self) -> PathBuf {
        self.dir().join("sshd")
    }

    fn start_sshd(&mut self, settings: &str) {
        let dir = self.sshd_dir();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("authorized_keys"), "").unwrap();
        let host_key = dir.join("host_key");
        keygen(&host_key, "forge");
        let public = fs::read_to_string(dir.join("host_key.pub")).unwrap();
        // The port was free a moment ago; somebody else may have been quicker.
        let sshd = (0..10)
            .find_map(|_| Sshd::start(&dir, settings))
            .expect("sshd starts");
        let known = format!("[127.0.0.1]:{} {public}", sshd.port);
        fs::write(dir.join("known_hosts"), known).unwrap();
        self.sshd = Some(sshd);
    }
}

/// What somebody has asked of a forge, a line for each time that the server's
/// program was started.
pub struct Calls(PathBuf);

impl Calls {
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// As if nothing had been asked yet.
    pub fn forget(&self) {
        fs::write(&self.0, "").unwrap();
    }

    /// The second word of each.
    pub fn subverbs(&self) -> Vec<String> {
        let second = |line: &String| line.split(' ').nth(1).unwrap_or_default().to_owned();
        self.lines().iter().map(second).collect()
    }
}

/// The URL of a repository of the forge.
pub fn url(repo: &str) -> String {
    format!("ssh://forge/{repo}")
}

/// Makes an SSH key without a passphrase.
pub fn keygen(file: &Path, comment: &str) {
    let status = Command::new(programs::need("ssh-keygen"))
        .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
        .arg(file)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Closes an issue as git-issue does.
pub fn close_issue(repo: &Path, issue_ref: &str) {
    let message = "Close issue\n\nState: closed";
    let tree = format!("{issue_ref}^{{tree}}");
    let commit = git(
        repo,
        &["commit-tree", "-p", issue_ref, "-m", message, &tree],
    );
    git(repo, &["update-ref", issue_ref, &commit]);
}

/// Makes in `repo` what a stream for `git fast-import` says.
pub fn import(repo: &Path, stream: &str, options: &[&str]) {
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .args(options)
        .current_dir(repo)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = import.stdin.take().unwrap();
    stdin.write_all(stream.as_bytes()).unwrap();
    drop(stdin);
    assert!(import.wait().unwrap().success());
}

/// Runs git for the fixture itself, away from the user's configuration; gives
/// its output.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "forge")
        .env("GIT_AUTHOR_EMAIL", "forge@example.org")
        .env("GIT_COMMITTER_NAME", "forge")
        .env("GIT_COMMITTER_EMAIL", "forge@example.org")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

fn bundle() -> String {
    let file = programs::source().join("tests/cases/git-issue.bundle");
    file.display().to_string()
}

/// A running sshd.
struct Sshd {
    process: Child,
    port: u16,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl Sshd {
    /// Starts an sshd on a free port; `None` if it does not listen there.
    fn start(dir: &Path, settings: &str) -> Option<Sshd> {
        if programs::is_root() {
            // Where sshd wants to lock its unprivileged child into.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = dir.join("sshd_config");
        // MaxStartups and the rest stay as they are in stock.
        let text = format!(
            "ListenAddress 127.0.0.1\n\
             Port {port}\n\
             HostKey {dir}/host_key\n\
             PidFile none\n\
             AuthorizedKeysFile {dir}/authorized_keys\n\
             AcceptEnv *\n\
             StrictModes no\n\
             UsePAM no\n\
             PasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n\
             # bash takes itself for a login's first shell behind sshd, and would\n\
             # run the account's own .bashrc, whatever that prints and costs.\n\
             SetEnv SHLVL=1\n\
             {settings}",
            dir = dir.display()
        );
        fs::write(&config, text).unwrap();
        let mut process = Command::new(programs::need("sshd"))
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Log::default());
        let stderr = process.stderr.take().unwrap();
        let writer = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                writer.lines.lock().unwrap().push(line);
                writer.grown.notify_all();
            }
            writer.lines.lock().unwrap().push(ENDED.to_owned());
            writer.grown.notify_all();
        });
        let mut lines = log.lines.lock().unwrap();
        loop {
            if lines.iter().any(|line| line.contains("Server listening")) {
                break;
            }
            if lines.iter().any(|line| line == ENDED) {
                process.wait().unwrap();
                return None;
            }
            lines = log.grown.wait(lines).unwrap();
        }
        drop(lines);
        Some(Sshd { process, port, log })
    }

    /// The log up to this moment: waits for the trace of a connection of its
    /// own, behind which nothing older can come.
    fn lines(&self) -> Vec<String> {
        let probe = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let trace = format!("{}", probe.local_addr().unwrap().port());
        drop(probe);
        let mut lines = self.log.lines.lock().unwrap();
        while !lines.iter().any(|line| line.contains(&trace)) {
            lines = self.log.grown.wait(lines).unwrap();
        }
        lines.clone()
    }
}

/// Stands in the log where sshd's output ends.
const ENDED: &str = "(sshd has ended)";

impl Drop for Sshd {
    fn drop(&mut self) {
        // The connections first: they would outlive the listener, and so would
        // the masters that clients keep at their other end.
        let listener = self.process.id();
        for pid in children(listener) {
            kill(pid);
        }
        kill(listener);
        let _ = self.process.wait();
    }
}

/// The processes that `parent` has started and not yet waited for.
pub fn children(parent: u32) -> Vec<u32> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    fs::read_to_string(file)
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The processes that descend from `ancestor`.
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let mut found = children(ancestor);
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(children(parent));
        next += 1;
    }
    found
}

/// Ends a process; one that has ended is fine.
fn kill(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

//! ssh with a connection that later calls use too.
//!
//! The `openssh` crate speaks to a master's socket without a process of its
//! own, which takes 2 ms where a new connection takes a hundred times that. We
//! start the master ourselves, with the options that the crate would use: the
//! crate's own launch goes on in the background when nobody waits for it any
//! longer, and Ctrl-C would leave it behind.

use std::error::Error as _;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use openssh::{Child, Session};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::line::Line;
use super::read_both;
use super::terminal::Echo;
use super::words::{Login, Trouble};
use crate::answer::Answer;
use crate::hex::{hex, random};
use crate::pause::between;
use crate::url::Ssh;

/// How long a master that is alive may take to say so.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);

/// How long a connection outlives a call that was killed before it could close
/// it.
const UNKEPT_SECONDS: NonZeroU64 = NonZeroU64::MIN.saturating_add(9);

/// How often is looked whether another call is done.
const LOOK: Duration = Duration::from_millis(40);

/// Connections to one server.
#[derive(Debug)]
pub struct Mux {
    ssh: Ssh,
    folder: PathBuf,
    /// What a kept connection is found by, see [`key`].
    key: String,
    /// Where the connection that is kept is found: a link to its socket.
    link: PathBuf,
    persist: Option<NonZeroU64>,
    without: Vec<String>,
    /// What this call uses, once it has something.
    in_use: Option<Master>,
    /// Whether a connection that is there already will do: not after one broke,
    /// as its master may not know that yet.
    any_will_do: bool,
    /// Sockets of masters that must not outlive this call.
    to_close: Vec<PathBuf>,
}

/// A live master.
#[derive(Debug, Clone)]
struct Master {
    socket: PathBuf,
    owner: Owner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This call started it, and nobody else knows it.
    Call,
    /// All calls of ours: one finds it through the link.
    Calls,
    /// The user: never closed by us.
    User,
}

/// Whom ssh may ask for a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Nobody,
    Somebody,
}

impl Asks {
    fn options(self) -> &'static [&'static str] {
        match self {
            Asks::Nobody => &["-oBatchMode=yes"],
            Asks::Somebody => &[],
        }
    }
}

/// Why a command did not run.
enum NotRun {
    /// The master would not open one more session. Nothing was asked.
    Refused(String),
    /// The connection broke.
    Broken(String),
}

impl Mux {
    /// `without`: the variables that belong to the current repository.
    pub fn new(ssh: Ssh, folder: PathBuf, persist: Option<NonZeroU64>, without: &[String]) -> Mux {
        let home = std::env::var_os("HOME").unwrap_or_default();
        let key = key(&ssh, &home);
        let link = folder.join(&key);
        Mux {
            ssh,
            folder,
            key,
            link,
            persist,
            without: without.to_vec(),
            in_use: None,
            any_will_do: true,
            to_close: Vec::new(),
        }
    }

    pub async fn ask(&mut self, line: &str) -> Result<Answer, Trouble> {
        let mut child = self.start(line, openssh::Stdio::null).await?;
        let read = read_both(child.stdout().take(), child.stderr().take()).await;
        let (stdout, stderr) = read.map_err(|error| Trouble::Lost(error.to_string()))?;
        let code = code(child.wait().await);
        self.ended(code);
        Ok(Answer {
            code,
            stdout,
            stderr,
        })
    }

    pub async fn open(&mut self, line: &str) -> Result<Line, Trouble> {
        let mut child = self.start(line, openssh::Stdio::piped).await?;
        let (input, output, errors) = (
            child.stdin().take(),
            child.stdout().take(),
            child.stderr().take(),
        );
        let ended = async move { code(child.wait().await) };
        Ok(Line::to(input, output, errors, ended))
    }

    /// A command has ended, and without an exit code if the connection did: its
    /// master may not know that yet.
    pub fn ended(&mut self, code: Option<i32>) {
        if code.is_none() {
            self.in_use = None;
            self.any_will_do = false;
        }
    }

    async fn start(
        &mut self,
        line: &str,
        input: fn() -> openssh::Stdio,
    ) -> Result<Child<Arc<Session>>, Trouble> {
        // Since the last request it may have gone: one that is kept does so when
        // nobody has used it for a while.
        let master = match &self.in_use {
            Some(master) if is_alive(&master.socket).await => master.clone(),
            _ => self.connect().await?,
        };
        self.in_use = Some(master.clone());
        match start(&master.socket, line, input()).await {
            Err(NotRun::Refused(_)) if master.owner != Owner::Call => {
                self.start_beside(master.socket, line, input).await
            }
            done => done.map_err(|why| self.trouble(why)),
        }
    }

    /// The same where one connection is full, as sshd has MaxSessions: over the
    /// kept one, if that is another by now and has room, else over a new one. It
    /// is kept in place of the full one, which others would only find full again.
    async fn start_beside(
        &mut self,
        mut full: PathBuf,
        line: &str,
        input: fn() -> openssh::Stdio,
    ) -> Result<Child<Arc<Session>>, Trouble> {
        let _turn = self.turn().await;
        if self.persist.is_some()
            && let Some(socket) = self.kept()
            && socket != full
            && is_alive(&socket).await
        {
            match start(&socket, line, input()).await {
                Err(NotRun::Refused(_)) => full = socket,
                done => {
                    self.in_use = Some(Master {
                        socket,
                        owner: Owner::Calls,
                    });
                    return done.map_err(|why| self.trouble(why));
                }
            }
        }
        let master = self.launch_and_publish(Some(&full)).await?;
        self.in_use = Some(master.clone());
        let started = start(&master.socket, line, input()).await;
        started.map_err(|why| self.trouble(why))
    }

    /// Waits until no other call replaces a full connection: those that find one
    /// full together share the next. It lasts until it is dropped.
    async fn turn(&self) -> Option<File> {
        self.persist?;
        let folder = File::open(&self.folder).ok()?;
        while flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            sleep(between(LOOK / 2, LOOK)).await;
        }
        Some(folder)
    }

    fn trouble(&self, why: NotRun) -> Trouble {
        match why {
            NotRun::Refused(words) => Trouble::Unreachable {
                words,
                hint: format!("`{}` shows what is wrong", Login::plain(&self.ssh)),
            },
            NotRun::Broken(words) => Trouble::Lost(words),
        }
    }

    /// A live connection: one of ours, else the user's, else a new one.
    async fn connect(&mut self) -> Result<Master, Trouble> {
        if self.persist.is_some() && self.any_will_do {
            if let Some(socket) = self.kept()
                && is_alive(&socket).await
            {
                return Ok(Master {
                    socket,
                    owner: Owner::Calls,
                });
            }
            self.sweep();
            sweep_all(&self.folder).await;
        }
        if self.any_will_do
            && let Some(socket) = self.socket_of_user().await
            && is_alive(&socket).await
        {
            return Ok(Master {
                socket,
                owner: Owner::User,
            });
        }
        self.launch_and_publish(None).await
    }

    /// A new connection, for which ssh asks at the terminal, or by its program
    /// with a window, before it goes to the background. What follows uses it, so
    /// that one is asked once.
    pub async fn connect_by_hand(&mut self) -> Result<(), Trouble> {
        let master = self.launch(Asks::Somebody).await?;
        self.in_use = Some(self.publish_for_all(master, None).await);
        Ok(())
    }

    async fn launch_and_publish(&mut self, full: Option<&Path>) -> Result<Master, Trouble> {
        let master = self.launch(Asks::Nobody).await?;
        Ok(self.publish_for_all(master, full).await)
    }

    /// The master as it is owned now: by all calls, where it could be published.
    async fn publish_for_all(&mut self, mut master: Master, full: Option<&Path>) -> Master {
        if self.persist.is_some() && self.publish(&master.socket, full).await {
            self.to_close.retain(|socket| *socket != master.socket);
            master.owner = Owner::Calls;
        }
        master
    }

    /// The socket of the connection that is kept.
    fn kept(&self) -> Option<PathBuf> {
        fs::read_link(&self.link).ok()
    }

    /// Removes the socket of a master that does not answer.
    fn sweep(&self) {
        if let Some(socket) = self.kept()
            && socket.parent() == Some(&self.folder)
        {
            let _ = fs::remove_file(socket);
        }
    }

    /// The user's own `ControlPath` for this server.
    async fn socket_of_user(&self) -> Option<PathBuf> {
        let output = self
            .program()
            .arg("-G")
            .args(self.destination())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let path = text
            .lines()
            .find_map(|line| line.strip_prefix("controlpath "))?;
        (path != "none").then(|| PathBuf::from(path))
    }

    /// A new connection. It is closed at the end of this call unless it is
    /// published.
    async fn launch(&mut self, asks: Asks) -> Result<Master, Trouble> {
        let unusable = |error: std::io::Error| Trouble::Unreachable {
            words: format!("ssh cannot be run: {error}"),
            hint: "is OpenSSH installed?".to_owned(),
        };
        let name = format!("{}.{}", self.key, random::<4>().map_err(unusable)?);
        let socket = self.folder.join(&name);
        self.to_close.push(socket.clone());
        let mut log = unnamed_file(&self.folder.join(format!("{name}.log"))).map_err(unusable)?;
        let seconds = self.persist.unwrap_or(UNKEPT_SECONDS);
        let _echo = (asks == Asks::Somebody).then(Echo::keep);
        let status = self
            .program()
            .args(["-M", "-f", "-N", "-T", "-a", "-x", "-S"])
            .arg(&socket)
            .arg(format!("-oControlPersist={seconds}s"))
            .args(asks.options())
            .args([
                "-oStrictHostKeyChecking=yes",
                // The user's forwards are for the user's own sessions.
                "-oClearAllForwardings=yes",
                // A kept connection that has died must not hang later calls.
                "-oServerAliveInterval=15",
            ])
            .args(self.destination())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone().map_err(unusable)?)
            .kill_on_drop(true)
            .status()
            .await
            .map_err(unusable)?;
        if !status.success() {
            self.to_close.retain(|path| *path != socket);
            let _ = fs::remove_file(&socket);
            let mut said = Vec::new();
            log.rewind().map_err(unusable)?;
            log.take(64 * 1024)
                .read_to_end(&mut said)
                .map_err(unusable)?;
            let said = String::from_utf8_lossy(&said);
            return Err(Trouble::connecting(&said, &Login::plain(&self.ssh)));
        }
        Ok(Master {
            socket,
            owner: Owner::Call,
        })
    }

    /// Makes a new master the one that later calls find, unless another call
    /// was quicker: one that lives is replaced only if it is `full`. Answers
    /// whether it did.
    async fn publish(&self, socket: &Path, full: Option<&Path>) -> bool {
        if let Some(kept) = self.kept()
            && Some(kept.as_path()) != full
            && is_alive(&kept).await
        {
            return false;
        }
        let mut temporary = socket.as_os_str().to_owned();
        temporary.push(".link");
        let temporary = PathBuf::from(temporary);
        let published = std::os::unix::fs::symlink(socket, &temporary)
            .and_then(|()| fs::rename(&temporary, &self.link));
        if published.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        published.is_ok()
    }

    /// The connection that is in use does not answer: nobody shall use it
    /// again.
    pub fn give_up(&mut self) {
        self.any_will_do = false;
        if let Some(Master { socket, owner }) = self.in_use.take()
            && owner != Owner::User
            && !self.to_close.contains(&socket)
        {
            self.to_close.push(socket);
        }
    }

    /// Closes what must not outlive this call.
    pub async fn close(&mut self) {
        for socket in std::mem::take(&mut self.to_close) {
            if socket.exists() {
                let session = Session::resume_mux(socket.clone().into_boxed_path(), None);
                let _ = timeout(ALIVE_WITHIN, session.close()).await;
            }
            // ssh has removed it itself, unless it was killed.
            let _ = fs::remove_file(&socket);
        }
    }

    fn program(&self) -> Command {
        let mut command = Command::new("ssh");
        for variable in &self.without {
            command.env_remove(variable);
        }
        command
    }

    fn destination(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(port) = self.ssh.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        words.extend(["--".to_owned(), self.ssh.host.clone()]);
        words
    }
}

/// Removes what masters left behind that have ended: links that lead nowhere,
/// and sockets behind which nobody is. A link whose key has changed since is
/// found by no call any more.
async fn sweep_all(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_name().to_str().is_some_and(is_our_name) {
            continue;
        }
        let is_left = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => !path.exists(),
            // ssh listens before a socket has its name, so a refusal is an end.
            // Nobody waits here: a master that is busy is none that has ended.
            Ok(kind) if kind.is_socket() => UnixStream::connect(&path)
                .await
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused),
            _ => false,
        };
        if is_left {
            let _ = fs::remove_file(&path);
        }
    }
}

/// The length of a key.
const KEY_DIGITS: usize = 16;

/// `<key>`, or `<key>.` with the rest of a socket's or a temporary link's name.
fn is_our_name(name: &str) -> bool {
    let (key, rest) = name.split_once('.').unwrap_or((name, "x"));
    key.len() == KEY_DIGITS && key.bytes().all(|b| b.is_ascii_hexdigit()) && is_rest(rest)
}

fn is_rest(rest: &str) -> bool {
    let rest = rest.strip_suffix(".link").unwrap_or(rest);
    !rest.is_empty() && !rest.contains('.')
}

/// The identities that ssh offers where no other is configured.
const DEFAULT_IDENTITIES: [&str; 5] = [
    "id_rsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
];

/// What a kept connection is found by: what decides where ssh goes and as whom,
/// as far as a few looks can tell. Whoever changes the configuration, an
/// identity with a default name, or the agent gets a new connection.
///
/// Not covered, as finding out would cost more than the connection saves: files
/// that the configuration includes, and identities and certificates that it
/// names; which keys the agent has; an account's home that is not HOME; what
/// the server itself no longer lets in. There the kept connection serves until
/// it has been idle for `claim.controlPersist`.
fn key(ssh: &Ssh, home: &OsStr) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(ssh.host.as_bytes());
    add(&ssh.port.unwrap_or(0).to_le_bytes());
    add(program_on_path().as_os_str().as_encoded_bytes());
    add(home.as_encoded_bytes());
    let agent = std::env::var_os("SSH_AUTH_SOCK").unwrap_or_default();
    add(agent.as_encoded_bytes());
    let own = Path::new(home).join(".ssh");
    let identities = DEFAULT_IDENTITIES.map(|name| own.join(name));
    let configurations = [own.join("config"), PathBuf::from("/etc/ssh/ssh_config")];
    for file in configurations.iter().chain(&identities) {
        let (time, size) = fs::metadata(file)
            .map(|metadata| (metadata.mtime_nsec() ^ metadata.mtime(), metadata.size()))
            .unwrap_or_default();
        add(&time.to_le_bytes());
        add(&size.to_le_bytes());
    }
    hex(&hash.finalize()[..KEY_DIGITS / 2])
}

/// The `ssh` that is run: a wrapper may give it another configuration.
fn program_on_path() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("ssh"))
        .find(|program| program.is_file())
        .unwrap_or_default()
}

/// A file without a name, for what ssh says: nothing is left of it, whatever
/// happens.
fn unnamed_file(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Whether a master listens at `socket`.
async fn is_alive(socket: &Path) -> bool {
    if !socket.exists() {
        return false;
    }
    let session = Session::resume_mux(socket.into(), None);
    matches!(timeout(ALIVE_WITHIN, session.check()).await, Ok(Ok(())))
}

async fn start(
    socket: &Path,
    line: &str,
    input: openssh::Stdio,
) -> Result<Child<Arc<Session>>, NotRun> {
    Arc::new(Session::resume_mux(socket.into(), None))
        .arc_raw_command(line)
        .stdin(input)
        .stdout(openssh::Stdio::piped())
        .stderr(openssh::Stdio::piped())
        .spawn()
        .await
        .map_err(not_run)
}

/// `None`: it ended without one.
fn code(status: Result<ExitStatus, openssh::Error>) -> Option<i32> {
    match status {
        Ok(status) => status.code(),
        // The crate makes an error of the code 127.
        Err(openssh::Error::Remote(_)) => Some(127),
        Err(_) => None,
    }
}

/// The crate does not name the master's refusal as a type of its own; its text
/// is all there is.
fn not_run(error: openssh::Error) -> NotRun {
    let words = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    if words.starts_with("Server refused the request") {
        NotRun::Refused(words)
    } else {
        NotRun::Broken(words)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use assert_fs::TempDir;

    use super::*;

    fn ssh(host: &str, port: Option<u16>) -> Ssh {
        Ssh {
            host: host.to_owned(),
            port,
            path: "p".to_owned(),
        }
    }

    #[test]
    fn each_server_user_and_port_has_its_own_connection() {
        let home = OsStr::new("/nonexistent");
        let keys = [
            key(&ssh("git@h", None), home),
            key(&ssh("git@h", Some(22)), home),
            key(&ssh("ann@h", None), home),
            key(&ssh("h", None), home),
        ];
        for (at, one) in keys.iter().enumerate() {
            assert!(is_our_name(one), "{one}");
            assert!(!keys[at + 1..].contains(one));
        }
        assert_eq!(keys[0], key(&ssh("git@h", None), home));
    }

    #[test]
    fn another_configuration_or_identity_is_another_connection() {
        let home = TempDir::new().unwrap();
        let own = home.path().join(".ssh");
        fs::create_dir(&own).unwrap();
        let key = || key(&ssh("git@h", None), home.path().as_os_str());
        let mut seen = vec![key()];
        for name in ["config", "id_ed25519", "id_rsa"] {
            fs::write(own.join(name), "one").unwrap();
            seen.push(key());
            fs::write(own.join(name), "another").unwrap();
            seen.push(key());
        }
        for (at, one) in seen.iter().enumerate() {
            assert!(!seen[at + 1..].contains(one), "{at}");
        }
        assert_eq!(seen.last(), Some(&key()));
    }

    #[tokio::test]
    async fn what_ended_masters_left_is_swept_and_nothing_else() {
        let dir = TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, at(name)).unwrap();
        let live = at("0123456789abcdef.01234567");
        let _listener = UnixListener::bind(&live).unwrap();
        link(&live, "0123456789abcdef");
        // A socket stays when who listened is gone.
        let dead = at("fedcba9876543210.01234567");
        drop(UnixListener::bind(&dead).unwrap());
        let gone = at("gone");
        link(&gone, "00000000000000aa");
        link(&gone, "00000000000000aa.01234567.link");
        link(&gone, "not-ours");
        fs::write(at("00000000000000bb"), "").unwrap();
        // ssh binds a socket under a longer name before it listens there.
        drop(UnixListener::bind(at("00000000000000cc.01234567.Xy")).unwrap());
        sweep_all(dir.path()).await;
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "00000000000000bb",
                "00000000000000cc.01234567.Xy",
                "0123456789abcdef",
                "0123456789abcdef.01234567",
                "not-ours",
            ]
        );
    }
}

//! Real etcd nodes: one alone, or a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use assert_fs::TempDir;

/// Where a node is.
#[derive(Debug, Clone)]
pub struct Home {
    pub address: IpAddr,
    pub port: u16,
    pub peer_port: u16,
    /// The words before a command that is to run there.
    pub within: Vec<String>,
}

impl Home {
    /// On loopback, at ports that nobody listens on now.
    fn new() -> Home {
        Home {
            address: Ipv4Addr::LOCALHOST.into(),
            port: free_port(),
            peer_port: free_port(),
            within: Vec::new(),
        }
    }

    /// Where clients reach it.
    pub fn clients(&self) -> SocketAddr {
        (self.address, self.port).into()
    }

    fn peers(&self) -> SocketAddr {
        (self.address, self.peer_port).into()
    }
}

/// One node.
pub struct Node {
    name: String,
    dir: PathBuf,
    pub home: Home,
    options: Vec<String>,
    child: Option<Child>,
}

/// Nodes that belong together; they end with it.
pub struct Cluster {
    pub nodes: Vec<Node>,
    peers: String,
    is_new: bool,
    _dir: TempDir,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Cluster {
    /// Starts `count` nodes that are quick to elect a leader.
    pub fn start(count: usize, options: &[&str]) -> Cluster {
        Cluster::start_at((0..count).map(|_| Home::new()), options)
    }

    /// The same, each at a place of its own.
    pub fn start_at(homes: impl Iterator<Item = Home>, options: &[&str]) -> Cluster {
        // In memory where that can be had: no test here is about the disk.
        let shared = Path::new("/dev/shm");
        let dir = TempDir::new_in(shared).or_else(|_| TempDir::new());
        Cluster::start_in(dir.unwrap(), homes, options)
    }

    /// Starts `count` nodes whose data lies on the disk.
    pub fn start_on_disk(count: usize) -> Cluster {
        let homes = (0..count).map(|_| Home::new());
        Cluster::start_in(TempDir::new().unwrap(), homes, &[])
    }

    fn start_in(dir: TempDir, homes: impl Iterator<Item = Home>, options: &[&str]) -> Cluster {
        let options = [
            "--heartbeat-interval=20",
            "--election-timeout=200",
            "--log-level=error",
        ]
        .iter()
        .chain(options);
        let options: Vec<String> = options.map(ToString::to_string).collect();
        let nodes: Vec<Node> = (1..)
            .zip(homes)
            .map(|(number, home)| Node {
                name: format!("n{number}"),
                dir: dir.path().join(format!("n{number}")),
                home,
                options: options.clone(),
                child: None,
            })
            .collect();
        let peers = nodes
            .iter()
            .map(|node| format!("{}=http://{}", node.name, node.home.peers()));
        let peers = peers.collect::<Vec<_>>().join(",");
        let mut cluster = Cluster {
            nodes,
            peers,
            is_new: true,
            _dir: dir,
        };
        for number in 0..cluster.nodes.len() {
            cluster.begin(number);
        }
        cluster.is_new = false;
        cluster.wait();
        cluster
    }

    /// The ledger at `prefix`, as the setting names it.
    pub fn place(&self, prefix: &str) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|node| node.home.clients().to_string());
        format!("etcd://{}/{prefix}", nodes.collect::<Vec<_>>().join(","))
    }

    /// Starts a node that does not run.
    pub fn begin(&mut self, number: usize) {
        let (peers, is_new) = (self.peers.clone(), self.is_new);
        let node = &mut self.nodes[number];
        let client = format!("http://{}", node.home.clients());
        let peer = format!("http://{}", node.home.peers());
        // It ends with the thread that has begun it, whatever ends that.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .args(&node.home.within)
            .args(["etcd", "--name", &node.name])
            .arg("--data-dir")
            .arg(&node.dir)
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers])
            .args([
                "--initial-cluster-state",
                if is_new { "new" } else { "existing" },
            ])
            .args(&node.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        node.child = Some(child);
    }

    /// Kills a node.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut child) = self.nodes[number].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Waits until a majority answers.
    pub fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.nodes.iter().all(|node| !node.answers()) {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of the node that leads.
    pub fn leader(&self) -> usize {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            for (number, node) in self.nodes.iter().enumerate() {
                let status = node.post("/v3/maintenance/status", "{}");
                let leads = |status: &serde_json::Value| {
                    status["leader"].is_string()
                        && status["leader"] == status["header"]["member_id"]
                };
                if status.as_ref().is_some_and(leads) {
                    return number;
                }
            }
            assert!(Instant::now() < end, "nobody leads");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Node {
    /// Asks this node, and answers what it says, if that is no error.
    pub fn post(&self, path: &str, body: &str) -> Option<serde_json::Value> {
        use std::io::{Read as _, Write as _};

        let patience = Duration::from_secs(3);
        let address = self.home.clients();
        let mut stream = std::net::TcpStream::connect_timeout(&address, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.lines().next()?.contains(" 200 ").then_some(())?;
        serde_json::from_str(body).ok()
    }

    fn answers(&self) -> bool {
        self.child.is_some() && self.post("/v3/kv/range", r#"{"key":"YQ=="}"#).is_some()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.nodes.len() {
            self.kill(number);
        }
    }
}

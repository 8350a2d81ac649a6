//! A network of its own, in which machines can be cut off: namespaces of the
//! kernel's on one bridge.

use std::fs::File;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::etcd::Home;

/// Some machines on a bridge, at which everybody else is.
pub struct Network {
    bridge: Machine,
    machines: Vec<Machine>,
}

/// A network namespace, and the process that keeps it.
struct Machine(Child);

/// Is in a namespace, until dropped.
pub struct Inside {
    before: File,
}

impl Network {
    /// `None`, with a line about it, where one may not be made: that takes root.
    pub fn of(count: u8) -> Option<Network> {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can make a network of its own");
            return None;
        }
        let network = Network {
            bridge: Machine::start(),
            machines: (0..count).map(|_| Machine::start()).collect(),
        };
        let bridge = &network.bridge;
        bridge.ip("link add name hub type bridge");
        bridge.ip("link set dev hub up");
        bridge.ip(&format!("address add {}/24 dev hub", address(200)));
        for (number, machine) in (1..).zip(&network.machines) {
            let keeper = machine.0.id();
            bridge.ip(&format!(
                "link add port{number} type veth peer name eth0 netns {keeper}"
            ));
            bridge.ip(&format!("link set dev port{number} master hub up"));
            machine.ip("link set dev lo up");
            machine.ip("link set dev eth0 up");
            machine.ip(&format!("address add {}/24 dev eth0", address(number)));
        }
        Some(network)
    }

    /// A place for a node on each machine.
    pub fn homes(&self) -> impl Iterator<Item = Home> {
        (1..).zip(&self.machines).map(|(number, machine)| Home {
            address: address(number).into(),
            port: 2379,
            peer_port: 2380,
            within: vec!["nsenter".to_owned(), format!("--net={}", machine.space())],
        })
    }

    /// Has this thread, and those that it starts, be where the bridge is.
    pub fn enter(&self) -> Inside {
        self.bridge.enter()
    }

    /// The same on one of the machines.
    pub fn enter_machine(&self, number: usize) -> Inside {
        self.machines[number].enter()
    }

    /// Cuts a machine off from all others.
    pub fn cut(&self, number: usize) {
        self.bridge
            .ip(&format!("link set dev port{} down", number + 1));
    }

    pub fn mend(&self, number: usize) {
        self.bridge
            .ip(&format!("link set dev port{} up", number + 1));
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

impl Machine {
    fn start() -> Machine {
        // It ends with the thread that has begun it, whatever ends that.
        let mut keeper = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--net"])
            .args(["sh", "-c", "echo; exec sleep infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut made = [0];
        keeper.stdout.take().unwrap().read_exact(&mut made).unwrap();
        Machine(keeper)
    }

    fn space(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    fn ip(&self, words: &str) {
        let done = Command::new("nsenter")
            .args([&format!("--net={}", self.space()), "ip"])
            .args(words.split(' '))
            .status()
            .unwrap();
        assert!(done.success(), "ip {words}");
    }

    fn enter(&self) -> Inside {
        let before = File::open("/proc/thread-self/ns/net").unwrap();
        go_to(&File::open(self.space()).unwrap());
        Inside { before }
    }
}

fn go_to(space: &File) {
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(space.as_fd(), kind).unwrap();
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        go_to(&self.before);
    }
}

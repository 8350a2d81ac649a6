//! The nodes of a ledger on etcd, which are killed and stopped while others work
//! with it.

use git_claim_api::ledger::LedgerPlace;
use rustix::process::{Pid, Signal, kill_process};

use crate::etcd::Cluster;
use crate::linear;
use crate::linear::client::Random;

/// So many answers are there from one blow to the next.
const EVERY: u64 = 100;

/// How long an old leader may take to learn that there is a new one:
/// nanoseconds.
const GRACE: u64 = 1_500_000_000;

pub struct Nodes {
    cluster: Cluster,
    due: u64,
    /// The node that is dead or stopped; never more than one.
    down: Option<Down>,
    borne: Borne,
    /// The term that was last seen, and when.
    term: (u64, u64),
    /// When a leader may have ended leases that others had renewed: etcd before
    /// 3.4.31 and 3.5.13 lets one that hung do so, on waking.
    doubtful: Vec<(u64, u64)>,
}

enum Down {
    Dead(usize),
    Stopped(usize, u64),
}

/// What the nodes have had to bear.
#[derive(Debug, Default)]
struct Borne {
    leaders_killed: u32,
    followers_killed: u32,
    leaders_stopped: u32,
    followers_stopped: u32,
    restarts_of_all: u32,
}

impl Nodes {
    pub fn start() -> Nodes {
        let cluster = Cluster::start(3, &[]);
        cluster.leader();
        Nodes {
            cluster,
            due: EVERY,
            down: None,
            borne: Borne::default(),
            term: (0, linear::moment()),
            doubtful: Vec::new(),
        }
    }

    pub fn place(&self) -> LedgerPlace {
        self.cluster.place("claims").parse().unwrap()
    }

    /// Deals the next blow, if it is due behind so many answers.
    pub fn bear(&mut self, answers: u64, random: &mut Random) {
        self.look_at_the_term();
        if answers < self.due {
            return;
        }
        self.due = answers + EVERY;
        if self.down.is_some() {
            self.get_up();
            return;
        }
        let leader = self.cluster.leader();
        let follower = (leader + 1) % 3;
        match random.below(9) {
            0..3 => {
                self.borne.leaders_killed += 1;
                self.kill(leader);
            }
            3..5 => {
                self.borne.followers_killed += 1;
                self.kill(follower);
            }
            5..7 => {
                self.borne.leaders_stopped += 1;
                self.stop(leader);
            }
            7 => {
                self.borne.followers_stopped += 1;
                self.stop(follower);
            }
            _ => {
                self.borne.restarts_of_all += 1;
                (0..3).for_each(|node| self.cluster.kill(node));
                (0..3).for_each(|node| self.cluster.begin(node));
            }
        }
    }

    fn kill(&mut self, node: usize) {
        self.cluster.kill(node);
        self.down = Some(Down::Dead(node));
    }

    fn stop(&mut self, node: usize) {
        let moment = linear::moment();
        self.signal(node, Signal::STOP);
        self.down = Some(Down::Stopped(node, moment));
    }

    fn get_up(&mut self) {
        match self.down.take() {
            None => {}
            Some(Down::Dead(node)) => self.cluster.begin(node),
            Some(Down::Stopped(node, since)) => {
                self.signal(node, Signal::CONT);
                self.doubt(since);
            }
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        let pid = i32::try_from(self.cluster.nodes[node].pid()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    fn doubt(&mut self, since: u64) {
        self.doubtful.push((since, linear::moment() + GRACE));
    }

    /// A leader can be left behind without a blow of ours, on a busy machine.
    fn look_at_the_term(&mut self) {
        let down = match self.down {
            Some(Down::Dead(node) | Down::Stopped(node, _)) => Some(node),
            None => None,
        };
        let up = (0..3).find(|node| Some(*node) != down).unwrap();
        let status = self.cluster.nodes[up].post("/v3/maintenance/status", "{}");
        let term = status.and_then(|status| status["raftTerm"].as_str()?.parse().ok());
        let Some(term) = term else { return };
        let (last, when) = std::mem::replace(&mut self.term, (term, linear::moment()));
        if term != last {
            self.doubt(when);
        }
    }

    /// Has all of them run again; when leases may have ended early.
    pub fn mend(&mut self) -> Vec<(u64, u64)> {
        self.get_up();
        self.look_at_the_term();
        self.cluster.leader();
        println!("nodes: {:?}", self.borne);
        self.doubtful.clone()
    }
}

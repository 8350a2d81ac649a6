//! The engines that the same tests run over, each with a clock that the tests
//! set.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use git_claim_api::ledger::LedgerPlace;
use git_claim_plugin::claim::Now;
use git_claim_plugin::ledger::{self, EtcdLedger, Ledger, SqliteLedger, When};

use crate::etcd::Cluster;
use crate::time_machine::TimeMachine;

/// A kind of ledger.
pub trait Engine {
    /// Whether its clock knows whole seconds alone.
    const WHOLE_SECONDS: bool;

    /// Whether it goes by the host's clock, which may be set back.
    const BY_HOSTS_CLOCK: bool;

    /// An empty ledger, whose files, if it has any, lie in `dir`.
    fn new(dir: &Path, now_ms: i64) -> Self;

    /// As the settings name it.
    fn place(&self) -> LedgerPlace;

    /// Opens it once more.
    fn open(&self) -> Box<dyn Ledger>;

    /// Lets time pass, or go back, in its own clock.
    fn step_ms(&self, ms: i64);
}

/// A file.
pub struct Sqlite {
    pub path: PathBuf,
}

impl Engine for Sqlite {
    const WHOLE_SECONDS: bool = false;
    const BY_HOSTS_CLOCK: bool = true;

    fn new(dir: &Path, _: i64) -> Sqlite {
        Sqlite {
            path: dir.join("collab.db"),
        }
    }

    fn place(&self) -> LedgerPlace {
        LedgerPlace::File(self.path.clone())
    }

    fn open(&self) -> Box<dyn Ledger> {
        Box::new(SqliteLedger::open(&self.path).unwrap())
    }

    // It has none.
    fn step_ms(&self, _: i64) {}
}

thread_local! {
    /// The node of this test, and how many ledgers it holds.
    static NODE: Cluster = Cluster::start(1, &["--heartbeat-interval=10", "--election-timeout=50"]);
    static LEDGERS: Cell<u32> = const { Cell::new(0) };
}

fn node_port() -> u16 {
    NODE.with(|cluster| cluster.nodes[0].home.port)
}

/// A prefix in etcd.
pub struct Etcd {
    pub time: TimeMachine,
    pub prefix: String,
}

impl Engine for Etcd {
    const WHOLE_SECONDS: bool = true;
    const BY_HOSTS_CLOCK: bool = false;

    fn new(_: &Path, now_ms: i64) -> Etcd {
        let port = node_port();
        LEDGERS.set(LEDGERS.get() + 1);
        let etcd = Etcd {
            time: TimeMachine::before(port, now_ms),
            prefix: format!("test/{}", LEDGERS.get()),
        };
        let when = When {
            clock: &|| Now(now_ms),
            deadline: Instant::now() + Duration::from_secs(10),
        };
        etcd.ledger().create(when).unwrap();
        etcd
    }

    fn place(&self) -> LedgerPlace {
        let place = format!("etcd://127.0.0.1:{}/{}", self.time.port, self.prefix);
        place.parse().unwrap()
    }

    fn open(&self) -> Box<dyn Ledger> {
        Box::new(self.ledger())
    }

    fn step_ms(&self, ms: i64) {
        self.time.step_ms(ms);
    }
}

impl Etcd {
    /// The same past the gateway with a time of its own.
    pub fn node_place(&self) -> String {
        format!("etcd://127.0.0.1:{}/{}", node_port(), self.prefix)
    }

    pub fn ledger(&self) -> EtcdLedger {
        let LedgerPlace::Etcd(place) = self.place() else {
            unreachable!()
        };
        EtcdLedger::open(&place, &Default::default()).unwrap()
    }
}

/// A ledger that is there already, in its own time.
pub struct Placed(pub LedgerPlace);

impl Engine for Placed {
    const WHOLE_SECONDS: bool = true;
    const BY_HOSTS_CLOCK: bool = false;

    fn new(_: &Path, _: i64) -> Placed {
        unreachable!("it is there before")
    }

    fn place(&self) -> LedgerPlace {
        self.0.clone()
    }

    fn open(&self) -> Box<dyn Ledger> {
        let settings = serde_json::json!({ "ledger": self.0 });
        ledger::open(&serde_json::from_value(settings).unwrap()).unwrap()
    }

    fn step_ms(&self, _: i64) {}
}

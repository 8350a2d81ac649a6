//! The ledger in an etcd cluster: one transaction a change, guarded by what it
//! read, and a lease of etcd's under each claim that has an end.
//!
//! No clock of a front end counts here. A tenure with an end lives as long as
//! its key in `live/` does, which etcd's leader removes; all times are those of
//! the node that answers.

mod change;
mod client;
mod copy;
mod keys;
mod kv;
mod look;
mod pause;
mod record;
mod turn;

use std::path::Path;
use std::time::Instant;

use git_claim_api::ledger::EtcdPlace;
use git_claim_api::settings::EtcdFiles;

use self::change::{Change, Kept, Tried, Witnessed};
use self::client::{CallError, Client};
use self::keys::Keys;
use self::kv::{Edit, Guard, Range};
use self::look::Look;
use self::record::{Made, Meta, SCHEMA, Witness};
use super::contents::Contents;
use super::copy::moved_on;
use super::{Ledger, LedgerError, Transaction, Verdict, Version, View, When};
use crate::random;

pub use self::copy::Target;

/// How often a change is tried while others change the same.
const MOST_ROUNDS: u32 = 1_000;

/// One ledger, below one prefix.
#[derive(Debug)]
pub struct EtcdLedger {
    place: EtcdPlace,
    client: Client,
    keys: Keys,
}

impl EtcdLedger {
    /// Nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// A file that it is to be reached with can't be used.
    pub fn open(place: &EtcdPlace, files: &EtcdFiles) -> Result<EtcdLedger, LedgerError> {
        let client = Client::new(place, files).map_err(|why| LedgerError::Unfit {
            path: place.to_string().into(),
            why,
        })?;
        Ok(EtcdLedger {
            place: place.clone(),
            client,
            keys: Keys::below(&place.prefix),
        })
    }

    fn unfit(&self, why: &str) -> LedgerError {
        LedgerError::Unfit {
            path: self.place.to_string().into(),
            why: why.to_owned(),
        }
    }

    fn failed(&self, error: CallError) -> LedgerError {
        let ledger = self.place.to_string();
        match error {
            CallError::Refused(refusal) if refusal.is_full() => LedgerError::Quota(ledger),
            CallError::Refused(refusal) if refusal.is_compacted() => LedgerError::Again,
            CallError::Refused(refusal) if refusal.is_lost_lease() => LedgerError::Again,
            CallError::Refused(refusal) => LedgerError::Etcd {
                ledger,
                why: refusal.message,
            },
            CallError::Unsent(why) | CallError::Unknown(why) => {
                LedgerError::Unreachable { ledger, why }
            }
        }
    }

    /// Looks from the start again while what is read at is compacted away.
    fn look<T>(
        &self,
        when: When<'_>,
        mut look: impl FnMut(&Look<'_>) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        loop {
            match Look::begin(self, when.deadline).and_then(|begun| look(&begun)) {
                Err(LedgerError::Again) if Instant::now() < when.deadline => {}
                done => return done,
            }
        }
    }

    fn unsure(&self) -> LedgerError {
        LedgerError::Unsure {
            ledger: self.place.to_string(),
            why: "no node of it has answered".to_owned(),
        }
    }

    /// Whether a change without an answer was made.
    fn was_made(
        &self,
        witness: &Witnessed,
        name: &str,
        deadline: Instant,
    ) -> Result<Made, LedgerError> {
        let range = Range::one(witness.key.clone());
        let (_, found) = self
            .client
            .ranges(&[range], None, deadline)
            .map_err(|_| self.unsure())?;
        let pair = found.first().and_then(|found| found.pairs.first());
        let Some(pair) = pair else {
            // Rows and aliases are never removed.
            return Ok(Made::No);
        };
        let record: Witness = record::read(&pair.value).unwrap_or_default();
        Ok(record.writes.made(name, pair.writes - witness.writes))
    }
}

impl Ledger for EtcdLedger {
    fn read(
        &self,
        when: When<'_>,
        look: &mut dyn FnMut(&dyn View) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        self.look(when, |begun| look(begun))
    }

    fn change(
        &self,
        when: When<'_>,
        work: &mut dyn FnMut(&mut dyn Transaction) -> Result<Verdict, LedgerError>,
    ) -> Result<(), LedgerError> {
        let deadline = when.deadline;
        // The change's own name, by which it is found if no answer comes.
        let name = random::id()[..12].to_owned();
        let mut kept = Kept::default();
        let mut open: Option<Witnessed> = None;
        for round in 1..=MOST_ROUNDS {
            if Instant::now() >= deadline {
                break;
            }
            if let Some(open) = &open {
                match self.was_made(open, &name, deadline)? {
                    // What `work` has said of it still stands.
                    Made::Yes => return Ok(()),
                    Made::No => {}
                    Made::CannotTell => return Err(self.unsure()),
                }
            }
            let begun = match Look::begin(self, deadline) {
                Err(_) if open.is_some() => break,
                begun => begun?,
            };
            let mut change = Change::new(begun, &name, kept);
            let tried = match work(&mut change) {
                Ok(Verdict::Commit) => change.commit()?,
                Ok(Verdict::Discard) => {
                    if open.is_none() {
                        change.leave();
                    }
                    return Ok(());
                }
                Err(LedgerError::Again) => Tried::Not(change.kept()),
                Err(_) if open.is_some() => break,
                Err(error) => return Err(error),
            };
            kept = match tried {
                Tried::Made => return Ok(()),
                Tried::Not(kept) => kept,
                Tried::Conflict(kept) => {
                    pause::between_rounds(round, deadline);
                    kept
                }
                Tried::Full(witness) => {
                    // etcd makes the change that uses its quota up, and says
                    // that it has no space left.
                    return match self.was_made(&witness, &name, deadline)? {
                        Made::Yes => Ok(()),
                        Made::No => Err(LedgerError::Quota(self.place.to_string())),
                        Made::CannotTell => Err(self.unsure()),
                    };
                }
                Tried::Open { witness, kept } => {
                    open = Some(witness);
                    pause::pause(round, deadline);
                    kept
                }
            };
        }
        Err(if open.is_some() {
            self.unsure()
        } else {
            LedgerError::Busy
        })
    }

    fn backup(&self, when: When<'_>, file: &Path) -> Result<u64, LedgerError> {
        let contents = Ledger::contents(self, when)?;
        super::copy::to_file(&contents.moved_to(when.clock.now()), file)
    }

    fn create(&self, when: When<'_>) -> Result<(), LedgerError> {
        let meta = |cluster| Meta {
            schema: SCHEMA,
            id: random::id(),
            cluster,
            seq_base: 0,
            moved_to: None,
        };
        let (header, _) = self
            .client
            .ranges(&[Range::one(self.keys.meta())], None, when.deadline)
            .map_err(|error| self.failed(error))?;
        let guards = [(self.keys.all(), Guard::NoneBelow)];
        let value = record::write(&meta(header.cluster));
        let edits = [(self.keys.meta(), Edit::Put { value, lease: 0 })];
        self.must(&guards, &edits, when.deadline)
            .map(|_| ())
            .map_err(|error| match error {
                LedgerError::Busy => self.unfit("is there already"),
                error => error,
            })
    }

    fn contents(&self, when: When<'_>) -> Result<Contents, LedgerError> {
        let look = Look::begin_anyway(self, when.deadline)?;
        EtcdLedger::contents(self, &look)
    }

    fn retire(&self, when: When<'_>, to: Option<&str>) -> Result<bool, LedgerError> {
        let look = Look::begin_anyway(self, when.deadline)?;
        let was = look.meta().moved_to.clone();
        let is_elsewhere = |was: &&String| to.is_some_and(|to| to != *was);
        if let Some(elsewhere) = was.as_ref().filter(is_elsewhere) {
            return Err(self.unfit(&moved_on(elsewhere)));
        }
        let meta = Meta {
            moved_to: to.map(str::to_owned),
            ..look.meta().clone()
        };
        let value = record::write(&meta);
        let edits = [(self.keys.meta(), Edit::Put { value, lease: 0 })];
        self.must(&look.guards(), &edits, when.deadline)?;
        Ok(was.is_none())
    }

    fn version(&self, when: When<'_>) -> Result<Version, LedgerError> {
        self.look(when, |begun| {
            Ok(Version {
                number: begun.revision(),
                at: begun.now(),
            })
        })
    }
}

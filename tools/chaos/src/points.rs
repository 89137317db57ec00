//! Named points of a call, at which a process can kill itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use toolonce::store::{
    Batch, BoxFuture, Committed, Durability, Identity, Key, Page, Purpose, SledStore, Store, StoreError, Versioned,
};

use crate::ledger::Ledger;

/// Where in the way of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// The claim is decided and not yet handed to the store.
    BeforeClaim,
    /// The claim is durable, the body not entered.
    ClaimBeforeBody,
    /// The body is entered, the effect not made.
    BodyBeforeEffect,
    /// The effect is made, the body not left.
    EffectBeforeRecord,
    /// The body has ended and its end isn't handed to the store.
    BeforeRecord,
    /// The end is durable, and nobody was answered.
    RecordBeforeReply,
    /// A commit of a chore (a step, an answer, a fork, a removal) isn't handed to the store.
    BeforeCommit,
    /// It is durable.
    AfterCommit,
}

impl Point {
    /// Those of a call, in its order.
    pub const ALL: [Self; 6] = [
        Self::BeforeClaim,
        Self::ClaimBeforeBody,
        Self::BodyBeforeEffect,
        Self::EffectBeforeRecord,
        Self::BeforeRecord,
        Self::RecordBeforeReply,
    ];

    /// The name on the command line of a child and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeClaim => "before-claim",
            Self::ClaimBeforeBody => "claim-before-body",
            Self::BodyBeforeEffect => "body-before-effect",
            Self::EffectBeforeRecord => "effect-before-record",
            Self::BeforeRecord => "before-record",
            Self::RecordBeforeReply => "record-before-reply",
            Self::BeforeCommit => "before-commit",
            Self::AfterCommit => "after-commit",
        }
    }

    /// The point of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let all = Self::ALL.into_iter().chain([Self::BeforeCommit, Self::AfterCommit]);
        all.into_iter().find(|point| point.name() == name)
    }
}

/// Which commits of a chore are points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// None: no chore is under way.
    None,
    /// What it waits for; not the notes that other calls have left.
    Synced,
    /// All of them.
    All,
}

/// The points of a process, and at which it dies.
#[derive(Debug)]
pub struct Points {
    deadly: Option<(Point, AtomicU64)>,
    ledger: Option<Arc<Ledger>>,
    /// Which commits of a chore are points: 0 none, 1 the synced ones, 2 all.
    armed: AtomicU8,
    /// Sequence number of the newest commit.
    newest: AtomicU64,
}

impl Points {
    /// Kills this process when it reaches the point for the n-th time, from 1, and notes that in `ledger` first.
    pub fn new(deadly: Option<(Point, u64)>, ledger: Arc<Ledger>) -> Self {
        Self {
            deadly: deadly.map(|(point, nth)| (point, AtomicU64::new(nth))),
            ledger: Some(ledger),
            armed: AtomicU8::new(0),
            newest: AtomicU64::new(0),
        }
    }

    /// Harmless ones.
    pub fn none() -> Self {
        Self { deadly: None, ledger: None, armed: AtomicU8::new(0), newest: AtomicU64::new(0) }
    }

    /// Sequence number of the newest commit that the store made.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// From here on these commits are points of their own, whatever they are for.
    pub fn arm(&self, commits: Commits) {
        self.armed.store(commits as u8, Ordering::Release);
    }

    fn is_armed(&self, durability: Durability) -> bool {
        let least = if durability == Durability::Synced { Commits::Synced } else { Commits::All };
        self.armed.load(Ordering::Acquire) >= least as u8
    }

    /// The process got here.
    pub fn reach(&self, here: Point) {
        let Some((point, left)) = &self.deadly else { return };
        if *point != here || left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        if let Some(ledger) = &self.ledger {
            // If it can't be noted, the parent says that the point was missed.
            let _ = ledger.note(here.name());
        }
        // SIGKILL, since nothing of a killed process runs on: no destructor, no exit handler, no flush.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// The store with the points before and after a claim and the record of an end.
pub struct Watched {
    store: SledStore,
    points: Arc<Points>,
}

impl Watched {
    /// Watches over `store`.
    pub fn new(store: SledStore, points: Arc<Points>) -> Self {
        Self { store, points }
    }
}

impl Store for Watched {
    fn get<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Option<Versioned>>, StoreError>> {
        self.store.get(keys)
    }

    fn commit(&self, batch: Batch, durability: Durability) -> BoxFuture<'_, Result<Committed, StoreError>> {
        let is_armed = self.points.is_armed(durability);
        let around = match batch.purpose {
            _ if is_armed => Some((Point::BeforeCommit, Point::AfterCommit)),
            Purpose::Claim => Some((Point::BeforeClaim, Point::ClaimBeforeBody)),
            Purpose::Complete => Some((Point::BeforeRecord, Point::RecordBeforeReply)),
            _ => None,
        };
        Box::pin(async move {
            if let Some((before, _)) = around {
                self.points.reach(before);
            }
            let committed = self.store.commit(batch, durability).await;
            if let Ok(Committed::Applied(version)) = &committed {
                self.points.newest.fetch_max(version.0, Ordering::AcqRel);
                if let Some((_, after)) = around {
                    self.points.reach(after);
                }
            }
            committed
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a [u8],
        from: Option<Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.store.scan(prefix, from, limit)
    }

    fn identity(&self) -> Identity {
        self.store.identity()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    fn changed<'a>(&'a self, keys: &'a [Key]) -> Option<BoxFuture<'a, ()>> {
        self.store.changed(keys)
    }

    fn now(&self) -> Option<BoxFuture<'_, Result<u64, StoreError>>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.close()
    }
}

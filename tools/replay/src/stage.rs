//! One guard with its tools on one store, and the same again after a crash.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use toolonce::store::{MemoryStore, SledStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{Guard, Registry, text_tool};

use crate::corpus::Kind;
use crate::policies::Policies;
use crate::world::{Struck, Tool, World};

/// How long a caller waits. On a clock that is moved by hand it costs nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long after its end an effect may still show.
pub const SETTLE: Duration = Duration::from_secs(60);

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// In memory; a crash loses what was not synced.
    Memory,
    /// A directory on disk; a crash leaves what the process had written.
    Sled,
}

impl StoreKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sled => "sled",
        }
    }

    /// How many trajectories share one store. On disk a crash is simulated by a copy, which must stay small.
    pub fn share(self) -> usize {
        match self {
            Self::Memory => usize::MAX,
            Self::Sled => 32,
        }
    }
}

#[derive(Debug)]
enum Place {
    Memory(MemoryStore),
    Disk(TempDir),
}

impl Place {
    fn new(kind: StoreKind) -> anyhow::Result<Self> {
        Ok(match kind {
            StoreKind::Memory => Self::Memory(MemoryStore::new()),
            StoreKind::Sled => Self::Disk(tempfile::tempdir().context("no directory for the store can be made")?),
        })
    }

    async fn open(&self) -> anyhow::Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Disk(directory) => Arc::new(SledStore::open(directory.path().join("store")).await?),
        })
    }

    /// What a process finds that starts after the one that used this place was killed.
    fn after_crash(&self) -> anyhow::Result<Self> {
        Ok(match self {
            Self::Memory(store) => Self::Memory(store.crash()),
            Self::Disk(directory) => {
                let copy = tempfile::tempdir()?;
                copy_files(directory.path(), copy.path()).context("the store can't be copied")?;
                Self::Disk(copy)
            }
        })
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
    // The witness first, which lies beside the store: it may be behind what is copied after it, never ahead.
    entries.sort_by_key(|entry| entry.path().is_dir());
    for entry in entries {
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy_files(&entry.path(), &target)?;
        } else if let Err(error) = fs::copy(entry.path(), &target)
            // A snapshot that was replaced meanwhile.
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
    }
    Ok(())
}

/// What a stage is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The store.
    pub store: StoreKind,
    /// The tools and what they are.
    pub tools: Vec<(String, Kind)>,
    /// The policies that the guard goes by.
    pub policies: Policies,
    /// The schema of every tool.
    pub schema: Value,
}

impl Setup {
    /// Tools that take any object.
    pub fn new(store: StoreKind, tools: Vec<(String, Kind)>, policies: &Policies) -> Self {
        Self { store, tools, policies: policies.clone(), schema: json!({"type": "object"}) }
    }

    fn registry(&self, guard: &Guard, world: &World) -> anyhow::Result<Registry> {
        let mut registry = Registry::new(guard);
        for (name, kind) in &self.tools {
            let tool = Arc::new(Tool { name: name.clone(), kind: *kind, world: world.clone() });
            let run = move |arguments, attempt| {
                let tool = Arc::clone(&tool);
                async move { tool.run(arguments, attempt).await }
            };
            let policy = self.policies.of(name, *kind).policy();
            registry.add(text_tool(name, "", self.schema.clone(), policy, run))?;
        }
        Ok(registry)
    }
}

/// The guard, its tools, and where they live.
#[derive(Debug)]
pub struct Stage {
    setup: Setup,
    place: Place,
    /// The place before the last crash: what is left of the old process may still hold it.
    before: Option<Place>,
    /// The world that the tools change.
    pub world: World,
    /// Where tools report that their fault strikes.
    pub strikes: mpsc::UnboundedReceiver<Struck>,
    /// The guard's time.
    pub clock: ManualClock,
    /// The guard.
    pub guard: Guard,
    /// Its tools.
    pub registry: Registry,
}

impl Stage {
    /// A new store with a guard on it.
    ///
    /// # Errors
    /// If the store can't be made or a policy doesn't fit its tool.
    pub async fn new(setup: Setup) -> anyhow::Result<Self> {
        let place = Place::new(setup.store)?;
        let (world, strikes) = World::new();
        let clock = ManualClock::new();
        let guard = guard(&place, &clock).await?;
        let registry = setup.registry(&guard, &world)?;
        Ok(Self { setup, place, before: None, world, strikes, clock, guard, registry })
    }

    /// Kills the process in thought: its tasks stop where they are, and another guard is made on what the store has.
    ///
    /// # Errors
    /// If the store can't be opened again.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        self.guard.crash();
        while self.guard.busy() > 0 {
            tokio::task::yield_now().await;
        }
        while self.strikes.try_recv().is_ok() {}
        let place = self.place.after_crash()?;
        self.before = Some(std::mem::replace(&mut self.place, place));
        self.guard = guard(&self.place, &self.clock).await?;
        self.registry = self.setup.registry(&self.guard, &self.world)?;
        Ok(())
    }

    /// Ends the guard.
    ///
    /// # Errors
    /// If the store can't be closed.
    pub async fn close(self) -> anyhow::Result<()> {
        self.guard.shutdown(Duration::from_secs(1)).await?;
        Ok(())
    }
}

async fn guard(place: &Place, clock: &ManualClock) -> anyhow::Result<Guard> {
    let builder = Guard::builder_on(place.open().await?, "replay").clock(clock.clone());
    Ok(builder.patience(PATIENCE).settle_delay(SETTLE).build().await?)
}

//! One process: a guard with its tools, its runs and the callers in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use toolonce::store::Store;
use toolonce::testing::ManualClock;
use toolonce::{Error, ErrorKind, Guard, Registry, Run, Secret, Seen};

use super::ledger::Ledger;
use super::store::Door;
use super::tools::{World, tool};
use crate::file::{Config, Scope, Tool};

/// What a kill ends, reachable from inside a tool's body.
#[derive(Debug, Default)]
pub(super) struct Life {
    guard: OnceLock<Guard>,
    callers: Mutex<Vec<AbortHandle>>,
    dead: OnceLock<()>,
}

impl Life {
    /// Stops everything where it is. The callers are part of the process.
    pub(super) fn kill(&self) {
        let _ = self.dead.set(());
        let callers = std::mem::take(&mut *self.callers.lock().unwrap_or_else(PoisonError::into_inner));
        callers.iter().for_each(AbortHandle::abort);
        if let Some(guard) = self.guard.get() {
            guard.crash();
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.get().is_some()
    }

    pub(super) fn adopt(&self, caller: AbortHandle) {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
    }
}

/// What every process of a case has in common.
pub(super) struct Common {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) ledger: Arc<Ledger>,
    pub(super) config: Config,
    pub(super) tools: BTreeMap<String, Tool>,
}

/// A run's namespace and id.
pub(super) type RunName = (String, String);

pub(super) struct Process {
    pub(super) guard: Guard,
    pub(super) registry: Registry,
    pub(super) door: Arc<Door>,
    pub(super) life: Arc<Life>,
    runs: BTreeMap<RunName, Run>,
    /// Runs of a process that ended, to be gone on with.
    resumable: BTreeMap<RunName, Seen>,
}

impl Process {
    /// Builds the guard; `None` in place of the process if a tool can't be registered, with the reason.
    pub(super) async fn start(common: &Common) -> anyhow::Result<Result<Self, String>> {
        let door = Arc::new(Door::new(Arc::clone(&common.store)));
        let millis = Duration::from_millis;
        let mut builder = Guard::builder_on(Arc::clone(&door) as Arc<dyn Store>, super::NAMESPACE)
            .clock(common.clock.clone())
            .patience(millis(common.config.patience_ms))
            .attempt_deadline(millis(common.config.deadline_ms))
            .lease(millis(common.config.lease_ms))
            .replay_stop(common.config.replay_stop);
        // Records of a run go with their run: the longest that a tool of the case asks for counts.
        let of_run = common.tools.values().filter(|tool| tool.scope != Some(Scope::Global));
        if let Some(ms) = of_run.filter_map(|tool| tool.retention_ms).max() {
            builder = builder.retention(millis(ms));
        }
        if let Some(secret) = &common.config.secret {
            builder = builder.secret(Secret::new(secret));
        }
        let guard = builder.build().await?;
        let life = Arc::new(Life::default());
        let _ = life.guard.set(guard.clone());
        let registry = match register(&guard, common, &life) {
            Ok(registry) => registry,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Self { guard, registry, door, life, runs: BTreeMap::new(), resumable: BTreeMap::new() }))
    }

    /// Goes on with another table of tools; calls that are under way keep theirs.
    pub(super) fn deploy(&mut self, common: &Common) -> Result<(), String> {
        self.registry = register(&self.guard, common, &self.life)?;
        Ok(())
    }

    /// The guard for calls of a namespace.
    pub(super) fn guard_of(&self, namespace: &str) -> Result<Guard, Error> {
        self.guard.with_namespace(namespace)
    }

    /// The run's handle: the one at hand, else that of a run that is resumed or begun here, or was begun elsewhere.
    pub(super) async fn run(&mut self, name: &RunName) -> Result<Run, Error> {
        if let Some(run) = self.runs.get(name) {
            return Ok(run.clone());
        }
        let guard = self.guard_of(&name.0)?;
        let run = match self.resumable.get(name) {
            Some(seen) => Run::resume(&guard, &name.1, *seen).await,
            None => match Run::start(&guard, &name.1).await {
                Err(error) if error.kind() == ErrorKind::RunExists => Run::attach(&guard, &name.1).await,
                started => started,
            },
        }?;
        self.resumable.remove(name);
        self.runs.insert(name.clone(), run.clone());
        Ok(run)
    }

    /// Takes a run that was made here.
    pub(super) fn adopt(&mut self, name: RunName, run: Run) {
        self.runs.insert(name, run);
    }

    /// Goes on with a run of a process that ended; when it is next used, if the store doesn't work now.
    pub(super) async fn resume(&mut self, name: &RunName, seen: Seen) {
        self.resumable.insert(name.clone(), seen);
        let _ = self.run(name).await;
    }

    /// The runs that it knows.
    pub(super) fn runs(&self) -> impl Iterator<Item = &RunName> {
        self.runs.keys().chain(self.resumable.keys())
    }
}

/// The tools of the case, guarded.
fn register(guard: &Guard, common: &Common, life: &Arc<Life>) -> Result<Registry, String> {
    let world = World { ledger: Arc::clone(&common.ledger), clock: common.clock.clone(), life: Arc::clone(life) };
    let mut registry = Registry::new(guard);
    for (name, described) in &common.tools {
        registry.add(tool(name, described, &world)).map_err(|error| error.to_string())?;
    }
    Ok(registry)
}

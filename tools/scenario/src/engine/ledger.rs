//! What really happened: counted by the runner's own tools, outside the guard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::file::{Fate, LookUp};

/// Effects, executions and keys of one tool.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) effects: u64,
    /// Bodies that reached their effect point.
    pub(super) executions: u64,
    pub(super) keys: BTreeSet<String>,
    look_ups: usize,
    /// What the provider of a keyed tool remembers: when a key first came, and which effect it was.
    remembered: BTreeMap<String, (Duration, u64)>,
}

/// How executions that a call starts go.
#[derive(Debug, Default)]
struct Script {
    fates: Vec<Fate>,
    started: usize,
    /// The downstream key of its newest execution.
    key: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    tools: BTreeMap<String, Tally>,
    calls: BTreeMap<u64, Script>,
}

/// The world outside the guard.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how the executions of the call `tag` go.
    pub(super) fn script(&self, tag: u64, fates: &[Fate]) {
        self.lock().calls.insert(tag, Script { fates: fates.to_vec(), ..Script::default() });
    }

    /// The fate of the execution that the call `tag` starts now: of its list in order, the last for all that follow.
    pub(super) fn next_fate(&self, tag: u64, key: &str) -> Fate {
        let mut state = self.lock();
        let script = state.calls.entry(tag).or_default();
        script.key = Some(key.to_owned());
        script.started += 1;
        script.fates.get(script.started - 1).or(script.fates.last()).copied().unwrap_or_default()
    }

    /// The downstream key of the newest execution of the call `tag`.
    pub(super) fn key_of(&self, tag: u64) -> Option<String> {
        self.lock().calls.get(&tag).and_then(|script| script.key.clone())
    }

    /// An execution reached its effect point.
    pub(super) fn reached(&self, tool: &str, key: &str) {
        let mut state = self.lock();
        let tally = state.tools.entry(tool.to_owned()).or_default();
        tally.executions += 1;
        tally.keys.insert(key.to_owned());
    }

    /// The effect happens; gives back which one of the tool's effects it is.
    pub(super) fn happen(&self, tool: &str) -> u64 {
        let mut state = self.lock();
        let tally = state.tools.entry(tool.to_owned()).or_default();
        tally.effects += 1;
        tally.effects
    }

    /// The effect happens unless the provider remembers the key from within its `window` (`None`: for ever).
    pub(super) fn happen_keyed(&self, tool: &str, key: &str, now: Duration, window: Option<Duration>) -> u64 {
        let mut state = self.lock();
        let tally = state.tools.entry(tool.to_owned()).or_default();
        match tally.remembered.get(key) {
            Some((first, effect)) if window.is_none_or(|window| now.saturating_sub(*first) < window) => *effect,
            _ => {
                tally.effects += 1;
                tally.remembered.insert(key.to_owned(), (now, tally.effects));
                tally.effects
            }
        }
    }

    /// The next answer of the tool's look-up, and the number of its effects so far.
    pub(super) fn look_up(&self, tool: &str, answers: &[LookUp]) -> (LookUp, u64) {
        let mut state = self.lock();
        let tally = state.tools.entry(tool.to_owned()).or_default();
        let answer = answers.get(tally.look_ups).or(answers.last()).copied().unwrap_or(LookUp::CannotTell);
        tally.look_ups += 1;
        (answer, tally.effects)
    }

    /// Reads what was counted for a tool.
    pub(super) fn tally<T>(&self, tool: &str, read: impl FnOnce(&Tally) -> T) -> T {
        read(self.lock().tools.entry(tool.to_owned()).or_default())
    }
}

//! The manifest of a turn: which calls were handed over, so that a turn that was sampled again can be told.

use std::sync::{Arc, Mutex, PoisonError};

use super::long;
use super::records::Along;
use super::rows::{Manifest, ManifestCall, Row};
use super::runs::RunState;
use super::work::Work;
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::record::Turn;
use crate::store::{Key, Store, Version};

/// The manifest that one `answer` goes by: the recorded one, or the one that its first claim will record.
#[derive(Debug)]
pub(crate) struct Plan {
    key: Key,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
enum State {
    Recorded(Arc<Manifest>),
    /// To be recorded over this version, which is none or one of an abandoned history.
    New(Arc<Manifest>, Option<Version>),
    /// The store can't be asked: nothing that needs a claim may begin.
    Unreadable(ErrorKind, String),
}

impl Plan {
    /// The plan for `turn`, whose calls are those of `manifest`.
    pub(crate) async fn new(store: &dyn Store, run: &RunState, turn: Turn, manifest: Manifest) -> Result<Self, Error> {
        let key = run.prefix.manifest(&run.id, turn);
        let history = run.now().history;
        let state = match long::get(store, &key).await? {
            None => State::New(Arc::new(manifest), None),
            Some((version, row)) => match Manifest::read(&row)? {
                recorded if history.holds(recorded.epoch, turn) => State::Recorded(Arc::new(recorded)),
                _ => State::New(Arc::new(manifest), Some(version)),
            },
        };
        Ok(Self { key, state: Mutex::new(state) })
    }

    /// The plan for a turn of which the store can't be asked what it was.
    pub(crate) fn unreadable(run: &RunState, turn: Turn, error: &Error) -> Self {
        let state = Mutex::new(State::Unreadable(error.kind(), error.to_string()));
        Self { key: run.prefix.manifest(&run.id, turn), state }
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The calls of the turn, if it was recorded before.
    pub(crate) fn calls(&self) -> Vec<ManifestCall> {
        match self.state() {
            State::New(..) | State::Unreadable(..) => Vec::new(),
            State::Recorded(manifest) => manifest.calls.clone(),
        }
    }

    /// Whether the `nth` of the equal calls whose key is such a one is one of the turn's.
    pub(crate) fn has(&self, is_such: impl Fn(&BaseKey) -> bool, nth: u32) -> bool {
        match self.state() {
            State::New(..) | State::Unreadable(..) => true,
            State::Recorded(manifest) => {
                let equal = manifest.calls.iter().filter(|call| is_such(&call.key)).count();
                equal > nth as usize
            }
        }
    }

    /// Adds the manifest to a claim's batch unless it is recorded.
    ///
    /// # Errors
    /// Why it could not be read.
    pub(crate) fn join(&self, along: &mut Along) -> Result<(), Error> {
        match self.state() {
            State::Recorded(_) => {}
            State::New(manifest, over) => {
                along.checks.push((self.key.clone(), over));
                long::put(&self.key, &manifest.to_bytes(), &mut along.puts);
            }
            State::Unreadable(kind, why) => return Err(Error::new(kind, why)),
        }
        Ok(())
    }

    /// A batch with the manifest was applied.
    pub(crate) fn recorded(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::New(manifest, _) = &*state {
            *state = State::Recorded(Arc::clone(manifest));
        }
    }

    /// A batch with the manifest was refused: another one may be in its place.
    pub(crate) async fn met(&self, store: &dyn Store) -> Result<(), Error> {
        let State::New(_, over) = self.state() else { return Ok(()) };
        if let Some((version, row)) = long::get(store, &self.key).await?
            && Some(version) != over
        {
            let recorded = State::Recorded(Arc::new(Manifest::read(&row)?));
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = recorded;
        }
        Ok(())
    }
}

/// Whether a write that was made alone belongs to its turn, as far as that was recorded. Its claim then depends on it.
/// What is known to be absent isn't read.
///
/// # Errors
/// If the record can't be read.
pub(crate) async fn admits(
    store: &dyn Store,
    work: &Work,
    is_absent: impl Fn(&Key) -> bool,
    along: &mut Along,
) -> Result<bool, Error> {
    let alone = work.plan.is_none() && work.tool.policy.effect().is_write();
    let Some(turn) = work.asked.turn.filter(|_| alone) else { return Ok(true) };
    let key = work.run.prefix.manifest(&work.run.id, turn);
    let found = if is_absent(&key) { None } else { long::get(store, &key).await? };
    along.checks.push((key, found.as_ref().map(|(version, _)| *version)));
    let Some((_, row)) = found else { return Ok(true) };
    let recorded = Manifest::read(&row)?;
    let is_past = !work.run.now().history.holds(recorded.epoch, turn);
    Ok(is_past || recorded.calls.iter().any(|call| work.has_key(&call.key)))
}

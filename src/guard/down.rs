//! What becomes of a call while the store doesn't work and nothing was started for it yet.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use super::answer::{Spot, Told, unrecorded};
use super::attempt::{AttemptState, bounded, panic_text};
use super::flight::{FlightEnd, Follower};
use super::here::{UnrecordedEnd, Unwritten};
use super::path::Drive;
use crate::error::{Error, ErrorKind};
use crate::key::DownstreamKey;
use crate::policy::{Approval, Effect, Repeat};
use crate::protocol::apply::{Over, millis};
use crate::protocol::decide::Place;
use crate::protocol::record::{Failure, Fence};
use crate::store::StoreErrorKind;
use crate::tell;
use crate::tool::{Attempt, Produced, ToolError};

/// What a guard does with a call while its store doesn't work and nothing was started for the call yet.
///
/// What was started is never in question: its outcome is given as [`Unrecorded`](crate::ReplyKind::Unrecorded), answers
/// this process's retries, and is recorded when the store works again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StoreDown {
    /// Reads run; everything else is refused: nothing is done, and the model is told to try again later. The default.
    #[default]
    RefuseWrites,
    /// Nothing runs, not even reads.
    RefuseAll,
    /// Everything runs, **and writes run unguarded: the promise of this library doesn't hold while the store is down.**
    ///
    /// What an earlier process did, or this one before the store failed, isn't looked at: it may be done a second time. A
    /// crash in mid-call leaves no trace: the retry does it again. Only this process's own retries are answered from
    /// its memory, and only its own unguarded calls are recorded afterwards. Each such reply is
    /// [`Unrecorded`](crate::ReplyKind::Unrecorded). A second execution that comes to light is counted in
    /// [`Guard::incidents`](crate::Guard::incidents).
    ///
    /// For work where not doing it is worse than doing it twice. Records that can't be read are no reason to run
    /// anything: only a store that can't be reached is. What needs an approval is refused all the same.
    RunUnguarded,
}

/// Why nothing was started.
const NOT_STARTED: &str = "the store that keeps calls from being done twice isn't working, so it was not started. Try again \
                           later, and tell the user if it goes on.";

const EQUAL_ONE: &str = "the store that knows what became of an equal call isn't working, so nothing was started for this \
                         one. The equal one may have been done. Calling again with the same arguments is safe: try it \
                         later, and tell the user if it goes on.";

impl Drive {
    /// The answer when the store fails the call.
    pub(super) async fn store_failed(&mut self, error: &Error) -> Told {
        let spot = self.spot();
        if self.started > 0 || spot.doubt || self.joined.is_some() {
            tracing::error!(%error, tool = self.work.name(), "the store failed after the call was begun");
            return Told::InDoubt;
        }
        if matches!(error.kind(), ErrorKind::StaleRun | ErrorKind::RunPurged | ErrorKind::RunClosing) {
            return Told::Refused(error.to_string());
        }
        tracing::error!(%error, tool = self.work.name(), "the store failed");
        let down = self.inner.settings.store_down;
        if self.work.tool.policy.effect() == Effect::ReadOnly && down != StoreDown::RefuseAll {
            return self.told_of_read(self.inner.read(&self.work, None).await.ending);
        }
        if self.inner.unrecorded.has(&self.work.key) {
            // It ran in this process, and its end, which can't be recorded, tells nothing.
            return self.in_doubt_unrecorded(&spot);
        }
        if down == StoreDown::RunUnguarded && self.may_run_unguarded(error) {
            return self.run_unguarded(&spot).await;
        }
        Told::Refused(if spot.found { EQUAL_ONE } else { NOT_STARTED }.to_owned())
    }

    /// Whether the store can't be reached, nobody has to be asked, and there is no claim of this process that may turn up
    /// later: its body is taken for one that never started.
    fn may_run_unguarded(&self, error: &Error) -> bool {
        let down = [StoreErrorKind::Unavailable, StoreErrorKind::Uncertain].map(ErrorKind::Store);
        let policy = &self.work.tool.policy;
        let asks = policy.approval == Approval::First || policy.repeats() == Repeat::Ask;
        down.contains(&error.kind()) && !asks && !self.inner.unstarted.has_any(&self.work.key)
    }

    /// Runs a call that nothing guards, once at a time in this process.
    async fn run_unguarded(&mut self, spot: &Spot) -> Told {
        if self.leader.is_none() {
            let unit = (self.work.key, spot.occurrence);
            match self.inner.flights.lead(unit, self.work.asked.fingerprint) {
                Ok(leader) => self.leader = Some(leader),
                Err(follower) => return self.follow_unguarded(follower).await,
            }
            // The one before may have ended since it was last looked.
            if self.inner.unrecorded.has(&self.work.key) {
                return self.inner.settle_unrecorded(&self.work).await.unwrap_or(Told::InDoubt);
            }
        }
        self.enter();
        self.going();
        tracing::error!(tool = self.work.name(), run = %self.work.asked.run, "a call runs unguarded: the store is down");
        let bytes = (self.work.executed.as_str(), self.work.asked.executed);
        let claim = Box::new(self.inner.new_claim(&self.work, bytes, (Over::Nothing, false)));
        let came = match self.execute_unguarded(spot).await {
            Ok(Ok(produced)) => Ok(produced),
            Ok(Err(error)) if error.is_unknown() => Err(bounded(&error.to_string())),
            Ok(Err(error)) => {
                return Told::Failed(Failure { class: error.class(), message: bounded(&error.to_string()) });
            }
            Err(misfit) => return Told::Refused(tell::misfit(&misfit)),
        };
        let nth = self.work.asked.nth.unwrap_or(0);
        let place = spot.place.or(self.work.asked.turn.map(|_| Place { nth, slot: None }));
        let what = Unwritten::Whole { claim, place, came };
        let end = UnrecordedEnd { work: Arc::clone(&self.work), occurrence: spot.occurrence, what };
        let told = end.text().map(|text| unrecorded(text, self.inner.now.get()));
        self.inner.keep_unrecorded(end);
        told.unwrap_or_else(|| self.in_doubt_unrecorded(spot))
    }

    /// The reference is good once the store works again.
    fn in_doubt_unrecorded(&self, spot: &Spot) -> Told {
        let downstream = self.downstream(spot);
        self.spot.lock().unwrap_or_else(PoisonError::into_inner).downstream = Some(downstream);
        Told::InDoubt
    }

    fn downstream(&self, spot: &Spot) -> DownstreamKey {
        let first = || self.work.key.downstream(u32::try_from(spot.occurrence).unwrap_or(u32::MAX), 0);
        spot.downstream.unwrap_or_else(first)
    }

    /// Waits for the body as long as it takes: without a record, who stopped waiting could only do it again. The outer
    /// error is about arguments that can't be read.
    async fn execute_unguarded(&self, spot: &Spot) -> Result<Result<Produced, ToolError>, String> {
        let (inner, work) = (&self.inner, &self.work);
        let (downstream, now) = (self.downstream(spot), inner.now.get());
        let job = work.tool.job(&work.executed, &downstream)?;
        let state = AttemptState {
            inner: Arc::clone(inner),
            work: Arc::clone(work),
            run: Arc::clone(&work.run.id),
            downstream,
            occurrence: spot.occurrence,
            fence: Fence::default(),
            deadline: now.saturating_add(millis(work.tool.limits.attempt_deadline)),
            first_sent: now,
            overtaken: AtomicBool::new(false),
        };
        let ended = inner.spawn_body(work.key, job, Attempt { state: Arc::new(state) }).await;
        work.run.reads.wrote();
        Ok(ended.unwrap_or_else(|error| Err(ToolError::unknown(panic_text(error)))))
    }

    async fn follow_unguarded(&mut self, mut follower: Follower) -> Told {
        let same = follower.fingerprint == self.work.asked.fingerprint;
        match follower.ended().await {
            FlightEnd::Unrecorded(text) if same => unrecorded(text.as_ref().to_owned(), self.inner.now.get()),
            FlightEnd::Failed(failure) if same => Told::Failed(failure),
            FlightEnd::InDoubt if same => Told::InDoubt,
            _ => Told::Refused(EQUAL_ONE.to_owned()),
        }
    }
}

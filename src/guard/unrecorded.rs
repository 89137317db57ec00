//! Ends that the store could not take: they answer this process's retries, and are tried again until they are recorded.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Inner;
use super::answer::{Told, unrecorded};
use super::attempt::note_place;
use super::here::{UnrecordedEnd, Unwritten};
use super::records::Along;
use super::work::Work;
use crate::key::BaseKey;
use crate::policy::Effect;
use crate::protocol::apply::{End, Event, NewClaim, apply};
use crate::protocol::decide::Place;
use crate::store::{Durability, Purpose, StoreError};
use crate::tool::Produced;

/// How long after a failure it is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Inner {
    /// Keeps an end that the store could not take.
    pub(super) fn keep_unrecorded(self: &Arc<Self>, end: UnrecordedEnd) {
        if self.unrecorded.keep(end) {
            self.background.spawn(try_again(Arc::downgrade(self)));
        }
    }

    /// Tries again to record the ends of one record. The outcome among them, if the store still can't take it.
    pub(super) async fn settle_unrecorded(self: &Arc<Self>, work: &Arc<Work>) -> Option<Told> {
        let left = self.record_again(&work.key).await?;
        left.text().map(|text| unrecorded(text, self.now.get()))
    }

    /// Tries again to record all of them.
    pub(super) async fn record_what_can_be(&self) {
        for key in self.unrecorded.keys() {
            self.record_again(&key).await;
        }
    }

    /// Records the ends of one record, and gives back the first that the store doesn't take. Several may try at once:
    /// the second finds it recorded.
    async fn record_again(&self, key: &BaseKey) -> Option<UnrecordedEnd> {
        while let Some(end) = self.unrecorded.first(key) {
            let recorded = match &end.what {
                Unwritten::End { event, puts } => {
                    self.commit_event(&end.work, end.occurrence, event.clone(), puts).await.map(drop)
                }
                Unwritten::Whole { claim, place, came } => {
                    self.commit_whole(&end.work, end.occurrence, claim, *place, came).await
                }
            };
            if recorded.is_err() {
                return Some(end);
            }
            self.unrecorded.remove(&end);
            if let Some(unit) = end.unit() {
                self.bodies.leave(key, unit);
            }
        }
        None
    }

    /// Records an execution that had no claim: claim and end in one commit.
    async fn commit_whole(
        &self,
        work: &Arc<Work>,
        occurrence: usize,
        claim: &NewClaim,
        place: Option<Place>,
        came: &Result<Produced, String>,
    ) -> Result<(), StoreError> {
        let prefix = work.run.prefix;
        loop {
            let known = self.records.load(prefix, &work.key).await?;
            let Ok(claimed) = apply(&known.base, occurrence, &Event::Claim(Box::new(claim.clone()))) else {
                self.note_unguarded(work, came);
                return Ok(());
            };
            let fence = claimed.occurrences[occurrence].fence;
            let mut along = Along::default();
            let end = match came {
                Ok(produced) => {
                    let body = self.produced_body(work, (occurrence, fence), produced, &mut along);
                    End::Success { body, fingerprint: claim.asker.fingerprint, order: 0 }
                }
                Err(error) => End::Unknown { error: error.clone() },
            };
            let mut ended = Event::Ended { fence, end, at: self.now.get() };
            let log = self.count_completion(work, claimed.occurrences.get(occurrence), &mut ended, &mut along).await?;
            let Ok(mut next) = apply(&claimed, occurrence, &ended) else { return Ok(()) };
            work.name_record(&mut next);
            note_place(&mut next, work, occurrence, place);
            work.index(&known, &mut along);
            let put = self.records.put(prefix, &work.key, &known, next, along, Durability::Synced, Purpose::Complete);
            if self.completed(work, (occurrence, came.is_ok()), put.await?, log).await? {
                return Ok(());
            }
        }
    }

    /// It ran without a claim, and the record has no room for it: what it was about was done, or begun, by others.
    fn note_unguarded(&self, work: &Work, came: &Result<Produced, String>) {
        tracing::error!(tool = work.name(), run = %work.asked.run, "an unguarded call met another execution of the same");
        if came.is_ok() && work.tool.policy.effect() == Effect::Write {
            self.count_incident(work);
        }
    }
}

/// Goes on trying while there is anything left.
async fn try_again(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(clock) = inner.upgrade().map(|inner| Arc::clone(inner.now.clock())) else { return };
        clock.sleep(pause).await;
        let Some(inner) = inner.upgrade() else { return };
        inner.record_what_can_be().await;
        if inner.unrecorded.keys().is_empty() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

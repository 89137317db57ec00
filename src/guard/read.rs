//! Reads: nothing is claimed, and what they return is kept only for redeliveries of their place.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use super::Inner;
use super::answer::{ResultText, Told};
use super::attempt::{AttemptState, Ending, bounded, note_place, panic_text};
use super::path::{Drive, Step};
use super::reads::{Entered, ReadEnd};
use super::records::{Along, Put, Records, pieces_of};
use super::work::Work;
use crate::error::Error;
use crate::protocol::apply::{End, Event, NewClaim, Over, apply, millis};
use crate::protocol::decide::{Decision, Mark, Place};
use crate::protocol::growth;
use crate::protocol::record::{Base, Failure, FailureClass, Fence, Slot, Strictness};
use crate::store::{Durability, Purpose};
use crate::tell::ReplyKind;
use crate::tool::Attempt;

impl Drive {
    /// Executes a read, or shares that of an equal call. What runs here goes on when its caller is gone: others may
    /// have joined it.
    pub(super) async fn read(&mut self, decision: &Decision) -> Step {
        let work = Arc::clone(&self.work);
        let nth = decision.place.map_or(0, |place| place.nth);
        let entered = work.run.reads.enter(&work, nth, self.inner.now.get());
        self.enter();
        let (kind, mark, place, end) = match entered {
            Entered::Lead(reading) => {
                let at = decision.place.map(|place| Place { nth: reading.nth(), ..place });
                let end = self.inner.read(&work, at.map(|place| (decision.occurrence, place))).await;
                reading.end(&end);
                return Step::Done(self.told_of_read(end.ending));
            }
            Entered::Fresh(end) => (ReplyKind::Replayed, Mark::Read, decision.place, end),
            Entered::Join { nth, own, mut end } => {
                let end = match end.wait_for(Option::is_some).await.as_deref() {
                    Ok(Some(end)) => end.clone(),
                    _ => return Step::Again,
                };
                let mark = if own { Mark::Own } else { Mark::Read };
                (ReplyKind::Joined, mark, decision.place.map(|place| Place { nth, ..place }), end)
            }
        };
        self.stand_at(place, &end).await;
        Step::Done(match self.told_of_read(end.ending) {
            Told::Outcome { text, .. } => {
                let text = ResultText { whole: None, ..text };
                Told::Outcome { kind, mark, at: end.at, replays: 0, text }
            }
            other => other,
        })
    }

    /// The call shares the outcome that is recorded there: a redelivery of its own place must find it.
    async fn stand_at(&self, place: Option<Place>, end: &ReadEnd) {
        let (Some((occurrence, fence)), Some(_)) = (end.unit, place) else { return };
        let known = self.inner.records.load(self.work.run.prefix, &self.work.key).await;
        let there =
            known.ok().and_then(|known| known.base.occurrences.get(occurrence)?.outcome.as_ref().map(|o| o.fence));
        if there == Some(fence) {
            let mut spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
            (spot.occurrence, spot.place, spot.found) = (occurrence, place, true);
        }
    }
}

impl Inner {
    /// Executes a read: nothing is claimed. Its outcome is recorded for redeliveries of its place, if it has one.
    pub(crate) async fn read(self: &Arc<Self>, work: &Arc<Work>, at: Option<(usize, Place)>) -> ReadEnd {
        let begun = self.now.get();
        let ending = self.execute_read(work).await;
        let mut end = ReadEnd { ending, at: begun, unit: None };
        let (Ending::Success(text), Some((occurrence, place))) = (&end.ending, at) else { return end };
        match self.record_read(work, occurrence, place, text).await {
            Ok(Some(recorded)) => {
                end.unit = Some(recorded.unit);
                if let Some(first) = recorded.first {
                    end.ending = Ending::Success(first);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, tool = work.name(), "the result of a read could not be kept; it will run again");
            }
        }
        end
    }

    async fn execute_read(self: &Arc<Self>, work: &Arc<Work>) -> Ending {
        let downstream = work.key.downstream(0, 0);
        let job = match work.tool.job(&work.executed, &downstream) {
            Ok(job) => job,
            Err(message) => return Ending::Failed(Failure { class: FailureClass::Permanent, message }),
        };
        let now = self.now.get();
        let deadline = now.saturating_add(millis(work.tool.limits.attempt_deadline));
        let state = AttemptState {
            inner: Arc::clone(self),
            work: Arc::clone(work),
            run: Arc::clone(&work.run.id),
            downstream,
            occurrence: 0,
            fence: Fence::default(),
            deadline,
            first_sent: now,
            overtaken: AtomicBool::new(false),
        };
        let mut body = self.spawn_body(work.key, job, Attempt { state: Arc::new(state) });
        let ended = tokio::select! {
            biased;
            ended = &mut body => ended,
            () = self.sleep_until(deadline) => {
                body.abort(); // it is only a read
                let message = "it took longer than an attempt may take".to_owned();
                return Ending::Failed(Failure { class: FailureClass::Retryable, message });
            }
        };
        match ended {
            Ok(Ok(Ok(text))) => Ending::Success(text),
            Ok(Ok(Err(why))) => Ending::NoResult(why),
            Ok(Err(error)) => {
                let class = if error.is_unknown() { FailureClass::Retryable } else { error.class() };
                Ending::Failed(Failure { class, message: bounded(&error.to_string()) })
            }
            Err(error) => Ending::Failed(Failure { class: FailureClass::Retryable, message: panic_text(error) }),
        }
    }

    /// A read's claim and its end are one commit. If another delivery of its place was quicker, gives what that one
    /// recorded: a place has one answer. `None` if there is no place for it any more.
    async fn record_read(
        self: &Arc<Self>,
        work: &Arc<Work>,
        occurrence: usize,
        place: Place,
        text: &str,
    ) -> Result<Option<Recorded>, Error> {
        let prefix = work.run.prefix;
        let mut occurrence = occurrence;
        loop {
            let known = self.records.load(prefix, &work.key).await?;
            if let Some((occurrence, fence)) = recorded_at(&known.base, work, place) {
                let text = self.result_text(work, &known.base, occurrence).await.ok();
                let first = text.filter(|text| text.kept).map(|text| text.text);
                return Ok(Some(Recorded { unit: (occurrence, fence), first }));
            }
            let mut base = Base::clone(&known.base);
            let mut along = Along::default();
            along.checks.push((work.run.row_key(), Some(work.present()?.row)));
            work.index(&known, &mut along);
            if base.occurrences.get(occurrence).is_none_or(|record| record.outcome.is_some()) {
                let (room, dropped) = growth::room_for_read(&mut base, growth::KEPT_OUTCOMES);
                occurrence = room;
                along.deletes.extend(dropped.into_iter().flat_map(|dropped| pieces_of(prefix, &work.key, dropped)));
            }
            let now = self.now.get();
            let claim = Event::Claim(Box::new(NewClaim {
                owner: self.lease.me,
                at: now,
                attempt_deadline: work.tool.limits.attempt_deadline,
                window: None,
                over: Over::Nothing,
                asker: work.asked.asker(),
                turn: work.asked.turn,
                permitted: false,
                settle_delay: work.tool.limits.settle_delay,
                strictness: Strictness::ReadOnly,
                executed: work.asked.executed,
                kept_arguments: None,
                leaves: Vec::new(),
            }));
            let Ok(claimed) = apply(&base, occurrence, &claim) else { return Ok(None) };
            let fence = claimed.occurrences[occurrence].fence;
            let body = Records::body(prefix, &work.key, (occurrence, fence), text, work.tool.max_result, &mut along);
            let end = End::Success { body, fingerprint: work.asked.fingerprint, order: 0 };
            let Ok(mut next) = apply(&claimed, occurrence, &Event::Ended { fence, end, at: now }) else {
                return Ok(None);
            };
            work.name_record(&mut next);
            note_place(&mut next, work, occurrence, Some(place));
            let put = self.records.put(prefix, &work.key, &known, next, along, Durability::Ordered, Purpose::Complete);
            match put.await? {
                Put::Done { .. } => return Ok(Some(Recorded { unit: (occurrence, fence), first: None })),
                Put::Moved(existing) => work.run.refresh(existing.into_iter().next().flatten(), None)?,
            }
        }
    }
}

/// Where a read is recorded.
struct Recorded {
    unit: (usize, Fence),
    /// What its place got before.
    first: Option<String>,
}

/// The occurrence whose outcome this place of the present epoch has.
fn recorded_at(base: &Base, work: &Work, place: Place) -> Option<(usize, Fence)> {
    let is_it = |slot: &Slot| {
        slot.run == work.asked.run
            && Some(slot.turn) == work.asked.turn
            && slot.nth == place.nth
            && slot.epoch == work.epoch
    };
    base.occurrences.iter().enumerate().find_map(|(occurrence, record)| {
        let outcome = record.outcome.as_ref().filter(|_| record.is_about(work.asked.fingerprint))?;
        record.slots.iter().any(is_it).then_some((occurrence, outcome.fence))
    })
}

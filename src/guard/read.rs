//! Reads: nothing is claimed, and what they return is kept only for redeliveries of their place.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Inner;
use super::attempt::{AttemptState, Ending, bounded, note_place, panic_text};
use super::records::{Along, Put, Records, pieces_of};
use super::work::Work;
use crate::protocol::apply::{End, Event, NewClaim, Over, apply, millis};
use crate::protocol::decide::Place;
use crate::protocol::growth;
use crate::protocol::record::{Base, Failure, FailureClass, Fence, Strictness};
use crate::store::{Durability, Purpose, StoreError};
use crate::tool::Attempt;

impl Inner {
    /// Executes a read: nothing is claimed. Its outcome is recorded for redeliveries of its place, if it has one.
    pub(crate) async fn read(self: &Arc<Self>, work: &Arc<Work>, at: Option<(usize, Place)>) -> Ending {
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
        let ending = match ended {
            Ok(Ok(Ok(text))) => Ending::Success(text),
            Ok(Ok(Err(why))) => Ending::NoResult(why),
            Ok(Err(error)) => {
                let class = if error.is_unknown() { FailureClass::Retryable } else { error.class() };
                Ending::Failed(Failure { class, message: bounded(&error.to_string()) })
            }
            Err(error) => Ending::Failed(Failure { class: FailureClass::Retryable, message: panic_text(error) }),
        };
        let (Ending::Success(text), Some((occurrence, place))) = (&ending, at) else { return ending };
        match self.record_read(work, occurrence, place, text).await {
            Ok(Some(first)) => Ending::Success(first),
            Ok(None) => ending,
            Err(error) => {
                tracing::warn!(%error, tool = work.name(), "the result of a read could not be kept; it will run again");
                ending
            }
        }
    }

    /// A read's claim and its end are one commit. If another delivery of its place was quicker, gives what that one
    /// recorded: a place has one answer.
    async fn record_read(
        self: &Arc<Self>,
        work: &Arc<Work>,
        occurrence: usize,
        place: Place,
        text: &str,
    ) -> Result<Option<String>, StoreError> {
        let prefix = work.run.prefix;
        let mut occurrence = occurrence;
        loop {
            let known = self.records.load(prefix, &work.key).await?;
            if let Some(first) = recorded_at(&known.base, work, place) {
                let text = self.result_text(work, &known.base, first).await.ok();
                return Ok(text.filter(|text| text.kept).map(|text| text.text));
            }
            let mut base = Base::clone(&known.base);
            let mut along = Along::default();
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
                permitted: false,
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
            if let Put::Done { .. } = put.await? {
                return Ok(None);
            }
        }
    }
}

/// The occurrence whose outcome this place of the present epoch has.
fn recorded_at(base: &Base, work: &Work, place: Place) -> Option<usize> {
    base.occurrences.iter().position(|record| {
        let same = record.outcome.as_ref().is_some_and(|outcome| outcome.fingerprint == work.asked.fingerprint);
        same && record.slots.iter().any(|slot| {
            slot.run == work.asked.run
                && Some(slot.turn) == work.asked.turn
                && slot.nth == place.nth
                && slot.epoch == work.epoch
        })
    })
}

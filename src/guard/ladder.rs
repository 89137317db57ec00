//! After an attempt of a call: the reply, another attempt, or what its doubt allows.

use std::sync::PoisonError;
use std::time::Duration;

use super::answer::{ResultText, Told, is_recorded, unrecorded};
use super::attempt::Ending;
use super::path::{Drive, Step};
use super::records::Known;
use crate::Millis;
use crate::error::Error;
use crate::policy::{Effect, InDoubt};
use crate::protocol::decide::{Decision, Mark};
use crate::protocol::record::{Failure, FailureClass, Fence, Record};
use crate::tell::{self, ReplyKind};

impl Drive {
    pub(super) async fn after(&mut self, occurrence: usize, ending: Ending) -> Result<Step, Error> {
        let left = self.started < self.work.tool.policy.advanced.attempts;
        match ending {
            Ending::Success(text) => {
                let known = self.inner.records.load(self.work.run.prefix, &self.work.key).await;
                // The reply is what a later one will be: read back from the record.
                let told = match known {
                    // Somebody else said first how it ended, and that stands.
                    Ok(known) if !is_recorded(&known.base, occurrence, &text) => {
                        self.told(&known, occurrence, ReplyKind::Executed, Mark::Own).await?
                    }
                    Ok(known) => self.executed(&known, occurrence, text),
                    Err(_) => self.told_executed(ResultText::kept(text)),
                };
                Ok(Step::Done(told))
            }
            Ending::NoResult(why) => {
                let text = ResultText { text: tell::not_kept(0, &why), kept: false, whole: None };
                Ok(Step::Done(self.told_executed(text)))
            }
            Ending::Unrecorded(Ok(text)) => Ok(Step::Done(unrecorded(text, self.inner.now.get()))),
            Ending::Unrecorded(Err(why)) => Ok(Step::Done(unrecorded(tell::not_kept(0, &why), self.inner.now.get()))),
            // An earlier attempt of the same unit may have had its effect: this one's clean end says nothing about it.
            Ending::Failed(_) if self.is_tainted(occurrence).await? => self.after_doubt(left).await,
            Ending::Failed(failure) if failure.class == FailureClass::Retryable && left => {
                self.back_off(self.started).await;
                Ok(Step::Again)
            }
            Ending::Failed(failure) => Ok(Step::Done(Told::Failed(failure))),
            Ending::Unknown => self.after_doubt(left).await,
        }
    }

    pub(super) async fn is_tainted(&self, occurrence: usize) -> Result<bool, Error> {
        let known = self.inner.records.load(self.work.run.prefix, &self.work.key).await?;
        Ok(known.base.occurrences.get(occurrence).is_some_and(Record::is_tainted))
    }

    /// In doubt after an execution of this very call: the ladder, as far as this call may still climb it.
    pub(super) async fn after_doubt(&self, left: bool) -> Result<Step, Error> {
        self.spot.lock().unwrap_or_else(PoisonError::into_inner).doubt = true;
        let policy = &self.work.tool.policy;
        let reruns = left && (policy.effect() == Effect::Idempotent || policy.in_doubt == InDoubt::Resend);
        if reruns {
            self.back_off(self.started).await;
        }
        let goes_on = reruns || policy.in_doubt == InDoubt::Reconcile;
        Ok(if goes_on { Step::Again } else { Step::Done(Told::InDoubt) })
    }

    /// 200 ms, doubled each time up to 10 s, with jitter.
    pub(super) async fn back_off(&self, round: u32) {
        let base = 200u64.saturating_mul(1 << round.saturating_sub(1).min(6)).min(10_000);
        let jitter = fastrand::u64(0..=base / 4);
        self.inner.now.clock().sleep(Duration::from_millis(base - base / 8 + jitter)).await;
    }

    /// This call may not start another execution: what is known of the record is the answer.
    pub(super) fn given_up(&self, known: &Known, occurrence: usize) -> Told {
        // Patience ended before anything was claimed; nobody hears this any more.
        let Some(record) = known.base.occurrences.get(occurrence) else { return Told::Running };
        match &record.last {
            Some(last) if !record.is_tainted() => Told::Failed(last.failure.clone()),
            None if !record.is_tainted() => Told::Failed(Failure {
                class: FailureClass::Retryable,
                message: "it is known by now that an earlier attempt did not happen".to_owned(),
            }),
            _ => Told::InDoubt,
        }
    }

    pub(super) async fn look_up(
        &mut self,
        known: &Known,
        decision: &Decision,
        fence: Fence,
        no_counts_from: Option<Millis>,
    ) -> Result<Step, Error> {
        let begun = self.inner.now.get();
        let counts = no_counts_from.is_some_and(|from| begun >= from);
        let found = self.inner.look_up(&self.work, known, decision.occurrence, fence, counts).await?;
        if found {
            return Ok(Step::Again);
        }
        self.look_ups += 1;
        let resends = matches!(self.work.tool.policy.effect(), Effect::Keyed(_));
        let limit = if resends { 3 } else { 5 };
        let now = self.inner.now.get();
        // A look-up that came too early is worth repeating when it counts, if the caller waits that long.
        let counts_later =
            no_counts_from.filter(|&from| from > now && self.inner.now.until(from) < self.patience_left());
        if self.look_ups >= limit {
            match counts_later {
                Some(from) if !resends => self.inner.now.clock().sleep(self.inner.now.until(from)).await,
                _ => self.looked_up = true,
            }
        } else if self.patience_left().is_zero() {
            self.looked_up = true;
        } else {
            self.back_off(self.look_ups).await;
        }
        Ok(Step::Again)
    }
}

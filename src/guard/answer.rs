//! What a call is answered with, before it becomes a reply.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::Inner;
use super::attempt::Ending;
use super::path::{Drive, Step};
use super::permission::Awaited;
use super::records::{Known, head};
use super::rows::Prefix;
use super::work::Work;
use crate::Millis;
use crate::error::Error;
use crate::key::{BaseKey, DownstreamKey, digest};
use crate::protocol::decide::{Mark, Place};
use crate::protocol::record::{Base, Body, Failure, Given, Record};
use crate::tell::{self, ReplyKind};

/// What a call is answered with.
#[derive(Debug)]
pub(crate) enum Told {
    Outcome {
        kind: ReplyKind,
        mark: Mark,
        at: Millis,
        replays: u32,
        text: ResultText,
    },
    /// What its place got before.
    Again(Given, Option<ResultText>),
    /// It did not happen.
    Failed(Failure),
    /// It is running.
    Running,
    /// It may have happened.
    InDoubt,
    /// A human has to permit it.
    Awaiting(Awaited),
    /// A human refused it.
    Denied {
        why: String,
    },
    Conflict {
        fields: Vec<String>,
        stored: Option<ResultText>,
    },
    Refused(String),
    Diverged,
}

/// A result as the model sees it, and as the program does where that is more.
#[derive(Debug, Clone)]
pub(crate) struct ResultText {
    pub(crate) text: String,
    pub(crate) kept: bool,
    /// The whole of a result that is not kept, for the call that executed.
    pub(crate) whole: Option<String>,
}

impl ResultText {
    pub(crate) fn kept(text: String) -> Self {
        Self { text, kept: true, whole: None }
    }
}

/// Where a call stands, as far as its caller must know when patience ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spot {
    pub(crate) occurrence: usize,
    pub(crate) place: Option<Place>,
    pub(crate) downstream: Option<DownstreamKey>,
    pub(crate) since: Option<Millis>,
    /// Whether it is in doubt rather than running.
    pub(crate) doubt: bool,
    /// Whether anything was claimed or found for it.
    pub(crate) found: bool,
    /// The permission that it waits for.
    pub(crate) awaited: Option<Awaited>,
    /// The call whose state is the answer, if it is another one than was asked.
    pub(crate) work: Option<Arc<Work>>,
}

/// Shared between a call's task and its caller.
pub(crate) type SharedSpot = Arc<Mutex<Spot>>;

/// An answer and where it belongs.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) told: Told,
    pub(crate) spot: Spot,
}

/// Equal calls of one message enter one after the other, so that each sees the place that the other took.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    pub(crate) before: Option<oneshot::Receiver<()>>,
    pub(crate) entered: Option<oneshot::Sender<()>>,
}

impl Drive {
    pub(super) async fn conflict(&mut self, known: &Known, occurrence: usize) -> Result<Step, Error> {
        self.enter();
        let record = &known.base.occurrences[occurrence];
        let fields = differing(record, &self.work);
        let stored = match record.outcome {
            Some(_) => Some(self.result_text(known, occurrence).await?),
            None => None,
        };
        Ok(Step::Done(Told::Conflict { fields, stored }))
    }

    pub(super) async fn outcome(&self, known: &Known, occurrence: usize, mark: Mark) -> Result<Told, Error> {
        let own = self.started > 0 && mark == Mark::Own;
        let kind = match self.joined {
            _ if own => ReplyKind::Executed,
            Some(_) => ReplyKind::Joined,
            None => ReplyKind::Replayed,
        };
        self.told(known, occurrence, kind, mark).await
    }

    pub(super) async fn joined_outcome(&self, known: &Known, occurrence: usize, mark: Mark) -> Result<Told, Error> {
        self.told(known, occurrence, ReplyKind::Joined, mark).await
    }

    pub(super) async fn told(
        &self,
        known: &Known,
        occurrence: usize,
        kind: ReplyKind,
        mark: Mark,
    ) -> Result<Told, Error> {
        let record = &known.base.occurrences[occurrence];
        let at = record.outcome.as_ref().map_or(0, |outcome| outcome.at);
        let text = self.result_text(known, occurrence).await?;
        Ok(Told::Outcome { kind, mark, at, replays: record.replays, text })
    }

    pub(super) fn executed(&self, known: &Known, occurrence: usize, text: String) -> Told {
        let record = known.base.occurrences.get(occurrence);
        let stored = match record.and_then(|record| record.outcome.as_ref()).map(|outcome| &outcome.body) {
            Some(Body::NotKept { length, head, .. }) => ResultText { whole: Some(text), ..not_kept(*length, head) },
            _ => ResultText::kept(text),
        };
        self.told_executed(stored)
    }

    pub(super) fn told_executed(&self, text: ResultText) -> Told {
        let at = self.inner.now.get();
        Told::Outcome { kind: ReplyKind::Executed, mark: Mark::Own, at, replays: 0, text }
    }

    pub(super) fn told_of_read(&self, ending: Ending) -> Told {
        match ending {
            Ending::Success(text) if text.len() > self.work.tool.max_result => {
                let short = not_kept(text.len() as u64, head(&text).as_bytes());
                self.told_executed(ResultText { whole: Some(text), ..short })
            }
            Ending::Success(text) => self.told_executed(ResultText::kept(text)),
            Ending::NoResult(why) => {
                self.told_executed(ResultText { text: tell::not_kept(0, &why), kept: false, whole: None })
            }
            Ending::Failed(failure) => Told::Failed(failure),
            Ending::Unknown | Ending::Unrecorded(_) => Told::InDoubt,
        }
    }

    pub(super) async fn result_text(&self, known: &Known, occurrence: usize) -> Result<ResultText, Error> {
        self.inner.result_text(&self.work, &known.base, occurrence).await
    }
}

/// Whether `text` is the result that the record has, if it still has one.
pub(super) fn is_recorded(base: &Base, occurrence: usize, text: &str) -> bool {
    match base.occurrences.get(occurrence).and_then(|record| record.outcome.as_ref()).map(|outcome| &outcome.body) {
        Some(Body::Inline(bytes)) => bytes == text.as_bytes(),
        Some(Body::Pieces { digest: recorded, .. } | Body::NotKept { digest: recorded, .. }) => {
            *recorded == digest("toolonce result", text.as_bytes())
        }
        Some(Body::Dropped) | None => true,
    }
}

pub(super) fn not_kept(length: u64, head: &[u8]) -> ResultText {
    let head: String = String::from_utf8_lossy(head).chars().take(1000).collect();
    ResultText { text: tell::not_kept(length, &head), kept: false, whole: None }
}

pub(super) fn unrecorded(text: String, at: Millis) -> Told {
    let text = ResultText::kept(text);
    Told::Outcome { kind: ReplyKind::Unrecorded, mark: Mark::Own, at, replays: 0, text }
}

/// JSON Pointers to the values that differ between a record and a call.
pub(super) fn differing(record: &Record, work: &Work) -> Vec<String> {
    let theirs = record.leaves.iter().filter(|leaf| !work.leaves.contains(leaf));
    let ours = work.leaves.iter().filter(|leaf| !record.leaves.contains(leaf));
    let mut fields: Vec<String> = theirs.chain(ours).map(|leaf| leaf.pointer.clone()).collect();
    fields.sort();
    fields.dedup();
    fields
}

impl Inner {
    /// The result of an occurrence as the model sees it.
    pub(crate) async fn result_text(&self, work: &Work, base: &Base, occurrence: usize) -> Result<ResultText, Error> {
        self.stored_text((work.run.prefix, &work.key), base, occurrence).await
    }

    /// The same for a record whose tool needn't be known here.
    pub(crate) async fn stored_text(
        &self,
        (prefix, key): (Prefix, &BaseKey),
        base: &Base,
        occurrence: usize,
    ) -> Result<ResultText, Error> {
        let Some(outcome) = base.occurrences.get(occurrence).and_then(|record| record.outcome.as_ref()) else {
            return Ok(ResultText { text: tell::dropped(), kept: false, whole: None });
        };
        Ok(match &outcome.body {
            Body::Inline(bytes) => ResultText::kept(String::from_utf8_lossy(bytes).into_owned()),
            body @ Body::Pieces { .. } => {
                let unit = (occurrence, outcome.fence);
                match self.records.pieces(prefix, key, unit, body).await? {
                    Some(text) => ResultText::kept(text),
                    None => ResultText { text: tell::lost(), kept: false, whole: None },
                }
            }
            Body::NotKept { length, head, .. } => not_kept(*length, head),
            Body::Dropped => ResultText { text: tell::dropped(), kept: false, whole: None },
        })
    }
}

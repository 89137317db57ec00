//! The last step of a call, on the caller's side: the reply, and what is noted in the very poll that returns it.

use std::sync::Arc;

use super::Inner;
use super::answer::{Answer, ResultText, Spot, Told};
use super::work::{MOST_TIMES, Work};
use crate::Millis;
use crate::policy::Repeat;
use crate::protocol::decide::Mark;
use crate::protocol::history::History;
use crate::protocol::notes::{Note, NotedPlace};
use crate::protocol::record::Given;
use crate::reply::{Outcome, Reply};
use crate::tell::{self, ReplyKind};

/// Lets a host say whether the model saw an outcome.
pub(crate) struct Delivery {
    inner: Arc<Inner>,
    work: Arc<Work>,
    occurrence: usize,
    place: Option<NotedPlace>,
}

impl Delivery {
    pub(crate) fn set(&self, seen: bool) {
        if self.place.is_none() {
            self.inner.bodies.take(self.work.key, self.occurrence, seen);
            return;
        }
        let note = Note {
            occurrence: self.occurrence,
            place: self.place.clone(),
            given: None,
            delivered: Some(seen),
            replay: false,
        };
        self.inner.note(&self.work, note);
    }
}

/// A reply in the making.
struct Draft {
    kind: ReplyKind,
    marked: bool,
    message: String,
    outcome: Option<Outcome>,
    given: Option<Given>,
    fields: Vec<String>,
    /// What it is called by, if that isn't the record's reference.
    reference: Option<String>,
}

impl Draft {
    fn status(kind: ReplyKind, message: String) -> Self {
        let given = Given::Status { kind: kind as u8, text: message.clone() };
        Self { kind, marked: false, message, outcome: None, given: Some(given), fields: Vec::new(), reference: None }
    }

    /// An answer that leaves no trace at its place.
    fn unnoted(kind: ReplyKind, message: String) -> Self {
        Self { given: None, ..Self::status(kind, message) }
    }
}

/// The model sees a text as it is and everything else as JSON.
fn output(text: &str) -> String {
    if text.starts_with('"') { serde_json::from_str(text).unwrap_or_else(|_| text.to_owned()) } else { text.to_owned() }
}

pub(super) fn outcome(text: &ResultText) -> Outcome {
    Outcome { text: text.whole.clone().unwrap_or_else(|| text.text.clone()), kept: text.kept }
}

impl Inner {
    /// Turns an answer into a reply. Called when the caller takes it: what is noted here is visible at once.
    pub(crate) fn finish(self: &Arc<Self>, work: &Arc<Work>, call_id: &str, answer: Answer) -> Reply {
        let Answer { told, spot } = answer;
        let asked = work;
        let work = spot.work.as_ref().unwrap_or(asked);
        let is_again = matches!(told, Told::Again(..));
        let draft = self.draft(work, &spot, told);
        let place = spot.place.and_then(|place| work.place(place.nth));
        let carries = draft.outcome.is_some() && draft.kind != ReplyKind::Conflict;
        // What a place gets once more is no repeat by the model.
        let replay = !is_again && draft.marked && matches!(draft.kind, ReplyKind::Replayed | ReplyKind::Stopped);
        self.note_given(work, &spot, &draft, place.clone(), (carries, replay));
        let delivery = (spot.found && carries).then(|| Delivery {
            inner: Arc::clone(self),
            work: Arc::clone(work),
            occurrence: spot.occurrence,
            place,
        });
        match work.asked.turn {
            Some(turn) if work.run.answered(turn, work.epoch) => {
                let _ = self.writer.send(super::Later::Log(Arc::clone(&work.run)));
            }
            _ => self.sign_of_life(&work.run),
        }
        tracing::debug!(tool = work.name(), run = %work.asked.run, outcome = draft.kind.name(), "answered");
        Reply {
            kind: draft.kind,
            marked: draft.marked,
            tool: work.name().to_owned(),
            id: call_id.to_owned(),
            message: draft.message,
            outcome: draft.outcome,
            reference: draft.reference.or_else(|| spot.downstream.as_ref().map(crate::key::DownstreamKey::reference)),
            fields: draft.fields,
            downstream: spot.downstream,
            delivery,
        }
    }

    fn note_given(
        self: &Arc<Self>,
        work: &Arc<Work>,
        spot: &Spot,
        draft: &Draft,
        place: Option<NotedPlace>,
        (carries, replay): (bool, bool),
    ) {
        if !spot.found {
            return;
        }
        if carries && place.is_none() && work.tool.policy.counts_taken() {
            self.bodies.take(work.key, spot.occurrence, true);
        }
        let has_answer = place.is_some() && draft.given.is_some();
        if !has_answer && !replay {
            return;
        }
        let note = Note {
            occurrence: spot.occurrence,
            place,
            given: draft.given.clone(),
            delivered: carries.then_some(true),
            replay,
        };
        self.note(work, note);
    }

    fn draft(&self, work: &Work, spot: &Spot, told: Told) -> Draft {
        let now = self.now.get();
        match told {
            Told::Outcome { kind, mark, at, replays, text } => {
                let stop = kind == ReplyKind::Replayed && mark != Mark::Own && replays + 1 >= self.settings.replay_stop;
                let kind = if stop { ReplyKind::Stopped } else { kind };
                let asks = !stop && text.kept;
                with_outcome(kind, self.mark(work, spot, mark, (at, now), asks), stop, &text)
            }
            Told::Again(given, text) => again(given, text),
            Told::Failed(failure) => Draft {
                given: Some(Given::Failure(failure.clone())),
                ..Draft::status(ReplyKind::Failed, tell::failed(&failure))
            },
            Told::Running => Draft::status(ReplyKind::Running, tell::running(spot.since, now)),
            Told::InDoubt => {
                let reference = spot.downstream.as_ref().map(crate::key::DownstreamKey::reference);
                Draft::status(ReplyKind::InDoubt, tell::in_doubt(reference.as_deref().unwrap_or_default()))
            }
            Told::Awaiting(awaited) => {
                let message = tell::awaiting_approval(&awaited.reference, &awaited.reason);
                Draft { reference: Some(awaited.reference), ..Draft::unnoted(ReplyKind::AwaitingApproval, message) }
            }
            Told::Denied { why } => Draft::unnoted(ReplyKind::Denied, tell::denied(&why)),
            Told::Conflict { fields, stored } => {
                let message = tell::conflict(&fields, stored.as_ref().map(|text| text.text.as_str()));
                let outcome = stored.as_ref().map(outcome);
                Draft { outcome, fields, ..Draft::unnoted(ReplyKind::Conflict, message) }
            }
            Told::Refused(why) => Draft::unnoted(ReplyKind::Refused, tell::refused(&why)),
            Told::Diverged => {
                tracing::warn!(tool = work.name(), run = %work.asked.run, "a turn was repeated with other calls");
                Draft::unnoted(ReplyKind::Diverged, tell::diverged())
            }
        }
    }

    /// The sentence that marks an outcome, with what else the tool did since and, if it `asks`, how to have it done again:
    /// not where that would be taken for the way to the result, or where it was said often enough.
    fn mark(&self, work: &Work, spot: &Spot, mark: Mark, (at, now): (Millis, Millis), asks: bool) -> Option<String> {
        let again = work.tool.again.as_deref().map(|name| (name, work.times + 1)).filter(|(_, n)| *n <= MOST_TIMES);
        let ask = match again {
            _ if !asks => tell::Ask::Nothing,
            Some((name, n)) => tell::Ask::Argument(name, n),
            None if work.tool.policy.repeats() == Repeat::Ask => tell::Ask::Human,
            None => tell::Ask::Words,
        };
        let since = work.run.did_since(work.name(), (work.key, spot.occurrence), at);
        tell::mark(mark, at, now, ask, since)
    }

    /// Notes something on a record of this call: at once for this process, soon for the store.
    pub(crate) fn note(self: &Arc<Self>, work: &Arc<Work>, note: Note) {
        let history: Arc<History> = work.run.now().history;
        if history.epoch() != work.epoch {
            return; // What an older epoch was told is no part of the present history.
        }
        if self.records.note(work.run.prefix, work.key, history, note) {
            let _ = self.writer.send(super::Later::Notes(work.run.prefix, work.key));
        }
    }
}

fn with_outcome(kind: ReplyKind, mark: Option<String>, stop: bool, text: &ResultText) -> Draft {
    let shown = output(&text.text);
    let message = match &mark {
        None if kind == ReplyKind::Unrecorded => tell::marked(&shown, tell::unrecorded_note()),
        None => shown,
        Some(mark) if stop => tell::stopped(&text.text, mark),
        Some(mark) => tell::marked(&shown, mark),
    };
    Draft {
        kind,
        marked: mark.is_some(),
        message,
        outcome: Some(outcome(text)),
        given: (kind != ReplyKind::Unrecorded).then_some(Given::Outcome { mark, stop }),
        fields: Vec::new(),
        reference: None,
    }
}

/// The answer that a place got before, word for word.
fn again(given: Given, text: Option<ResultText>) -> Draft {
    let noted = given.clone();
    let draft = match (given, text) {
        (Given::Outcome { mark, stop }, Some(text)) => {
            let kind = if stop { ReplyKind::Stopped } else { ReplyKind::Replayed };
            with_outcome(kind, mark, stop, &text)
        }
        (Given::Failure(failure), _) => Draft::status(ReplyKind::Failed, tell::failed(&failure)),
        (Given::Status { kind, text }, _) => {
            Draft::status(ReplyKind::from_code(kind).unwrap_or(ReplyKind::InDoubt), text)
        }
        (Given::Outcome { .. }, None) => Draft::status(ReplyKind::Replayed, tell::lost()),
    };
    Draft { given: Some(noted), ..draft }
}

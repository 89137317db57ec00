//! What a person can look at: every call of a namespace, and all that is known of one. Looking writes nothing.

mod calls;

pub use self::calls::{
    CallDetail, CallStatus, CallSummary, CallsFrom, CallsPage, Execution, OpenAttempt, Question, RecordedOutcome,
};
use super::deliver::outcome as outcome_of;
use super::permission::request;
use super::records::{Known, downstream};
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::apply::millis;
use crate::protocol::record::{Approval, ApprovalState, Base, Liveness, Record, view};

/// Records that are looked at in one step.
const PAGE: usize = 256;

/// The shortest beginning of a reference that [`Guard::show`] takes, in digits.
const SHORTEST: usize = 6;

/// The length of a whole reference, in digits.
const WHOLE: usize = 12;

/// So many candidates are named where a reference is ambiguous.
const CANDIDATES: usize = 8;

impl Guard {
    /// One page of this guard's namespace: every call that is recorded or asked for approval, reads included, from
    /// `from` on or from the first. A call that is recorded meanwhile may or may not be among them.
    ///
    /// # Errors
    /// If the store or a record can't be read.
    pub async fn calls(&self, from: Option<CallsFrom>) -> Result<CallsPage, Error> {
        let (records, next) = self.inner.records.page(self.prefix, from.map(|from| from.0), PAGE).await?;
        let mut calls = Vec::new();
        for (key, known) in &records {
            calls.extend(self.inner.units(key, known).map(|unit| unit.summary()));
        }
        Ok(CallsPage { calls, next: next.map(CallsFrom) })
    }

    /// All that is known of the call with this reference, of which the first six digits are enough. Every record of the
    /// namespace is looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what can't begin a reference, [`ErrorKind::Ambiguous`] if several calls have one that
    /// begins so; a store error.
    pub async fn show(&self, reference: &str) -> Result<Option<CallDetail>, Error> {
        check(reference)?;
        let mut found: Vec<Found> = Vec::new();
        let mut from = None;
        loop {
            let (records, next) = self.inner.records.page(self.prefix, from, PAGE).await?;
            for (key, known) in records {
                let units = self.inner.units(&key, &known).map(|unit| (unit.summary(), unit.what.number()));
                let fits = units.filter(|(summary, _)| summary.reference.starts_with(reference));
                found.extend(fits.map(|(summary, occurrence)| Found {
                    summary,
                    occurrence,
                    key,
                    known: known.clone(),
                }));
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        match found.len() {
            0 | 1 => match found.pop() {
                Some(found) => self.detail(found).await.map(Some),
                None => Ok(None),
            },
            _ => Err(ambiguous(reference, &found)),
        }
    }

    async fn detail(&self, found: Found) -> Result<CallDetail, Error> {
        let Found { summary, occurrence, key, known } = found;
        let now = self.inner.now.get();
        let questions = known.base.approvals.iter().map(|approval| Question {
            request: request(&key, &known.base.about.tool, approval),
            status: CallStatus::of_question(approval, now),
            why: match &approval.state {
                ApprovalState::Denied { why } => why.clone(),
                _ => String::new(),
            },
            signed: approval.signed.clone(),
        });
        let own = |question: &Question| occurrence.is_some() || question.request.reference == summary.reference;
        let questions = questions.filter(own).collect();
        let execution = match occurrence {
            Some(occurrence) => Some(self.execution(&key, &known, occurrence).await?),
            None => None,
        };
        Ok(CallDetail { summary, execution, questions })
    }

    async fn execution(&self, key: &BaseKey, known: &Known, occurrence: usize) -> Result<Execution, Error> {
        let record = &known.base.occurrences[occurrence];
        let outcome = match &record.outcome {
            Some(outcome) => {
                let text = self.inner.stored_text((self.prefix, key), &known.base, occurrence).await?;
                Some(RecordedOutcome {
                    attempt: outcome.fence.0,
                    at: outcome.at,
                    told_by: outcome.told_by,
                    result: outcome_of(&text),
                })
            }
            None => None,
        };
        // A claim that nobody has noted the end of is taken for what it says: who opens the store knows of its owner's
        // death only from that moment on.
        let settle = millis(self.inner.settle_delay(&known.base.about.tool));
        let counts_from = record.no_counts_from(&|_| Liveness::Alive, settle);
        Ok(Execution {
            effect: record.strictness,
            downstream_key: downstream(key, &known.base, occurrence),
            fingerprint: record.fingerprint,
            arguments: record.kept_arguments.clone(),
            first_sent: record.first_sent,
            open: open_attempts(record),
            takes_no_from: record.is_tainted().then_some(counts_from),
            failure: record.last.clone(),
            approved: record.approved.is_some(),
            permit: record.permit.clone(),
            statement: record.statement.clone(),
            outcome,
            places: record.slots.clone(),
        })
    }
}

/// A call that was looked for.
struct Found {
    summary: CallSummary,
    /// `None` for one that only asked for approval.
    occurrence: Option<usize>,
    key: BaseKey,
    known: Known,
}

fn check(reference: &str) -> Result<(), Error> {
    let digits = reference.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if digits && (SHORTEST..=WHOLE).contains(&reference.len()) {
        return Ok(());
    }
    let message = format!(
        "{reference:?} is no reference: it has {WHOLE} digits from 0-9 and a-f, of which the first {SHORTEST} are enough"
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

fn ambiguous(reference: &str, found: &[Found]) -> Error {
    let name = |found: &Found| format!("{} ({}, {})", found.summary.reference, found.summary.tool, found.summary.run);
    let mut names: Vec<String> = found.iter().take(CANDIDATES).map(name).collect();
    if found.len() > CANDIDATES {
        names.push(format!("{} more", found.len() - CANDIDATES));
    }
    let message =
        format!("{} references begin with {reference}: give more digits of {}", found.len(), names.join(", "));
    Error::new(ErrorKind::Ambiguous, message)
}

fn open_attempts(record: &Record) -> Vec<OpenAttempt> {
    let ended = record.open.iter().map(|open| OpenAttempt {
        number: open.fence.0,
        began: None,
        quiet_from: open.quiet_from,
        error: open.error.clone(),
    });
    let claimed = record.claim.iter().map(|claim| OpenAttempt {
        number: claim.fence.0,
        began: Some(claim.claimed_at),
        quiet_from: claim.deadline,
        error: None,
    });
    ended.chain(claimed).collect()
}

/// One call of a base record.
struct Unit<'a> {
    key: &'a BaseKey,
    base: &'a Base,
    what: What<'a>,
    now: Millis,
}

enum What<'a> {
    Record(usize, &'a Record, CallStatus),
    Question(&'a Approval),
}

impl What<'_> {
    fn number(&self) -> Option<usize> {
        match self {
            Self::Record(occurrence, ..) => Some(*occurrence),
            Self::Question(_) => None,
        }
    }
}

impl Unit<'_> {
    fn summary(&self) -> CallSummary {
        let about = &self.base.about;
        match self.what {
            What::Record(occurrence, record, status) => CallSummary {
                reference: downstream(self.key, self.base, occurrence).reference(),
                status,
                tool: about.tool.clone(),
                run: about.run.clone(),
                occurrence,
                at: newest(record, self.now),
                attempts: record.fence.0,
            },
            What::Question(approval) => {
                let request = request(self.key, &about.tool, approval);
                CallSummary {
                    reference: request.reference,
                    status: CallStatus::of_question(approval, self.now),
                    tool: request.tool,
                    run: request.run,
                    occurrence: 0,
                    at: Some(approval.signed.as_ref().map_or(request.asked_at, |signed| signed.at)),
                    attempts: 0,
                }
            }
        }
    }
}

/// When the newest thing that is known of a record happened. A deadline that lies ahead hasn't.
fn newest(record: &Record, now: Millis) -> Option<Millis> {
    let outcome = record.outcome.iter().map(|outcome| outcome.at);
    let claim = record.claim.iter().map(|claim| claim.claimed_at);
    let open = record.open.iter().map(|open| open.quiet_from).filter(|at| *at <= now);
    let stated = record.statement.iter().map(|statement| statement.signed.at);
    outcome.chain(claim).chain(open).chain(stated).chain(record.first_sent).max()
}

impl Inner {
    /// The calls of one record: those that were executed or may have been, and those that only asked for approval.
    fn units<'a>(&'a self, key: &'a BaseKey, known: &'a Known) -> impl Iterator<Item = Unit<'a>> {
        let now = self.now.get();
        let base = &*known.base;
        let records = base
            .occurrences
            .iter()
            .enumerate()
            .map(move |(n, record)| What::Record(n, record, view(record, &self.lease.at(now), now).into()));
        records.chain(base.approvals.iter().map(What::Question)).map(move |what| Unit { key, base, what, now })
    }
}

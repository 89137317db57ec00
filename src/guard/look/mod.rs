//! What a person can look at: every call of a namespace, and all that is known of one. Looking writes nothing.

mod calls;

pub use self::calls::{
    CallDetail, CallStatus, CallSummary, CallsFrom, CallsPage, Execution, NextCall, OpenAttempt, Question,
    RecordedOutcome,
};
use super::deliver::outcome as outcome_of;
use super::permission::{question_reference, request};
use super::records::{Known, downstream};
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::{BaseKey, REFERENCE_DIGITS};
use crate::protocol::apply::millis;
use crate::protocol::record::{Approval, ApprovalState, Base, Liveness, Record, view};

/// Records that are looked at in one step.
const PAGE: usize = 256;

/// So many candidates are named where a reference is ambiguous.
const CANDIDATES: usize = 8;

impl Guard {
    /// One page of this guard's namespace, of up to 256 records: every call that is recorded or asked for approval, reads
    /// included, from `from` on or from the first. A call that is recorded meanwhile may or may not be among them.
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

    /// All that is known of the call with this reference, of which the first six digits are enough; `None` if no call of
    /// this guard's namespace has it. By the reference of a question that was answered and used up,
    /// the call is found that it permitted, while that is the call's newest attempt. Every record of the namespace is looked
    /// at.
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
                let named = self.inner.units(&key, &known).filter_map(|unit| Some((unit.named(reference)?, unit)));
                found.extend(named.map(|(named, unit)| Found {
                    summary: unit.summary(),
                    occurrence: unit.what.number(),
                    named,
                    key,
                    known: known.clone(),
                }));
            }
            from = next;
            if from.is_none() {
                break;
            }
        }
        if found.iter().any(|found| found.named == Named::Itself) {
            found.retain(|found| found.named == Named::Itself);
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
        let Found { summary, occurrence, key, known, .. } = found;
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
    named: Named,
    key: BaseKey,
    known: Known,
}

/// Whose reference it is that a call was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Itself,
    /// That of the question which permitted it, and which is gone.
    Question,
}

fn check(reference: &str) -> Result<(), Error> {
    let digits = reference.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    if digits && REFERENCE_DIGITS.contains(&reference.len()) {
        return Ok(());
    }
    let message = format!(
        "{reference:?} is no reference: it has {} digits from 0-9 and a-f, of which the first {} are enough",
        REFERENCE_DIGITS.end(),
        REFERENCE_DIGITS.start()
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
    /// Whether `reference` begins the call's, or that of its permission.
    fn named(&self, reference: &str) -> Option<Named> {
        let asked = || match self.what {
            What::Record(_, record, _) => Some(self.key.question(record.approved.as_deref()?, &record.fingerprint)),
            What::Question(_) => None,
        };
        match self.reference().starts_with(reference) {
            true => Some(Named::Itself),
            false => asked()?.starts_with(reference).then_some(Named::Question),
        }
    }

    fn reference(&self) -> String {
        match self.what {
            What::Record(occurrence, ..) => downstream(self.key, self.base, occurrence).reference(),
            What::Question(approval) => question_reference(self.key, &approval.asker),
        }
    }

    fn summary(&self) -> CallSummary {
        let about = &self.base.about;
        match self.what {
            What::Record(occurrence, record, status) => CallSummary {
                reference: self.reference(),
                status,
                tool: about.tool.clone(),
                run: about.run.clone(),
                occurrence,
                at: newest(record, self.now),
                attempts: record.fence.0,
                next_call: (status == CallStatus::InDoubt).then(|| NextCall::about(record)),
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
                    next_call: None,
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

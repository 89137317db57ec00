//! What is in doubt: look-ups, the inbox, and a human's answer.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::attempt::{self, bounded};
use super::pages::Pages;
use super::records::{Along, Known, Put, Records, downstream};
use super::reopen::values_of;
use super::rows::{Kind, Prefix, Reopening, Row, RunLog, RunRow, salt};
use super::work::Work;
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::{BaseKey, digest};
use crate::protocol::apply::{Answer, Event, apply, millis};
use crate::protocol::record::{Base, Body, Fence, Record, Statement, ToldBy, View, view};
use crate::store::{Durability, Purpose};
use crate::tool::{LookUp, Produced, Reconciled};

/// A call of which it isn't known whether it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InDoubtCall {
    /// What [`Guard::resolve`] takes.
    pub reference: String,
    /// The tool's name.
    pub tool: String,
    /// The run that asked first.
    pub run: String,
    /// When the newest attempt that may have had an effect must have ended at the latest, in milliseconds since the
    /// Unix epoch.
    pub quiet_from: Millis,
    /// How many attempts have an unknown end.
    pub attempts: usize,
    /// What the tool said, if it said anything.
    pub errors: Vec<String>,
    /// The arguments as executed, if the tool's policy keeps them.
    pub arguments: Option<String>,
}

/// A human's answer to "did this happen?".
#[derive(Debug, Clone, PartialEq)]
pub enum Resolution {
    /// It happened, and this is what the tool would have returned.
    Happened(Value),
    /// It did not happen. Refused while an effect could still show; see [`Guard::resolve`].
    DidNotHappen,
    /// It did not happen, and who says so takes the risk that an effect under way still shows.
    DidNotHappenForSure,
}

impl Guard {
    /// The calls of this guard's namespace of which it isn't known whether they happened, for a human.
    ///
    /// # Errors
    /// If the store can't be read.
    pub async fn inbox(&self) -> Result<Vec<InDoubtCall>, Error> {
        let inner = &self.inner;
        let mut calls = Vec::new();
        for (key, known) in inner.open_records(self.prefix).await? {
            calls.extend(
                inner.doubts(&known.base).map(|(n, record)| in_doubt_call(inner, &key, &known.base, n, record)),
            );
        }
        Ok(calls)
    }

    /// Settles a call in doubt. `reference` is that of a [`Reply`](crate::Reply) or an [`InDoubtCall`]; `reason`,
    /// how they know, goes to the log and, its first 500 characters, into the record for whoever looks at the call later;
    /// so does the name of the guard's [`answering_as`](Self::answering_as).
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchCall`] if no call in doubt has this reference, [`ErrorKind::StillRunning`] if it is being
    /// executed, [`ErrorKind::TooEarly`] for a plain "did not happen" before the settle delay is over.
    pub async fn resolve(&self, reference: &str, resolution: Resolution, reason: &str) -> Result<(), Error> {
        loop {
            let (key, occurrence, known) = self.inner.find(self.prefix, reference).await?;
            let record = &known.base.occurrences[occurrence];
            let mut along = Along::default();
            let log = self.inner.place_in_run(self.prefix, (&known.base, record), &resolution, &mut along).await?;
            let order = log.as_ref().map_or(0, |log| log.completions);
            let tool = known.base.about.tool.as_str();
            let answer = self.answer_of((&key, tool), (occurrence, record), &resolution, order, &mut along)?;
            let event = Event::Answered { fence: record.fence, answer, at: self.inner.now.get() };
            let mut next = apply(&known.base, occurrence, &event).map_err(|refused| {
                Error::new(ErrorKind::NoSuchCall, format!("{reference} can't be settled: {refused}"))
            })?;
            next.occurrences[occurrence].statement = Some(Statement {
                fence: record.fence,
                happened: matches!(resolution, Resolution::Happened(_)),
                why: bounded(reason),
                signed: self.signature(),
            });
            let put =
                self.inner.records.put(self.prefix, &key, &known, next, along, Durability::Synced, Purpose::Complete);
            if let Put::Done { version } = put.await? {
                if let Some(run) = self.inner.runs.at_hand(self.prefix, &known.base.about.run) {
                    run.reads.wrote();
                    if let Some(log) = log {
                        run.wrote_log(log, version);
                    }
                }
                let happened = matches!(resolution, Resolution::Happened(_));
                tracing::info!(reference, reason, happened, "a call in doubt was settled by a human");
                return Ok(());
            }
        }
    }

    fn answer_of(
        &self,
        (key, tool): (&BaseKey, &str),
        (occurrence, record): (usize, &Record),
        resolution: &Resolution,
        order: u64,
        along: &mut Along,
    ) -> Result<Answer, Error> {
        let inner = &self.inner;
        match resolution {
            Resolution::Happened(value) => {
                let unit = (occurrence, record.fence);
                let limit = inner.settings.max_result;
                let body = Records::body(self.prefix, key, unit, &value.to_string(), limit, along);
                Ok(Answer::Happened { body, fingerprint: record.fingerprint, told_by: ToldBy::Human, order })
            }
            Resolution::DidNotHappen => {
                let now = inner.now.get();
                let settle = millis(inner.settle_delay(tool));
                let from = record.no_counts_from(&inner.lease.at(now), settle);
                if now < from {
                    let message = format!(
                        "an effect under way could still show for {} s: say it again then, or say that it did not \
                         happen for sure",
                        (from - now).div_ceil(1000)
                    );
                    return Err(Error::new(ErrorKind::TooEarly, message));
                }
                Ok(Answer::DidNotHappen)
            }
            Resolution::DidNotHappenForSure => Ok(Answer::DidNotHappen),
        }
    }
}

fn in_doubt_call(inner: &Inner, key: &BaseKey, base: &Base, occurrence: usize, record: &Record) -> InDoubtCall {
    let now = inner.now.get();
    InDoubtCall {
        reference: downstream(key, base, occurrence).reference(),
        tool: base.about.tool.clone(),
        run: base.about.run.clone(),
        quiet_from: record.quiet_from(&inner.lease.at(now)),
        attempts: record.unknown_ends().count(),
        errors: record.open.iter().filter_map(|open| open.error.clone()).collect(),
        arguments: record.kept_arguments.clone(),
    }
}

impl Inner {
    /// The records with attempts whose end isn't known.
    pub(super) async fn open_records(&self, prefix: Prefix) -> Result<Vec<(BaseKey, Known)>, Error> {
        let mut records = Vec::new();
        let mut pages = Pages::of(prefix.all_of(Kind::Open));
        while let Some(page) = pages.next(self).await? {
            for key in page.iter().filter_map(|(open, _)| Prefix::key_in(open)) {
                records.push((key, self.records.load(prefix, &key).await?));
            }
        }
        Ok(records)
    }

    /// A completion by a human's word has its place in the run's order of completions like any other: else what
    /// reopened the tool before would seem to have come after.
    async fn place_in_run(
        &self,
        prefix: Prefix,
        (base, record): (&Base, &Record),
        resolution: &Resolution,
        along: &mut Along,
    ) -> Result<Option<RunLog>, Error> {
        if !matches!(resolution, Resolution::Happened(_)) {
            return Ok(None);
        }
        let (key, run_key) = (prefix.log(&base.about.run), prefix.run(&base.about.run));
        let mut found = self.records.store().get(&[key.clone(), run_key.clone()]).await?;
        let (run, stored) = (found.pop().flatten(), found.pop().flatten());
        let Some(run) = run else { return Ok(None) };
        let row = RunRow::read(&run.value)?;
        if !row.life.is_there() {
            return Ok(None); // nothing is reopened in a run that was removed
        }
        let mut log = match &stored {
            Some(stored) => RunLog::read(&stored.value)?,
            None => RunLog::default(),
        };
        let order = log.complete(&base.about.tool);
        log.active_at = log.active_at.max(self.now.get());
        // What it was about is known only where the arguments were kept: else it reopens what any completion reopens.
        let salt = salt(&base.about.run, &row.line);
        let arguments = record.kept_arguments.as_deref();
        let values = arguments.map_or_else(Vec::new, |text| values_of(self.secrets.current(), salt, text));
        let turn = record.turn_of(record.fence);
        let reopening = Reopening { tool: base.about.tool.clone(), turn, values };
        along.puts.push((prefix.reopening(&base.about.run, order), reopening.to_bytes()));
        along.checks.push((key.clone(), stored.map(|stored| stored.version)));
        along.checks.push((run_key, Some(run.version)));
        along.puts.push((key, log.to_bytes()));
        Ok(Some(log))
    }

    /// Of two registries with a tool of this name the longer one counts; a tool that nobody registered here has the
    /// guard's.
    pub(super) fn settle_delay(&self, tool: &str) -> Duration {
        let delays = self.settle_delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.get(tool).copied().unwrap_or(self.settings.settle_delay)
    }

    pub(crate) fn registered(&self, tool: &str, settle_delay: Duration) {
        let mut delays = self.settle_delays.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = delays.entry(tool.to_owned()).or_insert(settle_delay);
        *delay = settle_delay.max(*delay);
    }

    fn doubts<'a>(&'a self, base: &'a Base) -> impl Iterator<Item = (usize, &'a Record)> {
        let now = self.now.get();
        let records = base.occurrences.iter().enumerate();
        records.filter(move |(_, record)| view(record, &self.lease.at(now), now) == View::InDoubt)
    }

    async fn find(&self, prefix: Prefix, reference: &str) -> Result<(BaseKey, usize, Known), Error> {
        let now = self.now.get();
        for (key, known) in self.open_records(prefix).await? {
            for (occurrence, record) in known.base.occurrences.iter().enumerate() {
                if downstream(&key, &known.base, occurrence).reference() != reference {
                    continue;
                }
                return match view(record, &self.lease.at(now), now) {
                    View::InDoubt => Ok((key, occurrence, known)),
                    View::Running => {
                        Err(Error::new(ErrorKind::StillRunning, format!("{reference} is still running: wait for it")))
                    }
                    _ => break,
                };
            }
        }
        let message = format!("no call in doubt has the reference {reference:?}: the inbox lists those that do");
        Err(Error::new(ErrorKind::NoSuchCall, message))
    }

    /// Asks the tool whether it happened. Whether that settled the record, one way or the other.
    pub(crate) async fn look_up(
        self: &Arc<Self>,
        work: &Arc<Work>,
        known: &Known,
        occurrence: usize,
        fence: Fence,
        no_counts: bool,
    ) -> Result<bool, Error> {
        let record = &known.base.occurrences[occurrence];
        let text = record.kept_arguments.as_deref().unwrap_or(&work.executed);
        let downstream = downstream(&work.key, &known.base, occurrence);
        let Some(Ok(job)) = work.tool.look_up_job(text, &downstream) else { return Ok(false) };
        let about = LookUp { run: work.asked.run.clone(), downstream, form: work.tool.policy.key_form() };
        let limit = work.tool.limits.attempt_deadline;
        let mut inside = attempt::inside();
        inside.push(work.key);
        let mut asked = self.tasks.spawn(attempt::within(inside, async move { job(about).await }));
        let found: Reconciled<Produced> = tokio::select! {
            found = &mut asked => match found {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    tracing::warn!(%error, tool = work.name(), "a look-up failed");
                    Reconciled::CannotTell
                }
                Err(_) => Reconciled::CannotTell,
            },
            () = self.now.clock().sleep(limit) => {
                asked.abort();
                Reconciled::CannotTell
            }
        };
        let mut along = Along::default();
        let answer = match found {
            Reconciled::CannotTell => return Ok(false),
            Reconciled::DidNotHappen if !no_counts => return Ok(false),
            Reconciled::DidNotHappen => Answer::DidNotHappen,
            Reconciled::Happened(produced) => {
                let body = self.produced_body(work, (occurrence, fence), &produced, &mut along);
                Answer::Happened { body, fingerprint: record.fingerprint, told_by: ToldBy::LookUp, order: 0 }
            }
        };
        let event = Event::Answered { fence, answer, at: self.now.get() };
        // Refused means that the record moved on: then it is decided again as well.
        let _ = self.commit_event(work, occurrence, event, &along.puts).await?;
        Ok(true)
    }

    /// What a record keeps of a result.
    pub(super) fn produced_body(
        &self,
        work: &Work,
        unit: (usize, Fence),
        produced: &Produced,
        along: &mut Along,
    ) -> Body {
        match produced {
            Ok(text) => Records::body(work.run.prefix, &work.key, unit, text, work.tool.max_result, along),
            Err(why) => {
                Body::NotKept { length: 0, digest: digest("toolonce result", b""), head: bounded(why).into_bytes() }
            }
        }
    }
}

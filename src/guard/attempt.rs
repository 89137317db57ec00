//! One attempt: from the claim to the recorded end. What runs here goes on when the caller is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};

use super::Inner;
use super::here::{UnrecordedEnd, Unwritten};
use super::records::{Along, Known, Put, Records, downstream, pieces_of};
use super::rows::{Reopening, Row, RunLog};
use super::work::Work;
use crate::Millis;
use crate::error::ErrorKind;
use crate::key::{BaseKey, Digest, DownstreamKey};
use crate::policy::{Effect, InDoubt, KeyWindow};
use crate::protocol::apply::{Answer, End, Event, NewClaim, Over, Refused, apply, millis};
use crate::protocol::decide::{Act, Decision, Place};
use crate::protocol::growth;
use crate::protocol::history::History;
use crate::protocol::notes::{Note, note};
use crate::protocol::record::{Base, Failure, FailureClass, Fence, Record};
use crate::store::{Durability, Purpose, StoreError, StoreErrorKind};
use crate::tool::{Attempt, Job, Produced, ToolError};

tokio::task_local! {
    /// The units of work whose bodies the present task runs inside of.
    static INSIDE: Vec<BaseKey>;
}

/// Whether the present task is part of an execution of `key`: waiting for it would never end.
pub(crate) fn is_inside(key: &BaseKey) -> bool {
    INSIDE.try_with(|inside| inside.contains(key)).unwrap_or(false)
}

/// The executions that the present task is part of. A call made from inside one is driven by a task of its own, which
/// is part of them too: else a tool that calls itself through another one would wait for itself.
pub(crate) fn inside() -> Vec<BaseKey> {
    INSIDE.try_with(Vec::clone).unwrap_or_default()
}

/// Runs `future` as a part of these executions.
pub(crate) fn within<F: Future>(inside: Vec<BaseKey>, future: F) -> impl Future<Output = F::Output> {
    INSIDE.scope(inside, future)
}

/// What an [`Attempt`] knows.
pub(crate) struct AttemptState {
    pub(crate) inner: Arc<Inner>,
    pub(crate) work: Arc<Work>,
    pub(crate) run: Arc<str>,
    pub(crate) downstream: DownstreamKey,
    pub(crate) occurrence: usize,
    pub(crate) fence: Fence,
    pub(crate) deadline: Millis,
    pub(crate) first_sent: Millis,
    pub(crate) overtaken: AtomicBool,
}

impl AttemptState {
    pub(crate) fn time_left(&self) -> Duration {
        self.inner.now.until(self.deadline)
    }

    pub(crate) async fn check(&self) -> Result<(), ToolError> {
        if self.time_left().is_zero() {
            return Err(ToolError::retryable("the attempt's deadline has passed: nothing was sent"));
        }
        // A read has no claim that could be overtaken.
        if self.fence == Fence::default() || self.still_claimed().await? {
            return Ok(());
        }
        Err(ToolError::retryable("the attempt was overtaken: nothing was sent"))
    }

    /// Whether the claim stands. Where every commit goes through this process the memory tier knows.
    async fn still_claimed(&self) -> Result<bool, ToolError> {
        if self.overtaken.load(Ordering::Acquire) {
            return Ok(false);
        }
        let known = self.inner.records.load(self.work.run.prefix, &self.work.key).await;
        let known = known.map_err(|error| ToolError::retryable(format!("the claim can't be checked: {error}")))?;
        let record = known.base.occurrences.get(self.occurrence);
        let claim = record.and_then(|record| record.claim.as_ref());
        let stands = claim.is_some_and(|claim| claim.fence == self.fence);
        self.overtaken.store(!stands, Ordering::Release);
        Ok(stands && !self.time_left().is_zero())
    }
}

/// How an attempt to claim ended.
pub(crate) enum Claimed {
    Yes(Claim),
    /// Something moved: decide again.
    Moved,
    /// The record is so large that the end of this attempt might not fit into it.
    NoRoom,
    /// The arguments can't be read; for the model.
    Unreadable(String),
}

/// A claim that is in the store.
pub(crate) struct Claim {
    pub(crate) occurrence: usize,
    pub(crate) fence: Fence,
    pub(crate) at: Millis,
    pub(crate) deadline: Millis,
    pub(crate) first_sent: Millis,
    pub(crate) downstream: DownstreamKey,
    pub(crate) job: Job,
}

/// How an attempt ended for those who wait for it.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    Success(String),
    /// It happened, but there is no result that can be kept.
    NoResult(String),
    Failed(Failure),
    /// It may have happened.
    Unknown,
    /// It happened and could not be recorded.
    Unrecorded(Produced),
}

impl Inner {
    /// Puts a claim for `decision` into the store.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        work: &Arc<Work>,
        known: &Known,
        decision: &Decision,
        along: Along,
    ) -> Result<Claimed, crate::Error> {
        let Act::Attempt { over, kept, permitted, .. } = decision.act else { return Ok(Claimed::Moved) };
        let record = known.base.occurrences.get(decision.occurrence);
        let kept = record.and_then(|record| record.kept_arguments.clone()).filter(|_| kept);
        // Kept arguments are those that the record's digest was taken of.
        let executed = record.filter(|_| kept.is_some()).map_or(work.asked.executed, |record| record.executed);
        let text = kept.as_deref().unwrap_or(&work.executed);
        let event = Event::Claim(Box::new(self.new_claim(work, (text, executed), (over, permitted))));
        let Ok(mut next) = apply(&known.base, decision.occurrence, &event) else { return Ok(Claimed::Moved) };
        let downstream = downstream(&work.key, &next, decision.occurrence);
        let job = match work.tool.job(text, &downstream) {
            Ok(job) => job,
            Err(error) => return Ok(Claimed::Unreadable(error)),
        };
        work.name_record(&mut next);
        note_place(&mut next, work, decision.occurrence, decision.place);
        if !Records::has_room(&next) {
            return Ok(Claimed::NoRoom);
        }
        let durability = claim_durability(work, &next, decision.occurrence);
        let claimed = &next.occurrences[decision.occurrence];
        let (fence, first_sent) = (claimed.fence, claimed.first_sent);
        let Some(claimed) = &claimed.claim else { return Ok(Claimed::Moved) };
        let (at, deadline) = (claimed.claimed_at, claimed.deadline);
        match self.put_of_turn(work, known, next, along, (durability, Purpose::Claim)).await {
            Ok(true) => {
                // If the store lost an uncertain claim, this one has its number.
                self.unstarted.forget(&work.key, (decision.occurrence, fence));
                if work.tool.policy.effect().is_write() && !work.is_pinned {
                    work.run.bind(work.name(), work.tool.contract);
                }
            }
            Ok(false) => return Ok(Claimed::Moved),
            Err(error) => {
                if error.kind() == ErrorKind::Store(StoreErrorKind::Uncertain) {
                    self.unstarted.add(work.key, (decision.occurrence, fence));
                }
                return Err(error);
            }
        }
        let first_sent = first_sent.unwrap_or(at);
        let occurrence = decision.occurrence;
        Ok(Claimed::Yes(Claim { occurrence, fence, at, deadline, first_sent, downstream, job }))
    }

    /// The wish to execute `text` for `work`.
    pub(super) fn new_claim(
        &self,
        work: &Work,
        (text, executed): (&str, Digest),
        (over, permitted): (Over, bool),
    ) -> NewClaim {
        NewClaim {
            owner: self.lease.me,
            at: self.now.get(),
            attempt_deadline: work.tool.limits.attempt_deadline,
            window: window(work),
            over,
            asker: work.asked.asker(),
            turn: work.asked.turn,
            permitted,
            settle_delay: work.tool.limits.settle_delay,
            strictness: work.tool.policy.effect().into(),
            executed,
            kept_arguments: keeps_arguments(work, text).then(|| text.to_owned()),
            leaves: work.leaves.clone(),
        }
    }

    /// Puts `next` in the present epoch of its run, and the turn's manifest with it. Whether it is in; if not, something
    /// moved.
    pub(super) async fn put_of_turn(
        &self,
        work: &Work,
        known: &Known,
        next: Base,
        beside: Along,
        (durability, purpose): (Durability, Purpose),
    ) -> Result<bool, crate::Error> {
        let mut along = Along::default();
        work.index(known, &mut along);
        // Changes only when the run is started, resumed, made by a fork or removed: what an older epoch wants can't pass.
        along.checks.push((work.run.row_key(), Some(work.present()?.row)));
        if let Some(plan) = &work.plan {
            plan.join(&mut along)?;
        }
        along.checks.extend(beside.checks);
        along.puts.extend(beside.puts);
        let shared = along.checks.len();
        along.checks.extend(self.secrets.claim_checks(work));
        let prefix = work.run.prefix;
        work.run.blank.put(along.puts.iter().map(|(key, _)| key));
        match self.records.put(prefix, &work.key, known, next, along, durability, purpose).await? {
            Put::Done { .. } => {
                if let Some(plan) = &work.plan {
                    plan.recorded();
                }
                Ok(true)
            }
            Put::Moved(existing) => {
                let found = existing.get(shared..).unwrap_or_default();
                self.secrets.claim_refused(&**self.records.store(), work, found).await?;
                work.run.refresh(existing.first().cloned().flatten(), None)?;
                if let Some(plan) = &work.plan {
                    plan.met(&**self.records.store()).await?;
                }
                Ok(false)
            }
        }
    }

    /// Executes a claimed attempt and records its end. Past the deadline the body goes on, on its own.
    pub(crate) async fn execute(self: &Arc<Self>, work: &Arc<Work>, claim: Claim) -> Ending {
        let Claim { occurrence, fence, at, deadline, first_sent, downstream, job } = claim;
        let unit = (occurrence, fence);
        self.bodies.enter(work.key, unit);
        if !self.may_start(work, unit, at, deadline).await {
            let failure = Failure { class: FailureClass::Retryable, message: "it was not started in time".to_owned() };
            let end = End::NoEffect { failure: failure.clone(), not_before: 0 };
            self.record_end(work, unit, end).await;
            return Ending::Failed(failure);
        }
        let state = AttemptState {
            inner: Arc::clone(self),
            work: Arc::clone(work),
            run: Arc::clone(&work.run.id),
            downstream,
            occurrence,
            fence,
            deadline,
            first_sent,
            overtaken: AtomicBool::new(false),
        };
        let mut body = self.spawn_body(work.key, job, Attempt { state: Arc::new(state) });
        tokio::select! {
            biased;
            end = &mut body => self.ended(work, unit, end).await,
            () = self.sleep_until(deadline) => {
                tracing::warn!(tool = work.name(), "an attempt is past its deadline; it goes on and is in doubt until it ends");
                let (inner, work) = (Arc::clone(self), Arc::clone(work));
                self.tasks.spawn(async move {
                    let end = body.await;
                    inner.ended(&work, unit, end).await;
                });
                Ending::Unknown
            }
        }
    }

    pub(super) async fn sleep_until(&self, at: Millis) {
        while self.now.get() < at {
            self.now.clock().sleep(self.now.until(at)).await;
        }
    }

    pub(super) fn spawn_body(
        &self,
        key: BaseKey,
        job: Job,
        attempt: Attempt,
    ) -> JoinHandle<Result<Produced, ToolError>> {
        let mut inside = inside();
        inside.push(key);
        // The closure may run code of the tool before its first await: inside the task, where a panic is caught.
        self.tasks.spawn(within(inside, async move { job(attempt).await }))
    }

    /// A process that was stopped after its claim must not begin what others may have judged by then.
    async fn may_start(&self, work: &Work, unit: (usize, Fence), claimed_at: Millis, deadline: Millis) -> bool {
        let now = self.now.get();
        let paused = Duration::from_millis(now.saturating_sub(claimed_at)) >= self.lease.length() / 2;
        if now >= deadline {
            return false;
        }
        if !paused || self.lease.is_alone() {
            return true;
        }
        let Ok(known) = self.records.load_fresh(work.run.prefix, &work.key).await else { return false };
        let record = known.base.occurrences.get(unit.0);
        let stands = record.and_then(|record| record.claim.as_ref()).is_some_and(|claim| claim.fence == unit.1);
        stands && self.now.get() < deadline
    }

    /// Records how a body ended.
    async fn ended(
        self: &Arc<Self>,
        work: &Arc<Work>,
        unit: (usize, Fence),
        end: Result<Result<Produced, ToolError>, JoinError>,
    ) -> Ending {
        work.run.reads.wrote();
        let produced = match end {
            Ok(Ok(produced)) => produced,
            Ok(Err(error)) => return self.failed(work, unit, &error).await,
            // Cancelled only with the whole guard.
            Err(error) => {
                let message = if error.is_panic() { panic_text(error) } else { "the process stopped".to_owned() };
                self.record_end(work, unit, End::Unknown { error: message }).await;
                return Ending::Unknown;
            }
        };
        match (self.record_success(work, unit, &produced).await, produced) {
            (true, Ok(text)) => Ending::Success(text),
            (true, Err(why)) => Ending::NoResult(why),
            (false, produced) => Ending::Unrecorded(produced),
        }
    }

    async fn failed(self: &Arc<Self>, work: &Arc<Work>, unit: (usize, Fence), error: &ToolError) -> Ending {
        let message = bounded(&error.to_string());
        if error.is_unknown() {
            self.record_end(work, unit, End::Unknown { error: message }).await;
            Ending::Unknown
        } else {
            let failure = Failure { class: error.class(), message };
            let not_before =
                error.delay().map_or(0, |delay| self.now.get().saturating_add(millis(delay.min(LONGEST_DELAY))));
            self.record_end(work, unit, End::NoEffect { failure: failure.clone(), not_before }).await;
            Ending::Failed(failure)
        }
    }

    async fn record_success(self: &Arc<Self>, work: &Arc<Work>, unit: (usize, Fence), produced: &Produced) -> bool {
        let mut along = Along::default();
        let body = self.produced_body(work, unit, produced, &mut along);
        let end = End::Success { body, fingerprint: work.asked.fingerprint, order: 0 };
        self.record_end_with(work, unit, end, along).await
    }

    /// Records an end; what can't be recorded now is kept and tried again when the record is next asked for. The body
    /// has ended, but only the recorded end frees its place: until then nobody may take its claim for an orphan's, not
    /// even while somebody else is about to record the end.
    pub(crate) async fn record_end(self: &Arc<Self>, work: &Arc<Work>, unit: (usize, Fence), end: End) -> bool {
        self.record_end_with(work, unit, end, Along::default()).await
    }

    async fn record_end_with(self: &Arc<Self>, work: &Arc<Work>, unit: (usize, Fence), end: End, along: Along) -> bool {
        let event = Event::Ended { fence: unit.1, end, at: self.now.get() };
        let puts = along.puts;
        match self.commit_event(work, unit.0, event.clone(), &puts).await {
            Ok(_) => {
                self.bodies.leave(&work.key, unit);
                true
            }
            Err(error) => {
                tracing::error!(%error, tool = work.name(), "the end of an attempt could not be recorded");
                let what = Unwritten::End { event, puts };
                self.keep_unrecorded(UnrecordedEnd { work: Arc::clone(work), occurrence: unit.0, what });
                false
            }
        }
    }

    /// Applies an event that is about the past to whatever the record is by now, until it is in or refused.
    pub(crate) async fn commit_event(
        &self,
        work: &Arc<Work>,
        occurrence: usize,
        mut event: Event,
        puts: &[(crate::store::Key, Vec<u8>)],
    ) -> Result<Result<(), Refused>, StoreError> {
        let prefix = work.run.prefix;
        loop {
            let known = self.records.load(prefix, &work.key).await?;
            let mut along = Along { puts: puts.to_vec(), ..Along::default() };
            let log =
                self.count_completion(work, known.base.occurrences.get(occurrence), &mut event, &mut along).await?;
            let mut next = match apply(&known.base, occurrence, &event) {
                Ok(next) => next,
                Err(refused) => {
                    self.note_refusal(work, (&known.base, occurrence), &event, refused);
                    return Ok(Err(refused));
                }
            };
            if work.tool.policy.effect() == Effect::Idempotent {
                // Each was run again on purpose: only what the newest left behind is of use.
                let dropped = growth::bound(&mut next, 1, growth::KEPT_SLOTS).into_iter();
                along.deletes.extend(dropped.flat_map(|dropped| pieces_of(prefix, &work.key, dropped)));
            }
            let put = self.records.put(prefix, &work.key, &known, next, along, Durability::Synced, Purpose::Complete);
            if self.completed(work, (occurrence, is_success(&event)), put.await?, log).await? {
                if matches!(event, Event::Answered { .. }) {
                    work.run.reads.wrote();
                }
                return Ok(Ok(()));
            }
        }
    }

    /// A completion gets its place in the run's order, if some tool is reopened by another.
    pub(super) async fn count_completion(
        &self,
        work: &Work,
        record: Option<&Record>,
        event: &mut Event,
        along: &mut Along,
    ) -> Result<Option<RunLog>, StoreError> {
        let (fence, order) = match event {
            Event::Ended { fence, end: End::Success { order, .. }, .. } => (*fence, order),
            Event::Answered { fence, answer: Answer::Happened { order, .. }, .. } => (*fence, order),
            _ => return Ok(None),
        };
        if !work.part.counts {
            return Ok(None);
        }
        let now = work.run.now();
        if !now.is_there() {
            return Ok(None); // nothing is reopened in a run that was removed
        }
        let mut log = RunLog { active_at: now.log.active_at.max(self.now.get()), ..now.log };
        *order = log.complete(work.name());
        if work.part.reopens {
            // What another run began became of this one's turn when it asked.
            let asked = work.asked.turn.filter(|_| work.alias.is_none());
            let row = Reopening {
                tool: work.name().to_owned(),
                turn: asked.or_else(|| record.and_then(|record| record.turn_of(fence))),
                values: work.part.values.first().cloned().unwrap_or_default(),
            };
            along.puts.push((work.run.prefix.reopening(&work.run.id, *order), row.to_bytes()));
        }
        along.checks.push((work.run.log_key(), now.log_version));
        along.checks.push((work.run.row_key(), Some(now.row)));
        along.puts.push((work.run.log_key(), log.to_bytes()));
        Ok(Some(log))
    }

    /// Whether the put of an end is in, `happened` or not; if it isn't in, it is to be judged again.
    pub(super) async fn completed(
        &self,
        work: &Work,
        (occurrence, happened): (usize, bool),
        put: Put,
        log: Option<RunLog>,
    ) -> Result<bool, StoreError> {
        match put {
            Put::Done { version } => {
                match log {
                    Some(log) => work.run.wrote_log(log, version),
                    None => self.sign_of_life(&work.run),
                }
                if happened && work.tool.policy.effect().is_write() {
                    work.run.did(work.name(), (work.key, occurrence), self.now.get());
                }
                Ok(true)
            }
            Put::Moved(existing) => {
                if !existing.is_empty() {
                    self.runs.refresh(&work.run).await.map_err(of_the_store)?;
                }
                Ok(false)
            }
        }
    }

    /// A second success of a `Write` is what the library exists to prevent: somebody has to know. An attempt whose
    /// success a look-up or a human told before, or that is recorded twice after an uncertain commit, is no second one.
    /// Of one whose record was removed that isn't known any more: where the same was begun anew it counts as one.
    fn note_refusal(&self, work: &Work, (base, occurrence): (&Base, usize), event: &Event, refused: Refused) {
        let Event::Ended { fence, end: End::Success { .. }, .. } = event else { return };
        let outcome = base.occurrences.get(occurrence).and_then(|record| record.outcome.as_ref());
        let second = match refused {
            Refused::OutcomeRecorded => outcome.is_some_and(|outcome| outcome.fence != *fence),
            Refused::Removed => !base.occurrences.is_empty(),
            _ => false,
        };
        if second && work.tool.policy.effect() == Effect::Write {
            self.count_incident(work);
        }
    }

    pub(super) fn count_incident(&self, work: &Work) {
        self.incidents.fetch_add(1, Ordering::Relaxed);
        tracing::error!(tool = work.name(), run = %work.asked.run, "incident: a write was executed twice");
    }
}

fn is_success(event: &Event) -> bool {
    matches!(
        event,
        Event::Ended { end: End::Success { .. }, .. } | Event::Answered { answer: Answer::Happened { .. }, .. }
    )
}

pub(super) fn of_the_store(error: crate::Error) -> StoreError {
    let kind = match error.kind() {
        ErrorKind::Store(kind) => kind,
        _ => StoreErrorKind::Corrupt,
    };
    StoreError::new(kind, error.to_string())
}

/// Notes the place that a claim is for.
pub(super) fn note_place(base: &mut Base, work: &Work, occurrence: usize, place: Option<Place>) {
    let place = place.and_then(|place| work.place(place.nth));
    let history: Arc<History> = work.run.now().history;
    note(base, &history, &Note { occurrence, place, given: None, delivered: None, replay: false });
}

fn window(work: &Work) -> Option<KeyWindow> {
    match work.tool.policy.effect() {
        Effect::Keyed(window) => Some(window),
        _ => None,
    }
}

/// A `Retry-After` beyond this is taken for this: the header is the downstream's word, not its promise.
const LONGEST_DELAY: Duration = Duration::from_secs(24 * 3600);

/// The longest arguments that a record keeps, in bytes: a record is one value of the store.
const KEPT_ARGUMENTS: usize = 24 * 1024;

/// What may have to be sent again, or looked up, must be at hand while it is open, unless it holds a secret. Without it only a call with the same
/// bytes may execute again, and a look-up gets the arguments of the call that asks.
fn keeps_arguments(work: &Work, text: &str) -> bool {
    let policy = &work.tool.policy;
    let wanted = matches!(policy.effect(), Effect::Keyed(_)) || policy.in_doubt == InDoubt::Reconcile;
    wanted && !work.tool.shape.has_secret() && text.len() <= KEPT_ARGUMENTS
}

/// The arguments of a call that waits for permission, for the human who decides, unless they hold a secret.
pub(super) fn shown_arguments(work: &Work) -> Option<String> {
    (!work.tool.shape.has_secret() && work.executed.len() <= KEPT_ARGUMENTS).then(|| work.executed.clone())
}

/// A claim whose loss in a crash can't lead to a second effect needs no sync of its own. That of a keyed tool can, even
/// if its key is good for ever: the next attempt may fail for good, or carry other bytes, and what follows that gets
/// another key.
fn claim_durability(work: &Work, next: &Base, occurrence: usize) -> Durability {
    let first = occurrence == 0 && next.occurrences[occurrence].fence == Fence(1);
    match work.tool.policy.effect() {
        Effect::Idempotent if first => Durability::Ordered,
        _ => Durability::Synced,
    }
}

/// Texts of tools that go into records and messages.
pub(crate) fn bounded(text: &str) -> String {
    text.chars().take(500).collect()
}

pub(super) fn panic_text(error: JoinError) -> String {
    let payload = match error.try_into_panic() {
        Ok(payload) => payload,
        Err(error) => return error.to_string(),
    };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("the tool panicked: {}", bounded(text.as_deref().unwrap_or("no message")))
}

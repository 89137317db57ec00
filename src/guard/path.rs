//! The call path on the guard's own task: decide, then wait, claim and execute, or ask; until there is an answer.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::Inner;
use super::answer::{Answer, SharedSpot, Spot, Told, Turnstile, unrecorded};
use super::attempt::Claimed;
use super::contract::{self, Contract};
use super::flight::{FlightEnd, Follower, Leader};
use super::records::{Along, Known, downstream};
use super::work::Work;
use super::{look_alike, manifest};
use crate::Millis;
use crate::error::Error;
use crate::key::BaseKey;
use crate::policy::{Effect, LookAlike};
use crate::protocol::apply::{End, Event};
use crate::protocol::decide::{Act, Asked, Before, Decision, Facts, Mark, before as before_of, decide};
use crate::protocol::fork::inherited;
use crate::protocol::notes::Note;
use crate::protocol::record::{Base, Failure, FailureClass, Fence, Given, Record, View, view};
use crate::store::{Key, StoreError, Version};
use crate::tell::{self, ReplyKind};

/// The task of one call.
pub(crate) struct Drive {
    pub(super) inner: Arc<Inner>,
    pub(super) work: Arc<Work>,
    pub(super) spot: SharedSpot,
    pub(super) entered: Option<oneshot::Sender<()>>,
    /// When the caller's patience ends, by the monotonic clock: what the store proves of the time ends nobody's patience.
    pub(super) patience_until: Duration,
    pub(super) leader: Option<Leader>,
    /// Executions that this call has started.
    pub(super) started: u32,
    pub(super) looked_up: bool,
    pub(super) look_ups: u32,
    /// How the outcome is marked: fixed when the call took its place, since later it finds its own place there.
    pub(super) mark: Option<Mark>,
    /// Its position in its turn, once a claim has put it there: one that was handed over alone and without an id
    /// couldn't tell its own place from that of another equal call.
    pub(super) stands_at: Option<u32>,
    /// The attempt that this call joined: it starts none of its own.
    pub(super) joined: Option<Fence>,
    pub(super) fresh: bool,
    /// The call before this one as it was when it was found to be settled, if the model asks for the same again.
    pub(super) settled_before: Option<(Key, Option<Version>)>,
    /// Whether the run goes by no key rules of the tool yet, so that the claim has to bind it.
    pub(super) binds: bool,
    /// The key whose record this call has looked for and not found.
    found_none: Option<BaseKey>,
    /// Whether a commit of this call was refused: what was taken for absent may be there.
    refused: bool,
}

/// What one round of the path came to.
pub(super) enum Step {
    Again,
    Done(Told),
}

impl Drive {
    pub(crate) fn new(inner: Arc<Inner>, work: Arc<Work>, spot: SharedSpot, patience_until: Duration) -> Self {
        Self {
            inner,
            work,
            spot,
            entered: None,
            patience_until,
            leader: None,
            started: 0,
            looked_up: false,
            look_ups: 0,
            mark: None,
            stands_at: None,
            joined: None,
            fresh: false,
            settled_before: None,
            binds: false,
            found_none: None,
            refused: false,
        }
    }

    fn beside(&self, reopened: u64, look_alike: Option<String>) -> Beside {
        Beside { looked_up: self.looked_up, stands_at: self.stands_at, reopened, look_alike }
    }

    pub(super) fn patience_left(&self) -> Duration {
        self.patience_until.saturating_sub(self.inner.now.clock().monotonic())
    }

    /// Goes the path to its end.
    pub(crate) async fn run(mut self, turnstile: Turnstile) -> Answer {
        self.entered = turnstile.entered;
        if let Some(before) = turnstile.before {
            // An error means that the one before is through.
            let _ = before.await;
        }
        let told = loop {
            match self.round().await {
                Ok(Step::Again) => {}
                Ok(Step::Done(told)) => break told,
                Err(error) => break self.store_failed(&error).await,
            }
        };
        self.land(&told);
        Answer { told, spot: self.spot() }
    }

    /// Tells the followers.
    pub(super) fn land(&mut self, told: &Told) {
        let Some(leader) = self.leader.take() else { return };
        leader.end(match told {
            Told::Outcome { kind: ReplyKind::Unrecorded, text, .. } => FlightEnd::Unrecorded(text.text.as_str().into()),
            Told::Outcome { .. } => FlightEnd::Success,
            Told::Failed(failure) => FlightEnd::Failed(failure.clone()),
            Told::InDoubt => FlightEnd::InDoubt,
            _ => FlightEnd::Nothing,
        });
    }

    pub(super) fn spot(&self) -> Spot {
        self.spot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn round(&mut self) -> Result<Step, Error> {
        if let Some(told) = self.inner.settle_unrecorded(&self.work).await {
            return Ok(Step::Done(told));
        }
        if !self.inner.lease.is_alone() {
            self.inner.runs.refresh(&self.work.run).await?;
        }
        self.inner.runs.keep_open(&self.work.run).await?;
        // Read once: a claim that finds the run bound meanwhile is refused, and then it is read again.
        if !self.binds {
            match self.inner.contract(&self.work).await? {
                Contract::Holds => {}
                Contract::Unbound => self.binds = true,
                Contract::Changed => return Ok(Step::Done(Told::Refused(tell::changed_contract()))),
            }
        }
        if let Some(told) = self.judge_before().await? {
            return Ok(Step::Done(told));
        }
        let prefix = self.work.run.prefix;
        let known = match std::mem::take(&mut self.fresh) {
            true => self.inner.records.load_fresh(prefix, &self.work.key).await?,
            false => self.load().await?,
        };
        let reopened = self.inner.reopened(&self.work, &known.base).await?;
        let beside = self.beside(reopened, None);
        let decision = self.inner.decide(&self.work, &known.base, beside)?;
        self.see(&known.base, &decision);
        self.act(&known, decision).await
    }

    /// The record, without asking the store again where this call has found none a moment ago: what follows checks that. It
    /// asks once in any case: nothing begins while the store can't be read.
    async fn load(&mut self) -> Result<Known, StoreError> {
        let (prefix, key) = (self.work.run.prefix, self.work.key);
        if let Some(known) = self.inner.records.at_hand(&key) {
            return Ok(known);
        }
        if self.found_none.take() == Some(key) && !self.inner.records.has_notes_of(&key) {
            return Ok(Known::default());
        }
        let known = self.inner.records.load_fresh(prefix, &key).await?;
        // Where every commit goes through this process, the tier has what is committed from here on.
        self.found_none = (known.version.is_none() && self.inner.lease.is_alone() && !self.refused).then_some(key);
        Ok(known)
    }

    /// Whether a row beside the record is known not to be there. Not after a claim was refused: then it is looked.
    fn is_absent(&self, key: &Key) -> bool {
        !self.refused && self.work.alias.is_some() && self.work.run.blank.is_absent(key)
    }

    /// What must hold before a call that asks for the same again by an argument of its own is judged: the call before it
    /// is settled. Otherwise that one's state is the answer.
    async fn judge_before(&mut self) -> Result<Option<Told>, Error> {
        let Some(before) = self.work.before.clone() else { return Ok(None) };
        let prefix = self.work.run.prefix;
        self.settled_before = None;
        if !self.inner.records.load(prefix, &self.work.key).await?.base.occurrences.is_empty() {
            return Ok(None);
        }
        let known = self.inner.records.load(prefix, &before.key).await?;
        let stands = self.inner.judge(&before, &known.base, Beside::default(), |facts, asked| {
            before_of(facts, asked, &before.tool.policy, before.tool.limits)
        })?;
        match stands {
            Before::Missing => {
                let (name, n) = (before.tool.again.as_deref().unwrap_or_default(), before.times);
                let first = if n == 0 { format!("without {name:?}") } else { format!("with {name:?}: {n}") };
                return Ok(Some(Told::Refused(format!(
                    "{name:?} counts how often the same was done before, and the call {first} was not made. Make that \
                     one, and this one after it only if the user wants both."
                ))));
            }
            Before::Open => {
                self.spot.lock().unwrap_or_else(PoisonError::into_inner).work = Some(Arc::clone(&before));
                self.work = before;
            }
            Before::Settled => self.settled_before = Some((prefix.base(&before.key), known.version)),
        }
        Ok(None)
    }

    /// Lets the caller know where the call stands.
    pub(super) fn see(&mut self, base: &Base, decision: &Decision) {
        let record = base.occurrences.get(decision.occurrence);
        let mut spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
        spot.occurrence = decision.occurrence;
        spot.place = decision.place;
        spot.found = record.is_some();
        spot.downstream = record.map(|_| downstream(&self.work.key, base, decision.occurrence));
        spot.since = record.and_then(|record| record.claim.as_ref()).map(|claim| claim.claimed_at);
        spot.doubt = matches!(decision.act, Act::LookUp { .. } | Act::Hold);
        if !matches!(decision.act, Act::Await { .. }) {
            spot.awaited = None;
        }
    }

    pub(super) async fn act(&mut self, known: &Known, decision: Decision) -> Result<Step, Error> {
        if self.work.has_diverged() {
            return Ok(Step::Done(Told::Diverged));
        }
        if let (Some(fence), Some(record)) = (self.joined, known.base.occurrences.get(decision.occurrence))
            && let Some(told) = self.joined_end(record, fence, &decision.act)
        {
            return Ok(Step::Done(told));
        }
        match &decision.act {
            Act::Give(mark) => {
                let mark = self.take_place(&decision, *mark);
                Ok(Step::Done(self.outcome(known, decision.occurrence, mark).await?))
            }
            Act::GiveFailure(failure) => Ok(Step::Done(Told::Failed(failure.clone()))),
            Act::GiveAgain(given) => {
                let text = match given {
                    Given::Outcome { .. } => Some(self.result_text(known, decision.occurrence).await?),
                    _ => None,
                };
                Ok(Step::Done(Told::Again(given.clone(), text)))
            }
            Act::Await { question } => self.await_permission(known, question.clone()).await,
            Act::Denied { why } => Ok(Step::Done(Told::Denied { why: why.clone() })),
            Act::Conflict => self.conflict(known, decision.occurrence).await,
            Act::Hold => {
                let unit = (self.work.key, decision.occurrence);
                if let Some(follower) = self.inner.flights.follow(unit).filter(|_| self.leader.is_none()) {
                    return self.follow(follower, &decision).await;
                }
                self.take_place(&decision, decision.mark);
                Ok(Step::Done(Told::InDoubt))
            }
            Act::Join { fence } => self.join(known, &decision, *fence).await,
            Act::Attempt { .. } if self.work.tool.policy.effect() == Effect::ReadOnly => Ok(self.read(&decision).await),
            Act::Attempt { .. } | Act::LookUp { .. } => self.lead(known, decision).await,
        }
    }

    /// Notes that the call has its place in this record, once, and remembers how its outcome is to be marked.
    pub(super) fn take_place(&mut self, decision: &Decision, mark: Mark) -> Mark {
        if self.mark.is_none() {
            self.mark = Some(mark);
            if let Some(place) = decision.place {
                self.inner.note(
                    &self.work,
                    Note {
                        occurrence: decision.occurrence,
                        place: self.work.place(place.nth),
                        given: None,
                        delivered: None,
                        replay: false,
                    },
                );
            }
            self.enter();
        }
        self.mark.unwrap_or(mark)
    }

    /// Lets the next equal call of the message in.
    pub(super) fn enter(&mut self) {
        if let Some(entered) = self.entered.take() {
            let _ = entered.send(());
        }
    }

    /// Leads this unit of work in this process, or follows who does.
    pub(super) async fn lead(&mut self, known: &Known, decision: Decision) -> Result<Step, Error> {
        let unit = (self.work.key, decision.occurrence);
        if self.leader.as_ref().is_some_and(|leader| leader.unit() != unit) {
            self.leader = None;
        }
        if self.leader.is_none() {
            match self.inner.flights.lead(unit, self.work.asked.fingerprint) {
                Ok(leader) => {
                    self.leader = Some(leader);
                    self.inner.noted().await;
                    // What was loaded may be older than the flight that ended a moment ago.
                    return Ok(Step::Again);
                }
                Err(follower) => return self.follow(follower, &decision).await,
            }
        }
        match decision.act {
            Act::Attempt { not_before, .. } => self.attempt(known, decision, not_before).await,
            Act::LookUp { fence, no_counts_from } => {
                self.take_place(&decision, decision.mark);
                self.going();
                self.look_up(known, &decision, fence, no_counts_from).await
            }
            _ => Ok(Step::Again),
        }
    }

    pub(super) fn going(&self) {
        if let Some(leader) = &self.leader {
            leader.going();
        }
    }

    pub(super) async fn follow(&mut self, mut follower: Follower, decision: &Decision) -> Result<Step, Error> {
        if follower.is_claiming() {
            follower.claimed().await;
            return Ok(Step::Again);
        }
        if follower.fingerprint != self.work.asked.fingerprint {
            follower.ended().await;
            return Ok(Step::Again);
        }
        let mark = self.take_place(decision, decision.mark);
        Ok(match follower.ended().await {
            FlightEnd::Success => {
                let known = self.inner.records.load(self.work.run.prefix, &self.work.key).await?;
                match known.base.occurrences.get(decision.occurrence).map(|record| record.outcome.is_some()) {
                    Some(true) => Step::Done(self.joined_outcome(&known, decision.occurrence, mark).await?),
                    _ => Step::Again,
                }
            }
            FlightEnd::Failed(failure) => Step::Done(Told::Failed(failure)),
            FlightEnd::InDoubt => Step::Done(Told::InDoubt),
            FlightEnd::Unrecorded(text) => Step::Done(unrecorded(text.as_ref().to_owned(), self.inner.now.get())),
            FlightEnd::Nothing => Step::Again,
        })
    }

    /// Waits for an attempt that runs here or elsewhere.
    pub(super) async fn join(&mut self, known: &Known, decision: &Decision, fence: Fence) -> Result<Step, Error> {
        // Somebody else's claim: there is nothing to lead, and nobody may wait for this call.
        self.leader = None;
        let unit = (self.work.key, decision.occurrence);
        if let Some(follower) = self.inner.flights.follow(unit) {
            return self.follow(follower, decision).await;
        }
        // As in `lead`: the end of a flight that is over is in the tier by now, and nothing would tell of it any more.
        if self.inner.records.at_hand(&self.work.key).is_some_and(|now| now.version != known.version) {
            return Ok(Step::Again);
        }
        let record = &known.base.occurrences[decision.occurrence];
        let mine = record.claim.as_ref().is_some_and(|claim| claim.owner == self.inner.lease.me);
        if mine && self.inner.unstarted.has(&self.work.key, (decision.occurrence, fence)) {
            return self.orphan(decision.occurrence, fence).await;
        }
        if mine && self.inner.unrecorded.has(&self.work.key) {
            // It ended, and the store didn't take how: what is known of it waits in this process.
            return Ok(Step::Done(Told::InDoubt));
        }
        self.take_place(decision, decision.mark);
        self.joined = Some(fence);
        if self.patience_left().is_zero() {
            return Ok(Step::Done(Told::Running));
        }
        self.inner.changed_or_later(&self.work).await;
        self.fresh = true;
        Ok(Step::Again)
    }

    /// A claim of this process that nothing executes: its commit was reported as failed and is there after all. The
    /// body never started, so it is known not to have happened. If the end was recorded meanwhile, the version tells.
    pub(super) async fn orphan(&mut self, occurrence: usize, fence: Fence) -> Result<Step, Error> {
        let known = self.inner.records.load_fresh(self.work.run.prefix, &self.work.key).await?;
        let claim = known.base.occurrences.get(occurrence).and_then(|record| record.claim.as_ref());
        let still = claim.is_some_and(|claim| claim.fence == fence && claim.owner == self.inner.lease.me);
        let busy = self.inner.flights.follow((self.work.key, occurrence)).is_some();
        if still && !busy {
            let failure = Failure { class: FailureClass::Retryable, message: "it was never started".to_owned() };
            let end = End::NoEffect { failure, not_before: 0 };
            let event = Event::Ended { fence, end, at: self.inner.now.get() };
            let _ = self.inner.commit_event(&self.work, occurrence, event, &[]).await?;
            self.inner.unstarted.forget(&self.work.key, (occurrence, fence));
        }
        self.fresh = true;
        Ok(Step::Again)
    }

    /// Who joined an attempt gets its end and starts none of its own.
    pub(super) fn joined_end(&self, record: &Record, fence: Fence, act: &Act) -> Option<Told> {
        if matches!(act, Act::Join { .. } | Act::Give(_) | Act::GiveAgain(_) | Act::Conflict) {
            return None;
        }
        let last = record.last.as_ref().filter(|last| last.fence >= fence);
        let now = self.inner.now.get();
        match view(record, &self.inner.lease.at(now), now) {
            View::Failed | View::Free => last.map(|last| Told::Failed(last.failure.clone())),
            View::InDoubt if !matches!(act, Act::Attempt { .. } | Act::LookUp { .. }) => Some(Told::InDoubt),
            _ => None,
        }
    }

    pub(super) async fn attempt(
        &mut self,
        known: &Known,
        decision: Decision,
        not_before: Millis,
    ) -> Result<Step, Error> {
        if self.started >= self.work.tool.policy.advanced.attempts {
            return Ok(Step::Done(self.given_up(known, decision.occurrence)));
        }
        // Its caller has left with "in doubt": what a look-up settled since is for whoever asks again.
        if self.look_ups > 0 && self.started == 0 && self.patience_left().is_zero() {
            return Ok(Step::Done(self.given_up(known, decision.occurrence)));
        }
        let wait = self.inner.now.until(not_before);
        let starts_at = self.inner.now.clock().monotonic().saturating_add(wait);
        // A caller that has left already has asked all the same: only what must wait is left to a later call.
        if !wait.is_zero() && starts_at > self.patience_until {
            // Whoever asks again then is answered then. The place is taken: the next equal call is another wish.
            if known.base.occurrences.get(decision.occurrence).is_some() {
                self.take_place(&decision, decision.mark);
            }
            return Ok(Step::Done(self.given_up(known, decision.occurrence)));
        }
        if !wait.is_zero() {
            self.going();
            self.inner.now.clock().sleep(wait).await;
            return Ok(Step::Again);
        }
        let mut along = Along::default();
        let (store, is_absent) = (&**self.inner.records.store(), |key: &Key| self.is_absent(key));
        if !manifest::admits(store, &self.work, is_absent, &mut along).await? {
            return Ok(Step::Done(Told::Diverged));
        }
        let decision = self.bind(known, decision, &mut along).await?;
        if !matches!(decision.act, Act::Attempt { .. }) {
            return Box::pin(self.act(known, decision)).await;
        }
        let claim = match self.inner.claim(&self.work, known, &decision, along).await? {
            Claimed::Yes(claim) => claim,
            Claimed::Moved => {
                self.fresh = true;
                self.refused = true;
                self.binds = false;
                return Ok(Step::Again);
            }
            Claimed::NoRoom => {
                let why = "there is no room to record it: its arguments are too long, or the same call was made too often \
                           in this run. Shorten the arguments if nothing that is needed is lost; otherwise tell the user.";
                return Ok(Step::Done(Told::Refused(why.to_owned())));
            }
            Claimed::Unreadable(error) => {
                return Ok(Step::Done(Told::Refused(tell::misfit(&error))));
            }
        };
        self.binds = false;
        self.mark.get_or_insert(Mark::Own);
        self.enter();
        self.going();
        {
            let mut spot = self.spot.lock().unwrap_or_else(PoisonError::into_inner);
            spot.found = true;
            spot.downstream = Some(claim.downstream);
            spot.since = Some(claim.at);
            spot.place = decision.place;
        }
        self.stands_at = decision.place.map(|place| place.nth);
        self.started += 1;
        let occurrence = claim.occurrence;
        let ending = self.inner.execute(&self.work, claim).await;
        self.after(occurrence, ending).await
    }
}

impl Drive {
    /// What a claim depends on beside its record: the call before it, the tool's key rules, calls that look alike. Where
    /// one of those changes what is to be done, it is decided again.
    async fn bind(&self, known: &Known, decision: Decision, along: &mut Along) -> Result<Decision, Error> {
        along.checks.extend(self.settled_before.clone());
        if self.binds {
            contract::bind(&self.work, along);
        }
        let is_absent = |key: &Key| self.is_absent(key);
        let Some(looked) = self.inner.look_alikes(&self.work, is_absent).await? else { return Ok(decision) };
        let decision = match (&looked.of, self.work.tool.look_alike) {
            (Some(of), LookAlike::Ask) => {
                let reopened = self.inner.reopened(&self.work, &known.base).await?;
                let beside = self.beside(reopened, Some(of.clone()));
                self.inner.decide(&self.work, &known.base, beside)?
            }
            (Some(of), _) => {
                look_alike::warn(&self.work, of);
                decision
            }
            (None, _) => decision,
        };
        looked.join(&self.work, decision.occurrence, along);
        Ok(decision)
    }
}

/// What a decision takes into account beside the record and the run.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The tool's look-up was asked for this call and could not tell.
    pub(crate) looked_up: bool,
    /// The place that the call has taken in its turn.
    pub(crate) stands_at: Option<u32>,
    /// Place of a completion that makes an equal call new; 0 if there is none.
    pub(crate) reopened: u64,
    /// The reference of a call that looks alike and isn't finished.
    pub(crate) look_alike: Option<String>,
}

impl Inner {
    /// The repeat rule on what this process knows now.
    pub(crate) fn decide(&self, work: &Work, base: &Base, beside: Beside) -> Result<Decision, Error> {
        self.judge(work, base, beside, |facts, asked| decide(facts, asked, &work.tool.policy, work.tool.limits))
    }

    /// A rule on what this process knows now.
    fn judge<T>(
        &self,
        work: &Work,
        base: &Base,
        beside: Beside,
        rule: impl FnOnce(&Facts<'_>, &Asked) -> T,
    ) -> Result<T, Error> {
        let run = work.present()?;
        let base = &*inherited(base, &work.run.id, &work.run.line);
        let here = self.bodies.of(&work.key);
        let newest = base.occurrences.iter().map(newest_time).max().unwrap_or(0);
        // For this record only: one that was written under a wrong clock must not move everybody's time.
        let now = self.now.get().max(newest);
        let owners = self.lease.at(now);
        let facts = Facts {
            base,
            history: &run.history,
            last_turn: run.log.last_answered(),
            answered: run.log.last_turn,
            owners: &owners,
            here: &here,
            reopened: beside.reopened,
            look_alike: beside.look_alike.as_deref(),
            now,
            wall: self.now.wall(),
        };
        let nth = work.asked.nth.or(beside.stands_at);
        let asked = Asked { nth, looked_up: beside.looked_up, ..work.asked.clone() };
        Ok(rule(&facts, &asked))
    }
}

/// The newest time that a record knows of: a clock behind it runs slow.
pub(super) fn newest_time(record: &Record) -> Millis {
    let claim = record.claim.as_ref().map_or(0, |claim| claim.claimed_at);
    let outcome = record.outcome.as_ref().map_or(0, |outcome| outcome.at);
    claim.max(outcome).max(record.first_sent.unwrap_or(0))
}

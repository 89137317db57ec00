//! Calls that wait for a human's permission.

use std::sync::PoisonError;

use super::answer::Told;
use super::path::{Drive, Step};
use super::records::{Along, Known, Put, Records};
use super::work::Work;
use super::{Guard, Inner};
use crate::Millis;
use crate::error::{Error, ErrorKind};
use crate::key::BaseKey;
use crate::protocol::apply::{Event, Refused, apply};
use crate::protocol::approval::{ask, is_expired, sign};
use crate::protocol::record::{Approval, ApprovalState, Asker, Base, Reason, Signature};
use crate::store::{Durability, Purpose};

/// So many characters of a person's name are kept.
const NAME: usize = 100;

/// A call that waits for a human's permission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// What [`Guard::approve`] and [`Guard::deny`] take. It stands for this call with these arguments.
    pub reference: String,
    /// The tool's name.
    pub tool: String,
    /// The run that asks.
    pub run: String,
    /// Why it needs permission.
    pub reason: Reason,
    /// When it asked, in milliseconds since the Unix epoch. A day later the question is void.
    pub asked_at: Millis,
    /// The arguments as they would be executed, unless they are too long to keep or hold a secret.
    pub arguments: Option<String>,
}

/// What a call waits for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    pub(crate) reference: String,
    pub(crate) reason: Reason,
}

impl Guard {
    /// The calls of this guard's namespace that wait for permission, for a human.
    ///
    /// # Errors
    /// If the store can't be read.
    pub async fn approvals(&self) -> Result<Vec<ApprovalRequest>, Error> {
        let now = self.inner.now.get();
        let mut requests = Vec::new();
        for (key, known) in self.inner.open_records(self.prefix).await? {
            for approval in known.base.approvals.iter().filter(|approval| approval.state == ApprovalState::Pending) {
                if is_expired(approval, now) {
                    let event = Event::Expire(approval.asker.clone());
                    self.settle(&key, &known, |base| apply(base, 0, &event)).await?;
                    continue;
                }
                requests.push(request(&key, &known.base.about.tool, approval));
            }
        }
        Ok(requests)
    }

    /// This guard, with the name of the person who answers: answers given through it ([`resolve`](Self::resolve),
    /// [`approve`](Self::approve), [`deny`](Self::deny)) are recorded under this name. Default: no name. For people who
    /// look at the call later; nobody is identified by it, and the model isn't told. The first 100 characters are kept.
    pub fn answering_as(&self, who: &str) -> Self {
        Self { answerer: who.chars().take(NAME).collect::<String>().into(), ..self.clone() }
    }

    pub(super) fn signature(&self) -> Signature {
        Signature { who: self.answerer.to_string(), at: self.inner.now.get() }
    }

    /// Permits one execution of the call that asked. A caller that waits goes on; otherwise the next equal call does.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchCall`] if no call with this reference waits for permission; a store error.
    pub async fn approve(&self, reference: &str) -> Result<(), Error> {
        self.answer_question(reference, Event::Approve).await?;
        tracing::info!(reference, "a call was approved");
        Ok(())
    }

    /// Refuses the call that asked, for the rest of its run. `why` is told to the model; it may be empty, and only its
    /// first 500 characters are kept.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    pub async fn deny(&self, reference: &str, why: &str) -> Result<(), Error> {
        let why = super::attempt::bounded(why);
        self.answer_question(reference, |asker| Event::Deny { asker, why: why.clone() }).await?;
        tracing::info!(reference, why, "a call was refused by a human");
        Ok(())
    }

    async fn answer_question(&self, question: &str, event: impl Fn(Asker) -> Event) -> Result<(), Error> {
        loop {
            let (key, known, asker) = self.question(question).await?;
            let answered = |base: &Base| {
                let mut next = apply(base, 0, &event(asker.clone()))?;
                sign(&mut next, &asker, self.signature());
                Ok(next)
            };
            if self.settle(&key, &known, answered).await? {
                return Ok(());
            }
        }
    }

    /// Whether the record was as `known` and has the answer now.
    async fn settle(
        &self,
        key: &BaseKey,
        known: &Known,
        answered: impl Fn(&Base) -> Result<Base, Refused>,
    ) -> Result<bool, Error> {
        let Ok(next) = answered(&known.base) else { return Ok(false) };
        let put =
            self.inner.records.put(self.prefix, key, known, next, Along::default(), Durability::Synced, Purpose::Other);
        Ok(matches!(put.await?, Put::Done { .. }))
    }

    async fn question(&self, question: &str) -> Result<(BaseKey, Known, Asker), Error> {
        let now = self.inner.now.get();
        for (key, known) in self.inner.open_records(self.prefix).await? {
            let mut pending = known.base.approvals.iter();
            let asked = pending
                .find(|approval| is_waiting(approval, now) && question_reference(&key, &approval.asker) == question);
            if let Some(asker) = asked.map(|approval| approval.asker.clone()) {
                return Ok((key, known, asker));
            }
        }
        let message = format!("no call that waits for approval has the reference {question:?}: list those that do");
        Err(Error::new(ErrorKind::NoSuchCall, message))
    }
}

/// Whether a human can still answer it.
pub(super) fn is_waiting(approval: &Approval, now: Millis) -> bool {
    approval.state == ApprovalState::Pending && !is_expired(approval, now)
}

/// A question as a human sees it.
pub(super) fn request(key: &BaseKey, tool: &str, approval: &Approval) -> ApprovalRequest {
    ApprovalRequest {
        reference: question_reference(key, &approval.asker),
        tool: tool.to_owned(),
        run: approval.asker.run.clone(),
        reason: approval.reason.clone(),
        asked_at: approval.asked_at,
        arguments: approval.arguments.clone(),
    }
}

/// What a question is called by.
pub(super) fn question_reference(key: &BaseKey, asker: &Asker) -> String {
    key.question(&asker.run, &asker.fingerprint)
}

impl Drive {
    /// Puts the question if nobody has, and waits for its answer as long as patience lasts.
    pub(super) async fn await_permission(&mut self, known: &Known, question: Option<Reason>) -> Result<Step, Error> {
        // Nobody may wait for a call that waits for a human.
        self.leader = None;
        self.enter();
        let asker = self.work.asked.asker();
        if let Some(reason) = question {
            // Told to a caller whose patience ends once it can be answered, not before: see below.
            if !self.inner.ask(&self.work, known, asker, reason).await? {
                let why = "a person would have to be asked about it, and there is no room for another question: its \
                           arguments are too long, or too many calls about the same wait for an answer or were refused. \
                           Don't try it in other words: tell the user.";
                return Ok(Step::Done(Told::Refused(why.to_owned())));
            }
            self.fresh = true;
            return Ok(Step::Again);
        }
        let pending = known.base.approvals.iter().find(|approval| approval.asker == asker);
        let Some(reason) = pending.map(|approval| approval.reason.clone()) else { return Ok(Step::Again) };
        let awaited = self.waits_for(&asker, reason);
        // A turn that was left behind is told again what it was told: it doesn't wait.
        let left_behind = self.work.asked.turn < self.work.run.now().log.last_turn;
        if left_behind || self.patience_left().is_zero() {
            return Ok(Step::Done(Told::Awaiting(awaited)));
        }
        self.inner.changed_or_later(&self.work).await;
        self.fresh = true;
        Ok(Step::Again)
    }

    /// Lets the caller know what it waits for, should its patience end.
    fn waits_for(&self, asker: &Asker, reason: Reason) -> Awaited {
        let awaited = Awaited { reference: question_reference(&self.work.key, asker), reason };
        self.spot.lock().unwrap_or_else(PoisonError::into_inner).awaited = Some(awaited.clone());
        awaited
    }
}

impl Inner {
    /// Puts a question into the record, if there is room for it (else `false`). If the record moved, it is decided again.
    async fn ask(&self, work: &Work, known: &Known, asker: Asker, reason: Reason) -> Result<bool, Error> {
        let question = Approval {
            asker,
            asked_at: self.now.get(),
            reason,
            arguments: super::attempt::shown_arguments(work),
            state: ApprovalState::Pending,
            signed: None,
            turn: work.asked.turn,
        };
        let Some(mut next) = ask(&known.base, question) else { return Ok(false) };
        work.name_record(&mut next);
        if !Records::has_room(&next) {
            return Ok(false);
        }
        let how = (Durability::Synced, Purpose::Other);
        self.put_of_turn(work, known, next, Along::default(), how).await?;
        Ok(true)
    }
}

//! What a tool's effect is and how its repeats, doubts and failures are treated.
//!
//! ```
//! use toolonce::{Policy, Repeat};
//!
//! let search = Policy::read_only(); // runs each time
//! let charge = Policy::write(); // runs once per run; in doubt after a crash: held for a human
//! let pen = Policy::write().repeat(Repeat::Each); // asking again after an answer was seen means it again
//! # let _ = (search, charge, pen);
//! ```

use std::time::Duration;

use crate::key::KeyForm;
pub use crate::provider::KeyWindow;
use crate::provider::Provider;

/// What executing a tool does to the world outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// Changes nothing. Runs each time; only a redelivered call gets the stored result.
    ReadOnly,
    /// Changes something, and doing it again is harmless (set the thermostat to 20). Re-run when in doubt.
    Idempotent,
    /// The downstream system drops repeats that carry the same [downstream key](crate::Attempt::downstream_key) for
    /// as long as the window says.
    Keyed(KeyWindow),
    /// Changes something, and doing it twice is harm. What to choose if unsure.
    Write,
}

impl Effect {
    /// Whether two executions could be two effects or one that matters: `Write` and `Keyed`.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Keyed(_))
    }
}

/// Over how much an equal call is the same unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scope {
    /// One run: another run is another intent. The default.
    #[default]
    Run,
    /// All runs of the namespace, for ever ("this invoice is sent once").
    Global,
}

/// What an equal call in a later turn means once the caller has seen the outcome of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Repeat {
    /// The same thing: it gets the stored outcome, marked. The default.
    #[default]
    Once,
    /// A new wish: it runs. Equal calls of one assistant message are then separate wishes too.
    Each,
    /// A human is asked; once [approved](crate::Guard::approve) it is a new wish.
    Ask,
}

/// Whether a human is asked before a call runs for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Approval {
    /// No. The default.
    #[default]
    None,
    /// Before each first execution: the call waits, within its caller's patience, for
    /// [`Guard::approve`](crate::Guard::approve), or is made again after it.
    First,
}

/// What happens to a call that looks like one which isn't finished: models word a retry anew. Two calls of one tool
/// and run look alike if they differ in no more than letter case, white space, numbers written as texts, texts of four
/// or more words, and what has the hint `content` or `ignore`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LookAlike {
    /// A human is asked. The default of write tools without `identity` hints.
    Ask,
    /// It runs, and a warning goes to the log.
    Run,
    /// Nobody looks. The default of all other tools.
    Off,
}

/// A tool whose completion makes an equal call of another tool a new wish.
///
/// ```
/// use toolonce::{Policy, Reopener};
///
/// // A cancelled booking may be booked again: the one whose id the first booking returned.
/// let book = Policy::write().reopened_by([Reopener::new("cancel").when("/booking_id", "/id")]);
/// # let _ = book;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopener {
    pub(crate) tool: String,
    pub(crate) when: Vec<(String, String)>,
}

impl Reopener {
    /// The tool of this name. If it and the reopened tool have the hint `identity` at a common place, only a completion
    /// with equal values there counts; otherwise any of the run.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), when: Vec::new() }
    }

    /// Counts only a completion whose argument at `argument` equals the value at `result` in the result of the call
    /// that is to be done again. Both are JSON pointers (RFC 6901).
    #[must_use]
    pub fn when(mut self, argument: impl Into<String>, result: impl Into<String>) -> Self {
        self.when.push((argument.into(), result.into()));
        self
    }
}

impl<T: Into<String>> From<T> for Reopener {
    fn from(tool: T) -> Self {
        Self::new(tool)
    }
}

/// What happens by itself when it isn't known whether an effect happened. What remains is held for a human.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InDoubt {
    /// Nothing: it is held. The default of `Write`.
    Hold,
    /// A `Keyed` call is sent again, same bytes, same key, inside the window. The default of `Keyed`.
    Resend,
    /// The tool's own look-up is asked first; then as `Resend` for `Keyed`, as `Hold` for the rest.
    Reconcile,
}

/// What a call gets whose identity is that of a completed call but whose content differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mismatch {
    /// A conflict that names the fields that differ. The default.
    #[default]
    Conflict,
    /// The stored outcome, marked with the drift.
    Replay,
}

/// How one tool is guarded. Build it from its effect: [`Policy::write`], [`Policy::keyed`], [`Policy::idempotent`] or
/// [`Policy::read_only`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) effect: Effect,
    pub(crate) repeat: Option<Repeat>,
    pub(crate) scope: Scope,
    pub(crate) in_doubt: InDoubt,
    pub(crate) reopened_by: Vec<Reopener>,
    pub(crate) approval: Approval,
    pub(crate) again: bool,
    provider: Option<Provider>,
    pub(crate) advanced: Advanced,
}

impl Policy {
    fn of(effect: Effect, in_doubt: InDoubt) -> Self {
        Self {
            effect,
            repeat: None,
            scope: Scope::Run,
            in_doubt,
            reopened_by: Vec::new(),
            approval: Approval::None,
            again: false,
            provider: None,
            advanced: Advanced::default(),
        }
    }

    /// A tool that changes nothing: it runs each time.
    pub fn read_only() -> Self {
        Self::of(Effect::ReadOnly, InDoubt::Hold)
    }

    /// A tool whose repeated execution is harmless.
    pub fn idempotent() -> Self {
        Self::of(Effect::Idempotent, InDoubt::Hold)
    }

    /// A tool whose downstream system drops repeats of one key: an entry of the table in
    /// [`provider`](crate::provider), one of your own, or how long the key is remembered.
    ///
    /// ```
    /// use std::time::Duration;
    /// use toolonce::{KeyWindow, Policy, provider};
    ///
    /// let charge = Policy::keyed(provider::STRIPE);
    /// let order = Policy::keyed(KeyWindow::For(Duration::from_secs(3600)));
    /// # let _ = (charge, order);
    /// ```
    pub fn keyed(by: impl Into<Provider>) -> Self {
        let provider = by.into();
        Self { provider: Some(provider), ..Self::of(Effect::Keyed(provider.window), InDoubt::Resend) }
    }

    /// A tool that must not run twice for one intent. What to choose if unsure.
    pub fn write() -> Self {
        Self::of(Effect::Write, InDoubt::Hold)
    }

    /// What an equal call in a later turn means. Default [`Repeat::Once`]; a write tool without identifying arguments
    /// must state it.
    #[must_use]
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = Some(repeat);
        self
    }

    /// Over how much an equal call is the same unit of work. Default [`Scope::Run`].
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// What happens by itself in doubt. Default: [`InDoubt::Hold`], for `Keyed` [`InDoubt::Resend`].
    #[must_use]
    pub fn in_doubt(mut self, in_doubt: InDoubt) -> Self {
        self.in_doubt = in_doubt;
        self
    }

    /// Tools whose completion makes an equal call of this tool a new one: a cancelled booking may be booked again. Each
    /// completion reopens once. Default none. See [`Reopener`] for which completions count.
    #[must_use]
    pub fn reopened_by<T: Into<Reopener>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.reopened_by = tools.into_iter().map(Into::into).collect();
        self
    }

    /// Whether a human is asked before a call runs for the first time. Default [`Approval::None`].
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// Offers the model an optional integer argument `again` (`toolonce_again` if the tool has one of that name): 1 to
    /// have the same thing done a second time, 2 a third, up to 20. It is honoured only once the call before is done
    /// and its outcome was seen, or it failed without effect. The tool doesn't get it. For write tools that repeat
    /// `Once` or `Ask`. Default no.
    #[must_use]
    pub fn again(mut self, offered: bool) -> Self {
        self.again = offered;
        self
    }

    /// Changes what rarely needs changing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use toolonce::Policy;
    ///
    /// let slow = Policy::write().advanced(|a| a.attempts(1).attempt_deadline(Duration::from_secs(3600)));
    /// # let _ = slow;
    /// ```
    #[must_use]
    pub fn advanced(mut self, change: impl FnOnce(Advanced) -> Advanced) -> Self {
        self.advanced = change(self.advanced);
        self
    }

    /// What the tool does to the world.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// What is known of the system downstream; `None` unless the tool is keyed.
    pub fn provider(&self) -> Option<&Provider> {
        self.provider.as_ref()
    }

    /// How the downstream key is written for the tool.
    pub(crate) fn key_form(&self) -> KeyForm {
        let form = self.advanced.key_form.or_else(|| self.provider.map(|provider| provider.form));
        form.unwrap_or_default()
    }

    pub(crate) fn repeats(&self) -> Repeat {
        self.repeat.unwrap_or_default()
    }

    /// Whether a reply that was taken counts although the host counts no turns.
    pub(crate) fn counts_taken(&self) -> bool {
        self.again || self.repeats() == Repeat::Each
    }
}

/// The settings of a [`Policy`] that rarely need changing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    pub(crate) mismatch: Mismatch,
    pub(crate) attempts: u32,
    pub(crate) attempt_deadline: Option<Duration>,
    pub(crate) settle_delay: Option<Duration>,
    pub(crate) max_result: Option<usize>,
    pub(crate) context: Vec<String>,
    pub(crate) look_alike: Option<LookAlike>,
    pub(crate) key_form: Option<KeyForm>,
    pub(crate) key_parameter: Option<String>,
    pub(crate) retention: Option<Duration>,
    pub(crate) time_to_live: Option<Duration>,
}

impl Default for Advanced {
    fn default() -> Self {
        Self {
            mismatch: Mismatch::Conflict,
            attempts: 3,
            attempt_deadline: None,
            settle_delay: None,
            max_result: None,
            context: Vec::new(),
            look_alike: None,
            key_form: None,
            key_parameter: None,
            retention: None,
            time_to_live: None,
        }
    }
}

impl Advanced {
    /// What a call with the identity of a completed one but other content gets. Default [`Mismatch::Conflict`].
    #[must_use]
    pub fn mismatch(mut self, mismatch: Mismatch) -> Self {
        self.mismatch = mismatch;
        self
    }

    /// How many executions one call may start, at least 1. Default 3. Only failures that are known not to have
    /// happened, and re-sends that are safe, use more than one.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// After this long an execution is in doubt. Default: the guard's, 10 minutes.
    #[must_use]
    pub fn attempt_deadline(mut self, deadline: Duration) -> Self {
        self.attempt_deadline = Some(deadline);
        self
    }

    /// How long after the end or deadline of an attempt its effect may still show downstream: a look-up that finds
    /// nothing earlier proves nothing. Default: the guard's, 60 seconds.
    #[must_use]
    pub fn settle_delay(mut self, delay: Duration) -> Self {
        self.settle_delay = Some(delay);
        self
    }

    /// The largest result that is kept, in bytes. Default: the guard's, 1 MiB.
    #[must_use]
    pub fn max_result(mut self, bytes: usize) -> Self {
        self.max_result = Some(bytes);
        self
    }

    /// How long after its last attempt a record of [`Scope::Global`] is kept at least: [`Guard::gc`](crate::Guard::gc)
    /// removes it afterwards, and then an equal call is a new one, a late redelivery included. Choose it longer than
    /// anybody may repeat the call, and than the downstream system remembers its key. To have something done once a day,
    /// put the day into the arguments or the context instead. With zero the next one removes what is settled. Default: for
    /// ever. Records of a run go with their run: see [`GuardBuilder::retention`](crate::GuardBuilder::retention).
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// For this long an equal read of the same run gets the result of the last one, marked, instead of running again; a
    /// write of the run that ends in this process puts an end to it. Kept in memory only, for [`Effect::ReadOnly`]
    /// only. Default: none, each read runs.
    #[must_use]
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Names of context values (account, environment, directory) that are part of a call's identity. Each call must
    /// come with them: [`Call::context`](crate::Call::context), or for all calls of a run
    /// [`Run::with_context`](crate::Run::with_context). Default none.
    #[must_use]
    pub fn context<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.context = names.into_iter().map(Into::into).collect();
        self
    }

    /// What happens to a call that looks like one which isn't finished. Default: [`LookAlike::Ask`] for write tools
    /// without `identity` hints, [`LookAlike::Off`] for all others.
    #[must_use]
    pub fn look_alike(mut self, look_alike: LookAlike) -> Self {
        self.look_alike = Some(look_alike);
        self
    }

    /// How the downstream key is written. Default: as the provider of a keyed tool wants it, else
    /// [`KeyForm::Hex32`].
    #[must_use]
    pub fn key_form(mut self, form: KeyForm) -> Self {
        self.key_form = Some(form);
        self
    }

    /// The name of an argument that takes the downstream key, such as `idempotency_key`. The model doesn't see it; what
    /// it sends there all the same is ignored, in the key of the call too; the tool and its look-up get the downstream
    /// key there, the same for every attempt that must not be a second effect. A tool that can't be registered so: one
    /// whose schema has no such property at its top, gives it a hint, or lets it be no string. Default none.
    #[must_use]
    pub fn key_parameter(mut self, name: impl Into<String>) -> Self {
        self.key_parameter = Some(name.into());
        self
    }
}

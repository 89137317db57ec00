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
    pub(crate) reopened_by: Vec<String>,
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

    /// Tools whose completion makes an equal call of this tool a new one: a cancelled booking may be booked again.
    /// Any completion in the run reopens, whatever it was about, and each one once. Default none.
    #[must_use]
    pub fn reopened_by<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.reopened_by = tools.into_iter().map(Into::into).collect();
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
    pub(crate) key_form: Option<KeyForm>,
    pub(crate) key_parameter: Option<String>,
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
            key_form: None,
            key_parameter: None,
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

    /// Names of context values (account, environment, directory) that are part of a call's identity. Each call must
    /// come with them: [`Call::context`](crate::Call::context), or for all calls of a run
    /// [`Run::with_context`](crate::Run::with_context). Default none.
    #[must_use]
    pub fn context<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.context = names.into_iter().map(Into::into).collect();
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

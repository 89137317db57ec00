//! One call, ready for the call path.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::canonical::{Shape, with_member};
use crate::error::Error;
use crate::key::{BaseKey, Digest, DownstreamKey, Fingerprint};
use crate::policy::{LookAlike, Policy};
use crate::protocol::apply::millis;
use crate::protocol::decide::{Asked, Limits};
use crate::protocol::notes::NotedPlace;
use crate::protocol::record::{About, Base, Leaf};
use crate::tool::{Body, Job, LookUpJob, ToolSpec};

use super::manifest::Plan;
use super::records::{Along, Known};
use super::reopen::Part;
use super::rows::{GlobalUnit, Row, RunUnit};
use super::runs::{RunNow, RunState};

/// The highest number by which a model may ask for the same thing again.
pub(crate) const MOST_TIMES: u32 = 20;

/// A registered tool.
pub(crate) struct Guarded {
    pub(crate) spec: ToolSpec,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) max_result: usize,
    pub(crate) shape: Shape,
    /// What its keys depend on beside the arguments.
    pub(crate) contract: Digest,
    pub(crate) look_alike: LookAlike,
    /// The name of the argument by which the model asks for the same again, if it is offered.
    pub(crate) again: Option<String>,
    pub(crate) body: Arc<Body>,
}

impl Guarded {
    /// An execution of these arguments under this downstream key. The error is for the model.
    pub(crate) fn job(&self, arguments: &str, key: &DownstreamKey) -> Result<Job, String> {
        (self.body.prepare)(&self.filled(arguments, key))
    }

    /// A look-up for an execution of these arguments under this downstream key, if the tool has one.
    pub(crate) fn look_up_job(&self, arguments: &str, key: &DownstreamKey) -> Option<Result<LookUpJob, String>> {
        self.body.look_up.as_ref().map(|look_up| look_up(&self.filled(arguments, key)))
    }

    /// The arguments as the tool gets them: with the downstream key where the policy says so. Records keep them
    /// without: a re-send has the same key, since it has the same generation.
    fn filled<'a>(&self, arguments: &'a str, key: &DownstreamKey) -> Cow<'a, str> {
        match &self.policy.advanced.key_parameter {
            Some(name) => with_member(arguments, name, &key.in_form(self.policy.key_form())).into(),
            None => arguments.into(),
        }
    }
}

/// What of a call depends on the secret.
pub(crate) struct Keyed {
    pub(crate) key: BaseKey,
    pub(crate) alias: Option<BaseKey>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) executed: Digest,
    pub(crate) leaves: Vec<Leaf>,
}

/// One call: read, normalised and keyed.
pub(crate) struct Work {
    pub(crate) tool: Arc<Guarded>,
    pub(crate) run: Arc<RunState>,
    /// The epoch of the caller's handle.
    pub(crate) epoch: u32,
    pub(crate) key: BaseKey,
    /// The key that the call would have in a run without a name: the same in every run, so that a fork finds what its
    /// parent did. `None` in global scope.
    pub(crate) alias: Option<BaseKey>,
    pub(crate) asked: Asked,
    /// What matters outside the arguments, by name.
    pub(crate) context: Vec<(String, String)>,
    /// For which time the model asks for the same, by an argument of its own.
    pub(crate) times: u32,
    /// The arguments as they will be executed.
    pub(crate) executed: String,
    pub(crate) leaves: Vec<Leaf>,
    /// What an equal call has under the guard's other secrets.
    pub(crate) others: Vec<Keyed>,
    /// The manifest of the turn, if all its calls were handed over together.
    pub(crate) plan: Option<Arc<Plan>>,
    /// What its completion means to tools that are reopened, if it means anything.
    pub(crate) part: Part,
    /// The call that comes before it, if the model asks for the same again.
    pub(crate) before: Option<Arc<Work>>,
    /// Whether its key is the one that the turn was recorded with, whatever the tool's schema says by now.
    pub(crate) is_pinned: bool,
    /// What a test calls the call.
    #[cfg(feature = "testing")]
    pub(crate) tag: u64,
}

impl Work {
    /// Takes the `n`-th other secret's key in place of the present one's.
    pub(crate) fn go_on_under(&mut self, n: usize) {
        let other = &mut self.others[n];
        std::mem::swap(&mut self.key, &mut other.key);
        std::mem::swap(&mut self.alias, &mut other.alias);
        std::mem::swap(&mut self.asked.fingerprint, &mut other.fingerprint);
        std::mem::swap(&mut self.asked.executed, &mut other.executed);
        std::mem::swap(&mut self.leaves, &mut other.leaves);
    }

    pub(crate) fn place(&self, nth: u32) -> Option<NotedPlace> {
        self.asked.turn.map(|turn| NotedPlace {
            run: self.asked.run.clone(),
            turn,
            nth,
            id: self.asked.id.clone(),
            fingerprint: self.asked.fingerprint,
        })
    }

    /// The key of the call that this one asks for more of, by an argument of its own; its own key otherwise.
    pub(crate) fn first_key(&self) -> BaseKey {
        self.before.as_ref().map_or(self.key, |before| before.key)
    }

    /// Says in a record that is new what it is about.
    pub(crate) fn name_record(&self, base: &mut Base) {
        if base.about == About::default() {
            base.about = About { tool: self.name().to_owned(), run: self.asked.run.clone() };
        }
    }

    /// The run as it stands.
    ///
    /// # Errors
    /// As [`RunNow::in_epoch`] for the caller's epoch.
    pub(crate) fn present(&self) -> Result<RunNow, Error> {
        self.run.now().in_epoch(self.epoch)
    }

    /// Adds the rows under which the record is found again: to the batch that creates it, and for a global one to each in
    /// which its run claims or asks.
    pub(crate) fn index(&self, known: &Known, along: &mut Along) {
        let prefix = self.run.prefix;
        let is_new = known.base.is_blank();
        match (self.alias, self.tool.policy.advanced.retention) {
            (Some(alias), _) if is_new => {
                along.puts.push((prefix.run_unit(&self.run.id, &self.key), RunUnit { alias }.to_bytes()));
            }
            (Some(_), _) => {}
            (None, retention) => {
                along.puts.push((prefix.run_global(&self.run.id, &self.key), Vec::new()));
                if let Some(retention) = retention.filter(|_| is_new) {
                    let unit = GlobalUnit { retention: millis(retention) };
                    along.puts.push((prefix.global_unit(&self.key), unit.to_bytes()));
                }
            }
        }
    }

    /// Whether it is a write that the turn, as recorded, did not make.
    pub(crate) fn has_diverged(&self) -> bool {
        let (Some(plan), Some(nth)) = (&self.plan, self.asked.nth) else { return false };
        self.tool.policy.effect().is_write() && !plan.has(|key| self.has_key(key), nth)
    }

    /// Whether it is its key, under whichever secret.
    pub(crate) fn has_key(&self, key: &BaseKey) -> bool {
        *key == self.key || self.others.iter().any(|other| other.key == *key)
    }

    pub(crate) fn name(&self) -> &str {
        &self.tool.spec.name
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("tool", &self.tool.spec.name).field("key", &self.key).finish_non_exhaustive()
    }
}

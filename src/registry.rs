//! Names to guarded tools, and the answers to an assistant message.

mod fit;
mod lint;
mod message;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use self::fit::{
    common_identity, contract, free_name, hide_key_parameter, look_alike, objection, offer_again, without_hints,
};
pub use self::lint::{LintFinding, LintWarning};
use self::message::{Answered, Waiting, all};
use crate::call::{Call, ToolCall, Turn};
use crate::canonical::{Arguments, Node, Normalised, Shape};
use crate::error::{Error, ErrorKind};
use crate::guard::{
    Guard, Guarded, Keyed, Keying, MOST_TIMES, Manifest, ManifestCall, Part, Plan, Reopens, RunState, Secrets,
    Turnstile, Work, placed,
};
use crate::key::{BaseKey, Fingerprint, KeyParts, KeyScope, digest};
use crate::policy::{Policy, Reopener, Scope};
use crate::protocol::decide::{Asked, Limits};
use crate::protocol::record::Leaf;
use crate::reply::Reply;
use crate::run::Run;
use crate::tell::{self, ReplyKind};
use crate::tool::{AnyTool, ToolError, ToolSpec, any_object, value_tool};

/// The longest name of a tool, in bytes: records keep it.
const MAX_NAME: usize = 512;

/// Values at longer places than this, in bytes, are not told apart by name in a conflict.
const MAX_POINTER: usize = 256;

/// Why a tool can't be registered.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool:?} can't be registered: {why}")]
pub struct RegisterError {
    tool: String,
    why: String,
}

impl fmt::Debug for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegisterError({self})")
    }
}

/// The tools of an agent, guarded.
///
/// ```
/// use serde_json::{Value, json};
/// use toolonce::store::MemoryStore;
/// use toolonce::{Call, Guard, Policy, Registry, ReplyKind, Run, value_tool};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
/// let mut tools = Registry::new(&guard);
/// let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]});
/// tools.add(value_tool("charge", "Charges the card", schema, Policy::write(), async |args: Value, _at| {
///     Ok(json!({"charged": args["cents"]}))
/// }))?;
///
/// let run = Run::start(&guard, "order-17").await?;
/// let first = tools.call(&run, Call::new("charge", r#"{"cents": 4200}"#).turn(0)).await;
/// let again = tools.call(&run, Call::new("charge", r#"{ "cents": 42e2 }"#).turn(1)).await;
/// assert_eq!(first.kind(), ReplyKind::Executed);
/// assert_eq!(again.kind(), ReplyKind::Replayed); // the card was charged once
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Registry {
    guard: Guard,
    tools: HashMap<String, Arc<Guarded>>,
    /// In the order in which they were added: what the model sees.
    order: Vec<String>,
    /// Tools whose completion reopens another.
    reopens: HashSet<String>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("tools", &self.order).finish_non_exhaustive()
    }
}

impl Registry {
    /// A registry without tools.
    pub fn new(guard: &Guard) -> Self {
        Self { guard: guard.clone(), tools: HashMap::new(), order: Vec::new(), reopens: HashSet::new() }
    }

    /// Guards an existing map of functions from JSON to JSON. `policy` says for each name what the tool does; the
    /// arguments may be any object.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::future::{Ready, ready};
    /// use serde_json::{Value, json};
    /// use toolonce::store::MemoryStore;
    /// use toolonce::{Guard, Policy, Registry};
    ///
    /// type Handler = fn(Value) -> Ready<Result<Value, std::io::Error>>;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
    /// let handlers: HashMap<&str, Handler> = HashMap::from([
    ///     ("search", (|_| ready(Ok(json!([])))) as Handler),
    ///     ("order", (|args| ready(Ok(args))) as Handler),
    /// ]);
    /// let tools = Registry::wrap(&guard, handlers, |name| match name {
    ///     "search" => Policy::read_only(),
    ///     _ => Policy::write(),
    /// })?;
    /// # let _ = tools;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn wrap<N, F, Fut, E>(
        guard: &Guard,
        tools: impl IntoIterator<Item = (N, F)>,
        policy: impl Fn(&str) -> Policy,
    ) -> Result<Self, RegisterError>
    where
        N: Into<String>,
        F: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, E>> + Send + 'static,
        E: Into<ToolError> + Send + 'static,
    {
        let mut registry = Self::new(guard);
        for (name, run) in tools {
            let name = name.into();
            let policy = policy(&name);
            registry.add(value_tool(name, "", any_object(), policy, move |args, _attempt| {
                let running = run(args);
                async move { running.await.map_err(Into::into) }
            }))?;
        }
        Ok(registry)
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`RegisterError`] if the name is empty or taken, the schema or its hints make no sense, an argument has the hint
    /// `secret` and the guard has no [secret](crate::GuardBuilder::secret), the policy asks for a look-up or a re-send
    /// that the tool can't do or for a hidden key parameter that it hasn't, or nothing in its arguments could tell two
    /// writes apart and the policy doesn't say what a repeat means.
    pub fn add(&mut self, tool: impl Into<AnyTool>) -> Result<&mut Self, RegisterError> {
        let mut tool: AnyTool = tool.into();
        let name = tool.name.clone();
        let refuse = |why: String| Err(RegisterError { tool: name.clone(), why });
        if tool.name.is_empty() || tool.name.len() > MAX_NAME {
            return refuse(format!("a name has 1 to {MAX_NAME} bytes"));
        }
        if self.tools.contains_key(&tool.name) {
            return refuse("there is a tool of this name already".to_owned());
        }
        if let Err(why) = hide_key_parameter(&mut tool) {
            return refuse(why);
        }
        let shape = match Shape::compile(&tool.schema) {
            Ok(shape) => shape,
            Err(error) => return refuse(error.to_string()),
        };
        if shape.has_secret() && !self.guard.inner.secrets.is_set() {
            return refuse(
                "it has an argument with the hint `secret`, which is stored only as a digest that can't be guessed: give \
                 the guard a secret for that, with GuardBuilder::secret"
                    .to_owned(),
            );
        }
        if let Some(why) = objection(&tool, &shape) {
            return refuse(why);
        }
        let settings = &self.guard.inner.settings;
        let advanced = &tool.policy.advanced;
        let limits = Limits {
            attempt_deadline: advanced.attempt_deadline.unwrap_or(settings.attempt_deadline),
            settle_delay: advanced.settle_delay.unwrap_or(settings.settle_delay),
        };
        let max_result = advanced.max_result.unwrap_or(settings.max_result);
        let again = tool.policy.again.then(|| free_name(&tool.schema));
        let mut parameters = without_hints(&tool.schema);
        if let Some(name) = &again {
            offer_again(&mut parameters, name);
        }
        let look_alike = look_alike(&tool.policy, &shape);
        let AnyTool { description, policy, body, .. } = tool;
        let contract = contract(&name, &policy, &shape);
        self.reopens.extend(policy.reopened_by.iter().map(|by| by.tool.clone()));
        self.guard.inner.registered(&name, limits.settle_delay);
        self.guard.inner.keeps(&name, policy.advanced.retention);
        self.order.push(name.clone());
        let spec = ToolSpec { name: name.clone(), description, parameters };
        let tool = Guarded { spec, policy, limits, max_result, shape, contract, look_alike, again, body };
        for warning in lint::volatile(&tool) {
            tracing::warn!("{warning}");
        }
        self.tools.insert(name, Arc::new(tool));
        Ok(self)
    }

    /// What the model is told about the tools, in the order in which they were added.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.order.iter().filter_map(|name| self.tools.get(name)).map(|tool| &tool.spec)
    }

    /// Answers one call more of its message: without the id of an earlier one it counts as another equal call. To deliver
    /// a message again use [`answer`](Self::answer). Dropping the future cancels nothing that has begun.
    pub async fn call(&self, run: &Run, call: Call) -> Reply {
        match self.prepare(run, &call) {
            Ok(mut work) => {
                self.find(&mut work).await;
                let inner = Arc::clone(&self.guard.inner);
                let work = Arc::new(work);
                let answer = inner.answer(Arc::clone(&work), call.patience, Turnstile::default()).await;
                inner.finish(&work, &call.id, answer)
            }
            Err(why) => refused(&call, &why),
        }
    }

    /// Answers the calls of one assistant message, in parallel: one answer for each call, in their order, whatever
    /// happens. `turn` is the index of the message in the run.
    pub async fn answer<C: ToolCall>(&self, run: &Run, turn: Turn, calls: &[C]) -> Vec<Reply> {
        let calls: Vec<Call> = calls.iter().map(|call| call.to_call().turn(turn)).collect();
        let mut works: Vec<Result<Work, String>> = calls.iter().map(|call| self.prepare(run, call)).collect();
        for work in works.iter_mut().flatten() {
            self.find(work).await;
        }
        let plan = self.plan(run, turn, &calls, &works).await;
        let plan = Arc::new(plan.unwrap_or_else(|error| Plan::unreadable(run.state(), turn, &error)));
        pin(&self.guard.inner.secrets, &calls, &mut works, &plan);
        number(&mut works);
        // Equal calls enter one after the other; everything else at once.
        let mut before: HashMap<BaseKey, oneshot::Receiver<()>> = HashMap::new();
        let mut waiting = Vec::with_capacity(calls.len());
        for (call, work) in calls.iter().zip(works) {
            let work = match work {
                Ok(work) => Arc::new(Work { plan: Some(Arc::clone(&plan)), ..work }),
                Err(why) => {
                    waiting.push(Waiting::Refused(refused(call, &why)));
                    continue;
                }
            };
            let (entered, next) = oneshot::channel();
            let turnstile = Turnstile { before: before.insert(work.first_key(), next), entered: Some(entered) };
            let answer = self.guard.inner.answer(Arc::clone(&work), call.patience, turnstile);
            waiting.push(Waiting::For(work, Box::pin(answer)));
        }
        let answers = all(waiting).await;
        // Taken in the poll that returns them: who drops this future earlier has seen none of them.
        let finish = |(call, answer): (&Call, Answered)| match answer {
            Answered::Refused(reply) => reply,
            Answered::With(work, answer) => self.guard.inner.finish(&work, &call.id, answer),
        };
        calls.iter().zip(answers).map(finish).collect()
    }

    async fn plan(&self, run: &Run, turn: Turn, calls: &[Call], works: &[Result<Work, String>]) -> Result<Plan, Error> {
        let entries = calls.iter().zip(works).map(|(call, work)| ManifestCall {
            id: call.id.clone(),
            tool: call.tool.clone(),
            raw: self.keying().digest(RAW, call.arguments.as_bytes()),
            key: work.as_ref().map_or(NO_KEY, |work| work.key),
            fingerprint: work.as_ref().map_or_else(|_| Fingerprint::default(), |work| work.asked.fingerprint),
            alias: work.as_ref().ok().and_then(|work| work.alias),
        });
        let manifest = Manifest { epoch: run.epoch(), calls: entries.collect() };
        Plan::new(&**self.guard.inner.records.store(), run.state(), turn, manifest).await
    }

    /// Reads, checks, normalises and keys a call. The error is for the model.
    fn prepare(&self, run: &Run, call: &Call) -> Result<Work, String> {
        if let Some(why) = &call.unreadable {
            return Err(why.clone());
        }
        if !Arc::ptr_eq(&self.guard.inner, &run.guard().inner) {
            return Err(
                "the run belongs to another guard than the tools. Calling again doesn't help: tell the user that the \
                 program has to use one guard for both."
                    .to_owned(),
            );
        }
        let tool = self.tools.get(&call.tool).ok_or_else(|| self.no_such_tool(&call.tool))?;
        let limits = &self.guard.inner.settings.arguments;
        let mut arguments = Arguments::read(&call.arguments, limits).map_err(|error| error.to_string())?;
        let times = tool.again.as_deref().map_or(Ok(0), |name| times(&mut arguments, name))?;
        if let Some(name) = &tool.policy.advanced.key_parameter {
            // The guard's to fill in: what the model put there means nothing.
            let _ignored = arguments.remove(name);
        }
        if tool.body.validates {
            tool.shape.validate(&arguments).map_err(|refusal| refusal.to_string())?;
        }
        let meaning = tool.shape.normalise(&arguments).map_err(|error| error.to_string())?;
        if !tool.body.takes_text {
            meaning.unrounded().map_err(|error| error.to_string())?;
        }
        let context = context_of(&tool.policy, run, call)?;
        let namespace = &run.state().namespace;
        let scope = match tool.policy.scope {
            Scope::Run => KeyScope::Run(&run.state().id),
            Scope::Global => KeyScope::Global,
        };
        let identity = meaning.identity_digest;
        let parts = KeyParts { namespace, scope, tool: &tool.spec.name, context: &context, identity, again: times };
        let work = self.work(run, call, tool, &parts, &meaning);
        if meaning.identifies_nothing && tool.policy.effect().is_write() && tool.policy.repeat.is_none() {
            // A tool that needs arguments says better what is missing.
            let _fits =
                tool.job(meaning.executed(), &work.key.downstream(0, 0)).map_err(|error| tell::misfit(&error))?;
            let why = "the call has no arguments that say what it is about. Give at least one, from the task; if there is \
                       none, tell the user.";
            return Err(why.to_owned());
        }
        let before = match times {
            0 => None,
            _ => {
                let parts = KeyParts { again: times - 1, ..parts };
                let (context, executed) = (context.clone(), meaning.executed().to_owned());
                Some(Arc::new(Work { context, executed, ..self.work(run, call, tool, &parts, &meaning) }))
            }
        };
        Ok(Work { before, context, executed: meaning.into_executed(), ..work })
    }

    fn keying(&self) -> Keying<'_> {
        self.guard.inner.secrets.current()
    }

    /// Finds the record of a call that was begun under an older secret. Where the store can't say, the call goes on:
    /// it fails for the same reason, or its claim looks once more.
    async fn find(&self, work: &mut Work) {
        if let Some(before) = work.before.as_mut().and_then(Arc::get_mut) {
            self.find_one(before).await;
        }
        self.find_one(work).await;
    }

    async fn find_one(&self, work: &mut Work) {
        let inner = &self.guard.inner;
        if let Err(error) = inner.secrets.find(&**inner.records.store(), work).await {
            tracing::warn!(%error, tool = work.name(), "records under older secrets could not be looked for");
        }
    }

    fn work(&self, run: &Run, call: &Call, tool: &Arc<Guarded>, parts: &KeyParts<'_>, meaning: &Normalised) -> Work {
        let of = |keying| keyed(keying, parts, run.state(), meaning);
        let Keyed { key, alias, fingerprint, executed, leaves } = of(self.keying());
        let others = self.guard.inner.secrets.older().map(of).collect();
        Work {
            tool: Arc::clone(tool),
            run: Arc::clone(run.state()),
            epoch: run.epoch(),
            key,
            alias,
            asked: Asked {
                run: run.state().id.to_string(),
                turn: call.turn,
                nth: None,
                id: short_id(&call.id),
                fingerprint,
                executed,
                again: parts.again > 0,
                looked_up: false,
            },
            leaves,
            others,
            executed: String::new(),
            context: Vec::new(),
            times: parts.again,
            plan: None,
            part: self.part(tool, run.state().salt(), meaning),
            before: None,
            is_pinned: false,
            #[cfg(feature = "testing")]
            tag: call.tag,
        }
    }

    /// What a call of `tool` has to do with reopening.
    fn part(&self, tool: &Guarded, run: &str, meaning: &Normalised) -> Part {
        let reopens = self.reopens.contains(&tool.spec.name);
        let counts = reopens || !tool.policy.reopened_by.is_empty();
        if !counts {
            return Part::default();
        }
        let common = |by: &Reopener| match self.tools.get(&by.tool) {
            Some(other) => common_identity(&tool.shape, &other.shape),
            None => Vec::new(),
        };
        let reopened_by = tool.policy.reopened_by.iter();
        let reopened_by =
            reopened_by.map(|by| Reopens { tool: by.tool.clone(), common: common(by), when: by.when.clone() });
        let reopened_by = reopened_by.collect();
        let values = self.guard.inner.secrets.all().map(|keying| placed(keying, run, &meaning.leaves)).collect();
        Part { counts, reopens, values, reopened_by }
    }

    fn no_such_tool(&self, name: &str) -> String {
        format!("there is no tool {name:?}. The tools are: {}.", self.order.join(", "))
    }
}

/// The key of a call that was refused before it had one.
const NO_KEY: BaseKey = BaseKey::from_bytes([0; 32]);

/// Gives the calls of a turn that was recorded before the keys that it was recorded with: a second delivery of the same
/// text is the same call, whatever the tool's schema says by now.
fn pin(secrets: &Secrets, calls: &[Call], works: &mut [Result<Work, String>], plan: &Plan) {
    let mut recorded = plan.calls();
    for (call, work) in calls.iter().zip(works) {
        let is_it = |entry: &ManifestCall| {
            let is_tool = entry.tool == call.tool && entry.key != NO_KEY;
            is_tool && secrets.is_digest(entry.raw, RAW, call.arguments.as_bytes())
        };
        let Some(at) = recorded.iter().position(is_it) else { continue };
        let entry = recorded.remove(at);
        let Ok(work) = work else { continue };
        work.is_pinned = true;
        if work.others.iter().any(|other| other.key == entry.key) {
            continue; // The same key, under another secret: whichever has the record was found before.
        }
        if entry.key != work.key || entry.fingerprint != work.asked.fingerprint {
            if entry.key != work.key {
                work.others.clear();
            }
            work.key = entry.key;
            work.alias = entry.alias;
            work.asked.fingerprint = entry.fingerprint;
            work.leaves.clear();
            work.before = None;
        }
    }
}

/// What digests of arguments as they came are for.
const RAW: &str = "toolonce raw arguments";

/// Gives each call its position among the equal ones of its message. A call that asks for more of the same may turn out
/// to be about the call before it, where it stands behind those that ask for that.
fn number(works: &mut [Result<Work, String>]) {
    let mut counts: HashMap<BaseKey, u32> = HashMap::new();
    let mut next = |key: BaseKey| {
        let count = counts.entry(key).or_default();
        *count += 1;
        *count - 1
    };
    for work in works.iter_mut().flatten() {
        work.asked.nth = Some(next(work.key));
    }
    for work in works.iter_mut().flatten() {
        if let Some(before) = work.before.as_mut().and_then(Arc::get_mut) {
            before.asked.nth = Some(next(before.key));
        }
    }
}

/// Takes out the argument by which the model asks for the same again.
fn times(arguments: &mut Arguments<'_>, name: &str) -> Result<u32, String> {
    let times = match arguments.remove(name) {
        None | Some(Node::Null) => Some(0),
        Some(Node::Number(number)) => number.as_str().parse().ok().filter(|times| *times <= MOST_TIMES),
        Some(_) => None,
    };
    times.ok_or_else(|| {
        format!("{name:?} is a whole number from 0 to {MOST_TIMES}: how often the same was done before.")
    })
}

/// What of a call depends on the secret.
fn keyed(keying: Keying<'_>, parts: &KeyParts<'_>, run: &RunState, meaning: &Normalised) -> Keyed {
    let alias = match parts.scope {
        KeyScope::Run(_) => Some(keying.base_key(&KeyParts { scope: KeyScope::Run(""), ..*parts })),
        KeyScope::Global => None,
    };
    let key = match alias {
        Some(alias) if !run.line.is_empty() => alias.in_fork(&run.id),
        _ => keying.base_key(parts),
    };
    // Not by the run: a fork compares with what its parent did.
    let salt = alias.unwrap_or(key);
    let leaves = meaning
        .leaves
        .iter()
        .filter(|leaf| leaf.pointer.len() <= MAX_POINTER)
        .map(|leaf| Leaf { pointer: leaf.pointer.to_owned(), digest: keying.leaf(&salt, leaf.pointer, leaf.value) });
    Keyed {
        key,
        alias,
        fingerprint: keying.fingerprint(meaning.fingerprint),
        executed: keying.digest("toolonce executed", meaning.executed().as_bytes()),
        leaves: leaves.collect(),
    }
}

/// A call id as it goes into a record: every place keeps one, so an endless one is known by its digest.
fn short_id(id: &str) -> String {
    if id.len() <= 128 {
        return id.to_owned();
    }
    digest("toolonce call id", id.as_bytes()).hex()
}

fn refused(call: &Call, why: &str) -> Reply {
    Reply {
        kind: ReplyKind::Refused,
        marked: false,
        tool: call.tool.clone(),
        id: call.id.clone(),
        message: tell::refused(why),
        outcome: None,
        reference: None,
        fields: Vec::new(),
        downstream: None,
        delivery: None,
    }
}

/// The context values that the tool's policy declares: the call's own, else its run's.
fn context_of(policy: &Policy, run: &Run, call: &Call) -> Result<Vec<(String, String)>, String> {
    let value = |name: &String| match call.context.get(name).or_else(|| run.context(name)) {
        Some(value) => Ok((name.clone(), value.clone())),
        None => Err(format!(
            "the program did not say which {name} the call is for. Calling again doesn't help: tell the user."
        )),
    };
    let values: BTreeMap<_, _> = policy.advanced.context.iter().map(value).collect::<Result<_, _>>()?;
    Ok(values.into_iter().collect())
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string())
    }
}

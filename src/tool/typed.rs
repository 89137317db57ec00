//! Tools over Rust types: arguments are read by serde, their schema comes from schemars.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AnyTool, Attempt, Body, Job, LookUp, LookUpJob, Reconciled, ToolError, boxed, produce};
use crate::policy::Policy;

/// A tool as a type of its own: for tools with state, or with a look-up that is more than a line.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use toolonce::{Attempt, InDoubt, LookUp, Policy, Reconciled, Tool, ToolError};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Charge { customer: String, cents: u64 }
/// #[derive(Serialize)]
/// struct Charged { charge: String }
///
/// struct ChargeCard { /* a client of the payment service */ }
///
/// impl Tool for ChargeCard {
///     type Args = Charge;
///     type Output = Charged;
///     fn name(&self) -> &str { "charge_card" }
///     fn description(&self) -> &str { "Charges a customer's card" }
///     fn policy(&self) -> Policy { Policy::write().in_doubt(InDoubt::Reconcile) }
///
///     async fn run(&self, args: Charge, at: Attempt) -> Result<Charged, ToolError> {
///         at.check().await?;
///         // … send `args` with `at.downstream_key()` as reference …
///         Ok(Charged { charge: format!("ch_{}_{}", args.customer, args.cents) })
///     }
///
///     async fn reconcile(&self, _args: Charge, about: LookUp) -> Result<Reconciled<Charged>, ToolError> {
///         // … look for a charge with `about.downstream_key()` as reference …
///         let _ = about;
///         Ok(Reconciled::CannotTell)
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The arguments.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The result. A text is given to the model as it is, anything else as JSON.
    type Output: Serialize + Send + 'static;

    /// The name that calls use.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// How it is guarded.
    fn policy(&self) -> Policy;

    /// Executes one call.
    fn run(&self, args: Self::Args, attempt: Attempt) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Says whether an earlier attempt happened. Asked only if the policy says
    /// [`InDoubt::Reconcile`](crate::InDoubt::Reconcile). A tool that has one promises to await
    /// [`Attempt::check`] right before each send. The default can't tell.
    fn reconcile(
        &self,
        args: Self::Args,
        about: LookUp,
    ) -> impl Future<Output = Result<Reconciled<Self::Output>, ToolError>> + Send {
        let _ = (args, about);
        async { Ok(Reconciled::CannotTell) }
    }
}

fn schema_of<A: JsonSchema>() -> serde_json::Value {
    let mut schema = schemars::schema_for!(A).to_value();
    // A struct without fields: schemars leaves it open, but there is nothing that an argument could mean to it.
    const SHAPED: [&str; 8] =
        ["properties", "additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "not"];
    if let Some(object) = schema.as_object_mut()
        && object.get("type").is_some_and(|kind| kind == "object")
        && !SHAPED.iter().any(|keyword| object.contains_key(*keyword))
    {
        object.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

/// The error names the place by its path: line and column are those of a text that the model never wrote.
fn read<A: DeserializeOwned>(arguments: &str) -> Result<A, String> {
    let mut text = serde_json::Deserializer::from_str(arguments);
    serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner().to_string());
        let what = inner.rsplit_once(" at line ").map_or(inner.as_str(), |(what, _)| what);
        if path == "." { what.to_owned() } else { format!("{path}: {what}") }
    })
}

impl<T: Tool> From<T> for AnyTool {
    fn from(tool: T) -> Self {
        let (name, description, policy) = (tool.name().to_owned(), tool.description().to_owned(), tool.policy());
        let tool = Arc::new(tool);
        let looker = Arc::clone(&tool);
        let run = move |args: T::Args, attempt| {
            let tool = Arc::clone(&tool);
            async move { tool.run(args, attempt).await }
        };
        let look = move |args: T::Args, about| {
            let tool = Arc::clone(&looker);
            async move { tool.reconcile(args, about).await }
        };
        self::tool(name, description, policy, run).reconcile(look).into()
    }
}

/// A closure as a tool: [`tool`].
#[must_use]
pub struct FnTool<A, T> {
    name: String,
    description: String,
    policy: Policy,
    body: Body,
    types: PhantomData<fn(A) -> T>,
}

impl<A, T> std::fmt::Debug for FnTool<A, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnTool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A closure as a tool; its schema comes from the type of its arguments.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use toolonce::{Attempt, Policy, tool};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Email { to: String, body: String }
///
/// let send = tool("send_email", "Sends an e-mail", Policy::write(), async |mail: Email, _at: Attempt| {
///     Ok(format!("sent to {}", mail.to))
/// });
/// # let _ = send;
/// ```
pub fn tool<A, T, F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    policy: Policy,
    run: F,
) -> FnTool<A, T>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    T: Serialize + Send + 'static,
    F: Fn(A, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
{
    let run = Arc::new(run);
    let prepare = move |text: &str| -> Result<Job, String> {
        let (args, run) = (read::<A>(text)?, Arc::clone(&run));
        Ok(Box::new(move |attempt| boxed(async move { run(args, attempt).await.map(|output| produce(&output)) })))
    };
    let body = Body { prepare: Box::new(prepare), look_up: None, takes_text: false, validates: false };
    FnTool { name: name.into(), description: description.into(), policy, body, types: PhantomData }
}

impl<A, T> FnTool<A, T>
where
    A: DeserializeOwned + Send + 'static,
    T: Serialize + Send + 'static,
{
    /// Gives the tool a look-up: "did this happen?". It is asked when the policy says
    /// [`InDoubt::Reconcile`](crate::InDoubt::Reconcile), with the arguments that were executed. A tool that has one
    /// promises to await [`Attempt::check`] right before each send.
    pub fn reconcile<F, Fut>(mut self, look: F) -> Self
    where
        F: Fn(A, LookUp) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reconciled<T>, ToolError>> + Send + 'static,
    {
        let look = Arc::new(look);
        self.body.look_up = Some(Box::new(move |text: &str| -> Result<LookUpJob, String> {
            let (args, look) = (read::<A>(text)?, Arc::clone(&look));
            Ok(Box::new(move |about| {
                boxed(async move { look(args, about).await.map(|found| found.map(|output| produce(&output))) })
            }))
        }));
        self
    }
}

impl<A: JsonSchema, T> From<FnTool<A, T>> for AnyTool {
    fn from(tool: FnTool<A, T>) -> Self {
        let FnTool { name, description, policy, body, .. } = tool;
        Self { name, description, schema: schema_of::<A>(), policy, body: Arc::new(body) }
    }
}

//! Tools that bring their own schema and take JSON values or the argument text.

use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use super::{AnyTool, Attempt, Body, Job, LookUp, LookUpJob, Produced, Reconciled, ToolError, boxed, produce};
use crate::policy::Policy;

/// A tool over JSON values or text: [`value_tool`], [`text_tool`].
#[must_use]
pub struct RawTool {
    name: String,
    description: String,
    schema: Value,
    policy: Policy,
    body: Body,
}

impl std::fmt::Debug for RawTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawTool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A tool that takes its arguments as a [`Value`] and returns one. The guard checks them against `schema` as far as
/// `type`, `required`, `enum` and `additionalProperties` go, and refuses integers that a `Value` can't hold unrounded.
pub fn value_tool<F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    schema: Value,
    policy: Policy,
    run: F,
) -> RawTool
where
    F: Fn(Value, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    let run = Arc::new(run);
    let prepare = move |text: &str| -> Result<Job, String> {
        let arguments: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let run = Arc::clone(&run);
        Ok(Box::new(move |attempt| {
            let running = run(arguments, attempt);
            boxed(async move { running.await.map(|value| produce(&value)) })
        }))
    };
    let body = Body { prepare: Box::new(prepare), look_up: None, takes_text: false, validates: true };
    RawTool { name: name.into(), description: description.into(), schema, policy, body }
}

/// A tool that takes the argument text (canonical JSON, numbers exact) and returns JSON text. The guard checks the
/// arguments as for [`value_tool`]. A result that isn't JSON counts as one that can't be kept.
pub fn text_tool<F, Fut>(
    name: impl Into<String>,
    description: impl Into<String>,
    schema: Value,
    policy: Policy,
    run: F,
) -> RawTool
where
    F: Fn(String, Attempt) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let run = Arc::new(run);
    let prepare = move |text: &str| -> Result<Job, String> {
        let (text, run) = (text.to_owned(), Arc::clone(&run));
        Ok(Box::new(move |attempt| {
            let running = run(text, attempt);
            boxed(async move { running.await.map(checked_json) })
        }))
    };
    let body = Body { prepare: Box::new(prepare), look_up: None, takes_text: true, validates: true };
    RawTool { name: name.into(), description: description.into(), schema, policy, body }
}

/// A result must be JSON: an answer that can't be read back is none.
fn checked_json(text: String) -> Produced {
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("the tool's result isn't JSON: {error}")),
    }
}

impl RawTool {
    /// Gives the tool a look-up: "did this happen?". It is asked when the policy says
    /// [`InDoubt::Reconcile`](crate::InDoubt::Reconcile); its arguments are the text that was executed. A tool that
    /// has one promises to await [`Attempt::check`] right before each send.
    pub fn reconcile<F, Fut>(mut self, look: F) -> Self
    where
        F: Fn(String, LookUp) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reconciled<Value>, ToolError>> + Send + 'static,
    {
        let look = Arc::new(look);
        self.body.look_up = Some(Box::new(move |text: &str| -> Result<LookUpJob, String> {
            let (text, look) = (text.to_owned(), Arc::clone(&look));
            Ok(Box::new(move |about| {
                let looking = look(text, about);
                boxed(async move { looking.await.map(|found| found.map(|value| produce(&value))) })
            }))
        }));
        self
    }
}

impl From<RawTool> for AnyTool {
    fn from(tool: RawTool) -> Self {
        let RawTool { name, description, schema, policy, body } = tool;
        Self { name, description, schema, policy, body: Arc::new(body) }
    }
}

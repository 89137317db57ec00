//! Tools whose arguments would make every retry a call of its own.

use std::fmt;

use super::Registry;
use crate::canonical::Volatile;
use crate::guard::Guarded;

/// What [`Registry::lint`] found about one argument of one tool. Displays as a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LintWarning {
    /// The tool's name.
    pub tool: String,
    /// The argument, and what it looks like.
    pub argument: Volatile,
}

impl fmt::Display for LintWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool {:?}: {}", self.tool, self.argument)
    }
}

/// The warnings about one tool.
pub(super) fn warnings(tool: &Guarded) -> impl Iterator<Item = LintWarning> {
    let found = if tool.policy.effect().is_write() { tool.shape.volatile() } else { Vec::new() };
    found.into_iter().map(|argument| LintWarning { tool: tool.spec.name.clone(), argument })
}

impl Registry {
    /// Arguments of write tools that look as if each try of one call had another value there: a time, a reason, an id of
    /// the request. They are part of what tells two calls apart until a hint says otherwise, and would make every retry
    /// a call of its own. In the order of the tools and of the places in their arguments; empty is good.
    ///
    /// Each is logged as a warning when its tool is added. [`Volatile`] says what is looked for, and in its text what to
    /// do; any `x-toolonce` hint on the property settles it.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use toolonce::store::MemoryStore;
    /// use toolonce::{Guard, Policy, Registry, value_tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = Guard::builder(MemoryStore::new(), "shop").build().await?;
    /// let mut tools = Registry::new(&guard);
    /// let schema = json!({"type": "object", "properties": {"order": {}, "reason": {"type": "string"}}});
    /// tools.add(value_tool("cancel", "", schema, Policy::write(), async |args: Value, _at| Ok(args)))?;
    /// let warnings: Vec<String> = tools.lint().iter().map(ToString::to_string).collect();
    /// assert!(warnings[0].starts_with(r#"tool "cancel": /reason looks like free text"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lint(&self) -> Vec<LintWarning> {
        self.order.iter().filter_map(|name| self.tools.get(name)).flat_map(|tool| warnings(tool)).collect()
    }
}

//! Tools whose arguments would make every retry a call of its own, and names in policies that no tool has.

use std::fmt;

use super::Registry;
use crate::canonical::Volatile;
use crate::guard::Guarded;

/// What [`Registry::lint`] found about one tool. Displays as a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LintWarning {
    /// The tool's name.
    pub tool: String,
    /// What was found.
    pub finding: LintFinding,
}

/// What a [`LintWarning`] is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LintFinding {
    /// An argument of a write tool, and what it looks like.
    Volatile(Volatile),
    /// The policy says [`reopened_by`](crate::Policy::reopened_by) a tool of this name, and the registry has none.
    UnknownReopener(String),
}

impl fmt::Display for LintWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool {:?}: ", self.tool)?;
        match &self.finding {
            LintFinding::Volatile(argument) => argument.fmt(f),
            LintFinding::UnknownReopener(name) => write!(
                f,
                "its policy says that {name:?} reopens it, and there is no tool of this name: add one, or correct the \
                 name in `reopened_by`"
            ),
        }
    }
}

/// The warnings about the arguments of one tool.
pub(super) fn volatile(tool: &Guarded) -> impl Iterator<Item = LintWarning> {
    let found = if tool.policy.effect().is_write() { tool.shape.volatile() } else { Vec::new() };
    found.into_iter().map(|argument| warning(tool, LintFinding::Volatile(argument)))
}

fn warning(tool: &Guarded, finding: LintFinding) -> LintWarning {
    LintWarning { tool: tool.spec.name.clone(), finding }
}

impl Registry {
    /// Arguments of write tools that look as if each try of one call had another value there: a time, a reason, an id of
    /// the request. They are part of what tells two calls apart until a hint says otherwise, and would make every retry
    /// a call of its own. And tools that a policy names in [`reopened_by`](crate::Policy::reopened_by) and that aren't
    /// there, so that nothing reopens. In the order of the tools and of the places in their arguments; empty is good.
    ///
    /// Each of the former is logged as a warning when its tool is added, the latter aren't: the tool may be added later.
    /// [`Volatile`] says what is looked for, and in its text what to
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
        let tools = self.order.iter().filter_map(|name| self.tools.get(name));
        tools.flat_map(|tool| volatile(tool).chain(self.unknown_reopeners(tool))).collect()
    }

    fn unknown_reopeners(&self, tool: &Guarded) -> impl Iterator<Item = LintWarning> {
        let unknown = tool.policy.reopened_by.iter().filter(|by| !self.tools.contains_key(&by.tool));
        unknown.map(|by| warning(tool, LintFinding::UnknownReopener(by.tool.clone())))
    }
}

//! The table of policies: what each tool does and what a repeat of it means.

use std::collections::BTreeMap;

use serde::Deserialize;
use toolonce::{Policy, Repeat};

use crate::corpus::Kind;
use crate::reading;

/// The table that comes with the harness.
pub const BUILT_IN: &str = include_str!("../policies.json");

/// Policies by tool, and by kind for tools that the table doesn't know.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    by_kind: ByKind,
    tools: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "UPPERCASE")]
struct ByKind {
    read: Entry,
    write: Entry,
    handoff: Entry,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What the tool does.
    pub effect: Effect,
    /// What an equal call in a later turn means.
    #[serde(default)]
    pub repeat: Again,
    /// Tools whose completion makes an equal call a new one.
    #[serde(default)]
    pub reopened_by: Vec<String>,
    /// Why it is so; for the reader of the table.
    #[serde(rename = "why")]
    _why: String,
}

/// What a tool does, as far as the harness can count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    ReadOnly,
    /// Something that must not be done twice for one wish.
    Write,
}

/// What an equal call in a later turn means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// The same: its retry.
    #[default]
    Once,
    /// Once more.
    Each,
}

impl Policies {
    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(text: &str) -> Result<Self, String> {
        let table: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        // serde_json keeps the last of two entries and says nothing.
        reading::read(text)?;
        table.refuse_unknown_tools()?;
        Ok(table)
    }

    fn refuse_unknown_tools(&self) -> Result<(), String> {
        let by_kind =
            [("READ", &self.by_kind.read), ("WRITE", &self.by_kind.write), ("HANDOFF", &self.by_kind.handoff)];
        let tools = self.tools.iter().map(|(name, entry)| (name.as_str(), entry));
        for (name, entry) in by_kind.into_iter().chain(tools) {
            if let Some(unknown) = entry.reopened_by.iter().find(|tool| !self.tools.contains_key(*tool)) {
                return Err(format!("{name:?} is reopened by {unknown:?}, which is no tool of the table"));
            }
        }
        Ok(())
    }

    /// The entry of a tool.
    pub fn of(&self, tool: &str, kind: Kind) -> &Entry {
        self.tools.get(tool).unwrap_or(match kind {
            Kind::Read => &self.by_kind.read,
            Kind::Write => &self.by_kind.write,
            Kind::Handoff => &self.by_kind.handoff,
        })
    }
}

impl Entry {
    /// The guard's policy.
    pub fn policy(&self) -> Policy {
        let repeat = match self.repeat {
            Again::Once => Repeat::Once,
            Again::Each => Repeat::Each,
        };
        let policy = match self.effect {
            Effect::ReadOnly => return Policy::read_only(),
            Effect::Write => Policy::write().repeat(repeat),
        };
        policy.reopened_by(&self.reopened_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_unknown_tools_go_by_their_kind() {
        let table = Policies::read(BUILT_IN).unwrap();
        assert_eq!(table.of("reboot_device", Kind::Write).repeat, Again::Each);
        assert_eq!(table.of("book_reservation", Kind::Write).reopened_by, ["cancel_reservation"]);
        assert_eq!(table.of("new_tool", Kind::Read).effect, Effect::ReadOnly);
        assert_eq!(table.of("new_tool", Kind::Handoff).repeat, Again::Once);
    }

    #[test]
    fn what_the_table_does_not_know_is_an_error() {
        let text = BUILT_IN.replacen("\"effect\": \"write\"", "\"effect\": \"maybe\"", 1);
        assert!(Policies::read(&text).unwrap_err().contains("maybe"));
        let text = BUILT_IN.replacen("[\"cancel_reservation\"]", "[\"cancel_reservaton\"]", 1);
        assert!(Policies::read(&text).unwrap_err().contains("\"cancel_reservaton\", which is no tool of the table"));
        let text = BUILT_IN.replacen("\"suspend_line\"", "\"resume_line\"", 1);
        assert!(Policies::read(&text).unwrap_err().contains("\"resume_line\" stands there twice"));
    }
}

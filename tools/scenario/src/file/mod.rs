//! The strict form of a scenario file, read into types.
//!
//! One JSON object a line; empty lines are skipped. Whatever isn't part of the form is an error that names its line.

mod check;
mod expect;
mod fate;
mod forms;
mod raw;
mod step;
#[cfg(test)]
mod tests;
mod tool;
mod unique;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

pub use self::expect::{Expect, OpenExpect, Refused, ReplyKind, StepExpect, ValueExpect};
pub use self::fate::{Fate, FateKind};
pub use self::forms::{Count, No, Seen, Times, Window, Yes};
pub use self::step::{
    Advance, Answer, Bare, Call, Continue, Deploy, FaultKind, FaultOn, Fork, OfCall, Pause, PauseAt, Reopen, Resolve,
    Restart, RunStep, Step, StoreFault, Wait, WallClock,
};
pub use self::tool::{Approval, Effect, InDoubt, LookAlike, LookUp, Mismatch, Repeat, Scope, Tool};

use self::forms::{object, object_map, objects};

/// One case: a line of a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, unique in the file.
    pub id: String,
    /// Why it expects what it expects.
    pub note: Option<String>,
    /// The tools, by name.
    #[serde(default, deserialize_with = "object_map")]
    pub tools: BTreeMap<String, Tool>,
    /// What happens.
    #[serde(default, deserialize_with = "steps")]
    pub steps: Vec<Step>,
    /// Effects per tool at the end, counted outside the guard.
    #[serde(default)]
    pub effects: BTreeMap<String, Count>,
    /// Bodies per tool that reached their effect point.
    #[serde(default)]
    pub executions: BTreeMap<String, Count>,
    /// Different downstream keys seen per tool.
    #[serde(default)]
    pub downstream_keys: BTreeMap<String, u64>,
    /// Incidents that the guard must have reported.
    pub incidents: Option<u64>,
    /// Exactly the tools that the lint must name.
    pub warnings: Option<Vec<String>>,
    /// Registering the tools must fail.
    pub register: Option<Refused>,
    /// Settings of the guard.
    #[serde(default, deserialize_with = "object")]
    pub config: Config,
}

fn steps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Step>, D::Error> {
    objects(deserializer, "step")
}

/// Settings of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Milliseconds of silence after which an owner counts as gone; default 30 s.
    pub lease_ms: u64,
    /// Milliseconds that a caller waits; default 60 s.
    pub patience_ms: u64,
    /// Milliseconds that an attempt may take; default 10 min.
    pub deadline_ms: u64,
    /// The marked replay in a row from which on the model is told to stop; default the 5th.
    pub replay_stop: u32,
    /// The secret that keys are derived with; default none.
    pub secret: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self { lease_ms: 30_000, patience_ms: 60_000, deadline_ms: 600_000, replay_stop: 5, secret: None }
    }
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1; `None` when it is about the file as a whole.
    pub line: Option<usize>,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Reads a file.
///
/// # Errors
/// All problems of the file, when it can't be read or any line isn't in the strict form.
pub fn read(path: &Path) -> Result<Vec<Scenario>, Vec<Problem>> {
    let whole = |e: &dyn fmt::Display| vec![Problem { line: None, message: format!("the file can't be read: {e}") }];
    let bytes = std::fs::read(path).map_err(|e| whole(&e))?;
    let text = String::from_utf8(bytes).map_err(|e| whole(&e.utf8_error()))?;
    parse(&text)
}

/// Reads the text of a file.
///
/// # Errors
/// All problems of the text, when any line isn't in the strict form or there is none.
pub fn parse(text: &str) -> Result<Vec<Scenario>, Vec<Problem>> {
    let whole = |line, message: &str| vec![Problem { line, message: message.to_owned() }];
    if text.starts_with('\u{feff}') {
        return Err(whole(Some(1), "the file begins with a byte order mark: save it as UTF-8 without one"));
    }
    if text.trim().is_empty() {
        return Err(whole(None, "no cases in this file"));
    }
    let mut cases: Vec<Scenario> = Vec::new();
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let case = parse_line(line).and_then(|case| {
            let new = ids.insert(case.id.clone());
            if new { Ok(case) } else { Err(format!("the id `{}` stands twice in this file", case.id)) }
        });
        match case {
            Ok(case) => cases.push(case),
            Err(message) => problems.push(Problem { line: Some(at + 1), message }),
        }
    }
    if problems.is_empty() { Ok(cases) } else { Err(problems) }
}

fn parse_line(line: &str) -> Result<Scenario, String> {
    serde_json::from_str::<IgnoredAny>(line)
        .map_err(|e| format!("not JSON at column {}: {}", e.column(), sentence(&e)))?;
    let quoted = raw::quote_args(line);
    serde_json::from_str::<unique::Unique>(&quoted).map_err(|e| sentence(&e))?;
    let mut reader = serde_json::Deserializer::from_str(&quoted);
    let case: Scenario = object(&mut reader).map_err(|e| sentence(&e))?;
    check::check(&case)?;
    Ok(case)
}

/// The error without its position: arguments were rewritten since, and the line is named anyway.
fn sentence(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

//! What was measured, and how it is shown.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::machine::Machine;

/// What a value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Multiples of something that the row's name tells.
    Times,
    /// Completed calls in the time of one append + fdatasync.
    PerSync,
    /// Hundredths of something that the row's name tells.
    Percent,
    /// A number of things.
    Count,
    /// 1,000,000 bytes.
    Megabytes,
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Self::Micros => " µs",
            Self::Millis => " ms",
            Self::Seconds => " s",
            Self::Times => " ×",
            Self::PerSync => " per sync",
            Self::Percent => " %",
            Self::Count => "",
            Self::Megabytes => " MB",
        }
    }

    fn show(self, value: f64) -> String {
        let digits = match value.abs() {
            _ if self == Self::Count && value.fract() == 0.0 => 0,
            value if value >= 100.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        format!("{value:.digits$}{}", self.suffix())
    }
}

/// What a value should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// How much it is.
    pub value: f64,
    /// Of what.
    pub unit: Unit,
    /// What it should be, if anybody said so.
    pub goal: Option<Goal>,
}

impl Row {
    /// A figure that is told without a goal.
    pub fn new(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { name: name.into(), value, unit, goal: None }
    }

    /// This or less is the goal.
    #[must_use]
    pub fn at_most(self, goal: f64) -> Self {
        Self { goal: Some(Goal::AtMost(goal)), ..self }
    }

    /// This or more is the goal.
    #[must_use]
    pub fn at_least(self, goal: f64) -> Self {
        Self { goal: Some(Goal::AtLeast(goal)), ..self }
    }

    /// How the value stands to its goal: 1 is just met, 2 is twice as good, 0.5 half as good.
    pub fn ratio(&self) -> Option<f64> {
        match self.goal? {
            // Nothing at all can't be beaten.
            Goal::AtMost(goal) if self.value == goal => Some(1.0),
            Goal::AtMost(goal) => Some(goal / self.value.max(f64::MIN_POSITIVE)),
            Goal::AtLeast(goal) => Some(self.value / goal),
        }
    }

    /// Whether the goal is met.
    pub fn is_met(&self) -> Option<bool> {
        match self.goal? {
            Goal::AtMost(goal) => Some(self.value <= goal),
            Goal::AtLeast(goal) => Some(self.value >= goal),
        }
    }

    fn cells(&self) -> [String; 5] {
        let goal = match self.goal {
            Some(Goal::AtMost(goal)) => format!("≤ {}", self.unit.show(goal)),
            Some(Goal::AtLeast(goal)) => format!("≥ {}", self.unit.show(goal)),
            None => String::new(),
        };
        let ratio = self.ratio().map_or(String::new(), ratio_text);
        let met = self.is_met().map_or("", |met| if met { "yes" } else { "no" });
        [self.name.clone(), self.unit.show(self.value), goal, ratio, met.to_owned()]
    }

    fn json(&self) -> Value {
        let goal = self.goal.map(|goal| match goal {
            Goal::AtMost(goal) => json!({ "at_most": goal }),
            Goal::AtLeast(goal) => json!({ "at_least": goal }),
        });
        let unit = self.unit.suffix().trim_start();
        json!({
            "name": self.name, "value": self.value, "unit": unit, "goal": goal, "ratio": self.ratio(), "met": self.is_met(),
        })
    }
}

/// A ratio to a goal in a few characters.
pub(crate) fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => "> 100".to_owned(),
        ratio => format!("{ratio:.2}"),
    }
}

const HEAD: [&str; 5] = ["figure", "value", "goal", "ratio", "met"];

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The table, aligned, for a terminal.
pub fn plain(rows: &[Row]) -> String {
    let cells: Vec<_> = std::iter::once(HEAD.map(str::to_owned)).chain(rows.iter().map(Row::cells)).collect();
    let widths: Vec<_> = (0..HEAD.len()).map(|n| cells.iter().map(|row| width(&row[n])).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &cells {
        let mut line = String::new();
        for (n, (cell, wide)) in row.iter().zip(&widths).enumerate() {
            let room = " ".repeat(wide - width(cell));
            match n {
                0 => line.extend([cell.as_str(), &room]),
                _ => line.extend(["  ", &room, cell]),
            }
        }
        text.extend([line.trim_end(), "\n"]);
    }
    text
}

/// The table for a README.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = format!("| {} |\n|---|--:|--:|--:|---|\n", HEAD.join(" | "));
    for row in rows {
        // Nothing can go wrong in writing to a text.
        let _ = writeln!(text, "| {} |", row.cells().join(" | "));
    }
    text
}

/// Everything, for programs.
pub fn json(machine: &Machine, rows: &[Row]) -> Value {
    let rows: Vec<_> = rows.iter().map(Row::json).collect();
    json!({ "machine": machine.json(), "figures": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_over_one_is_better_whichever_way_the_goal_points() {
        let quick = Row::new("time", 2.0, Unit::Micros).at_most(4.0);
        let many = Row::new("calls", 2.0, Unit::PerSync).at_least(4.0);
        assert_eq!((quick.ratio(), quick.is_met()), (Some(2.0), Some(true)));
        assert_eq!((many.ratio(), many.is_met()), (Some(0.5), Some(false)));
        assert_eq!(Row::new("count", 7.0, Unit::Count).is_met(), None);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [Row::new("a long name", 1.5, Unit::Micros).at_most(1.0), Row::new("µ", 1234.0, Unit::Count)];
        assert_eq!(
            plain(&rows),
            "figure         value       goal  ratio  met\n\
             a long name  1.50 µs  ≤ 1.00 µs   0.67   no\n\
             µ               1234\n"
        );
        assert!(markdown(&rows).ends_with("| µ | 1234 |  |  |  |\n"));
    }
}

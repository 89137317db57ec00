//! What a mode found, in one line, and what is to be said about each failure.

use std::collections::BTreeMap;
use std::fmt;

/// The figures of a mode. All but the first two must be 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// What was done to the store, in the plural: kills, cuts, mutations.
    what: &'static str,
    /// How often; each one is known to have hit.
    pub injections: u64,
    /// Records that were acknowledged before an injection and looked for after it.
    pub acknowledged: u64,
    /// Acknowledged records that were gone, or had another outcome.
    pub lost: u64,
    /// Calls with more than one effect in the ledger.
    pub twice: u64,
    /// Everything else that the protocol doesn't explain: an answer that can't be, a panic, a store that doesn't open.
    pub unexplained: u64,
    /// One line for each failure: what, and how to repeat it.
    pub failures: Vec<String>,
    /// How many injections hit what.
    hits: BTreeMap<String, u64>,
    /// What else was counted.
    counts: BTreeMap<&'static str, u64>,
    /// What else is of interest to people.
    pub details: Vec<String>,
}

impl Summary {
    /// Nothing done yet.
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            injections: 0,
            acknowledged: 0,
            lost: 0,
            twice: 0,
            unexplained: 0,
            failures: Vec::new(),
            hits: BTreeMap::new(),
            counts: BTreeMap::new(),
            details: Vec::new(),
        }
    }

    /// Whether all figures that must be 0 are.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.twice == 0 && self.unexplained == 0
    }

    /// Counts an injection that hit `what`.
    pub fn hit(&mut self, what: &str) {
        self.injections += 1;
        *self.hits.entry(what.to_owned()).or_default() += 1;
    }

    /// Counts something else.
    pub fn count(&mut self, what: &'static str, n: u64) {
        *self.counts.entry(what).or_default() += n;
    }

    /// How much of it was counted.
    pub fn counted(&self, what: &'static str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// How many injections hit what, and what else was counted, in one line.
    pub fn hits(&self) -> String {
        let hits = self.hits.iter().map(|(what, count)| format!("{what} {count}"));
        let counts = self.counts.iter().map(|(what, count)| format!("{what} {count}"));
        format!("hit: {}", hits.chain(counts).collect::<Vec<_>>().join(", "))
    }

    /// Adds the figures of another part.
    pub fn merge(&mut self, part: Self) {
        self.injections += part.injections;
        self.acknowledged += part.acknowledged;
        self.lost += part.lost;
        self.twice += part.twice;
        self.unexplained += part.unexplained;
        self.failures.extend(part.failures);
        self.details.extend(part.details);
        for (what, count) in part.hits {
            *self.hits.entry(what).or_default() += count;
        }
        part.counts.into_iter().for_each(|(what, count)| self.count(what, count));
    }

    /// Adds what one check found; `repeat` says how to do it again.
    pub fn add(&mut self, found: Findings, repeat: impl fmt::Display) {
        self.acknowledged += found.acknowledged;
        for finding in found.findings {
            *match finding.kind {
                Kind::Lost => &mut self.lost,
                Kind::Twice => &mut self.twice,
                Kind::Unexplained => &mut self.unexplained,
            } += 1;
            self.failures.push(format!("{}: {} ({repeat})", finding.kind, finding.text));
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, injections, acknowledged, lost, twice, unexplained, .. } = self;
        write!(
            f,
            "{what} {injections} · acknowledged {acknowledged} · lost {lost} · twice {twice} · unexplained {unexplained}"
        )
    }
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An acknowledged record is gone or has another outcome.
    Lost,
    /// A second effect.
    Twice,
    /// Anything else that can't be.
    Unexplained,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost",
            Self::Twice => "twice",
            Self::Unexplained => "unexplained",
        })
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone)]
struct Finding {
    kind: Kind,
    text: String,
}

/// What one check found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Acknowledged records that were looked for.
    pub acknowledged: u64,
    findings: Vec<Finding>,
}

impl Findings {
    /// Notes that something is wrong.
    pub fn add(&mut self, kind: Kind, text: impl Into<String>) {
        self.findings.push(Finding { kind, text: text.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_and_nothing_else_decides() {
        let mut summary = Summary::new("kills");
        (0..3).for_each(|_| summary.hit("random"));
        assert_eq!(summary.to_string(), "kills 3 · acknowledged 0 · lost 0 · twice 0 · unexplained 0");
        assert!(summary.is_clean());
        let mut found = Findings { acknowledged: 7, ..Findings::default() };
        found.add(Kind::Twice, "call 4 has 2 effects");
        summary.add(found, "seed 1, group 2");
        assert_eq!(summary.to_string(), "kills 3 · acknowledged 7 · lost 0 · twice 1 · unexplained 0");
        assert_eq!(summary.failures, ["twice: call 4 has 2 effects (seed 1, group 2)"]);
        assert!(!summary.is_clean());
        let mut all = Summary::new("kills");
        all.hit("during-open");
        all.merge(summary);
        assert_eq!(all.to_string(), "kills 4 · acknowledged 7 · lost 0 · twice 1 · unexplained 0");
        assert_eq!(all.hits(), "hit: during-open 1, random 3");
    }
}

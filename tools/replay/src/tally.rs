//! What a replay counted, and the summary of it.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::faults::Fault;

/// The counts of one or several replays.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tally {
    /// Recorded agent runs that were driven.
    pub trajectories: u64,
    /// Recorded calls that were driven; injected ones don't count.
    pub calls: u64,
    /// Effects that the models wanted.
    pub intended_effects: u64,
    /// Effects in the ledger.
    pub effects: u64,
    /// Effects beyond the intended ones.
    pub twice: u64,
    /// Intended effects that neither happened nor are held with the model told so, and outcomes that can't be had.
    pub lost: u64,
    /// Calls that got another meaning's outcome.
    pub false_merges: u64,
    /// Calls whose model was told that it isn't known whether they happened. Each was settled afterwards.
    pub held: u64,
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "in_seconds")]
    pub time: Duration,
    /// How often each fault struck, in the order of [`Fault::ALL`].
    #[serde(skip)]
    pub struck: [u64; Fault::ALL.len()],
    /// What went wrong, in words.
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which count it belongs to.
    pub count: Count,
    /// The run and turn.
    pub place: String,
    /// What happened.
    pub what: String,
}

/// A count that must be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// [`Tally::twice`]
    Twice,
    /// [`Tally::lost`]
    Lost,
    /// [`Tally::false_merges`]
    FalseMerge,
}

impl Tally {
    /// Whether all is as it must be.
    pub fn is_clean(&self) -> bool {
        (self.twice, self.lost, self.false_merges) == (0, 0, 0)
    }

    /// Notes something that must not be, `times` times over.
    pub fn find(&mut self, count: Count, times: u64, place: &str, what: impl Into<String>) {
        match count {
            Count::Twice => self.twice += times,
            Count::Lost => self.lost += times,
            Count::FalseMerge => self.false_merges += times,
        }
        self.findings.push(Finding { count, place: place.to_owned(), what: what.into() });
    }

    /// Notes that a fault struck.
    pub fn strike(&mut self, fault: Fault) {
        self.struck[fault as usize] += 1;
    }

    /// Adds the counts of another replay.
    pub fn add(&mut self, other: Self) {
        self.trajectories += other.trajectories;
        self.calls += other.calls;
        self.intended_effects += other.intended_effects;
        self.effects += other.effects;
        self.twice += other.twice;
        self.lost += other.lost;
        self.false_merges += other.false_merges;
        self.held += other.held;
        self.time += other.time;
        self.struck.iter_mut().zip(other.struck).for_each(|(mine, theirs)| *mine += theirs);
        self.findings.extend(other.findings);
    }
}

fn in_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// The summary for people.
#[derive(Debug)]
pub struct Summary<'a> {
    /// The counts.
    pub tally: &'a Tally,
    /// How it was done: store, seeds.
    pub how: &'a str,
}

/// How many findings the summary spells out.
const SPELLED_OUT: usize = 10;

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = self.tally;
        let (runs, calls) = (counted(tally.trajectories, "recorded agent run"), counted(tally.calls, "tool call"));
        writeln!(f, "{runs} with {calls}, {}\n", self.how)?;
        line(f, "effects the models wanted", tally.intended_effects, "")?;
        line(f, "effects that happened", tally.effects, "")?;
        line(f, "twice", tally.twice, "")?;
        line(f, "lost", tally.lost, "")?;
        line(f, "false merges", tally.false_merges, "")?;
        line(f, "held for a person", tally.held, if tally.held > 0 { "all settled afterwards" } else { "" })?;
        let struck: Vec<_> = Fault::ALL.iter().zip(tally.struck).filter(|(_, times)| *times > 0).collect();
        if !struck.is_empty() {
            writeln!(f, "\n  faults injected")?;
            for (fault, times) in struck {
                line(f, &format!("  {}", describe(*fault)), times, "")?;
            }
        }
        if !tally.findings.is_empty() {
            writeln!(f, "\n  what went wrong")?;
        }
        for finding in tally.findings.iter().take(SPELLED_OUT) {
            writeln!(f, "    {}: {} — {}", finding.count, finding.place, finding.what)?;
        }
        if tally.findings.len() > SPELLED_OUT {
            writeln!(f, "    … and {} more", tally.findings.len() - SPELLED_OUT)?;
        }
        let verdict = if tally.is_clean() { "ok" } else { "failed" };
        let [twice, lost, merged] = [tally.twice, tally.lost, tally.false_merges].map(thousands);
        let seconds = tally.time.as_secs_f64();
        write!(f, "\n  twice {twice} · lost {lost} · false merges {merged} · {verdict} in {seconds:.1} s")
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Twice => "twice",
            Self::Lost => "lost",
            Self::FalseMerge => "false merge",
        })
    }
}

fn describe(fault: Fault) -> &'static str {
    match fault {
        Fault::ReplyLost => "reply lost after the effect",
        Fault::GivesUp => "caller gave up",
        Fault::Redelivered => "turn delivered again",
        Fault::Reworded => "asked again in other words",
        Fault::Sibling => "same call twice in a message",
        Fault::CrashBefore => "crash before the effect",
        Fault::CrashAfter => "crash after the effect",
        Fault::Unknown => "error that says nothing",
    }
}

fn line(f: &mut fmt::Formatter<'_>, what: &str, count: u64, note: &str) -> fmt::Result {
    let text = format!("  {what:<32}{:>10}  {note}", thousands(count));
    writeln!(f, "{}", text.trim_end())
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// 1234567 as 1,234,567.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

//! What really happened, kept apart from the store: append-only files with a sync of their own.
//!
//! Three files beside the store:
//!
//! - `ledger`: one line for each effect, `<call> <downstream key>`; synced before the tool returns. It stands for the
//!   world: no crash takes a line back.
//! - `acknowledged`: the numbers of calls whose outcome a caller got, and `<call> answered` for a person's answer that was
//!   taken, or another chore that was done; synced before the caller goes on.
//! - `marks`: how far the process came, not synced, which a kill doesn't need.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::ensure;

const EFFECTS: &str = "ledger";
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";
const MARKS: &str = "marks";
const ANSWERED: &str = "answered";
/// The names of all three.
pub(crate) const FILES: [&str; 3] = [EFFECTS, ACKNOWLEDGED, MARKS];

/// Handles for writing. Lines of several tasks don't mix: each is one write at the file's end.
#[derive(Debug)]
pub struct Ledger {
    effects: File,
    acknowledged: File,
    marks: File,
}

/// How far a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The caller asks for it.
    Begun,
    /// Its tool was entered.
    Body,
    /// Its tool returns.
    Returned,
    /// A person is to answer: it is in doubt, or waits for permission.
    Asked,
    /// The answer is given, or another chore begins.
    Answering,
    /// It is made again after the answer.
    Again,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Body => "body",
            Self::Returned => "returned",
            Self::Asked => "asked",
            Self::Answering => "answering",
            Self::Again => "again",
        }
    }
}

impl Ledger {
    /// The ledger in `directory`, begun if there is none.
    ///
    /// # Errors
    /// If a file can't be opened.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let open = |name| File::options().append(true).create(true).open(directory.join(name));
        Ok(Self { effects: open(EFFECTS)?, acknowledged: open(ACKNOWLEDGED)?, marks: open(MARKS)? })
    }

    /// The effect itself.
    ///
    /// # Errors
    /// If it can't be written: then it didn't happen.
    pub fn effect(&self, call: u64, downstream: &str) -> io::Result<()> {
        append(&self.effects, &format!("{call} {downstream}"))?;
        self.effects.sync_data()
    }

    /// A caller got the outcome.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn acknowledge(&self, call: u64) -> io::Result<()> {
        append(&self.acknowledged, &call.to_string())?;
        self.acknowledged.sync_data()
    }

    /// A person's answer to the call was taken, or another chore of its number is done.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn answered(&self, call: u64) -> io::Result<()> {
        append(&self.acknowledged, &format!("{call} {ANSWERED}"))?;
        self.acknowledged.sync_data()
    }

    /// Notes how far a call came.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn mark(&self, call: u64, mark: Mark) -> io::Result<()> {
        append(&self.marks, &format!("{} {call}", mark.name()))
    }

    /// Notes something of the process itself: one word.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn note(&self, word: &str) -> io::Result<()> {
        append(&self.marks, word)
    }
}

fn append(mut file: &File, line: &str) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

/// What the files tell of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// Its tool was entered.
    pub body: bool,
    /// Its tool returned, or was about to.
    pub returned: bool,
    /// A caller got the outcome.
    pub acknowledged: bool,
    /// A person was to answer.
    pub asked: bool,
    /// The answer was given, or another chore begun.
    pub answering: bool,
    /// The answer was taken, or the chore done.
    pub answered: bool,
    /// It was made again after the answer.
    pub again: bool,
    /// Its effects by downstream key.
    pub effects: BTreeMap<String, u64>,
}

impl Trail {
    /// All effects together.
    pub fn count(&self) -> u64 {
        self.effects.values().sum()
    }
}

/// What the files of a directory tell.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The calls that were begun, by number.
    pub calls: BTreeMap<u64, Trail>,
    /// Notes of the process itself, in order.
    pub notes: Vec<String>,
}

impl Journal {
    /// Reads the files in `directory`; missing ones are empty. A line without its end was being written when the end
    /// came, and doesn't count.
    ///
    /// # Errors
    /// If a file can't be read or has a line that nobody writes.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let mut journal = Self::default();
        for line in lines(&directory.join(MARKS))? {
            match line.split_once(' ') {
                None => journal.notes.push(line),
                Some((mark, call)) => {
                    let trail = journal.calls.entry(call.parse()?).or_default();
                    trail.body |= mark == Mark::Body.name();
                    trail.returned |= mark == Mark::Returned.name();
                    trail.asked |= mark == Mark::Asked.name();
                    trail.answering |= mark == Mark::Answering.name();
                    trail.again |= mark == Mark::Again.name();
                }
            }
        }
        for line in lines(&directory.join(EFFECTS))? {
            let (call, downstream) = line.split_once(' ').ok_or_else(|| anyhow::anyhow!("a torn effect: {line:?}"))?;
            let trail = journal.calls.entry(call.parse()?).or_default();
            *trail.effects.entry(downstream.to_owned()).or_default() += 1;
        }
        for line in lines(&directory.join(ACKNOWLEDGED))? {
            match line.split_once(' ') {
                None => journal.calls.entry(line.parse()?).or_default().acknowledged = true,
                Some((call, word)) => {
                    ensure!(word == ANSWERED, "a strange line: {line:?}");
                    journal.calls.entry(call.parse()?).or_default().answered = true;
                }
            }
        }
        Ok(journal)
    }
}

fn lines(path: &Path) -> io::Result<Vec<String>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text?,
    };
    Ok(text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_told_and_a_torn_line_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(directory.path()).unwrap();
        ledger.note("opened").unwrap();
        ledger.mark(3, Mark::Begun).unwrap();
        ledger.mark(4, Mark::Begun).unwrap();
        ledger.mark(3, Mark::Body).unwrap();
        ledger.effect(3, "k").unwrap();
        ledger.effect(3, "k").unwrap();
        ledger.mark(3, Mark::Asked).unwrap();
        ledger.answered(3).unwrap();
        ledger.acknowledge(4).unwrap();
        File::options().append(true).open(directory.path().join(ACKNOWLEDGED)).unwrap().write_all(b"3").unwrap();
        let journal = Journal::read(directory.path()).unwrap();
        assert_eq!(journal.notes, ["opened"]);
        let three = &journal.calls[&3];
        assert_eq!((three.body, three.returned, three.acknowledged, three.count()), (true, false, false, 2));
        assert_eq!((three.asked, three.answering, three.answered), (true, false, true));
        assert!(journal.calls[&4].acknowledged);
    }
}

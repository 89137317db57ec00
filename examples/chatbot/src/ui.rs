//! What is shown. Colours only on a terminal that wants them.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::bail;
use serde_json::Value;
use toolonce::{Reply, ReplyKind};

/// Longest detail beside a mark, in characters: a line fits into 80 columns.
const DETAIL: usize = 52;
/// Columns of what the model says.
const WIDTH: usize = 70;
const INDENT: &str = "          ";

#[derive(Debug, Clone, Copy)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Green,
    Cyan,
    Blue,
    Yellow,
    Magenta,
    Red,
}

/// How much of a resumed conversation is shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    Whole,
    /// Only the calls that were not answered yet.
    OpenCalls,
}

/// The terminal. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Ui {
    colour: bool,
    past: Arc<Mutex<Option<Buffer>>>,
    /// What the last look-up said: it is asked again until it knows.
    looked_up: Arc<Mutex<String>>,
    /// Why nothing can be shown any more.
    broken: Arc<OnceLock<io::Error>>,
}

/// What a resumed conversation repeats from its log, until something new happens.
#[derive(Debug)]
struct Buffer {
    shown: Past,
    lines: Vec<String>,
    /// Answers of the model.
    answers: usize,
}

impl Ui {
    pub(crate) fn new() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            colour: wanted && able && io::stdout().is_terminal(),
            past: Arc::default(),
            looked_up: Arc::default(),
            broken: Arc::default(),
        }
    }

    /// From here on everything is from the log, until [`live`](Self::live).
    pub(crate) fn replays(&self, shown: Past) {
        *self.buffer() = Some(Buffer { shown, lines: Vec::new(), answers: 0 });
    }

    /// Something new happens: what was repeated from the log is shown first.
    pub(crate) fn live(&self) {
        let Some(past) = self.buffer().take() else { return };
        let note = match past.answers {
            0 => "The run's log has no answer of the model yet.".to_owned(),
            1 => "1 answer of the model was read from the run's log, not paid for again.".to_owned(),
            n => format!("{n} answers of the model were read from the run's log, none was paid for again."),
        };
        match past.shown {
            Past::OpenCalls => self.line(&format!("    {}\n", self.paint(Style::Bold, &note))),
            Past::Whole => {}
        }
        past.lines.iter().for_each(|line| self.line(line));
        if past.shown == Past::Whole {
            self.line(&format!("\n    {}\n", self.paint(Style::Dim, &note)));
        }
    }

    fn buffer(&self) -> MutexGuard<'_, Option<Buffer>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Green => "32",
            Style::Cyan => "36",
            Style::Blue => "34",
            Style::Yellow => "33",
            Style::Magenta => "35",
            Style::Red => "31",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A line of its own.
    pub(crate) fn line(&self, text: &str) {
        match &mut *self.buffer() {
            Some(past) => past.lines.push(text.to_owned()),
            None => self.put(&format!("{text}\n")),
        }
    }

    fn put(&self, text: &str) {
        if self.is_broken() {
            return;
        }
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Only the first one is kept. What is under way goes on: it is the next line that isn't asked for.
            let _ = self.broken.set(error);
        }
    }

    /// Whether nothing can be shown any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// Fails if something could not be shown; that nobody reads any more is no error.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        match self.broken.get() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => bail!("can't write to standard output: {error}"),
            _ => Ok(()),
        }
    }

    pub(crate) fn heading(&self, number: usize, title: &str) {
        self.line(&format!("\n {number}  {}\n", self.paint(Style::Bold, title)));
    }

    pub(crate) fn note(&self, text: &str) {
        self.line(&format!("    {}", self.paint(Style::Dim, text)));
    }

    /// The place where the user types.
    pub(crate) fn prompt(&self) {
        self.put(&format!("    {}   ", self.paint(Style::Bold, "you")));
    }

    pub(crate) fn you(&self, line: &str) {
        self.line(&format!("    {}   {line}", self.paint(Style::Bold, "you")));
    }

    /// The model begins to speak, now.
    pub(crate) fn speaks(&self) -> Speech {
        Speech { ui: self.clone(), lines: Lines::default(), begun: false }
    }

    /// What the model said earlier, from the log.
    pub(crate) fn said(&self, text: &str) {
        if let Some(past) = &mut *self.buffer() {
            past.answers += 1;
            if past.shown == Past::OpenCalls {
                past.lines.clear();
            }
        }
        if !text.is_empty() {
            let label = self.paint(Style::Green, "shop");
            let mut lines = Lines::default();
            let text = lines.feed(text) + &lines.rest();
            self.line(&format!("    {label}  {text}"));
        }
    }

    /// The model calls a tool.
    pub(crate) fn call(&self, tool: &str, arguments: &str) {
        let arguments = self.paint(Style::Dim, &shortened(arguments, DETAIL));
        self.line(&format!("{INDENT}{} {tool:<15} {arguments}", self.paint(Style::Dim, "→")));
    }

    /// How the call was answered.
    pub(crate) fn answer(&self, reply: &Reply) {
        let (style, mark, word) = match reply.kind() {
            ReplyKind::Executed => (Style::Green, "●", "executed"),
            ReplyKind::Replayed => (Style::Cyan, "↺", "replayed"),
            ReplyKind::Joined => (Style::Blue, "⇉", "joined"),
            ReplyKind::Running => (Style::Yellow, "◌", "still running"),
            ReplyKind::InDoubt => (Style::Magenta, "?", "in doubt"),
            ReplyKind::Conflict => (Style::Red, "≠", "conflict"),
            ReplyKind::Failed => (Style::Red, "✗", "failed"),
            ReplyKind::Refused => (Style::Red, "✗", "refused"),
            ReplyKind::Stopped => (Style::Red, "■", "stopped"),
            ReplyKind::Unrecorded => (Style::Magenta, "!", "unrecorded"),
            ReplyKind::Diverged => (Style::Red, "✗", "diverged"),
            other => (Style::Plain, "·", other.name()),
        };
        let detail = self.paint(Style::Dim, &shortened(&detail(reply), DETAIL));
        self.line(&format!("{INDENT}{} {detail}", self.paint(style, &format!("{mark} {word:<15}"))));
    }

    /// A look-up answered whether something happened.
    pub(crate) fn reconciled(&self, key: &str, found: &str) {
        self.live();
        let text = format!("ledger, key {}…: {found}", key.get(..8).unwrap_or(key));
        let last = std::mem::replace(&mut *self.looked_up.lock().unwrap_or_else(PoisonError::into_inner), text.clone());
        if last == text {
            return;
        }
        let mark = self.paint(Style::Magenta, &format!("? {:<15}", "in doubt"));
        self.line(&format!("{INDENT}{mark} {}", self.paint(Style::Magenta, &text)));
    }

    pub(crate) fn dies(&self, moment: &str) {
        let text = format!("✝ The process dies here: {moment}.");
        self.line(&format!("{INDENT}{}", self.paint(Style::Red, &text)));
    }
}

/// The model speaking, word by word.
pub(crate) struct Speech {
    ui: Ui,
    lines: Lines,
    begun: bool,
}

impl Speech {
    pub(crate) fn word(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.ui.put(&format!("    {}  ", self.ui.paint(Style::Green, "shop")));
        }
        self.ui.put(&self.lines.feed(text));
    }

    pub(crate) fn ends(mut self) {
        if self.begun {
            self.ui.put(&(self.lines.rest() + "\n"));
        }
    }
}

/// Breaks a text that comes in pieces into indented lines.
#[derive(Debug, Default)]
struct Lines {
    column: usize,
    /// A word whose end hasn't come.
    word: String,
}

impl Lines {
    fn feed(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            match c {
                '\n' => {
                    out += &self.rest();
                    self.next_line(&mut out);
                }
                ' ' => {
                    out += &self.rest();
                    out.push(' ');
                    self.column += 1;
                }
                _ => self.word.push(c),
            }
        }
        out
    }

    /// The word in hand, on this line or the next.
    fn rest(&mut self) -> String {
        let word = std::mem::take(&mut self.word);
        let (length, mut out) = (word.chars().count(), String::new());
        if self.column > 0 && self.column + length > WIDTH {
            self.next_line(&mut out);
        }
        self.column += length;
        out + &word
    }

    fn next_line(&mut self, out: &mut String) {
        self.column = 0;
        out.push('\n');
        out.push_str(INDENT);
    }
}

fn detail(reply: &Reply) -> String {
    match reply.outcome() {
        Some(outcome) if reply.is_marked() && reply.kind() == ReplyKind::Joined => {
            format!("{} (one execution for both calls)", outcome.text())
        }
        Some(outcome) if reply.is_marked() => format!("{} (done before, not done again)", outcome.text()),
        Some(outcome) => outcome.text().to_owned(),
        None if reply.kind() == ReplyKind::Running => "the agent's patience ended, the work goes on".to_owned(),
        None => {
            let status: Option<Value> = serde_json::from_str(reply.message()).ok();
            let sentence = status.as_ref().and_then(|status| status["message"].as_str());
            let detail = sentence.unwrap_or(reply.message());
            detail.split_inclusive(". ").next().unwrap_or(detail).trim_end().to_owned()
        }
    }
}

fn shortened(text: &str, most: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(most) {
        None => text,
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

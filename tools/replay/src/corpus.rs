//! Corpus files: the tool calls of recorded agent runs, one JSON object a line.

use std::collections::HashMap;
use std::fmt;

use crate::reading::{self, Json, Meaning};
use crate::wording;

/// The highest index of a message: room is left between the turns for injected ones.
const MAX_TURN: u32 = 1 << 24;

/// What a line says about the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Changes nothing.
    Read,
    /// Passes the conversation on to a person: an effect.
    Handoff,
    /// Changes something.
    Write,
}

impl Kind {
    /// Whether an execution is an effect.
    pub fn is_effect(self) -> bool {
        self != Self::Read
    }
}

/// One recorded call.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Index of the message that made it.
    pub turn: u32,
    /// Its index in its trajectory.
    pub index: u64,
    /// What the tool is.
    pub kind: Kind,
    /// The tool's name.
    pub tool: String,
    /// The arguments as the model wrote them, or, where the log didn't keep that, as plain JSON.
    pub text: String,
    /// The arguments; `None` if the text can't be read, so that a guard has to refuse it.
    pub arguments: Option<Json>,
    /// What it means; `None` as above.
    pub meaning: Option<Meaning>,
    /// Whether the tool failed, without effect.
    pub fails: bool,
    /// What the tool answered.
    pub result: String,
}

/// The calls of one caller of a trajectory, in their order. The assistant and the customer who operates a phone see
/// different messages and have tools of their own, so each is a run.
#[derive(Debug, Clone)]
pub struct Part {
    /// `assistant` or `user`.
    pub by: String,
    /// The calls by turn.
    pub calls: Vec<Recorded>,
}

/// One recorded agent run.
#[derive(Debug, Clone)]
pub struct Trajectory {
    /// Where it was recorded, and its name there.
    pub name: String,
    /// Its runs: one for each caller.
    pub parts: Vec<Part>,
}

/// A file that isn't a corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    file: String,
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for Malformed {}

/// A corpus, as it is put together from files.
#[derive(Debug, Default)]
pub struct Corpus {
    /// In the order in which they begin in the files.
    pub trajectories: Vec<Trajectory>,
    places: HashMap<String, usize>,
}

impl Corpus {
    /// Adds the text of a file. Calls of a trajectory that is known already are added to it.
    ///
    /// # Errors
    /// The first line that is no call, or a file without any.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), Malformed> {
        let malformed = |line, what| Malformed { file: file.to_owned(), line, what };
        let mut empty = true;
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            self.add_line(line).map_err(|what| malformed(Some(n + 1), what))?;
            empty = false;
        }
        if empty {
            return Err(malformed(None, "there are no calls in this file".to_owned()));
        }
        for part in self.trajectories.iter_mut().flat_map(|trajectory| &mut trajectory.parts) {
            part.calls.sort_by_key(|call| (call.turn, call.index));
        }
        Ok(())
    }

    /// How many calls there are.
    pub fn calls(&self) -> usize {
        self.trajectories.iter().flat_map(|trajectory| &trajectory.parts).map(|part| part.calls.len()).sum()
    }

    /// What each tool is: a tool that is ever a write is one.
    pub fn tools(&self) -> Vec<(String, Kind)> {
        let mut tools: HashMap<&str, Kind> = HashMap::new();
        let parts = self.trajectories.iter().flat_map(|trajectory| &trajectory.parts);
        for call in parts.flat_map(|part| &part.calls) {
            let kind = tools.entry(&call.tool).or_insert(call.kind);
            *kind = call.kind.max(*kind);
        }
        let mut tools: Vec<_> = tools.into_iter().map(|(name, kind)| (name.to_owned(), kind)).collect();
        tools.sort();
        tools
    }

    fn add_line(&mut self, line: &str) -> Result<(), String> {
        let json = reading::read(line).map_err(|why| format!("this is not JSON: {why}"))?;
        let Json::Object(members) = json else { return Err("this is not a JSON object".to_owned()) };
        let line = Line(members);
        let name = format!("{}/{}", line.text("src")?, line.text("traj")?);
        let by = line.text("by")?;
        if !matches!(by, "assistant" | "user") {
            return Err(format!("\"by\" is {by:?}; it must be \"assistant\" or \"user\""));
        }
        let call = line.call()?;
        let place = *self.places.entry(name.clone()).or_insert_with(|| {
            self.trajectories.push(Trajectory { name, parts: Vec::new() });
            self.trajectories.len() - 1
        });
        let parts = &mut self.trajectories[place].parts;
        match parts.iter_mut().find(|part| part.by == by) {
            Some(part) => part.calls.push(call),
            None => parts.push(Part { by: by.to_owned(), calls: vec![call] }),
        }
        Ok(())
    }
}

struct Line(Vec<(String, Json)>);

impl Line {
    fn get(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    fn needs(&self, name: &str) -> Result<&Json, String> {
        self.get(name).ok_or_else(|| format!("{name:?} is missing"))
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        match self.needs(name)? {
            Json::Text(text) => Ok(text),
            _ => Err(format!("{name:?} is not a string")),
        }
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let number = match self.needs(name)? {
            Json::Number(number) => number.written.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| format!("{name:?} is not a whole number in range"))
    }

    fn call(&self) -> Result<Recorded, String> {
        let kind = match self.text("kind")? {
            "READ" => Kind::Read,
            "WRITE" => Kind::Write,
            "HANDOFF" => Kind::Handoff,
            other => return Err(format!("\"kind\" is {other:?}; it must be \"WRITE\", \"READ\" or \"HANDOFF\"")),
        };
        let tool = self.text("tool")?.to_owned();
        if tool.is_empty() {
            return Err("\"tool\" is empty".to_owned());
        }
        let Json::Bool(fails) = *self.needs("err")? else { return Err("\"err\" is neither true nor false".to_owned()) };
        let args = self.needs("args")?;
        let text = match (self.get("args_raw"), args) {
            (Some(Json::Text(raw)), _) => raw.clone(),
            (None | Some(Json::Null), Json::Object(_)) => wording::plain(args),
            (None | Some(Json::Null), _) => return Err("\"args\" is not an object".to_owned()),
            (Some(_), _) => return Err("\"args_raw\" is neither a string nor null".to_owned()),
        };
        let arguments = reading::arguments(&text).ok();
        let meaning = arguments.as_ref().map(|arguments| Meaning::new(&tool, arguments));
        let (turn, index) = (self.number("turn")?, self.number("i")?);
        if turn > MAX_TURN {
            return Err(format!("\"turn\" is {turn}; more than {MAX_TURN} messages are too many"));
        }
        Ok(Recorded {
            turn,
            index,
            kind,
            tool,
            text,
            arguments,
            meaning,
            fails,
            result: self.text("result")?.to_owned(),
        })
    }
}

//! What happens in a story, and how one is made up.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use toolonce::{Approval, InDoubt, KeyWindow, Millis, Mismatch, Policy, RawTool, Repeat, value_tool};

/// All thresholds lie half an hour, or a quarter, off the hours in which time passes, so that neither the jitter of a
/// pause nor a caller's patience decides which side of one a moment is on.
pub(super) const DEADLINE: Duration = Duration::from_secs(30 * 60);
pub(super) const SETTLE: Duration = Duration::from_secs(15 * 60);
/// Eight tenths of it, which is what counts, are two and a half hours.
const WINDOW: Duration = Duration::from_secs(11_250);
/// Not near any sum of the pauses between attempts, nor between look-ups.
pub(super) const PATIENCE: Duration = Duration::from_millis(2_500);
/// What is due so soon happens before a story goes on.
pub(super) const SOON: Millis = 15_000;

/// A tool of each policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tool {
    Read,
    Idempotent,
    Window,
    Forever,
    Unstated,
    Held,
    Asks,
    KeyedAsks,
    Each,
    First,
    Again,
    Drifts,
}

pub(super) const TOOLS: [Tool; 12] = [
    Tool::Read,
    Tool::Idempotent,
    Tool::Window,
    Tool::Forever,
    Tool::Unstated,
    Tool::Held,
    Tool::Asks,
    Tool::KeyedAsks,
    Tool::Each,
    Tool::First,
    Tool::Again,
    Tool::Drifts,
];

impl Tool {
    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(super) fn attempts(self) -> u32 {
        if matches!(self, Self::Asks | Self::KeyedAsks) { 1 } else { 3 }
    }

    pub(super) fn looks_up(self) -> bool {
        matches!(self, Self::Asks | Self::KeyedAsks)
    }

    pub(super) fn policy(self) -> Policy {
        let policy = match self {
            Self::Read => Policy::read_only(),
            Self::Idempotent => Policy::idempotent(),
            Self::Window => Policy::keyed(KeyWindow::For(WINDOW)),
            Self::Forever => Policy::keyed(KeyWindow::Permanent),
            Self::Unstated => Policy::keyed(KeyWindow::Unknown),
            Self::Held => Policy::write(),
            Self::Asks => Policy::write().in_doubt(InDoubt::Reconcile),
            Self::KeyedAsks => Policy::keyed(KeyWindow::For(WINDOW)).in_doubt(InDoubt::Reconcile),
            Self::Each => Policy::write().repeat(Repeat::Each),
            Self::First => Policy::write().approval(Approval::First),
            Self::Again => Policy::write().repeat(Repeat::Ask),
            Self::Drifts => Policy::write().advanced(|a| a.mismatch(Mismatch::Replay)),
        };
        policy.advanced(|a| a.attempts(self.attempts()))
    }

    /// `to` is what a call is about, `note` isn't.
    pub(super) fn schema() -> serde_json::Value {
        json!({
            "type": "object",
            "properties": {
                "to": {"type": "integer", "x-toolonce": "identity"},
                "note": {"type": "integer", "x-toolonce": "content"},
            },
        })
    }

    /// The tool with this body.
    pub(super) fn with<F, Fut>(self, body: F) -> RawTool
    where
        F: Fn(serde_json::Value, toolonce::Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<serde_json::Value, toolonce::ToolError>> + Send + 'static,
    {
        value_tool(self.name(), "", Self::schema(), self.policy(), body)
    }
}

/// How a body ends, when it is let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Succeeds,
    /// Without effect; not to be tried again before so many milliseconds.
    Fails(Millis),
    Permanent,
    /// Unknown, with the effect or without.
    Lost(bool),
    /// It isn't let go on for now.
    Hangs,
}

/// One call as its caller makes it.
#[derive(Debug, Clone)]
pub(super) struct Calling {
    pub(super) tool: Tool,
    pub(super) to: u8,
    pub(super) note: u8,
    pub(super) turn: Option<u32>,
    /// 0 is none.
    pub(super) id: u8,
    /// How the bodies end that it starts; more of them succeed.
    pub(super) ends: Vec<End>,
    /// So many look-ups can't tell; more of them tell the truth.
    pub(super) blind: u32,
    /// Whether the caller waits for its answer, or leaves where it would have to wait.
    pub(super) stays: bool,
    /// Whether the host says that the model saw the outcome.
    pub(super) shown: bool,
}

impl Calling {
    pub(super) fn unit(&self) -> Unit {
        (self.tool, self.to)
    }

    pub(super) fn id(&self) -> String {
        if self.id == 0 { String::new() } else { format!("id{}", self.id) }
    }

    pub(super) fn call(&self) -> toolonce::Call {
        let call = toolonce::Call::with_value(self.tool.name(), &json!({"note": self.note, "to": self.to}));
        let call = call.id(self.id());
        match self.turn {
            Some(turn) => call.turn(turn),
            None => call,
        }
    }
}

/// What equal calls have in common.
pub(super) type Unit = (Tool, u8);

/// What a process that comes after a dead one knows of the run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Comes {
    Attaches,
    ResumesFromNothing,
    ResumesThrough(u32),
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Calls that are begun one after the other, before any body goes on.
    Together(Vec<Calling>),
    /// The message of this turn is handed over.
    Message(u32),
    /// The body that hangs in this place goes on to this end.
    Release(usize, End),
    Hours(u64),
    Dies(Comes),
    /// A person says of the call in doubt in this place what came of it; `true`: for sure.
    Settle(usize, bool),
    /// A person answers the question in this place.
    Permit(usize, bool),
}

#[derive(Debug, Clone)]
pub(super) struct Story {
    /// What the message of each turn says, whenever it is handed over.
    pub(super) messages: Vec<Vec<Calling>>,
    pub(super) steps: Vec<Step>,
}

const TURNS: u32 = 4;

impl Story {
    /// A story of two tools at most: what is rare happens often.
    pub(super) fn made_up(random: &mut Rng) -> Self {
        let tools = [TOOLS[random.usize(..TOOLS.len())], TOOLS[random.usize(..TOOLS.len())]];
        let messages = (0..TURNS).map(|turn| message(&tools, turn, random)).collect();
        let steps = (0..random.usize(4..24)).map(|_| step(&tools, random)).collect();
        Self { messages, steps }
    }
}

fn message(tools: &[Tool], turn: u32, random: &mut Rng) -> Vec<Calling> {
    let mut calls: Vec<Calling> = (0..random.usize(1..4)).map(|_| calling(tools, random)).collect();
    let mut reads = 0;
    calls.retain(|call| {
        reads += usize::from(call.tool == Tool::Read);
        call.tool != Tool::Read || reads == 1
    });
    let units: Vec<Unit> = calls.iter().map(Calling::unit).collect();
    for call in &mut calls {
        (call.turn, call.stays) = (Some(turn), true);
        // Of several that are tried again, the jitter of their pauses would say which comes first.
        let alone = units.iter().filter(|unit| **unit == call.unit()).count() == 1;
        call.ends.retain(|end| alone || call.tool != Tool::Each || !matches!(end, End::Fails(_)));
    }
    calls
}

fn step(tools: &[Tool], random: &mut Rng) -> Step {
    match random.u8(..32) {
        0..12 => Step::Together(vec![calling(tools, random)]),
        12..14 => Step::Together(equal(tools, random)),
        14..19 => Step::Message(random.u32(..TURNS)),
        19..21 => Step::Release(
            random.usize(..4),
            loop {
                match end(random) {
                    End::Hangs => {}
                    end => break end,
                }
            },
        ),
        21..24 => Step::Hours([1, 1, 3, 25][random.usize(..4)]),
        24..27 => Step::Dies(match random.u8(..4) {
            0 => Comes::Attaches,
            1 => Comes::ResumesFromNothing,
            _ => Comes::ResumesThrough(random.u32(..TURNS)),
        }),
        27..30 => Step::Settle(random.usize(..4), random.u8(..4) == 0),
        _ => Step::Permit(random.usize(..4), random.u8(..4) > 0),
    }
}

/// The same call several times, of one turn or of others.
fn equal(tools: &[Tool], random: &mut Rng) -> Vec<Calling> {
    let first = Calling { stays: true, ..calling(tools, random) };
    if first.tool == Tool::Read {
        return vec![first];
    }
    let more = random.usize(1..4);
    let mut all = vec![first.clone()];
    for _ in 0..more {
        let (one, tool, to, note) = (calling(tools, random), first.tool, first.to, first.note);
        all.push(Calling { tool, to, note, stays: true, ends: Vec::new(), ..one });
    }
    all
}

fn calling(tools: &[Tool], random: &mut Rng) -> Calling {
    let tool = tools[random.usize(..tools.len())];
    let ends: Vec<End> = (0..random.usize(..3)).map(|_| end(random)).collect();
    Calling {
        tool,
        to: u8::from(random.u8(..4) == 0),
        note: u8::from(random.u8(..5) == 0),
        turn: (random.u8(..4) > 0).then(|| random.u32(..TURNS)),
        id: random.u8(..3),
        ends: ends.into_iter().filter(|end| tool != Tool::Read || *end != End::Hangs).collect(),
        blind: [0, 0, 1, 9][random.usize(..4)],
        stays: random.u8(..6) > 0,
        shown: random.u8(..6) > 0,
    }
}

fn end(random: &mut Rng) -> End {
    match random.u8(..11) {
        0..3 => End::Succeeds,
        3 => End::Fails(0),
        4 => End::Fails(1_000),
        5 => End::Fails(90 * 60 * 1000),
        6 => End::Permanent,
        7 => End::Lost(true),
        8 => End::Lost(false),
        _ => End::Hangs,
    }
}

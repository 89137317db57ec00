//! The model against the implementation: random stories of one run, told to the real guard and to the pure protocol. Every
//! answer's kind, mark and outcome, every execution and its downstream key, every look-up, the inbox and the count of
//! incidents have to be the same.
//!
//! The explorers in `explore` prove what the protocol says; this shows that the guard does what the protocol says. A story
//! that differs is made shorter as long as it differs, and printed with its seed. `TOOLONCE_MODEL=n` tells `n` stories.

mod pure;
mod real;
mod tools;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use toolonce::protocol::history::Seen as Kept;
use toolonce::{Call, Seen};

use self::pure::Model;
use self::real::Real;
use self::tools::{Ask, End, KINDS, Look, Said};

/// One step of a story. Numbers are taken modulo what there is, so that a shorter story still makes sense.
#[derive(Debug, Clone)]
enum Step {
    Message {
        turn: When,
        together: bool,
        id: &'static str,
        asks: Vec<Ask>,
    },
    /// An execution that hangs ends after all.
    Release(usize, End),
    Human(usize, Said),
    Pass(u64),
    /// The wall clock jumps by so many seconds.
    Jump(i64),
    Look(Look),
    /// The process dies, and goes on having seen so many turns.
    Crash(u32),
}

/// The message that calls belong to.
#[derive(Debug, Clone, Copy)]
enum When {
    Next,
    /// The newest, or so many before it: made again.
    Back(u32),
    /// The host counts no turns.
    Never,
}

fn ask(random: &mut Rng, tool: usize) -> Ask {
    let ends = [End::Succeeds, End::Succeeds, End::Retryable, End::Permanent, End::Unknown, End::Panics, End::Hangs];
    let hangs = if KINDS[tool].is_read() { 1 } else { 0 };
    let mut end = || ends[random.usize(..ends.len() - hangs)];
    let ends = [end(), end()];
    Ask { tool, key: random.u8(..2), content: u8::from(random.u8(..8) == 0), ends }
}

fn message(random: &mut Rng, tools: &[usize]) -> Step {
    let turn = match random.u8(..10) {
        0..5 => When::Next,
        5..9 => When::Back(random.u32(..3)),
        _ => When::Never,
    };
    let together = random.u8(..3) != 0;
    let count = if together { random.usize(1..4) } else { 1 };
    let mut asks: Vec<Ask> = (0..count)
        .map(|_| {
            let tool = tools[random.usize(..tools.len())];
            ask(random, tool)
        })
        .collect();
    if count > 1 && random.bool() {
        asks = vec![asks[0]; count];
    }
    // Equal reads of one message share an execution: that is the matter of `reads`.
    let mut seen = Vec::new();
    asks.retain(|ask| {
        !ask.kind().is_read()
            || !seen.contains(&ask.record()) && {
                seen.push(ask.record());
                true
            }
    });
    Step::Message { turn, together, id: ["", "a", "b"][random.usize(..3)], asks }
}

fn story(seed: u64, length: usize) -> Vec<Step> {
    let mut random = Rng::with_seed(seed);
    // Few tools, so that the same calls come up again and again.
    let tools: Vec<usize> = (0..2).map(|_| random.usize(..KINDS.len())).collect();
    let step = |random: &mut Rng| match random.u8(..100) {
        0..60 => message(random, &tools),
        60..70 => Step::Release(random.usize(..8), [End::Succeeds, End::Unknown, End::Permanent][random.usize(..3)]),
        70..78 => Step::Human(
            random.usize(..8),
            [Said::Happened, Said::DidNotHappen, Said::DidNotHappenForSure][random.usize(..3)],
        ),
        78..84 => Step::Pass([1, 20, 40, 70, 200][random.usize(..5)]),
        84..88 => Step::Jump([-7200, -100, 50, 3600][random.usize(..4)]),
        88..94 => Step::Look([Look::Happened, Look::DidNotHappen, Look::CannotTell, Look::Fails][random.usize(..4)]),
        _ => Step::Crash(random.u32(..4)),
    };
    (0..length).map(|_| step(&mut random)).collect()
}

struct Message {
    together: bool,
    asks: Vec<Ask>,
}

/// Tells one story to both sides.
struct Telling {
    real: Real,
    model: Model,
    /// The messages of the present history.
    messages: BTreeMap<u32, Message>,
    /// What is known of the real executions: how each ends, unless it hangs.
    known: usize,
    undecided: Vec<(usize, End)>,
    rounds: HashMap<(usize, u8, u8), usize>,
}

type Told<T> = Result<T, String>;

fn same<T: std::fmt::Debug + PartialEq>(what: &str, real: T, model: T) -> Told<()> {
    if real == model { Ok(()) } else { Err(format!("{what}:\n    the guard    {real:?}\n    the protocol {model:?}")) }
}

/// A story whose calls don't end within so many events hangs.
const MOST_EVENTS: usize = 2_000;

impl Telling {
    async fn step(&mut self, step: &Step) -> Told<()> {
        self.model.clock(self.real.time());
        match step {
            Step::Message { turn, together, id, asks } => self.message(*turn, *together, id, asks).await?,
            Step::Release(nth, end) => {
                let open = self.real.open_bodies();
                if let Some(id) = open.get(nth % open.len().max(1)) {
                    self.real.end(*id, *end);
                    self.model.end(*id, *end);
                    self.quiet(&[]).await?;
                }
            }
            Step::Human(nth, said) => self.human(*nth, *said).await?,
            Step::Pass(seconds) => self.pass(Duration::from_secs(*seconds)).await?,
            Step::Jump(seconds) => {
                self.real.clock.set_wall_by(seconds * 1000);
                self.model.clock(self.real.time());
                // The guard has looked at the clock since.
                let _ = self.real.resolve("none", Said::DidNotHappen, json!(null)).await;
            }
            Step::Look(look) => {
                self.real.set_look(*look);
                self.model.look = *look;
            }
            Step::Crash(turns) => self.crash(*turns).await?,
        }
        self.rest().await?;
        let wrong = std::mem::take(&mut self.model.wrong);
        same("what can't be", Vec::new(), wrong)?;
        same("incidents", self.real.incidents(), self.model.incidents)?;
        let mut doubts: Vec<String> = self.model.in_doubt().into_iter().map(|(_, reference)| reference).collect();
        doubts.sort();
        same("the inbox", self.real.inbox().await, doubts)
    }

    async fn message(&mut self, when: When, together: bool, id: &'static str, asks: &[Ask]) -> Told<()> {
        let next = self.messages.last_key_value().map_or(0, |(turn, _)| turn + 1);
        let turn = match when {
            When::Next => Some(next),
            When::Back(by) => Some((next.max(1) - 1).saturating_sub(by)),
            When::Never if together => Some(next),
            When::Never => None,
        };
        let known = turn.and_then(|turn| self.messages.get(&turn));
        let (together, asks) = match known {
            Some(known) if known.together => (true, known.asks.clone()),
            Some(_) => (false, asks[..1].to_vec()),
            None => (together, asks.to_vec()),
        };
        if let Some(turn) = turn {
            self.messages.entry(turn).or_insert_with(|| Message { together, asks: asks.clone() });
        }
        let call = |ask: &Ask| {
            let call = Call::with_value(ask.kind().name, &json!({"key": ask.key, "content": ask.content}));
            let call = if together { call } else { call.id(id) };
            match turn.filter(|_| !together) {
                Some(turn) => call.turn(turn),
                None => call,
            }
        };
        self.rounds.clear();
        let calls = asks.iter().map(call).collect();
        let made = self.real.make(calls, turn.filter(|_| together));
        let first = self.model.make(&asks, turn, if together { "" } else { id }, together);
        for _ in 0..MOST_EVENTS {
            self.quiet(&asks).await?;
            if made.is_finished() {
                break;
            }
            let next = self.real.clock.next_deadline().ok_or("a call hangs and nothing will wake it")?;
            self.real.clock.advance(next);
            self.model.pass(self.real.time());
        }
        if !made.is_finished() {
            return Err("a call has no answer".to_owned());
        }
        let answers = made.await.map_err(|error| format!("a call panicked: {error}"))?;
        // Who sleeps although its call was answered has gone on.
        while !(first..first + asks.len()).all(|at| self.model.is_answered(at)) && self.model.wake(None) {}
        let expected = self.model.answers(first, asks.len());
        same("answers", answers, expected)
    }

    /// Lets both sides go on until nothing moves without time, and compares what began.
    async fn quiet(&mut self, asks: &[Ask]) -> Told<()> {
        loop {
            self.real.settle().await;
            self.compare(asks)?;
            let Some(at) = self.undecided.iter().position(|(_, end)| *end != End::Hangs) else { return Ok(()) };
            let (id, end) = self.undecided.remove(at);
            self.real.end(id, end);
            self.model.end(id, end);
        }
    }

    fn compare(&mut self, asks: &[Ask]) -> Told<()> {
        for id in self.known..self.real.begun() {
            let (began, reference) = self.real.body(id);
            let is_it = |e: &pure::Expected| {
                let same = e.ask.record() == began.record() && e.ask.content == began.content;
                same && e.reference.as_ref().is_none_or(|expected| *expected == reference)
            };
            while !self.model.expected.iter().any(is_it) && self.model.wake(Some(&reference)) {}
            let Some(at) = self.model.expected.iter().position(is_it) else {
                return Err(format!("the guard executes {began:?} as {reference}, and the protocol doesn't"));
            };
            let expected = self.model.expected.remove(at);
            self.model.is(id, &expected);
            let round = self.rounds.entry((began.tool, began.key, began.content)).or_default();
            let is_asked = |ask: &&Ask| ask.record() == began.record() && ask.content == began.content;
            let end = asks.iter().find(is_asked).map_or(End::Unknown, |ask| ask.ends[(*round).min(1)]);
            *round += 1;
            self.undecided.push((id, end));
        }
        self.known = self.real.begun();
        same("executions that didn't begin", 0, self.model.expected.len())?;
        let look_ups = self.real.look_ups();
        while let Some(reference) = look_ups.get(self.model.look_ups.len()) {
            if !self.model.wake(Some(reference)) {
                break;
            }
        }
        same("look-ups", &look_ups, &self.model.look_ups)
    }

    async fn human(&mut self, nth: usize, said: Said) -> Told<()> {
        let doubts = self.model.in_doubt();
        let Some((unit, reference)) = doubts.get(nth % doubts.len().max(1)) else { return Ok(()) };
        let (expected, result) = self.model.resolve(*unit, said);
        same("a human's answer", self.real.resolve(reference, said, result).await, expected)
    }

    async fn crash(&mut self, turns: u32) -> Told<()> {
        let (seen, kept) = match turns {
            0 => (Seen::Nothing, Kept::Nothing),
            turns => {
                let last = self.messages.last_key_value().map_or(0, |(turn, _)| *turn);
                let turn = last.saturating_sub(turns - 1);
                (Seen::Through(turn), Kept::Through(turn))
            }
        };
        self.real.crash(seen).await;
        self.undecided.clear();
        self.model.crash(kept, self.real.time());
        self.messages.retain(|turn, _| matches!(kept, Kept::Through(last) if *turn <= last));
        same("epochs", self.model.history().epoch() as usize, self.model.history().cuts.len())
    }

    /// Time passes; nobody calls.
    async fn pass(&mut self, time: Duration) -> Told<()> {
        let until = self.real.clock_now() + time;
        while let Some(next) = self.real.clock.next_deadline().filter(|next| self.real.clock_now() + *next < until) {
            self.real.clock.advance(next);
            self.model.pass(self.real.time());
            self.quiet(&[]).await?;
        }
        self.real.clock.advance(until - self.real.clock_now());
        self.model.pass(self.real.time());
        self.quiet(&[]).await
    }

    /// Whoever waits a little to try again has tried again.
    async fn rest(&mut self) -> Told<()> {
        self.quiet(&[]).await?;
        self.pass(Duration::from_secs(6)).await?;
        while self.model.wake(None) {}
        self.quiet(&[]).await
    }
}

async fn tell(steps: &[Step], real: Real) -> Result<(), (usize, String)> {
    // The guard's back-off has jitter.
    fastrand::seed(steps.len() as u64);
    let model = Model::new(real.time());
    let mut telling =
        Telling { real, model, messages: BTreeMap::new(), known: 0, undecided: Vec::new(), rounds: HashMap::new() };
    for (n, step) in steps.iter().enumerate() {
        telling.step(step).await.map_err(|why| (n, why))?;
    }
    Ok(())
}

/// The shortest part found of a story that differs. What differs once need not differ again: the
/// guard's back-off has jitter, which no seed fixes.
async fn shrink(mut steps: Vec<Step>, (mut at, mut why): (usize, String)) -> (Vec<Step>, String) {
    steps.truncate(at + 1);
    let mut n = steps.len();
    while n > 0 {
        n -= 1;
        let mut shorter = steps.clone();
        shorter.remove(n);
        if let Err((at_now, why_now)) = tell(&shorter, Real::in_memory().await).await {
            (at, why) = (at_now, why_now);
            shorter.truncate(at + 1);
            steps = shorter;
            n = n.min(steps.len());
        }
    }
    (steps, why)
}

fn stories(usual: u64) -> u64 {
    std::env::var("TOOLONCE_MODEL").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

#[tokio::test]
async fn the_guard_in_memory_does_what_the_protocol_says() {
    for seed in 0..stories(60) {
        let steps = story(seed, 40);
        if let Err(differs) = tell(&steps, Real::in_memory().await).await {
            let (steps, why) = shrink(steps, differs).await;
            let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("seed {seed}: {why}\n{}", steps.join("\n"));
        }
    }
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn the_guard_on_disk_does_what_the_protocol_says() {
    for seed in 0..stories(30).div_ceil(10) {
        let steps = story(1_000_000 + seed, 40);
        if let Err((n, why)) = tell(&steps, Real::on_disk().await).await {
            panic!("seed {}, step {n} ({:?}): {why}", 1_000_000 + seed, steps[n]);
        }
    }
}

//! Drives one run: its turns, one message after the other, each until every call of it has its answer.

mod judge;
mod message;

use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use fastrand::Rng;
use tokio::sync::oneshot;
use toolonce::{Call, Reply, Run, Seen};

use self::judge::Open;
use self::message::{Ask, Message, Past, Turn};
use crate::Settings;
use crate::corpus::{Part, Recorded};
use crate::faults::Fault;
use crate::policies::{Again, Policies};
use crate::stage::{PATIENCE, Stage};
use crate::tally::{Count, Tally};
use crate::wishes::{Wishes, is_reopened};
use crate::wording;
use crate::world::Script;

/// A recorded turn is this many turns of the run, so that repeats fit in between.
const STRIDE: u32 = 64;
/// So often is a message delivered before the harness gives up on an answer.
const DELIVERIES: u32 = STRIDE / 2 - 1;
/// In real time: a guard that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// One run on its stage.
#[derive(Debug)]
pub struct Play<'a> {
    stage: &'a mut Stage,
    tally: &'a mut Tally,
    policies: &'a Policies,
    faults: &'a [Fault],
    rng: Rng,
    name: String,
    run: Run,
    /// The last turn whose answers the caller took.
    seen: Option<u32>,
    /// What was answered so far.
    past: Vec<Past>,
    wishes: Wishes,
    /// Tools that wait at the point where their fault struck.
    waiting: Vec<oneshot::Sender<()>>,
}

enum Delivery {
    Replies(Vec<Reply>),
    /// The caller is gone; it took nothing.
    Left,
    Crashed,
}

impl<'a> Play<'a> {
    /// Begins a run.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn new(
        stage: &'a mut Stage,
        tally: &'a mut Tally,
        policies: &'a Policies,
        settings: &'a Settings,
        name: String,
    ) -> anyhow::Result<Self> {
        let run = Run::start(&stage.guard, &name).await?;
        // Every run has numbers of its own: which trajectories are driven before it changes nothing.
        let seed =
            name.bytes().fold(settings.seed, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Ok(Self {
            stage,
            tally,
            policies,
            faults: &settings.faults,
            rng: Rng::with_seed(seed),
            name,
            run,
            seen: None,
            past: Vec::new(),
            wishes: Wishes::default(),
            waiting: Vec::new(),
        })
    }

    /// Drives the calls of the run.
    ///
    /// # Errors
    /// If the store fails or the guard gives no answer.
    pub async fn part(mut self, part: &Part) -> anyhow::Result<()> {
        for calls in part.calls.chunk_by(|a, b| a.turn == b.turn) {
            self.turn(calls).await?;
        }
        self.compare(&Turn { calls: &part.calls, faults: Vec::new(), crashed: false });
        let left = self.stage.guard.inbox().await?;
        for call in left.iter().filter(|call| call.run == self.name) {
            self.tally.find(Count::Lost, 1, &self.name, format!("a call of {} is still held", call.tool));
        }
        Ok(())
    }

    async fn turn(&mut self, calls: &[Recorded]) -> anyhow::Result<()> {
        let faults: Vec<_> = calls.iter().map(|call| self.draw(call)).collect();
        let mut turn = Turn { calls, faults, crashed: false };
        self.tally.calls += calls.len() as u64;
        self.tally.intended_effects += self.wishes.note(&self.name, calls, self.policies, &self.stage.world) as u64;
        self.set_script(&turn);
        let message = self.message(&turn);
        let (message, replies) = self.until_answered(&mut turn, message).await?;
        if turn.is_doubtful() || turn.faults.contains(&Some(Fault::Redelivered)) {
            self.deliver_again(&mut turn, &message, &replies).await?;
        }
        self.ask_again(&mut turn, message.turn + 1).await?;
        self.compare(&turn);
        Ok(())
    }

    fn is_reopened(&self, call: &Recorded) -> bool {
        is_reopened(&self.name, call, self.policies, &self.stage.world)
    }

    /// The fault of a call, if it gets one: half of them do.
    fn draw(&mut self, call: &Recorded) -> Option<Fault> {
        let fits: Vec<_> = self.faults.iter().copied().filter(|fault| self.fits(call, *fault)).collect();
        if fits.is_empty() || self.rng.bool() { None } else { Some(fits[self.rng.usize(..fits.len())]) }
    }

    /// A second wish for a tool whose every seen repeat is one can't be injected as a fault: only what was not seen is
    /// asked again.
    fn fits(&self, call: &Recorded, fault: Fault) -> bool {
        let each = self.policies.of(&call.tool, call.kind).repeat == Again::Each;
        match fault {
            Fault::ReplyLost | Fault::GivesUp | Fault::Redelivered => true,
            Fault::Reworded => call.arguments.is_some(),
            Fault::Sibling => !each,
            Fault::CrashBefore | Fault::CrashAfter | Fault::Unknown => call.kind.is_effect(),
        }
    }

    fn set_script(&mut self, turn: &Turn<'_>) {
        let scripts = turn.calls.iter().zip(&turn.faults).filter_map(|(call, fault)| {
            let each = self.policies.of(&call.tool, call.kind).repeat == Again::Each;
            // Asking again in other words is only a repeat of an `each` tool if the first answer was not seen.
            let fault = fault.map(|fault| if each && fault == Fault::Reworded { Fault::ReplyLost } else { fault });
            let fault = fault.filter(|fault| fault.is_in_body());
            let happens = self.rng.bool();
            Some((call.meaning.clone()?, Script { fails: call.fails, result: call.result.clone(), fault, happens }))
        });
        self.stage.world.script(scripts.collect::<Vec<_>>());
    }

    fn message(&mut self, turn: &Turn<'_>) -> Message {
        let mut asks = Vec::new();
        for (of, call) in turn.calls.iter().enumerate() {
            asks.push(Ask { of, id: format!("call_{}", call.index), text: call.text.clone() });
            if turn.faults[of] == Some(Fault::Sibling) {
                self.tally.strike(Fault::Sibling);
                asks.push(Ask { of, id: format!("call_{}_twin", call.index), text: self.reworded(call) });
            }
        }
        Message { turn: turn.calls[0].turn * STRIDE, asks }
    }

    fn reworded(&mut self, call: &Recorded) -> String {
        match &call.arguments {
            Some(arguments) => wording::reworded(arguments, &mut self.rng),
            None => call.text.clone(),
        }
    }

    /// The calls of `asks` once more, in other words and under other ids.
    fn again(&mut self, turn: &Turn<'_>, asks: &[Ask], in_turn: u32) -> Message {
        let again = |ask: &Ask| {
            let id = format!("again_{}", self.rng.u32(..));
            Ask { of: ask.of, id, text: self.reworded(&turn.calls[ask.of]) }
        };
        Message { turn: in_turn, asks: asks.iter().map(again).collect() }
    }

    /// Delivers a message, and what follows from it, until all its calls have an answer. Gives the last message and
    /// its replies.
    async fn until_answered(
        &mut self,
        turn: &mut Turn<'_>,
        mut message: Message,
    ) -> anyhow::Result<(Message, Vec<Reply>)> {
        for _ in 0..DELIVERIES {
            let open = match self.deliver(turn, &message).await? {
                Delivery::Crashed => {
                    turn.crashed = true;
                    self.restart().await?;
                    // The host finds the turn unanswered and delivers it, or has the model say it once more.
                    if self.rng.bool() {
                        message = self.again(turn, &message.asks, message.turn);
                    }
                    continue;
                }
                Delivery::Left => Open { asks: (0..message.asks.len()).collect(), ..Open::default() },
                Delivery::Replies(replies) => {
                    self.seen = Some(message.turn);
                    let open = self.judge(turn, &message, &replies);
                    self.remember(turn, &message, &replies);
                    if open.asks.is_empty() {
                        return Ok((message, replies));
                    }
                    open
                }
            };
            self.settle(&open.held).await?;
            if self.rng.bool() {
                self.let_go();
            }
            // Either the host asks again, or the model does.
            let asks: Vec<_> = open.asks.iter().map(|&at| message.asks[at].clone()).collect();
            let reworded = turn.faults.contains(&Some(Fault::Reworded)) || self.rng.bool();
            // What this very turn reopened would be a new wish if the model said it again.
            if reworded && !asks.iter().any(|ask| self.is_reopened(&turn.calls[ask.of])) {
                message = self.again(turn, &asks, message.turn + 1);
            }
        }
        bail!("turn {} got no final answer in {DELIVERIES} deliveries", turn.calls[0].turn)
    }

    async fn deliver(&mut self, turn: &mut Turn<'_>, message: &Message) -> anyhow::Result<Delivery> {
        let calls: Vec<Call> = message.asks.iter().map(|ask| turn.call(ask)).collect();
        let (registry, run) = (self.stage.registry.clone(), self.run.clone());
        let mut answer = pin!(registry.answer(&run, message.turn, &calls));
        let hangs = tokio::time::sleep(HANGS_AFTER);
        let mut hangs = pin!(hangs);
        loop {
            tokio::select! {
                biased;
                Some(struck) = self.stage.strikes.recv() => {
                    self.tally.strike(struck.fault);
                    if struck.fault == Fault::Unknown {
                        continue;
                    }
                    self.waiting.push(struck.go_on);
                    match struck.fault {
                        Fault::CrashBefore | Fault::CrashAfter => return Ok(Delivery::Crashed),
                        Fault::GivesUp if self.rng.bool() => self.stage.clock.advance(PATIENCE),
                        _ => return Ok(Delivery::Left),
                    }
                }
                replies = &mut answer => return Ok(Delivery::Replies(replies)),
                // Tools from an earlier delivery go on when this one has joined them.
                () = pass(), if !self.waiting.is_empty() => self.let_go(),
                () = &mut hangs => bail!("the guard did not answer within {HANGS_AFTER:?}"),
            }
        }
    }

    /// Lets the tools go on that wait where their fault struck.
    fn let_go(&mut self) {
        self.waiting.clear();
    }

    async fn restart(&mut self) -> anyhow::Result<()> {
        self.stage.crash().await?;
        self.waiting.clear();
        let anew = self.rng.u8(..4) == 0;
        let seen = self.seen.filter(|_| !anew).map_or(Seen::Nothing, Seen::Through);
        self.run = Run::resume(&self.stage.guard, &self.name, seen).await?;
        if anew { self.live_again().await } else { Ok(()) }
    }

    /// A host that kept nothing goes through its messages once more; what was done is not done again.
    async fn live_again(&mut self) -> anyhow::Result<()> {
        for past in std::mem::take(&mut self.past) {
            let answer = self.stage.registry.answer(&self.run, past.turn, &past.calls);
            let replies = tokio::time::timeout(HANGS_AFTER, answer).await?;
            self.judge_again(&past, &replies);
            self.past.push(past);
        }
        Ok(())
    }

    /// Delivers an answered message again: it must get the same.
    async fn deliver_again(&mut self, turn: &mut Turn<'_>, message: &Message, before: &[Reply]) -> anyhow::Result<()> {
        self.tally.strike(Fault::Redelivered);
        let Delivery::Replies(replies) = self.deliver(turn, message).await? else {
            bail!("a tool ran again when an answered turn was delivered again")
        };
        let open = self.judge(turn, message, &replies);
        for ((ask, first), second) in message.asks.iter().zip(before).zip(&replies) {
            let same = match first.is_marked() {
                true => first.outcome() == second.outcome(),
                false => first.message() == second.message(),
            };
            if !same || !open.asks.is_empty() {
                self.wrong(Count::Lost, turn, &turn.calls[ask.of], second, "got another answer when delivered again");
            }
        }
        Ok(())
    }

    /// The model asks for the same in other words, after it saw the answer.
    async fn ask_again(&mut self, turn: &mut Turn<'_>, in_turn: u32) -> anyhow::Result<()> {
        let each = |call: &Recorded| self.policies.of(&call.tool, call.kind).repeat == Again::Each;
        let again =
            turn.calls.iter().enumerate().filter(|(of, call)| {
                turn.faults[*of] == Some(Fault::Reworded) && !each(call) && !self.is_reopened(call)
            });
        let asks: Vec<_> = again.map(|(of, _)| Ask { of, id: String::new(), text: String::new() }).collect();
        if asks.is_empty() {
            return Ok(());
        }
        asks.iter().for_each(|_| self.tally.strike(Fault::Reworded));
        let message = self.again(turn, &asks, in_turn);
        self.until_answered(turn, message).await?;
        Ok(())
    }
}

/// Long enough for a call to join what is running.
async fn pass() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

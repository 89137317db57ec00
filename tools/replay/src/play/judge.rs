//! Replies against what they must be, the ledger against the wishes.

use toolonce::{Outcome, Reply, ReplyKind, Resolution};

use super::Play;
use super::message::{Ask, Known, Message, Past, Turn};
use crate::corpus::Recorded;
use crate::reading::Meaning;
use crate::stage::SETTLE;
use crate::tally::Count;
use crate::world::Returned;

/// What a delivery left to be done.
#[derive(Default)]
pub(super) struct Open {
    /// Asks without a final answer.
    pub(super) asks: Vec<usize>,
    /// References of calls that are held.
    pub(super) held: Vec<String>,
}

impl Play<'_> {
    /// Whether each reply is what its call must get.
    pub(super) fn judge(&mut self, turn: &Turn<'_>, message: &Message, replies: &[Reply]) -> Open {
        let mut open = Open::default();
        if replies.len() != message.asks.len() {
            let what = format!("{} calls got {} answers", message.asks.len(), replies.len());
            self.tally.find(Count::Lost, 1, &self.place(turn), what);
        }
        for (at, (ask, reply)) in message.asks.iter().zip(replies).enumerate() {
            let call = &turn.calls[ask.of];
            match reply.kind() {
                ReplyKind::Running => open.asks.push(at),
                ReplyKind::InDoubt => {
                    open.asks.push(at);
                    // Two equal calls of a message may stand for one unit of work.
                    let held = reply.reference().filter(|reference| !open.held.iter().any(|other| other == reference));
                    open.held.extend(held.map(str::to_owned));
                    if !turn.is_doubtful() {
                        self.wrong(Count::Lost, turn, call, reply, "is held although nothing left it open");
                    }
                }
                ReplyKind::Failed if turn.calls.iter().any(|c| c.fails && c.meaning == call.meaning) => {}
                ReplyKind::Refused if call.meaning.is_none() => {}
                _ => self.check_outcome(turn, call, reply),
            }
        }
        open
    }

    /// Whether the reply carries an outcome of this very meaning in this very run.
    fn check_outcome(&mut self, turn: &Turn<'_>, call: &Recorded, reply: &Reply) {
        let Some(outcome) = reply.outcome().filter(|_| reply.kind() != ReplyKind::Conflict) else {
            return self.wrong(Count::Lost, turn, call, reply, "got no outcome");
        };
        let entry = outcome.json::<Returned>().ok().and_then(|returned| self.stage.world.entry(returned.entry));
        match entry {
            Some(entry) if entry.run == self.name && Some(&entry.meaning) == call.meaning.as_ref() => {}
            Some(entry) => {
                let what = format!("got the outcome of {} in {}", entry.meaning, entry.run);
                self.wrong(Count::FalseMerge, turn, call, reply, &what);
            }
            None => self.wrong(Count::Lost, turn, call, reply, "got an outcome that nothing produced"),
        }
    }

    pub(super) fn wrong(&mut self, count: Count, turn: &Turn<'_>, call: &Recorded, reply: &Reply, what: &str) {
        let what = format!("{} {what} ({}: {})", call.tool, reply.kind(), reply.message());
        self.tally.find(count, 1, &self.place(turn), what);
    }

    fn place(&self, turn: &Turn<'_>) -> String {
        format!("{}, turn {}", self.name, turn.calls[0].turn)
    }

    /// Keeps a message whose effects all have outcomes.
    pub(super) fn remember(&mut self, turn: &Turn<'_>, message: &Message, replies: &[Reply]) {
        let asked = message.asks.iter().zip(replies);
        let effects = asked.filter(|(ask, _)| turn.calls[ask.of].kind.is_effect());
        let known = |(ask, reply): (&Ask, &Reply)| {
            let outcome = reply.outcome().cloned()?;
            Some((turn.call(ask), Known { outcome, marked: reply.is_marked() }))
        };
        if let Some(known) = effects.map(known).collect::<Option<Vec<_>>>()
            && !known.is_empty()
        {
            let (calls, answers) = known.into_iter().unzip();
            self.past.push(Past { turn: message.turn, calls, answers });
        }
    }

    /// What was answered before the crash against what it gets afterwards.
    pub(super) fn judge_again(&mut self, past: &Past, replies: &[Reply]) {
        for (known, reply) in past.answers.iter().zip(replies) {
            if reply.outcome() != Some(&known.outcome) && !(known.marked && self.is_about_the_same(known, reply)) {
                let place = format!("{}, turn {}", self.name, past.turn);
                self.tally.find(Count::Lost, 1, &place, format!("got another answer after a crash: {reply:?}"));
            }
        }
    }

    /// A repeat that got a stored outcome is a repeat of the newest unit of work in the new history: that may be
    /// another one of the same meaning by now, or one in doubt.
    fn is_about_the_same(&self, known: &Known, reply: &Reply) -> bool {
        let meaning = |outcome: &Outcome| {
            let returned = outcome.json::<Returned>().ok()?;
            self.stage.world.entry(returned.entry).map(|entry| (entry.run, entry.meaning))
        };
        match reply.outcome() {
            Some(outcome) => meaning(outcome) == meaning(&known.outcome),
            None => reply.kind() == ReplyKind::InDoubt,
        }
    }

    /// Answers for a person who looked into the ledger.
    pub(super) async fn settle(&mut self, held: &[String]) -> anyhow::Result<()> {
        for reference in held {
            self.tally.held += 1;
            let told = self.stage.guard.inbox().await?.iter().any(|call| call.reference == *reference);
            if !told {
                let what = format!("held call {reference} is not in the inbox");
                self.tally.find(Count::Lost, 1, &self.name, what);
            }
            let resolution = match self.stage.world.effect_of(reference) {
                Some(returned) => Resolution::Happened(serde_json::json!(returned)),
                None => {
                    self.stage.clock.advance(SETTLE);
                    Resolution::DidNotHappen
                }
            };
            let settled = self.stage.guard.resolve(reference, resolution, "looked up in the ledger").await;
            if let Err(error) = settled {
                let what = format!("held call {reference} can't be settled: {error}");
                self.tally.find(Count::Lost, 1, &self.name, what);
            }
        }
        Ok(())
    }

    /// The ledger against the wishes.
    pub(super) fn compare(&mut self, turn: &Turn<'_>) {
        for (meaning, intended) in self.wishes.of(turn.calls) {
            let happened = self.stage.world.effects_of(&self.name, meaning);
            let meanwhile = happened > intended && self.was_reopened_meanwhile(turn, meaning);
            self.tally.intended_effects += u64::from(meanwhile);
            let intended = intended + usize::from(meanwhile);
            self.wishes.settle(meaning, happened);
            let what = format!("{meaning} was wanted {intended} times and happened {happened} times");
            match happened.cmp(&intended) {
                std::cmp::Ordering::Greater => {
                    self.tally.find(Count::Twice, (happened - intended) as u64, &self.place(turn), what);
                }
                std::cmp::Ordering::Less => {
                    self.tally.find(Count::Lost, (intended - happened) as u64, &self.place(turn), what);
                }
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    /// The calls of a message run in parallel: whether one that reopens another ends before that one is looked at is
    /// open, so the ledger tells.
    fn was_reopened_meanwhile(&self, turn: &Turn<'_>, meaning: &Meaning) -> bool {
        let call = turn.calls.iter().find(|call| call.meaning.as_ref() == Some(meaning));
        let by = call.map_or(&[][..], |call| &self.policies.of(&call.tool, call.kind).reopened_by);
        let in_turn = turn.calls.iter().any(|call| by.contains(&call.tool));
        in_turn && self.stage.world.reopened_between(&self.name, meaning, by)
    }
}

//! The reads of one run in this process: those under way, which equal calls of their turn share, and those of a moment
//! ago that their tool lets stand for a time.
//!
//! A read may be shared only if no write of the run has ended since it began: else its caller would see the world from
//! before its own write. So every end of a write is counted, and a read remembers the count at its begin.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::attempt::Ending;
use super::work::Work;
use crate::Millis;
use crate::key::{BaseKey, Fingerprint};
use crate::protocol::apply::millis;
use crate::protocol::record::{Fence, Turn};

/// How many results of one run stand for a time, at most.
const MOST_FRESH: usize = 64;
/// The longest such result, in bytes.
const LONGEST_FRESH: usize = 64 * 1024;

/// How a read ended.
#[derive(Debug, Clone)]
pub(crate) struct ReadEnd {
    pub(crate) ending: Ending,
    /// When it began: the result is as old as this.
    pub(crate) at: Millis,
    /// Where it is recorded, if it is.
    pub(crate) unit: Option<(usize, Fence)>,
}

#[derive(Debug, Default)]
pub(crate) struct Reads {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Ends of writes so far.
    writes: u64,
    next: u64,
    under_way: Vec<UnderWay>,
    fresh: Vec<Fresh>,
}

#[derive(Debug)]
struct UnderWay {
    number: u64,
    key: BaseKey,
    fingerprint: Fingerprint,
    epoch: u32,
    turn: Option<Turn>,
    nth: u32,
    id: String,
    writes: u64,
    end: watch::Receiver<Option<ReadEnd>>,
}

#[derive(Debug)]
struct Fresh {
    key: BaseKey,
    fingerprint: Fingerprint,
    epoch: u32,
    end: ReadEnd,
}

/// What a read call meets.
#[derive(Debug)]
pub(crate) enum Entered<'a> {
    /// Nothing that it may share: it executes.
    Lead(Reading<'a>),
    /// An equal read under way.
    Join {
        /// The call's position among the equal calls of its turn.
        nth: u32,
        /// Whether the read under way is this very call, delivered before.
        own: bool,
        end: watch::Receiver<Option<ReadEnd>>,
    },
    /// One that may stand for it.
    Fresh(ReadEnd),
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write of the run has ended, whatever is known of its effect.
    pub(crate) fn wrote(&self) {
        let mut state = self.lock();
        state.writes += 1;
        state.fresh.clear();
    }

    /// A call enters that has the position `nth` among those that are recorded.
    pub(crate) fn enter(&self, work: &Work, nth: u32, now: Millis) -> Entered<'_> {
        let mut state = self.lock();
        let asked = &work.asked;
        let mates = || {
            let of_turn = |read: &&UnderWay| asked.turn.is_some() && read.turn == asked.turn;
            state.under_way.iter().filter(|read| read.key == work.key && read.epoch == work.epoch).filter(of_turn)
        };
        let again = mates().find(|read| asked.nth.is_none() && !asked.id.is_empty() && read.id == asked.id);
        let nth = match (again, asked.nth) {
            (Some(read), _) => read.nth,
            (None, Some(nth)) => nth,
            // A call that was handed over alone stands after those of its turn that are under way.
            (None, None) => mates().map(|read| read.nth + 1).max().unwrap_or(0).max(nth),
        };
        let fits = |read: &&UnderWay| read.fingerprint == asked.fingerprint && read.writes == state.writes;
        let shared = mates().filter(fits).min_by_key(|read| read.nth != nth);
        if let Some(read) = shared {
            return Entered::Join { nth, own: read.nth == nth, end: read.end.clone() };
        }
        let lasts = work.tool.policy.advanced.time_to_live.map_or(0, millis);
        let stands = |fresh: &&Fresh| {
            let equal = (fresh.key, fresh.fingerprint, fresh.epoch) == (work.key, asked.fingerprint, work.epoch);
            equal && now.saturating_sub(fresh.end.at) < lasts
        };
        if let Some(fresh) = state.fresh.iter().rev().find(stands) {
            return Entered::Fresh(fresh.end.clone());
        }
        let (tell, end) = watch::channel(None);
        let number = state.next;
        state.next += 1;
        let writes = state.writes;
        state.under_way.push(UnderWay {
            number,
            key: work.key,
            fingerprint: asked.fingerprint,
            epoch: work.epoch,
            turn: asked.turn,
            nth,
            id: asked.id.clone(),
            writes,
            end,
        });
        Entered::Lead(Reading { reads: self, number, nth, keeps: lasts > 0, tell })
    }
}

/// A read under way. Dropping it lets those who joined look again.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    reads: &'a Reads,
    number: u64,
    nth: u32,
    keeps: bool,
    tell: watch::Sender<Option<ReadEnd>>,
}

impl Reading<'_> {
    /// Its position among the equal calls of its turn.
    pub(crate) fn nth(&self) -> u32 {
        self.nth
    }

    /// Tells those who joined, and keeps the result where it may stand for a time.
    pub(crate) fn end(self, end: &ReadEnd) {
        let mut state = self.reads.lock();
        let Some(at) = state.under_way.iter().position(|read| read.number == self.number) else { return };
        // From here on nobody can join it.
        let UnderWay { key, fingerprint, epoch, writes, .. } = state.under_way.remove(at);
        let short = matches!(&end.ending, Ending::Success(text) if text.len() <= LONGEST_FRESH);
        if self.keeps && short && writes == state.writes {
            state.fresh.retain(|fresh| (fresh.key, fresh.fingerprint) != (key, fingerprint));
            if state.fresh.len() >= MOST_FRESH {
                state.fresh.remove(0);
            }
            state.fresh.push(Fresh { key, fingerprint, epoch, end: end.clone() });
        }
        drop(state);
        if self.tell.receiver_count() > 0 {
            self.tell.send_replace(Some(end.clone()));
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.reads.lock().under_way.retain(|read| read.number != self.number);
    }
}

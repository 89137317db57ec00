//! How another call that looks alike stands to a new one: models word a retry anew, and the new words have another key.

use super::decide::Asked;
use super::history::History;
use super::record::{Owners, Record, View, view};
use crate::Millis;

/// How a call that looks alike stands to the one that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alike {
    /// Nobody can mistake the new call for its retry: it is known what became of it, and, where turns tell, its outcome
    /// was seen.
    Finished,
    /// It isn't finished and of the same assistant message: the model means both.
    Sibling,
    /// It isn't finished: the new call may be its retry in other words.
    Open,
}

/// How `other`, the record of a call that looks like `asked`, stands to it at `now`.
pub fn stands(other: &Record, asked: &Asked, history: &History, owners: &dyn Owners, now: Millis) -> Alike {
    let mut of_run = other.slots.iter().filter(|slot| slot.run == asked.run);
    // A message that a resume kept is the same message; one that it cut off was sampled anew.
    let mut present = of_run.clone().filter(|slot| history.holds_slot(slot));
    let finished = match view(other, owners, now) {
        View::Running | View::InDoubt => false,
        View::Free | View::Failed => true,
        View::Done => asked.turn.is_none() || of_run.next().is_none() || present.clone().any(|slot| slot.delivered),
    };
    match finished {
        true => Alike::Finished,
        false if present.any(|slot| Some(slot.turn) == asked.turn) => Alike::Sibling,
        false => Alike::Open,
    }
}

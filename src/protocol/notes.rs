//! What is noted on a record beside its events: which places it answered, and with what.

use super::history::History;
use super::record::{Base, Given, Record, Slot, Turn};
use crate::key::Fingerprint;

/// Something to note about one place, or about one reply without a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// The occurrence it was answered from.
    pub occurrence: usize,
    /// The place; `None` for a call without a turn.
    pub place: Option<NotedPlace>,
    /// What it was answered with, if it was.
    pub given: Option<Given>,
    /// Whether the caller took an outcome or has not; `None` leaves it as it is.
    pub delivered: Option<bool>,
    /// Whether the answer was a marked replay.
    pub replay: bool,
}

/// A place of the present history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NotedPlace {
    /// The run.
    pub run: String,
    /// The assistant message.
    pub turn: Turn,
    /// Position among its equal calls.
    pub nth: u32,
    /// The call id of this delivery; empty if none.
    pub id: String,
    /// Fingerprint of its arguments.
    pub fingerprint: Fingerprint,
}

/// Notes it. A place that an abandoned history left behind becomes one of the present history, unanswered.
pub fn note(base: &mut Base, history: &History, note: &Note) {
    let Some(record) = base.occurrences.get_mut(note.occurrence) else {
        return;
    };
    record.replays += u32::from(note.replay);
    let Some(place) = &note.place else { return };
    let slot = slot_of(record, history, place);
    if let Some(given) = &note.given {
        slot.given = Some(given.clone());
    }
    if let Some(delivered) = note.delivered {
        slot.delivered = delivered;
    }
}

/// Whether the record says already all that the note would: then it needn't be noted.
pub fn is_noted(base: &Base, history: &History, note: &Note) -> bool {
    let Some(record) = base.occurrences.get(note.occurrence) else { return true };
    let Some(place) = &note.place else { return !note.replay };
    if note.replay {
        return false;
    }
    let Some(slot) = place_of(record, place).map(|at| &record.slots[at]) else { return false };
    let is_same = slot.epoch == history.epoch() && slot.id == place.id && slot.fingerprint == place.fingerprint;
    let is_given = note.given.is_none() || slot.given == note.given;
    is_same && is_given && note.delivered.is_none_or(|delivered| delivered == slot.delivered)
}

/// Where the newest slot of this place is.
fn place_of(record: &Record, place: &NotedPlace) -> Option<usize> {
    let is_it = |slot: &Slot| slot.run == place.run && slot.turn == place.turn && slot.nth == place.nth;
    let newest = record.slots.iter().filter(|slot| is_it(slot)).map(|slot| slot.epoch).max()?;
    record.slots.iter().position(|slot| is_it(slot) && slot.epoch == newest)
}

fn slot_of<'a>(record: &'a mut Record, history: &History, place: &NotedPlace) -> &'a mut Slot {
    let at = place_of(record, place).unwrap_or_else(|| {
        record.slots.push(Slot {
            run: place.run.clone(),
            turn: place.turn,
            nth: place.nth,
            id: place.id.clone(),
            epoch: history.epoch(),
            fingerprint: place.fingerprint,
            given: None,
            delivered: false,
        });
        record.slots.len() - 1
    });
    let slot = &mut record.slots[at];
    if !history.holds_slot(slot) {
        slot.given = None;
        slot.delivered = false;
    } else if slot.fingerprint != place.fingerprint {
        // What it was answered with when it asked for something else is no answer to this.
        slot.given = None;
    }
    slot.epoch = history.epoch();
    slot.id.clone_from(&place.id);
    slot.fingerprint = place.fingerprint;
    slot
}

#[cfg(test)]
mod tests {
    use super::super::history::Seen;
    use super::*;

    fn places() -> impl Iterator<Item = Option<NotedPlace>> {
        let place = |(nth, id, print): (u32, &str, u8)| NotedPlace {
            run: "r".to_owned(),
            turn: 0,
            nth,
            id: id.to_owned(),
            fingerprint: Fingerprint::from_bytes([print; 32]),
        };
        let some = [(0, "a", 1), (1, "a", 1), (0, "b", 1), (0, "a", 2)].into_iter().map(place).map(Some);
        some.chain([None])
    }

    /// Notes of all kinds, also about an occurrence that isn't there.
    fn all_notes() -> Vec<Note> {
        let answer = |mark: Option<&str>| Given::Outcome { mark: mark.map(str::to_owned), stop: false };
        let mut notes = Vec::new();
        for (occurrence, replay) in [(0, false), (0, true), (1, false)] {
            for place in places() {
                for given in [None, Some(answer(None)), Some(answer(Some("again")))] {
                    for delivered in [None, Some(false), Some(true)] {
                        let (place, given) = (place.clone(), given.clone());
                        notes.push(Note { occurrence, place, given, delivered, replay });
                    }
                }
            }
        }
        notes
    }

    /// What `is_noted` passes over is lost: it must be exactly what would change nothing.
    #[test]
    fn a_note_is_noted_already_if_and_only_if_it_would_change_nothing() {
        let notes = all_notes();
        let histories = [History::default(), History { cuts: vec![Seen::Nothing] }];
        let (mut noted, mut news) = (0, 0);
        for (before, history) in [(0, 0), (0, 1), (1, 1)] {
            for first in &notes {
                let mut base = Base { occurrences: vec![Record::default()], ..Base::default() };
                note(&mut base, &histories[before], first);
                for second in &notes {
                    let mut after = base.clone();
                    note(&mut after, &histories[history], second);
                    assert_eq!(is_noted(&base, &histories[history], second), after == base, "{first:?}, {second:?}");
                    if after == base { noted += 1 } else { news += 1 }
                }
            }
        }
        assert!(noted > 0 && news > 0);
    }
}

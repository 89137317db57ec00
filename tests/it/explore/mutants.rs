//! Tables with one clause broken. Each must make the named invariant fail, or the clause isn't guarded by any.

mod calls;
mod events;
mod guards;

use super::record::{BOUNDS, Kind, OneRecord};
use super::repeat::conversations;
use super::scenes::scenes;
use super::search::{Counterexample, explore};
use super::table::Table;
use super::table::invariant::*;

/// Which model shows the mutant.
enum In {
    /// The explorer of one record.
    Record(fn(&Kind) -> bool),
    /// The conversation of this name.
    Repeat(&'static str),
    /// The scene of this name.
    Scene(&'static str),
}

fn counterexample(table: &dyn Table, model: &In) -> Option<Counterexample> {
    match model {
        In::Record(of_kind) => BOUNDS.iter().filter(|(kind, ..)| of_kind(kind)).find_map(|&(kind, attempts, texts)| {
            let model = OneRecord { table, kind, attempts, texts };
            explore(&model).err()
        }),
        In::Repeat(name) => {
            let mut all = conversations(table).into_iter();
            let (_, model) = all.find(|(of, _)| of == name).unwrap_or_else(|| panic!("no conversation {name}"));
            explore(&model).err()
        }
        In::Scene(name) => {
            let mut all = scenes(table).into_iter();
            let model = all.find(|scene| scene.name == *name).unwrap_or_else(|| panic!("no scene {name}"));
            explore(&model).err()
        }
    }
}

#[test]
fn every_mutant_breaks_its_invariant() {
    let any = || In::Record(|kind| *kind == Kind::Any);
    let each = || In::Repeat("repeat Each Answer, 2 a turn");
    let resumed = || In::Repeat("repeat Each Answer, 1 a turn");
    let once = || In::Repeat("repeat Once Answer, 1 a turn");
    let crash = || In::Scene("hold: crash, late, human");
    let look_up = || In::Scene("reconcile: silence, late");
    let window = || In::Scene("window: crash, failure, late");
    let apply = |f| Box::new(events::Apply(f)) as Box<dyn Table>;
    let decide = |f| Box::new(calls::Decide(f)) as Box<dyn Table>;
    let guard = |guard: guards::Guard| Box::new(guard) as Box<dyn Table>;
    let mutants = vec![
        ("claim without check", guard(guards::OVERWRITES), In::Scene("hold, step by step: failure"), WRITE_ONCE),
        (
            "occurrence allocated outside its claim",
            guard(guards::NEXT_OCCURRENCE),
            In::Scene("each, one place twice, step by step"),
            ONE_EFFECT_PER_INTENT,
        ),
        ("end without fence", apply(events::end_without_fence), any(), DOUBT_STAYS),
        ("silence frees", Box::new(calls::SilenceFrees), In::Scene("hold: silence, late, human"), DOUBT_BLOCKS),
        ("failure deletes", apply(events::failure_deletes), any(), FENCES_GROW),
        ("open set forgotten", apply(events::open_set_forgotten), any(), DOUBT_STAYS),
        ("late success dropped", apply(events::late_success_dropped), any(), SUCCESS_COUNTS),
        ("success of a closed attempt dropped", apply(events::closed_success_dropped), any(), SUCCESS_COUNTS),
        ("sibling joined", decide(calls::sibling_joined), each(), WISH_RUNS),
        ("no settle delay", guard(guards::NO_SETTLE_DELAY), look_up(), WRITE_ONCE),
        ("re-send outside the window", Box::new(calls::ResendsForEver), window(), KEYED_ONCE),
        ("deadline beyond the window", apply(events::deadline_beyond_window), window(), KEYED_ONCE),
        ("window counted from the newest send", apply(events::window_from_newest), window(), KEYED_ONCE),
        ("body started past its deadline", guard(guards::STARTS_LATE), look_up(), WRITE_ONCE),
        ("delivered marked at completion", guard(guards::MARKS_AT_COMPLETION), each(), ONE_EFFECT_PER_INTENT),
        ("delivered mark not visible at once", guard(guards::MARKS_LATER), each(), WISH_RUNS),
        ("one Seen instead of cuts", guard(guards::ONE_CUT), resumed(), ONE_EFFECT_PER_INTENT),
        (
            "generation raised while open",
            apply(events::generation_raised),
            In::Scene("permanent: crash, failure, late"),
            KEYED_ONCE,
        ),
        ("outcome overwritten", apply(events::outcome_overwritten), any(), OUTCOME_STAYS),
        ("claim after success", apply(events::claim_after_success), any(), NO_CLAIM_AFTER_SUCCESS),
        ("in doubt re-run", decide(calls::in_doubt_rerun), crash(), WRITE_ONCE),
        ("no way out", apply(events::no_way_out), any(), WAY_OUT),
        ("highest instead of lowest", decide(calls::highest), each(), ONE_EFFECT_PER_INTENT),
        ("slots of its turn ignored", decide(calls::slots_of_turn_ignored), each(), WISH_RUNS),
        ("abandoned slot matches while settled", decide(calls::abandoned_slot_matches), once(), MARKED),
        ("taint as a flag: one end closes all", apply(events::one_end_closes_all), any(), DOUBT_STAYS),
        ("taint as a flag: an older end closes nothing", apply(events::older_end_closes_nothing), any(), ENDS_CLOSE),
        ("a no for any fence", apply(events::no_for_any_fence), any(), ANSWER_NAMES),
        ("fence used again", apply(events::fence_used_again), any(), FENCES_GROW),
        ("other bytes re-sent", apply(events::other_bytes_resent), any(), SAME_BYTES),
        (
            "own bodies unknown",
            guard(guards::BODIES_UNKNOWN),
            In::Scene("window, one process: late, patience, lost reply"),
            BODY_ALONE,
        ),
        ("answers not frozen", decide(calls::not_frozen), once(), FROZEN),
        ("marked outcome redelivered unmarked", decide(calls::mark_forgotten), once(), FROZEN),
    ];
    for (name, table, model, invariant) in mutants {
        let found = counterexample(&*table, &model).unwrap_or_else(|| panic!("{name}: nothing fails"));
        println!("{name}: {}, after {} steps", found.broken.invariant, found.story.len());
        assert_eq!(found.broken.invariant, invariant, "{name}: {found}");
    }
}

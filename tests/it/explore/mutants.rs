//! Tables with one clause broken. Each must make the named invariant fail, or the clause isn't guarded by any.

mod calls;
mod events;
mod guards;
mod rest;

use super::again::wishes;
use super::look_alikes::crowd;
use super::permissions::desks;
use super::reads::readers;
use super::record::{BOUNDS, Kind, OneRecord};
use super::reopened::undo;
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
    /// The desk of this name.
    Desk(&'static str),
    Again,
    Reopened,
    LookAlikes,
    Reads,
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
        In::Desk(name) => {
            let mut all = desks(table).into_iter();
            let (_, model) = all.find(|(of, _)| of == name).unwrap_or_else(|| panic!("no desk {name}"));
            explore(&model).err()
        }
        In::Again => explore(&wishes(table)).err(),
        In::Reopened => explore(&undo(table)).err(),
        In::LookAlikes => explore(&crowd(table)).err(),
        In::Reads => explore(&readers(table)).err(),
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
    let mutants: Vec<Mutant> = vec![
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
        ("failure not kept", decide(rest::failure_not_kept), once(), FROZEN),
        (
            "present effect only, idempotent",
            decide(rest::present_effect_only),
            In::Scene("hold, later idempotent: silence"),
            WRITE_ONCE,
        ),
        (
            "present effect only, keyed",
            decide(rest::present_effect_only),
            In::Scene("hold, later keyed: silence, human"),
            WRITE_ONCE,
        ),
        (
            "in doubt re-run by the third process",
            decide(calls::in_doubt_rerun),
            In::Scene("hold, three processes: silence, late, human"),
            WRITE_ONCE,
        ),
    ];
    each_is_found(mutants);
}

type Mutant = (&'static str, Box<dyn Table>, In, &'static str);

fn each_is_found(mutants: Vec<Mutant>) {
    for (name, table, model, invariant) in mutants {
        let found = counterexample(&*table, &model).unwrap_or_else(|| panic!("{name}: nothing fails"));
        println!("{name}: {}, after {} steps", found.broken.invariant, found.story.len());
        assert_eq!(found.broken.invariant, invariant, "{name}: {found}");
    }
}

#[test]
fn every_mutant_of_the_rest_breaks_its_invariant() {
    use rest::Neglects;

    let first = || In::Desk("permission first");
    let repeat = || In::Desk("permission to repeat");
    let beside = || In::Desk("permission to run beside a look-alike");
    let apply = |f| Box::new(events::Apply(f)) as Box<dyn Table>;
    let decide = |f| Box::new(calls::Decide(f)) as Box<dyn Table>;
    let again = |f| Box::new(rest::Again(f)) as Box<dyn Table>;
    let alikes = |f| Box::new(rest::Alikes(f)) as Box<dyn Table>;
    let neglects = |neglected: Neglects| Box::new(neglected) as Box<dyn Table>;
    let mutants: Vec<Mutant> = vec![
        ("first not asked", decide(rest::not_asked), first(), PERMITTED),
        ("repeat not asked", decide(rest::not_asked), repeat(), PERMITTED),
        ("look-alike not asked", decide(rest::not_asked), beside(), PERMITTED),
        ("permission of another asker", decide(rest::permission_of_another), first(), PERMITTED),
        ("permission not used up", apply(rest::permission_kept), repeat(), PERMITTED),
        ("approval lost", apply(rest::approval_lost), first(), APPROVED_RUNS),
        ("denial forgotten", decide(rest::denial_forgotten), first(), DENIAL_HOLDS),
        ("permission for one attempt", decide(rest::permission_for_one_attempt), first(), TRIED_AGAIN),
        ("expired question answered", neglects(Neglects::Expiry), first(), QUESTION_STANDS),
        ("question outlives its call", apply(rest::question_kept), beside(), QUESTION_STANDS),
        ("question makes an occurrence", neglects(Neglects::QuestionsAddNothing), first(), ADDS_NOTHING),
        ("more while in doubt", again(rest::more_while_in_doubt), In::Again, AGAIN_SETTLED),
        ("more while running", again(rest::more_while_running), In::Again, AGAIN_SETTLED),
        ("more while undelivered", again(rest::more_while_undelivered), In::Again, AGAIN_SETTLED),
        ("more after a gap", again(rest::more_after_a_gap), In::Again, AGAIN_NO_GAP),
        ("never more", again(rest::never_more), In::Again, AGAIN_RUNS),
        ("call before not checked", neglects(Neglects::Before), In::Again, AGAIN_SETTLED),
        ("reopened unseen", decide(rest::reopened_unseen), In::Reopened, UNDONE_RUNS),
        ("completions without order", neglects(Neglects::Order), In::Reopened, UNDONE_ONCE),
        ("a human's word without order", neglects(Neglects::OrderOfAWord), In::Reopened, UNDONE_ONCE),
        ("row of look-alikes not checked", neglects(Neglects::Row), In::LookAlikes, ALIKE_APART),
        ("finished before it was seen", alikes(rest::finished_when_done), In::LookAlikes, ALIKE_APART),
        ("finished while in doubt", alikes(rest::finished_when_not_running), In::LookAlikes, ALIKE_APART),
        ("siblings compared", alikes(rest::siblings_compared), In::LookAlikes, ASKED_FOR_REASON),
        ("reads joined across turns", neglects(Neglects::TurnOfReads), In::Reads, READS_FRESH),
        ("reads joined across a write", neglects(Neglects::WritesBeforeReads), In::Reads, READS_FRESH),
        ("reads replayed", decide(rest::reads_replay), In::Reads, READS_RUN),
        ("redelivered read runs", decide(rest::redelivered_read_runs), In::Reads, FROZEN),
    ];
    each_is_found(mutants);
}

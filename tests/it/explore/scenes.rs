//! The joined scenes: two or three processes, time, and every kind of fault at most once each. Crashes and silence strike the
//! first process; the others meet what is left.

use std::time::Duration;

use toolonce::protocol::record::Turn;
use toolonce::{InDoubt, KeyWindow, Millis, Policy, Repeat};

use super::repeat::LIMITS;
use super::search::must_hold;
use super::table::{Real, Table};
use super::world::{Faults, Scene};

/// Before the deadline, at it, after it, after the settle delay, and once more.
const WRITE_TIMES: &[Millis] = &[0, 20, 30, 50, 70];
/// Before the deadline, at it, after the settle delay.
const LOOK_UP_TIMES: &[Millis] = &[0, 20, 50];
/// Within the first deadline, late in the window, past the window.
const WINDOW_TIMES: &[Millis] = &[0, 70, 120];
/// For keys that the downstream system remembers for ever, or never.
const SHORT_TIMES: &[Millis] = &[0, 20, 30];
const WINDOW: KeyWindow = KeyWindow::For(Duration::from_millis(100));

const ONE: &[(Turn, u32)] = &[(0, 0)];
const SECOND: &[(Turn, u32)] = &[(0, 1)];
const LATER: &[(Turn, u32)] = &[(1, 0)];
const LAST: &[(Turn, u32)] = &[(2, 0)];
const TWO_TURNS: &[(Turn, u32)] = &[(0, 0), (1, 0)];
const SECOND_TWO_TURNS: &[(Turn, u32)] = &[(0, 1), (1, 1)];
const NONE: &[(Turn, u32)] = &[];

const fn faults() -> Faults {
    Faults { crash: 0, silent: 0, failure: 0, late: 0, lost_reply: 0, human: 0, patience: 0, not_taken: 0 }
}

fn scene<'a>(table: &'a dyn Table, name: &'static str, policy: Policy, times: &'static [Millis]) -> Scene<'a> {
    Scene {
        name,
        table,
        policy,
        redeclared: None,
        in_order: false,
        asks: &[ONE, LATER],
        faults: faults(),
        instants: times,
        limits: LIMITS,
        is_split: false,
        proves_death: false,
        most_attempts: if super::is_long() { 4 } else { 3 },
        intents: 1,
        most_effects: 1,
    }
}

/// All scenes under `table`.
pub(super) fn scenes(table: &dyn Table) -> Vec<Scene<'_>> {
    let hold = Policy::write;
    let each = || Policy::write().repeat(Repeat::Each);
    let write = |name, policy, faults| Scene { faults, ..scene(table, name, policy, WRITE_TIMES) };
    let reconcile = |name, faults| Scene {
        faults,
        ..scene(table, name, Policy::write().in_doubt(InDoubt::Reconcile), LOOK_UP_TIMES)
    };
    let keyed = |name, window, faults| Scene {
        faults,
        ..scene(table, name, Policy::keyed(window), if window == WINDOW { WINDOW_TIMES } else { SHORT_TIMES })
    };
    let crash_and_human = Faults { crash: 1, late: 1, human: 1, ..faults() };
    let silence_and_human = Faults { silent: 1, late: 1, human: 1, ..faults() };
    let slow = Faults { silent: 1, late: 1, patience: 1, ..faults() };
    let failures = Faults { silent: 1, failure: 1, lost_reply: 1, ..faults() };
    let doubts = Faults { crash: 1, failure: 1, late: 1, ..faults() };
    vec![
        write("hold: crash, late, human", hold(), crash_and_human),
        Scene { proves_death: true, ..write("hold: proven crash, late, human", hold(), crash_and_human) },
        write("hold: silence, late, human", hold(), silence_and_human),
        write("hold: silence, failure, lost reply", hold(), failures),
        write("hold: silence, late, patience", hold(), slow),
        reconcile("reconcile: crash, late", Faults { crash: 1, late: 1, ..faults() }),
        Scene {
            proves_death: true,
            ..reconcile("reconcile: proven crash, late", Faults { crash: 1, late: 1, ..faults() })
        },
        reconcile("reconcile: silence, late", Faults { silent: 1, late: 1, ..faults() }),
        reconcile("reconcile: silence, failure", Faults { silent: 1, failure: 1, ..faults() }),
        keyed("permanent: crash, failure, late", KeyWindow::Permanent, doubts),
        keyed("permanent: silence, failure, lost reply", KeyWindow::Permanent, failures),
        keyed("window: crash, failure, late", WINDOW, doubts),
        keyed("window: silence, late, human", WINDOW, silence_and_human),
        keyed("unknown window: crash, failure, late", KeyWindow::Unknown, doubts),
        Scene {
            asks: &[ONE, SECOND],
            instants: &[0, 20],
            ..write("idempotent: crash, late", Policy::idempotent(), Faults { crash: 1, late: 1, ..faults() })
        },
        Scene {
            asks: &[TWO_TURNS, NONE],
            ..write(
                "hold, one process: late, patience, lost reply",
                hold(),
                Faults { late: 1, patience: 1, lost_reply: 1, human: 1, ..faults() },
            )
        },
        Scene {
            asks: &[TWO_TURNS, NONE],
            ..keyed(
                "window, one process: late, patience, lost reply",
                WINDOW,
                Faults { late: 1, patience: 1, lost_reply: 1, ..faults() },
            )
        },
        Scene {
            in_order: true,
            asks: &[ONE, SECOND],
            instants: &[0, 20],
            intents: 2,
            most_effects: 2,
            ..write("each, siblings: crash, failure, late", each(), doubts)
        },
        Scene {
            in_order: true,
            asks: &[TWO_TURNS, SECOND_TWO_TURNS],
            instants: &[0, 20],
            intents: 4,
            most_effects: 4,
            ..write("each, siblings twice: patience", each(), Faults { patience: 1, ..faults() })
        },
        Scene {
            in_order: true,
            asks: &[TWO_TURNS, NONE],
            instants: &[0, 20],
            intents: 2,
            most_effects: 2,
            ..write("each, not taken", each(), Faults { not_taken: 1, patience: 1, late: 1, ..faults() })
        },
        Scene {
            asks: &[ONE, LATER, LAST],
            instants: &[0, 20],
            ..write("hold, three processes: silence, late, human", hold(), silence_and_human)
        },
        Scene {
            asks: &[ONE, LATER, LAST],
            instants: &[0, 20],
            ..keyed(
                "permanent, three processes: crash, late",
                KeyWindow::Permanent,
                Faults { crash: 1, late: 1, ..faults() },
            )
        },
        Scene {
            redeclared: Some(Policy::idempotent()),
            asks: &[ONE, SECOND],
            ..write("hold, later idempotent: silence", hold(), Faults { silent: 1, ..faults() })
        },
        Scene {
            redeclared: Some(Policy::keyed(KeyWindow::Permanent)),
            ..write("hold, later keyed: silence, human", hold(), Faults { silent: 1, human: 1, ..faults() })
        },
        Scene {
            is_split: true,
            instants: &[0, 20],
            ..write("hold, step by step: failure", hold(), Faults { failure: 1, ..faults() })
        },
        Scene {
            is_split: true,
            asks: &[ONE, ONE],
            instants: &[0, 20],
            ..write("each, one place twice, step by step", each(), faults())
        },
        Scene {
            is_split: true,
            ..keyed("permanent, step by step: failure", KeyWindow::Permanent, Faults { failure: 1, ..faults() })
        },
    ]
}

#[test]
fn every_scene() {
    for scene in scenes(&Real) {
        must_hold(scene.name, &scene);
    }
}

//! Every order that shuttle tries, of the flight and of its mutants.

use std::panic::catch_unwind;

use toolonce_shuttle::{
    as_it_is, leaves_its_place_taken, lets_two_lead, looks_then_enters, tells_nobody_of_its_end, wakes_first,
};

/// Tries so many orders of three races.
macro_rules! try_orders {
    ($flight:ident, $orders:expr) => {{
        use $flight::Leads::{Dies, Leaves, Records};
        let scenes: [&'static [_]; 3] = [
            &[Records, Records, Records, Records],
            &[Leaves, Records, Leaves, Records],
            &[Dies, Records, Dies, Leaves],
        ];
        for ways in scenes {
            shuttle::check_random(move || $flight::race(ways), $orders);
            shuttle::check_pct(move || $flight::race(ways), $orders, 3);
        }
    }};
}

#[test]
fn one_leads_and_all_get_its_answer() {
    try_orders!(as_it_is, 4_000);
}

#[test]
fn two_calls_in_every_order() {
    use as_it_is::Leads::{Dies, Leaves, Records};
    let scenes: [&'static [_]; 3] = [&[Records, Records], &[Leaves, Records], &[Dies, Records]];
    for ways in scenes {
        shuttle::check_dfs(move || as_it_is::race(ways), Some(30_000));
    }
}

#[test]
fn every_mutant_is_found() {
    macro_rules! is_found {
        ($($mutant:ident),*) => {
            [$((stringify!($mutant), catch_unwind(|| try_orders!($mutant, 4_000)).is_err())),*]
        };
    }
    let found =
        is_found!(wakes_first, looks_then_enters, tells_nobody_of_its_end, leaves_its_place_taken, lets_two_lead);
    assert!(found.iter().all(|(_, is_found)| *is_found), "{found:?}");
}

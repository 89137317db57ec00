//! Every order that shuttle tries, of the flight and of its mutants.

use std::process::{Command, Output};

use toolonce_shuttle::{MUTANTS, as_it_is, try_orders};

#[test]
fn one_leads_and_all_get_its_answer() {
    try_orders!(as_it_is, 4_000, None);
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
fn every_mutant_is_found_and_nothing_is_found_of_the_flight_as_it_is() {
    let tried = |name: &str| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolonce-shuttle"));
        command.arg(name).env("RUST_BACKTRACE", "0").output().expect("the program beside this test runs")
    };
    let as_it_is = tried("as_it_is");
    assert!(as_it_is.status.success(), "{}", String::from_utf8_lossy(&as_it_is.stderr));
    for mutant in MUTANTS {
        let output = tried(mutant);
        let said = String::from_utf8_lossy(&output.stderr);
        // By what is checked of a race, and not for want of a name or a file.
        let is_found =
            ["deadlock!", "two lead", "told of an outcome", "gets the one answer", "one effect", "leads any more"]
                .iter()
                .any(|found| said.contains(found));
        assert!(!output.status.success() && is_found, "{mutant} isn't found: {} {said}", output.status);
    }
}

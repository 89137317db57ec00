//! Each target by bolero: its corpus, and what the engine makes up.

mod allocations;
mod checks;
#[cfg(not(fuzzing_libfuzzer))]
mod damaged;
#[path = "../../it/fuzz/meant.rs"]
mod meant;
mod reading;

#[test]
fn arguments() {
    bolero::check!().for_each(|bytes: &[u8]| checks::arguments(bytes));
}

#[test]
fn canonical() {
    bolero::check!().for_each(|bytes: &[u8]| checks::canonical(bytes));
}

#[test]
fn record() {
    bolero::check!().for_each(|bytes: &[u8]| checks::record(bytes));
}

#[test]
fn rows() {
    bolero::check!().for_each(|bytes: &[u8]| checks::rows(bytes));
}

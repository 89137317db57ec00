//! What must not grow by a change: counts and ratios with room, no times. They hold on a loaded machine too.

use std::path::Path;

use toolonce_bench::figures::{Bench, Length, crowd, first, key, replay};

fn bench() -> Bench {
    Bench::new(Length::Tiny, 1).unwrap()
}

/// Beside this program, so on the disk that it was built on: a memory file system has no syncs.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

#[test]
fn a_first_write_call_waits_for_two_syncs() {
    let directory = scratch();
    let syncs = first::syncs(&bench(), directory.path(), 10).unwrap();
    assert_eq!(syncs, 2.0);
}

#[test]
fn a_replay_allocates_little() {
    let allocations = replay::allocations(&bench()).unwrap();
    assert!((1.0..=60.0).contains(&allocations), "{allocations}");
}

#[test]
fn a_replay_costs_a_few_keys() {
    let sample = key::Sample::small().unwrap();
    // The disturbance of one measure isn't that of the next: the best of some.
    let ratio = || replay::time(&bench(), 2000).unwrap().0 / key::time(&sample, 50, 40).unwrap();
    let best = (0..5).map(|_| ratio()).fold(f64::INFINITY, f64::min);
    assert!(best <= 25.0, "a replay takes the time of {best} keys");
}

#[test]
fn a_crowd_shares_its_syncs() {
    let directory = scratch();
    let best = (0..3).map(|n| {
        let directory = directory.path().join(n.to_string());
        std::fs::create_dir(&directory).unwrap();
        crowd::crowd(&bench(), &directory, 64, 2).unwrap().0
    });
    let best = best.fold(0.0, f64::max);
    assert!(best >= 0.5, "64 callers complete {best} calls in the time of an append + fdatasync");
}

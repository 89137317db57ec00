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
    // Claim and outcome; a commit that met another one is made again.
    assert!((1.0..2.1).contains(&syncs), "{syncs}");
}

#[test]
fn a_replay_allocates_little() {
    let allocations = replay::allocations(&bench()).unwrap();
    assert!((1.0..=40.0).contains(&allocations), "{allocations}");
}

#[test]
fn a_replay_costs_a_few_keys() {
    let sample = key::Sample::small().unwrap();
    // The disturbance of one measure isn't that of the next: the best of some.
    let ratio = || replay::time(&bench(), 2000).unwrap().0 / key::time(&sample, 50, 40).unwrap();
    let best = (0..5).map(|_| ratio()).fold(f64::INFINITY, f64::min);
    println!("a replay takes the time of {best} keys");
    assert!(best <= 15.0, "a replay takes the time of {best} keys");
}

#[test]
fn a_crowd_shares_its_syncs() {
    let directory = scratch();
    let excess = (0..3).map(|n| {
        let directory = directory.path().join(n.to_string());
        std::fs::create_dir(&directory).unwrap();
        let found = crowd::per_call(&bench(), &directory, 64, 4).unwrap();
        println!("{found:?}");
        // Each call for itself would wait for two; together they wait for a small part of one. On a quick disk the
        // processor is what it takes, which the store in memory tells.
        found.on_disk / (found.append + 5.0 * found.in_memory)
    });
    let least = excess.fold(f64::INFINITY, f64::min);
    assert!(least <= 1.0, "64 callers take {least} of what they may");
}

//! Inputs nobody would write: mutated, built from scraps, and damaged where they are stored. `TOOLONCE_FUZZ=3600` goes on
//! for so many seconds each; by default it is a second or two. What a crash was about becomes a test of its own.
//!
//! The argument parser against serde_json, and bytes that aren't JSON at all, are in `keys_hostile`; damaged records on
//! their own in `bytes`. The workspace `tests/fuzz` goes by coverage.

mod canonical;
mod meant;
mod rows;

use std::time::{Duration, Instant};

/// Rounds of a fuzzer, each with a seed: so many, or as many as the time allows that was asked for.
pub(crate) fn rounds(usual: u64) -> impl Iterator<Item = fastrand::Rng> {
    let seconds = std::env::var("TOOLONCE_FUZZ").ok().and_then(|seconds| seconds.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let goes_on = move |n: &u64| until.map_or(*n < usual, |until| Instant::now() < until);
    (0..).take_while(goes_on).map(fastrand::Rng::with_seed)
}

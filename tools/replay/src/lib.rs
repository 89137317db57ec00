//! Drives the tool calls of recorded agent runs through the guard, injects faults, and counts what happened.
//!
//! - [`corpus`] reads the files; [`policies`] says what each tool is.
//! - [`world`] is what the tools change, with a ledger that the guard can't touch.
//! - [`stage`] is a guard on a store, before and after a crash.
//! - [`play`] drives one run; [`faults`] and [`wording`] are what it does to it.
//! - [`reading`] decides whether two calls mean the same, and [`tally`] counts.
#![forbid(unsafe_code)]

pub mod corpus;
pub mod faults;
pub mod play;
pub mod policies;
pub mod reading;
pub mod stage;
pub mod tally;
pub mod wording;
pub mod world;

mod wishes;

use std::time::Instant;

use anyhow::Context as _;

use self::corpus::Corpus;
use self::faults::Fault;
use self::play::Play;
use self::policies::Policies;
use self::stage::{Setup, Stage, StoreKind};
use self::tally::Tally;

/// How a corpus is replayed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The faults to inject.
    pub faults: Vec<Fault>,
    /// Decides where they strike.
    pub seed: u64,
    /// How many trajectories to drive.
    pub limit: usize,
    /// The store.
    pub store: StoreKind,
}

/// Replays a corpus once. `progress` is called after each trajectory.
///
/// # Errors
/// If the store fails, a policy doesn't fit its tool, or the guard gives no answer.
pub async fn replay(
    corpus: &Corpus,
    policies: &Policies,
    settings: &Settings,
    mut progress: impl FnMut(),
) -> anyhow::Result<Tally> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    let setup = Setup::new(settings.store, corpus.tools(), policies);
    let trajectories = &corpus.trajectories[..settings.limit.min(corpus.trajectories.len())];
    for sharing in trajectories.chunks(settings.store.share().min(trajectories.len().max(1))) {
        let mut stage = Stage::new(setup.clone()).await?;
        for trajectory in sharing {
            for part in &trajectory.parts {
                let run = format!("{}/{}", trajectory.name, part.by);
                let play = Play::new(&mut stage, &mut tally, policies, settings, run.clone());
                play.await?.part(part).await.with_context(|| format!("run {run} can't be replayed"))?;
            }
            tally.trajectories += 1;
            progress();
        }
        tally.effects += stage.world.effects() as u64;
        stage.close().await?;
    }
    tally.time = begun.elapsed();
    Ok(tally)
}

//! Time that isn't what it should be: clocks that are set back and forth, machines that sleep, and every setting at
//! nothing, next to nothing and for ever.

mod jumps;
mod settings;

use crate::summary::{Findings, Summary};
use crate::{Settings, stage};

/// Jumps through time in as many stories as it takes, and tries each setting at its ends.
///
/// # Errors
/// If a story could not be told.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let stories = settings.cases(200, 2_000, 50_000);
    let mut summary = settings.each_group(("jumps", "time"), (stories, 20), |group, summary| {
        let mut random = fastrand::Rng::with_seed(group.seed());
        for _ in 0..group.cases {
            let mut found = Findings::default();
            let jumps = stage::still()?.block_on(jumps::tell(&mut random, &mut found))?;
            jumps.into_iter().for_each(|jump| summary.hit(jump));
            summary.add(found, group);
        }
        Ok(())
    })?;
    let mut found = Findings::default();
    let tried = settings::each(&mut found)?;
    (0..tried).for_each(|_| summary.hit("setting at its end"));
    summary.add(found, "cargo chaos time");
    summary.details = vec![summary.hits()];
    Ok(summary)
}

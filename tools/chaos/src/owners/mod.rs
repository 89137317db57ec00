//! Two owners of one record: a guard that is stopped past its lease in the middle of a call, another one that goes on with
//! the run, and the first one continued. And a second process on one directory.

mod process;
mod scene;

pub use self::process::child;
use self::scene::{Scene, play};
use crate::Settings;
use crate::stage;
use crate::summary::{Findings, Summary};

/// Plays every scene as often as it takes, with other times each round.
///
/// # Errors
/// If the scenes could not be played, or an injection missed.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let scenes = Scene::all();
    let size = scenes.len() as u64;
    let cases = settings.cases(size, size * 10, size * 200);
    let mut summary = settings.each_group(("scenes", "owners"), (cases, size), |group, summary| {
        let mut random = fastrand::Rng::with_seed(group.seed());
        for scene in scenes.iter().take(usize::try_from(group.cases)?) {
            let mut found = Findings::default();
            stage::still()?.block_on(play(scene, &mut random, &mut found))?;
            summary.hit(scene.stopped.name());
            summary.add(found, format_args!("{group}: {scene}"));
        }
        Ok(())
    })?;
    let mut found = Findings::default();
    process::judge(&settings.program, &mut found)?;
    summary.hit("second process");
    summary.add(found, "cargo chaos owners");
    summary.details = vec![summary.hits()];
    Ok(summary)
}

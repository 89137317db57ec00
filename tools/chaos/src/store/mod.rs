//! A store that fails: at every single operation of a script of calls, in every way it can, once or until it is healed.

mod nth;
mod script;

use crate::Settings;
use crate::stage;
use crate::summary::{Findings, Summary};

use self::nth::Fault;
use self::script::{Script, play};

/// Injects every fault at every operation, with scripts in as many orders as it takes.
///
/// # Errors
/// If a script could not be played, or never got to the operation that was to fail.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let orders = settings.cases(1, 4, 40);
    let mut summary = settings.each_group(("faults", "store"), (orders, 1), |group, summary| {
        let script = Script::of(group.seed());
        let (operations, mut found) = (stage::still()?.block_on(script::count(&script))?, Findings::default());
        for at in 0..operations {
            for fault in Fault::ALL {
                let hit = stage::still()?.block_on(play(&script, Some((at, fault)), &mut found));
                let hit = hit.map_err(|error| error.context(format!("{fault:?} at operation {at}")))?;
                if hit {
                    summary.hit(fault.name());
                }
                let here = std::mem::take(&mut found);
                summary.add(here, format_args!("{group}: {fault:?} at operation {at}"));
            }
        }
        Ok(())
    })?;
    summary.details.push("a fault that reads can't have is injected into commits only".to_owned());
    Ok(summary)
}

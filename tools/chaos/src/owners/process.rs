//! A second process on one directory gets a clear answer: who holds the store, at once, and nothing else.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use toolonce::store::{SledOptions, Store as _, StoreErrorKind};

use crate::stage;
use crate::summary::{Findings, Kind};

/// What the second process says if the store is held, before the id of the process that holds it.
const HELD: &str = "held by";

/// The second process: says on standard output how opening went.
///
/// # Errors
/// If the answer can't be told.
pub fn child(directory: &Path) -> anyhow::Result<()> {
    let answer = stage::still()?.block_on(async {
        match SledOptions::new(directory).open().await {
            Ok(_) => "opened".to_owned(),
            Err(error) if error.kind() == StoreErrorKind::Locked => {
                format!("{HELD} {}", error.holder().map_or_else(String::new, |holder| holder.to_string()))
            }
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    });
    println!("{answer}");
    Ok(())
}

/// Opens a store here, and again from a process of its own; then gives it up.
pub(super) fn judge(program: &Path, found: &mut Findings) -> anyhow::Result<()> {
    let scratch = crate::scratch()?;
    let directory = scratch.path().join("store");
    let ask = || -> anyhow::Result<String> {
        let output = Command::new(program).arg("open-child").arg(&directory).output().context("no second process")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut expect = |when: &str, expected: String| -> anyhow::Result<()> {
        let answer = ask()?;
        if answer != expected {
            found.add(Kind::Unexplained, format!("{when} a second process is told {answer:?}, not {expected:?}"));
        }
        Ok(())
    };
    let runtime = stage::still()?;
    let store = runtime.block_on(SledOptions::new(&directory).open())?;
    expect("beside the first", format!("{HELD} {}", std::process::id()))?;
    runtime.block_on(store.close())?;
    expect("after the first", "opened".to_owned())
}

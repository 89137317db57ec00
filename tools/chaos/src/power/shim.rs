//! Compiles the tracing library and runs a process under it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

const SOURCE: &str = include_str!("../../shim/trace.c");

/// The library, compiled.
#[derive(Debug)]
pub(super) struct Shim {
    library: PathBuf,
}

impl Shim {
    /// Compiles it into `directory`.
    ///
    /// # Errors
    /// If `cc` is missing or refuses it.
    pub(super) fn compile(directory: &Path) -> anyhow::Result<Self> {
        let (source, library) = (directory.join("trace.c"), directory.join("trace.so"));
        std::fs::write(&source, SOURCE)?;
        let compiled = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-o"].map(OsStr::new))
            .args([library.as_os_str(), source.as_os_str(), OsStr::new("-ldl")])
            .output()
            .context("cc, which Rust links with, can't be started")?;
        ensure!(compiled.status.success(), "cc: {}", String::from_utf8_lossy(&compiled.stderr));
        Ok(Self { library })
    }

    /// Has `command` write down what it does below `root`, which must be absolute and without links.
    pub(super) fn watch(&self, command: &mut Command, root: &Path, trace: &Path) {
        command.env("LD_PRELOAD", &self.library).env("CHAOS_ROOT", root).env("CHAOS_TRACE", trace);
    }
}

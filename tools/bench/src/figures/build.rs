//! What building the library from nothing takes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::table::{Row, Unit};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Packages by which others compile C.
const COMPILERS: [&str; 3] = ["bindgen", "cc", "cmake"];

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(ROOT);
    cargo
}

/// The names of all packages that the default features need.
fn packages() -> anyhow::Result<BTreeSet<String>> {
    let tree = ["tree", "--locked", "--package", "toolonce", "--edges", "no-dev", "--prefix", "none", "--no-dedupe"];
    let listed = cargo().args(tree).stderr(Stdio::inherit()).output()?;
    ensure!(listed.status.success(), "cargo tree failed");
    // Two versions of one package are two packages.
    Ok(String::from_utf8(listed.stdout)?.lines().filter_map(name_and_version).collect())
}

fn name_and_version(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    Some(format!("{} {}", words.next()?, words.next()?))
}

/// The processor time of all children that have ended, theirs included, in seconds.
fn children() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat has no name")?;
    let field =
        |n: usize| fields.split(' ').nth(n).context("/proc/self/stat is short")?.parse::<f64>().context("no number");
    Ok((field(13)? + field(14)?) / TICKS)
}

/// Of each second, in all that the kernel tells.
const TICKS: f64 = 100.0;

pub(super) fn rows(directory: &Path) -> anyhow::Result<Vec<Row>> {
    let packages = packages()?;
    let (begun, before) = (Instant::now(), children()?);
    // Who calls a C compiler gets none.
    let built = cargo()
        .args(["build", "--locked", "--quiet", "--package", "toolonce"])
        .env("CARGO_TARGET_DIR", directory)
        .envs(["CC", "CXX", "HOST_CC", "HOST_CXX", "TARGET_CC", "TARGET_CXX"].map(|name| (name, "false")))
        .status()?;
    ensure!(built.success(), "cargo build failed");
    let (took, used) = (begun.elapsed().as_secs_f64(), children()? - before);
    let compile_c = packages.iter().filter(|name| COMPILERS.iter().any(|c| name.split(' ').next() == Some(c))).count();
    Ok(vec![
        Row::new("cold build, packages with ours", packages.len() as f64, Unit::Count),
        Row::new("cold build, processor time", used, Unit::Seconds),
        Row::new("cold build, time", took, Unit::Seconds),
        Row::new("cold build, packages that compile C", compile_c as f64, Unit::Count).at_most(0.0),
    ])
}

//! What the figures were measured on.

use std::fmt;
use std::path::Path;
use std::{fs, io, thread};

use serde_json::{Value, json};

use crate::disk::Append;
use crate::stats::Times;

/// Facts about this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    filesystem: String,
    /// One append + fdatasync in microseconds: the median and the slowest of ten.
    sync: (f64, f64),
    /// How many processes wanted a core when measuring began: over the last minute.
    load: String,
}

const APPENDS: usize = 200;

impl Machine {
    /// Looks, and does 200 appends in `directory`.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn look(directory: &Path) -> io::Result<Self> {
        let mut append = Append::new(directory)?;
        let mut times = Times::default();
        for _ in 0..APPENDS {
            times.add(append.once()?);
        }
        fs::remove_file(directory.join("append"))?;
        let load = read("/proc/loadavg");
        Ok(Self {
            cores: thread::available_parallelism().map_or(1, |n| n.get()),
            processor: processor(),
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")),
            filesystem: filesystem(directory),
            sync: (times.quantile(0.5), times.quantile(0.9)),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "filesystem": self.filesystem,
            "append_fdatasync_us": { "p50": self.sync.0, "p90": self.sync.1 },
            "load": self.load,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, kernel, filesystem, sync: (p50, p90), load } = self;
        write!(f, "{cores} cores ({processor}), {kernel}, {filesystem}; ")?;
        write!(f, "append + fdatasync {p50:.0} µs p50, {p90:.0} µs p90; load {load}")
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn processor() -> String {
    let cpus = read("/proc/cpuinfo");
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.to_owned())
}

/// The type of the file system that `directory` is on: the mount with the longest path above it.
fn filesystem(directory: &Path) -> String {
    let mounts = read("/proc/mounts");
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let above = fields.filter(|fields| fields.len() > 2 && directory.starts_with(fields[1]));
    above.max_by_key(|fields| fields[1].len()).map_or_else(|| "unknown".to_owned(), |fields| fields[2].to_owned())
}

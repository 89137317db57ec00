//! Damaged, lost, exchanged, older and read-only files.
//!
//! A store with settled calls and one in doubt is closed, or, every other one, left as it lies open, as a kill leaves it;
//! and the same files are damaged again and again, mostly in one way (`damage`). A child process opens what is left and
//! makes every call once more (`child`): it may be refused, or get its own outcome, an error, that it is in doubt, or
//! that it was done and its result can't be read; where nothing was damaged, its own outcome. What it may not: execute a call again that the ledger has, get another outcome, panic, hang.

mod child;
mod damage;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use toolonce::Seen;

pub use self::child::{ChildArguments, child};
use crate::files::{contents_of, write_all};
use crate::ledger::{FILES, Ledger};
use crate::points::{Point, Points};
use crate::summary::{Findings, Kind, Summary};
use crate::workload::{self, Orders, PER_TURN, Plan, Sizes, Workload};
use crate::{Group, Settings};

/// Mutations of one store, one of which is taking the right to write away.
const PER_STORE: u64 = 250;
/// Opening is bounded by 30 s, each of the answers by 20.
const WITHIN: Duration = Duration::from_secs(90);
/// Names of the copies.
const NOW: &str = "now";
const OLDER: &str = "older";
/// What is counted beside the injections.
const OPENED: &str = "opened";
const REFUSED: &str = "refused to open";
/// Who may not write, where the tests run as root, to whom everything is permitted.
const NOBODY: u32 = 65534;

/// Damages as often as the settings say.
///
/// # Errors
/// If something else than the store fails.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let size = (settings.cases(500, 2_500, 10_000), PER_STORE);
    settings.each_group(("mutations", "corrupt"), size, |group, summary| {
        let copies = crate::scratch()?;
        // Some stores are longer than a few of sled's segments. Copying them takes its time.
        let sizes = if group.n % 8 == 2 { Sizes::Large } else { Sizes::Moderate };
        // Every third one is sealed.
        let plan = Plan { seed: group.seed(), sizes, sealed: group.n % 3 == 1 };
        prepare(group.settings, copies.path(), plan, group.n % 2 == 1)?;
        untouched(group, copies.path(), plan, summary)?;
        let mut next = 1;
        while next < group.cases {
            let mut command = child_command(&group.settings.program, copies.path(), plan);
            command.args(["--first", &next.to_string(), "--end", &group.cases.to_string()]);
            next = watch(&mut command, next, group, summary)?;
        }
        read_only(group, copies.path(), plan, summary)?;
        if !summary.failures.is_empty() {
            // No two stores have the same bytes, so only these files show it again.
            let repeat = child_command(&group.settings.program, &copies.keep(), plan);
            summary.details.push(format!("again, case N only: {repeat:?} --first N --end N+1"));
        }
        Ok(())
    })
}

/// Makes the store and its copies: some calls, a copy, a call in doubt, more calls, a copy; the last one perhaps while
/// the store is open.
fn prepare(settings: &Settings, directory: &Path, plan: Plan, is_open: bool) -> anyhow::Result<()> {
    let orders = |first, count| Orders { plan, first, count, at_once: true, point: None };
    let count = PER_TURN * if plan.sizes == Sizes::Large { 8 } else { 3 };
    workload::child(directory, &orders(0, count))?;
    copy(directory, OLDER)?;
    // A write, since a keyed call in doubt is sent again.
    let doubt = (count..).find(|call| plan.is_write(*call)).unwrap_or(0);
    let point = Some((Point::EffectBeforeRecord, 1));
    let killed = Orders { point, at_once: false, ..orders(doubt, 1) };
    let output = Command::new(&settings.program).args(workload::arguments(directory, &killed)).output()?;
    ensure!(output.status.code().is_none(), "the child wasn't killed but ended with {}", output.status);
    // Opened for the third time, it has a snapshot: sled then doesn't read what is before it.
    let last = orders((doubt / PER_TURN + 1) * PER_TURN, count);
    if !is_open {
        workload::child(directory, &last)?;
        return copy(directory, NOW);
    }
    crate::runtime()?.block_on(async {
        let ledger = Arc::new(Ledger::open(directory)?);
        let workload = Workload::open(directory, plan, ledger, Points::none(), Seen::Nothing).await?;
        workload.work(last.first, last.count, last.at_once).await?;
        workload.witnessed(directory).await?;
        copy(directory, NOW)?;
        workload.close().await
    })
}

fn copy(directory: &Path, name: &str) -> anyhow::Result<()> {
    let mut files = contents_of(directory)?;
    files.retain(|file, _| !FILES.contains(&file.as_str()) && !file.starts_with(OLDER));
    Ok(write_all(&directory.join(name), &files)?)
}

fn child_command(program: &Path, copies: &Path, plan: Plan) -> Command {
    let mut command = Command::new(program);
    command.arg("corrupt-child").arg(copies).args(["--seed", &plan.seed.to_string(), "--sizes", plan.sizes.name()]);
    if plan.sealed {
        command.arg("--sealed");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a child and takes down what it says. Returns the first case that it didn't get to.
fn watch(command: &mut Command, first: u64, group: &Group<'_>, summary: &mut Summary) -> anyhow::Result<u64> {
    let mut child = command.spawn().context("no child can be started")?;
    let lines = lines_of(&mut child)?;
    let mut case = Case { n: first, text: String::new() };
    let mut begun = 0;
    let ended = loop {
        match lines.recv_timeout(WITHIN) {
            Ok(line) => {
                begun += u64::from(line.starts_with("case ") || line.starts_with("control "));
                case.take(&line, group, summary)?;
            }
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => break Some("the process hangs".to_owned()),
        }
    };
    if ended.is_some() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    ensure!(begun > 0, "a child did nothing: {}", String::from_utf8_lossy(&output.stderr));
    let died = || format!("the process ended with {}: {:.300}", output.status, String::from_utf8_lossy(&output.stderr));
    if let Some(what) = ended.or_else(|| (!output.status.success()).then(died)) {
        case.finding(Kind::Unexplained, what, group, summary);
    }
    Ok(case.n + 1)
}

/// What the child prints, line by line.
fn lines_of(child: &mut Child) -> anyhow::Result<mpsc::Receiver<String>> {
    let out = BufReader::new(child.stdout.take().context("no pipe")?);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(lines)
}

/// The case that a child is at.
struct Case {
    n: u64,
    text: String,
}

impl Case {
    fn take(&mut self, line: &str, group: &Group<'_>, summary: &mut Summary) -> anyhow::Result<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "control" => self.text = rest.to_owned(),
            "case" => {
                let (n, text) = rest.split_once(' ').context("a case without a text")?;
                (self.n, self.text) = (n.parse()?, text.to_owned());
                summary.hit(text.split(' ').next().unwrap_or(text));
            }
            "opened" => summary.count(OPENED, 1),
            "refused" => summary.count(REFUSED, 1),
            "acknowledged" => summary.acknowledged += rest.parse::<u64>()?,
            "lost" => self.finding(Kind::Lost, rest.to_owned(), group, summary),
            "twice" => self.finding(Kind::Twice, rest.to_owned(), group, summary),
            "unexplained" => self.finding(Kind::Unexplained, rest.to_owned(), group, summary),
            _ => anyhow::bail!("a child says {line:?}"),
        }
        Ok(())
    }

    fn finding(&self, kind: Kind, what: String, group: &Group<'_>, summary: &mut Summary) {
        let mut found = Findings::default();
        found.add(kind, what);
        summary.add(found, format_args!("case {}, {}: {group}", self.n, self.text));
    }
}

/// Opens the store as it was left: all that was acknowledged must be there, whole, or what follows tells nothing.
fn untouched(group: &Group<'_>, copies: &Path, plan: Plan, summary: &mut Summary) -> anyhow::Result<()> {
    let place = crate::scratch()?;
    write_all(place.path(), &contents_of(&copies.join(NOW))?)?;
    let mut command = child_command(&group.settings.program, copies, plan);
    command.args(["--first", "0", "--end", "1", "--untouched", "--as-it-is"]).arg(place.path());
    let opened = summary.counted(OPENED);
    watch(&mut command, 0, group, summary)?;
    if summary.counted(OPENED) == opened {
        let case = Case { n: 0, text: "untouched".to_owned() };
        case.finding(Kind::Lost, "a store that nothing was done to isn't opened".to_owned(), group, summary);
    }
    Ok(())
}

/// Takes the right to write away from everything, and looks whether a store that can't be written is refused.
fn read_only(group: &Group<'_>, copies: &Path, plan: Plan, summary: &mut Summary) -> anyhow::Result<()> {
    let place = crate::scratch()?;
    let directory = place.path().join(NOW);
    write_all(&directory, &contents_of(&copies.join(NOW))?)?;
    let mut program = group.settings.program.clone();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Another user has to be able to get at all this.
        program = place.path().join("program");
        fs::copy(&group.settings.program, &program)?;
        allow(copies, 0o755)?;
        allow(place.path(), 0o755)?;
        FILES.iter().try_for_each(|name| allow(&copies.join(name), 0o666))?;
    }
    restrict(&directory, 0o444, 0o555)?;
    let mut command = child_command(&program, copies, plan);
    command.args(["--first", "0", "--end", "1", "--as-it-is"]).arg(&directory);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let refused = summary.counted(REFUSED);
    watch(&mut command, 0, group, summary)?;
    if summary.counted(REFUSED) == refused {
        let case = Case { n: 0, text: "read-only-directory".to_owned() };
        case.finding(Kind::Unexplained, "a store that can't be written was opened".to_owned(), group, summary);
    }
    // So that whoever isn't root can remove it.
    restrict(&directory, 0o600, 0o700)
}

fn allow(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Gives a directory and what is below it these rights.
fn restrict(directory: &Path, files: u32, directories: u32) -> anyhow::Result<()> {
    allow(directory, 0o700)?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            restrict(&entry.path(), files, directories)?;
        } else {
            allow(&entry.path(), files)?;
        }
    }
    Ok(allow(directory, directories)?)
}

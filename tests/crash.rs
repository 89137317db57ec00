//! Kills a process with SIGKILL while it commits to a sled store, again and again, and looks for what it had
//! acknowledged.
//!
//! The child commits from several tasks at once, `Synced` and `Ordered` mixed, records of one or many pieces from 16
//! bytes to 60 KB with an index entry each, and writes each acknowledged `Synced` commit to a synced log beside the store. The parent kills it
//! a random number of events after its start, opens the store and checks, task by task:
//!
//! - nothing acknowledged is missing, and nothing before it either (an `Ordered` commit is never durable later than a
//!   `Synced` one after it);
//! - pieces and index entries are there together, whole, and those that a later commit deleted are gone.
//!
//! `TOOLONCE_CRASH_ROUNDS` (default 200) sets how often, `TOOLONCE_CRASH_SEED` which random numbers.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, hint};

use toolonce::store::{Batch, Committed, Durability, Key, SledStore, Store};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Names the directory to a child process.
const CHILD: &str = "TOOLONCE_CRASH_CHILD";
const TASKS: u64 = 6;
const PIECE: u8 = b'p';
const INDEX: u8 = b'i';
/// How many records of each task stay; each commit deletes the one that falls out.
const KEEP: u64 = 6;
/// After so many rounds a fresh store is begun.
const ROUNDS_PER_STORE: u64 = 20;
const SIZES: Range<usize> = 16..60_000;
/// Every so many records one has [`MANY`] pieces, as a large result does.
const LARGE_EVERY: u64 = 12;
const MANY: u64 = 16;

/// A key: record and piece of a task.
type Place = (u64, u64);

fn main() -> ExitCode {
    let result = match env::var_os(CHILD) {
        Some(directory) => runtime().and_then(|runtime| runtime.block_on(child(&PathBuf::from(directory)))),
        None if is_wanted() => parent(),
        None => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the test runner's arguments are about this test.
fn is_wanted() -> bool {
    let mut filters = env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    let listing = env::args().any(|argument| argument == "--list");
    !listing && (filters.peek().is_none() || filters.any(|filter| "crash".contains(&filter)))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn number(name: &str, default: u64) -> Result<u64> {
    match env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name}={text}: {error}").into()),
        Err(_) => Ok(default),
    }
}

// ---- The child ----

async fn child(directory: &Path) -> Result<()> {
    println!("opening");
    let store = Arc::new(SledStore::open(store_path(directory)).await?);
    let acknowledged = File::options().append(true).create(true).open(log_path(directory))?;
    let acknowledged = Arc::new(Mutex::new(acknowledged));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let next = end(&read(&store, INDEX, task).await?);
        tasks.spawn(append(Arc::clone(&store), Arc::clone(&acknowledged), task, next));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Commits records of `task` until the process dies.
async fn append(store: Arc<SledStore>, acknowledged: Arc<Mutex<File>>, task: u64, first: u64) -> Result<()> {
    let mut random = fastrand::Rng::new();
    for record in first.. {
        let durability = if random.u8(..3) == 0 { Durability::Ordered } else { Durability::Synced };
        println!("begin {task} {record}");
        match store.commit(batch(task, record), durability).await? {
            Committed::Applied(_) if durability == Durability::Synced => {
                let mut log = acknowledged.lock().map_err(|_| "another task panicked")?;
                log.write_all(format!("{task} {record}\n").as_bytes())?;
                log.sync_data()?;
                println!("acknowledged {task} {record}");
            }
            Committed::Applied(_) => println!("ordered {task} {record}"),
            Committed::Conflict(found) => return Err(format!("record {record} conflicts: {found:?}").into()),
        }
    }
    Ok(())
}

fn batch(task: u64, record: u64) -> Batch {
    let places = |record| places(record..record + 1).map(move |(kind, place)| key(kind, task, place));
    let put = |(kind, place)| (key(kind, task, place), contents(kind, task, place));
    Batch {
        checks: vec![(key(INDEX, task, (record, 0)), None)],
        deletes: record.checked_sub(KEEP).map(places).into_iter().flatten().collect(),
        puts: self::places(record..record + 1).map(put).collect(),
        ..Batch::default()
    }
}

/// Index entries and pieces that belong to these records.
fn places(records: Range<u64>) -> impl Iterator<Item = (u8, Place)> {
    records.flat_map(|record| {
        let pieces = if record % LARGE_EVERY == 7 { MANY } else { 1 };
        let pieces = (0..pieces).map(move |piece| (PIECE, (record, piece)));
        pieces.chain([(INDEX, (record, 0))])
    })
}

fn key(kind: u8, task: u64, (record, piece): Place) -> Key {
    Key::new([&[kind][..], &task.to_be_bytes(), &record.to_be_bytes(), &piece.to_be_bytes()].concat())
}

/// What belongs under a key: told from the key alone, so that it can be checked without a copy.
fn contents(kind: u8, task: u64, (record, piece): Place) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(task << 48 | piece << 32 | record);
    let mut bytes = vec![0; if kind == INDEX { 8 } else { random.usize(SIZES) }];
    random.fill(&mut bytes);
    bytes
}

// ---- The parent ----

#[derive(Default)]
struct Tally {
    acknowledged: u64,
    in_flight: u64,
    during_open: u64,
}

fn parent() -> Result<()> {
    let (rounds, seed) = (number("TOOLONCE_CRASH_ROUNDS", 200)?, number("TOOLONCE_CRASH_SEED", 1)?);
    let (runtime, started) = (runtime()?, Instant::now());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tally = Tally::default();
    let mut directory = tempfile::tempdir()?;
    for round in 0..rounds {
        if round % ROUNDS_PER_STORE == 0 {
            directory = tempfile::tempdir()?;
        }
        let checked = kill_one(directory.path(), &mut random, &mut tally)
            .and_then(|()| runtime.block_on(verify(directory.path())));
        if let Err(error) = checked {
            let kept = directory.keep();
            return Err(format!("round {round} of seed {seed}: {error} (files kept in {})", kept.display()).into());
        }
    }
    let Tally { acknowledged, in_flight, during_open } = tally;
    println!(
        "crash: {rounds} kills, {in_flight} with commits in flight, {during_open} while opening, {acknowledged} \
         commits acknowledged, 0 lost, {:.1} s",
        started.elapsed().as_secs_f64()
    );
    if rounds >= 20 && in_flight < rounds / 2 {
        return Err("too few kills hit a commit in flight to prove anything".into());
    }
    Ok(())
}

/// Starts a child and kills it after a random number of events and a little more.
fn kill_one(directory: &Path, random: &mut fastrand::Rng, tally: &mut Tally) -> Result<()> {
    let mut child = Command::new(env::current_exe()?)
        .env(CHILD, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
    let events = if random.u8(..8) == 0 { 1 } else { random.usize(2..60) };
    let seen = lines.by_ref().take(events).collect::<Result<Vec<_>, _>>()?;
    let enough = seen.len() == events;
    spin(Duration::from_micros(random.u64(..if events == 1 { 30_000 } else { 3_000 })));
    child.kill()?;
    let seen = seen.into_iter().chain(lines.map_while(|line| line.ok())).collect::<Vec<_>>();
    let output = child.wait_with_output()?;
    if !enough || output.status.code().is_some() {
        return Err(format!("the child ended by itself: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let count = |word| seen.iter().filter(|line| line.starts_with(word)).count() as u64;
    let answered = count("acknowledged") + count("ordered");
    tally.acknowledged += count("acknowledged");
    tally.in_flight += u64::from(count("begin") > answered);
    tally.during_open += u64::from(count("begin") == 0);
    Ok(())
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        hint::spin_loop();
    }
}

async fn verify(directory: &Path) -> Result<()> {
    let acknowledged = read_log(&log_path(directory))?;
    let store = SledStore::open(store_path(directory)).await?;
    for task in 0..TASKS {
        let (pieces, index) = (read(&store, PIECE, task).await?, read(&store, INDEX, task).await?);
        let end = end(&index);
        let needed = acknowledged.get(&task).map_or(0, |last| last + 1);
        if end < needed {
            return Err(format!("task {task}: {needed} records were acknowledged, {end} are there").into());
        }
        for (kind, found) in [(PIECE, pieces), (INDEX, index)] {
            let expected = places(end.saturating_sub(KEEP)..end).filter(|(found, _)| *found == kind);
            let expected = expected.map(|(_, place)| place).collect::<Vec<_>>();
            let kind_name = char::from(kind);
            if !found.keys().eq(&expected) {
                let found = found.keys().collect::<Vec<_>>();
                return Err(format!("task {task}: of {kind_name} {expected:?} there are {found:?}").into());
            }
            if let Some((place, _)) = found.iter().find(|(place, value)| **value != contents(kind, task, **place)) {
                return Err(format!("task {task}: {kind_name} {place:?} has other bytes").into());
            }
        }
    }
    Ok(store.close().await?)
}

/// The highest acknowledged record of each task.
fn read_log(path: &Path) -> Result<BTreeMap<u64, u64>> {
    let mut highest = BTreeMap::new();
    let text = if path.try_exists()? { fs::read_to_string(path)? } else { String::new() };
    // A line without its end was being written when the kill came.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (task, record) = line.split_once(' ').ok_or("a line of the log has no space")?;
        highest.insert(task.parse()?, record.parse()?);
    }
    Ok(highest)
}

/// The number of the first record that isn't there.
fn end(index: &BTreeMap<Place, Vec<u8>>) -> u64 {
    index.last_key_value().map_or(0, |((last, _), _)| last + 1)
}

/// All values of a kind and task.
async fn read(store: &SledStore, kind: u8, task: u64) -> Result<BTreeMap<Place, Vec<u8>>> {
    let prefix = [&[kind][..], &task.to_be_bytes()].concat();
    let mut found = BTreeMap::new();
    let mut from = None;
    loop {
        let page = store.scan(&prefix, from, 64).await?;
        for (key, value) in page.items {
            let (rest, piece) = key.as_bytes().split_last_chunk().ok_or("a key is too short")?;
            let record = rest.last_chunk().ok_or("a key is too short")?;
            found.insert((u64::from_be_bytes(*record), u64::from_be_bytes(*piece)), value.value);
        }
        from = page.next;
        if from.is_none() {
            return Ok(found);
        }
    }
}

fn store_path(directory: &Path) -> PathBuf {
    directory.join("store")
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("acknowledged")
}

//! Kills while a store without a guard commits, deletes and cleans up after itself.
//!
//! The child commits from several tasks at once, `Synced` and `Ordered` mixed, records of one or many pieces from 16
//! bytes to 60 KB with an index entry each, and writes each acknowledged `Synced` commit to a synced log beside the
//! store. Old records are deleted, so that sled moves what is left and reuses the space. After a random number of events
//! it is killed, or as soon as the journal in front of sled is being taken in, or a little later; then, task by task:
//!
//! - nothing acknowledged is missing, and nothing before it either (an `Ordered` commit is never durable later than a
//!   `Synced` one after it);
//! - pieces and index entries are there together, whole, and those that a later commit deleted are gone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use toolonce::store::{Batch, Committed, Durability, Key, SledStore, Store};

use super::spin;
use crate::summary::{Findings, Kind, Summary};
use crate::workload::STORE;
use crate::{Group, Settings};

const TASKS: u64 = 6;
/// Events after which what was there at the opening is taken in.
const BEFORE_TAKE_IN: usize = 20;
const PIECE: u8 = b'p';
const INDEX: u8 = b'i';
/// How many records of each task stay; each commit deletes the one that falls out.
const KEEP: u64 = 6;
const SIZES: Range<usize> = 16..60_000;
/// Every so many records one has [`MANY`] pieces, as a large result does.
const LARGE_EVERY: u64 = 12;
const MANY: u64 = 16;

/// A key: record and piece of a task.
type Place = (u64, u64);

/// A child process: commits until it is killed.
///
/// # Errors
/// If anything goes wrong before that.
pub fn child(directory: &Path) -> anyhow::Result<()> {
    crate::runtime()?.block_on(work(directory))
}

async fn work(directory: &Path) -> anyhow::Result<()> {
    println!("opening");
    let store = Arc::new(SledStore::open(directory.join(STORE)).await?);
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
async fn append(store: Arc<SledStore>, acknowledged: Arc<Mutex<File>>, task: u64, first: u64) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::new();
    for record in first.. {
        let durability = if random.u8(..3) == 0 { Durability::Ordered } else { Durability::Synced };
        println!("begin {task} {record}");
        match store.commit(batch(task, record), durability).await? {
            Committed::Applied(_) if durability == Durability::Synced => {
                let mut log = acknowledged.lock().map_err(|_| anyhow::anyhow!("another task panicked"))?;
                log.write_all(format!("{task} {record}\n").as_bytes())?;
                log.sync_data()?;
                println!("acknowledged {task} {record}");
            }
            Committed::Applied(_) => println!("ordered {task} {record}"),
            Committed::Conflict(found) => bail!("record {record} conflicts: {found:?}"),
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

/// The kills of one store.
pub(super) fn kills(group: &Group<'_>, directory: &Path, summary: &mut Summary) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let mut random = fastrand::Rng::with_seed(group.seed());
    for kill in 0..group.cases {
        // What a kill is to hit is there in almost every one; the rest isn't counted.
        let (mut tries, at_take_in) = (0, random.u8(..4) == 0);
        let hit = loop {
            let hit = kill_once(group.settings, directory, &mut random, at_take_in)
                .with_context(|| format!("kill {kill}"))?;
            tries += 1;
            ensure!(tries < 50, "no child could be killed with a commit in flight");
            if let Some(hit) = hit {
                break hit;
            }
        };
        summary.hit(hit);
        let found = runtime.block_on(verify(directory))?;
        summary.add(found, format_args!("kill {kill}, {hit}: {group}"));
    }
    Ok(())
}

/// Starts a child and kills it after a random number of events and a little more; tells what that hit.
fn kill_once(
    settings: &Settings,
    directory: &Path,
    random: &mut fastrand::Rng,
    at_take_in: bool,
) -> anyhow::Result<Option<&'static str>> {
    let mut child = Command::new(&settings.program)
        .args(["commits-child".as_ref(), directory.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    let events = if at_take_in {
        BEFORE_TAKE_IN
    } else if random.u8(..8) == 0 {
        1
    } else {
        random.usize(2..60)
    };
    let mut seen = lines.by_ref().take(events).collect::<Result<Vec<_>, _>>()?;
    let mut enough = seen.len() == events;
    while enough && at_take_in && journals(directory)? < 2 {
        let line = lines.next().transpose()?;
        enough = line.is_some();
        seen.extend(line);
    }
    spin(Duration::from_micros(random.u64(..if events == 1 { 15_000 } else { 3_000 })));
    child.kill()?;
    let seen = seen.into_iter().chain(lines.map_while(|line| line.ok())).collect::<Vec<_>>();
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(enough && output.status.code().is_none(), "the child ended by itself: {said}");
    let count = |word| seen.iter().filter(|line| line.starts_with(word)).count();
    let in_flight = count("begin") > count("acknowledged") + count("ordered");
    if at_take_in {
        return Ok((journals(directory)? > 1).then_some("journal-taken-in"));
    }
    Ok(match (count("begin"), in_flight) {
        (0, _) => Some("during-open"),
        (_, true) => Some("commit-in-flight"),
        (_, false) => None,
    })
}

/// How many files the journal has: more than one while sled takes in what came before.
fn journals(directory: &Path) -> anyhow::Result<usize> {
    let names = fs::read_dir(directory.join(STORE))?.collect::<Result<Vec<_>, _>>()?;
    Ok(names.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("toolonce.journal.")).count())
}

async fn verify(directory: &Path) -> anyhow::Result<Findings> {
    let acknowledged = read_log(&log_path(directory))?;
    let mut findings = Findings::default();
    let store = match SledStore::open(directory.join(STORE)).await {
        Ok(store) => store,
        Err(error) => {
            findings.add(Kind::Unexplained, format!("the store doesn't open: {error}"));
            return Ok(findings);
        }
    };
    for task in 0..TASKS {
        let needed = acknowledged.get(&task).map_or(0, |last| last + 1);
        findings.acknowledged += needed.min(KEEP);
        let (pieces, index) = (read(&store, PIECE, task).await?, read(&store, INDEX, task).await?);
        if let Err((kind, wrong)) = verify_task(task, needed, &pieces, &index) {
            findings.add(kind, wrong);
        }
    }
    store.close().await?;
    Ok(findings)
}

type Found = BTreeMap<Place, Vec<u8>>;

fn verify_task(task: u64, needed: u64, pieces: &Found, index: &Found) -> Result<(), (Kind, String)> {
    let end = end(index);
    if end < needed {
        return Err((Kind::Lost, format!("task {task}: {needed} records were acknowledged, {end} are there")));
    }
    for (kind, found) in [(PIECE, pieces), (INDEX, index)] {
        let expected = places(end.saturating_sub(KEEP)..end).filter(|(found, _)| *found == kind);
        let expected = expected.map(|(_, place)| place).collect::<Vec<_>>();
        let name = char::from(kind);
        if !found.keys().eq(&expected) {
            let found = found.keys().collect::<Vec<_>>();
            return Err((Kind::Lost, format!("task {task}: of {name} {expected:?} there are {found:?}")));
        }
        if let Some((place, _)) = found.iter().find(|(place, value)| **value != contents(kind, task, **place)) {
            return Err((Kind::Lost, format!("task {task}: {name} {place:?} has other bytes")));
        }
    }
    Ok(())
}

/// The highest acknowledged record of each task.
fn read_log(path: &Path) -> anyhow::Result<BTreeMap<u64, u64>> {
    let mut highest = BTreeMap::new();
    let text = if path.try_exists()? { fs::read_to_string(path)? } else { String::new() };
    // A line without its end was being written when the kill came.
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (task, record) = line.split_once(' ').context("a line of the log has no space")?;
        highest.insert(task.parse()?, record.parse()?);
    }
    Ok(highest)
}

/// The number of the first record that isn't there.
fn end(index: &Found) -> u64 {
    index.last_key_value().map_or(0, |((last, _), _)| last + 1)
}

/// All values of a kind and task.
async fn read(store: &SledStore, kind: u8, task: u64) -> anyhow::Result<Found> {
    let prefix = [&[kind][..], &task.to_be_bytes()].concat();
    let mut found = BTreeMap::new();
    let mut from = None;
    loop {
        let page = store.scan(&prefix, from, 64).await?;
        for (key, value) in page.items {
            let (rest, piece) = key.as_bytes().split_last_chunk().context("a key is too short")?;
            let record = rest.last_chunk().context("a key is too short")?;
            found.insert((u64::from_be_bytes(*record), u64::from_be_bytes(*piece)), value.value);
        }
        from = page.next;
        if from.is_none() {
            return Ok(found);
        }
    }
}

fn log_path(directory: &Path) -> PathBuf {
    directory.join("acknowledged")
}

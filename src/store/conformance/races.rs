//! What many callers see at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::super::{Batch, Committed, Durability, Store, Version, Versioned};
use super::{Check, Outcome, applied, conflict, ensure, get, key, put, put_if, same, text};

pub(super) const CHECKS: &[Check] = checks! {
    "of 64 racing claims one wins" => claims,
    "batches over several keys don't mix" => pairs,
    "every key is linearizable" => linearizable,
    "a dropped caller's commit is whole or not there" => dropped,
    "a waiter is woken by a change" => woken,
};

/// Waits for all tasks; the first error is the answer.
async fn all(mut tasks: JoinSet<Outcome>) -> Outcome {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|error| format!("a task ended early: {error}"))??;
    }
    Ok(())
}

/// All of many callers claim one key at once. The winner's record is in hand of every loser when it is told that it
/// lost.
async fn claims(store: Arc<dyn Store>) -> Outcome {
    for round in 0..4 {
        let name = format!("claim{round}");
        let mut racers = JoinSet::new();
        for racer in 0..64_u8 {
            let (store, batch) = (Arc::clone(&store), put_if(&name, None, &[racer]));
            racers.spawn(async move { (racer, store.commit(batch, Durability::Synced).await) });
        }
        let (mut won, mut lost) = (Vec::new(), Vec::new());
        while let Some(done) = racers.join_next().await {
            let (racer, result) = done.map_err(|error| format!("a task ended early: {error}"))?;
            match result.map_err(text)? {
                Committed::Applied(version) => won.push(Versioned { version, value: vec![racer] }),
                Committed::Conflict(found) => lost.push(found),
            }
        }
        same("number of winners", won.len(), 1)?;
        let record = won.pop();
        for found in lost {
            same("what a loser is told", found, vec![record.clone()])?;
        }
        same("what is stored", get(&*store, &name).await?, record)?;
    }
    Ok(())
}

/// Two keys that are always written together never differ.
async fn pairs(store: Arc<dyn Store>) -> Outcome {
    let names = [key("left"), key("right")];
    let mut tasks = JoinSet::new();
    for task in 0..8_u8 {
        let (store, names) = (Arc::clone(&store), names.clone());
        tasks.spawn(async move {
            for round in 0..8 {
                let puts = names.iter().map(|name| (name.clone(), vec![task, round])).collect();
                let durability = if round % 2 == 0 { Durability::Synced } else { Durability::Ordered };
                store.commit(Batch { puts, ..Batch::default() }, durability).await.map_err(text)?;
                // A conflict reads both in one step.
                let checks = names.iter().map(|name| (name.clone(), None)).collect();
                let found = conflict(&*store, Batch { checks, ..Batch::default() }).await?;
                same("the second of two keys written together", &found[1], &found[0])?;
            }
            Ok(())
        });
    }
    all(tasks).await
}

const COUNTERS: usize = 4;

/// Counters under load from conditional increments and reads. A read may not be older than what was acknowledged before
/// it began, and no increment may be lost.
async fn linearizable(store: Arc<dyn Store>) -> Outcome {
    let counters: Arc<[Counter; COUNTERS]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..16_u64 {
        let (store, counters) = (Arc::clone(&store), Arc::clone(&counters));
        tasks.spawn(async move {
            let mut random = fastrand::Rng::with_seed(task);
            for _ in 0..24 {
                let which = random.usize(..COUNTERS);
                let durability = if random.bool() { Durability::Synced } else { Durability::Ordered };
                let name = format!("counter{which}");
                counters[which].step(&*store, &name, durability, random.bool()).await?;
            }
            Ok(())
        });
    }
    all(tasks).await?;
    for (which, counter) in counters.iter().enumerate() {
        let (_, count) = read_count(get(&*store, format!("counter{which}")).await?)?;
        same(format_args!("counter {which} after all increments"), count, counter.increments.load(Ordering::Acquire))?;
    }
    Ok(())
}

#[derive(Default)]
struct Counter {
    /// The highest count that some caller was told.
    told: AtomicU64,
    increments: AtomicU64,
}

impl Counter {
    async fn step(&self, store: &dyn Store, name: &str, durability: Durability, write: bool) -> Outcome {
        let told = self.told.load(Ordering::Acquire);
        let (version, count) = read_count(get(store, name).await?)?;
        ensure(count >= told, || format!("{name}: {told} was told before a read that found {count}"))?;
        self.told.fetch_max(count, Ordering::AcqRel);
        if !write {
            return Ok(());
        }
        let batch = put_if(name, version, &(count + 1).to_be_bytes());
        match store.commit(batch, durability).await.map_err(text)? {
            Committed::Applied(now) => {
                ensure(Some(now) > version, || format!("{name}: version {version:?} was followed by {now:?}"))?;
                self.increments.fetch_add(1, Ordering::AcqRel);
                self.told.fetch_max(count + 1, Ordering::AcqRel);
                Ok(())
            }
            Committed::Conflict(found) => {
                let (now, found) = read_count(found.into_iter().next().flatten())?;
                let newer = now > version && found > count;
                ensure(newer, || format!("{name}: {count} at {version:?} conflicts with {found} at {now:?}"))
            }
        }
    }
}

fn read_count(found: Option<Versioned>) -> Result<(Option<Version>, u64), String> {
    let Some(Versioned { version, value }) = found else {
        return Ok((None, 0));
    };
    let bytes = value.try_into().map_err(|value| format!("a count comes back as {value:?}"))?;
    Ok((Some(version), u64::from_be_bytes(bytes)))
}

async fn dropped(store: Arc<dyn Store>) -> Outcome {
    for round in 0..16_u64 {
        let names = ["left", "right"].map(|side| key(format!("{side}{round}")));
        let puts = names.iter().map(|name| (name.clone(), vec![1; 1000])).collect();
        let handle = Arc::clone(&store);
        let batch = Batch { puts, ..Batch::default() };
        let caller = tokio::spawn(async move { handle.commit(batch, Durability::Synced).await });
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        caller.abort();
        // Whatever was enqueued is decided before this.
        applied(&*store, put("barrier", b"")).await?;
        let found = store.get(&names).await.map_err(text)?;
        same("the second of two keys written together", &found[1], &found[0])?;
    }
    Ok(())
}

async fn woken(store: Arc<dyn Store>) -> Outcome {
    let keys = [key("waited"), key("other")];
    let Some(waiting) = store.changed(&keys) else {
        return Ok(());
    };
    // Subscribed before the change, polled after it.
    applied(&*store, put("waited", b"1")).await?;
    waiting.await;
    let Some(waiting) = store.changed(&keys) else {
        return Err("a signal that was there is gone".to_owned());
    };
    let handle = Arc::clone(&store);
    let writer = tokio::spawn(async move { applied(&*handle, put("other", b"1")).await });
    waiting.await;
    writer.await.map_err(|error| format!("a task ended early: {error}"))?.map(drop)
}

//! Equal calls that wait for one execution.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use toolonce::store::SledStore;
use toolonce::{Call, Guard, Policy, Registry, Run, ToolError, value_tool};

use super::{Bench, ROUNDS};
use crate::counted::Counted;
use crate::stats::{Times, median};
use crate::table::{Row, Unit};

/// How many equal calls are made at once.
const JOINERS: usize = 1000;

/// How long they have to come: the execution ends after that.
const ARRIVAL: Duration = Duration::from_millis(200);

/// The slowest hundredth of the answers' times since the outcome was safe, and all effects.
async fn measured(directory: PathBuf) -> anyhow::Result<(f64, usize)> {
    let (store, counts) = Counted::new(Arc::new(SledStore::open(directory.join("store")).await?));
    let guard = Guard::builder(store, "shop").build().await?;
    let (gate, ledger) = (Arc::new(Semaphore::new(0)), directory.join("ledger"));
    let mut tools = Registry::new(&guard);
    let schema = serde_json::json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let body = {
        let (gate, ledger) = (Arc::clone(&gate), ledger.clone());
        move |_, _| {
            let (gate, ledger) = (Arc::clone(&gate), ledger.clone());
            async move {
                gate.acquire().await?.forget();
                let mut file = File::options().append(true).create(true).open(ledger)?;
                file.write_all(b"charged\n")?;
                file.sync_data()?;
                Ok::<_, ToolError>("charged".into())
            }
        }
    };
    tools.add(value_tool("charge", "Charges", schema, Policy::write(), body))?;
    let tools = Arc::new(tools);
    let run = Run::start(&guard, "run").await?;
    let mut slowest = Vec::new();
    for round in 0..ROUNDS {
        let mut joiners = JoinSet::new();
        for _ in 0..JOINERS {
            let (tools, run) = (Arc::clone(&tools), run.clone());
            joiners.spawn(async move {
                let call = Call::new("charge", format!(r#"{{"n":{round}}}"#)).turn(round as u32);
                let reply = tools.call(&run, call).await;
                (Instant::now(), reply.outcome().is_some_and(|outcome| outcome.text() == r#""charged""#))
            });
        }
        tokio::time::sleep(ARRIVAL).await;
        gate.add_permits(1);
        let mut answered = Vec::new();
        while let Some(done) = joiners.join_next().await {
            let (at, is_it) = done?;
            ensure!(is_it, "a joiner got no outcome");
            answered.push(at);
        }
        let completed = counts.completed().context("nothing was recorded")?;
        let mut times = Times::default();
        answered.iter().for_each(|at| times.add(at.saturating_duration_since(completed)));
        slowest.push(times.quantile(0.99));
    }
    guard.shutdown(Duration::from_secs(10)).await?;
    let effects = std::fs::read_to_string(ledger)?.lines().count();
    Ok((median(slowest), effects))
}

pub(super) fn rows(bench: &Bench, directory: &Path) -> anyhow::Result<Vec<Row>> {
    let (slowest, effects) = bench.on_a_worker(measured(directory.to_owned()))?;
    Ok(vec![
        Row::new("1,000 joiners, p99 after completion", slowest / 1000.0, Unit::Millis).at_most(2.0),
        Row::new("1,000 joiners, effects of an execution", effects as f64 / ROUNDS as f64, Unit::Count).at_most(1.0),
    ])
}

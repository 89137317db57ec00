//! Equal calls that race: for their effect, at its end, and while their leader panics, its caller leaves or the runtime is
//! shut down; and tools that call the guard from inside.
//!
//! `tests/shuttle` tries the flight of one process in every order; here real threads race, often, through the whole guard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Barrier, Semaphore};
use toolonce::store::MemoryStore;
use toolonce::{Attempt, Call, Guard, Policy, Registry, Reply, ReplyKind, Run, ToolError, value_tool};

use crate::Settings;
use crate::stage::result;
use crate::summary::{Findings, Kind, Summary};

/// Calls of one race.
const CALLS: u64 = 1_000;
/// A race takes milliseconds.
const HANGS: Duration = Duration::from_secs(60);

/// What a race is about.
#[derive(Debug, Clone, Copy)]
enum About {
    /// 1,000 equal calls over so many tasks.
    Equal(u64),
    /// Calls that come while the outcome is being published.
    AtPublish,
    /// The execution panics.
    Panics,
    /// Callers leave at any moment.
    Leaving,
    /// The runtime is shut down in the middle of a call.
    ShutDown,
    /// A tool calls itself, another tool, and itself through another one.
    Nested,
}

impl About {
    const ALL: [Self; 11] = [
        Self::Equal(1),
        Self::Equal(2),
        Self::Equal(8),
        Self::Equal(64),
        Self::AtPublish,
        Self::AtPublish,
        Self::Panics,
        Self::Leaving,
        Self::Leaving,
        Self::ShutDown,
        Self::Nested,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Equal(_) => "equal calls",
            Self::AtPublish => "at publish",
            Self::Panics => "leader panics",
            Self::Leaving => "callers leave",
            Self::ShutDown => "runtime shut down",
            Self::Nested => "nested",
        }
    }
}

/// Races, round after round.
///
/// # Errors
/// If a race could not be held.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let size = About::ALL.len() as u64;
    let cases = settings.cases(size * 2, size * 20, size * 400);
    settings.each_group(("races", "race"), (cases, size), |group, summary| {
        let mut random = fastrand::Rng::with_seed(group.seed());
        for about in About::ALL.into_iter().take(usize::try_from(group.cases)?) {
            let mut found = Findings::default();
            race(about, &mut random, &mut found)?;
            summary.hit(about.name());
            summary.add(found, format_args!("{group}: {about:?}"));
        }
        Ok(())
    })
}

fn race(about: About, random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<()> {
    if matches!(about, About::ShutDown) {
        return shut_down(random, found);
    }
    let runtime = threads()?;
    runtime.block_on(async {
        let race = async {
            match about {
                About::Equal(tasks) => equal(tasks, found).await,
                About::AtPublish => at_publish(random, found).await,
                About::Panics => panics(found).await,
                About::Leaving => leaving(random, found).await,
                About::Nested => nested(found).await,
                About::ShutDown => Ok(()),
            }
        };
        tokio::time::timeout(HANGS, race).await.context("a race hangs")?
    })
}

fn threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(4).enable_all().build()
}

/// A guard with one slow tool, whose executions are counted.
#[derive(Clone)]
struct Track {
    tools: Registry,
    run: Run,
    effects: Arc<AtomicU64>,
    /// Permits to end.
    gate: Arc<Semaphore>,
    begun: Arc<Semaphore>,
}

impl Track {
    async fn new(store: MemoryStore, panics: bool) -> anyhow::Result<Self> {
        let guard = Guard::builder(store, "race").build().await?;
        let mut tools = Registry::new(&guard);
        let (effects, gate, begun) =
            (Arc::<AtomicU64>::default(), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let world = (Arc::clone(&effects), Arc::clone(&gate), Arc::clone(&begun));
        let body = move |_: Value, _: Attempt| {
            let (effects, gate, begun) = world.clone();
            async move {
                let n = effects.fetch_add(1, Ordering::SeqCst);
                begun.add_permits(1);
                gate.acquire().await.map_err(ToolError::unknown)?.forget();
                assert!(!panics, "on purpose");
                Ok(json!({"effect": n}))
            }
        };
        tools.add(value_tool("pay", "", json!({"type": "object"}), Policy::write(), body))?;
        let run = Run::start_or_resume(&guard, "run", toolonce::Seen::Nothing).await?;
        Ok(Self { tools, run, effects, gate, begun })
    }

    async fn call(&self) -> Reply {
        self.tools.call(&self.run, Call::new("pay", r#"{"order": 1}"#).turn(0).id("a")).await
    }

    fn effects(&self) -> u64 {
        self.effects.load(Ordering::SeqCst)
    }

    /// One effect, and everybody has its outcome.
    fn judge(&self, replies: &[Reply], found: &mut Findings) {
        let effects = self.effects();
        if effects != 1 {
            found.add(Kind::Twice, format!("{effects} effects"));
        }
        found.acknowledged += replies.len() as u64;
        let other = replies.iter().filter(|reply| result(reply) != Some(r#"{"effect":0}"#));
        for reply in other {
            found.add(Kind::Lost, format!("answered {}: {:.200}", reply.kind(), reply.message()));
        }
    }
}

async fn equal(tasks: u64, found: &mut Findings) -> anyhow::Result<()> {
    let track = Track::new(MemoryStore::new(), false).await?;
    track.gate.add_permits(1);
    let start = Arc::new(Barrier::new(usize::try_from(tasks)?));
    let racers: Vec<_> = (0..tasks)
        .map(|n| {
            let (track, start) = (track.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let mut replies = Vec::new();
                for _ in (n..CALLS).step_by(usize::try_from(tasks).unwrap_or(1)) {
                    replies.push(track.call().await);
                }
                replies
            })
        })
        .collect();
    let mut replies = Vec::new();
    for racer in racers {
        replies.extend(racer.await?);
    }
    anyhow::ensure!(replies.len() as u64 == CALLS, "only {} calls were made", replies.len());
    let executed = replies.iter().filter(|reply| reply.kind() == ReplyKind::Executed).count();
    if executed != 1 {
        found.add(Kind::Unexplained, format!("{executed} calls are told that they were executed"));
    }
    track.judge(&replies, found);
    Ok(())
}

/// The gate is opened and calls come in at the same time, from other threads, a little earlier or later.
async fn at_publish(random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<()> {
    for _ in 0..20 {
        let track = Track::new(MemoryStore::new(), false).await?;
        let leader = {
            let track = track.clone();
            tokio::spawn(async move { track.call().await })
        };
        track.begun.acquire().await?.forget();
        let start = Arc::new(Barrier::new(5));
        let joiners: Vec<_> = (0..4)
            .map(|_| {
                let (track, start, spins) = (track.clone(), Arc::clone(&start), random.u32(..2_000));
                tokio::spawn(async move {
                    start.wait().await;
                    (0..spins).for_each(|_| std::hint::spin_loop());
                    track.call().await
                })
            })
            .collect();
        start.wait().await;
        track.gate.add_permits(1);
        let mut replies = vec![leader.await?];
        for joiner in joiners {
            replies.push(joiner.await?);
        }
        track.judge(&replies, found);
    }
    Ok(())
}

/// Nobody waits for ever for a leader that panicked, nobody starts anew, and everybody is told that it isn't known.
async fn panics(found: &mut Findings) -> anyhow::Result<()> {
    let track = Track::new(MemoryStore::new(), true).await?;
    let racers: Vec<_> = (0..50)
        .map(|_| {
            let track = track.clone();
            tokio::spawn(async move { track.call().await })
        })
        .collect();
    track.begun.acquire().await?.forget();
    track.gate.add_permits(1);
    for racer in racers {
        let reply = racer.await?;
        if reply.kind() != ReplyKind::InDoubt {
            found.add(Kind::Unexplained, format!("answered {}: {:.200}", reply.kind(), reply.message()));
        }
    }
    if track.effects() != 1 {
        found.add(Kind::Twice, format!("{} effects", track.effects()));
    }
    Ok(())
}

/// Whoever leaves cancels nothing: who stays gets the outcome.
async fn leaving(random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<()> {
    for _ in 0..20 {
        let track = Track::new(MemoryStore::new(), false).await?;
        let racers: Vec<_> = (0..8)
            .map(|_| {
                let track = track.clone();
                tokio::spawn(async move { track.call().await })
            })
            .collect();
        if random.bool() {
            track.begun.acquire().await?.forget();
        }
        let stays = random.usize(..8);
        let leave = |racers: &Vec<tokio::task::JoinHandle<Reply>>| {
            racers.iter().enumerate().filter(|(n, _)| *n != stays).for_each(|(_, racer)| racer.abort());
        };
        let early = random.bool();
        if early {
            leave(&racers);
        }
        track.gate.add_permits(1);
        if !early {
            leave(&racers);
        }
        for (n, racer) in racers.into_iter().enumerate() {
            if n == stays {
                track.judge(&[racer.await?], found);
            }
        }
        track.judge(&[track.call().await], found);
    }
    Ok(())
}

/// A runtime that is shut down while calls are under way: after a restart the effect is in doubt, never repeated.
fn shut_down(random: &mut fastrand::Rng, found: &mut Findings) -> anyhow::Result<()> {
    let store = MemoryStore::new();
    let runtime = threads()?;
    let track = runtime.block_on(Track::new(store.clone(), false))?;
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let track = track.clone();
            runtime.spawn(async move { track.call().await })
        })
        .collect();
    let has_begun = random.bool();
    if has_begun {
        runtime.block_on(track.begun.acquire())?.forget();
    }
    runtime.shutdown_background();
    drop(racers);
    let effects = track.effects();
    drop(track);
    let runtime = threads()?;
    let reply = runtime.block_on(async {
        let track = Track::new(store.reopen(), false).await?;
        track.gate.add_permits(1);
        let reply = tokio::time::timeout(HANGS, track.call()).await.context("hangs after a restart")?;
        anyhow::Ok((reply, track.effects()))
    });
    let (reply, later) = reply?;
    // What began after the count was taken is in doubt as well.
    let explained = match reply.kind() {
        ReplyKind::InDoubt => later == 0,
        ReplyKind::Executed => later == 1 && effects == 0,
        _ => false,
    };
    if !explained {
        let told =
            format!("{effects} effects before, {later} after, answered {}: {:.200}", reply.kind(), reply.message());
        found.add(if later > 0 { Kind::Twice } else { Kind::Unexplained }, told);
    }
    Ok(())
}

/// What nested calls are told: a tool that comes to wait for itself gets a clear error, any other a result.
async fn nested(found: &mut Findings) -> anyhow::Result<()> {
    let guard = Guard::builder(MemoryStore::new(), "nested").build().await?;
    let run = Run::start(&guard, "run").await?;
    let all: Arc<OnceLock<Registry>> = Arc::default();
    let mut tools = Registry::new(&guard);
    let leaf = |_: Value, _: Attempt| std::future::ready(Ok(json!({"kind": "leaf"})));
    tools.add(value_tool("leaf", "", json!({"type": "object"}), Policy::write(), leaf))?;
    for (name, to) in [("other", "leaf"), ("itself", "itself"), ("there", "back"), ("back", "there")] {
        let (all, run) = (Arc::clone(&all), run.clone());
        // Calls another tool, with its own arguments.
        let body = move |args: Value, _: Attempt| {
            let (all, run) = (Arc::clone(&all), run.clone());
            async move {
                let tools = all.get().ok_or_else(|| ToolError::permanent("no tools"))?;
                let reply = tools.call(&run, Call::with_value(to, &args).turn(1)).await;
                Ok(json!({"kind": reply.kind().name(), "inside": reply.message()}))
            }
        };
        tools.add(value_tool(name, "", json!({"type": "object"}), Policy::write(), body))?;
    }
    all.set(tools.clone()).ok().context("set once")?;
    for (name, inside) in [("other", r#""kind":"executed""#), ("itself", "refused"), ("there", "refused")] {
        let reply = tools.call(&run, Call::new(name, r#"{"n": 1}"#).turn(0)).await;
        found.acknowledged += 1;
        let told = result(&reply).unwrap_or_default();
        if reply.kind() != ReplyKind::Executed || !told.contains(inside) {
            found.add(Kind::Unexplained, format!("nested, {name}: {}: {:.300}", reply.kind(), reply.message()));
        }
    }
    Ok(())
}

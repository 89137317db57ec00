//! The guard against the protocol alone: random stories, told to a real guard on a real store and, side by side, to the
//! pure functions of [`toolonce::protocol`] with the least around them ([`pure`], [`drive`], [`attempt`], [`hear`]). After each step
//! everything is compared that anybody outside can see: what each caller hears (kind, marked or not, result, which unit of
//! work), which bodies began with which attempt number and arguments, what had an effect under which downstream key, what
//! the inbox shows, which questions wait, and how a person's word is taken. Effects are counted by the tools.
//!
//! A story has one run, one process at a time, tools of each kind of policy ([`story::Tool`]) and, in any order: calls with
//! and without turns and ids, equal ones and ones with other arguments, alone, several at a time and as whole messages that
//! are handed over again; bodies that succeed, fail (to be tried again at once, in a second, in an hour and a half, or
//! never), end unknown with or without an effect, or hang; look-ups that can't tell; callers that leave, lose their
//! patience, or say that the model didn't see a reply; hours that pass; the process dying and another that attaches or
//! resumes; people who settle what is in doubt by the ledger, and who approve and deny.
//!
//! Not in the stories: stores that fail or lose what wasn't synced (`pressed`, `store_down`, and `cargo chaos`), several
//! processes at a time (the explorers' `scenes`, and `cargo chaos owners`), forks, removal, reopening, look-alikes, results
//! in pieces, clocks that jump, reads that share or stand for a time, and what depends on which of two racing calls is
//! first: bodies go on one after the other, and nothing happens while anybody has something to do.
//!
//! `TOOLONCE_FUZZ=3600` tells for an hour. A story that differs is cut down to what it takes.

mod attempt;
mod drive;
mod hear;
mod pure;
mod story;
mod told;
mod world;

use std::collections::BTreeMap;

use fastrand::Rng;
use toolonce::store::MemoryStore;
use toolonce::{Clock, Reply, ReplyKind};

use pure::Pure;
use story::{Step, Story, Tool, Unit};
use told::{Disk, Pick, Told};

/// The run of every story.
const RUN: &str = "r";

/// An occurrence of a unit of work and the generation of its downstream key.
type Name = (usize, u32);

/// What a caller hears.
#[derive(Debug, Clone, PartialEq)]
struct Heard {
    kind: ReplyKind,
    is_marked: bool,
    /// The result, if it is known and kept.
    text: Option<String>,
    /// The unit of work that it stands for.
    name: Option<Name>,
}

/// How a person's word is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// There was nothing to say.
    Nothing,
    Taken,
    TooEarly,
    Refused,
}

/// What the stories came to, so that none of it is missing for good.
#[derive(Debug, Default)]
struct Tally {
    kinds: BTreeMap<&'static str, u32>,
    settled: BTreeMap<String, u32>,
    effects: usize,
}

impl Tally {
    fn add(&mut self, other: Self) {
        other.kinds.into_iter().for_each(|(kind, n)| *self.kinds.entry(kind).or_default() += n);
        other.settled.into_iter().for_each(|(word, n)| *self.settled.entry(word).or_default() += n);
        self.effects += other.effects;
    }
}

/// Which downstream key goes with which name; one with one.
#[derive(Default)]
struct Names(BTreeMap<(Unit, Name), String>);

impl Names {
    fn learn(&mut self, unit: Unit, name: Name, key: &str) -> Result<(), String> {
        self.0.entry((unit, name)).or_insert_with(|| key.to_owned());
        let of_key = self.0.iter().filter(|(_, other)| *other == key).count();
        let ok = self.0[&(unit, name)] == key && of_key == 1;
        if ok { Ok(()) } else { Err(format!("{unit:?} {name:?} was sent under {key}; known are {:?}", self.0)) }
    }
}

/// The first difference, if there is one.
async fn differs(story: &Story, disk: Disk, tally: &mut Tally) -> Result<(), String> {
    let mut told = Told::new(story, disk).await;
    let mut pure = Pure::new(story, told.clock.wall());
    let mut names = Names::default();
    let mut is_sure = false;
    for (at, step) in story.steps.iter().enumerate() {
        let pick = pick(step, &pure, &names, &told).await?;
        let (replies, settled) = told.tell(step, &pick).await;
        let (heard, expected) = pure.tell(step);
        let context = || format!("step {at}, {step:?}");
        if settled != expected {
            return Err(format!("{}: a person's word is {settled:?}, not {expected:?}", context()));
        }
        is_sure |= matches!(step, Step::Settle(_, true));
        compare_begun(&pure, &told, &mut names).map_err(|why| format!("{}: {why}", context()))?;
        compare_replies(&replies, &heard, step, story, &names).map_err(|why| format!("{}: {why}", context()))?;
        compare_open(&pure, &told, &names).await.map_err(|why| format!("{}: {why}", context()))?;
        for reply in replies.iter().flatten() {
            *tally.kinds.entry(reply.kind().name()).or_default() += 1;
        }
        if let Some(settled) = settled {
            *tally.settled.entry(format!("{settled:?}")).or_default() += 1;
        }
    }
    let effects = told.world.with(|world| world.effects.clone());
    tally.effects += effects.values().map(Vec::len).sum::<usize>();
    // Whatever the model says: who looked where it would show, in time, never made a write happen twice.
    for (unit, keys) in effects.iter().filter(|(unit, _)| is_write(unit.0)) {
        let mut sorted = keys.clone();
        sorted.sort();
        sorted.dedup();
        if !is_sure && (sorted.len() < keys.len() || told.incidents() > 0) {
            return Err(format!("{unit:?} happened twice under one key: {keys:?}"));
        }
    }
    Ok(())
}

fn is_write(tool: Tool) -> bool {
    tool.policy().effect() == toolonce::Effect::Write
}

/// Whom the person of this step speaks of.
async fn pick(step: &Step, pure: &Pure<'_>, names: &Names, told: &Told<'_>) -> Result<Pick, String> {
    match step {
        Step::Settle(nth, _) => {
            let doubts = pure.doubts();
            let Some((unit, name)) = (!doubts.is_empty()).then(|| doubts[nth % doubts.len()]) else {
                return Ok(Pick::Nothing);
            };
            let reference = names.0.get(&(unit, name)).ok_or("what was never sent is in doubt")?.clone();
            Ok(Pick::Call { unit, reference })
        }
        Step::Permit(nth, _) => {
            let questions = told.questions().await;
            let at = (!questions.is_empty()).then(|| nth % questions.len());
            Ok(at.map_or(Pick::Nothing, |at| Pick::Question(questions[at].2.clone())))
        }
        _ => Ok(Pick::Nothing),
    }
}

fn compare_begun(pure: &Pure<'_>, told: &Told<'_>, names: &mut Names) -> Result<(), String> {
    let (begun, effects) = told.world.with(|world| (world.begun.clone(), world.effects.clone()));
    let units: Vec<Unit> = begun.keys().chain(pure.begun.keys()).copied().collect();
    for unit in units {
        let (is, should) = (begun.get(&unit).cloned().unwrap_or_default(), pure.begun.get(&unit));
        let should = should.cloned().unwrap_or_default();
        let of = |all: &[(Name, u64, u8)]| all.iter().map(|(_, fence, note)| (*fence, *note)).collect::<Vec<_>>();
        let bodies: Vec<(u64, u8)> = is.iter().map(|(_, fence, note)| (*fence, *note)).collect();
        if bodies != of(&should) {
            return Err(format!("bodies of {unit:?} (attempt, note): {bodies:?}, not {:?}", of(&should)));
        }
        if unit.0 != Tool::Read {
            for ((key, ..), (name, ..)) in is.iter().zip(&should) {
                names.learn(unit, *name, key)?;
            }
        }
        let keys = effects.get(&unit).cloned().unwrap_or_default();
        let expected = pure.effects.get(&unit).cloned().unwrap_or_default();
        let expected: Vec<String> = expected.into_iter().map(|name| names.0[&(unit, name)].clone()).collect();
        if keys != expected {
            return Err(format!("effects of {unit:?}: {keys:?}, not {expected:?}"));
        }
    }
    Ok(())
}

fn compare_replies(
    replies: &[Option<Reply>],
    heard: &[Option<Heard>],
    step: &Step,
    story: &Story,
    names: &Names,
) -> Result<(), String> {
    let calls = match step {
        Step::Together(calls) => calls,
        Step::Message(turn) => &story.messages[*turn as usize],
        _ => return Ok(()),
    };
    assert_eq!((replies.len(), heard.len()), (calls.len(), calls.len()));
    for ((reply, heard), call) in replies.iter().zip(heard).zip(calls) {
        let Some(reply) = reply else {
            if heard.is_some() {
                return Err(format!("{call:?} was left, not answered with {heard:?}"));
            }
            continue;
        };
        let kept = reply.outcome().filter(|outcome| outcome.is_kept());
        let is = (reply.kind(), reply.is_marked(), kept.map(|outcome| outcome.text().to_owned()));
        let should = heard.as_ref().map(|heard| (heard.kind, heard.is_marked, heard.text.clone()));
        if Some(&is) != should.as_ref() {
            return Err(format!("{call:?} heard {is:?}, not {should:?}: {}", reply.message()));
        }
        let name = heard.as_ref().and_then(|heard| heard.name);
        let key = reply.downstream_key().map(|key| key.reference());
        let known = name.and_then(|name| names.0.get(&(call.unit(), name)));
        let is_it = if call.tool == Tool::Read { true } else { known.is_none_or(|known| key.as_ref() == Some(known)) };
        if !is_it || name.is_some() != key.is_some() {
            return Err(format!("{call:?} is told to be {key:?}, not {name:?} ({known:?})"));
        }
    }
    Ok(())
}

/// What a person is shown.
async fn compare_open(pure: &Pure<'_>, told: &Told<'_>, names: &Names) -> Result<(), String> {
    let doubts = pure.doubts();
    let mut expected: Vec<&String> = doubts.iter().map(|(unit, name)| &names.0[&(*unit, *name)]).collect();
    let inbox = told.inbox().await;
    let mut shown: Vec<&String> = inbox.iter().collect();
    expected.sort();
    shown.sort();
    if shown != expected {
        return Err(format!("in doubt are {shown:?}, not {expected:?} ({doubts:?})"));
    }
    let asked: Vec<(Unit, u8)> = told.questions().await.into_iter().map(|(unit, note, _)| (unit, note)).collect();
    let expected = pure.questions();
    if asked == expected { Ok(()) } else { Err(format!("asked is {asked:?}, not {expected:?}")) }
}

/// The story without all that it differs without, too.
async fn shrunk(mut story: Story, disk: impl AsyncFn() -> (Option<tempfile::TempDir>, Disk)) -> (Story, String) {
    let tell = async |story: &Story| {
        let (_kept, disk) = disk().await;
        differs(story, disk, &mut Tally::default()).await.err()
    };
    let Some(mut why) = tell(&story).await else { return (story, "it doesn't differ each time".to_owned()) };
    let mut at = 0;
    while at < story.steps.len() {
        let mut shorter = story.clone();
        let step = shorter.steps.remove(at);
        if let Some(other) = tell(&shorter).await {
            (story, why) = (shorter, other);
            continue;
        }
        if let Step::Together(calls) = step {
            for cut in 0..calls.len() {
                let mut plainer = story.clone();
                let Step::Together(calls) = &mut plainer.steps[at] else { break };
                calls[cut].ends.pop();
                if let Some(other) = tell(&plainer).await {
                    (story, why) = (plainer, other);
                }
            }
        }
        at += 1;
    }
    (story, why)
}

/// So many stories, or as many as the time allows that was asked for.
async fn tell_many(usual: u64, seed: u64, disk: impl AsyncFn() -> (Option<tempfile::TempDir>, Disk)) -> Tally {
    let mut tally = Tally::default();
    for mut random in crate::fuzz::rounds(usual) {
        let seed = random.u64(..) ^ seed;
        let story = Story::made_up(&mut Rng::with_seed(seed));
        let (_kept, opened) = disk().await;
        if let Err(first) = differs(&story, opened, &mut tally).await {
            let (story, why) = shrunk(story, &disk).await;
            let used = story.steps.iter().filter_map(|step| match step {
                Step::Message(turn) => Some((turn, &story.messages[*turn as usize])),
                _ => None,
            });
            let used: Vec<_> = used.collect();
            panic!("story {seed}: {first}\nshrunk: {why}\nsteps: {:#?}\nmessages: {used:#?}", story.steps);
        }
    }
    tally
}

/// The same, several at a time: what takes long is that each waits for its disk.
fn tell_at_a_time(
    usual: u64,
    first_seed: u64,
    disk: impl AsyncFn() -> (Option<tempfile::TempDir>, Disk) + Sync,
) -> Tally {
    const AT_A_TIME: u64 = 8;
    let tell = |n: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(tell_many(usual / AT_A_TIME, first_seed + (n << 32), &disk))
    };
    std::thread::scope(|scope| {
        let tellers: Vec<_> = (0..AT_A_TIME)
            .map(|n| {
                scope.spawn({
                    let tell = &tell;
                    move || tell(n)
                })
            })
            .collect();
        let mut all = Tally::default();
        for teller in tellers {
            all.add(teller.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    })
}

fn is_whole(tally: &Tally) {
    let kinds: Vec<&str> = tally.kinds.keys().copied().collect();
    let all = [
        "awaiting_approval",
        "conflict",
        "denied",
        "diverged",
        "executed",
        "failed",
        "in_doubt",
        "joined",
        "replayed",
        "running",
        "stopped",
    ];
    assert!(all.iter().all(|kind| kinds.contains(kind)), "{tally:?}");
    assert!(["Nothing", "Taken", "TooEarly"].iter().all(|word| tally.settled.contains_key(*word)), "{tally:?}");
    assert!(tally.effects > 0);
}

#[test]
fn stories_on_the_memory_store() {
    let tally = tell_at_a_time(600, 0, async || (None, Disk::Memory(MemoryStore::new())));
    is_whole(&tally);
}

#[test]
fn stories_on_the_sled_store() {
    let disk = async || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        (Some(directory), Disk::Sled(path))
    };
    let tally = tell_at_a_time(120, 1 << 50, disk);
    assert!(tally.effects > 0 && tally.kinds.contains_key("replayed"), "{tally:?}");
}

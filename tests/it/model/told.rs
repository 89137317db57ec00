//! A story told to a real guard.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use toolonce::store::{MemoryStore, SledStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{ErrorKind, Guard, Registry, Reply, Resolution, Run, Seen};

use super::story::{Calling, Comes, DEADLINE, End, PATIENCE, SETTLE, SOON, Step, Story, TOOLS, Unit};
use super::world::{Watched, World};
use super::{RUN, Settled};

/// What a process opens when the one before it is dead.
pub(super) enum Disk {
    Memory(MemoryStore),
    Sled(PathBuf),
}

impl Disk {
    async fn open(&mut self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => {
                *store = store.reopen();
                Arc::new(store.clone())
            }
            Self::Sled(path) => Arc::new(SledStore::open(path.clone()).await.unwrap()),
        }
    }
}

/// A process.
struct Process {
    store: Arc<Watched>,
    guard: Guard,
    tools: Registry,
    run: Run,
}

pub(super) struct Told<'a> {
    story: &'a Story,
    disk: Disk,
    pub(super) clock: ManualClock,
    pub(super) world: World,
    process: Process,
}

type Waiting = JoinHandle<Vec<Reply>>;

impl<'a> Told<'a> {
    pub(super) async fn new(story: &'a Story, mut disk: Disk) -> Self {
        let (clock, world) = (ManualClock::new(), World::default());
        let store = Watched::new(disk.open().await);
        let (guard, tools) = begin(Arc::clone(&store) as Arc<dyn Store>, &clock, &world).await;
        let run = Run::start(&guard, RUN).await.unwrap();
        let process = Process { store, guard, tools, run };
        Self { story, disk, clock, world, process }
    }

    /// The replies that the step's callers got, and how a person's word was taken. `pick` names the call, or the
    /// question, that the person speaks of.
    pub(super) async fn tell(&mut self, step: &Step, pick: &Pick) -> (Vec<Option<Reply>>, Option<Settled>) {
        let (mut replies, mut settled) = (Vec::new(), None);
        match step {
            Step::Together(calls) => {
                let mut waiting = Vec::new();
                self.expect(calls);
                for call in calls {
                    waiting.push(self.begin(call.clone()).await);
                }
                replies = self.answers(waiting).await;
            }
            Step::Message(turn) => {
                let calls = &self.story.messages[*turn as usize];
                self.expect(calls);
                let (tools, run, turn) = (self.process.tools.clone(), self.process.run.clone(), *turn);
                let said: Vec<_> = calls.iter().map(Calling::call).collect();
                let shown: Vec<bool> = calls.iter().map(|call| call.shown).collect();
                let waiting = tokio::spawn(async move {
                    let replies = tools.answer(&run, turn, &said).await;
                    replies.iter().zip(shown).filter(|(_, shown)| !shown).for_each(|(reply, _)| reply.not_shown());
                    replies
                });
                self.at_rest().await;
                replies = self.answers(vec![Some(waiting)]).await;
            }
            Step::Release(nth, end) => self.release(*nth, *end),
            Step::Hours(hours) => self.pass(Duration::from_secs(hours * 3600)).await,
            Step::Dies(comes) => self.die(*comes).await,
            Step::Settle(_, sure) => settled = Some(self.settle(pick, *sure).await),
            Step::Permit(_, yes) => settled = Some(self.permit(pick, *yes).await),
        }
        self.rest().await;
        self.world.with(|world| {
            world.ends.clear();
            world.blind.clear();
        });
        (replies, settled)
    }

    fn expect(&self, calls: &[Calling]) {
        self.world.with(|world| {
            for call in calls {
                world.ends.entry(call.unit()).or_default().extend(&call.ends);
                *world.blind.entry(call.unit()).or_default() += call.blind;
            }
        });
    }

    /// A caller that waits, unless it has left.
    async fn begin(&self, call: Calling) -> Option<Waiting> {
        let (tools, run, stays) = (self.process.tools.clone(), self.process.run.clone(), call.stays);
        let waiting = tokio::spawn(async move {
            let reply = tools.call(&run, call.call()).await;
            if !call.shown {
                reply.not_shown();
            }
            vec![reply]
        });
        self.at_rest().await;
        if stays || waiting.is_finished() {
            return Some(waiting);
        }
        waiting.abort();
        let _ = waiting.await;
        None
    }

    async fn answers(&self, waiting: Vec<Option<Waiting>>) -> Vec<Option<Reply>> {
        self.rest().await;
        let mut replies = Vec::new();
        for waiting in waiting {
            match waiting {
                Some(waiting) => {
                    assert!(waiting.is_finished(), "a caller waits, and nothing is due");
                    replies.extend(waiting.await.unwrap().into_iter().map(Some));
                }
                None => replies.push(None),
            }
        }
        replies
    }

    /// Until every task has gone as far as it gets without time passing or a body going on.
    async fn at_rest(&self) {
        const ENOUGH: u32 = 12;
        let state = || (self.process.store.at_rest(), self.world.count());
        let (mut before, mut same) = (state(), 0);
        while same < ENOUGH {
            tokio::task::yield_now().await;
            let now = state();
            if now.0.is_none() {
                self.process.store.left.notified().await;
            }
            same = if now == before && now.0.is_some() { same + 1 } else { 0 };
            before = now;
        }
    }

    async fn rest(&self) {
        loop {
            self.at_rest().await;
            if self.world.release_one() {
                continue;
            }
            match self.clock.next_deadline() {
                Some(due) if due <= Duration::from_millis(SOON) => self.clock.advance(due),
                _ => return,
            }
        }
    }

    async fn pass(&self, mut time: Duration) {
        loop {
            self.at_rest().await;
            if self.world.release_one() {
                continue;
            }
            match self.clock.next_deadline() {
                Some(due) if due <= time => {
                    self.clock.advance(due);
                    time -= due;
                }
                _ => return self.clock.advance(time),
            }
        }
    }

    fn release(&self, nth: usize, end: End) {
        self.world.with(|world| {
            let mut all: Vec<usize> = (0..world.gates.len()).collect();
            all.sort_by_key(|at| world.gates[*at].0);
            if !all.is_empty() {
                world.gates[all[nth % all.len()]].1 = end;
            }
        });
    }

    async fn die(&mut self, comes: Comes) {
        self.process.guard.crash();
        self.at_rest().await;
        self.world.with(|world| world.gates.clear());
        self.process.store.store.close().await.unwrap();
        let store = Watched::new(self.disk.open().await);
        let (guard, tools) = begin(Arc::clone(&store) as Arc<dyn Store>, &self.clock, &self.world).await;
        let run = match comes {
            Comes::Attaches => Run::attach(&guard, RUN).await,
            Comes::ResumesFromNothing => Run::resume(&guard, RUN, Seen::Nothing).await,
            Comes::ResumesThrough(turn) => Run::resume(&guard, RUN, Seen::Through(turn)).await,
        };
        self.process = Process { store, guard, tools, run: run.unwrap() };
    }

    /// The references of the calls in doubt.
    pub(super) async fn inbox(&self) -> Vec<String> {
        let inbox = self.process.guard.inbox().await.unwrap();
        inbox.into_iter().map(|call| call.reference).collect()
    }

    /// The questions that wait.
    pub(super) async fn questions(&self) -> Vec<(Unit, u8, String)> {
        let mut questions = Vec::new();
        for asked in self.process.guard.approvals().await.unwrap() {
            let tool = TOOLS.into_iter().find(|tool| tool.name() == asked.tool).unwrap();
            let arguments: Value = serde_json::from_str(&asked.arguments.unwrap()).unwrap();
            let number = |name: &str| u8::try_from(arguments[name].as_u64().unwrap()).unwrap();
            questions.push(((tool, number("to")), number("note"), asked.reference));
        }
        questions.sort_unstable();
        questions
    }

    pub(super) fn incidents(&self) -> u64 {
        self.process.guard.incidents()
    }

    async fn settle(&self, pick: &Pick, sure: bool) -> Settled {
        let Pick::Call { unit, reference } = pick else { return Settled::Nothing };
        // The person looks where it would show.
        let happened =
            self.world.with(|world| world.effects.get(unit).is_some_and(|effects| effects.contains(reference)));
        let resolution = match (happened, sure) {
            (true, _) => Resolution::Happened(json!("told")),
            (false, true) => Resolution::DidNotHappenForSure,
            (false, false) => Resolution::DidNotHappen,
        };
        match self.process.guard.resolve(reference, resolution, "").await {
            Ok(()) => Settled::Taken,
            Err(error) if error.kind() == ErrorKind::TooEarly => Settled::TooEarly,
            Err(_) => Settled::Refused,
        }
    }

    async fn permit(&self, pick: &Pick, yes: bool) -> Settled {
        let Pick::Question(reference) = pick else { return Settled::Nothing };
        let answered = match yes {
            true => self.process.guard.approve(reference).await,
            false => self.process.guard.deny(reference, "no").await,
        };
        if answered.is_ok() { Settled::Taken } else { Settled::Refused }
    }
}

/// Whom a person speaks of.
pub(super) enum Pick {
    Nothing,
    Call { unit: Unit, reference: String },
    Question(String),
}

async fn begin(store: Arc<dyn Store>, clock: &ManualClock, world: &World) -> (Guard, Registry) {
    let builder = Guard::builder_on(store, "stories").clock(clock.clone());
    let builder = builder.patience(PATIENCE).attempt_deadline(DEADLINE).settle_delay(SETTLE);
    let guard = builder.build().await.unwrap();
    let mut tools = Registry::new(&guard);
    for tool in TOOLS {
        tools.add(world.tool(tool)).unwrap();
    }
    (guard, tools)
}

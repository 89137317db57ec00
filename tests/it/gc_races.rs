//! Retention beside other work: a gc that is stopped, killed or met by another one at each of its steps in the store, and
//! what comes late from before a removal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{
    Approval, Attempt, Call, Error, ErrorKind, GcClock, GcOptions, GcReport, Guard, Policy, Registry, Reply, ReplyKind,
    Resolution, Run, Scope, Seen, ToolError, value_tool,
};

use crate::bench::{Ledger, call};
use crate::stops::Stops;

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// How a body is told to end.
type End = oneshot::Sender<Result<Value, ToolError>>;

/// A process with tools that end when and how the test says.
#[derive(Clone)]
struct Process {
    guard: Guard,
    tools: Registry,
    ledger: Ledger,
    clock: ManualClock,
    bodies: Arc<Mutex<Vec<Option<End>>>>,
}

fn write() -> Policy {
    Policy::write().advanced(|a| a.attempts(1))
}

fn global() -> Policy {
    Policy::write().scope(Scope::Global).advanced(|a| a.attempts(1).retention(DAY))
}

impl Process {
    async fn open(store: Arc<dyn Store>, ledger: &Ledger, clock: &ManualClock) -> Self {
        let guard = Guard::builder_on(store, "shop").clock(clock.clone()).build().await.unwrap();
        let tools = Registry::new(&guard);
        let mut process = Self { guard, tools, ledger: ledger.clone(), clock: clock.clone(), bodies: Arc::default() };
        process.tool("pay", write());
        process.tool("send", global());
        process.tool("ask", global().approval(Approval::First));
        process
    }

    async fn new() -> Self {
        Self::open(Arc::new(MemoryStore::new()), &Ledger::new(), &ManualClock::new()).await
    }

    fn tool(&mut self, name: &'static str, policy: Policy) {
        let (ledger, bodies) = (self.ledger.clone(), Arc::clone(&self.bodies));
        let body = move |_: Value, _: Attempt| {
            ledger.write(name);
            let (tell, end) = oneshot::channel();
            bodies.lock().unwrap().push(Some(tell));
            async move { end.await.unwrap() }
        };
        self.tools.add(value_tool(name, "", json!({"type": "object"}), policy, body)).unwrap();
    }

    /// Lets the `n`-th body of this process end.
    async fn end(&self, n: usize, how: Result<Value, ToolError>) {
        let tell = self.bodies.lock().unwrap()[n].take().unwrap();
        tell.send(how).unwrap();
        self.settle().await;
    }

    async fn end_newest(&self, how: Result<Value, ToolError>) {
        let newest = self.bodies.lock().unwrap().len() - 1;
        self.end(newest, how).await;
    }

    /// Begins a call and goes as far as it gets.
    async fn begin(&self, run: &Run, call: Call) -> JoinHandle<Reply> {
        let (tools, run) = (self.tools.clone(), run.clone());
        let asked = tokio::spawn(async move { tools.call(&run, call).await });
        self.settle().await;
        asked
    }

    /// A call whose body ends so.
    async fn done(&self, run: &Run, call: Call, how: Result<Value, ToolError>) -> Reply {
        let asked = self.begin(run, call).await;
        if !asked.is_finished() {
            self.end_newest(how).await;
        }
        asked.await.unwrap()
    }

    /// What a call is told by a second later.
    async fn told(&self, run: &Run, call: Call) -> Reply {
        let asked = self.begin(run, call.patience(Duration::from_secs(1))).await;
        if !asked.is_finished() {
            self.pass(Duration::from_secs(1)).await;
        }
        asked.await.unwrap()
    }

    async fn settle(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    async fn pass(&self, time: Duration) {
        self.settle().await;
        self.clock.advance(time);
        self.settle().await;
    }

    async fn run(&self, id: &str) -> Run {
        Run::start(&self.guard, id).await.unwrap()
    }

    async fn gc(&self) -> GcReport {
        gc(&self.guard).await.unwrap()
    }
}

async fn gc(guard: &Guard) -> Result<GcReport, Error> {
    guard.gc(GcOptions::new().clock(GcClock::Trusted)).await
}

fn pay() -> Call {
    call("pay", &json!({"n": 1}))
}

fn send() -> Call {
    call("send", &json!({"n": 1}))
}

/// A process with a run that is past its retention and has a payment, and a gc of it.
async fn due(memory: &MemoryStore) -> (Process, Run, Stops) {
    let stops = Stops::new(memory.clone());
    let process = Process::open(Arc::new(stops.clone()), &Ledger::new(), &ManualClock::new()).await;
    let run = process.run("r").await;
    process.done(&run, pay().turn(0), Ok(json!("paid"))).await;
    let other = process.run("other").await;
    process.done(&other, send().turn(0), Err(ToolError::retryable("busy"))).await;
    process.pass(DAY * 31).await;
    (process, run, stops)
}

/// The rows that are left of it: where the fences of the global call go on, and two tombstones.
const LEFT: &str = "brr";

fn spawn_gc(process: &Process) -> JoinHandle<Result<GcReport, Error>> {
    let guard = process.guard.clone();
    tokio::spawn(async move { gc(&guard).await })
}

/// Calls that begin in a run: its own, and global ones that another run began before; with a turn and without.
fn new_calls() -> [Call; 4] {
    let other = || call("pay", &json!({"n": 2}));
    [other(), other().turn(1), send(), send().turn(1)]
}

#[tokio::test]
async fn a_call_at_any_step_of_a_gc_is_refused_or_keeps_its_run() {
    for begun in new_calls() {
        let (mut kept, mut refused) = (0, 0);
        for n in 0.. {
            let (process, run, stops) = due(&MemoryStore::new()).await;
            let before = process.ledger.lines().len();
            let mut collecting = spawn_gc(&process);
            if stops.stop_at(n, &mut collecting).await.is_some() {
                break;
            }
            let asked = process.begin(&run, begun.clone()).await;
            let is_begun = process.ledger.lines().len() > before;
            stops.go();
            collecting.await.unwrap().unwrap();
            let again = process.told(&run, begun.clone()).await;
            if is_begun {
                assert_eq!(again.kind(), ReplyKind::Running, "step {n}: {again:?}");
                process.end_newest(Ok(json!("done"))).await;
                assert_eq!(asked.await.unwrap().kind(), ReplyKind::Executed, "step {n}");
                assert_eq!(process.told(&run, pay().turn(9)).await.kind(), ReplyKind::Replayed, "step {n}");
                kept += 1;
            } else {
                assert_eq!(asked.await.unwrap().kind(), ReplyKind::Refused, "step {n}");
                assert!(again.message().contains("removed"), "step {n}: {again:?}");
                refused += 1;
            }
        }
        assert!(kept >= 5 && refused >= 5, "{begun:?}: kept {kept}, refused {refused}");
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_gc_can_be_undone_until_something_is_removed() {
    let (mut kept, mut removed) = (0, 0);
    for n in 0.. {
        let memory = MemoryStore::new();
        let (process, run, stops) = due(&memory).await;
        let mut collecting = spawn_gc(&process);
        if stops.stop_at(n, &mut collecting).await.is_some() {
            break;
        }
        stops.die();
        stops.go();
        collecting.await.unwrap().unwrap_err();
        process.guard.crash();
        drop(run);
        let memory = memory.crash();
        let next = Process::open(Arc::new(memory.clone()), &process.ledger, &process.clock).await;
        match Run::resume(&next.guard, "r", Seen::Through(0)).await {
            Ok(run) => {
                assert_eq!(next.told(&run, pay().turn(1)).await.kind(), ReplyKind::Replayed, "step {n}");
                assert_eq!(next.gc().await.unresolved, 0, "step {n}");
                assert_eq!(next.told(&run, pay().turn(2)).await.kind(), ReplyKind::Replayed, "step {n}");
                kept += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::RunPurged, "step {n}");
                next.gc().await;
                assert_eq!(crate::gc::kinds(&memory).await, LEFT, "step {n}");
                removed += 1;
            }
        }
        assert_eq!(process.ledger.count("pay"), 1, "step {n}");
    }
    assert!(kept >= 5 && removed >= 5, "kept {kept}, removed {removed}");
}

#[tokio::test]
async fn a_crash_of_a_gc_leaves_no_run_closed_in_which_a_call_began() {
    let mut found = 0;
    for n in 0.. {
        let memory = MemoryStore::new();
        let (process, run, stops) = due(&memory).await;
        let mut collecting = spawn_gc(&process);
        if stops.stop_at(n, &mut collecting).await.is_some() {
            break;
        }
        let _asked = process.begin(&run, call("pay", &json!({"n": 2})).turn(1)).await;
        let is_begun = process.ledger.count("pay") == 2;
        // The gc gets on to its next step and dies there, or at the one after it.
        for more in 0..2 {
            if is_begun && !collecting.is_finished() {
                stops.go();
                if stops.stop_at(more, &mut collecting).await.is_some() {
                    break;
                }
            }
        }
        stops.die();
        process.guard.crash();
        if !is_begun {
            break; // from here on it is removed
        }
        let next = Process::open(Arc::new(memory.crash()), &process.ledger, &process.clock).await;
        assert_eq!(next.gc().await.unresolved, 1, "step {n}");
        let run = Run::resume(&next.guard, "r", Seen::Through(0)).await.unwrap();
        let told = next.told(&run, call("pay", &json!({"n": 2})).turn(1)).await;
        assert_eq!(told.kind(), ReplyKind::InDoubt, "step {n}: {told:?}");
        found += 1;
    }
    assert!(found >= 5, "{found}");
}

#[tokio::test]
async fn two_gcs_at_a_time_remove_a_run_once() {
    for n in 0.. {
        let memory = MemoryStore::new();
        let (process, run, stops) = due(&memory).await;
        let mut first = spawn_gc(&process);
        if let Some(report) = stops.stop_at(n, &mut first).await {
            assert_eq!(report.unwrap().runs, 2);
            break;
        }
        let second = process.gc().await;
        stops.go();
        let first = first.await.unwrap().unwrap();
        let third = process.gc().await;
        assert_eq!(first.runs + second.runs + third.runs, 2, "step {n}: {first:?}, {second:?}, {third:?}");
        assert_eq!(process.told(&run, pay().turn(1)).await.kind(), ReplyKind::Refused, "step {n}");
        assert_eq!(crate::gc::kinds(&memory).await, LEFT, "step {n}");
    }
}

#[tokio::test]
async fn who_works_in_a_run_that_is_looked_at_takes_it_back() {
    for how in ["call", "step", "attach", "resume", "start"] {
        let (process, run, stops) = due(&MemoryStore::new()).await;
        let mut collecting = spawn_gc(&process);
        let mut n = 0;
        // The first step at which its row says that it is closing.
        let closing = loop {
            assert!(stops.stop_at(n, &mut collecting).await.is_none());
            let error = run.fork(format!("f{n}"), 1).await.map(drop);
            match error.map_err(|error| (error.kind(), error.to_string())) {
                Err((ErrorKind::RunClosing, text)) => break text,
                Ok(()) | Err(_) => n = 0,
            }
            stops.go();
        };
        assert!(closing.contains("try again"), "{closing}");
        let guard = &process.guard;
        match how {
            "call" => assert_eq!(process.told(&run, pay().turn(1)).await.kind(), ReplyKind::Replayed),
            "step" => assert_eq!(run.step("s", "", || async { Ok(1) }).await.unwrap(), 1),
            "attach" => drop(Run::attach(guard, "r").await.unwrap()),
            "resume" => drop(Run::resume(guard, "r", Seen::Through(0)).await.unwrap()),
            _ => drop(Run::start_or_resume(guard, "r", Seen::Through(0)).await.unwrap()),
        }
        stops.go();
        collecting.await.unwrap().unwrap();
        let run = Run::attach(guard, "r").await.unwrap();
        assert_eq!(process.told(&run, pay().turn(2)).await.kind(), ReplyKind::Replayed, "{how}");
        assert_eq!(process.ledger.count("pay"), 1);
    }
}

/// Three processes, a global call whose first body outlives what a person said of it and its removed record.
#[tokio::test]
async fn what_comes_late_from_before_a_removal_neither_ends_nor_settles_what_began_after_it() {
    let happened = || Resolution::Happened(json!("sent"));
    for said in [happened(), Resolution::DidNotHappenForSure] {
        for late in [Err(ToolError::retryable("refused")), Err(ToolError::unknown("lost")), Ok(json!("late"))] {
            let is_success = late.is_ok();
            let (store, ledger, clock) = (MemoryStore::shared(), Ledger::new(), ManualClock::new());
            let open = async || Process::open(Arc::new(store.clone()), &ledger, &clock).await;
            let (a, b, c) = (open().await, open().await, open().await);
            let run_b = b.run("rb").await;
            let first = b.told(&run_b, send().turn(0)).await;
            b.pass(MINUTE * 12).await;
            a.guard.resolve(first.reference().unwrap(), said.clone(), "asked them").await.unwrap();
            a.pass(DAY * 31).await;
            let report = a.gc().await;
            assert_eq!((report.runs, report.records), (1, 1), "{report:?}");

            let run_a = a.run("ra").await;
            let running = a.begin(&run_a, send().turn(0)).await;
            assert_eq!(ledger.count("send"), 2, "its retention is over");
            b.end(0, late).await;
            let run_c = c.run("rc").await;
            let other = c.told(&run_c, send().turn(0)).await;
            assert_eq!((other.kind(), ledger.count("send")), (ReplyKind::Running, 2), "{other:?}");
            assert_ne!(other.reference(), first.reference(), "it isn't the call that a person was asked about");
            assert_eq!(b.guard.incidents(), u64::from(is_success));

            a.end(0, Ok(json!("mine"))).await;
            let told = running.await.unwrap();
            assert_eq!((told.kind(), told.message()), (ReplyKind::Executed, "mine"));
            let again = c.told(&run_c, send().turn(1)).await;
            assert_eq!(again.kind(), ReplyKind::Replayed);
            assert!(again.message().starts_with("mine"), "{again:?}");
        }
    }
}

#[tokio::test]
async fn fences_and_downstream_keys_go_on_over_several_removals() {
    let process = Process::new().await;
    let mut keys = Vec::new();
    for n in 0..3 {
        let run = process.run(&format!("r{n}")).await;
        let told = process.done(&run, send().turn(0), Ok(json!("sent"))).await;
        assert_eq!(told.kind(), ReplyKind::Executed);
        let found = process.guard.show(told.reference().unwrap()).await.unwrap().unwrap();
        assert_eq!(found.summary.attempts, n + 1);
        keys.push(told.reference().unwrap().to_owned());
        process.pass(DAY * 31).await;
        assert_eq!(process.gc().await.records, 1);
    }
    keys.dedup();
    assert_eq!((keys.len(), process.ledger.count("send")), (3, 3));
}

#[tokio::test]
async fn an_answer_of_a_human_is_a_sign_of_life() {
    for said in [Resolution::DidNotHappen, Resolution::DidNotHappenForSure, Resolution::Happened(json!("found"))] {
        let happened = matches!(said, Resolution::Happened(_));
        for asked in [pay(), pay().turn(0), send(), send().turn(0)] {
            let process = Process::new().await;
            let run = process.run("r").await;
            let told = process.done(&run, asked.clone(), Err(ToolError::unknown("lost"))).await;
            process.pass(DAY * 31).await;
            let report = process.gc().await;
            assert!(report.runs == 0 && report.unresolved > 0, "{asked:?}: {report:?}");
            process.guard.resolve(told.reference().unwrap(), said.clone(), "looked").await.unwrap();
            assert_eq!(process.gc().await, GcReport::default(), "{asked:?}");
            let again = process.done(&run, asked.clone(), Ok(json!("done"))).await;
            let expected = if happened { ReplyKind::Replayed } else { ReplyKind::Executed };
            assert_eq!(again.kind(), expected, "{asked:?}: {again:?}");
            process.pass(DAY * 31).await;
            assert_eq!(process.gc().await.runs, 1, "{asked:?}");
        }
    }
}

#[tokio::test]
async fn a_permission_and_a_refusal_are_signs_of_life_and_stay_as_long_as_their_run() {
    for is_denied in [true, false] {
        let process = Process::new().await;
        let run = process.run("r").await;
        process.done(&run, pay().turn(0), Ok(json!("paid"))).await;
        process.pass(DAY * 29 + DAY / 2).await;
        let ask = || call("ask", &json!({"n": 1})).turn(1);
        let told = process.told(&run, ask()).await;
        assert_eq!(told.kind(), ReplyKind::AwaitingApproval);
        process.pass(DAY / 2).await;
        match is_denied {
            true => process.guard.deny(told.reference().unwrap(), "never").await.unwrap(),
            false => process.guard.approve(told.reference().unwrap()).await.unwrap(),
        }
        // Past what is kept since the question, not since the answer; and past the retention of the tool.
        process.pass(DAY * 30 - MINUTE).await;
        assert_eq!(process.gc().await, GcReport::default());
        let told = process.done(&run, ask(), Ok(json!("done"))).await;
        let expected = if is_denied { ReplyKind::Denied } else { ReplyKind::Executed };
        assert_eq!(told.kind(), expected, "{told:?}");
        process.pass(DAY * 31).await;
        let report = process.gc().await;
        assert_eq!((report.runs, report.records), (1, 2));
    }
}

#[tokio::test]
async fn the_end_of_an_attempt_is_a_sign_of_life_whatever_it_is() {
    for asked in [pay(), send()] {
        let process = Process::new().await;
        let run = process.run("r").await;
        for _ in 0..32 {
            let told = process.done(&run, asked.clone(), Err(ToolError::retryable("busy"))).await;
            assert_eq!(told.kind(), ReplyKind::Failed);
            assert_eq!(process.gc().await.runs, 0);
            process.pass(DAY).await;
        }
        process.pass(DAY * 29).await;
        assert_eq!(process.gc().await.runs, 1);
    }
}

/// How many signs of life are in the store.
async fn signs(store: &MemoryStore) -> usize {
    store.scan(&[0; 8], None, 1000).await.unwrap().items.len()
}

#[tokio::test]
async fn signs_of_life_go_with_their_processes() {
    let (store, ledger, clock) = (MemoryStore::shared(), Ledger::new(), ManualClock::new());
    let open = async || Process::open(Arc::new(store.clone()), &ledger, &clock).await;
    for _ in 0..5 {
        open().await.guard.shutdown(MINUTE).await.unwrap();
    }
    assert_eq!(signs(&store).await, 0);
    for _ in 0..5 {
        open().await.guard.crash();
    }
    let process = open().await;
    let living = open().await;
    process.gc().await;
    process.pass(DAY - MINUTE).await;
    process.gc().await;
    assert_eq!(signs(&store).await, 7, "less than a day is no proof");
    process.pass(MINUTE * 2).await;
    process.gc().await;
    assert_eq!(signs(&store).await, 2);
    process.pass(MINUTE).await;
    // Those that live go on.
    let run = living.run("r").await;
    assert_eq!(living.told(&run, pay().turn(0)).await.kind(), ReplyKind::Running);
    let attached = Run::attach(&process.guard, "r").await.unwrap();
    process.pass(MINUTE).await;
    assert_eq!(process.told(&attached, pay().turn(0)).await.kind(), ReplyKind::Running);
}

#[tokio::test]
async fn a_process_without_a_sign_of_life_is_not_taken_for_a_living_one() {
    let (store, ledger, clock) = (MemoryStore::shared(), Ledger::new(), ManualClock::new());
    let open = async || Process::open(Arc::new(store.clone()), &ledger, &clock).await;
    let (watching, gone, crashed) = (open().await, open().await, open().await);
    let run = gone.run("r").await;
    let asked = [pay().turn(0), call("pay", &json!({"n": 2})).turn(0)];
    assert_eq!(gone.told(&run, asked[0].clone()).await.kind(), ReplyKind::Running);
    let run = Run::attach(&crashed.guard, "r").await.unwrap();
    assert_eq!(crashed.told(&run, asked[1].clone()).await.kind(), ReplyKind::Running);
    watching.pass(Duration::from_secs(11)).await;
    assert_eq!(gone.guard.shutdown(Duration::ZERO).await.unwrap().unfinished, 1);
    crashed.guard.crash();
    let run = Run::attach(&watching.guard, "r").await.unwrap();
    assert_eq!(watching.told(&run, asked[0].clone()).await.kind(), ReplyKind::Running, "nobody has looked since");
    watching.pass(Duration::from_secs(11)).await;
    assert_eq!(watching.told(&run, asked[0].clone()).await.kind(), ReplyKind::InDoubt, "before a lease is over");
    assert_eq!(watching.told(&run, asked[1].clone()).await.kind(), ReplyKind::Running, "it had a sign a lease ago");
    // The other's row goes a day later, with two gcs; it is as silent without.
    for _ in 0..2 {
        watching.pass(DAY).await;
        watching.gc().await;
    }
    assert_eq!(signs(&store).await, 1);
    let late = open().await;
    late.pass(Duration::from_secs(11)).await;
    for process in [&watching, &late] {
        let run = Run::attach(&process.guard, "r").await.unwrap();
        for asked in &asked {
            assert_eq!(process.told(&run, asked.clone()).await.kind(), ReplyKind::InDoubt);
        }
    }
    assert_eq!(ledger.count("pay"), 2);
}

/// There is room for sixteen answers in a record: those of runs that are gone make room.
#[tokio::test]
async fn answers_to_runs_that_are_gone_lock_nobody_out() {
    let mut process = Process::new().await;
    process.tool("once", Policy::write().scope(Scope::Global).approval(Approval::First));
    let once = || call("once", &json!({"n": 1})).turn(0);
    for n in 0..16 {
        let run = process.run(&format!("r{n}")).await;
        let told = process.told(&run, once()).await;
        process.guard.deny(told.reference().unwrap(), "no").await.unwrap();
    }
    let next = process.run("next").await;
    assert_eq!(process.told(&next, once()).await.kind(), ReplyKind::Refused);
    process.pass(DAY * 40).await;
    assert_eq!(process.gc().await.runs, 17);
    let last = process.run("last").await;
    assert_eq!(process.told(&last, once()).await.kind(), ReplyKind::AwaitingApproval);
    assert_eq!(process.ledger.count("once"), 0);
}

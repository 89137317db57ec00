//! The steps of one case.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use toolonce::store::Store;
use toolonce::testing::{FaultyStore, ManualClock};
use toolonce::{Clock, GcOptions, Registry, Reply, Run};

use super::Job;
use super::judge;
use super::ledger::Ledger;
use super::process::{Common, Life, Process, RunName};
use super::store::{Counted, Ground};
use crate::file::{Answer, Call, Expect, Scenario, Step, StepExpect};

/// What a caller got.
#[derive(Debug)]
pub(super) enum Got {
    Reply(Box<Reply>),
    /// There is no guard or run for the call.
    Failed(String),
    /// The caller was dropped before.
    Gone,
}

/// What each call got, by its number; written by the tasks of the callers.
type Answers = Arc<Mutex<BTreeMap<usize, Got>>>;

pub(super) fn lock(answers: &Answers) -> MutexGuard<'_, BTreeMap<usize, Got>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call that was delivered.
pub(super) struct Delivery<'a> {
    pub(super) call: &'a Call,
    pub(super) run: RunName,
    pub(super) turn: Option<u32>,
    /// The process that its caller is in, once there is a caller.
    pub(super) life: Option<Arc<Life>>,
}

/// A case under way.
pub(super) struct Case<'a> {
    pub(super) file: &'a Scenario,
    pub(super) common: Common,
    pub(super) ground: Ground,
    pub(super) counted: Arc<Counted>,
    pub(super) faults: FaultyStore,
    /// Whether a commit whose sync fails is there afterwards.
    pub(super) syncs_applied: bool,
    pub(super) first: Process,
    pub(super) second: Option<Process>,
    /// Forks, by the first turn that isn't copied.
    pub(super) forks: BTreeMap<RunName, u32>,
    pub(super) calls: Vec<Delivery<'a>>,
    pub(super) answers: Answers,
    /// The answers, when all have come: for the judge.
    pub(super) judged: BTreeMap<usize, Got>,
    pub(super) waits: Vec<(usize, &'a Expect)>,
    /// Incidents of the processes that ended.
    pub(super) incidents: u64,
}

/// Runs the case and judges it.
pub(super) async fn run(job: Job<'_>, syncs_applied: bool) -> Vec<String> {
    let mut case = match Case::open(job, syncs_applied).await {
        Ok(Ok(case)) if job.case.register.is_some() => {
            drop(case);
            return vec!["registering the tools: expected an error, came none".to_owned()];
        }
        Ok(Ok(case)) => case,
        Ok(Err(_)) if job.case.register.is_some() => return Vec::new(),
        Ok(Err(why)) => return vec![format!("registering the tools: {why}")],
        Err(error) => return vec![format!("opening: {error:#}")],
    };
    let ended = case.steps().await;
    case.judged = std::mem::take(&mut *lock(&case.answers));
    let mut found = judge::judge(&case);
    found.extend(ended.err().map(|error| format!("{error:#}")));
    found
}

impl<'a> Case<'a> {
    async fn open(job: Job<'a>, syncs_applied: bool) -> anyhow::Result<Result<Self, String>> {
        let file = job.case;
        let shared = file.steps.iter().any(|step| matches!(step, Step::OpenSecond(_)));
        let ground = Ground::open(job.store, shared).await?;
        let counted = Arc::new(Counted::new(&ground));
        let faults = FaultyStore::new(Arc::clone(&counted) as Arc<dyn Store>);
        let common = Common {
            store: Arc::new(faults.clone()),
            clock: ManualClock::new(),
            ledger: Arc::new(Ledger::default()),
            config: file.config.clone(),
            tools: file.tools.clone(),
        };
        let first = match Process::start(&common).await? {
            Ok(first) => first,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Self {
            file,
            common,
            ground,
            counted,
            faults,
            syncs_applied,
            first,
            second: None,
            forks: BTreeMap::new(),
            calls: Vec::new(),
            answers: Answers::default(),
            judged: BTreeMap::new(),
            waits: Vec::new(),
            incidents: 0,
        }))
    }

    async fn steps(&mut self) -> anyhow::Result<()> {
        for (at, step) in self.file.steps.iter().enumerate() {
            self.step(at, step).await.with_context(|| format!("step {}", at + 1))?;
        }
        let all: Vec<usize> = (0..self.calls.len()).collect();
        self.await_calls(&all).await.context("at the end")
    }

    async fn step(&mut self, at: usize, step: &'a Step) -> anyhow::Result<()> {
        match step {
            Step::Call(call) => {
                let numbers = self.call(call).await;
                self.await_unless_parallel(&numbers).await
            }
            Step::Answer(answer) => {
                let numbers = self.answer(answer).await?;
                self.await_unless_parallel(&numbers).await
            }
            Step::Wait(wait) => {
                let number = self.number(&wait.call)?;
                self.waits.extend(wait.expect.as_ref().map(|expect| (number, expect)));
                self.await_calls(&[number]).await
            }
            Step::Restart(restart) => self.restart(restart).await,
            Step::Advance(advance) => {
                self.advance(Duration::from_millis(advance.ms)).await;
                Ok(())
            }
            Step::Clock(clock) => {
                self.settle().await;
                self.common.clock.set_wall_by(clock.wall_ms);
                Ok(())
            }
            Step::Resolve(resolve) => {
                self.settle().await;
                let resolved = self.resolve(resolve).await;
                as_expected(resolved, resolve.expect)
            }
            Step::AnswerShown(of) => as_expected(self.shown(&of.call, Reply::shown), of.expect),
            Step::NotShown(of) => as_expected(self.shown(&of.call, Reply::not_shown), of.expect),
            Step::OpenSecond(bare) => {
                let opened = self.open_second().await;
                as_expected(opened, bare.expect)
            }
            Step::Pause(pause) => self.pause(pause).await,
            Step::Continue(go_on) => {
                self.process(go_on.guard)?.door.open();
                Ok(())
            }
            Step::StoreFault(fault) => {
                self.settle().await;
                self.begin_runs(at).await;
                self.fault(fault)
            }
            Step::StoreClear(bare) => {
                self.settle().await;
                self.faults.clear();
                as_expected(Ok(()), bare.expect)
            }
            Step::Step(step) => self.run_step(step).await,
            Step::Approve(of) => {
                self.settle().await;
                let approved = self.approve(&of.call, true).await;
                as_expected(approved, of.expect)
            }
            Step::Deny(of) => {
                self.settle().await;
                let denied = self.approve(&of.call, false).await;
                as_expected(denied, of.expect)
            }
            Step::Deploy(deploy) => {
                self.settle().await;
                let deployed = self.deploy(deploy);
                as_expected(deployed, deploy.expect)
            }
            Step::Fork(fork) => {
                self.settle().await;
                let forked = self.fork(fork).await;
                as_expected(forked, fork.expect)
            }
            Step::Gc(bare) => {
                self.settle().await;
                let collected = self.first.guard.gc(GcOptions::new()).await;
                as_expected(collected.map(drop).map_err(Into::into), bare.expect)
            }
            Step::Backup(bare) => {
                self.settle().await;
                as_expected(self.ground.back_up().await, bare.expect)
            }
            Step::DeleteStore(_) => self.swap_store(false).await,
            Step::RestoreBackup(_) => self.swap_store(true).await,
        }
    }
}

/// A step that must fail does, any other doesn't.
pub(super) fn as_expected(came: anyhow::Result<()>, expect: Option<StepExpect>) -> anyhow::Result<()> {
    match (came, expect) {
        (Ok(()), Some(_)) => bail!("expected an error, came none"),
        (Err(_), Some(_)) => Ok(()),
        (came, None) => came,
    }
}

/// Calls and their answers.
impl<'a> Case<'a> {
    pub(super) fn process(&mut self, guard: Option<u8>) -> anyhow::Result<&mut Process> {
        match guard {
            Some(2) => self.second.as_mut().context("there is no second process"),
            _ => Ok(&mut self.first),
        }
    }

    pub(super) fn number(&self, name: &str) -> anyhow::Result<usize> {
        let position = self.calls.iter().position(|delivery| delivery.call.name.as_deref() == Some(name));
        position.with_context(|| format!("call {name} was not made"))
    }

    fn enter(&mut self, call: &'a Call, run: RunName, turn: Option<u32>) -> (usize, toolonce::Call) {
        let number = self.calls.len();
        self.calls.push(Delivery { call, run, turn, life: None });
        self.common.ledger.script(number as u64, &call.fate);
        let mut asked = toolonce::Call::new(&call.tool, call.arguments()).tag(number as u64);
        if let Some(id) = &call.id {
            asked = asked.id(id);
        }
        if let Some(turn) = turn {
            asked = asked.turn(turn);
        }
        if let Some(ms) = call.patience_ms {
            asked = asked.patience(Duration::from_millis(ms));
        }
        for (name, value) in &call.context {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            asked = asked.context(name, value);
        }
        (number, asked)
    }

    async fn call(&mut self, call: &'a Call) -> Vec<usize> {
        let run = run_name(call.namespace.as_deref(), call.run.as_deref());
        let (number, asked) = self.enter(call, run.clone(), call.turn);
        let answering = move |registry: Registry, run: Run| async move { vec![registry.call(&run, asked).await] };
        self.deliver(&[number], call.guard, &run, call.drop_ms, answering).await;
        vec![number]
    }

    async fn answer(&mut self, answer: &'a Answer) -> anyhow::Result<Vec<usize>> {
        let turn = answer.turn.context("an `answer` needs a turn")?;
        let first = &answer.calls[0];
        let run = run_name(first.namespace.as_deref(), answer.run.as_deref());
        let entered = answer.calls.iter().map(|call| self.enter(call, run.clone(), Some(turn)));
        let (numbers, asked): (Vec<usize>, Vec<toolonce::Call>) = entered.collect();
        let drop_ms = answer.calls.iter().filter_map(|call| call.drop_ms).min();
        let answering = move |registry: Registry, run: Run| async move { registry.answer(&run, turn, &asked).await };
        self.deliver(&numbers, first.guard, &run, drop_ms, answering).await;
        Ok(numbers)
    }

    /// Spawns a caller that belongs to the process.
    async fn deliver<F, Fut>(
        &mut self,
        numbers: &[usize],
        guard: Option<u8>,
        run: &RunName,
        drop_ms: Option<u64>,
        answering: F,
    ) where
        F: FnOnce(Registry, Run) -> Fut,
        Fut: Future<Output = Vec<Reply>> + Send + 'static,
    {
        let found = match self.process(guard) {
            Ok(process) => process.run(run).await,
            Err(_) => return,
        };
        let run = match found {
            Ok(run) => run,
            Err(error) => return self.fail(numbers, &error),
        };
        let Ok(process) = self.process(guard) else { return };
        let (registry, life) = (process.registry.clone(), Arc::clone(&process.life));
        let replies = answering(registry, run);
        let owned = numbers.to_vec();
        let lost: Vec<bool> = numbers.iter().map(|number| self.calls[*number].call.undelivered).collect();
        let (answers, clock, numbers) = (Arc::clone(&self.answers), self.common.clock.clone(), numbers.to_vec());
        let caller = tokio::spawn(async move {
            let dropped = async {
                match drop_ms {
                    Some(ms) => clock.sleep(Duration::from_millis(ms)).await,
                    None => std::future::pending().await,
                }
            };
            let got = tokio::select! {
                biased;
                replies = replies => Some(replies),
                () = dropped => None,
            };
            let got = match got {
                Some(replies) => replies.into_iter().map(|reply| Got::Reply(Box::new(reply))).collect(),
                None => numbers.iter().map(|_| Got::Gone).collect::<Vec<_>>(),
            };
            for ((number, got), lost) in numbers.into_iter().zip(got).zip(lost) {
                if let (Got::Reply(reply), true) = (&got, lost) {
                    reply.not_shown();
                }
                lock(&answers).insert(number, got);
            }
        });
        life.adopt(caller.abort_handle());
        for number in owned {
            self.calls[number].life = Some(Arc::clone(&life));
        }
    }

    /// Nobody can answer the calls.
    fn fail(&mut self, numbers: &[usize], error: &toolonce::Error) {
        for number in numbers {
            lock(&self.answers).insert(*number, Got::Failed(error.to_string()));
        }
    }

    /// Whether a call of them wants the next step to begin at once.
    async fn await_unless_parallel(&mut self, numbers: &[usize]) -> anyhow::Result<()> {
        let parallel = numbers.iter().any(|number| self.calls[*number].call.parallel);
        if parallel { Ok(()) } else { self.await_calls(numbers).await }
    }

    pub(super) fn has(&self, number: usize) -> bool {
        lock(&self.answers).contains_key(&number)
    }

    /// The newest turn of each run of which an answer reached the model.
    pub(super) fn answered(&self) -> BTreeMap<RunName, u32> {
        let answers = lock(&self.answers);
        let mut newest = BTreeMap::new();
        for (number, delivery) in self.calls.iter().enumerate() {
            let reached = matches!(answers.get(&number), Some(Got::Reply(_))) && !delivery.call.undelivered;
            if let (Some(turn), true) = (delivery.turn, reached) {
                let entry = newest.entry(delivery.run.clone()).or_insert(turn);
                *entry = turn.max(*entry);
            }
        }
        newest
    }
}

pub(super) fn run_name(namespace: Option<&str>, run: Option<&str>) -> RunName {
    (namespace.unwrap_or(super::NAMESPACE).to_owned(), run.unwrap_or("r1").to_owned())
}

/// What the judge asks.
impl Case<'_> {
    pub(super) fn file(&self) -> &Scenario {
        self.file
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.common.ledger
    }

    /// All expectations about calls, in the order of the calls.
    pub(super) fn expectations(&self) -> impl Iterator<Item = (usize, &Expect)> {
        let own = self.calls.iter().enumerate();
        let own = own.filter_map(|(number, delivery)| delivery.call.expect.as_ref().map(|expect| (number, expect)));
        own.chain(self.waits.iter().map(|(number, expect)| (*number, *expect)))
    }

    /// What the case calls it.
    pub(super) fn label(&self, number: usize) -> String {
        self.calls[number].call.name.clone().unwrap_or_else(|| format!("call {}", number + 1))
    }

    pub(super) fn got(&self, number: usize) -> Option<&Got> {
        self.judged.get(&number)
    }

    pub(super) fn reply_of(&self, name: &str) -> Option<&Reply> {
        match self.got(self.number(name).ok()?) {
            Some(Got::Reply(reply)) => Some(reply),
            _ => None,
        }
    }

    /// The downstream key of a call's reply, or of the execution that it started.
    pub(super) fn key_of(&self, name: &str) -> Option<String> {
        let replied = self.reply_of(name).and_then(Reply::downstream_key).map(toolonce::key::DownstreamKey::hex64);
        replied.or_else(|| self.common.ledger.key_of(self.number(name).ok()? as u64))
    }

    /// The tools that the lint names.
    pub(super) fn warnings(&self) -> BTreeSet<String> {
        self.first.registry.lint().into_iter().map(|warning| warning.tool).collect()
    }

    pub(super) fn incidents(&self) -> u64 {
        let second = self.second.as_ref().map_or(0, |process| process.guard.incidents());
        self.incidents + self.first.guard.incidents() + second
    }
}

//! The world outside the guard: what the tools do there, and a ledger of it that the guard can't touch.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use toolonce::{Attempt, ToolError};

use crate::corpus::Kind;
use crate::faults::Fault;
use crate::reading::{self, Meaning};

/// What a tool returns: the recorded answer, and which execution it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// Index in the ledger.
    pub entry: usize,
    /// The recorded answer.
    pub result: String,
}

/// One execution that did what it was asked.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The run.
    pub run: String,
    /// What was asked.
    pub meaning: Meaning,
    /// The tool.
    pub tool: String,
    /// Whether it changed anything.
    pub is_effect: bool,
    /// What a downstream system would know the request by.
    pub reference: String,
    /// The recorded answer.
    pub result: String,
}

/// How the next execution of a meaning goes.
#[derive(Debug, Clone)]
pub struct Script {
    /// Whether the tool fails without effect.
    pub fails: bool,
    /// The recorded answer.
    pub result: String,
    /// What strikes.
    pub fault: Option<Fault>,
    /// For [`Fault::Unknown`]: whether it happened all the same.
    pub happens: bool,
}

/// A tool came to the point where its fault strikes, and goes on when `go_on` is used or dropped.
#[derive(Debug)]
pub struct Struck {
    /// The fault.
    pub fault: Fault,
    /// Lets the tool go on.
    pub go_on: oneshot::Sender<()>,
}

/// A handle on the world. Clones are the same world.
#[derive(Debug, Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    struck: mpsc::UnboundedSender<Struck>,
}

#[derive(Debug, Default)]
struct State {
    ledger: Vec<Entry>,
    scripts: HashMap<Meaning, VecDeque<Script>>,
}

impl World {
    /// An empty world, and the end where strikes are reported.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Struck>) {
        let (struck, strikes) = mpsc::unbounded_channel();
        (Self { state: Arc::default(), struck }, strikes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how the executions of the coming turn go: for each meaning one after the other, the last for all that
    /// follow.
    pub fn script(&self, scripts: impl IntoIterator<Item = (Meaning, Script)>) {
        let mut state = self.lock();
        state.scripts.clear();
        for (meaning, script) in scripts {
            state.scripts.entry(meaning).or_default().push_back(script);
        }
    }

    /// The entry of the ledger.
    pub fn entry(&self, index: usize) -> Option<Entry> {
        self.lock().ledger.get(index).cloned()
    }

    /// The effect that a downstream system knows by this reference.
    pub fn effect_of(&self, reference: &str) -> Option<Returned> {
        let state = self.lock();
        let entry = state.ledger.iter().position(|entry| entry.is_effect && entry.reference == reference)?;
        Some(Returned { entry, result: state.ledger[entry].result.clone() })
    }

    /// How many effects of this meaning there are in the run.
    pub fn effects_of(&self, run: &str, meaning: &Meaning) -> usize {
        let state = self.lock();
        state.ledger.iter().filter(|entry| entry.is_effect && entry.run == run && entry.meaning == *meaning).count()
    }

    /// Where in the ledger the run's latest effect stands for which `is_it` holds.
    pub fn latest(&self, run: &str, is_it: impl Fn(&Entry) -> bool) -> Option<usize> {
        self.lock().ledger.iter().rposition(|entry| entry.is_effect && entry.run == run && is_it(entry))
    }

    /// Whether between the last two effects of this meaning in the run one of the tools `by` had an effect.
    pub fn reopened_between(&self, run: &str, meaning: &Meaning, by: &[String]) -> bool {
        let state = self.lock();
        let newest_first = state.ledger.iter().rev().filter(|entry| entry.is_effect && entry.run == run);
        let mut after_the_first = newest_first.skip_while(|entry| entry.meaning != *meaning).skip(1);
        after_the_first
            .find(|entry| entry.meaning == *meaning || by.contains(&entry.tool))
            .is_some_and(|entry| entry.meaning != *meaning)
    }

    /// How many effects there are.
    pub fn effects(&self) -> usize {
        self.lock().ledger.iter().filter(|entry| entry.is_effect).count()
    }

    fn next_script(&self, meaning: &Meaning) -> Option<Script> {
        let mut state = self.lock();
        let scripts = state.scripts.get_mut(meaning)?;
        if scripts.len() > 1 {
            return scripts.pop_front();
        }
        let script = scripts.front_mut()?;
        let last = script.clone();
        script.fault = None;
        Some(last)
    }

    fn do_it(&self, tool: &Tool, meaning: Meaning, attempt: &Attempt, result: &str) -> String {
        let mut state = self.lock();
        let returned = Returned { entry: state.ledger.len(), result: result.to_owned() };
        state.ledger.push(Entry {
            run: attempt.run().to_owned(),
            meaning,
            tool: tool.name.clone(),
            is_effect: tool.kind.is_effect(),
            reference: attempt.downstream_key().reference(),
            result: result.to_owned(),
        });
        serde_json::json!(returned).to_string()
    }

    /// Reports that a fault strikes; what is returned ends when the tool may go on.
    fn strike(&self, fault: Fault) -> oneshot::Receiver<()> {
        let (go_on, going) = oneshot::channel();
        // If nobody listens, the sender is dropped, and that means go on, too.
        let _ = self.struck.send(Struck { fault, go_on });
        going
    }
}

/// A tool of the corpus: it does what the script says.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Where it does it.
    pub world: World,
}

impl Tool {
    /// One execution.
    ///
    /// # Errors
    /// As the script says.
    pub async fn run(&self, arguments: String, attempt: Attempt) -> Result<String, ToolError> {
        let read = reading::arguments(&arguments).map_err(ToolError::permanent)?;
        let meaning = Meaning::new(&self.name, &read);
        let script = self.world.next_script(&meaning);
        let script = script.ok_or_else(|| ToolError::permanent("nobody asked for this"))?;
        let fault = script.fault;
        if let Some(fault @ (Fault::CrashBefore | Fault::GivesUp)) = fault {
            let _ = self.world.strike(fault).await;
        }
        let happens = !script.fails && (fault != Some(Fault::Unknown) || script.happens);
        let returned = happens.then(|| self.world.do_it(self, meaning, &attempt, &script.result));
        if let Some(fault @ (Fault::CrashAfter | Fault::ReplyLost)) = fault {
            let _ = self.world.strike(fault).await;
        }
        match returned {
            _ if fault == Some(Fault::Unknown) => {
                drop(self.world.strike(Fault::Unknown));
                Err(ToolError::unknown("the connection was lost"))
            }
            Some(returned) => Ok(returned),
            None => Err(ToolError::permanent(script.result)),
        }
    }
}

//! Breadth-first search over all reachable states; the first counterexample is a shortest one.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// An invariant that doesn't hold.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) invariant: &'static str,
    pub(super) detail: String,
}

/// What is fine, or what is broken.
pub(super) type Checked<T> = Result<T, Broken>;

/// Fails with `invariant` unless `holds`.
pub(super) fn ensure(holds: bool, invariant: &'static str, detail: impl FnOnce() -> String) -> Checked<()> {
    if holds {
        return Ok(());
    }
    Err(Broken { invariant, detail: detail() })
}

/// The successors of a state: the step that leads there, and the state or what the step broke.
pub(super) type Steps<M> = Vec<(<M as Model>::Step, Checked<<M as Model>::State>)>;

/// A model with more states than this has bounds that are too wide.
const MOST_STATES: usize = 8_000_000;

/// Something to explore.
pub(super) trait Model {
    type State: Clone + Hash;
    type Step: Clone + Debug;

    fn start(&self) -> Self::State;
    /// Every step that can follow.
    fn steps(&self, state: &Self::State, out: &mut Steps<Self>)
    where
        Self: Sized;
    /// What must hold of a state; `is_last` if no step follows.
    fn check(&self, _state: &Self::State, _is_last: bool) -> Checked<()> {
        Ok(())
    }
}

/// How large a model is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) time: Duration,
}

/// A broken invariant and the steps that lead to it.
#[derive(Debug)]
pub(super) struct Counterexample {
    pub(super) broken: Broken,
    pub(super) story: Vec<String>,
}

impl std::fmt::Display for Counterexample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "broken: {}: {}", self.broken.invariant, self.broken.detail)?;
        self.story.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Visits every state of `model` once. Of visited states only 128 bits of hash are kept.
pub(super) fn explore<M: Model>(model: &M) -> Result<Size, Counterexample> {
    let begun = Instant::now();
    let mut visited = HashSet::new();
    let mut parents: Vec<Option<(usize, M::Step)>> = vec![None];
    let mut queue = VecDeque::from([(0, model.start())]);
    visited.insert(fingerprint(&queue[0].1));
    let mut count = 0;
    let mut out = Vec::new();
    while let Some((at, state)) = queue.pop_front() {
        model.steps(&state, &mut out);
        let fine = model.check(&state, out.is_empty());
        fine.map_err(|broken| counterexample::<M>(broken, &parents, at, None))?;
        assert!(parents.len() < MOST_STATES, "the model is too large to explore");
        for (step, next) in out.drain(..) {
            count += 1;
            let next = next.map_err(|broken| counterexample::<M>(broken, &parents, at, Some(&step)))?;
            if visited.insert(fingerprint(&next)) {
                queue.push_back((parents.len(), next));
                parents.push(Some((at, step)));
            }
        }
    }
    Ok(Size { states: visited.len(), steps: count, time: begun.elapsed() })
}

/// Explores and reports the size, or fails the test with the story of the counterexample.
pub(super) fn must_hold<M: Model>(name: &str, model: &M) -> Size {
    match explore(model) {
        Ok(size) => {
            println!("{name}: {} states, {} steps, {:?}", size.states, size.steps, size.time);
            size
        }
        Err(found) => panic!("{name}: {found}"),
    }
}

fn counterexample<M: Model>(
    broken: Broken,
    parents: &[Option<(usize, M::Step)>],
    mut at: usize,
    last: Option<&M::Step>,
) -> Counterexample {
    let mut story: Vec<String> = last.iter().map(|step| format!("{step:?}")).collect();
    while let Some((parent, step)) = &parents[at] {
        story.push(format!("{step:?}"));
        at = *parent;
    }
    story.reverse();
    Counterexample { broken, story }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        state.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

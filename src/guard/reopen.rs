//! What reopens a call: a later completion of another tool that was about the same thing.

use super::Inner;
use super::pages::Pages;
use super::rows::{PlacedValue, Reopening, Row, RunKind, RunLog};
use super::secrets::Keying;
use super::work::Work;
use crate::canonical::{self, Arguments, LeafText, Leaves, Limits, Node, Shape};
use crate::error::Error;
use crate::protocol::record::Base;
use crate::tool::any_object;

/// What a call's tool has to do with reopening.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Whether its completions have a place in the run's order: it is reopened, or reopens.
    pub(crate) counts: bool,
    /// Whether its completion reopens another tool: then it is recorded what it was about.
    pub(crate) reopens: bool,
    /// Its values, as far as anything may be compared with them, as each secret gives them: the present one first.
    pub(crate) values: Vec<Vec<PlacedValue>>,
    /// What reopens it.
    pub(crate) reopened_by: Vec<Reopens>,
}

/// One tool that reopens another, and which of its completions count.
#[derive(Debug)]
pub(crate) struct Reopens {
    pub(crate) tool: String,
    /// Places that both name as identity: the values there must be equal.
    pub(crate) common: Vec<String>,
    /// A place in its arguments, and one in the result of the call that is reopened.
    pub(crate) when: Vec<(String, String)>,
}

impl Reopens {
    fn any_counts(&self) -> bool {
        self.common.is_empty() && self.when.is_empty()
    }

    fn counts(
        &self,
        keying: Keying<'_>,
        row: &Reopening,
        run: &str,
        own: &[PlacedValue],
        result: Option<&Node<'_>>,
    ) -> bool {
        let equal = |pointer: &String| {
            let theirs = below(&row.values, pointer);
            !theirs.is_empty() && theirs == below(own, pointer)
        };
        let refers = |(argument, place): &(String, String)| {
            let meant = result
                .and_then(|result| at(result, place))
                .map(|node| value_of(keying, run, canonical::write(node).as_bytes()));
            row.values.iter().any(|value| value.pointer == *argument && Some(value.value) == meant)
        };
        row.tool == self.tool && self.common.iter().all(equal) && self.when.iter().all(refers)
    }
}

/// The values at a place and below it.
fn below<'a>(values: &'a [PlacedValue], pointer: &str) -> Vec<&'a PlacedValue> {
    let is_below = |value: &&PlacedValue| {
        value.pointer.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    values.iter().filter(is_below).collect()
}

/// The digest of a value's canonical text. Salted by the run: it tells nothing across runs.
pub(crate) fn value_of(keying: Keying<'_>, run: &str, text: &[u8]) -> u64 {
    let salted = [&(run.len() as u64).to_be_bytes(), run.as_bytes(), text].concat();
    let [a, b, c, d, e, f, g, h, ..] = keying.digest("toolonce value", &salted).0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The node at a JSON pointer (RFC 6901).
fn at<'n, 'a>(node: &'n Node<'a>, pointer: &str) -> Option<&'n Node<'a>> {
    let mut steps = pointer.split('/');
    if steps.next() != Some("") {
        return None;
    }
    steps.try_fold(node, |node, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match node {
            Node::Object(members) => members.iter().find(|(name, _)| *name == step).map(|(_, value)| value),
            Node::Array(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => None,
        }
    })
}

/// The values of a call, each with its place.
pub(crate) fn placed(keying: Keying<'_>, run: &str, leaves: &Leaves) -> Vec<PlacedValue> {
    let placed = |leaf: LeafText<'_>| {
        let value = value_of(keying, run, leaf.value);
        PlacedValue { pointer: leaf.pointer.to_owned(), value }
    };
    leaves.iter().map(placed).collect()
}

/// The values of arguments that are known by their text only.
pub(crate) fn values_of(keying: Keying<'_>, run: &str, arguments: &str) -> Vec<PlacedValue> {
    let limits = Limits { bytes: usize::MAX, depth: Limits::MAX_DEPTH };
    let shape = Shape::compile(&any_object()).ok();
    let arguments = Arguments::read(arguments, &limits).ok();
    let meaning = shape.zip(arguments).and_then(|(shape, arguments)| shape.normalise(&arguments).ok());
    meaning.map_or_else(Vec::new, |meaning| placed(keying, run, &meaning.leaves))
}

impl Inner {
    /// The place, in the run's order of completions, of one that makes an equal call new; 0 if there is none after the
    /// newest outcome of `base`.
    pub(crate) async fn reopened(&self, work: &Work, base: &Base) -> Result<u64, Error> {
        if work.part.reopened_by.is_empty() {
            return Ok(0);
        }
        let Some(outcome) = base.occurrences.last().and_then(|record| record.outcome.as_ref()) else { return Ok(0) };
        let log: RunLog = work.run.now().log;
        let newer = |by: &&Reopens| log.newest_of(&by.tool) > outcome.order;
        let by: Vec<&Reopens> = work.part.reopened_by.iter().filter(newer).collect();
        if let Some(any) = by.iter().find(|by| by.any_counts()) {
            return Ok(log.newest_of(&any.tool));
        }
        if by.is_empty() {
            return Ok(0);
        }
        let text = self.result_text(work, base, base.occurrences.len() - 1).await?.text;
        let result = canonical::read(&text, &Limits { bytes: usize::MAX, depth: Limits::MAX_DEPTH }).ok();
        let run = &work.run;
        let all = run.prefix.all_of_run(RunKind::Reopenings, &run.id);
        let mut pages = Pages::from(all, run.prefix.reopening(&run.id, outcome.order + 1));
        while let Some(page) = pages.next(self).await? {
            for (key, row) in page {
                let row = Reopening::read(&row.value)?;
                // A completion was recorded under the secret of its time.
                let mut secrets = self.secrets.all().zip(&work.part.values);
                let counts = |by: &&Reopens, (keying, own): (Keying<'_>, &Vec<PlacedValue>)| {
                    by.counts(keying, &row, run.salt(), own, result.as_ref())
                };
                if secrets.any(|secret| by.iter().any(|by| counts(by, secret))) {
                    return Ok(order_of(&key));
                }
            }
        }
        Ok(0)
    }
}

/// The place in the run's order is the end of the row's key.
pub(super) fn order_of(key: &crate::store::Key) -> u64 {
    let bytes = key.as_bytes();
    let tail = bytes.len().checked_sub(8).and_then(|at| bytes[at..].try_into().ok());
    tail.map_or(0, u64::from_be_bytes)
}

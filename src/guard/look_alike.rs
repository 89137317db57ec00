//! Calls that look alike: models word a retry anew, and the new words have another key.
//!
//! Each write that is claimed leaves its key in a row of its run and skeleton. A claim checks that row's version, so two
//! processes that claim look-alikes at the same time meet. Who isn't open any more is dropped when the row is next
//! written.

use super::Inner;
use super::records::{Along, downstream};
use super::rows::{LookAlikeCall, LookAlikes, Row};
use super::secrets::Keying;
use super::work::Work;
use crate::canonical::{Arguments, Limits};
use crate::error::Error;
use crate::policy::LookAlike;
use crate::protocol::fork::inherited;
use crate::protocol::look_alike::{Alike, stands};
use crate::store::{Key, Version};

/// What a claim found of calls that look like it.
pub(super) struct Looked {
    /// The reference of one that isn't finished.
    pub(super) of: Option<String>,
    key: Key,
    version: Option<Version>,
    open: LookAlikes,
}

impl Looked {
    /// Adds the call at `occurrence` to the row, in its claim's batch.
    pub(super) fn join(mut self, work: &Work, occurrence: usize, along: &mut Along) {
        let occurrence = u32::try_from(occurrence).unwrap_or(u32::MAX);
        let call = LookAlikeCall { key: work.key, occurrence };
        if !self.open.calls.contains(&call) {
            self.open.calls.push(call);
        }
        along.checks.push((self.key.clone(), self.version));
        along.puts.push((self.key, self.open.to_bytes()));
    }
}

impl Inner {
    /// Looks for calls that look like `work`; `None` if its policy doesn't ask for that or nothing is left to compare. Rows
    /// that are known to be absent aren't read.
    pub(super) async fn look_alikes(
        &self,
        work: &Work,
        is_absent: impl Fn(&Key) -> bool,
    ) -> Result<Option<Looked>, Error> {
        if work.tool.look_alike == LookAlike::Off {
            return Ok(None);
        }
        let Some(skeleton) = skeleton(work) else { return Ok(None) };
        // Under older secrets as well; the row that is written is the first.
        let row_of = |keying: Keying<'_>| {
            let digest = keying.digest("toolonce skeleton", skeleton.as_bytes());
            work.run.prefix.look_alikes(&work.run.id, &digest)
        };
        let mut keys: Vec<Key> = self.secrets.all().map(row_of).collect();
        // The claim checks the first row alone: those under older secrets must have been read.
        let stored = match keys.as_slice() {
            [only] if is_absent(only) => Vec::new(),
            keys => self.records.store().get(keys).await?,
        };
        let version = stored.first().and_then(Option::as_ref).map(|stored| stored.version);
        let key = keys.swap_remove(0);
        let mut calls = Vec::new();
        for stored in stored.into_iter().flatten() {
            calls.extend(LookAlikes::read(&stored.value)?.calls);
        }
        let (history, now) = (work.run.now().history, self.now.get());
        let (mut of, mut open) = (None, LookAlikes::default());
        for call in calls {
            let known = self.records.load(work.run.prefix, &call.key).await?;
            let at = call.occurrence as usize;
            let base = inherited(&known.base, &work.run.id, &work.run.line);
            let Some(record) = base.occurrences.get(at) else { continue };
            let stands = stands(record, &work.asked, &history, &self.lease.at(now), now);
            if stands == Alike::Finished {
                continue;
            }
            // Under the same key it is told apart by the repeat rule.
            if stands == Alike::Open && call.key != work.key {
                of = Some(downstream(&call.key, &known.base, at).reference());
            }
            open.calls.push(call);
        }
        Ok(Some(Looked { of, key, version, open }))
    }
}

/// The skeleton of a call with its tool and context. Worked out only for claims: replays need none.
fn skeleton(work: &Work) -> Option<String> {
    let limits = Limits { bytes: usize::MAX, depth: Limits::MAX_DEPTH };
    let arguments = Arguments::read(&work.executed, &limits).ok()?;
    let mut parts = work.tool.shape.skeleton(&arguments)?;
    for part in std::iter::once(work.name()).chain(work.context.iter().flat_map(|(name, value)| [&**name, &**value])) {
        parts.push('\0');
        parts.push_str(part);
    }
    Some(parts)
}

/// A look-alike that runs all the same.
pub(super) fn warn(work: &Work, of: &str) {
    tracing::warn!(tool = work.name(), run = %work.asked.run, of, "a call looks like another one that isn't finished");
}

//! A run goes by the key rules that its tools had when it first used them: under other rules an equal call would have
//! another key, and what was done would be done again.

use super::Inner;
use super::records::Along;
use super::rows::{ContractRow, Row};
use super::work::Work;
use crate::error::Error;

/// How a call's tool stands to the rules that its run goes by.
pub(super) enum Contract {
    /// The same rules, or the call doesn't depend on them.
    Holds,
    /// The run goes by none yet: the first claim binds it.
    Unbound,
    /// Other rules.
    Changed,
}

impl Inner {
    /// Whether the run knows the tool by the rules that it has now.
    pub(super) async fn contract(&self, work: &Work) -> Result<Contract, Error> {
        if !work.tool.policy.effect().is_write() || work.is_pinned {
            return Ok(Contract::Holds);
        }
        let bound = match work.run.contract(work.name()) {
            Some(bound) => Some(bound),
            None => {
                let key = work.run.prefix.contract(&work.run.id, work.name());
                let stored = self.records.store().get(&[key]).await?.pop().flatten();
                let row = stored.map(|stored| ContractRow::read(&stored.value)).transpose()?;
                row.map(|row| row.contract)
            }
        };
        Ok(match bound {
            None => Contract::Unbound,
            Some(bound) if bound == work.tool.contract => {
                work.run.bind(work.name(), bound);
                Contract::Holds
            }
            Some(_) => Contract::Changed,
        })
    }
}

/// Binds the run in the batch of a claim.
pub(super) fn bind(work: &Work, along: &mut Along) {
    let key = work.run.prefix.contract(&work.run.id, work.name());
    along.checks.push((key.clone(), None));
    along.puts.push((key, ContractRow { contract: work.tool.contract }.to_bytes()));
}

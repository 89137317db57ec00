//! When time moves: only while nothing is at work.

use std::time::Duration;

use anyhow::bail;
use toolonce::Clock;

use super::case::Case;

/// So many rounds of the runtime without a store operation mean that nothing is at work.
const CALM: u32 = 32;

impl Case<'_> {
    /// Lets everything run that can run without time moving.
    pub(super) async fn settle(&self) {
        let mut calm = 0;
        while calm < CALM {
            self.counted.idle().await;
            let begun = self.counted.begun();
            tokio::task::yield_now().await;
            calm = if self.counted.begun() == begun { calm + 1 } else { 0 };
        }
    }

    /// Moves both clocks, deadline by deadline.
    pub(super) async fn advance(&self, by: Duration) {
        let clock = &self.common.clock;
        let target = clock.monotonic() + by;
        loop {
            self.settle().await;
            let left = target.saturating_sub(clock.monotonic());
            match clock.next_deadline() {
                Some(next) if next <= left => clock.advance(next),
                _ => {
                    clock.advance(left);
                    break;
                }
            }
        }
        self.settle().await;
    }

    /// Waits until the calls are answered or their process has ended. When everybody sleeps, time moves.
    pub(super) async fn await_calls(&mut self, numbers: &[usize]) -> anyhow::Result<()> {
        loop {
            self.settle().await;
            let open = numbers.iter().copied().filter(|number| !self.has(*number));
            let Some(open) = open.into_iter().find(|number| self.is_alive(*number)) else {
                return self.crashed_as_told(numbers);
            };
            match self.common.clock.next_deadline() {
                Some(next) => self.common.clock.advance(next),
                None => bail!("{} hangs: nothing is left to wait for", self.label(open)),
            }
        }
    }

    fn is_alive(&self, number: usize) -> bool {
        !self.calls[number].life.as_ref().is_none_or(|life| life.is_dead())
    }

    /// A call whose process was to die in it has no answer.
    fn crashed_as_told(&self, numbers: &[usize]) -> anyhow::Result<()> {
        let survivor = numbers.iter().find(|number| self.calls[**number].call.crashes() && self.has(**number));
        match survivor {
            Some(number) => bail!("{}: expected the process to die, came an answer", self.label(*number)),
            None => Ok(()),
        }
    }
}

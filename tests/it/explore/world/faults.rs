//! Crashes, silence, and humans.

use super::*;

impl Scene<'_> {
    /// Whether a process is in the middle of something that a stop or a crash could spoil.
    fn is_busy(&self, world: &World, process: usize) -> bool {
        let waits = self.is_asked(world, process) && world.processes[process].phase != Phase::Asked;
        waits || world.attempts.iter().any(|a| self.body_lives_in(world, a, process))
    }

    pub(super) fn life_steps(&self, world: &World, process: usize, out: &mut Steps<Self>) {
        let owner = world.processes[process].owner;
        if world.lives[owner] == Life::Silent {
            let mut next = world.clone();
            next.lives[owner] = Life::Alive;
            out.push((Step::Wakes(process), Ok(next)));
            return;
        }
        if !self.is_busy(world, process) {
            return;
        }
        if world.left.silent > 0 {
            let mut next = world.clone();
            next.left.silent -= 1;
            next.lives[owner] = Life::Silent;
            out.push((Step::FallsSilent(process), Ok(next)));
        }
        if world.left.crash > 0 {
            let mut next = world.clone();
            next.left.crash -= 1;
            next.lives[owner] = if self.proves_death { Life::Dead(self.now(world)) } else { Life::Dead(0) };
            next.lives.push(Life::Alive);
            for attempt in next.attempts.iter_mut().filter(|a| a.owner == owner) {
                attempt.is_over = true;
                attempt.deadline = 0;
                if attempt.send == Send::NotYet {
                    attempt.send = Send::Never;
                }
            }
            next.processes[process].owner = next.lives.len() - 1;
            next.processes[process].phase = Phase::Asked;
            next.processes[process].looked_up = false;
            out.push((Step::Crashes(process), Ok(next)));
        }
    }

    /// A human who asked the downstream system after the settle delay, and says what is true.
    fn human(&self, world: &World, occurrence: usize) -> Option<(bool, Event)> {
        let record = world.base.occurrences.get(occurrence)?;
        let owners = self.owners(world);
        let now = self.now(world);
        if self.table.view(record, &owners, now) != View::InDoubt {
            return None;
        }
        let mut attempts = world.attempts.iter().filter(|a| a.occurrence == occurrence);
        let landed = attempts.any(|a| a.send == Send::Landed);
        let counts = self.table.no_counts(now, Some(record.quiet_from(&owners) + self.settle()));
        (landed || counts).then(|| (landed, answered(record.fence, landed, ToldBy::Human, 0)))
    }

    pub(super) fn human_steps(&self, world: &World, out: &mut Steps<Self>) {
        if world.left.human == 0 {
            return;
        }
        for occurrence in 0..world.base.occurrences.len() {
            let Some((happened, event)) = self.human(world, occurrence) else {
                continue;
            };
            let next = judge(self.table, &world.base, occurrence, &event).and_then(|base| {
                ensure(base.is_some(), WAY_OUT, || format!("{event:?} was refused"))?;
                let mut next = world.clone();
                next.left.human -= 1;
                next.store(base.unwrap_or_default());
                Ok(next)
            });
            out.push((Step::Human(happened), next));
        }
    }
}

//! What bodies do, and what the world makes of it.

use super::*;

impl Scene<'_> {
    fn sends(&self, world: &World, at: usize, way: Way) -> Checked<World> {
        let now = self.now(world);
        let attempt = &world.attempts[at];
        if self.policy.effect() == Effect::Write {
            let may_have_had = |a: &&Attempt| match a.send {
                Send::Landed => true,
                Send::InFlight(sent) => now < sent + self.settle(),
                Send::NotYet | Send::Refused(_) | Send::Never => false,
            };
            let others = world.attempts.iter().filter(|a| a.occurrence == attempt.occurrence && *a != attempt);
            let before: Vec<_> = others.filter(may_have_had).collect();
            ensure(before.is_empty(), WRITE_ONCE, || format!("{attempt:?} after {before:?}"))?;
        }
        let mut next = world.clone();
        match way {
            Way::Lands => return self.lands(&next, at),
            Way::IsLate => {
                next.left.late -= 1;
                next.attempts[at].send = Send::InFlight(now);
            }
            Way::IsRefused(class) => {
                next.left.failure -= 1;
                next.attempts[at].send = Send::Refused(class);
            }
        }
        Ok(next)
    }

    fn lands(&self, world: &World, at: usize) -> Checked<World> {
        let now = self.now(world);
        let mut next = world.clone();
        next.attempts[at].send = Send::Landed;
        let (occurrence, generation) = (next.attempts[at].occurrence, next.attempts[at].generation);
        let remembers = |first: Millis| match self.window() {
            Some(KeyWindow::Permanent) => true,
            Some(KeyWindow::For(window)) => now < first + window.as_millis() as Millis,
            _ => false,
        };
        let merges = |&(o, g, first): &(usize, u32, Millis)| (o, g) == (occurrence, generation) && remembers(first);
        if !next.effects.iter().any(merges) {
            let remembered = if matches!(self.window(), Some(KeyWindow::For(_))) { now } else { 0 };
            next.effects.push((occurrence, generation, remembered));
        }
        let name = match self.policy.effect() {
            Effect::Keyed(_) => KEYED_ONCE,
            Effect::Write => ONE_EFFECT_PER_INTENT,
            _ => return Ok(next),
        };
        ensure(next.effects.len() <= self.most_effects, name, || format!("{:?}", next.effects))?;
        Ok(next)
    }

    fn ends(&self, world: &World, at: usize, how: How) -> Checked<World> {
        let attempt = &world.attempts[at];
        let end = match (how, attempt.send) {
            (How::Known, Send::Landed) => End::Success {
                body: Body::Inline(vec![attempt.fence.0 as u8]),
                fingerprint: Fingerprint::default(),
                order: 0,
            },
            (How::Known, Send::Refused(class)) => no_effect(class),
            (How::Known, _) => no_effect(FailureClass::Retryable),
            (How::Unknown, _) => End::Unknown { error: String::new() },
        };
        // When a success was recorded decides nothing: equal states stay equal.
        let at_end = if matches!(end, End::Success { .. }) { 0 } else { self.now(world) };
        let event = Event::Ended { fence: attempt.fence, end, at: at_end };
        let mut next = world.clone();
        next.attempts[at].is_over = true;
        next.attempts[at].deadline = 0;
        if attempt.send == Send::NotYet {
            next.attempts[at].send = Send::Never;
        }
        next.left.lost_reply -= u8::from(how == How::Unknown && attempt.send == Send::Landed);
        if let Some(base) = judge(self.table, &world.base, attempt.occurrence, &event)? {
            next.store(base);
        }
        Ok(next)
    }

    pub(super) fn body_steps(&self, world: &World, out: &mut Steps<Self>) {
        let now = self.now(world);
        for (at, attempt) in world.attempts.iter().enumerate() {
            let fence = attempt.fence;
            if let Send::InFlight(sent) = attempt.send
                && now < sent + self.settle()
            {
                out.push((Step::Lands(fence), self.lands(world, at)));
            }
            if attempt.is_over || world.lives[attempt.owner] != Life::Alive {
                continue;
            }
            match attempt.send {
                Send::NotYet if self.table.may_send(now, attempt.deadline) => {
                    let mut ways = vec![Way::Lands];
                    if world.left.late > 0 {
                        ways.push(Way::IsLate);
                    }
                    if world.left.failure > 0 {
                        ways.push(Way::IsRefused(FailureClass::Retryable));
                        if self.window().is_some() {
                            ways.push(Way::IsRefused(FailureClass::Permanent));
                        }
                    }
                    out.extend(ways.into_iter().map(|way| (Step::Sends(fence, way), self.sends(world, at, way))));
                }
                // A body that never began can't have had an effect.
                Send::NotYet => out.push((Step::Ends(fence, How::Known), self.ends(world, at, How::Known))),
                Send::InFlight(_) => out.push((Step::Ends(fence, How::Unknown), self.ends(world, at, How::Unknown))),
                Send::Landed | Send::Refused(_) => {
                    out.push((Step::Ends(fence, How::Known), self.ends(world, at, How::Known)));
                    if world.left.lost_reply > 0 && attempt.send == Send::Landed {
                        out.push((Step::Ends(fence, How::Unknown), self.ends(world, at, How::Unknown)));
                    }
                }
                Send::Never => {}
            }
        }
    }
}

//! One call from the question to its answer, and what must hold of it.

use super::*;

impl Conversation<'_> {
    /// One call from the question to the answer.
    pub(super) fn call(&self, state: &State, turn: Turn, nth: u32, run: Run, taken: bool) -> Checked<Option<State>> {
        let mut next = state.clone();
        next.calls -= 1;
        let known = state.places.iter().position(|p| p.turn == turn && p.nth == nth);
        next.redelivered |= known.is_some();
        let at = known.unwrap_or_else(|| {
            next.places.push(Place {
                turn,
                nth,
                told: Told::Nothing,
                was_taken: false,
                epoch: 0,
                knew: self.knew(state, turn),
            });
            next.places.len() - 1
        });
        next.places[at].epoch = state.history.epoch();
        next.turn = next.turn.max(turn);
        let asked = self.asked(state, turn, nth);
        let decision = self.decide(state, &asked);
        let is_attempt = matches!(decision.act, Act::Attempt { .. });
        if !is_attempt && run != Run::Succeeds {
            return Ok(None);
        }
        self.check_occurrence(&next, at, known.is_some(), &decision)?;
        let place = decision.place.map(|place| NotedPlace {
            run: asked.run.clone(),
            turn,
            nth: place.nth,
            id: asked.id.clone(),
            fingerprint: asked.fingerprint,
        });
        let mut note = Note { occurrence: decision.occurrence, place, given: None, delivered: None, replay: false };
        let told = if is_attempt {
            match self.execute(&mut next, &decision, &note, run)? {
                Some(told) => told,
                None => return Ok(Some(next)),
            }
        } else {
            told(&decision)
        };
        self.check_answer(&state.base, &next, at, known.is_some(), &told)?;
        next.places[at].told = told.clone();
        let is_outcome = matches!(told, Told::Outcome { .. });
        if !taken && !is_outcome {
            return Ok(None);
        }
        note.given = Some(given(&told));
        note.delivered = (is_outcome && (taken || self.table.marks_at_completion())).then_some(true);
        if !self.table.marks_when_taken() {
            note.delivered = None;
        }
        self.table.note(&mut next.base, &next.history, &note);
        next.places[at].was_taken |= taken;
        next.faults -= u8::from(!taken);
        next.last_turn = next.last_turn.max(Some(turn));
        Ok(Some(next))
    }

    /// What the caller is told; `None` if the process died.
    fn execute(&self, next: &mut State, decision: &Decision, note: &Note, run: Run) -> Checked<Option<Told>> {
        let occurrence = decision.occurrence;
        let Act::Attempt { over, .. } = decision.act else {
            return Ok(None);
        };
        let claim = new_claim(&asked(next.turn), self.policy.effect(), over);
        let claim = NewClaim { owner: OwnerId([next.crashes; 16]), ..claim };
        must_apply(self.table, &mut next.base, occurrence, &Event::Claim(Box::new(claim)))?;
        self.table.note(&mut next.base, &next.history, note);
        let fence = next.base.occurrences[occurrence].fence;
        next.faults -= u8::from(run != Run::Succeeds);
        if !matches!(run, Run::Fails(_) | Run::CrashesBefore) {
            self.effect(next, occurrence)?;
        }
        let end = match run {
            Run::Succeeds => success(fence),
            Run::Fails(class) => End::NoEffect { failure: failure(class), not_before: 0 },
            Run::OutlivesPatience => {
                next.running.push((occurrence, fence));
                return Ok(Some(Told::Status));
            }
            Run::CrashesBefore | Run::CrashesAfter => {
                next.is_down = true;
                next.crashes += 1;
                next.running.clear();
                return Ok(None);
            }
        };
        let event = Event::Ended { fence, end, at: 0 };
        next.base = judge(self.table, &next.base, occurrence, &event)?.unwrap_or_else(|| next.base.clone());
        Ok(Some(match run {
            Run::Fails(class) => Told::Failure(class),
            _ => Told::Outcome { occurrence, is_marked: false },
        }))
    }

    fn effect(&self, next: &mut State, occurrence: usize) -> Checked<()> {
        next.effects.resize(next.effects.len().max(occurrence + 1), 0);
        next.effects[occurrence] += 1;
        let twice = next.effects[occurrence] > 1 && self.policy.effect() != Effect::Idempotent;
        ensure(!twice, WRITE_ONCE, || format!("occurrence {occurrence}"))
    }

    fn check_occurrence(&self, next: &State, at: usize, is_redelivery: bool, decision: &Decision) -> Checked<()> {
        let place = &next.places[at];
        let occurrence = decision.occurrence;
        let count = next.base.occurrences.len();
        let detail = || format!("{place:?} got {decision:?}");
        ensure(occurrence <= count, ANSWERED, detail)?;
        if occurrence == count {
            let of_turn = |n: usize| next.base.occurrences[n].slots.iter().any(|slot| slot.turn == place.turn);
            let may_be_other = |n: usize| {
                self.again() && place.knew.contains(&n) || self.each && self.form == Form::Answer && of_turn(n)
            };
            let is_new = !is_redelivery && (0..count).all(may_be_other);
            return ensure(is_new || count == 0, ONE_EFFECT_PER_INTENT, detail);
        }
        let old = self.again() && place.knew.contains(&occurrence);
        let apart = self.each && self.form == Form::Answer;
        let merges = !apart && next.places.iter().filter(|p| p.turn == place.turn).count() > 1;
        ensure(is_redelivery || merges || !old, WISH_RUNS, detail)?;
        let taken_by_sibling = next.places.iter().enumerate().any(|(i, other)| {
            i != at
                && other.turn == place.turn
                && matches!(other.told, Told::Outcome { occurrence: o, .. } if o == occurrence)
        });
        ensure(!(apart && taken_by_sibling), WISH_RUNS, detail)
    }

    fn check_answer(&self, before: &Base, next: &State, at: usize, is_redelivery: bool, told: &Told) -> Checked<()> {
        let place = &next.places[at];
        let is_final = matches!(place.told, Told::Outcome { .. } | Told::Failure(FailureClass::Permanent));
        let is_frozen = next.last_turn.is_some_and(|last| last > place.turn) && place.told != Told::Nothing;
        let known = self.form != Form::Bare;
        let same = !(is_redelivery && known && (is_final || is_frozen)) || *told == place.told;
        ensure(same, FROZEN, || format!("{place:?} now got {told:?}"))?;
        let Told::Outcome { occurrence, is_marked: false } = *told else {
            return Ok(());
        };
        let mut others = next.places.iter().enumerate().filter(|(i, _)| *i != at);
        let plain = Told::Outcome { occurrence, is_marked: false };
        // A place that was told "running" or got a failure is its sibling's retry: the same intent.
        let slots = |base: &Base| base.occurrences.iter().flat_map(|r| r.slots.clone()).collect::<Vec<_>>();
        let is_retry = slots(before).iter().any(|slot| slot.turn == place.turn && slot.nth == place.nth);
        let sibling = known && !is_retry && others.any(|(_, p)| p.turn == place.turn && p.told == plain);
        ensure(!place.knew.contains(&occurrence) && !sibling, MARKED, || format!("{place:?} got {told:?} unmarked"))
    }
}

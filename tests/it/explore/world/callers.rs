//! What callers go through: decide, commit, look up, wait, be answered.

use super::*;

impl Scene<'_> {
    fn note(&self, world: &mut World, process: usize, occurrence: usize, reply: Option<(&Reply, bool)>) {
        let note = self.noted(world, process, occurrence, reply);
        let mut base = world.base.clone();
        self.table.note(&mut base, &History::default(), &note);
        world.store(base);
    }

    fn noted(&self, world: &World, process: usize, occurrence: usize, reply: Option<(&Reply, bool)>) -> Note {
        let given = reply.map(|(reply, _)| match reply {
            Reply::Outcome(mark) => {
                Given::Outcome { mark: (*mark != Mark::Own).then(|| "earlier".into()), stop: false }
            }
            Reply::Failure(class) => Given::Failure(failure(*class)),
            Reply::Status => Given::Status { kind: 0, text: String::new() },
        });
        let taken = |(reply, taken): (&Reply, bool)| matches!(reply, Reply::Outcome(_)) && taken;
        Note {
            occurrence,
            place: Some(self.place(world, process)),
            given,
            delivered: reply.is_some_and(taken).then_some(true),
            replay: false,
        }
    }

    /// The call is answered, and the process goes on to its next one.
    fn answer(&self, world: &World, process: usize, occurrence: usize, reply: &Reply) -> Vec<World> {
        let takes = if world.left.not_taken > 0 { vec![true, false] } else { vec![true] };
        let answered = takes.into_iter().map(|taken| {
            let mut next = world.clone();
            next.left.not_taken -= u8::from(!taken);
            self.note(&mut next, process, occurrence, Some((reply, taken)));
            let turn = self.place(&next, process).turn;
            next.last_turn = next.last_turn.max(Some(turn));
            let process = &mut next.processes[process];
            process.call += 1;
            process.phase = Phase::Asked;
            process.looked_up = false;
            next
        });
        answered.collect()
    }

    fn new_claim(&self, world: &World, process: usize, over: Over) -> NewClaim {
        let mut owner = [0; 16];
        owner[0] = world.processes[process].owner as u8;
        NewClaim {
            owner: OwnerId(owner),
            at: self.now(world),
            attempt_deadline: self.limits.attempt_deadline,
            window: self.window(),
            ..new_claim(&asked(0), self.policy_of(process).effect(), over)
        }
    }

    fn decides(&self, world: &World, process: usize) -> Checked<Vec<World>> {
        let decision = self.decide(world, process);
        let occurrence = decision.occurrence;
        let mut next = world.clone();
        match decision.act {
            Act::Give(mark) => return Ok(self.answer(world, process, occurrence, &Reply::Outcome(mark))),
            Act::GiveAgain(Given::Outcome { .. }) => {
                return Ok(self.answer(world, process, occurrence, &Reply::Outcome(Mark::Earlier)));
            }
            Act::GiveFailure(failure) | Act::GiveAgain(Given::Failure(failure)) => {
                return Ok(self.answer(world, process, occurrence, &Reply::Failure(failure.class)));
            }
            Act::GiveAgain(Given::Status { .. })
            | Act::Hold
            | Act::Conflict
            | Act::Await { .. }
            | Act::Denied { .. } => {
                return Ok(self.answer(world, process, occurrence, &Reply::Status));
            }
            Act::Join { fence } => {
                let mark = decision.mark;
                self.note(&mut next, process, occurrence, None);
                next.processes[process].phase = Phase::Joined { occurrence, fence, mark };
            }
            Act::Attempt { .. } if world.attempts.len() == self.most_attempts => return Ok(Vec::new()),
            Act::Attempt { over, .. } => {
                self.check_attempt(world, process, occurrence, over)?;
                let event = self.new_claim(world, process, over);
                let claim = Event::Claim(Box::new(event.clone()));
                let claimed = judge(self.table, &world.base, occurrence, &claim)?;
                let Some(mut claimed) = claimed else {
                    return ensure(false, ANSWERED, || format!("{decision:?} was refused")).map(|()| Vec::new());
                };
                let note = self.noted(world, process, occurrence, None);
                self.table.note(&mut claimed, &History::default(), &note);
                next.processes[process].phase =
                    Phase::Decided { occurrence, event: Box::new(event), next: Box::new(claimed), is_stale: false };
            }
            Act::LookUp { fence, no_counts_from } => {
                let of_record = |a: &&Attempt| a.occurrence == occurrence;
                next.processes[process].phase = Phase::LooksUp {
                    occurrence,
                    fence,
                    found: world.attempts.iter().filter(of_record).any(|a| a.send == Send::Landed),
                    no_counts: self.table.no_counts(self.now(world), no_counts_from),
                };
            }
        }
        Ok(vec![next])
    }

    fn decides_and_commits(&self, world: &World, process: usize) -> Checked<Vec<World>> {
        let worlds = self.decides(world, process)?.into_iter().map(|next| match next.processes[process].phase {
            Phase::Decided { .. } => self.commits(&next, process),
            _ => Ok(vec![next]),
        });
        worlds.collect::<Checked<Vec<_>>>().map(|worlds| worlds.concat())
    }

    fn check_attempt(&self, world: &World, process: usize, occurrence: usize, over: Over) -> Checked<()> {
        let record = world.base.occurrences.get(occurrence);
        let open: Vec<_> = record.into_iter().flat_map(Record::unknown_ends).collect();
        let mut lives = world.attempts.iter().filter(|a| a.occurrence == occurrence && open.contains(&a.fence));
        let lives_here = lives.any(|a| self.body_lives_in(world, a, process));
        ensure(over == Over::Nothing || !lives_here, BODY_ALONE, || format!("{over:?}"))
    }

    fn commits(&self, world: &World, process: usize) -> Checked<Vec<World>> {
        let Phase::Decided { occurrence, event, next: decided, is_stale } = &world.processes[process].phase else {
            return Ok(Vec::new());
        };
        let mut next = world.clone();
        next.processes[process].phase = Phase::Asked;
        let (occurrence, base) = match (is_stale, self.table.on_stale()) {
            (false, _) | (true, Stale::Overwrite) => (*occurrence, Some((**decided).clone())),
            (true, Stale::DecideAgain) => return Ok(vec![next]),
            (true, Stale::NextOccurrence) => {
                let count = world.base.occurrences.len();
                let claim = Event::Claim(event.clone());
                let mut base = judge(self.table, &world.base, count, &claim)?;
                if let Some(base) = &mut base {
                    let note = self.noted(world, process, count, None);
                    self.table.note(base, &History::default(), &note);
                }
                (count, base)
            }
        };
        let Some(base) = base else { return Ok(vec![next]) };
        let record = &base.occurrences[occurrence];
        let (fence, generation) = (record.fence, record.generation);
        let deadline = record.claim.as_ref().map_or(0, |claim| claim.deadline);
        let earlier = world.attempts.iter().filter(|a| a.occurrence == occurrence);
        let grows = earlier.map(|a| a.fence).max().is_none_or(|newest| newest < fence);
        // What comes of a fence that two attempts share is told by their effects.
        let checks = self.table.on_stale() == Stale::DecideAgain;
        ensure(grows || !checks, FENCES_GROW, || format!("{fence:?} again"))?;
        next.attempts.push(Attempt {
            occurrence,
            fence,
            generation,
            owner: world.processes[process].owner,
            deadline,
            send: Send::NotYet,
            is_over: false,
        });
        next.store(base);
        next.processes[process].phase = Phase::Executes { occurrence, fence };
        Ok(vec![next])
    }

    /// A look-up's answer arrives.
    fn look_up_answers(&self, world: &World, process: usize) -> Checked<Vec<World>> {
        let Phase::LooksUp { occurrence, fence, found, no_counts } = world.processes[process].phase else {
            return Ok(Vec::new());
        };
        let mut next = world.clone();
        next.processes[process].phase = Phase::Asked;
        let tells = found || no_counts;
        next.processes[process].looked_up = !tells;
        if tells {
            let event = answered(fence, found, ToldBy::LookUp, 0);
            if let Some(base) = judge(self.table, &world.base, occurrence, &event)? {
                next.store(base);
            }
        }
        Ok(vec![next])
    }

    /// The caller of an attempt, or who joined it, learns how it ended.
    pub(super) fn learns(&self, world: &World, process: usize) -> Vec<World> {
        let (occurrence, fence, mark, is_mine) = match world.processes[process].phase {
            Phase::Executes { occurrence, fence } => (occurrence, fence, Mark::Own, true),
            Phase::Joined { occurrence, fence, mark } => (occurrence, fence, mark, false),
            _ => return Vec::new(),
        };
        let record = &world.base.occurrences[occurrence];
        if record.outcome.is_some() {
            return self.answer(world, process, occurrence, &Reply::Outcome(mark));
        }
        if let Some(last) = record.last.as_ref().filter(|last| last.fence == fence) {
            return self.answer(world, process, occurrence, &Reply::Failure(last.failure.class));
        }
        let runs = self.table.view(record, &self.owners(world), self.now(world)) == View::Running;
        if runs && record.fence == fence {
            return Vec::new();
        }
        if is_mine {
            // Its end isn't known: the same place goes on with what the table says now.
            let mut next = world.clone();
            next.processes[process].phase = Phase::Asked;
            return vec![next];
        }
        self.answer(world, process, occurrence, &Reply::Status)
    }

    pub(super) fn caller_steps(&self, world: &World, process: usize, out: &mut Steps<Self>) {
        let push = |out: &mut Steps<Self>, step: Step, worlds: Checked<Vec<World>>| match worlds {
            Ok(worlds) => out.extend(worlds.into_iter().map(|world| (step, Ok(world)))),
            Err(broken) => out.push((step, Err(broken))),
        };
        match world.processes[process].phase {
            Phase::Asked if self.is_split => push(out, Step::Decides(process), self.decides(world, process)),
            Phase::Asked => push(out, Step::Decides(process), self.decides_and_commits(world, process)),
            Phase::Decided { .. } => push(out, Step::Commits(process), self.commits(world, process)),
            Phase::LooksUp { .. } => push(out, Step::LookUpAnswers(process), self.look_up_answers(world, process)),
            Phase::Executes { occurrence, .. } | Phase::Joined { occurrence, .. } => {
                push(out, Step::Learns(process), Ok(self.learns(world, process)));
                if world.left.patience > 0 {
                    let mut impatient = world.clone();
                    impatient.left.patience -= 1;
                    let worlds = self.answer(&impatient, process, occurrence, &Reply::Status);
                    push(out, Step::LosesPatience(process), Ok(worlds));
                }
            }
        }
    }
}

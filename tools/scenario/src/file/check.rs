//! What a line must keep beyond the shape of its parts: names that are known, steps in an order that makes sense.

use std::collections::BTreeSet;

use super::Scenario;
use super::expect::Expect;
use super::step::{Answer, Call, Step};
use super::tool::{Effect, InDoubt, Tool};

type Checked = Result<(), String>;

/// Judges a case as a whole.
pub(super) fn check(case: &Scenario) -> Checked {
    ensure(!case.id.is_empty(), || "the id is empty".to_owned())?;
    for (name, tool) in tools(case) {
        check_tool(tool).map_err(|e| format!("tool `{name}`: {e}"))?;
    }
    check_purpose(case)?;
    check_totals(case)?;
    check_steps(case)
}

/// All tools of the case, those of later deploys included.
fn tools(case: &Scenario) -> impl Iterator<Item = (&String, &Tool)> {
    let deployed = case.steps.iter().filter_map(|step| match step {
        Step::Deploy(deploy) => Some(&deploy.tools),
        _ => None,
    });
    std::iter::once(&case.tools).chain(deployed).flatten()
}

/// The names of all tools of the case.
fn declared(case: &Scenario) -> BTreeSet<&str> {
    tools(case).map(|(name, _)| name.as_str()).collect()
}

fn check_tool(tool: &Tool) -> Checked {
    let write = matches!(tool.effect, Effect::Write | Effect::Keyed);
    let keyed = tool.effect == Effect::Keyed;
    ensure(tool.schema.is_object(), || "its schema is not an object".to_owned())?;
    ensure(tool.attempts > 0, || "`attempts` counts the first one too and can't be 0".to_owned())?;
    ensure(write || tool.in_doubt.is_none(), || "`in_doubt` is for `write` and `keyed` only".to_owned())?;
    ensure(keyed || tool.in_doubt != Some(InDoubt::Resend), || "only a `keyed` tool can `resend`".to_owned())?;
    ensure(keyed || tool.key_window_ms.is_none(), || "`key_window_ms` is for `keyed` only".to_owned())
}

/// A case must be able to fail.
fn check_purpose(case: &Scenario) -> Checked {
    if case.register.is_some() {
        return ensure(case.steps.is_empty(), || "`register: \"refused\"` leaves nothing for `steps`".to_owned());
    }
    ensure(!case.steps.is_empty() || case.warnings.is_some(), || "there are no steps to run".to_owned())
}

fn check_totals(case: &Scenario) -> Checked {
    let known = declared(case);
    let counted = case.effects.keys().chain(case.executions.keys()).chain(case.downstream_keys.keys());
    for name in counted.chain(case.warnings.iter().flatten()) {
        ensure(known.contains(name.as_str()), || format!("`{name}` is counted but no tool is called so"))?;
    }
    Ok(())
}

/// What is known when a step is reached.
#[derive(Default)]
struct Past<'a> {
    tools: BTreeSet<&'a str>,
    calls: BTreeSet<&'a str>,
    crashing: BTreeSet<&'a str>,
    crash_pending: Option<usize>,
    second_open: bool,
    backed_up: bool,
    ended: bool,
}

fn check_steps(case: &Scenario) -> Checked {
    let mut past = Past { tools: declared(case), ..Past::default() };
    for (at, step) in case.steps.iter().enumerate() {
        past.check(at, step).map_err(|e| format!("step {}: {e}", at + 1))?;
    }
    if let Some(at) = past.crash_pending {
        return Err(format!("step {}: the process crashes and no `restart` follows", at + 1));
    }
    let expects = case.steps.iter().flat_map(|step| {
        let waited = match step {
            Step::Wait(wait) => wait.expect.as_ref(),
            _ => None,
        };
        step.calls().iter().filter_map(|call| call.expect.as_ref()).chain(waited)
    });
    for other in expects.flat_map(Expect::others) {
        known(&past.calls, other)?;
    }
    Ok(())
}

impl<'a> Past<'a> {
    fn check(&mut self, at: usize, step: &'a Step) -> Checked {
        ensure(!self.ended, || "the store was replaced before, which ends the file".to_owned())?;
        for call in step.calls() {
            self.check_call(at, call)?;
        }
        match step {
            Step::Answer(answer) => check_answer(answer)?,
            Step::Wait(wait) => {
                known(&self.calls, &wait.call)?;
                let judged = wait.expect.is_some() && self.crashing.contains(wait.call.as_str());
                ensure(!judged, || format!("`{}` crashes: it has no reply and no `expect`", wait.call))?;
                wait.expect.as_ref().map_or(Ok(()), check_expect)?;
            }
            Step::Resolve(resolve) => {
                known(&self.calls, &resolve.call)?;
                let useless = !resolve.happened && resolve.result.is_some();
                ensure(!useless, || "what didn't happen has no `result`".to_owned())?;
            }
            Step::Approve(of) | Step::Deny(of) | Step::AnswerShown(of) | Step::NotShown(of) => {
                known(&self.calls, &of.call)?;
            }
            Step::Restart(_) => self.crash_pending = None,
            Step::OpenSecond(_) => self.second_open = true,
            Step::Pause(pause) => self.check_guard(pause.guard)?,
            Step::Continue(go_on) => self.check_guard(go_on.guard)?,
            Step::Backup(_) => self.backed_up = true,
            Step::DeleteStore(_) => self.ended = true,
            Step::RestoreBackup(_) => {
                ensure(self.backed_up, || "there is no `backup` to restore".to_owned())?;
                self.ended = true;
            }
            Step::Call(_) | Step::Advance(_) | Step::Clock(_) | Step::StoreFault(_) | Step::StoreClear(_) => {}
            Step::Step(_) | Step::Fork(_) | Step::Deploy(_) | Step::Gc(_) => {}
        }
        Ok(())
    }

    fn check_call(&mut self, at: usize, call: &'a Call) -> Checked {
        ensure(call.args.is_none() || call.args_text.is_none(), || "`args` and `args_text` exclude each other".into())?;
        ensure(self.tools.contains(call.tool.as_str()), || format!("`{}` is called but not in `tools`", call.tool))?;
        self.check_guard(call.guard)?;
        if let Some(name) = call.name.as_deref() {
            ensure(self.calls.insert(name), || format!("two calls are named `{name}`"))?;
        }
        if call.crashes() {
            ensure(call.expect.is_none(), || "a call that crashes has no reply and no `expect`".to_owned())?;
            self.crashing.extend(call.name.as_deref());
            self.crash_pending.get_or_insert(at);
        }
        call.expect.as_ref().map_or(Ok(()), check_expect)
    }

    fn check_guard(&self, guard: Option<u8>) -> Checked {
        match guard {
            None | Some(1) => Ok(()),
            Some(2) => ensure(self.second_open, || "guard 2 needs an `open_second` before".to_owned()),
            Some(other) => Err(format!("there is no guard {other}, only 1 and 2")),
        }
    }
}

fn check_answer(answer: &Answer) -> Checked {
    ensure(!answer.calls.is_empty(), || "an `answer` without calls".to_owned())?;
    for call in &answer.calls {
        let own = call.run.is_some() || call.turn.is_some();
        ensure(!own, || "`run` and `turn` belong to the `answer`, not to its calls".to_owned())?;
        let same = call.guard == answer.calls[0].guard && call.namespace == answer.calls[0].namespace;
        ensure(same, || "the calls of one `answer` go to one guard and namespace".to_owned())?;
    }
    Ok(())
}

fn check_expect(expect: &Expect) -> Checked {
    let nothing = *expect == Expect::default();
    ensure(!nothing, || "an empty `expect` judges nothing".to_owned())?;
    let alone = expect.error.is_none() || *expect == Expect { error: expect.error, ..Expect::default() };
    ensure(alone, || "a call that fails has no reply to judge beside its `error`".to_owned())?;
    for field in &expect.fields {
        ensure(field.is_empty() || field.starts_with('/'), || format!("`{field}` is no JSON Pointer"))?;
    }
    Ok(())
}

fn known(calls: &BTreeSet<&str>, name: &str) -> Checked {
    ensure(calls.contains(name), || format!("no call is named `{name}`"))
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(message()) }
}

//! Every duration that can be set, at nothing, next to nothing and for ever: no panic, no hang.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::MemoryStore;
use toolonce::testing::ManualClock;
use toolonce::{
    Advanced, Attempt, Call, Clock as _, GcOptions, Guard, GuardBuilder, InDoubt, KeyWindow, LookUp, Policy,
    Reconciled, Registry, Resolution, Run, Scope, ToolError, value_tool,
};

use crate::stage::{Silence, settle, within_strides};
use crate::summary::{Findings, Kind};

/// Beyond this a case hangs: it takes milliseconds.
const HANGS: Duration = Duration::from_secs(10);
/// By the guard's clock, a caller without patience of its own is answered by then.
const BOUND: Duration = Duration::from_secs(3600);

/// A heart that beats each millisecond isn't waited for beat by beat.
const STRIDE: Duration = Duration::from_millis(500);

const ENDS: [Duration; 4] = [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1), Duration::MAX];

type OfGuard = fn(GuardBuilder, Duration) -> GuardBuilder;
type OfTool = fn(Advanced, Duration) -> Advanced;

/// Where a duration can be set.
#[derive(Clone, Copy)]
enum Setting {
    Guard(OfGuard),
    /// Of the tools whose names begin so.
    Tool(OfTool, &'static str),
    Window,
    RetryAfter,
    Patience,
}

const SETTINGS: [(&str, Setting); 12] = [
    ("patience of the guard", Setting::Guard(GuardBuilder::patience)),
    ("attempt deadline of the guard", Setting::Guard(GuardBuilder::attempt_deadline)),
    ("settle delay of the guard", Setting::Guard(GuardBuilder::settle_delay)),
    ("lease", Setting::Guard(GuardBuilder::lease)),
    ("retention of the guard", Setting::Guard(GuardBuilder::retention)),
    ("attempt deadline", Setting::Tool(Advanced::attempt_deadline, "")),
    ("settle delay", Setting::Tool(Advanced::settle_delay, "")),
    ("retention", Setting::Tool(Advanced::retention, "global")),
    ("time to live", Setting::Tool(Advanced::time_to_live, "read")),
    ("key window", Setting::Window),
    ("retry after", Setting::RetryAfter),
    ("patience of a call", Setting::Patience),
];

/// Tries all of them, on a store of one process and on one of several; how many.
pub(super) fn each(found: &mut Findings) -> anyhow::Result<u64> {
    let mut tried = 0;
    for (name, setting) in SETTINGS {
        let is_patience = name.starts_with("patience");
        for end in ENDS {
            for shared in [false, true] {
                let told = apart(move || crate::stage::still()?.block_on(script(setting, end, shared, is_patience)));
                let what = format!("{name} of {end:?}, shared {shared}");
                match told {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => found.add(Kind::Unexplained, format!("{what}: {error:#}")),
                    Err(why) => found.add(Kind::Unexplained, format!("{what}: {why}")),
                }
                tried += 1;
            }
        }
    }
    Ok(tried)
}

/// In a thread of its own, which may panic or hang.
fn apart(case: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> Result<anyhow::Result<()>, &'static str> {
    let (done, told) = mpsc::channel();
    thread::spawn(move || {
        // Nobody listens any more to who took too long.
        let _ = done.send(case());
    });
    told.recv_timeout(HANGS).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => "hangs",
        mpsc::RecvTimeoutError::Disconnected => "panics",
    })
}

/// Calls that go well, are tried again, are in doubt and are settled, with one setting at one of its ends.
async fn script(setting: Setting, end: Duration, shared: bool, is_patience: bool) -> anyhow::Result<()> {
    let clock = ManualClock::new();
    let store = if shared { MemoryStore::shared() } else { MemoryStore::new() };
    let builder = Guard::builder(store.clone(), "settings").clock(clock.clone());
    let builder = match setting {
        Setting::Guard(set) => set(builder, end),
        _ => builder,
    };
    let guard = builder.build().await?;
    let mut tools = Registry::new(&guard);
    let window = KeyWindow::For(if matches!(setting, Setting::Window) { end } else { Duration::from_secs(60) });
    let policies = [
        ("write", Policy::write()),
        ("global", Policy::write().scope(Scope::Global)),
        ("asks", Policy::write().in_doubt(InDoubt::Reconcile)),
        ("keyed", Policy::keyed(window)),
        ("idempotent", Policy::idempotent()),
        ("read", Policy::read_only()),
    ];
    for (name, policy) in policies {
        let policy = policy.advanced(|advanced| match setting {
            Setting::Tool(set, of) if name.starts_with(of) => set(advanced, end),
            _ => advanced,
        });
        let after = matches!(setting, Setting::RetryAfter).then_some(end);
        let body = move |args: Value, attempt: Attempt| async move { act(&args, &attempt, after) };
        let tool = value_tool(name, "", json!({"type": "object"}), policy, body);
        let look = |_: String, _: LookUp| std::future::ready(Ok(Reconciled::<Value>::DidNotHappen));
        let added = tools.add(if name == "asks" { tool.reconcile(look) } else { tool }).map(|_| ());
        // A tool that could never be executed is refused with a clear error: then there is nothing to call.
        if added.is_err() && end.is_zero() {
            return Ok(());
        }
        added?;
    }
    let run = Run::start(&guard, "run").await?;
    for turn in 0..2 {
        for (name, how) in ["write", "global", "asks", "keyed", "idempotent", "read"].into_iter().flat_map(ways) {
            let asked = Call::with_value(name, &json!({"how": how})).turn(turn);
            let asked = if matches!(setting, Setting::Patience) { asked.patience(end) } else { asked };
            let (tools, run) = (tools.clone(), run.clone());
            let task = tokio::spawn(async move { tools.call(&run, asked).await });
            match within_strides(&clock, BOUND, STRIDE, task).await {
                Ok(_) => {}
                Err(Silence::Waits) if end == Duration::MAX && is_patience => {} // as it was told
                Err(why) => anyhow::bail!("the call {name} {how:?} of turn {turn} has no answer: {why:?}"),
            }
        }
    }
    for doubt in guard.inbox().await? {
        let _ = guard.resolve(&doubt.reference, Resolution::DidNotHappen, "").await;
    }
    clock.advance(end.min(Duration::from_secs(400 * 24 * 3600)));
    settle().await;
    guard.gc(GcOptions::default()).await.ok();
    let _ = (clock.wall(), guard.inbox().await?);
    let closing = guard.clone();
    let closed = tokio::spawn(async move { closing.shutdown(end).await.is_ok() });
    anyhow::ensure!(within_strides(&clock, Duration::MAX, STRIDE, closed).await.is_ok(), "it doesn't shut down");
    Ok(())
}

fn ways(name: &'static str) -> [(&'static str, &'static str); 3] {
    [(name, "well"), (name, "not now"), (name, "unknown")]
}

fn act(args: &Value, attempt: &Attempt, after: Option<Duration>) -> Result<Value, ToolError> {
    let _ = attempt.time_left();
    match args["how"].as_str() {
        Some("not now") if attempt.number() == 1 => {
            let error = ToolError::retryable("not now");
            Err(match after {
                Some(delay) => error.retry_after(delay),
                None => error,
            })
        }
        Some("unknown") if attempt.number() == 1 => Err(ToolError::unknown("the connection was lost")),
        _ => Ok(json!("done")),
    }
}

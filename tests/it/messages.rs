//! Every text that a model can get, as it goes over the wire: `messages.md` beside this file has them all, each made by a
//! guard that was brought into that situation. `TOOLONCE_WRITE_MESSAGES=1` writes the file anew: read it as a model would
//! that knows nothing of all this.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::store::{Batch, Durability, MemoryStore, Store};
use toolonce::testing::{FaultKind, FaultOn, FaultyStore};
use toolonce::{
    Approval, Call, GcClock, GcOptions, Guard, Mismatch, Policy, Registry, Repeat, Reply, ReplyKind, Run, Seen,
    ToolError, text_tool, value_tool,
};

use crate::bench::call;
use crate::desk::{Desk, World};

/// A model reads each of them in the middle of its work.
const MOST_WORDS: usize = 95;

/// Situations and what was answered in them.
#[derive(Default)]
struct Said(Vec<(&'static str, Reply)>);

impl Said {
    fn add(&mut self, when: &'static str, kind: ReplyKind, reply: Reply) {
        assert_eq!(reply.kind(), kind, "{when}: {reply:?}");
        self.0.push((when, reply));
    }
}

fn pay(cents: u32) -> Call {
    call("pay", &json!({"cents": cents}))
}

/// Two properties: whom it is for, and what it says.
fn letter() -> Value {
    json!({"type": "object", "properties": {
        "to": {"type": "string", "x-toolonce": "identity"}, "body": {"type": "string", "x-toolonce": "content"},
    }})
}

fn mail(body: &str) -> Call {
    call("mail", &json!({"to": "ann@example.com", "body": body}))
}

fn once() -> Policy {
    Policy::write().advanced(|a| a.attempts(1))
}

#[tokio::test]
async fn every_text_for_the_model_is_as_it_was_read_and_found_good() {
    let mut said = Said::default();
    outcomes(&mut said).await;
    ways_to_ask_again(&mut said).await;
    results_that_are_not_whole(&mut said).await;
    unfinished(&mut said).await;
    failures(&mut said).await;
    conflicts(&mut said).await;
    permissions(&mut said).await;
    runs(&mut said).await;
    refusals(&mut said).await;
    store_faults(&mut said).await;
    programs(&mut said).await;

    for (when, reply) in &said.0 {
        let text = reply.message();
        let words = text.split_whitespace().count();
        assert!(words <= MOST_WORDS, "{when}: {words} words: {text}");
        for internal in ["src/", "/tmp", "sled", "fence", "epoch", "occurrence", "slot"] {
            assert!(!text.contains(internal), "{when} tells of {internal}: {text}");
        }
        let key = text.split(|c: char| !c.is_ascii_hexdigit()).find(|run| run.len() > 12);
        assert_eq!(key, None, "{when} tells more than a reference: {text}");
    }
    let kinds: BTreeSet<&str> = said.0.iter().map(|(_, reply)| reply.kind().name()).collect();
    assert_eq!(kinds, all_kinds(), "a kind of answer has no text in messages.md");
    same_as_recorded(&as_document(&said));
}

/// The names in the match that the compiler keeps whole.
fn all_kinds() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/tell.rs");
    let (_, rest) = source.split_once("pub fn name(self)").unwrap();
    let (names, _) = rest.split_once("\n    }\n").unwrap();
    names.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\",")).collect()
}

fn as_document(said: &Said) -> String {
    let mut text = "# What a model is told\n\nMade by `messages.rs`, which says how.\n".to_owned();
    for (when, reply) in &said.0 {
        let marked = if reply.is_marked() { ", marked" } else { "" };
        write!(text, "\n## {when}\n\n{}{marked}\n\n```text\n{}\n```\n", reply.kind(), reply.message()).unwrap();
    }
    #[cfg(feature = "openai")]
    {
        let wire = serde_json::to_string_pretty(&toolonce::adapter::openai::chat_message(&said.0[0].1)).unwrap();
        write!(text, "\n## The first of them in a chat completion\n\n```json\n{wire}\n```\n").unwrap();
    }
    text
}

fn same_as_recorded(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/messages.md");
    if std::env::var_os("TOOLONCE_WRITE_MESSAGES").is_some() {
        fs::write(&path, text).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    for (now, then) in text.lines().zip(recorded.lines()) {
        assert_eq!(now, then, "what the model is told has changed: read it, then see messages.rs");
    }
    assert_eq!(text.lines().count(), recorded.lines().count(), "messages.md is longer or shorter");
}

async fn outcomes(said: &mut Said) {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    said.add("Done", ReplyKind::Executed, desk.ask(&run, pay(1).turn(0).id("call_1")).await);
    let again = desk.ask(&run, pay(1).turn(0).id("call_1")).await;
    said.add("The same call delivered a second time", ReplyKind::Replayed, again);
    desk.pass(Duration::from_secs(300)).await;
    said.add("An equal call in a later message", ReplyKind::Replayed, desk.ask(&run, pay(1).turn(1)).await);
    desk.ask(&run, pay(2).turn(2)).await;
    let after = desk.ask(&run, pay(1).turn(3)).await;
    said.add("An equal call after the tool did something else", ReplyKind::Replayed, after);
    desk.ask(&run, pay(1).turn(4)).await;
    desk.ask(&run, pay(1).turn(5)).await;
    said.add("An equal call for the fifth time", ReplyKind::Stopped, desk.ask(&run, pay(1).turn(6)).await);
    let twice = desk.tools.answer(&run, 7, &[pay(3).id("a"), pay(3).id("b")]).await;
    let second = twice.into_iter().nth(1).unwrap();
    said.add("Two equal calls in one message: the second", ReplyKind::Joined, second);

    let drifts = Policy::write().advanced(|a| a.mismatch(Mismatch::Replay));
    let desk = Desk::new().await.with_schema("mail", drifts, letter());
    let run = desk.run("r").await;
    desk.ask(&run, mail("Hello").turn(0)).await;
    let other = desk.ask(&run, mail("Goodbye").turn(1)).await;
    said.add("Other content for the same target, where the policy replays", ReplyKind::Replayed, other);
}

async fn ways_to_ask_again(said: &mut Said) {
    let desk = Desk::new().await.with("pay", Policy::write().again(true));
    let run = desk.run("r").await;
    desk.ask(&run, pay(1).turn(0)).await;
    let offered = desk.ask(&run, pay(1).turn(1)).await;
    said.add("An equal call, where the tool offers `again`", ReplyKind::Replayed, offered);
    let again = |n: Value| call("pay", &json!({"cents": 1, "again": n}));
    let gap = desk.ask(&run, again(json!(2)).turn(2)).await;
    said.add("`again` with a gap", ReplyKind::Refused, gap);
    said.add("`again` that is no number", ReplyKind::Refused, desk.ask(&run, again(json!("yes")).turn(3)).await);

    let desk = Desk::new().await.with("pay", Policy::write().repeat(Repeat::Ask));
    let run = desk.run("r").await;
    desk.ask(&run, pay(1).turn(0)).await.not_shown();
    let unseen = desk.ask(&run, pay(1).turn(1)).await;
    said.add("An equal call whose result was not seen, where repeats are asked for", ReplyKind::Replayed, unseen);
    let seen = desk.ask(&run, pay(1).turn(2)).await;
    said.add("A repeat that a person has to approve", ReplyKind::AwaitingApproval, seen);
}

async fn results_that_are_not_whole(said: &mut Said) {
    let store = MemoryStore::new();
    let mut desk = Desk::on(store.clone(), World::default()).await.with("each", Policy::write().repeat(Repeat::Each));
    let small = Policy::write().advanced(|a| a.max_result(64));
    let long = |_: Value, _| std::future::ready(Ok(json!("The report begins here. ".repeat(4))));
    desk.tools.add(value_tool("report", "", json!({"type": "object"}), small, long)).unwrap();
    let odd = |_: String, _| std::future::ready(Ok("{not json".to_owned()));
    desk.tools.add(text_tool("odd", "", json!({"type": "object"}), Policy::write(), odd)).unwrap();
    // Doesn't compress, so that it is kept in pieces.
    let mut random = fastrand::Rng::with_seed(1);
    let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(100_000).collect();
    let body = move |_: Value, _| std::future::ready(Ok(json!(noise)));
    desk.tools.add(value_tool("noise", "", json!({"type": "object"}), Policy::write(), body)).unwrap();

    let run = desk.run("r").await;
    let one = json!({"n": 1});
    said.add("A result over the limit", ReplyKind::Executed, desk.ask(&run, call("report", &one).turn(0)).await);
    let again = desk.ask(&run, call("report", &one).turn(1)).await;
    said.add("A result over the limit, again", ReplyKind::Replayed, again);
    said.add("A result that is no JSON", ReplyKind::Executed, desk.ask(&run, call("odd", &one).turn(0)).await);

    let noise = || call("noise", &one).turn(0).id("c");
    desk.ask(&run, noise()).await;
    let all = store.scan(b"", None, 1000).await.unwrap();
    let piece = all.items.into_iter().map(|(key, _)| key).find(|key| key.as_bytes()[8] == b'c').unwrap();
    store.commit(Batch { deletes: vec![piece], ..Batch::default() }, Durability::Synced).await.unwrap();
    let lost = desk.ask(&run, noise()).await;
    said.add("A result that the store has lost", ReplyKind::Replayed, lost);

    for turn in 10..80 {
        desk.ask(&run, call("each", &one).turn(turn).id("c")).await;
    }
    let old = desk.ask(&run, call("each", &one).turn(10).id("c")).await;
    said.add("A result so old that newer ones took its place", ReplyKind::Replayed, old);
}

async fn unfinished(said: &mut Said) {
    let desk = Desk::new().await.slow("pay", once());
    let run = desk.run("r").await;
    said.add("Still running", ReplyKind::Running, desk.ask(&run, pay(1).turn(0)).await);

    let desk = Desk::new().await.with("pay", once());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("the connection was lost"));
    said.add("Begun, and no answer came", ReplyKind::InDoubt, desk.ask(&run, pay(1).turn(0)).await);
    said.add("The same call later", ReplyKind::InDoubt, desk.ask(&run, pay(1).turn(1)).await);
}

async fn failures(said: &mut Said) {
    let desk = Desk::new().await.with("pay", once());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::permanent("the card was declined"));
    said.add("Failed for good", ReplyKind::Failed, desk.ask(&run, pay(1).turn(0)).await);
    desk.fails_with(ToolError::retryable("the service is busy"));
    said.add("Failed for now", ReplyKind::Failed, desk.ask(&run, pay(2).turn(1)).await);
}

async fn conflicts(said: &mut Said) {
    let desk = Desk::new().await.with_schema("mail", once(), letter());
    let run = desk.run("r").await;
    desk.ask(&run, mail("Hello").turn(0)).await;
    let done = desk.ask(&run, mail("Goodbye").turn(1)).await;
    said.add("Other content for a target that was dealt with", ReplyKind::Conflict, done);

    let desk = Desk::new().await.with_schema("mail", once(), letter());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("the connection was lost"));
    desk.ask(&run, mail("Hello").turn(0)).await;
    let open = desk.ask(&run, mail("Goodbye").turn(1)).await;
    said.add("Other content for a target that is in doubt", ReplyKind::Conflict, open);
}

async fn permissions(said: &mut Said) {
    let desk = Desk::new().await.with("pay", once().approval(Approval::First));
    let run = desk.run("r").await;
    said.add("A person has to approve it", ReplyKind::AwaitingApproval, desk.ask(&run, pay(1).turn(0)).await);
    desk.pass(Duration::from_secs(2 * 86_400)).await;
    let expired = desk.ask(&run, pay(1).turn(1)).await;
    said.add("The question expired and is asked anew", ReplyKind::AwaitingApproval, expired);
    desk.guard.deny(&desk.question().await, "not this month").await.unwrap();
    said.add("A person refused it", ReplyKind::Denied, desk.ask(&run, pay(1).turn(2)).await);
    desk.ask(&run, pay(2).turn(3)).await;
    desk.guard.deny(&desk.question().await, "").await.unwrap();
    said.add("A person refused it without a reason", ReplyKind::Denied, desk.ask(&run, pay(2).turn(4)).await);

    let desk = Desk::new().await.with("pay", once());
    let run = desk.run("r").await;
    desk.fails_with(ToolError::unknown("the connection was lost"));
    desk.ask(&run, call("pay", &json!({"to": "Ann"})).turn(0)).await;
    let alike = desk.ask(&run, call("pay", &json!({"to": "ann"})).turn(1)).await;
    said.add("It looks like a call that is in doubt", ReplyKind::AwaitingApproval, alike);
}

async fn runs(said: &mut Said) {
    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.tools.answer(&run, 0, &[pay(1)]).await;
    let other = desk.tools.answer(&run, 0, &[pay(2)]).await.remove(0);
    said.add("A message that was sampled again with another call", ReplyKind::Diverged, other);
    let _resumed = Run::resume(&desk.guard, "r", Seen::Nothing).await.unwrap();
    said.add("A run that another process goes on with", ReplyKind::Refused, desk.ask(&run, pay(3).turn(1)).await);

    let desk = Desk::new().await.with("pay", Policy::write());
    let run = desk.run("r").await;
    desk.ask(&run, pay(1).turn(0)).await;
    desk.pass(Duration::from_secs(40 * 86_400)).await;
    desk.guard.gc(GcOptions::new().clock(GcClock::Trusted)).await.unwrap();
    said.add("A run that was removed as too old", ReplyKind::Refused, desk.ask(&run, pay(2).turn(1)).await);

    let store = MemoryStore::new();
    let desk = Desk::on(store.clone(), World::default()).await.with_schema("mail", Policy::write(), letter());
    let run = desk.run("r").await;
    desk.ask(&run, mail("Hello").turn(0)).await;
    desk.guard.crash();
    let plain = json!({"type": "object"});
    let desk = Desk::on(store.crash(), desk.world.clone()).await.with_schema("mail", Policy::write(), plain);
    let run = Run::attach(&desk.guard, "r").await.unwrap();
    let changed = desk.ask(&run, mail("Hello").turn(1)).await;
    said.add("The program was changed under a run", ReplyKind::Refused, changed);
}

async fn refusals(said: &mut Said) {
    let schema = json!({
        "type": "object", "required": ["cents"], "additionalProperties": false,
        "properties": {"cents": {"type": "integer"}, "currency": {"enum": ["EUR", "USD"]}},
    });
    let account = Policy::write().advanced(|a| a.context(["account"]));
    let desk = Desk::new().await.with_schema("pay", Policy::write(), schema).with("note", Policy::write());
    let desk = desk.with("book", account);
    let run = desk.run("r").await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20));
    let texts = [
        ("No such tool", "pya", "{}"),
        ("Arguments cut off", "pay", r#"{"cents": 1"#),
        ("Two values", "pay", r#"{"cents": 1}{"cents": 2}"#),
        ("A key twice", "pay", r#"{"cents": 1, "cents": 2}"#),
        ("Not JSON's way of quoting", "pay", "{'cents': 1}"),
        ("A comma too many", "pay", r#"{"cents": 1,}"#),
        ("Half a character", "note", r#"{"to": "\ud800"}"#),
        ("A number out of range", "pay", r#"{"cents": 1e999}"#),
        ("An integer that would be rounded", "pay", r#"{"cents": 18446744073709551617}"#),
        ("No object", "pay", "[1]"),
        ("Too deep", "note", &deep),
        ("Too large", "note", &large),
        ("Arguments that don't fit the schema", "pay", r#"{"cent": 1, "currency": "GBP"}"#),
        ("Nothing that says what it is about", "note", "{}"),
        ("A value that the program left out", "book", r#"{"n": 1}"#),
    ];
    for (when, tool, text) in texts {
        said.add(when, ReplyKind::Refused, desk.ask(&run, Call::new(tool, text).turn(0)).await);
    }
    #[cfg(feature = "openai")]
    {
        let custom = json!([{"id": "a", "type": "custom", "custom": {"name": "pay", "input": "1 euro"}}, {"id": "b"}]);
        let calls = toolonce::adapter::openai::calls_from_value(&custom);
        let mut replies = desk.tools.answer(&run, 1, &calls).await.into_iter();
        said.add("A custom tool call", ReplyKind::Refused, replies.next().unwrap());
        said.add("A call without a name", ReplyKind::Refused, replies.next().unwrap());
    }
    let desk = Desk::new().await.with("each", Policy::write().repeat(Repeat::Each));
    let run = desk.run("r").await;
    let calls: Vec<_> = (0..1000).map(|n| call("each", &json!({"n": 1})).id(format!("call_{n:024}"))).collect();
    let replies = desk.tools.answer(&run, 0, &calls).await;
    let refused = replies.into_iter().find(|reply| reply.kind() != ReplyKind::Executed).unwrap();
    said.add("No room to record it", ReplyKind::Refused, refused);
}

async fn store_faults(said: &mut Said) {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let guard = Guard::builder(store.clone(), "desk").build().await.unwrap();
    let mut tools = Registry::new(&guard);
    let body = |args: Value, _| {
        let declined = args["cents"] == 13;
        std::future::ready(if declined { Err(ToolError::permanent("declined")) } else { Ok(json!({"paid": true})) })
    };
    tools.add(value_tool("pay", "", json!({"type": "object"}), once(), body)).unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    tools.call(&run, pay(13).turn(0)).await;
    store.fault(FaultOn::Claim, FaultKind::Full, None);
    said.add("The store fails before the effect", ReplyKind::Refused, tools.call(&run, pay(1).turn(1)).await);
    let known = tools.call(&run, pay(13).turn(2)).await;
    said.add("The store fails, and an equal call is known", ReplyKind::Refused, known);
    store.clear();
    store.fault(FaultOn::Complete, FaultKind::Full, None);
    said.add("The store fails after the effect", ReplyKind::Unrecorded, tools.call(&run, pay(1).turn(1)).await);
}

async fn programs(said: &mut Said) {
    let desk = Desk::new().await;
    let inside: Arc<OnceLock<(Registry, Run)>> = Arc::default();
    let told: Arc<Mutex<Option<Reply>>> = Arc::default();
    let (nested, tells) = (Arc::clone(&inside), Arc::clone(&told));
    let body = move |args: Value, _| {
        let (nested, tells) = (Arc::clone(&nested), Arc::clone(&tells));
        async move {
            let (tools, run) = nested.get().unwrap();
            let reply = tools.call(run, call("nested", &args)).await;
            *tells.lock().unwrap() = Some(reply);
            Ok(json!(null))
        }
    };
    let mut tools = Registry::new(&desk.guard);
    tools.add(value_tool("nested", "", json!({"type": "object"}), Policy::write(), body)).unwrap();
    let run = desk.run("r").await;
    inside.set((tools.clone(), run.clone())).unwrap();
    tools.call(&run, call("nested", &json!({"n": 1})).turn(0)).await;
    said.add("A tool that makes its own call", ReplyKind::Refused, told.lock().unwrap().take().unwrap());

    let (one, other) = (Desk::new().await.with("pay", Policy::write()), Desk::new().await);
    let run = other.run("r").await;
    said.add("A run of another guard", ReplyKind::Refused, one.ask(&run, pay(1).turn(0)).await);
    let run = one.run("r").await;
    one.guard.shutdown(Duration::ZERO).await.unwrap();
    said.add("The program shuts down", ReplyKind::Refused, one.ask(&run, pay(1).turn(0)).await);
}

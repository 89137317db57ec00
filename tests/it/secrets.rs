//! Secrets: a rotated one finds what was done, a lost one runs nothing again, and what must not be stored isn't.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::key::{Fingerprint, digest};
use toolonce::store::{Batch, Durability, MemoryStore, Store, StoreErrorKind};
use toolonce::{
    Approval, Call, ErrorKind, Guard, GuardBuilder, InDoubt, KeyWindow, Policy, Reconciled, Registry, Repeat, Reply,
    ReplyKind, Resolution, Run, SealKeys, Secret, Seen, ToolError, value_tool,
};

use crate::bench::{Ledger, call};

const PIN: &str = "hunter2-hunter2";

fn secret(n: u8) -> Secret {
    Secret::new([n; 32])
}

/// One process: a guard with a few tools that write their effects into a ledger.
struct Process {
    guard: Guard,
    tools: Registry,
}

impl Process {
    async fn open(store: &MemoryStore, ledger: &Ledger, with: impl FnOnce(GuardBuilder) -> GuardBuilder) -> Self {
        let guard = with(Guard::builder(store.clone(), "shop")).build().await.unwrap();
        let mut tools = Registry::new(&guard);
        let write = || Policy::write().advanced(|a| a.attempts(1));
        let keyed = Policy::keyed(KeyWindow::Permanent).advanced(|a| a.attempts(1));
        for (name, policy) in [("charge", write()), ("keyed", keyed)] {
            let ledger = ledger.clone();
            let run = move |args: Value, attempt: toolonce::Attempt| {
                ledger.write(&format!("{name} {} {args}", attempt.downstream_key().hex32()));
                std::future::ready(match args["fate"].as_str() {
                    Some("lost") if ledger.count(name) == 1 => Err(ToolError::unknown("lost after PLAIN-error")),
                    Some("declined") => Err(ToolError::permanent("declined with PLAIN-failure")),
                    _ => Ok(json!(format!("PLAIN-result {}", "x".repeat(args["n"].as_u64().unwrap_or(0) as usize)))),
                })
            };
            tools.add(value_tool(name, "", json!({"type": "object"}), policy, run)).unwrap();
        }
        Self { guard, tools }
    }

    /// The same with tools that take a secret argument.
    async fn with_pins(store: &MemoryStore, ledger: &Ledger, with: impl FnOnce(GuardBuilder) -> GuardBuilder) -> Self {
        let mut process = Self::open(store, ledger, with).await;
        let schema = json!({"type": "object", "properties": {
            "to": {"type": "string", "x-toolonce": "identity"},
            "pin": {"x-toolonce": "secret"},
            "login": {"type": "object", "x-toolonce": "secret"}
        }});
        let keyed = Policy::keyed(KeyWindow::Permanent).in_doubt(InDoubt::Reconcile).advanced(|a| a.attempts(1));
        let ledger = ledger.clone();
        let tool = value_tool("pay", "", schema, keyed, move |args: Value, _| {
            ledger.write(&format!("pay {args}"));
            let lost = args["to"] == "nowhere" && ledger.count("pay") == 1;
            std::future::ready(if lost { Err(ToolError::unknown("lost")) } else { Ok(json!("paid")) })
        });
        let tool = tool.reconcile(|_, _| std::future::ready(Ok(Reconciled::<Value>::CannotTell)));
        process.tools.add(tool).unwrap();
        process
    }

    async fn call(&self, run: &Run, turn: u32, tool: &str, args: Value) -> Reply {
        self.tools.call(run, call(tool, &args).turn(turn)).await
    }
}

async fn refused(store: &MemoryStore, with: impl FnOnce(GuardBuilder) -> GuardBuilder) -> ErrorKind {
    let error = with(Guard::builder(store.clone(), "shop")).build().await.unwrap_err();
    assert!(!error.to_string().contains("damaged"), "{error}");
    error.kind()
}

/// All rows of a store.
async fn rows(store: &dyn Store) -> Vec<(toolonce::store::Key, Vec<u8>)> {
    let page = store.scan(b"", None, 100_000).await.unwrap();
    assert!(page.next.is_none());
    page.items.into_iter().map(|(key, row)| (key, row.value)).collect()
}

async fn holds(store: &dyn Store, needle: &[u8]) -> bool {
    let found = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    rows(store).await.iter().any(|(key, value)| found(key.as_bytes()) || found(value))
}

fn downstream(ledger: &Ledger) -> Vec<String> {
    ledger.lines().iter().map(|line| line.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_rotated_secret_finds_what_was_done_and_goes_on_under_it() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let old = Process::open(&store, &ledger, |b| b.secret(secret(1))).await;
    let run = Run::start(&old.guard, "r").await.unwrap();
    let first = old.call(&run, 0, "charge", json!({"cents": 1})).await;
    let lost = old.call(&run, 1, "keyed", json!({"fate": "lost"})).await;
    assert_eq!((first.kind(), lost.kind()), (ReplyKind::Executed, ReplyKind::InDoubt));
    let step: String = run.step("model", &"input", || async { Ok("said".to_owned()) }).await.unwrap();

    let store = store.reopen();
    let new = Process::open(&store, &ledger, |b| b.secret(secret(2)).older_secret(secret(1))).await;
    let run = Run::resume(&new.guard, "r", Seen::Through(2)).await.unwrap();
    let again = new.call(&run, 0, "charge", json!({"cents": 1})).await;
    assert_eq!((again.kind(), again.message()), (ReplyKind::Replayed, first.message()));
    // The same bytes under the same downstream key: the doubt is one of the older secret's record.
    let sent = new.call(&run, 1, "keyed", json!({"fate": "lost"})).await;
    assert_eq!(sent.kind(), ReplyKind::Executed, "{}", sent.message());
    assert_eq!(downstream(&ledger)[1], downstream(&ledger)[2]);
    let said: String = run.step("model", &"input", || async { unreachable!() }).await.unwrap();
    assert_eq!(said, step);
    let other = new.call(&run, 3, "charge", json!({"cents": 7})).await;
    assert_eq!(other.kind(), ReplyKind::Executed);

    // Written under the new one: found by it alone, but what is under the old one isn't, so it must stay.
    let store = store.reopen();
    assert_eq!(refused(&store, |b| b.secret(secret(2))).await, ErrorKind::Secret);
    assert_eq!(refused(&store, |b| b.secret(secret(1))).await, ErrorKind::Secret);
    // One that is named twice counts once.
    let twice = |b: GuardBuilder| b.secret(secret(1)).older_secret(secret(2)).older_secret(secret(1));
    let back = Process::open(&store, &ledger, twice).await;
    let run = Run::resume(&back.guard, "r", Seen::Through(3)).await.unwrap();
    let answers = back.tools.answer(&run, 3, &[call("charge", &json!({"cents": 7}))]).await;
    assert_eq!(answers[0].kind(), ReplyKind::Replayed);
    let fresh = back.call(&run, 4, "charge", json!({"cents": 8})).await;
    assert_eq!(fresh.kind(), ReplyKind::Executed, "{}", fresh.message());
    assert_eq!(ledger.lines().len(), 5);
}

#[tokio::test]
async fn a_turn_recorded_under_an_older_secret_is_no_other_turn() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let old = Process::open(&store, &ledger, |b| b.secret(secret(1))).await;
    let run = Run::start(&old.guard, "r").await.unwrap();
    let calls = [call("charge", &json!({"cents": 1})), call("charge", &json!({"fate": "declined"}))];
    old.tools.answer(&run, 0, &calls).await;
    // Only the first call's record survives in this history; the second has none under either secret.
    let store = store.reopen();
    let gone: Vec<_> = {
        let mut keys = Vec::new();
        for (key, value) in rows(&store).await {
            let is_record = key.as_bytes()[8] == b'b';
            if is_record && value.windows(8).any(|window| window == b"declined") {
                keys.push(key);
            }
        }
        keys
    };
    assert_eq!(gone.len(), 1);
    store.commit(Batch { deletes: gone, ..Batch::default() }, Durability::Synced).await.unwrap();
    let new = Process::open(&store, &ledger, |b| b.secret(secret(2)).older_secret(secret(1))).await;
    let run = Run::resume(&new.guard, "r", Seen::Through(0)).await.unwrap();
    let replies = new.tools.answer(&run, 0, &calls).await;
    assert_eq!(replies[0].kind(), ReplyKind::Replayed);
    assert_eq!(replies[1].kind(), ReplyKind::Failed, "it ran, it did not diverge: {}", replies[1].message());
}

#[tokio::test]
async fn a_lost_or_another_secret_is_refused_before_anything_runs() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let process = Process::open(&store, &ledger, |b| b.secret(secret(1))).await;
    let run = Run::start(&process.guard, "r").await.unwrap();
    process.call(&run, 0, "charge", json!({"cents": 1})).await;
    let store = store.reopen();
    assert_eq!(refused(&store, |b| b).await, ErrorKind::Secret);
    assert_eq!(refused(&store, |b| b.secret(secret(2))).await, ErrorKind::Secret);
    assert_eq!(refused(&store, |b| b.older_secret(secret(1))).await, ErrorKind::Invalid);
    assert_eq!(refused(&store, |b| b.secret(Secret::new(""))).await, ErrorKind::Invalid);

    // Another namespace of a guard is looked at when a run of it begins.
    let guard = Guard::builder(store.clone(), "other").build().await.unwrap();
    let shop = guard.with_namespace("shop").unwrap();
    assert_eq!(Run::start(&shop, "s").await.unwrap_err().kind(), ErrorKind::Secret);
    assert_eq!(Run::resume(&shop, "r", Seen::Nothing).await.unwrap_err().kind(), ErrorKind::Secret);
    assert_eq!(ledger.lines().len(), 1);
}

#[tokio::test]
async fn what_was_written_without_a_secret_gets_none_later() {
    for store in [MemoryStore::new(), MemoryStore::shared()] {
        let ledger = Ledger::new();
        let process = Process::open(&store, &ledger, |b| b).await;
        let run = Run::start(&process.guard, "r").await.unwrap();
        process.call(&run, 0, "charge", json!({"cents": 1})).await;
        process.guard.crash();
        assert_eq!(refused(&store, |b| b.secret(secret(1))).await, ErrorKind::Secret);
    }
    let empty = MemoryStore::new();
    Guard::builder(empty.clone(), "shop").build().await.unwrap();
    assert!(rows(&empty).await.is_empty(), "a guard without a secret writes nothing at its start");
}

/// HOLES 2 with two processes: the one that doesn't know the new secret must not claim under the old one.
#[tokio::test]
async fn a_process_that_does_not_know_the_new_secret_claims_nothing_any_more() {
    let (store, ledger) = (MemoryStore::shared(), Ledger::new());
    let before = Process::open(&store, &ledger, |b| b.secret(secret(1))).await;
    let run = Run::start(&before.guard, "r").await.unwrap();
    before.call(&run, 0, "charge", json!({"cents": 1})).await;
    let after = Process::open(&store, &ledger, |b| b.secret(secret(2)).older_secret(secret(1))).await;
    let theirs = Run::attach(&after.guard, "r").await.unwrap();
    assert_eq!(after.call(&theirs, 1, "charge", json!({"cents": 2})).await.kind(), ReplyKind::Executed);
    let reply = before.call(&run, 2, "charge", json!({"cents": 2})).await;
    assert_eq!(reply.kind(), ReplyKind::Refused, "{}", reply.message());
    assert!(!reply.message().contains("secret"), "no internals: {}", reply.message());
    assert_eq!(ledger.lines().len(), 2);
}

/// Two processes that both know both secrets and write with different ones meet at the same call: whoever claims second
/// finds the other's record in its own commit.
#[tokio::test]
async fn two_processes_in_the_midst_of_a_rotation_never_claim_one_call_twice() {
    let (store, ledger) = (MemoryStore::shared(), Ledger::new());
    let one = Process::open(&store, &ledger, |b| b.secret(secret(1)).older_secret(secret(2))).await;
    let two = Process::open(&store, &ledger, |b| b.secret(secret(2)).older_secret(secret(1))).await;
    let run_one = Run::start(&one.guard, "r").await.unwrap();
    let run_two = Run::attach(&two.guard, "r").await.unwrap();
    let args = json!({"cents": 5});
    // Both look for a record before the task of either claims.
    let (a, b) =
        tokio::join!(one.call(&run_one, 0, "charge", args.clone()), two.call(&run_two, 0, "charge", args.clone()),);
    let kinds = [a.kind(), b.kind()];
    assert!(kinds.contains(&ReplyKind::Executed) && kinds.contains(&ReplyKind::Refused), "{kinds:?}");
    for reply in [one.call(&run_one, 1, "charge", args.clone()).await, two.call(&run_two, 1, "charge", args).await] {
        assert_eq!(reply.kind(), ReplyKind::Replayed);
    }
    assert_eq!(ledger.lines().len(), 1);
}

#[tokio::test]
async fn a_secret_argument_is_stored_in_no_form_that_can_be_guessed() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let process = Process::with_pins(&store, &ledger, |b| b.secret(secret(1))).await;
    let run = Run::start(&process.guard, "r").await.unwrap();
    let args = |to: &str, pin: &str| json!({"to": to, "pin": pin, "login": {"user-name-of-ann": pin}});
    let lost = process.call(&run, 0, "pay", args("nowhere", PIN)).await;
    assert_eq!(lost.kind(), ReplyKind::InDoubt);
    let inbox = process.guard.inbox().await.unwrap();
    assert_eq!((inbox.len(), inbox[0].arguments.as_deref()), (1, None));
    let conflict = process.call(&run, 1, "pay", args("nowhere", "another")).await;
    assert_eq!(conflict.kind(), ReplyKind::Conflict);
    assert_eq!(conflict.differing_fields(), ["/login", "/pin"]);
    assert!(!conflict.message().contains(PIN) && !conflict.message().contains("another"), "{}", conflict.message());
    let paid = process.tools.answer(&run, 2, &[call("pay", &args("ann", PIN))]).await;
    assert_eq!(paid[0].kind(), ReplyKind::Executed);

    let text = serde_json::to_string(&args("ann", PIN)).unwrap();
    let canonical = format!(r#"{{"login":{{"user-name-of-ann":"{PIN}"}},"pin":"{PIN}","to":"ann"}}"#);
    for guess in [
        PIN.as_bytes(),
        b"user-name-of-ann",
        Fingerprint::of(canonical.as_bytes()).as_bytes(),
        &digest("toolonce executed", canonical.as_bytes()).0,
        &digest("toolonce raw arguments", text.as_bytes()).0,
        &digest("toolonce raw arguments", canonical.as_bytes()).0,
    ] {
        assert!(!holds(&store, guess).await, "{:?}", guess.escape_ascii().to_string());
    }
    // Whoever is asked for permission doesn't see them, and the question doesn't keep them.
    let asks = Policy::write().approval(Approval::First);
    let schema = json!({"type": "object", "properties": {"pin": {"x-toolonce": "secret"}}});
    let mut tools = process.tools.clone();
    tools.add(value_tool("asks", "", schema, asks, |_, _| std::future::ready(Ok(json!(1))))).unwrap();
    let asked = tools.call(&run, call("asks", &json!({"pin": PIN})).turn(3).patience(Duration::ZERO)).await;
    assert_eq!(asked.kind(), ReplyKind::AwaitingApproval, "{}", asked.message());
    assert_eq!(process.guard.approvals().await.unwrap()[0].arguments, None);
    assert!(!holds(&store, PIN.as_bytes()).await);

    // Only the same arguments are sent again: they are kept nowhere.
    let sent = process.call(&run, 0, "pay", args("nowhere", PIN)).await;
    assert_eq!(sent.kind(), ReplyKind::Executed, "{}", sent.message());
}

#[tokio::test]
async fn without_a_secret_no_digest_changes() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let process = Process::open(&store, &ledger, |b| b).await;
    let run = Run::start(&process.guard, "r").await.unwrap();
    process.call(&run, 0, "charge", json!({"cents": 1})).await;
    assert!(holds(&store, Fingerprint::of(br#"{"cents":1}"#).as_bytes()).await);
}

/// A run with everything that has words of the caller in it.
async fn fill(process: &Process) -> Run {
    let run = Run::start(&process.guard, "r").await.unwrap();
    let lost = process.call(&run, 0, "keyed", json!({"fate": "lost", "PLAIN-argument": 1})).await;
    assert_eq!(lost.kind(), ReplyKind::InDoubt);
    process.call(&run, 1, "charge", json!({"fate": "declined"})).await;
    let answers = [call("charge", &json!({"n": 1})), call("charge", &json!({"n": 200_000}))];
    process.tools.answer(&run, 2, &answers).await;
    let _: String = run.step("model", &"PLAIN-input", || async { Ok("PLAIN-step ".repeat(20_000)) }).await.unwrap();
    process.guard.shutdown(Duration::from_secs(1)).await.unwrap();
    run
}

#[tokio::test]
async fn a_sealed_store_shows_nothing_and_gives_everything_back() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let sealed = |b: GuardBuilder| b.seal(SealKeys::new([1; 32]).only_sealed());
    fill(&Process::open(&store, &ledger, sealed).await).await;
    let store = store.reopen();
    assert!(rows(&store).await.len() > 8);
    for plain in ["PLAIN", "xxxxxxxx", "charge", "declined"] {
        assert!(!holds(&store, plain.as_bytes()).await, "{plain}");
    }
    let process = Process::open(&store, &ledger, sealed).await;
    let inbox = process.guard.inbox().await.unwrap();
    assert!(inbox[0].arguments.as_deref().unwrap().contains("PLAIN-argument"));
    assert_eq!(inbox[0].errors, ["lost after PLAIN-error"]);
    let run = Run::resume(&process.guard, "r", Seen::Through(2)).await.unwrap();
    let said: String = run.step("model", &"PLAIN-input", || async { unreachable!() }).await.unwrap();
    assert_eq!(said.len(), "PLAIN-step ".len() * 20_000);
    for (turn, args, text) in [
        (1, json!({"fate": "declined"}), "PLAIN-failure".to_owned()),
        (2, json!({"n": 1}), "PLAIN-result x".to_owned()),
        (2, json!({"n": 200_000}), "x".repeat(200_000)),
    ] {
        let reply = process.call(&run, turn, "charge", args).await;
        assert!(reply.message().contains(&text), "{:?}", reply.kind());
    }
    let reference = inbox[0].reference.clone();
    process.guard.resolve(&reference, Resolution::Happened(json!("it did")), "seen").await.unwrap();
    assert_eq!(ledger.lines().len(), 4);
}

#[tokio::test]
async fn a_missing_or_another_seal_key_opens_nothing_and_runs_nothing() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    fill(&Process::open(&store, &ledger, |b| b.seal(SealKeys::new([1; 32]))).await).await;
    let store = store.reopen();
    let sealed = ErrorKind::Store(StoreErrorKind::Sealed);
    assert_eq!(refused(&store, |b| b).await, sealed);
    assert_eq!(refused(&store, |b| b.seal(SealKeys::new([2; 32]))).await, sealed);

    // Rotation: the older key opens, the newer one seals; then both are needed.
    let both = |b: GuardBuilder| b.seal(SealKeys::new([2; 32]).older([1; 32]));
    let process = Process::open(&store, &ledger, both).await;
    let run = Run::resume(&process.guard, "r", Seen::Through(2)).await.unwrap();
    assert_eq!(process.call(&run, 2, "charge", json!({"n": 1})).await.kind(), ReplyKind::Replayed);
    assert_eq!(process.call(&run, 3, "charge", json!({"n": 2})).await.kind(), ReplyKind::Executed);
    let store = store.reopen();
    assert_eq!(refused(&store, |b| b.seal(SealKeys::new([2; 32]))).await, sealed);
    assert_eq!(refused(&store, |b| b.seal(SealKeys::new([1; 32]))).await, sealed);
    let process = Process::open(&store, &ledger, both).await;
    let run = Run::resume(&process.guard, "r", Seen::Through(3)).await.unwrap();
    assert_eq!(process.call(&run, 3, "charge", json!({"n": 2})).await.kind(), ReplyKind::Replayed);
    assert_eq!(ledger.lines().len(), 5);
}

#[tokio::test]
async fn a_plain_store_can_be_sealed_from_now_on() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    fill(&Process::open(&store, &ledger, |b| b).await).await;
    let store = store.reopen();
    assert!(holds(&store, b"PLAIN-result").await);
    let only = ErrorKind::Store(StoreErrorKind::Sealed);
    let process = Process::open(&store, &ledger, |b| b.seal(SealKeys::new([1; 32]))).await;
    let run = Run::resume(&process.guard, "r", Seen::Through(2)).await.unwrap();
    assert_eq!(process.call(&run, 2, "charge", json!({"n": 200_000})).await.kind(), ReplyKind::Replayed);
    let fresh = process.call(&run, 3, "charge", json!({"n": 4, "NEW-argument": "NEW-value"})).await;
    assert_eq!(fresh.kind(), ReplyKind::Executed);
    assert!(!holds(&store, b"NEW-").await);
    let store = store.reopen();
    assert_eq!(refused(&store, |b| b).await, only, "from now on the key is needed");
    let strict =
        Guard::builder(store.clone(), "shop").seal(SealKeys::new([1; 32]).only_sealed()).build().await.unwrap();
    let error = Run::attach(&strict, "r2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSuchRun);
}

/// Rows that were changed, or put in another row's place, are errors: nothing runs again because of them.
#[tokio::test]
async fn tampered_and_swapped_rows_are_never_taken_for_absent() {
    let is_record = |key: &toolonce::store::Key| key.as_bytes()[8] == b'b';
    let is_piece = |key: &toolonce::store::Key| key.as_bytes()[8] == b'c';
    type Which<'a> = &'a dyn Fn(&toolonce::store::Key) -> bool;
    let flipped = |mut value: Vec<u8>| {
        let last = value.len() - 1;
        value[last] ^= 1;
        value
    };
    for (which, swap) in [(&is_record as Which<'_>, false), (&is_record, true), (&is_piece, false), (&is_piece, true)] {
        let (store, ledger) = (MemoryStore::new(), Ledger::new());
        let sealed = |b: GuardBuilder| b.seal(SealKeys::new([1; 32]));
        let process = Process::open(&store, &ledger, sealed).await;
        let run = Run::start(&process.guard, "r").await.unwrap();
        let big = |n: u64| json!({"n": 200_000 + n});
        for n in 0..2 {
            let reply = process.call(&run, 0, "charge", big(n)).await;
            assert_eq!(reply.kind(), ReplyKind::Executed);
        }
        process.guard.shutdown(Duration::from_secs(1)).await.unwrap();
        let store = store.reopen();
        let mut hit: Vec<_> = rows(&store).await.into_iter().filter(|(key, _)| which(key)).collect();
        assert_eq!(hit.len(), 2);
        if swap {
            let (first, second) = hit.split_at_mut(1);
            std::mem::swap(&mut first[0].1, &mut second[0].1);
        } else {
            hit.iter_mut().for_each(|(_, value)| *value = flipped(std::mem::take(value)));
        }
        store.commit(Batch { puts: hit, ..Batch::default() }, Durability::Synced).await.unwrap();
        let process = Process::open(&store, &ledger, sealed).await;
        let run = Run::resume(&process.guard, "r", Seen::Through(0)).await.unwrap();
        for turn in 0..2 {
            let reply = process.call(&run, turn, "charge", big(0)).await;
            assert_eq!(reply.kind(), ReplyKind::Refused, "{}", reply.message());
        }
        assert_eq!(ledger.lines().len(), 2);
    }
}

#[tokio::test]
async fn two_processes_seal_with_different_keys_that_both_know() {
    let (store, ledger) = (MemoryStore::shared(), Ledger::new());
    let one = Process::open(&store, &ledger, |b| b.seal(SealKeys::new([1; 32]).older([2; 32]))).await;
    let two = Process::open(&store, &ledger, |b| b.seal(SealKeys::new([2; 32]).older([1; 32]))).await;
    let run_one = Run::start(&one.guard, "r").await.unwrap();
    let run_two = Run::attach(&two.guard, "r").await.unwrap();
    for n in 0..4 {
        let args = json!({"cents": n});
        let (first, then) =
            if n % 2 == 0 { ((&one, &run_one), (&two, &run_two)) } else { ((&two, &run_two), (&one, &run_one)) };
        assert_eq!(first.0.call(first.1, n, "charge", args.clone()).await.kind(), ReplyKind::Executed);
        assert_eq!(then.0.call(then.1, n, "charge", args).await.kind(), ReplyKind::Replayed);
    }
    assert_eq!(ledger.lines().len(), 4);
    let keyless = Guard::builder_on(Arc::new(store.clone()), "shop").build().await.unwrap_err();
    assert_eq!(keyless.kind(), ErrorKind::Store(StoreErrorKind::Sealed));
}

/// Sealing makes every value longer: a record that grows until it is full must go on fitting into the store.
#[tokio::test]
async fn a_sealed_record_grows_until_it_is_full_and_no_further() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let mut process = Process::open(&store, &ledger, |b| b.seal(SealKeys::new([1; 32]))).await;
    let effects = ledger.clone();
    let body = move |args: Value, _| {
        effects.write(&format!("each {args}"));
        std::future::ready(Ok(json!("y".repeat(200))))
    };
    let policy = Policy::write().repeat(Repeat::Each);
    process.tools.add(value_tool("each", "", json!({"type": "object"}), policy, body)).unwrap();
    let run = Run::start(&process.guard, "r").await.unwrap();
    // All of one message: until they are handed over, none of the outcomes may shrink.
    let calls: Vec<Call> = (0..600).map(|_| call("each", &json!({"n": 1}))).collect();
    let replies = process.tools.answer(&run, 0, &calls).await;
    let done = replies.iter().take_while(|reply| reply.kind() == ReplyKind::Executed).count();
    assert!(done > 100, "{done}");
    let full = replies.get(done).expect("it never gets full");
    assert_eq!(full.kind(), ReplyKind::Refused);
    assert!(full.message().contains("no room"), "{}", full.message());
    assert_eq!(ledger.count("each"), done);
}

#[cfg(feature = "sled")]
#[tokio::test]
async fn secrets_and_seals_hold_on_sled_too() {
    use toolonce::store::SledStore;

    let directory = tempfile::tempdir().unwrap();
    let open = async |with: fn(GuardBuilder) -> GuardBuilder| {
        let store = SledStore::open(directory.path()).await.unwrap();
        with(Guard::builder(store, "shop")).build().await
    };
    let keys: fn(GuardBuilder) -> GuardBuilder = |b| b.secret(secret(1)).seal(SealKeys::new([1; 32]));
    let guard = open(keys).await.unwrap();
    let run = Run::start(&guard, "r").await.unwrap();
    let said: String = run.step("model", &"PLAIN-input", || async { Ok("PLAIN-step ".repeat(20_000)) }).await.unwrap();
    guard.shutdown(Duration::from_secs(5)).await.unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(5).any(|window| window == b"PLAIN"), "{path:?}");
        }
    }
    let error = open(|b| b.seal(SealKeys::new([1; 32]))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Secret);
    let error = open(|b| b.secret(secret(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store(StoreErrorKind::Sealed));
    let guard = open(keys).await.unwrap();
    let run = Run::resume(&guard, "r", Seen::Nothing).await.unwrap();
    let again: String = run.step("model", &"PLAIN-input", || async { unreachable!() }).await.unwrap();
    assert_eq!(again, said);
}

#[tokio::test]
async fn what_completed_under_an_older_secret_reopens() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let open = async |store: &MemoryStore, with: fn(GuardBuilder) -> GuardBuilder| {
        let mut process = Process::open(store, &ledger, with).await;
        let schema = json!({"type": "object", "properties": {"room": {"type": "integer", "x-toolonce": "identity"}}});
        for (name, policy) in [("book", Policy::write().reopened_by(["cancel"])), ("cancel", Policy::write())] {
            let ledger = ledger.clone();
            let body = move |args: Value, _| {
                ledger.write(&format!("{name} {args}"));
                std::future::ready(Ok(json!("done")))
            };
            process.tools.add(value_tool(name, "", schema.clone(), policy, body)).unwrap();
        }
        process
    };
    let old = open(&store, |b| b.secret(secret(1))).await;
    let run = Run::start(&old.guard, "r").await.unwrap();
    for (turn, tool) in [(0, "book"), (1, "cancel")] {
        assert_eq!(old.call(&run, turn, tool, json!({"room": 1})).await.kind(), ReplyKind::Executed);
    }
    old.guard.shutdown(Duration::from_secs(5)).await.unwrap();
    let new = open(&store.reopen(), |b| b.secret(secret(2)).older_secret(secret(1))).await;
    let run = Run::resume(&new.guard, "r", Seen::Through(1)).await.unwrap();
    assert_eq!(new.call(&run, 2, "book", json!({"room": 1})).await.kind(), ReplyKind::Executed);
    assert_eq!(new.call(&run, 3, "book", json!({"room": 1})).await.kind(), ReplyKind::Replayed);
    assert_eq!(ledger.count("book"), 2);
}

/// A guard that is only to look at a namespace begins no secret in it, not even where nothing is written yet.
#[tokio::test]
async fn a_guard_that_looks_may_not_work_in_a_namespace_that_was_never_used() {
    let (store, ledger) = (MemoryStore::new(), Ledger::new());
    let looks = Process::open(&store, &ledger, |b| b.secret(secret(1)).existing()).await;
    assert!(looks.guard.calls(None).await.unwrap().calls.is_empty());
    let error = Run::start(&looks.guard, "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Secret);
    assert!(rows(&store).await.is_empty());
}

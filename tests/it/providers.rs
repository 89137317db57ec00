//! What is passed on downstream: the provider's form of the key, the hidden argument that takes it, and when another
//! attempt may or must use another key.

use std::collections::{HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use toolonce::key::{BaseKey, KeyForm};
use toolonce::provider::{self, Clash, KeyPlace, Provider};
use toolonce::store::{MemoryStore, Store};
use toolonce::testing::ManualClock;
use toolonce::{
    Attempt, Call, Guard, InDoubt, KeyWindow, Millis, Policy, Reconciled, Registry, Repeat, Reply, ReplyKind,
    Resolution, Run, Seen, ToolError, text_tool, value_tool,
};

const MINUTE: Duration = Duration::from_secs(60);
const START: Millis = 1_700_000_000_000;

// The table.

#[test]
fn every_form_keeps_every_stated_limit() {
    let key = BaseKey::from_bytes([7; 32]).downstream(0, 0);
    for provider in provider::ALL {
        let sent = key.in_form(provider.form);
        assert!(provider.takes(provider.form), "{}", provider.name);
        assert_eq!(sent.len(), provider.form.length(), "{}", provider.name);
        assert!(provider.max_length.is_none_or(|max| sent.len() <= max), "{}", provider.name);
        assert!(sent.is_ascii() && !provider.name.is_empty());
        assert!(provider.fields.iter().all(|field| !field.is_empty()));
        // Nothing is claimed for how long a key protects that isn't long enough to protect anything.
        assert_ne!(provider.window, KeyWindow::For(Duration::ZERO));
    }
    assert!(provider::AWS.takes(KeyForm::Hex64) && provider::AWS.lengths(33, 128).takes(KeyForm::Hex64));
    assert!(!provider::AWS.lengths(33, 128).takes(KeyForm::Hex32));
    assert!(!provider::SQUARE.takes(KeyForm::Hex64) && !provider::WORLDLINE.takes(KeyForm::Hex64));
    let names: HashSet<_> = provider::ALL.iter().map(|provider| provider.name).collect();
    assert_eq!(names.len(), provider::ALL.len());
}

#[test]
fn the_forms() {
    let key = BaseKey::from_bytes([7; 32]).downstream(0, 0);
    let uuid = key.in_form(KeyForm::Uuid);
    let places: Vec<usize> = uuid.match_indices('-').map(|(at, _)| at).collect();
    assert_eq!((places, &uuid[14..15]), (vec![8, 13, 18, 23], "4"));
    assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"), "{uuid}");
    assert_eq!(key.in_form(KeyForm::Quoted), format!("\"{}\"", key.hex32()));
    assert!(key.in_form(KeyForm::Hex64).starts_with(&key.in_form(KeyForm::Hex32)));
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    assert!(hex(&key.hex64()) && hex(&uuid.replace('-', "")));
}

/// The table in the docs is what the code goes by, row by row.
#[test]
fn the_docs_show_the_data() {
    let source = include_str!("../../src/provider.rs");
    let rows: Vec<&str> = source.lines().filter(|line| line.starts_with("//! | [`")).collect();
    assert_eq!(rows.len(), provider::ALL.len());
    for (row, provider) in rows.iter().zip(provider::ALL) {
        let shown = row.split_once("`] ").unwrap().1;
        assert_eq!(shown, shown_as(provider), "{}", provider.name);
    }
}

fn shown_as(provider: &Provider) -> String {
    let mut row = String::from("| ");
    row += match provider.place {
        KeyPlace::Directive => "directive ",
        KeyPlace::Field => "field ",
        _ => "header ",
    };
    match provider.fields {
        [] => row += "of a name to look up",
        [first, rest @ ..] => {
            write!(row, "`{first}`").unwrap();
            for (at, other) in rest.iter().enumerate() {
                let and = if at + 1 == rest.len() { " or" } else { "," };
                write!(row, "{and} `{other}`").unwrap();
            }
        }
    }
    let form = match provider.form {
        KeyForm::Uuid => "UUID",
        KeyForm::Hex64 => "hex64",
        KeyForm::Quoted => "quoted",
        _ => "hex32",
    };
    // Only Shopify takes any text where a UUID is sent.
    let must_be_uuid = provider.form == KeyForm::Uuid && provider.place != KeyPlace::Directive;
    let length = match (provider.min_length, provider.max_length) {
        _ if must_be_uuid => "UUID".to_owned(),
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (_, Some(max)) => format!("to {max}"),
        _ => "any".to_owned(),
    };
    let window = match provider.window {
        KeyWindow::For(time) if time < Duration::from_secs(3600) => format!("{} min", time.as_secs() / 60),
        KeyWindow::For(time) => format!("{} h", time.as_secs() / 3600),
        KeyWindow::Permanent => "for ever".to_owned(),
        _ => "not stated".to_owned(),
    };
    let clash = |clash| match clash {
        Clash::Status(status) => status.to_string(),
        Clash::Error => "an error".to_owned(),
        Clash::TakenAsRepeat => "taken as a repeat".to_owned(),
        _ => "not stated".to_owned(),
    };
    let (other, concurrent) = (clash(provider.other_body), clash(provider.concurrent));
    write!(row, " | {form} | {length} | {window} | {other} | {concurrent} |").unwrap();
    row
}

#[test]
fn a_policy_knows_its_provider() {
    let stripe = Policy::keyed(provider::STRIPE);
    assert_eq!(stripe.provider(), Some(&provider::STRIPE));
    assert_eq!(stripe.effect(), Policy::keyed(provider::STRIPE.window).effect());
    assert_eq!(Policy::keyed(KeyWindow::Permanent).provider().and_then(Provider::field), None);
    assert_eq!(Policy::write().provider(), None);
    let other = provider::ADYEN.window(KeyWindow::For(MINUTE));
    assert_eq!(Policy::keyed(other).effect(), Policy::keyed(KeyWindow::For(MINUTE)).effect());
}

// A desk that pays.

/// What an execution was given.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    key: String,
    field: Option<&'static str>,
    arguments: String,
    first_sent: Millis,
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Paid,
    Declined,
    Busy,
    Lost,
    /// It never answers.
    Stuck,
}

#[derive(Clone, Default)]
struct Provided {
    sent: Arc<Mutex<Vec<Sent>>>,
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Provided {
    async fn pay(self, arguments: String, at: Attempt) -> Result<String, ToolError> {
        let sent = Sent { key: at.idempotency_key(), field: at.key_field(), arguments, first_sent: at.first_sent() };
        self.sent.lock().unwrap().push(sent);
        let fate = self.fates.lock().unwrap().pop_front();
        match fate.unwrap_or(Fate::Paid) {
            Fate::Paid => Ok(json!("paid").to_string()),
            Fate::Declined => Err(ToolError::permanent("declined")),
            Fate::Busy => Err(ToolError::retryable("busy")),
            Fate::Lost => Err(ToolError::unknown("lost")),
            Fate::Stuck => std::future::pending().await,
        }
    }
}

/// A guard with the tool `pay`, on a clock moved by hand.
struct Desk {
    store: Arc<dyn Store>,
    clock: ManualClock,
    policy: Policy,
    provided: Provided,
    guard: Guard,
    tools: Registry,
    run: Run,
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "cents": {"type": "integer"},
            "idempotency_key": {"type": "string"},
            "why": {"type": "string", "x-toolonce": "ignore"}
        },
        "required": ["cents", "idempotency_key"],
        "additionalProperties": false
    })
}

impl Desk {
    async fn of(policy: Policy, fates: &[Fate]) -> Self {
        let provided = Provided::default();
        provided.fates.lock().unwrap().extend(fates);
        let policy = policy.advanced(|a| a.attempts(1).key_parameter("idempotency_key"));
        Self::open(Arc::new(MemoryStore::new()), ManualClock::new(), policy, provided).await
    }

    async fn open(store: Arc<dyn Store>, clock: ManualClock, policy: Policy, provided: Provided) -> Self {
        let guard = Guard::builder_on(Arc::clone(&store), "desk").clock(clock.clone()).build().await.unwrap();
        let mut tools = Registry::new(&guard);
        let seen = provided.clone();
        let pay = text_tool("pay", "", schema(), policy.clone(), move |text, at| seen.clone().pay(text, at));
        tools.add(pay).unwrap();
        let run = Run::start_or_resume(&guard, "r", Seen::Nothing).await.unwrap();
        Self { store, clock, policy, provided, guard, tools, run }
    }

    /// The process dies and another one opens the store.
    async fn crash(self) -> Self {
        self.guard.crash();
        drop((self.guard, self.tools, self.run));
        for _ in 0..100 {
            tokio::task::yield_now().await; // its tasks let go of the store
        }
        Self::open(self.store, self.clock, self.policy, self.provided).await
    }

    async fn pay(&self, turn: u32, arguments: Value) -> Reply {
        self.tools.call(&self.run, Call::with_value("pay", &arguments).turn(turn)).await
    }

    async fn pays(&self, turn: u32) -> ReplyKind {
        self.pay(turn, json!({"cents": 5})).await.kind()
    }

    fn sent(&self) -> Vec<Sent> {
        self.provided.sent.lock().unwrap().clone()
    }

    /// How many different keys were sent.
    fn keys(&self) -> usize {
        self.sent().iter().map(|sent| sent.key.clone()).collect::<HashSet<_>>().len()
    }
}

#[tokio::test]
async fn the_tool_gets_the_key_as_its_provider_wants_it() {
    for (policy, field, length) in [
        (Policy::keyed(provider::STRIPE), Some("Idempotency-Key"), 32),
        (Policy::keyed(provider::AWS), Some("ClientToken"), 64),
        (Policy::keyed(provider::LINEAR), Some("id"), 36),
        (Policy::keyed(provider::IETF_DRAFT), Some("Idempotency-Key"), 34),
        (Policy::keyed(provider::WORLDLINE), None, 32),
        (Policy::keyed(KeyWindow::Permanent), None, 32),
        (Policy::write(), None, 32),
        (Policy::write().advanced(|a| a.key_form(KeyForm::Uuid)), None, 36),
        (Policy::keyed(provider::STRIPE).advanced(|a| a.key_form(KeyForm::Hex64)), Some("Idempotency-Key"), 64),
    ] {
        let desk = Desk::of(policy, &[]).await;
        let reply = desk.pay(0, json!({"cents": 5})).await;
        let sent = desk.sent().remove(0);
        assert_eq!((reply.kind(), sent.field, sent.key.len()), (ReplyKind::Executed, field, length));
        assert_eq!(sent.first_sent, START);
        let arguments: Value = serde_json::from_str(&sent.arguments).unwrap();
        assert_eq!(arguments, json!({"cents": 5, "idempotency_key": sent.key}));
    }
}

// Generations.

#[tokio::test]
async fn a_permanent_failure_ends_a_generation() {
    let desk =
        Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Busy, Fate::Declined, Fate::Busy, Fate::Declined]).await;
    for (turn, kind) in [(0, ReplyKind::Failed), (1, ReplyKind::Failed), (2, ReplyKind::Failed)] {
        assert_eq!(desk.pays(turn).await, kind);
        desk.clock.advance(MINUTE);
    }
    let sent = desk.sent();
    assert_eq!(sent[0], sent[1]);
    assert_ne!(sent[1].key, sent[2].key);
    assert_eq!((sent[1].first_sent, sent[2].first_sent), (START, START + 120_000));
    assert_eq!(desk.pays(3).await, ReplyKind::Failed);
    assert_eq!(desk.pays(4).await, ReplyKind::Executed);
    assert_eq!((desk.sent()[3].key.clone(), desk.keys()), (sent[2].key.clone(), 3));
}

#[tokio::test]
async fn other_bytes_end_a_generation() {
    let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Busy, Fate::Busy]).await;
    let _ = desk.pay(0, json!({"cents": 5, "why": "asked"})).await;
    let _ = desk.pay(1, json!({"cents": 5, "why": "asked"})).await;
    let _ = desk.pay(2, json!({"cents": 5, "why": "asked again"})).await;
    let sent = desk.sent();
    assert_eq!(sent[0], sent[1]);
    assert_ne!(sent[1].key, sent[2].key);
}

#[tokio::test]
async fn a_generation_ends_with_the_window() {
    // 80 % of a day, less a tenth of the 10 minutes that an attempt may take.
    for (minutes, keys) in [(19 * 60 + 10, 1), (19 * 60 + 12, 2), (24 * 60, 2)] {
        let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Busy]).await;
        let _ = desk.pays(0).await;
        desk.clock.advance(MINUTE * minutes);
        assert_eq!(desk.pays(1).await, ReplyKind::Executed);
        assert_eq!(desk.keys(), keys, "after {minutes} min");
    }
    // A window that nobody stated is no reason for another key: nothing was done under this one.
    let desk = Desk::of(Policy::keyed(provider::SQUARE), &[Fate::Busy]).await;
    let _ = desk.pays(0).await;
    desk.clock.advance(MINUTE * 60 * 24 * 365);
    assert_eq!((desk.pays(1).await, desk.keys()), (ReplyKind::Executed, 1));
}

#[tokio::test]
async fn a_doubt_is_sent_again_inside_the_window_only() {
    let held = ReplyKind::InDoubt;
    for (policy, minutes, kind) in [
        (Policy::keyed(provider::STRIPE), 19 * 60 + 10, ReplyKind::Executed),
        (Policy::keyed(provider::STRIPE), 19 * 60 + 12, held),
        (Policy::keyed(provider::AZURE), 3, ReplyKind::Executed),
        (Policy::keyed(provider::AZURE), 4, held),
        (Policy::keyed(provider::INCREASE), 60 * 24 * 365 * 5, ReplyKind::Executed),
        (Policy::keyed(provider::ADYEN), 0, held),
        (Policy::keyed(provider::STRIPE).in_doubt(InDoubt::Hold), 0, held),
    ] {
        let name = policy.provider().unwrap().name;
        let desk = Desk::of(policy, &[Fate::Lost]).await;
        assert_eq!(desk.pays(0).await, ReplyKind::InDoubt);
        desk.clock.advance(MINUTE * minutes);
        assert_eq!(desk.pays(1).await, kind, "{name} after {minutes} min");
        let sent = desk.sent();
        assert_eq!((sent.len(), desk.keys()), (if kind == ReplyKind::Executed { 2 } else { 1 }, 1), "{name}");
        // Same bytes, same key, and the time by which the provider tells how old the key is.
        assert_eq!(sent.first(), sent.last());
    }
}

#[tokio::test]
async fn a_clock_before_the_first_send_proves_nothing() {
    for (set_back, kind) in [(-1, ReplyKind::InDoubt), (0, ReplyKind::Executed)] {
        let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Lost]).await;
        assert_eq!(desk.pays(0).await, ReplyKind::InDoubt);
        desk.clock.set_wall_by(set_back);
        assert_eq!(desk.pays(1).await, kind);
    }
}

#[tokio::test]
async fn a_tainted_record_keeps_its_key_whatever_its_attempts_say() {
    let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Lost, Fate::Declined, Fate::Busy]).await;
    for turn in 0..3 {
        assert_eq!(desk.pays(turn).await, ReplyKind::InDoubt);
    }
    assert_eq!(desk.pays(3).await, ReplyKind::Executed);
    assert_eq!((desk.sent().len(), desk.keys()), (4, 1));
}

#[tokio::test]
async fn a_humans_no_after_a_refusal_begins_a_generation() {
    let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Lost, Fate::Declined]).await;
    let _ = desk.pays(0).await;
    let reply = desk.pay(1, json!({"cents": 5})).await;
    let no = Resolution::DidNotHappenForSure;
    desk.guard.resolve(reply.reference().unwrap(), no, "asked the provider").await.unwrap();
    assert_eq!((desk.pays(2).await, desk.keys()), (ReplyKind::Executed, 2));
}

#[tokio::test]
async fn the_bytes_that_were_sent_are_sent_again() {
    // Another reason is another text, and no other call: what is sent is what was sent.
    let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Lost]).await;
    let _ = desk.pay(0, json!({"cents": 5, "why": "asked"})).await;
    assert_eq!(desk.pay(1, json!({"cents": 5, "why": "again"})).await.kind(), ReplyKind::Executed);
    let sent = desk.sent();
    assert_eq!(sent[0], sent[1]);
    // What would be kept is too long: only a call of the same bytes sends again.
    let long = |end: &str| json!({"cents": 5, "why": format!("{}{end}", "x".repeat(30_000))});
    let desk = Desk::of(Policy::keyed(provider::STRIPE), &[Fate::Lost]).await;
    let _ = desk.pay(0, long("a")).await;
    assert_eq!(desk.pay(1, long("b")).await.kind(), ReplyKind::InDoubt);
    assert_eq!(desk.pay(2, long("a")).await.kind(), ReplyKind::Executed);
    let sent = desk.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
}

#[tokio::test]
async fn a_crash_keeps_key_bytes_and_time() {
    let desk = Desk::of(Policy::keyed(provider::AZURE), &[Fate::Stuck]).await;
    let patient = Call::with_value("pay", &json!({"cents": 5, "why": "asked"})).turn(0).patience(Duration::ZERO);
    let first = desk.tools.call(&desk.run, patient).await;
    assert_eq!(first.kind(), ReplyKind::Running);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(desk.sent().len(), 1);
    desk.clock.advance(MINUTE);
    let desk = desk.crash().await;
    let again = desk.pay(0, json!({"cents": 5, "why": "asked", "idempotency_key": "the model's"})).await;
    assert_eq!(again.kind(), ReplyKind::Executed);
    let sent = desk.sent();
    assert_eq!((sent.len(), &sent[0]), (2, &sent[1]));
    assert_eq!(sent[1].first_sent, START);
}

// The hidden argument.

#[tokio::test]
async fn the_model_neither_sees_nor_chooses_the_key() {
    let desk = Desk::of(Policy::keyed(provider::SHOPIFY), &[]).await;
    let seen = &desk.tools.specs().next().unwrap().parameters;
    assert_eq!(seen["required"], json!(["cents"]));
    assert_eq!(seen["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), ["cents", "why"]);
    assert!(desk.tools.lint().is_empty());
    #[cfg(feature = "openai")]
    {
        let chat = serde_json::to_value(toolonce::adapter::openai::chat_tools(&desk.tools)).unwrap();
        let responses = serde_json::to_value(toolonce::adapter::openai::response_tools(&desk.tools)).unwrap();
        for offered in [chat, responses] {
            assert!(offered.to_string().contains(r#""strict":true"#), "{offered}");
            assert!(!offered.to_string().contains("idempotency_key"), "{offered}");
        }
    }
    for (turn, key) in [json!("k1"), json!("k2"), json!(null), json!(7), json!({"deep": []})].into_iter().enumerate() {
        let turn = u32::try_from(turn).unwrap();
        let reply = desk.pay(turn, json!({"cents": 5, "idempotency_key": key})).await;
        let expected = if turn == 0 { ReplyKind::Executed } else { ReplyKind::Replayed };
        assert_eq!(reply.kind(), expected, "{key}");
    }
    let sent = desk.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].arguments, json!({"cents": 5, "idempotency_key": sent[0].key}).to_string());
}

#[tokio::test]
async fn values_reads_and_look_ups_get_the_key_too() {
    let desk = Desk::of(Policy::write(), &[]).await;
    let mut tools = Registry::new(&desk.guard);
    let hiding = |policy: Policy| policy.advanced(|a| a.attempts(1).key_parameter("idempotency_key"));
    let echo = async |args: Value, at: Attempt| {
        assert_eq!(args["idempotency_key"], at.idempotency_key());
        Ok(args)
    };
    for (name, policy) in [
        ("idempotent", Policy::idempotent()),
        ("reads", Policy::read_only()),
        ("form", Policy::write().advanced(|a| a.key_form(KeyForm::Uuid))),
    ] {
        tools.add(value_tool(name, "", schema(), hiding(policy), echo)).unwrap();
        let reply = tools.call(&desk.run, Call::new(name, r#"{"cents": 1}"#).turn(0)).await;
        let outcome: Value = reply.outcome().unwrap().json().unwrap();
        let length = outcome["idempotency_key"].as_str().unwrap().len();
        assert_eq!(length, if name == "form" { 36 } else { 32 }, "{name}");
    }
    let lost = async |_: Value, at: Attempt| Err(ToolError::unknown(at.idempotency_key()));
    let look = async |text: String, about: toolonce::LookUp| {
        let args: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(args["idempotency_key"], about.idempotency_key());
        Ok(Reconciled::Happened(json!(about.idempotency_key())))
    };
    let policy = hiding(Policy::keyed(provider::WISE).in_doubt(InDoubt::Reconcile));
    tools.add(value_tool("looks", "", schema(), policy, lost).reconcile(look)).unwrap();
    let reply = tools.call(&desk.run, Call::new("looks", r#"{"cents": 1}"#).turn(0)).await;
    let key: String = reply.outcome().unwrap().json().unwrap();
    assert_eq!(key, reply.downstream_key().unwrap().uuid());
}

#[cfg(feature = "schemars")]
#[tokio::test]
async fn typed_tools_get_the_key_in_a_field() {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(Deserialize, Serialize, JsonSchema)]
    struct Pay {
        cents: u64,
        idempotency_key: String,
    }
    #[derive(Deserialize, Serialize, JsonSchema)]
    struct MayPay {
        idempotency_key: Option<String>,
    }
    let desk = Desk::of(Policy::write(), &[]).await;
    let mut tools = Registry::new(&desk.guard);
    let policy = || Policy::keyed(provider::SQUARE).advanced(|a| a.key_parameter("idempotency_key"));
    tools.add(toolonce::tool("pay", "", policy(), async |args: Pay, _at| Ok(args))).unwrap();
    let may = policy().repeat(Repeat::Each);
    tools.add(toolonce::tool("may", "", may, async |args: MayPay, _at| Ok(args))).unwrap();
    for (name, text) in [("pay", r#"{"cents": 1}"#), ("may", "{}")] {
        let reply = tools.call(&desk.run, Call::new(name, text).turn(0)).await;
        let outcome: Value = reply.outcome().unwrap().json().unwrap();
        assert_eq!(outcome["idempotency_key"], reply.downstream_key().unwrap().hex32(), "{name}");
    }
    let refused = tools.call(&desk.run, Call::new("pay", r#"{"idempotency_key": "k"}"#).turn(1)).await;
    assert_eq!(refused.kind(), ReplyKind::Refused);
    assert!(refused.message().contains("cents"), "{}", refused.message());
}

#[tokio::test]
async fn a_key_parameter_or_form_that_can_not_be_is_refused() {
    let desk = Desk::of(Policy::write(), &[]).await;
    let refused = |schema: Value, policy: Policy, why: &str| {
        let mut tools = Registry::new(&desk.guard);
        let tool = value_tool("t", "", schema, policy, async |args: Value, _at| Ok(args));
        let error = tools.add(tool).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let hiding = |name: &str| Policy::write().advanced(|a| a.key_parameter(name));
    refused(schema(), hiding("request_key"), "no such property");
    refused(json!({"type": "object"}), hiding("k"), "no such property");
    refused(schema(), hiding("why"), "has a hint");
    refused(schema(), hiding("cents"), "must be of type integer");
    // What is left tells no two calls apart.
    let alone = json!({"properties": {"k": {"type": "string"}}, "additionalProperties": false});
    refused(alone, hiding("k"), "Policy::repeat");
    let long = Policy::keyed(provider::SQUARE).advanced(|a| a.key_form(KeyForm::Hex64));
    refused(json!({"type": "object"}), long, "64 characters, and Square");
}

// Context.

#[tokio::test]
async fn a_run_carries_context_and_a_call_goes_first() {
    let desk = Desk::of(Policy::write(), &[]).await;
    let mut tools = Registry::new(&desk.guard);
    let policy = Policy::write().advanced(|a| a.context(["account"]));
    tools.add(value_tool("t", "", json!({"type": "object"}), policy, async |args: Value, _at| Ok(args))).unwrap();
    let call = |turn| Call::new("t", r#"{"n": 1}"#).turn(turn);
    assert_eq!(tools.call(&desk.run, call(0)).await.kind(), ReplyKind::Refused);
    let (a, b) = (desk.run.clone().with_context("account", "a"), desk.run.clone().with_context("account", "b"));
    assert_eq!(tools.call(&a, call(0)).await.kind(), ReplyKind::Executed);
    assert_eq!(tools.call(&b, call(1)).await.kind(), ReplyKind::Executed);
    assert_eq!(tools.call(&b, call(2).context("account", "a")).await.kind(), ReplyKind::Replayed);
    assert_eq!(tools.call(&desk.run, call(3).context("account", "b")).await.kind(), ReplyKind::Replayed);
    let replies = tools.answer(&a, 4, &[call(4), call(4).context("account", "c")]).await;
    assert_eq!([replies[0].kind(), replies[1].kind()], [ReplyKind::Replayed, ReplyKind::Executed]);
    assert_eq!(tools.call(&desk.run, call(5)).await.kind(), ReplyKind::Refused);
}

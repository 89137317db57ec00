//! Arguments that would make every retry a call of its own are named when a tool is added.

use serde_json::{Value, json};
use toolonce::canonical::Volatility;
use toolonce::{KeyWindow, Policy, Registry, value_tool};

use crate::bench::{Shop, shop};

fn registry(shop: &Shop, tools: &[(&str, Policy, Value)]) -> Registry {
    let mut registry = Registry::new(&shop.guard);
    for (name, policy, properties) in tools {
        let schema = json!({"type": "object", "properties": properties});
        let tool = value_tool(*name, "", schema, policy.clone(), async |args: Value, _at| Ok(args));
        registry.add(tool).unwrap();
    }
    registry
}

#[tokio::test]
async fn write_tools_are_named_with_the_place_and_what_to_do() {
    let shop = shop().await;
    let properties = json!({
        "order": {"type": "string"},
        "idempotency_key": {"type": "string"},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"properties": {"lineNote": {}, "sku": {}, "idempotencyKey": {}}}},
        "X-Trace-ID": {}
    });
    let tools = registry(
        &shop,
        &[
            ("look", Policy::read_only(), properties.clone()),
            ("set", Policy::idempotent(), properties.clone()),
            ("buy", Policy::write(), properties.clone()),
            ("pay", Policy::keyed(KeyWindow::Permanent), json!({"nonce": {}})),
        ],
    );
    let found = tools.lint();
    let places: Vec<_> =
        found.iter().map(|w| (w.tool.as_str(), w.argument.pointer.as_str(), w.argument.looks)).collect();
    assert_eq!(
        places,
        [
            ("buy", "/X-Trace-ID", Volatility::RequestId),
            ("buy", "/at", Volatility::Time),
            ("buy", "/idempotency_key", Volatility::DownstreamKey),
            ("buy", "/lines/*/idempotencyKey", Volatility::DownstreamKey),
            ("buy", "/lines/*/lineNote", Volatility::FreeText),
            ("pay", "/nonce", Volatility::RequestId),
        ]
    );
    let says = |at: usize, what: &str| assert!(found[at].to_string().contains(what), "{}", found[at]);
    says(0, "tool \"buy\": /X-Trace-ID looks like a request's own id");
    says(1, "`ignore` if it is the time of the call");
    says(2, r#"hide it, `.advanced(|a| a.key_parameter("idempotency_key"))`"#);
    says(3, "give it the hint `ignore` and send `Attempt::idempotency_key`");
    says(4, "or `content` if it reaches someone");
}

#[tokio::test]
async fn a_hint_or_a_hidden_key_settles_it() {
    let shop = shop().await;
    let properties = json!({
        "order": {"type": "string", "x-toolonce": "identity"},
        "reason": {"x-toolonce": "ignore"},
        "token": {"x-toolonce": ["trim", "casefold"]},
        "meta": {"x-toolonce": "content", "properties": {"trace_id": {}, "when": {"format": "date"}}},
        "idempotency_key": {"type": "string", "format": "uuid"}
    });
    let policy = Policy::write().advanced(|a| a.key_parameter("idempotency_key"));
    assert_eq!(registry(&shop, &[("buy", policy, properties)]).lint(), []);
    assert_eq!(shop.tools.lint(), []);
}

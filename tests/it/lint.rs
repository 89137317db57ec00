//! Arguments that would make every retry a call of its own are named when a tool is added.

use serde_json::{Value, json};
use toolonce::canonical::Volatility;
use toolonce::{KeyWindow, LintFinding, Policy, Registry, value_tool};

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
    let volatile = |finding| match finding {
        LintFinding::Volatile(argument) => (argument.pointer, argument.looks),
        other => panic!("{other:?}"),
    };
    let places: Vec<_> = found.iter().map(|w| (w.tool.as_str(), volatile(w.finding.clone()))).collect();
    assert_eq!(
        places,
        [
            ("buy", ("/X-Trace-ID".to_owned(), Volatility::RequestId)),
            ("buy", ("/at".to_owned(), Volatility::Time)),
            ("buy", ("/idempotency_key".to_owned(), Volatility::DownstreamKey)),
            ("buy", ("/lines/*/idempotencyKey".to_owned(), Volatility::DownstreamKey)),
            ("buy", ("/lines/*/lineNote".to_owned(), Volatility::FreeText)),
            ("pay", ("/nonce".to_owned(), Volatility::RequestId)),
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

#[tokio::test]
async fn a_tool_that_nothing_can_reopen_is_named() {
    let shop = shop().await;
    let book = ("book", Policy::write().reopened_by(["cancel", "cancle"]), json!({"seat": {}}));
    let cancel = ("cancel", Policy::write(), json!({"seat": {}}));
    let found = registry(&shop, &[book, cancel]).lint();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].finding, LintFinding::UnknownReopener("cancle".to_owned()));
    assert!(
        found[0].to_string().starts_with(r#"tool "book": its policy says that "cancle" reopens it"#),
        "{}",
        found[0]
    );
}

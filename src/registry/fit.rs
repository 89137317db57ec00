//! Whether a tool and its policy fit together, and what follows from both.

use std::time::Duration;

use serde_json::Value;

use crate::canonical::{Identifies, Shape, hidden};
use crate::guard::MOST_TIMES;
use crate::key::{BaseKey, Digest, digest};
use crate::policy::{Approval, Effect, InDoubt, KeyWindow, LookAlike, Policy, Repeat, Scope};
use crate::tool::AnyTool;

/// Takes the argument that the guard fills in out of the tool's schema.
pub(super) fn hide_key_parameter(tool: &mut AnyTool) -> Result<(), String> {
    let Some(name) = &tool.policy.advanced.key_parameter else { return Ok(()) };
    let sample = BaseKey::from_bytes([0; 32]).downstream(0, 0).in_form(tool.policy.key_form());
    tool.schema = hidden(&tool.schema, name, &sample)
        .map_err(|why| format!("its policy names {name:?} as the argument that takes the downstream key: {why}"))?;
    Ok(())
}

/// Why a policy doesn't fit its tool.
pub(super) fn objection(tool: &AnyTool, shape: &Shape) -> Option<String> {
    let policy = &tool.policy;
    if policy.in_doubt == InDoubt::Reconcile && tool.body.look_up.is_none() {
        return Some(
            "its policy says InDoubt::Reconcile, but it has no look-up: give it one with reconcile(..)".into(),
        );
    }
    if policy.in_doubt == InDoubt::Resend && !matches!(policy.effect(), Effect::Keyed(_)) {
        return Some(
            "InDoubt::Resend is for keyed tools: without a key downstream a second send is a second effect".into(),
        );
    }
    if policy.advanced.attempt_deadline.is_some_and(|deadline| deadline.is_zero()) {
        return Some("its attempt deadline is zero: nothing could ever begin".into());
    }
    if policy.effect() == Effect::Keyed(KeyWindow::For(Duration::ZERO)) {
        return Some("its key window is zero: say KeyWindow::Unknown if the provider doesn't state one".into());
    }
    let form = policy.key_form();
    if let Some(provider) = policy.provider().filter(|provider| !provider.takes(form)) {
        return Some(format!(
            "its downstream key has {} characters, and {} doesn't take as many: choose another key form",
            form.length(),
            if provider.name.is_empty() { "its provider" } else { provider.name }
        ));
    }
    if policy.advanced.retention.is_some() && policy.scope == Scope::Run {
        return Some("its records go with their run: Advanced::retention is for Scope::Global".into());
    }
    if policy.advanced.time_to_live.is_some() && policy.effect() != Effect::ReadOnly {
        return Some("it isn't read-only: only what changes nothing may be answered from memory for a time".into());
    }
    if policy.advanced.context.iter().any(String::is_empty) {
        return Some("a context value has no name".into());
    }
    if policy.again && !(policy.effect().is_write() && policy.repeats() != Repeat::Each) {
        return Some("`again` is for write tools whose repeats aren't new wishes by themselves".into());
    }
    if policy.effect() == Effect::ReadOnly && policy.approval == Approval::First {
        return Some("it only reads: there is nothing to approve".into());
    }
    if policy.advanced.look_alike.is_some_and(|look| look != LookAlike::Off) && !policy.effect().is_write() {
        return Some("only write tools are watched for look-alikes".into());
    }
    if policy.reopened_by.iter().any(|by| by.tool == tool.name) {
        return Some("it can't be reopened by itself: Repeat::Each makes every call of a later turn a new one".into());
    }
    if policy.effect().is_write() && policy.repeat.is_none() && shape.identifies() == Identifies::Never {
        return Some(
            "nothing in its arguments tells two calls apart: say with Policy::repeat what an equal call in a later \
             turn means (Repeat::Once: the same, Repeat::Each: do it again)"
                .into(),
        );
    }
    None
}

/// The schema as the model sees it: without the hints. A property may be called what it likes, and data is left alone.
pub(super) fn without_hints(schema: &Value) -> Value {
    let members = |map: &serde_json::Map<String, Value>| -> Value {
        map.iter().map(|(name, schema)| (name.clone(), without_hints(schema))).collect()
    };
    match schema {
        Value::Object(keywords) => {
            let seen = keywords.iter().filter(|(keyword, _)| !keyword.starts_with("x-toolonce"));
            let clean = |(keyword, value): (&String, &Value)| {
                let value = match (keyword.as_str(), value) {
                    ("enum" | "const" | "default" | "examples", data) => data.clone(),
                    ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(map)) => members(map),
                    (_, schema) => without_hints(schema),
                };
                (keyword.clone(), value)
            };
            seen.map(clean).collect()
        }
        Value::Array(items) => items.iter().map(without_hints).collect(),
        other => other.clone(),
    }
}

/// A name for the argument that the tool has no use for.
pub(super) fn free_name(schema: &Value) -> String {
    let taken = schema["properties"].get("again").is_some();
    if taken { "toolonce_again" } else { "again" }.to_owned()
}

/// Shows the model the argument by which it may ask for the same again.
pub(super) fn offer_again(parameters: &mut Value, name: &str) {
    let description = "Only if the user wants the very same thing done once more although it was done before: 1 for the \
                       second time, 2 for the third. Leave it out otherwise, above all when retrying.";
    let parameter =
        serde_json::json!({"type": "integer", "minimum": 1, "maximum": MOST_TIMES, "description": description});
    let Some(parameters) = parameters.as_object_mut() else { return };
    let properties = parameters.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(name.to_owned(), parameter);
    }
}

/// What happens to calls of a tool that look alike.
pub(super) fn look_alike(policy: &Policy, shape: &Shape) -> LookAlike {
    let default = match policy.effect().is_write() && !shape.has_identity_hint() {
        true => LookAlike::Ask,
        false => LookAlike::Off,
    };
    policy.advanced.look_alike.unwrap_or(default)
}

/// What a tool's keys depend on beside its calls.
pub(super) fn contract(name: &str, policy: &Policy, shape: &Shape) -> Digest {
    let mut context = policy.advanced.context.clone();
    context.sort();
    let hidden = policy.advanced.key_parameter.as_deref().unwrap_or_default();
    let parts = format!("{name:?} {:?} {context:?} {hidden:?} {:?}", policy.scope, shape.contract());
    digest("toolonce contract", parts.as_bytes())
}

/// Places that both tools name as identity.
pub(super) fn common_identity(one: &Shape, other: &Shape) -> Vec<String> {
    let both = one.identity_hints().iter().filter(|hint| other.identity_hints().contains(hint));
    both.filter(|hint| !hint.contains('*')).cloned().collect()
}

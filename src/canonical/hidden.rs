//! An argument that the model neither sees nor chooses: the guard fills it in.

use serde_json::Value;

use super::schema::Document;
use super::validate::Rules;
use super::{Limits, Node, Shape, reader, utf16_order, writer};

/// The schema without the property `name` at its top.
///
/// # Errors
/// Why it can't be hidden: there is no such property, it has a hint, `sample` doesn't fit it, or the schema speaks of it
/// in other places as well.
pub(crate) fn hidden(schema: &Value, name: &str, sample: &str) -> Result<Value, String> {
    let Some(property) = schema.get("properties").and_then(|named| named.get(name)) else {
        return Err("its schema has no such property at its top".to_owned());
    };
    let mut parts = Vec::new();
    Document(schema).gather(property, &mut parts).map_err(|error| error.to_string())?;
    if parts.iter().any(|part| part.contains_key(super::hints::KEYWORD)) {
        return Err("it has a hint: what the guard fills in counts for nothing".to_owned());
    }
    let rules = Rules::of(&parts).map_err(|error| error.to_string())?;
    if let Some(why) = rules.objection(&Node::String(sample.into())) {
        return Err(format!("it can't hold a key: it {why}"));
    }
    let seen = without(schema, name);
    match Shape::compile(&seen).map_err(|error| error.to_string())?.speaks_of(name) {
        true => Err("its schema speaks of it in more than one place".to_owned()),
        false => Ok(seen),
    }
}

fn without(schema: &Value, name: &str) -> Value {
    let mut seen = schema.clone();
    if let Some(properties) = seen.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(name);
    }
    if let Some(required) = seen.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|required| required != name);
    }
    seen
}

/// The canonical text of an object, with one more member that is a string.
pub(crate) fn with_member(object: &str, name: &str, value: &str) -> String {
    let limits = Limits { bytes: usize::MAX, depth: Limits::MAX_DEPTH };
    let Ok(Node::Object(mut members)) = reader::read(object, &limits) else { return object.to_owned() };
    let at = members.partition_point(|(member, _)| utf16_order(member, name).is_lt());
    members.insert(at, (name.into(), Node::String(value.into())));
    writer::write(&Node::Object(members))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_goes_where_it_belongs() {
        assert_eq!(with_member("{}", "k", "v"), r#"{"k":"v"}"#);
        assert_eq!(with_member(r#"{"a":1.5,"z":[]}"#, "k", "\"v\""), r#"{"a":1.5,"k":"\"v\"","z":[]}"#);
    }

    #[test]
    fn what_can_be_hidden() {
        let plain = json!({"properties": {"k": {"type": ["string", "null"]}, "x": {}}, "required": ["k", "x"]});
        assert_eq!(hidden(&plain, "k", "0"), Ok(json!({"properties": {"x": {}}, "required": ["x"]})));
        let refused = |schema: Value, why: &str| {
            let error = hidden(&schema, "k", "0").unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(json!({"type": "object"}), "no such property");
        refused(json!({"properties": {"a": {"properties": {"k": {}}}}}), "no such property");
        refused(json!({"properties": {"k": {"x-toolonce": "ignore"}}}), "hint");
        refused(json!({"properties": {"k": {"type": "integer"}}}), "must be of type integer");
        refused(json!({"properties": {"k": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "array"}}}), "array");
        refused(json!({"properties": {"k": {}}, "allOf": [{"required": ["k"]}]}), "more than one place");
    }
}

//! JSON Schema as OpenAI's strict mode wants it, where a schema can be written that way.
//!
//! The rules are those of the *Structured Outputs* guide ("Supported schemas"): every object closed, every property
//! required, what was optional nullable, `anyOf` instead of `oneOf`, a short list of keywords, at most 5000
//! properties and 10 levels. References are written out, since strict mode refuses keywords beside a `$ref`.

use serde_json::{Map, Value, json};

/// Levels of nested objects and lists that strict mode takes.
const MAX_DEPTH: usize = 10;
/// Properties that strict mode takes, all objects together.
const MAX_PROPERTIES: usize = 5000;

/// Keywords that strict mode takes as they are. Of the others, those in [`NEEDED`] carry structure that can't be
/// expressed; what remains (`title`, `format`, `default`, lengths …) only comments or narrows, and is dropped: the
/// tool checks its arguments itself.
const KEPT: [&str; 9] = [
    "description",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];
const NEEDED: [&str; 12] = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "prefixItems",
    "contains",
    "unevaluatedProperties",
    "$dynamicRef",
];

/// The schema in strict form; `None` if it has none: a map, an open object, a recursive type, a value of any shape.
pub(super) fn strict(schema: &Value) -> Option<Value> {
    let mut strict = Strict { root: schema, references: Vec::new(), properties: 0 };
    let schema = strict.schema(schema, 0)?;
    (schema["type"] == "object").then_some(schema)
}

struct Strict<'a> {
    root: &'a Value,
    /// The references that are being written out: meeting one again means a recursive type.
    references: Vec<&'a str>,
    properties: usize,
}

impl<'a> Strict<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        let schema = schema.as_object()?;
        if depth > MAX_DEPTH || NEEDED.iter().any(|keyword| schema.contains_key(*keyword)) {
            return None;
        }
        let mut out = match self.written_out(schema, depth)? {
            Some(mut target) => {
                // What stands beside a reference belongs to the place, and speaks first.
                target.extend(kept(schema));
                return Some(Value::Object(target));
            }
            None => kept(schema),
        };
        if let Some(choices) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
            let choices = choices.as_array()?.iter().map(|choice| self.schema(choice, depth)).collect::<Option<_>>()?;
            out.insert("anyOf".to_owned(), Value::Array(choices));
            return Some(Value::Object(out));
        }
        let values = schema.get("enum").cloned().or_else(|| Some(json!([schema.get("const")?])));
        let types = match (schema.get("type"), &values) {
            (Some(types), _) => types.clone(),
            (None, Some(values)) if values.as_array()?.iter().all(Value::is_string) => json!("string"),
            _ => return None,
        };
        if names(&types, "object") {
            self.object(schema, &mut out, depth)?;
        }
        if names(&types, "array") {
            out.insert("items".to_owned(), self.schema(schema.get("items")?, depth + 1)?);
        }
        out.insert("type".to_owned(), types);
        out.extend(values.map(|values| ("enum".to_owned(), values)));
        Some(Value::Object(out))
    }

    /// What a reference, or an `allOf` of one, stands for; inner `None` if the schema is neither.
    fn written_out(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Option<Option<Map<String, Value>>> {
        let target = match (schema.get("$ref"), schema.get("allOf")) {
            (None, None) => return Some(None),
            (Some(reference), None) => {
                let reference = reference.as_str()?;
                if self.references.contains(&reference) {
                    return None;
                }
                self.references.push(reference);
                let target = self.schema(self.root.pointer(reference.strip_prefix('#')?)?, depth)?;
                self.references.pop();
                target
            }
            (None, Some(Value::Array(all))) if all.len() == 1 => self.schema(&all[0], depth)?,
            _ => return None,
        };
        match target {
            Value::Object(target) => Some(Some(target)),
            _ => None,
        }
    }

    fn object(&mut self, schema: &'a Map<String, Value>, out: &mut Map<String, Value>, depth: usize) -> Option<()> {
        let properties = match (schema.get("properties"), schema.get("additionalProperties")) {
            (None, Some(Value::Bool(false))) => None,
            (Some(properties), None | Some(Value::Bool(false))) => Some(properties.as_object()?),
            _ => return None,
        };
        self.properties += properties.map_or(0, Map::len);
        if self.properties > MAX_PROPERTIES {
            return None;
        }
        let required = |name: &str| {
            let list = schema.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|required| required == name))
        };
        let mut all = Map::new();
        for (name, property) in properties.into_iter().flatten() {
            let property = self.schema(property, depth + 1)?;
            all.insert(name.clone(), if required(name) { property } else { nullable(property) });
        }
        out.insert("required".to_owned(), all.keys().map(String::as_str).collect());
        out.insert("properties".to_owned(), Value::Object(all));
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
        Some(())
    }
}

fn kept(schema: &Map<String, Value>) -> Map<String, Value> {
    KEPT.iter().filter_map(|name| Some(((*name).to_owned(), schema.get(*name)?.clone()))).collect()
}

fn names(types: &Value, name: &str) -> bool {
    types == name || types.as_array().is_some_and(|types| types.iter().any(|one| one == name))
}

/// The same schema, `null` allowed: how strict mode leaves a property out.
fn nullable(mut schema: Value) -> Value {
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        if !choices.iter().any(|choice| names(&choice["type"], "null")) {
            choices.push(json!({"type": "null"}));
        }
        return schema;
    }
    if names(&schema["type"], "null") {
        return schema;
    }
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema["type"].take() {
        Value::Array(mut types) => {
            types.push(json!("null"));
            schema["type"] = Value::Array(types);
        }
        one => schema["type"] = json!([one, "null"]),
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_is_required_and_optional_ones_are_nullable() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Charge", "type": "object",
            "properties": {
                "order": {"type": "string", "description": "the order"},
                "copies": {"type": "integer", "format": "uint32", "minimum": 0, "default": 1},
                "currency": {"enum": ["eur", "usd"]},
                "note": {"type": ["string", "null"]},
            },
            "required": ["order"],
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "order": {"type": "string", "description": "the order"},
                "copies": {"type": ["integer", "null"], "minimum": 0},
                "currency": {"type": ["string", "null"], "enum": ["eur", "usd", null]},
                "note": {"type": ["string", "null"]},
            },
            "required": ["copies", "currency", "note", "order"],
            "additionalProperties": false,
        });
        let mut strict = strict(&schema).unwrap();
        // The order of the names depends on features of serde_json.
        let required = strict["required"].as_array_mut().unwrap();
        required.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        assert_eq!(strict, expected);
    }

    #[test]
    fn references_are_written_out_and_one_of_becomes_any_of() {
        let schema = json!({
            "type": "object",
            "properties": {"to": {"$ref": "#/$defs/To", "description": "whom"}, "way": {"$ref": "#/$defs/Way"}},
            "required": ["to"],
            "$defs": {
                "To": {"type": "object", "description": "a person", "properties": {"mail": {"type": "string"}},
                       "required": ["mail"]},
                "Way": {"oneOf": [{"type": "string", "const": "fast"}, {"type": "string", "const": "cheap"}]},
            },
        });
        let strict = strict(&schema).unwrap();
        let to = &strict["properties"]["to"];
        assert_eq!(to["description"], "whom");
        assert_eq!(to["additionalProperties"], false);
        let way = json!({"anyOf": [
            {"type": "string", "enum": ["fast"]}, {"type": "string", "enum": ["cheap"]}, {"type": "null"}
        ]});
        assert_eq!(strict["properties"]["way"], way);
        assert!(strict.get("$defs").is_none());
    }

    #[test]
    fn what_strict_mode_can_not_say_has_no_strict_form() {
        let property = |property: Value| json!({"type": "object", "properties": {"p": property}});
        let tree = json!({
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
        });
        let schemas = [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            json!({"anyOf": [{"type": "object", "properties": {}}]}),
            property(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            property(json!(true)),
            property(json!({})),
            property(json!({"type": "array"})),
            property(json!({"type": "array", "prefixItems": [{"type": "string"}]})),
            property(json!({"not": {"type": "string"}})),
            property(json!({"$ref": "https://example.com/schema"})),
            property(json!({"allOf": [{"type": "string"}, {"type": "string"}]})),
            tree,
            property((0..MAX_DEPTH).fold(json!({"type": "string"}), |of, _| json!({"type": "array", "items": of}))),
        ];
        for schema in schemas {
            assert_eq!(strict(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_closed_object_without_properties_has_a_strict_form() {
        let closed = json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
        for schema in
            [json!({"type": "object", "properties": {}}), json!({"type": "object", "additionalProperties": false})]
        {
            assert_eq!(strict(&schema), Some(closed.clone()));
        }
    }
}

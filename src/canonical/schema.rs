//! Reading a JSON Schema: which schemas speak about one place, whether they let null through, where hints are.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::hints::{Hints, KEYWORD};
use super::shape::SchemaError;

pub(super) type Object = Map<String, Value>;

/// How many schemas one question may look at. Real ones need a handful; a hostile one gets the careful answer.
const PATIENCE: usize = 1000;

/// One schema document, for looking up its local references.
#[derive(Clone, Copy)]
pub(super) struct Document<'s>(pub(super) &'s Value);

/// A schema that carries hints, and where it stands.
pub(super) struct Hinted<'s> {
    pub(super) schema: &'s Object,
    pub(super) pointer: String,
    pub(super) hints: Hints,
}

impl<'s> Document<'s> {
    /// Adds the schemas that all speak about the place `schema` speaks about, itself first: its `$ref`, the members
    /// of `allOf`, and the one branch of an `anyOf` or `oneOf` that isn't null.
    pub(super) fn gather(self, schema: &'s Value, parts: &mut Vec<&'s Object>) -> Result<(), SchemaError> {
        let mut stack = vec![schema];
        while let Some(schema) = stack.pop() {
            let Some(part) = as_schema(schema)? else { continue };
            if parts.iter().any(|known| std::ptr::eq(*known, part)) {
                continue;
            }
            parts.push(part);
            let branches = ["anyOf", "oneOf"].into_iter().filter_map(|word| only_branch(list(part, word)));
            let nested: Vec<_> = self.target(part)?.into_iter().chain(list(part, "allOf")).chain(branches).collect();
            stack.extend(nested.into_iter().rev());
        }
        Ok(())
    }

    /// What a `$ref` points at. A reference to another document says nothing that could be known here.
    fn target(self, schema: &Object) -> Result<Option<&'s Value>, SchemaError> {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#')) else {
            return Ok(None);
        };
        let pointer = percent_decoded(pointer);
        let target = self.0.pointer(&pointer);
        target.map(Some).ok_or_else(|| SchemaError::new(pointer, "a $ref points here and there is no schema"))
    }

    /// Whether a schema lets null through. In doubt it does: a null that is kept can't merge two calls.
    pub(super) fn allows_null(self, schema: &Value) -> bool {
        let mut patience = PATIENCE;
        self.null_passes(schema, &mut patience, 64)
    }

    fn null_passes(self, schema: &Value, patience: &mut usize, depth: usize) -> bool {
        let Value::Object(schema) = schema else {
            return schema != &Value::Bool(false);
        };
        if *patience == 0 || depth == 0 || schema.get("nullable") == Some(&Value::Bool(true)) {
            return true;
        }
        *patience -= 1;
        let mut passes = |schema: &Value| self.null_passes(schema, patience, depth - 1);
        let mut any = |word: &str| !schema.contains_key(word) || list(schema, word).any(&mut passes);
        own_words_allow_null(schema)
            && any("anyOf")
            && any("oneOf")
            && list(schema, "allOf").all(&mut passes)
            && self.target(schema).ok().flatten().is_none_or(passes)
    }

    /// All schemas with hints that a value could meet in any way, also where hints aren't followed.
    pub(super) fn hinted(self) -> Result<Vec<Hinted<'s>>, SchemaError> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut stack = vec![(String::new(), self.0)];
        while let Some((pointer, schema)) = stack.pop() {
            let Some(schema) = as_schema(schema)? else { continue };
            if !seen.insert(std::ptr::from_ref(schema)) {
                continue;
            }
            if schema.contains_key(KEYWORD) {
                let hints = Hints::of(schema).map_err(|message| SchemaError::new(&*pointer, message))?;
                found.push(Hinted { schema, pointer: pointer.clone(), hints });
            }
            if let Some(target) = self.target(schema)? {
                stack.push((pointer.clone(), target));
            }
            stack.extend(nested(schema).map(|(word, schema)| (format!("{pointer}/{word}"), schema)));
        }
        Ok(found)
    }
}

/// The schemas directly inside a schema, each with its pointer from there.
fn nested(schema: &Object) -> impl Iterator<Item = (String, &Value)> {
    schema.iter().flat_map(|(word, value)| -> Vec<(String, &Value)> {
        match (word.as_str(), value) {
            ("properties" | "patternProperties" | "dependentSchemas", Value::Object(named)) => {
                named.iter().map(|(name, schema)| (format!("{word}/{}", escaped(name)), schema)).collect()
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(list)) => {
                list.iter().enumerate().map(|(index, schema)| (format!("{word}/{index}"), schema)).collect()
            }
            (
                "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else",
                Value::Object(_),
            ) => vec![(word.clone(), value)],
            _ => Vec::new(),
        }
    })
}

fn as_schema(schema: &Value) -> Result<Option<&Object>, SchemaError> {
    match schema {
        Value::Object(schema) => Ok(Some(schema)),
        Value::Bool(_) => Ok(None),
        _ => Err(SchemaError::new("", "a schema is an object, true or false")),
    }
}

/// The schemas under a keyword that holds a list.
pub(super) fn list<'s>(schema: &'s Object, word: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(word).and_then(Value::as_array).into_iter().flatten()
}

/// The one branch that isn't plain null.
fn only_branch<'s>(branches: impl Iterator<Item = &'s Value>) -> Option<&'s Value> {
    let mut branches = branches.filter(|branch| !is_null_schema(branch));
    let first = branches.next()?;
    branches.next().is_none().then_some(first)
}

fn is_null_schema(schema: &Value) -> bool {
    let is = |word: &str, value: &Value| schema.get(word) == Some(value);
    is("type", &Value::from("null")) || is("const", &Value::Null) || is("enum", &Value::Array(vec![Value::Null]))
}

fn own_words_allow_null(schema: &Object) -> bool {
    let types = match schema.get("type") {
        Some(Value::String(word)) => word == "null",
        Some(Value::Array(words)) => words.iter().any(|word| word == "null"),
        _ => true,
    };
    let choices = schema.get("enum").and_then(Value::as_array).is_none_or(|list| list.contains(&Value::Null));
    types && choices && schema.get("const").is_none_or(Value::is_null)
}

/// One step of a JSON pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A JSON pointer in a URI fragment has its special characters percent-encoded.
fn percent_decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

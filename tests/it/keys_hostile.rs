//! No text, however broken, brings the reader down, and what it accepts means what others take it to mean.

use proptest::prelude::*;
use serde_json::Value;
use toolonce::canonical::{Arguments, Limits, Node, ReadErrorKind, Shape, read, read_bytes, write};

/// Some text of the grammar, so that mutations reach deep.
const SEED: &str = r#"{"a":[1,-2.50e+3,true,null,{"b\u00e9\n":"\ud83d\ude02x"}],"c":{},"d":"é","e":0.001}"#;

/// serde_json's own depth limit is 128 in a slightly different sense.
const LIMITS: Limits = Limits { bytes: 1 << 20, depth: 100 };

/// Both readers agree, or ours refuses for a reason that RFC 8259 leaves open.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_slice::<Value>(bytes).ok();
    match (read_bytes(bytes, &LIMITS), theirs) {
        (Ok(ours), Some(theirs)) => prop_assert!(means(&ours, &theirs), "{:?} and {:?}", ours, theirs),
        (Ok(ours), None) => prop_assert!(false, "only we accept {:?}", ours),
        (Err(error), Some(_)) => prop_assert!(
            matches!(
                error.kind(),
                ReadErrorKind::DuplicateKey
                    | ReadErrorKind::NumberOutOfRange
                    | ReadErrorKind::NumberTooLong
                    | ReadErrorKind::TooDeep
            ),
            "only we refuse: {error}"
        ),
        (Err(error), None) => prop_assert!(error.offset() <= bytes.len()),
    }
    Ok(())
}

fn means(ours: &Node<'_>, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Node::Null, Value::Null) => true,
        (Node::Bool(a), Value::Bool(b)) => a == b,
        (Node::String(a), Value::String(b)) => a == b,
        (Node::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_str().parse(), b.to_string().parse());
            // serde_json may be one off in the last place of a double.
            a.is_ok_and(|a: f64| b.is_ok_and(|b: f64| (a - b).abs() <= a.abs() * 1e-15))
        }
        (Node::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means(a, b)),
        (Node::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(&**name).is_some_and(|b| means(a, b)))
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        compare(&bytes)?;
    }

    #[test]
    fn any_text_of_json_characters(text in "[\\[\\]{}\",:\\\\u0123dDeE+.\\-truefalsn \n\u{feff}\u{1}é]{0,24}") {
        compare(text.as_bytes())?;
    }

    #[test]
    fn broken_json(edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..5)) {
        let mut bytes = SEED.as_bytes().to_vec();
        for (at, kind, byte) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        compare(&bytes)?;
    }

    #[test]
    fn any_schema_compiles_or_is_refused(schema in schemas(), text in "\\PC{0,4}") {
        let text = serde_json::json!({ "a": text, "b": [null, { "a": null }], "c": { "a": 1 } }).to_string();
        let arguments = Arguments::read(&text, &LIMITS).map_err(|error| TestCaseError::fail(error.to_string()))?;
        if let Ok(shape) = Shape::compile(&schema) {
            let _ = (shape.normalise(&arguments).is_ok(), shape.validate(&arguments).is_ok());
        }
    }
}

/// Schemas made of the right words in wild order.
fn schemas() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "type",
        "properties",
        "a",
        "b",
        "c",
        "items",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "default",
        "enum",
        "x-toolonce",
        "additionalProperties",
        "prefixItems",
        "required",
        "not",
        "$defs",
    ]);
    let leaf = prop::sample::select(vec![
        "object",
        "string",
        "null",
        "#",
        "#/properties/a",
        "#/$defs/a",
        "identity",
        "content",
        "ignore",
        "set",
        "trim",
        "casefold",
        "null-is-absent",
        "a",
    ]);
    let leaf =
        prop_oneof![4 => leaf.prop_map(Value::from), 1 => any::<bool>().prop_map(Value::from), 1 => Just(Value::Null)];
    let value = leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((words.clone(), inner), 0..5).prop_map(|members| Value::Object(
                members.into_iter().map(|(word, value)| (word.to_owned(), value)).collect()
            )),
        ]
    });
    (value, any::<bool>()).prop_map(|(mut value, typed)| {
        if let (Value::Object(schema), true) = (&mut value, typed) {
            schema.insert("type".to_owned(), Value::from("object"));
        }
        value
    })
}

#[test]
fn deep_text_is_refused_before_it_can_overflow_the_stack() {
    for open in ["[", "{\"a\":", "[{\"a\":["] {
        let error = read(&open.repeat(300_000), &Limits { bytes: usize::MAX, depth: usize::MAX }).unwrap_err();
        assert_eq!(error.kind(), ReadErrorKind::TooDeep);
    }
    let deepest = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert_eq!(read(&deepest, &Limits::default()).map(|node| write(&node)).as_deref(), Ok(&*deepest));
}

#[test]
fn deep_values_are_refused_too() {
    let mut value = Value::Null;
    for _ in 0..1000 {
        value = Value::Array(vec![value]);
    }
    let error = Arguments::from_value(&value, &Limits::default()).unwrap_err();
    assert_eq!(error.kind(), ReadErrorKind::TooDeep);
}

#[test]
fn large_text_is_refused() {
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let error = Arguments::read(&text, &Limits::default()).unwrap_err();
    assert_eq!(error.to_string(), "the text has 1048584 bytes and at most 1048576 are allowed: send less");
}

#[test]
fn a_schema_full_of_circles_is_no_trap() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "next": { "$ref": "#", "default": { "next": { "next": {} } } },
            "self": { "$ref": "#/properties/self" }
        },
        "allOf": [{ "$ref": "#" }]
    });
    let shape = Shape::compile(&schema).unwrap();
    let text = format!("{}{{}}{}", "{\"next\":".repeat(120), "}".repeat(120));
    let arguments = Arguments::read(&text, &Limits::default()).unwrap();
    assert!(shape.normalise(&arguments).is_ok());
}

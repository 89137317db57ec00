//! What a schema says about meaning, and what is told to whoever sends something else.

use serde_json::{Value, json};
use toolonce::canonical::{
    Arguments, Identifies, Limits, NormaliseError, Normalised, ReadErrorKind, Refusal, SchemaError, Shape, read,
    read_bytes,
};

fn shape(schema: Value) -> Shape {
    Shape::compile(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn arguments(text: &str) -> Arguments<'_> {
    Arguments::read(text, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn try_normalise(shape: &Shape, text: &str) -> Result<Normalised, NormaliseError> {
    shape.normalise(&arguments(text))
}

fn identity(shape: &Shape, text: &str) -> String {
    let normalised = try_normalise(shape, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    normalised.identity().to_owned()
}

fn object(properties: Value) -> Shape {
    shape(json!({ "type": "object", "properties": properties }))
}

#[test]
fn an_identity_that_finds_nothing_is_an_error() {
    // Public report key-01: a missing key was hashed like any value, and all such calls shared one answer.
    let shape = object(json!({
        "user": {
            "type": ["object", "null"],
            "properties": { "id": { "type": ["string", "null"] } },
            "x-toolonce": "identity"
        },
        "pair": { "type": "array", "x-toolonce": "identity" }
    }));
    for text in
        ["", r#"{"other":1}"#, r#"{"pair":[null,null]}"#, r#"{"user":{"id":null}}"#, r#"{"user":null,"pair":[]}"#]
    {
        let error = try_normalise(&shape, text).expect_err(text);
        assert_eq!(
            error.to_string(),
            "the arguments don't say what the call is about: give a value to at least one of /pair, /user"
        );
    }
    assert_eq!(identity(&shape, r#"{"pair":[null,0]}"#), r#"{"pair":[null,0]}"#);
}

#[test]
fn the_nearest_selection_wins() {
    let shape = object(json!({
        "order": {
            "type": "object",
            "x-toolonce": "identity",
            "properties": {
                "id": { "type": "integer" },
                "trace": { "x-toolonce": "ignore", "properties": { "tenant": { "x-toolonce": "identity" } } }
            }
        }
    }));
    let text = r#"{"order":{"id":1,"trace":{"span":9,"tenant":"t"}},"amount":5}"#;
    assert_eq!(identity(&shape, text), r#"{"order":{"id":1,"trace":{"tenant":"t"}}}"#);
    assert!(shape.has_identity_hint());
    assert_eq!(shape.identity_hints(), ["/order", "/order/trace/tenant"]);
}

#[test]
fn hints_reach_items_members_and_references() {
    let shape = shape(json!({
        "type": "object",
        "properties": {
            "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
            "pair": { "prefixItems": [
                { "x-toolonce": "casefold" }, { "$ref": "#/$defs/Row", "x-toolonce": "ignore" }
            ] },
            "maybe": { "anyOf": [{ "$ref": "#/$defs/Row" }, { "type": "null" }] },
            "both": { "allOf": [{ "$ref": "#/$defs/Row" }, { "properties": { "id": { "x-toolonce": "trim" } } }] }
        },
        "additionalProperties": { "x-toolonce": "casefold" },
        "$defs": { "Row": { "type": "object", "properties": { "at": { "type": "string", "x-toolonce": "ignore" } } } }
    }));
    for (text, expected) in [
        (r#"{"rows":[{"at":"x","id":1},{"id":2}]}"#, r#"{"rows":[{"id":1},{"id":2}]}"#),
        (r#"{"pair":["A",{"id":1},"A"]}"#, r#"{"pair":["a","A"]}"#),
        (r#"{"maybe":{"at":"x","id":1}}"#, r#"{"maybe":{"id":1}}"#),
        (r#"{"maybe":null}"#, r#"{"maybe":null}"#),
        (r#"{"both":{"at":"x","id":" 1 "}}"#, r#"{"both":{"id":"1"}}"#),
        (r#"{"other":"A"}"#, r#"{"other":"a"}"#),
    ] {
        assert_eq!(identity(&shape, text), expected);
    }
}

#[test]
fn text_rules_hold_for_all_strings_below() {
    let shape = object(json!({ "to": { "x-toolonce": ["set", "trim", "casefold"] } }));
    assert_eq!(identity(&shape, r#"{"to":[" B ","a","b",{"K":" V"}]}"#), r#"{"to":["a","b",{"K":"v"}]}"#);
}

#[test]
fn nulls_go_only_where_the_schema_forbids_them() {
    let shape = shape(json!({
        "type": "object",
        "properties": {
            "string": { "type": "string" },
            "choice": { "enum": ["a", "b"] },
            "reference": { "$ref": "#/$defs/S" },
            "branches": { "anyOf": [{ "type": "string" }, { "type": "integer" }] },
            "nullable": { "type": "string", "nullable": true },
            "listed": { "type": ["string", "null"] },
            "open": {},
            "items": { "type": "array", "items": { "type": "string" } }
        },
        "additionalProperties": { "type": "string" },
        "$defs": { "S": { "type": "string" } }
    }));
    for name in ["string", "choice", "reference", "branches"] {
        let normalised = try_normalise(&shape, &format!(r#"{{"{name}":null}}"#)).expect(name);
        assert_eq!(normalised.executed(), "{}", "{name}");
        assert!(normalised.identifies_nothing);
    }
    // A map's member is no property that strict mode could have made nullable.
    for name in ["nullable", "listed", "open", "map"] {
        assert_eq!(identity(&shape, &format!(r#"{{"{name}":null}}"#)), format!(r#"{{"{name}":null}}"#));
    }
    assert_eq!(identity(&shape, r#"{"items":[null]}"#), r#"{"items":[null]}"#);
}

#[test]
fn defaults_of_map_members_and_items_stay() {
    let shape = shape(json!({
        "type": "object",
        "additionalProperties": { "type": "integer", "default": 0 },
        "properties": { "list": { "items": { "default": 0 } } }
    }));
    assert_eq!(identity(&shape, r#"{"a":0,"list":[0]}"#), r#"{"a":0,"list":[0]}"#);
}

#[test]
fn a_default_is_judged_on_all_that_is_hashed() {
    let shape = object(json!({
        "id": { "x-toolonce": "identity" },
        "target": { "default": { "name": "a", "memo": "m" }, "properties": { "name": { "x-toolonce": "identity" } } }
    }));
    assert_eq!(identity(&shape, r#"{"id":1,"target":{"memo":"m","name":"a"}}"#), r#"{"id":1}"#);
    assert_eq!(identity(&shape, r#"{"id":1,"target":{"memo":"x","name":"a"}}"#), r#"{"id":1,"target":{"name":"a"}}"#);
}

#[test]
fn schemas_that_are_refused() {
    for (schema, expected) in [
        (json!({ "properties": { "a": { "x-toolonce": "idendity" } } }), "there is no hint \"idendity\""),
        (json!({ "properties": { "a": { "x-toolonce": ["identity", "ignore"] } } }), "only one can hold"),
        (json!({ "properties": { "a": { "x-toolonce": 1 } } }), "a string or a list of strings"),
        (
            json!({ "oneOf": [{ "properties": { "a": { "x-toolonce": "ignore" } } }, { "type": "object" }] }),
            "isn't followed",
        ),
        (json!({ "properties": { "a": { "$ref": "#/$defs/a" } } }), "there is no schema"),
        (json!({ "properties": { "a": { "default": [{ "b": "c" }, 5e-324] } } }), "can't be read"),
        (json!({ "type": "string" }), "arguments are an object"),
        (json!(null), "a schema is an object, true or false"),
    ] {
        let error: SchemaError = Shape::compile(&schema).expect_err(&schema.to_string());
        assert!(error.to_string().contains(expected), "{schema}: {error}");
    }
    let elsewhere = json!({ "properties": { "a": { "$ref": "https://example.com/schema#/a" } } });
    assert!(Shape::compile(&elsewhere).is_ok());
}

#[test]
fn whether_calls_identify_anything() {
    let closed = |properties: Value| {
        shape(json!({ "type": "object", "properties": properties, "additionalProperties": false })).identifies()
    };
    let ignored = json!({ "why": { "type": "string", "x-toolonce": "ignore" } });
    assert_eq!(closed(json!({})), Identifies::Never);
    assert_eq!(closed(ignored.clone()), Identifies::Never);
    assert_eq!(closed(json!({ "amount": {} })), Identifies::Possible);
    assert_eq!(object(ignored).identifies(), Identifies::Never);
    assert_eq!(object(json!({ "id": { "x-toolonce": "identity" } })).identifies(), Identifies::Possible);
    assert_eq!(object(json!({ "amount": {} })).identifies(), Identifies::EmptyWhenNoArguments);
    let open = shape(json!({ "type": "object" }));
    assert_eq!(open.identifies(), Identifies::EmptyWhenNoArguments);
    assert!(try_normalise(&open, "{}").is_ok_and(|normalised| normalised.identifies_nothing));
    assert!(try_normalise(&open, "{\"a\":0}").is_ok_and(|normalised| !normalised.identifies_nothing));
}

#[test]
fn validation_names_every_problem() {
    let shape = shape(json!({
        "type": "object",
        "required": ["amount", "to"],
        "additionalProperties": false,
        "properties": {
            "amount": { "type": "integer" },
            "currency": { "enum": ["eur", "usd"] },
            "to": { "type": "string" },
            "lines": { "items": { "type": "object", "required": ["sku"], "properties": { "sku": {} } } },
            "limit": { "type": ["number", "null"] }
        }
    }));
    let check = |text: &str| shape.validate(&arguments(text)).map_err(|refusal: Refusal| refusal.to_string());
    assert_eq!(check(r#"{"amount":5.0,"to":"a","currency":"eur","lines":[{"sku":null}],"limit":null}"#), Ok(()));
    assert_eq!(
        check(r#"{"amount":5.5,"to":null,"currency":"chf","lines":[{},3],"limit":"x","why":1}"#),
        Err("the arguments don't fit the tool's schema: /to is missing; /amount must be of type integer; \
             /currency must be one of \"eur\", \"usd\"; /limit must be of type number or null; \
             /lines/0/sku is missing; /lines/1 must be of type object; \
             /why is not an argument of this tool: leave it out"
            .to_owned())
    );
}

#[test]
fn integers_that_a_typed_tool_would_round() {
    let refused = |text: &str| {
        let arguments = arguments(text);
        let normalised = object(json!({})).normalise(&arguments).expect("there is no identity hint");
        assert_eq!(normalised.unrounded(), arguments.unrounded());
        arguments.unrounded().map_err(|error| error.kind())
    };
    assert_eq!(refused(r#"{"id":18446744073709551617}"#), Err(ReadErrorKind::WouldRound));
    assert_eq!(refused(r#"{"id":[-9223372036854775809]}"#), Err(ReadErrorKind::WouldRound));
    assert_eq!(refused(r#"{"id":18446744073709551615,"avogadro":6.02e23,"x":1e308}"#), Ok(()));
}

#[test]
fn parsed_values_are_read_through_their_own_text() {
    let value = json!({ "b": 1.0, "a": [u64::MAX, i64::MIN, "é\u{0}"] });
    let from_value = Arguments::from_value(&value, &Limits::default()).expect("the value is sound");
    let text = r#"{"a":[18446744073709551615,-9223372036854775808,"é\u0000"],"b":1}"#;
    assert_eq!(from_value.root(), arguments(text).root());
    assert!(Arguments::from_value(&Value::Null, &Limits::default()).is_ok_and(|arguments| arguments.is_empty()));
    assert!(from_value.get("b").is_some() && from_value.get("c").is_none());
}

#[test]
fn refusals_say_what_to_send_instead() {
    for (text, expected) in [
        ("[1]", "the arguments are an array: send one JSON object"),
        ("\"{}\"", "the arguments are a string: send one JSON object"),
        (r#"{"a":1"#, "the text ends too early (byte 6): send the whole JSON value"),
        (r#"{"a":1,}"#, "there is a comma with nothing after it (byte 7): leave it out"),
        (r#"{"a":1}{"a":1}"#, "there is more text after the first value (byte 7): send one JSON value"),
        (r#"{'a':1}"#, "'\\'' stands where a key in double quotes should (byte 1): send plain JSON"),
        (r#"{"a":007}"#, "a number starts with a zero (byte 5): write it without leading zeros"),
        ("{\"a\":\"\n\"}", "a string holds a raw control character (byte 6): escape it, a line break as \\n"),
    ] {
        let error = Arguments::read(text, &Limits::default()).expect_err(text);
        assert_eq!(error.to_string(), expected);
    }
    let error = read_bytes(b"{\"a\":\"\xff\"}", &Limits::default()).expect_err("it isn't UTF-8");
    assert_eq!((error.kind(), error.offset()), (ReadErrorKind::NotUtf8, 6));
    for text in ["", " \n", "null", "{}"] {
        assert!(arguments(text).is_empty(), "{text:?}");
    }
    assert!(read("", &Limits::default()).is_err());
}

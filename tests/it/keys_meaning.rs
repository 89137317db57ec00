//! Same meaning, same key; other meaning, other key.
//!
//! The judge of meaning is a model of its own: values are generated as [`Meaning`]s, and texts are spelled from them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use toolonce::canonical::{Arguments, Limits, Normalised, Shape};
use toolonce::key::{BaseKey, KeyParts, KeyScope, base_key};

/// What a JSON value means.
#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    Null,
    Bool(bool),
    /// Mantissa × 10^exponent, the mantissa without zeros at its end.
    Number(i128, i32),
    String(String),
    Array(Vec<Meaning>),
    Object(BTreeMap<String, Meaning>),
}

fn number(mantissa: i128, exponent: i32) -> Meaning {
    let (mut mantissa, mut exponent) = (mantissa, exponent);
    while mantissa != 0 && mantissa % 10 == 0 {
        (mantissa, exponent) = (mantissa / 10, exponent + 1);
    }
    Meaning::Number(mantissa, if mantissa == 0 { 0 } else { exponent })
}

fn numbers() -> impl Strategy<Value = Meaning> {
    let mantissa = prop_oneof![
        (-3..4_i128),
        Just(9_007_199_254_740_992),
        Just(9_007_199_254_740_993),
        Just(18_446_744_073_709_551_616),
        Just(18_446_744_073_709_551_617),
        any::<i64>().prop_map(i128::from),
    ];
    (mantissa, prop_oneof![Just(0), -3..4_i32, -200..200_i32])
        .prop_map(|(mantissa, exponent)| number(mantissa, exponent))
}

fn strings() -> impl Strategy<Value = String> {
    prop_oneof!["[ab\"\\\\/é\u{0}\u{1f}\u{2028}\u{1f602}\u{e000}]{0,3}", "\\PC{0,4}"]
}

fn meanings() -> impl Strategy<Value = Meaning> {
    let leaf = prop_oneof![
        Just(Meaning::Null),
        any::<bool>().prop_map(Meaning::Bool),
        numbers(),
        strings().prop_map(Meaning::String)
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Meaning::Array),
            prop::collection::btree_map(strings(), inner, 0..4).prop_map(Meaning::Object),
        ]
    })
}

fn objects() -> impl Strategy<Value = Meaning> {
    prop::collection::btree_map(strings(), meanings(), 0..5).prop_map(Meaning::Object)
}

/// Makes the choices of spelling, from random numbers.
struct Speller<'a> {
    choices: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Speller<'_> {
    fn text(meaning: &Meaning, choices: &[u8]) -> String {
        let mut out = String::new();
        Speller { choices: choices.iter().cycle() }.value(meaning, &mut out);
        out
    }

    fn choose(&mut self, below: u8) -> u8 {
        self.choices.next().map_or(0, |choice| choice % below)
    }

    fn space(&mut self, out: &mut String) {
        out.push_str(["", "", " ", "\n\t", "\r "][usize::from(self.choose(5))]);
    }

    fn value(&mut self, meaning: &Meaning, out: &mut String) {
        self.space(out);
        match meaning {
            Meaning::Null => out.push_str("null"),
            Meaning::Bool(value) => out.push_str(&value.to_string()),
            Meaning::Number(mantissa, exponent) => self.number(*mantissa, *exponent, out),
            Meaning::String(string) => self.string(string, out),
            Meaning::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    self.value(item, out);
                }
                self.space(out);
                out.push(']');
            }
            Meaning::Object(members) => self.object(members, out),
        }
        self.space(out);
    }

    fn object(&mut self, members: &BTreeMap<String, Meaning>, out: &mut String) {
        let mut members: Vec<_> = members.iter().collect();
        if !members.is_empty() {
            let turn = usize::from(self.choose(7)) % members.len();
            members.rotate_left(turn);
        }
        if self.choose(2) == 1 {
            members.reverse();
        }
        out.push('{');
        for (index, (name, value)) in members.into_iter().enumerate() {
            out.push_str(if index > 0 { "," } else { "" });
            self.space(out);
            self.string(name, out);
            self.space(out);
            out.push(':');
            self.value(value, out);
        }
        self.space(out);
        out.push('}');
    }

    fn number(&mut self, mantissa: i128, exponent: i32, out: &mut String) {
        let sign = if mantissa < 0 || mantissa == 0 && self.choose(2) == 1 { "-" } else { "" };
        let digits = mantissa.unsigned_abs().to_string();
        let zeros = "0".repeat(usize::from(self.choose(4)));
        out.push_str(sign);
        match self.choose(3) {
            0 if (0..60).contains(&exponent) && mantissa != 0 => {
                out.push_str(&digits);
                out.push_str(&"0".repeat(exponent.unsigned_abs() as usize));
                out.push_str(if zeros.is_empty() { "" } else { "." });
                out.push_str(&zeros);
            }
            1 if (-60..0).contains(&exponent) => {
                let digits = format!("{digits:0>width$}", width = exponent.unsigned_abs() as usize + 1);
                let (whole, fraction) = digits.split_at(digits.len() - exponent.unsigned_abs() as usize);
                out.push_str(&format!("{whole}.{fraction}{zeros}"));
            }
            _ => {
                let (first, rest) = digits.split_at(1);
                let e = ["e", "E"][usize::from(self.choose(2))];
                let exponent = exponent + rest.len() as i32;
                let plus = if exponent >= 0 && self.choose(2) == 1 { "+" } else { "" };
                out.push_str(&format!("{first}.{rest}0{zeros}{e}{plus}{exponent}"));
            }
        }
    }

    fn string(&mut self, string: &str, out: &mut String) {
        out.push('"');
        for char in string.chars() {
            let must = char < ' ' || char == '"' || char == '\\';
            match (char, self.choose(3)) {
                ('/', 1) => out.push_str("\\/"),
                ('"' | '\\', 0 | 1) => out.extend(['\\', char]),
                (_, 2) => self.escape(char, out),
                _ if must => self.escape(char, out),
                _ => out.push(char),
            }
        }
        out.push('"');
    }

    fn escape(&mut self, char: char, out: &mut String) {
        let upper = self.choose(2) == 1;
        for unit in char.encode_utf16(&mut [0; 2]) {
            out.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
        }
    }
}

fn open_shape() -> Shape {
    Shape::compile(&json!({ "type": "object" })).expect("the schema is sound")
}

fn normalised(shape: &Shape, text: &str) -> Normalised {
    let arguments = Arguments::read(text, &Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    shape.normalise(&arguments).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn key(normalised: &Normalised) -> BaseKey {
    let (scope, identity) = (KeyScope::Run("r"), normalised.identity_digest);
    base_key(&KeyParts { namespace: "n", scope, tool: "t", context: &[], identity, again: 0 })
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn same_meaning_same_key(meaning in objects(), a in choices(), b in choices()) {
        let shape = open_shape();
        let (a, b) = (Speller::text(&meaning, &a), Speller::text(&meaning, &b));
        let (first, second) = (normalised(&shape, &a), normalised(&shape, &b));
        prop_assert_eq!(key(&first), key(&second), "{} and {}", a, b);
        prop_assert_eq!(first.fingerprint, second.fingerprint);
        prop_assert_eq!(first.executed(), second.executed());
    }

    #[test]
    fn other_meaning_other_key(a in objects(), b in objects(), spelling in choices()) {
        check_apart(&a, &b, &spelling)?;
    }

    #[test]
    fn one_small_change_is_another_key(
        meaning in objects(), at in any::<prop::sample::Index>(), other in meanings(), spelling in choices(),
    ) {
        let mut changed = meaning.clone();
        let count = leaves(&mut changed, usize::MAX, &other);
        if count > 0 {
            leaves(&mut changed, at.index(count), &other);
        }
        check_apart(&meaning, &changed, &spelling)?;
    }

    #[test]
    fn what_is_executed_means_what_was_sent(meaning in objects(), a in choices()) {
        let shape = open_shape();
        let first = normalised(&shape, &Speller::text(&meaning, &a));
        let again = normalised(&shape, first.executed());
        prop_assert_eq!(first.executed(), again.executed());
        prop_assert_eq!(first.identity(), again.identity());
    }

    #[test]
    fn a_schema_decides_what_matters(
        a in calls(), b in calls(),
        x in prop::array::uniform4(any::<bool>()), y in prop::array::uniform4(any::<bool>()),
    ) {
        let shape = Shape::compile(&call_schema()).expect("the schema is sound");
        let (first, second) = (normalised(&shape, &a.text(x)), normalised(&shape, &b.text(y)));
        prop_assert_eq!(a.identity() == b.identity(), key(&first) == key(&second));
        let same = a.identity() == b.identity() && a.memo == b.memo;
        prop_assert_eq!(same, first.fingerprint == second.fingerprint);
    }
}

fn check_apart(a: &Meaning, b: &Meaning, spelling: &[u8]) -> Result<(), TestCaseError> {
    let shape = open_shape();
    let (first, second) = (Speller::text(a, spelling), Speller::text(b, spelling));
    let (x, y) = (normalised(&shape, &first), normalised(&shape, &second));
    prop_assert_eq!(a == b, key(&x) == key(&y), "{} and {}", first, second);
    prop_assert_eq!(a == b, x.fingerprint == y.fingerprint);
    Ok(())
}

/// Replaces the leaf of index `at`; returns how many leaves there are.
fn leaves(meaning: &mut Meaning, at: usize, other: &Meaning) -> usize {
    fn visit(meaning: &mut Meaning, at: usize, other: &Meaning, seen: &mut usize) {
        match meaning {
            Meaning::Array(items) if !items.is_empty() => {
                items.iter_mut().for_each(|item| visit(item, at, other, seen))
            }
            Meaning::Object(members) if !members.is_empty() => {
                members.values_mut().for_each(|member| visit(member, at, other, seen));
            }
            leaf => {
                let is_root = *seen == 0 && *leaf == Meaning::Object(BTreeMap::new());
                if *seen == at && !is_root {
                    *leaf = other.clone();
                }
                *seen += 1;
            }
        }
    }
    let mut seen = 0;
    visit(meaning, at, other, &mut seen);
    seen
}

/// A call of a tool whose schema uses defaults and hints.
#[derive(Debug, Clone)]
struct Call {
    order: u8,
    currency: &'static str,
    coupon: Option<u8>,
    tags: Vec<u8>,
    mode: &'static str,
    memo: u8,
}

fn calls() -> impl Strategy<Value = Call> {
    let currency = prop::sample::select(vec!["usd", "eur"]);
    let mode = prop::sample::select(vec!["fast", "slow"]);
    let tags = prop::collection::vec(0..3_u8, 0..3);
    (0..2_u8, currency, prop::option::of(0..2_u8), tags, mode, 0..2_u8)
        .prop_map(|(order, currency, coupon, tags, mode, memo)| Call { order, currency, coupon, tags, mode, memo })
}

fn call_schema() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {
            "order": { "type": "integer" },
            "currency": { "type": "string", "default": "usd", "x-toolonce": ["casefold", "trim"] },
            "coupon": { "type": "integer" },
            "tags": { "type": "array", "default": [], "x-toolonce": "set" },
            "options": { "$ref": "#/$defs/Options" },
            "memo": { "type": "integer", "x-toolonce": "content" },
            "reason": { "type": "string", "x-toolonce": "ignore" }
        },
        "$defs": { "Options": {
            "type": "object",
            "default": {},
            "properties": { "mode": { "enum": ["fast", "slow"], "default": "fast" } }
        } }
    })
}

impl Call {
    fn identity(&self) -> impl PartialEq + use<> {
        let mut tags = self.tags.clone();
        tags.sort_unstable();
        tags.dedup();
        (self.order, self.currency, self.coupon, tags, self.mode)
    }

    fn text(&self, [fill, null, shout, explain]: [bool; 4]) -> String {
        let mut members = vec![format!(r#""order":{}{}"#, self.order, if fill { ".0" } else { "" })];
        let currency = if shout { format!(" {} ", self.currency.to_uppercase()) } else { self.currency.to_owned() };
        if fill || self.currency != "usd" {
            members.push(format!(r#""currency":"{currency}""#));
        }
        match self.coupon {
            Some(coupon) => members.push(format!(r#""coupon":{coupon}"#)),
            None if null => members.push(r#""coupon":null"#.to_owned()),
            None => {}
        }
        if fill || !self.tags.is_empty() {
            let mut tags: Vec<String> = self.tags.iter().map(u8::to_string).collect();
            if shout {
                tags.reverse();
                tags.extend(tags.clone());
            }
            members.push(format!(r#""tags":[{}]"#, tags.join(",")));
        }
        match (self.mode, fill, null) {
            ("fast", false, _) => {}
            ("fast", true, true) => members.push(r#""options":{}"#.to_owned()),
            (mode, ..) => members.push(format!(r#""options":{{"mode":"{mode}"}}"#)),
        }
        members.push(format!(r#""memo":{}"#, self.memo));
        if explain {
            members.push(r#""reason":"because""#.to_owned());
            members.reverse();
        }
        format!("{{{}}}", members.join(","))
    }
}

//! Arguments that look as if they changed from one try to the next.
//!
//! A model that repeats a call writes a new reason, a new time and a new request id. If these are part of a write's
//! key, every try is a call of its own, and nothing is protected.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::schema::{Object, escaped};
use super::shape::{PlaceId, ROOT, Shape};

/// Names as lists of words; an argument's name is or ends in one of them.
const DOWNSTREAM_KEYS: [&[&str]; 1] = [&["idempotency", "key"]];
const REQUEST_IDS: [&[&str]; 6] =
    [&["request", "id"], &["trace", "id"], &["correlation", "id"], &["nonce"], &["uuid"], &["token"]];
const TIMES: [&[&str]; 5] = [&["timestamp"], &["time"], &["now"], &["created", "at"], &["requested", "at"]];
const FREE_TEXTS: [&[&str]; 7] =
    [&["reason"], &["rationale"], &["explanation"], &["thought"], &["comment"], &["note"], &["memo"]];

/// An argument that looks volatile: no hint stands on it, and none above says what it counts for.
///
/// What looks so: the formats `date-time`, `date`, `time` and `uuid`; and names that are, or end in (after `_`, `-` or in
/// camel case), `idempotency_key`; `request_id`, `trace_id`, `correlation_id`, `nonce`, `uuid`, `token`; `timestamp`,
/// `time`, `now`, `created_at`, `requested_at`; `reason`, `rationale`, `explanation`, `thought`, `comment`, `note`,
/// `memo`. Displays as a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volatile {
    /// Where in the arguments: a JSON pointer, `*` for any item or member.
    pub pointer: String,
    /// What it looks like.
    pub looks: Volatility,
}

/// What a volatile argument looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Volatility {
    /// A key for the system downstream, which the model must not choose: the guard can fill it in
    /// ([`Advanced::key_parameter`](crate::Advanced::key_parameter)).
    DownstreamKey,
    /// An id of the request, not of the thing it is about.
    RequestId,
    /// The time of the call.
    Time,
    /// Text that says why, or to whom it may concern.
    FreeText,
}

impl fmt::Display for Volatile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (looks, hint) = match self.looks {
            Volatility::DownstreamKey => return self.hide(f),
            Volatility::RequestId => ("a request's own id", "`ignore`"),
            Volatility::Time => ("a time", "`ignore` if it is the time of the call"),
            Volatility::FreeText => ("free text", "`ignore`, or `content` if it reaches someone"),
        };
        write!(f, "{} looks like {looks}, and each retry may have another: give it the hint {hint}, ", self.pointer)?;
        f.write_str("or `identity` if it says what the call is about")
    }
}

impl Volatile {
    fn hide(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} looks like a key for the system downstream, which the model must not choose: ", self.pointer)?;
        match self.pointer.rsplit_once('/') {
            Some(("", name)) => write!(f, "hide it, `.advanced(|a| a.key_parameter({name:?}))`"),
            _ => f.write_str("give it the hint `ignore` and send `Attempt::idempotency_key` in its place"),
        }
    }
}

impl Volatility {
    fn of_name(name: &str) -> Option<Self> {
        let words = words(name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ends_in = |ending: &&[&str]| words.ends_with(ending);
        if DOWNSTREAM_KEYS.iter().any(ends_in) {
            Some(Self::DownstreamKey)
        } else if REQUEST_IDS.iter().any(ends_in) {
            Some(Self::RequestId)
        } else if TIMES.iter().any(ends_in) {
            Some(Self::Time)
        } else {
            FREE_TEXTS.iter().any(ends_in).then_some(Self::FreeText)
        }
    }

    pub(super) fn of_formats(schemas: &[&Object]) -> Option<Self> {
        schemas.iter().find_map(|schema| match schema.get("format").and_then(Value::as_str)? {
            "date-time" | "date" | "time" => Some(Self::Time),
            "uuid" => Some(Self::RequestId),
            _ => None,
        })
    }
}

/// The words of `snake_case`, `kebab-case` and `camelCase`, in lower case. A run of capitals is one word.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = name.chars().peekable();
    let mut after_capital = true;
    while let Some(char) = chars.next() {
        let ends_run = after_capital && chars.peek().is_some_and(|next| next.is_lowercase());
        if matches!(char, '_' | '-') || char.is_uppercase() && (!after_capital || ends_run) {
            words.push(String::new());
        }
        if let (Some(word), false) = (words.last_mut(), matches!(char, '_' | '-')) {
            word.extend(char.to_lowercase());
        }
        after_capital = char.is_uppercase();
    }
    // A capital after `_` or `-` begins a word that has begun already.
    words.retain(|word| !word.is_empty());
    words
}

impl Shape {
    /// The arguments that look volatile and have no hint, sorted by pointer. For tools that write: a read runs each time anyway.
    pub fn volatile(&self) -> Vec<Volatile> {
        let mut found = Vec::new();
        let mut seen = HashSet::from([ROOT]);
        let mut waiting = vec![(ROOT, String::new())];
        while let Some((place, pointer)) = waiting.pop() {
            for (name, below) in self.below(place) {
                let pointer = format!("{pointer}/{}", name.map_or("*".to_owned(), escaped));
                let looks = name.and_then(Volatility::of_name).or(self.places[below].looks);
                if let (Some(looks), false) = (looks, self.places[below].is_hinted) {
                    found.push(Volatile { pointer: pointer.clone(), looks });
                }
                if seen.insert(below) {
                    waiting.push((below, pointer));
                }
            }
        }
        found.sort_by(|a, b| a.pointer.cmp(&b.pointer));
        found
    }

    /// The places directly below one, with their names where they have one.
    fn below(&self, place: PlaceId) -> impl Iterator<Item = (Option<&str>, PlaceId)> {
        let place = &self.places[place];
        let named = place.properties.iter().map(|property| (Some(property.name.as_str()), property.place));
        let items = place.first_items.iter().chain([&place.others, &place.other_items]);
        named.chain(items.map(|item| (None, *item)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        use Volatility::{DownstreamKey, FreeText, RequestId, Time};
        for (name, looks) in [
            ("request_id", Some(RequestId)),
            ("clientRequestId", Some(RequestId)),
            ("x-trace-id", Some(RequestId)),
            ("X-Trace-ID", Some(RequestId)),
            ("Created_At", Some(Time)),
            ("requestID", Some(RequestId)),
            ("UUID", Some(RequestId)),
            ("idempotencyKey", Some(DownstreamKey)),
            ("x-idempotency-key", Some(DownstreamKey)),
            ("order_token", Some(RequestId)),
            ("time", Some(Time)),
            ("startTime", Some(Time)),
            ("created_at", Some(Time)),
            ("cancelReason", Some(FreeText)),
            ("note", Some(FreeText)),
            ("order_id", None),
            ("overtime", None),
            ("footnote", None),
            ("timezone", None),
            ("at", None),
            ("", None),
        ] {
            assert_eq!(Volatility::of_name(name), looks, "{name}");
        }
    }

    #[test]
    fn only_what_no_hint_speaks_about() -> Result<(), super::super::SchemaError> {
        let shape = Shape::compile(&serde_json::json!({
            "type": "object",
            "properties": {
                "reason": { "x-toolonce": "ignore" },
                "meta": { "x-toolonce": "content", "properties": { "trace_id": {} } },
                "when": { "type": "string", "format": "date-time" },
                "note": { "x-toolonce": "trim" },
                "lines": { "items": { "$ref": "#/$defs/Line" } }
            },
            "$defs": { "Line": { "properties": { "memo": {}, "next": { "$ref": "#/$defs/Line" } } } }
        }))?;
        let found: Vec<_> = shape.volatile().into_iter().map(|volatile| volatile.pointer).collect();
        assert_eq!(found, ["/lines/*/memo", "/lines/*/next/memo", "/when"]);
        Ok(())
    }
}

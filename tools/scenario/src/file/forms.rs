//! Small forms that several parts of a file share: one value or a list, a number or a word, objects and nothing else.

use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `N`, or `[min, max]`: how often something may have happened, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Count {
    /// The least that passes.
    pub min: u64,
    /// The most that passes.
    pub max: u64,
}

impl Count {
    /// Whether `n` passes.
    pub fn holds(self, n: u64) -> bool {
        (self.min..=self.max).contains(&n)
    }
}

impl TryFrom<Value> for Count {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let bounds = match &value {
            Value::Array(ends) if ends.len() == 2 => ends[0].as_u64().zip(ends[1].as_u64()),
            one => one.as_u64().map(|n| (n, n)),
        };
        match bounds {
            Some((min, max)) if min <= max => Ok(Self { min, max }),
            _ => Err(format!("`{value}` is neither a count nor `[min, max]`")),
        }
    }
}

/// How long a provider remembers a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Window {
    /// So many milliseconds.
    Millis(u64),
    /// For ever.
    Permanent,
}

impl TryFrom<Value> for Window {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        number_or(&value, "permanent").map(|n| n.map_or(Self::Permanent, Self::Millis))
    }
}

/// What the resumed history still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Seen {
    /// Turns up to this one.
    Through(u32),
    /// No turn.
    Nothing,
}

impl TryFrom<Value> for Seen {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        number_or(&value, "none").map(|n| n.map_or(Self::Nothing, Self::Through))
    }
}

/// How often a store fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Times {
    /// So many times.
    Count(u32),
    /// Until a `store_clear`.
    UntilCleared,
}

impl TryFrom<Value> for Times {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        number_or(&value, "until_cleared").map(|n| n.map_or(Self::UntilCleared, Self::Count))
    }
}

/// A whole number, or `None` for the one word allowed in its place.
fn number_or<N: TryFrom<u64>>(value: &Value, word: &str) -> Result<Option<N>, String> {
    match value.as_u64().and_then(|n| N::try_from(n).ok()) {
        Some(n) => Ok(Some(n)),
        None if value.as_str() == Some(word) => Ok(None),
        None => Err(format!("`{value}` is neither a whole number in range nor \"{word}\"")),
    }
}

/// A key whose only meaning is that it is there: `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "bool")]
pub struct Yes;

impl TryFrom<bool> for Yes {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Ok(Self) } else { Err("only `true` can be written here") }
    }
}

/// A key whose only meaning is that it is there: `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "bool")]
pub struct No;

impl TryFrom<bool> for No {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Self, Self::Error> {
        if value { Err("only `false` can be written here") } else { Ok(Self) }
    }
}

/// One value or a list that isn't empty.
pub(super) fn one_or_many<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let values = match Value::deserialize(deserializer)? {
        Value::Array(values) if values.is_empty() => return Err(D::Error::custom("an empty list says nothing")),
        Value::Array(values) => values,
        one => vec![one],
    };
    values.into_iter().map(|value| T::deserialize(value).map_err(D::Error::custom)).collect()
}

/// Reads an object. Derived readers take a list of the fields' values too, which the form doesn't know.
fn from_object<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    if !value.is_object() {
        return Err(format!("`{value}` stands where an object is due"));
    }
    T::deserialize(value).map_err(|e| e.to_string())
}

/// An object.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    from_object(Value::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// An object, or nothing.
pub(super) fn object_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(from_object).transpose().map_err(D::Error::custom)
}

/// A list of objects; errors say which entry they are about.
pub(super) fn objects<'de, D, T>(deserializer: D, what: &str) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let read = |(at, value)| from_object(value).map_err(|e| D::Error::custom(format!("{what} {}: {e}", at + 1)));
    Vec::<Value>::deserialize(deserializer)?.into_iter().enumerate().map(read).collect()
}

/// A map of objects; errors name the key that they are about.
pub(super) fn object_map<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let read = |(name, value)| match from_object(value) {
        Ok(value) => Ok((name, value)),
        Err(e) => Err(D::Error::custom(format!("`{name}`: {e}"))),
    };
    BTreeMap::<String, Value>::deserialize(deserializer)?.into_iter().map(read).collect()
}

//! What texts and nodes mean.

use std::collections::BTreeMap;

use serde_json::from_str;
use serde_json::value::RawValue;
use toolonce::canonical::Node;

use super::meant::Meant;

impl Meant {
    /// Reads one level after the other with serde_json, which has no limit of depth this way, and rounds no number. Of a
    /// name that is there twice the last one counts. `None` if it isn't JSON.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let raw: &RawValue = from_str(text).ok()?;
        let text = raw.get();
        Some(match text.as_bytes()[0] {
            b'n' => Self::Null,
            b't' | b'f' => Self::Bool(from_str(text).ok()?),
            b'"' => Self::String(from_str(text).ok()?),
            b'[' => {
                let items: Vec<&RawValue> = from_str(text).ok()?;
                Self::Array(items.into_iter().map(|item| Self::read(item.get())).collect::<Option<_>>()?)
            }
            b'{' => {
                let mut members: BTreeMap<String, &RawValue> = from_str(text).ok()?;
                let member = |(name, member): (String, &RawValue)| Some((name, Self::read(member.get())?));
                Self::Object(std::mem::take(&mut members).into_iter().map(member).collect::<Option<_>>()?)
            }
            _ => number(text),
        })
    }

    pub(crate) fn of(node: &Node<'_>) -> Self {
        match node {
            Node::Null => Self::Null,
            Node::Bool(value) => Self::Bool(*value),
            Node::Number(text) => number(text.as_str()),
            Node::String(text) => Self::String(text.to_string()),
            Node::Array(items) => Self::Array(items.iter().map(Self::of).collect()),
            Node::Object(members) => {
                Self::Object(members.iter().map(|(name, member)| (name.to_string(), Self::of(member))).collect())
            }
        }
    }
}

/// Of a text that is known to be a number.
fn number(text: &str) -> Meant {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, power) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: Vec<u8> = whole.bytes().chain(rest.bytes()).map(|digit| digit - b'0').collect();
    // Nothing of such a size is accepted.
    let huge = if power.starts_with('-') { i32::MIN } else { i32::MAX };
    let mut power = power.parse().unwrap_or(huge).saturating_sub(i32::try_from(rest.len()).unwrap_or(i32::MAX));
    while digits.last() == Some(&0) {
        digits.pop();
        power = power.saturating_add(1);
    }
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..zeros);
    match digits.is_empty() {
        true => Meant::Number(false, digits, 0),
        false => Meant::Number(negative, digits, power),
    }
}

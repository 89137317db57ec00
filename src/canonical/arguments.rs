//! A call's arguments: always an object.

use std::borrow::Cow;

use serde_json::Value;

use super::error::{ReadError, ReadErrorKind as Kind};
use super::reader::{document, utf8};
use super::{Limits, Node, utf16_order};

/// A call's arguments, read strictly. Always an object; empty text, `null` and `{}` are no arguments.
///
/// They borrow from the text they were read from.
#[derive(Debug, Clone)]
pub struct Arguments<'a> {
    root: Node<'a>,
    rounds: Option<ReadError>,
    /// The length of the text that was read, in bytes.
    size: usize,
}

impl<'a> Arguments<'a> {
    /// Reads the text that the model gave.
    ///
    /// # Errors
    /// As [`read`](super::read), and [`ReadErrorKind::NotAnObject`](super::ReadErrorKind::NotAnObject) for a whole
    /// value of another kind.
    pub fn read(text: &'a str, limits: &Limits) -> Result<Self, ReadError> {
        if text.len() <= limits.bytes && text.trim_ascii().is_empty() {
            return Ok(Self::none());
        }
        let document = document(text, limits)?;
        match document.root {
            Node::Object(_) => Ok(Self { root: document.root, rounds: document.rounds, size: text.len() }),
            Node::Null => Ok(Self::none()),
            other => {
                let sentence = format!("the arguments are {}: send one JSON object", kind_of(&other));
                Err(ReadError::new(Kind::NotAnObject, 0, sentence))
            }
        }
    }

    /// Reads text that may not be UTF-8.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`ReadErrorKind::NotUtf8`](super::ReadErrorKind::NotUtf8).
    pub fn read_bytes(bytes: &'a [u8], limits: &Limits) -> Result<Self, ReadError> {
        Self::read(utf8(bytes, limits)?, limits)
    }

    /// Takes arguments that were parsed before they came here, through their own number text. Digits that the
    /// parser dropped are lost.
    ///
    /// # Errors
    /// As [`read`](Self::read); offsets count in the compact text of `value`.
    pub fn from_value(value: &Value, limits: &Limits) -> Result<Self, ReadError> {
        let text = value_text(value, limits)?;
        Arguments::read(&text, limits).map(|arguments| Self { root: arguments.root.into_owned(), ..arguments })
    }

    fn none() -> Self {
        Self { root: Node::Object(Vec::new()), rounds: None, size: 2 }
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.members().is_empty()
    }

    /// The object that holds the arguments.
    pub fn root(&self) -> &Node<'a> {
        &self.root
    }

    /// The argument of this name.
    pub fn get(&self, name: &str) -> Option<&Node<'a>> {
        let members = self.members();
        let at = members.binary_search_by(|(found, _)| utf16_order(found, name)).ok()?;
        Some(&members[at].1)
    }

    /// Takes out the argument of this name.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Node<'a>> {
        let Node::Object(members) = &mut self.root else { return None };
        let at = members.binary_search_by(|(found, _)| utf16_order(found, name)).ok()?;
        Some(members.remove(at).1)
    }

    /// Refuses arguments with an integer that a typed tool can't get unrounded: outside `i64` and `u64`, and not
    /// the shortest text of a double either (6.02e23 is). Tools that take the raw text need no such check.
    ///
    /// # Errors
    /// [`ReadErrorKind::WouldRound`](super::ReadErrorKind::WouldRound).
    pub fn unrounded(&self) -> Result<(), ReadError> {
        self.rounds.clone().map_or(Ok(()), Err)
    }

    /// About as long as the canonical text, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn rounds(&self) -> Option<&ReadError> {
        self.rounds.as_ref()
    }

    fn members(&self) -> &[(Cow<'a, str>, Node<'a>)] {
        match &self.root {
            Node::Object(members) => members,
            _ => &[],
        }
    }
}

/// The compact text of a value, after a check that writing it can't overflow the stack.
pub(super) fn value_text(value: &Value, limits: &Limits) -> Result<String, ReadError> {
    if !is_within(value, limits.allowed_depth()) {
        let sentence =
            format!("arrays and objects are nested deeper than {}: send a flatter value", limits.allowed_depth());
        return Err(ReadError::new(Kind::TooDeep, 0, sentence));
    }
    Ok(value.to_string())
}

fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_within(item, depth - 1)),
        Value::Object(members) => depth > 0 && members.values().all(|member| is_within(member, depth - 1)),
        _ => true,
    }
}

fn kind_of(node: &Node<'_>) -> &'static str {
    match node {
        Node::Null => "null",
        Node::Bool(_) => "true or false",
        Node::Number(_) => "a number",
        Node::String(_) => "a string",
        Node::Array(_) => "an array",
        Node::Object(_) => "an object",
    }
}

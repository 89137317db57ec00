//! Arguments and shape to what is hashed and what is executed.

use std::borrow::Cow;
use std::fmt;

use super::error::ReadError;
use super::hints::Mode;
use super::leaves::{Leaves, Recorder};
use super::shape::{Place, PlaceId, Property, ROOT, Shape};
use super::writer::{push_scalar, push_string};
use super::{Arguments, Node};
use crate::key::Fingerprint;

/// What a call means, and what is executed for it.
#[derive(Debug, Clone)]
pub struct Normalised {
    /// The canonical text of what identifies the call, where it isn't the one that the fingerprint is of.
    identity: Option<String>,
    /// That of what is executed, likewise.
    executed: Option<String>,
    /// The digest of what identifies the call, as it goes into the key.
    pub identity_digest: Fingerprint,
    /// The fingerprint of all arguments that aren't `ignore`.
    pub fingerprint: Fingerprint,
    /// Everything in the fingerprint, value by value.
    pub leaves: Leaves,
    /// Whether there is nothing but null in what identifies the call.
    pub identifies_nothing: bool,
    rounds: Option<ReadError>,
}

/// None of the places that the schema marks as `identity` has a value. Such a call would share its key with every
/// other one that lacks them. A value equal to its default counts as left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormaliseError {
    missing: Vec<String>,
}

impl NormaliseError {
    /// The places, as JSON pointers into the arguments.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }
}

impl fmt::Display for NormaliseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.missing.join(", ");
        write!(f, "the arguments don't say what the call is about: give a value to at least one of {places}")
    }
}

impl std::error::Error for NormaliseError {}

impl Normalised {
    /// The canonical text of what identifies the call.
    pub fn identity(&self) -> &str {
        self.identity.as_deref().unwrap_or(self.leaves.text())
    }

    /// The canonical text of what is executed: all arguments but nulls that the schema forbids.
    pub fn executed(&self) -> &str {
        self.executed.as_deref().unwrap_or(self.leaves.text())
    }

    /// The same for who needs nothing else.
    pub(crate) fn into_executed(self) -> String {
        self.executed.unwrap_or_else(|| self.leaves.into_text())
    }

    /// As [`Arguments::unrounded`].
    ///
    /// # Errors
    /// [`ReadErrorKind::WouldRound`](super::ReadErrorKind::WouldRound).
    pub fn unrounded(&self) -> Result<(), ReadError> {
        self.rounds.clone().map_or(Ok(()), Err)
    }
}

impl Shape {
    /// Works out what the arguments mean.
    ///
    /// # Errors
    /// [`NormaliseError`] if the schema has `identity` hints and nothing but null is found there.
    pub fn normalise(&self, arguments: &Arguments<'_>) -> Result<Normalised, NormaliseError> {
        let mut hashed = Walk::new(self, View::Fingerprint);
        hashed.leaves = Some(Recorder::new());
        // Mostly one text is all three: then it is written, hashed and kept once.
        let text = hashed.text(arguments);
        let (identity, found) = if self.is_split {
            let mut walk = Walk::new(self, View::Identity);
            (Some(walk.text(arguments)), walk.found)
        } else {
            (None, hashed.found)
        };
        if !found && self.has_identity_hint() {
            return Err(NormaliseError { missing: self.identity_hints().to_vec() });
        }
        let executed = self.is_rewritten.then(|| Walk::new(self, View::Executed).text(arguments));
        let fingerprint = Fingerprint::of(text.as_bytes());
        let identity_digest = identity.as_ref().map_or(fingerprint, |text| Fingerprint::of(text.as_bytes()));
        Ok(Normalised {
            identity,
            identity_digest,
            fingerprint,
            leaves: hashed.leaves.unwrap_or_default().finish(text),
            executed,
            identifies_nothing: !found,
            rounds: arguments.rounds().cloned(),
        })
    }
}

/// How a value looks in the fingerprint; empty if it isn't part of it.
pub(super) fn hashed(shape: &Shape, node: &Node<'_>, place: PlaceId) -> String {
    let mut out = String::new();
    Walk::new(shape, View::Fingerprint).value(node, place, &mut out);
    out
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    Executed,
    Fingerprint,
    Identity,
}

/// Writes one view of the arguments in canonical form.
struct Walk<'a> {
    shape: &'a Shape,
    view: View,
    leaves: Option<Recorder>,
    /// Whether a scalar other than null was written.
    found: bool,
}

impl<'a> Walk<'a> {
    fn new(shape: &'a Shape, view: View) -> Self {
        Self { shape, view, leaves: None, found: false }
    }

    fn text(&mut self, arguments: &Arguments<'_>) -> String {
        let mut out = String::with_capacity(arguments.size());
        if !self.value(arguments.root(), ROOT, &mut out) {
            out.push_str("{}");
        }
        out
    }

    /// Writes a value, or nothing (`false`) if it isn't part of this view.
    fn value(&mut self, node: &Node<'_>, place: PlaceId, out: &mut String) -> bool {
        let place = &self.shape.places[place];
        if place.is_secret && self.leaves.is_some() {
            return self.secret(node, place, out);
        }
        self.visible(node, place, out)
    }

    /// One leaf, whatever it holds: the names in it may be part of the secret.
    fn secret(&mut self, node: &Node<'_>, place: &Place, out: &mut String) -> bool {
        let start = out.len();
        let leaves = self.leaves.take();
        let written = self.visible(node, place, out);
        self.leaves = leaves;
        if written {
            self.add_leaf(start, out);
        }
        written
    }

    fn visible(&mut self, node: &Node<'_>, place: &Place, out: &mut String) -> bool {
        let start = out.len();
        match node {
            Node::Array(items) if place.is_set && self.view != View::Executed => self.set(items, place, out),
            Node::Array(items) if !items.is_empty() => return self.array(items, place, out),
            Node::Object(members) if !members.is_empty() => return self.object(members, place, out),
            _ if !self.selects(place) => {}
            scalar => self.scalar(scalar, place, out),
        }
        self.add_leaf(start, out);
        out.len() > start
    }

    fn selects(&self, place: &Place) -> bool {
        match self.view {
            View::Executed => true,
            View::Fingerprint => place.mode != Mode::Ignore,
            View::Identity => place.mode == Mode::Identity,
        }
    }

    /// Whether a value can be seen to be no part of this view without writing it.
    fn skips(&self, node: &Node<'_>, place: PlaceId) -> bool {
        !matches!(node, Node::Array(_) | Node::Object(_)) && !self.selects(&self.shape.places[place])
    }

    fn scalar(&mut self, node: &Node<'_>, place: &Place, out: &mut String) {
        self.found |= !matches!(node, Node::Null | Node::Array(_) | Node::Object(_));
        match node {
            Node::String(string) if self.view != View::Executed => {
                let ruled = place.text.apply(string);
                push_string(out, ruled.as_deref().unwrap_or(string));
            }
            _ => push_scalar(out, node),
        }
    }

    fn array(&mut self, items: &[Node<'_>], place: &Place, out: &mut String) -> bool {
        let start = out.len();
        out.push('[');
        let mut written = 0;
        for (index, item) in items.iter().enumerate() {
            if self.is_absent_null(item, place.item(index)) {
                continue;
            }
            let (before, mark) = (out.len(), self.enter_item(written));
            if written > 0 {
                out.push(',');
            }
            if self.value(item, place.item(index), out) {
                written += 1;
            } else {
                out.truncate(before);
            }
            self.leave(mark);
        }
        out.push(']');
        self.close(written == 0, place, start, out)
    }

    /// Ends an array or object. One that isn't itself part of the view is there only for what it holds.
    fn close(&mut self, is_empty: bool, place: &Place, start: usize, out: &mut String) -> bool {
        if !is_empty {
            return true;
        }
        if !self.selects(place) {
            out.truncate(start);
        }
        self.add_leaf(start, out);
        out.len() > start
    }

    /// An array whose order and repetitions don't matter: one leaf, since its positions mean nothing.
    fn set(&mut self, items: &[Node<'_>], place: &Place, out: &mut String) {
        let leaves = self.leaves.take();
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let mut text = String::new();
            if !self.is_absent_null(item, place.item(index)) && self.value(item, place.item(index), &mut text) {
                texts.push(text);
            }
        }
        self.leaves = leaves;
        texts.sort_unstable();
        texts.dedup();
        if !texts.is_empty() || self.selects(place) {
            out.push('[');
            out.push_str(&texts.join(","));
            out.push(']');
        }
    }

    fn object(&mut self, members: &[(Cow<'_, str>, Node<'_>)], place: &Place, out: &mut String) -> bool {
        let start = out.len();
        out.push('{');
        let mut is_empty = true;
        for (name, value) in members {
            let property = place.property(name);
            if self.skips(value, property.map_or(place.others, |property| property.place)) {
                continue;
            }
            let (before, mark) = (out.len(), self.enter(name));
            if !is_empty {
                out.push(',');
            }
            push_string(out, name);
            out.push(':');
            if self.member(value, property, place.others, out) {
                is_empty = false;
            } else {
                out.truncate(before);
            }
            self.leave(mark);
        }
        out.push('}');
        self.close(is_empty, place, start, out)
    }

    /// Writes the value of a member unless that means the same as leaving it out.
    fn member(&mut self, value: &Node<'_>, property: Option<&Property>, others: PlaceId, out: &mut String) -> bool {
        let Some(property) = property else {
            return !self.is_absent_null(value, others) && self.value(value, others, out);
        };
        if self.shape.is_forbidden_null(value, Some(property)) || self.is_absent_null(value, property.place) {
            return false;
        }
        let default = property.hashed_default.as_deref().filter(|_| self.view != View::Executed);
        let Some(default) = default else {
            return self.value(value, property.place, out);
        };
        if self.view == View::Identity {
            // Equality with the default is judged on all that is hashed, not on the part that is identity.
            return hashed(self.shape, value, property.place) != default && self.value(value, property.place, out);
        }
        let (start, found) = (out.len(), self.found);
        let leaves = self.leaves.as_ref().map_or(0, Recorder::count);
        let written = self.value(value, property.place, out);
        let differs = written && out[start..] != *default;
        if !differs {
            self.found = found;
            if let Some(recorder) = &mut self.leaves {
                recorder.forget(leaves);
            }
        }
        differs
    }

    fn is_absent_null(&self, value: &Node<'_>, place: PlaceId) -> bool {
        matches!(value, Node::Null) && self.view != View::Executed && self.shape.places[place].null_is_absent
    }

    fn enter(&mut self, name: &str) -> usize {
        self.leaves.as_mut().map_or(0, |leaves| leaves.enter(name))
    }

    fn enter_item(&mut self, index: usize) -> usize {
        self.leaves.as_mut().map_or(0, |leaves| leaves.enter_item(index))
    }

    fn add_leaf(&mut self, start: usize, out: &str) {
        if let Some(leaves) = &mut self.leaves {
            leaves.add(start..out.len());
        }
    }

    fn leave(&mut self, mark: usize) {
        if let Some(leaves) = &mut self.leaves {
            leaves.leave(mark);
        }
    }
}

//! A tool's JSON Schema, compiled to what matters for the meaning of its arguments.

use std::fmt;

use serde_json::Value;

use super::hints::{Hints, Mode, TextRules};
use super::lint::Volatility;
use super::schema::{Document, Hinted};
use super::validate::Rules;
use super::{Limits, Node, compile, normalise, read};

/// How often defaults that hold each other are worked out again before they are taken to be circular.
const MAX_ROUNDS: usize = 16;

/// A tool's JSON Schema, compiled once per tool.
///
/// See the [module](super#hints) for the hints and for which parts of a schema are followed.
#[derive(Debug, Clone)]
pub struct Shape {
    pub(super) places: Vec<Place>,
    /// Where the places with `identity` are, as pointers into the arguments.
    identity: Vec<String>,
    /// Whether key and fingerprint can differ.
    pub(super) is_split: bool,
    /// Whether what is hashed can differ from what is executed.
    pub(super) is_rewritten: bool,
    identifies: Identifies,
    /// What keys depend on beside the arguments: each hint with its place.
    contract: String,
}

/// Whether a call's arguments say which thing the call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identifies {
    /// They can.
    Possible,
    /// They never do: the schema is closed and has no properties, or all of them are `content` or `ignore`.
    Never,
    /// They do unless the call has no arguments: the schema is open.
    EmptyWhenNoArguments,
}

/// A schema that can't be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    pointer: String,
    message: String,
}

impl SchemaError {
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// Where in the schema: a JSON pointer.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {:?} of the tool's schema)", self.message, self.pointer)
    }
}

impl std::error::Error for SchemaError {}

/// Index into [`Shape::places`].
pub(super) type PlaceId = usize;
/// The arguments themselves.
pub(super) const ROOT: PlaceId = 0;

/// What the schema says about the values at one place. Hints are resolved: what came from above is in it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) mode: Mode,
    /// Whether a hint stands here, or one above chose the mode.
    pub(super) is_hinted: bool,
    /// What the place's format suggests.
    pub(super) looks: Option<Volatility>,
    pub(super) text: TextRules,
    pub(super) is_set: bool,
    pub(super) null_is_absent: bool,
    /// Whether what is below must not be told apart by name: its names may be part of the secret.
    pub(super) is_secret: bool,
    pub(super) allows_null: bool,
    /// Sorted by name.
    pub(super) properties: Vec<Property>,
    /// All other members.
    pub(super) others: PlaceId,
    pub(super) first_items: Vec<PlaceId>,
    pub(super) other_items: PlaceId,
    pub(super) rules: Rules,
}

#[derive(Debug, Clone)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) place: PlaceId,
    /// The canonical text of the default.
    pub(super) default: Option<String>,
    /// The default as it is hashed.
    pub(super) hashed_default: Option<String>,
}

impl Place {
    #[inline]
    pub(super) fn property(&self, name: &str) -> Option<&Property> {
        let at = self.properties.binary_search_by(|property| property.name.as_str().cmp(name)).ok()?;
        Some(&self.properties[at])
    }

    pub(super) fn item(&self, index: usize) -> PlaceId {
        self.first_items.get(index).copied().unwrap_or(self.other_items)
    }
}

impl Shape {
    /// Compiles a schema.
    ///
    /// # Errors
    /// [`SchemaError`] for an unknown, contradictory or unreachable hint, a dangling local `$ref`, a default that
    /// the strict reader refuses, and what is no schema of an object.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let document = Document(schema);
        let hinted = document.hinted()?;
        let has_identity = hinted.iter().any(|place| place.hints.mode == Some(Mode::Identity));
        let places = compile::places(document, &hinted, if has_identity { Mode::Content } else { Mode::Identity })?;
        if !places[ROOT].rules.allows_object() {
            return Err(SchemaError::new("", "a tool's arguments are an object, and this schema allows none"));
        }
        let has_default = places.iter().flat_map(|place| &place.properties).any(|property| property.default.is_some());
        let mut shape = Self {
            identity: identity_pointers(&hinted),
            contract: contract(&hinted),
            is_split: has_identity || hinted.iter().any(|place| place.hints.mode == Some(Mode::Content)),
            is_rewritten: has_default || !hinted.is_empty(),
            identifies: identifies(&places[ROOT], &places, has_identity),
            places,
        };
        shape.hash_defaults()?;
        Ok(shape)
    }

    /// Whether any place has the hint `identity`.
    pub fn has_identity_hint(&self) -> bool {
        !self.identity.is_empty()
    }

    /// Where the hint `identity` stands, as JSON pointers into the arguments, `*` for any item or member.
    pub fn identity_hints(&self) -> &[String] {
        &self.identity
    }

    /// All hints with their places, one a line: what the keys of this shape depend on beside the arguments. Equal for two
    /// schemas that are written differently but hint the same.
    pub fn contract(&self) -> &str {
        &self.contract
    }

    /// Whether any place has the hint `secret`: then keys need a [`Secret`](crate::key::Secret), and the arguments may
    /// not be kept.
    pub fn has_secret(&self) -> bool {
        self.places.iter().any(|place| place.is_secret)
    }

    /// Whether arguments of this shape say which thing a call is about.
    pub fn identifies(&self) -> Identifies {
        self.identifies
    }

    /// Whether the schema names an argument, as one that may or must be there.
    pub(super) fn speaks_of(&self, name: &str) -> bool {
        let root = &self.places[ROOT];
        root.property(name).is_some() || root.rules.requires(name)
    }

    /// Whether a value is a null that its property can't mean. Strict schemas make models send it for "left out".
    pub(super) fn is_forbidden_null(&self, value: &Node<'_>, property: Option<&Property>) -> bool {
        matches!(value, Node::Null) && property.is_some_and(|property| !self.places[property.place].allows_null)
    }

    /// Works out what each default looks like when hashed. A default may hold properties with defaults of their own,
    /// so this goes on until nothing changes.
    fn hash_defaults(&mut self) -> Result<(), SchemaError> {
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for place in 0..self.places.len() {
                for index in 0..self.places[place].properties.len() {
                    let property = &self.places[place].properties[index];
                    let text = property.default.as_deref().map(|text| self.hashed_default(text, property.place));
                    let text = text.transpose()?;
                    changed |= text != property.hashed_default;
                    self.places[place].properties[index].hashed_default = text;
                }
            }
            if !changed {
                return Ok(());
            }
        }
        Err(SchemaError::new("", "defaults hold each other in a circle"))
    }

    fn hashed_default(&self, text: &str, place: PlaceId) -> Result<String, SchemaError> {
        let node = read(text, &Limits::default());
        let node = node.map_err(|error| SchemaError::new("", format!("a default can't be read: {error}")))?;
        Ok(normalise::hashed(self, &node, place))
    }
}

fn identifies(root: &Place, places: &[Place], has_identity: bool) -> Identifies {
    let counts = |place: PlaceId| places[place].mode == Mode::Identity;
    if has_identity || root.rules.is_closed() && root.properties.iter().any(|property| counts(property.place)) {
        return Identifies::Possible;
    }
    let only_others = !root.properties.is_empty() && !root.properties.iter().any(|property| counts(property.place));
    let names_others = root.rules.describes_others() && counts(root.others);
    if root.rules.is_closed() || only_others && !names_others || !counts(root.others) && root.properties.is_empty() {
        return Identifies::Never;
    }
    Identifies::EmptyWhenNoArguments
}

/// Turns `/properties/order/properties/id` into `/order/id`.
fn identity_pointers(hinted: &[Hinted<'_>]) -> Vec<String> {
    let places = hinted.iter().filter(|place| place.hints.mode == Some(Mode::Identity));
    let mut pointers: Vec<String> = places.map(|place| argument_pointer(&place.pointer)).collect();
    pointers.sort();
    pointers.dedup();
    pointers
}

fn contract(hinted: &[Hinted<'_>]) -> String {
    let hinted = hinted.iter().filter(|place| place.hints != Hints::default());
    let line = |place: &Hinted<'_>| format!("{} {}", argument_pointer(&place.pointer), place.hints.words());
    let mut lines: Vec<String> = hinted.map(line).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

fn argument_pointer(schema_pointer: &str) -> String {
    let mut pointer = String::new();
    let mut steps = schema_pointer.split('/').skip(1);
    while let Some(step) = steps.next() {
        match step {
            "properties" => pointer.extend(["/", steps.next().unwrap_or_default()]),
            "items" | "additionalProperties" => pointer.push_str("/*"),
            "prefixItems" => pointer.extend(["/", steps.next().unwrap_or_default()]),
            _ => {}
        }
    }
    pointer
}

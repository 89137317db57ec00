//! A light check of arguments against the schema, for tools that take them raw.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::compile::read_value;
use super::schema::{Object, escaped, list};
use super::shape::{Place, PlaceId, ROOT, SchemaError, Shape};
use super::{Arguments, Node, write};

/// How many problems a refusal lists.
const MAX_PROBLEMS: usize = 8;
/// The longest list of allowed values that is shown.
const MAX_CHOICES: usize = 20;
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Arguments that don't fit the tool's schema. Displays as one sentence that names every problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    problems: Vec<Problem>,
}

/// One thing that doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where in the arguments: a JSON pointer, empty for the arguments as a whole.
    pub pointer: String,
    /// What is wrong there.
    pub message: String,
}

impl Refusal {
    /// The problems: at least one, at most eight.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the arguments don't fit the tool's schema: ")?;
        for (index, Problem { pointer, message }) in self.problems.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            let space = if pointer.is_empty() { "" } else { " " };
            write!(f, "{comma}{pointer}{space}{message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// What is checked at one place.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    /// One list of allowed types per schema that has one.
    types: Vec<Vec<&'static str>>,
    required: Vec<String>,
    members: Members,
    /// One list of allowed values, in canonical text, per schema that has one.
    choices: Vec<Vec<String>>,
}

/// Which members are allowed beside the named properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Members {
    Closed,
    Open,
    /// Open, and the schema says so.
    Described,
}

impl Rules {
    pub(super) fn of(parts: &[&Object]) -> Result<Self, SchemaError> {
        let mut rules = Self { types: Vec::new(), required: Vec::new(), members: members(parts), choices: Vec::new() };
        for part in parts {
            rules.types.extend(types(part)?);
            rules.choices.extend(choices(part)?);
            rules.required.extend(list(part, "required").filter_map(Value::as_str).map(str::to_owned));
        }
        rules.required.sort();
        rules.required.dedup();
        Ok(rules)
    }

    pub(super) fn allows_object(&self) -> bool {
        self.types.iter().all(|types| types.contains(&"object"))
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        self.required.iter().any(|required| required == name)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.members == Members::Closed
    }

    pub(super) fn describes_others(&self) -> bool {
        self.members == Members::Described
    }

    /// What is wrong with a value itself, not with what it holds.
    pub(super) fn objection(&self, node: &Node<'_>) -> Option<String> {
        if let Some(types) = self.types.iter().find(|types| !types.iter().any(|word| is_of_type(node, word))) {
            return Some(format!("must be of type {}", types.join(" or ")));
        }
        let text = if self.choices.is_empty() {
            return None;
        } else {
            write(node)
        };
        let choices = self.choices.iter().find(|choices| !choices.contains(&text))?;
        let shown: Vec<_> = choices.iter().take(MAX_CHOICES).map(String::as_str).collect();
        let more = if choices.len() > MAX_CHOICES { " …" } else { "" };
        Some(format!("must be one of {}{more}", shown.join(", ")))
    }
}

fn types(schema: &Object) -> Result<Option<Vec<&'static str>>, SchemaError> {
    let known = |word: &Value| {
        let name = TYPES.into_iter().find(|name| word == name);
        name.ok_or_else(|| SchemaError::new("", format!("there is no type {word}: the types are {}", TYPES.join(", "))))
    };
    match schema.get("type") {
        None => Ok(None),
        Some(Value::Array(words)) => words.iter().map(known).collect::<Result<_, _>>().map(Some),
        Some(word) => Ok(Some(vec![known(word)?])),
    }
}

fn choices(schema: &Object) -> Result<Option<Vec<String>>, SchemaError> {
    let values = match (schema.get("enum"), schema.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(value)) => std::slice::from_ref(value),
        _ => return Ok(None),
    };
    values.iter().map(|value| Ok(write(&read_value("", value)?))).collect::<Result<_, _>>().map(Some)
}

fn members(parts: &[&Object]) -> Members {
    let others = || parts.iter().filter_map(|part| part.get("additionalProperties"));
    // Which names a pattern takes isn't worked out, so a schema with patterns is as good as open.
    if parts.iter().any(|part| part.contains_key("patternProperties")) {
        Members::Described
    } else if others().any(|schema| *schema == Value::Bool(false))
        || parts.iter().any(|part| part.get("unevaluatedProperties") == Some(&Value::Bool(false)))
    {
        Members::Closed
    } else if others().next().is_some() {
        Members::Described
    } else {
        Members::Open
    }
}

fn is_of_type(node: &Node<'_>, word: &str) -> bool {
    match node {
        Node::Null => word == "null",
        Node::Bool(_) => word == "boolean",
        Node::Number(number) => word == "number" || word == "integer" && number.is_integer(),
        Node::String(_) => word == "string",
        Node::Array(_) => word == "array",
        Node::Object(_) => word == "object",
    }
}

impl Shape {
    /// Checks `type`, `required`, `enum` (and `const`) and `additionalProperties`: enough for a model to notice a
    /// slip. Everything else is left to the tool. A null that the schema forbids counts as left out.
    ///
    /// # Errors
    /// [`Refusal`], which names the problems.
    pub fn validate(&self, arguments: &Arguments<'_>) -> Result<(), Refusal> {
        let mut check = Check { shape: self, problems: Vec::new() };
        check.value(arguments.root(), ROOT, "");
        if check.problems.is_empty() { Ok(()) } else { Err(Refusal { problems: check.problems }) }
    }
}

struct Check<'a> {
    shape: &'a Shape,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn value(&mut self, node: &Node<'_>, place: PlaceId, pointer: &str) {
        let place = &self.shape.places[place];
        if matches!(node, Node::Null) && place.allows_null {
            return;
        }
        if let Some(message) = place.rules.objection(node) {
            return self.add(pointer.to_owned(), message);
        }
        match node {
            Node::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, place.item(index), &format!("{pointer}/{index}"));
                }
            }
            Node::Object(members) => self.members(members, place, pointer),
            _ => {}
        }
    }

    fn members(&mut self, members: &[(Cow<'_, str>, Node<'_>)], place: &Place, pointer: &str) {
        let is_given = |name: &str| {
            let value = members.iter().find(|(given, _)| given == name).map(|(_, value)| value);
            value.is_some_and(|value| !self.shape.is_forbidden_null(value, place.property(name)))
        };
        let missing: Vec<_> = place.rules.required.iter().filter(|name| !is_given(name)).collect();
        for name in missing {
            self.add(format!("{pointer}/{}", escaped(name)), "is missing".to_owned());
        }
        for (name, value) in members {
            let pointer = format!("{pointer}/{}", escaped(name));
            match place.property(name) {
                Some(property) if self.shape.is_forbidden_null(value, Some(property)) => {}
                Some(property) => self.value(value, property.place, &pointer),
                None if place.rules.is_closed() => {
                    self.add(pointer, "is not an argument of this tool: leave it out".to_owned());
                }
                None => self.value(value, place.others, &pointer),
            }
        }
    }

    fn add(&mut self, pointer: String, message: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { pointer, message });
        }
    }
}

//! From the schemas of a document to the places of a [`Shape`](super::Shape).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::iter;

use serde_json::Value;

use super::arguments::value_text;
use super::hints::{Hints, Mode, TextRules};
use super::lint::Volatility;
use super::schema::{Document, Hinted, Object, escaped};
use super::shape::{Place, PlaceId, Property, SchemaError};
use super::validate::Rules;
use super::{Limits, Node, reader, write};

/// The most places a schema can have. They grow with the schema's text, unless it is made to do harm.
const MAX_PLACES: usize = 10_000;

/// The places of a document, the arguments themselves first; `unhinted` holds where no hint says otherwise.
pub(super) fn places(document: Document<'_>, hinted: &[Hinted<'_>], unhinted: Mode) -> Result<Vec<Place>, SchemaError> {
    let mut compiler = Compiler {
        document,
        unhinted,
        places: Vec::new(),
        known: HashMap::new(),
        waiting: VecDeque::new(),
        reached: HashSet::new(),
    };
    let root = compiler.spot(iter::once(document.0), Inherited::default())?;
    compiler.place(root);
    compiler.run()?;
    compiler.check_reached(hinted)?;
    Ok(compiler.places)
}

/// All schemas that speak about a place, and what holds there from above.
struct Spot<'s> {
    parts: Vec<&'s Object>,
    allows_null: bool,
    above: Inherited,
}

/// What hints further up say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Inherited {
    mode: Option<Mode>,
    text: TextRules,
}

/// Places are told apart by the addresses of their schemas, so a schema that refers to itself ends in a circle of
/// places, not in endless ones.
type SpotKey = (Vec<*const Object>, bool, Inherited);

struct Compiler<'s> {
    document: Document<'s>,
    unhinted: Mode,
    places: Vec<Place>,
    known: HashMap<SpotKey, PlaceId>,
    waiting: VecDeque<Spot<'s>>,
    reached: HashSet<*const Object>,
}

impl<'s> Compiler<'s> {
    /// The place for a spot. It is compiled later, in the order in which places are asked for.
    fn place(&mut self, spot: Spot<'s>) -> PlaceId {
        let parts = spot.parts.iter().map(|part| std::ptr::from_ref(*part)).collect();
        let key = (parts, spot.allows_null, spot.above);
        let next = self.known.len();
        *self.known.entry(key).or_insert_with(|| {
            self.waiting.push_back(spot);
            next
        })
    }

    fn run(&mut self) -> Result<(), SchemaError> {
        while let Some(spot) = self.waiting.pop_front() {
            if self.known.len() > MAX_PLACES {
                return Err(SchemaError::new("", format!("the schema has more than {MAX_PLACES} places")));
            }
            let place = self.compile(spot)?;
            self.places.push(place);
        }
        Ok(())
    }

    fn compile(&mut self, spot: Spot<'s>) -> Result<Place, SchemaError> {
        let mut hints = Hints::default();
        for &part in &spot.parts {
            self.reached.insert(part);
            hints = hints.and(Hints::of(part).map_err(|message| SchemaError::new("", message))?);
        }
        let above = Inherited { mode: hints.mode.or(spot.above.mode), text: hints.text.and(spot.above.text) };
        let parts = spot.parts;
        let first_items = self.first_items(&parts, above)?;
        Ok(Place {
            mode: above.mode.unwrap_or(self.unhinted),
            is_hinted: above.mode.is_some() || hints != Hints::default(),
            looks: Volatility::of_formats(&parts),
            text: above.text,
            is_set: hints.set,
            null_is_absent: hints.null_is_absent,
            is_secret: hints.secret,
            allows_null: spot.allows_null,
            properties: self.properties(&parts, above)?,
            others: self.child(parts.iter().filter_map(|part| part.get("additionalProperties")), above)?,
            first_items,
            other_items: self.child(parts.iter().filter_map(|part| part.get("items")), above)?,
            rules: Rules::of(&parts)?,
        })
    }

    fn child(&mut self, schemas: impl Iterator<Item = &'s Value>, above: Inherited) -> Result<PlaceId, SchemaError> {
        // `items` with a list is the older spelling of `prefixItems`.
        let spot = self.spot(schemas.filter(|schema| !schema.is_array()), above)?;
        Ok(self.place(spot))
    }

    fn spot(&self, schemas: impl Iterator<Item = &'s Value>, above: Inherited) -> Result<Spot<'s>, SchemaError> {
        let mut spot = Spot { parts: Vec::new(), allows_null: true, above };
        for schema in schemas {
            self.document.gather(schema, &mut spot.parts)?;
            spot.allows_null &= self.document.allows_null(schema);
        }
        Ok(spot)
    }

    fn first_items(&mut self, parts: &[&'s Object], above: Inherited) -> Result<Vec<PlaceId>, SchemaError> {
        let lists: Vec<&'s Vec<Value>> = parts
            .iter()
            .flat_map(|part| ["prefixItems", "items"].map(|word| part.get(word).and_then(Value::as_array)))
            .flatten()
            .collect();
        let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
        (0..longest).map(|index| self.child(lists.iter().filter_map(|list| list.get(index)), above)).collect()
    }

    fn properties(&mut self, parts: &[&'s Object], above: Inherited) -> Result<Vec<Property>, SchemaError> {
        let mut named: BTreeMap<&str, Vec<&'s Value>> = BTreeMap::new();
        for properties in parts.iter().filter_map(|part| part.get("properties").and_then(Value::as_object)) {
            for (name, schema) in properties {
                named.entry(name).or_default().push(schema);
            }
        }
        named.into_iter().map(|(name, schemas)| self.property(name, schemas, above)).collect()
    }

    fn property(&mut self, name: &str, schemas: Vec<&'s Value>, above: Inherited) -> Result<Property, SchemaError> {
        let spot = self.spot(schemas.into_iter(), above)?;
        let default = spot.parts.iter().find_map(|part| part.get("default"));
        let default = default.map(|value| read_value(name, value).map(|node| write(&node))).transpose()?;
        Ok(Property { name: name.to_owned(), place: self.place(spot), default, hashed_default: None })
    }

    fn check_reached(&self, hinted: &[Hinted<'_>]) -> Result<(), SchemaError> {
        match hinted.iter().find(|place| !self.reached.contains(&std::ptr::from_ref(place.schema))) {
            None => Ok(()),
            Some(place) => {
                let message = "a hint stands in a part of the schema that isn't followed and would have no effect";
                Err(SchemaError::new(&*place.pointer, message))
            }
        }
    }
}

/// Reads a value of the schema, such as a default, as arguments are read.
pub(super) fn read_value(name: &str, value: &Value) -> Result<Node<'static>, SchemaError> {
    let limits = Limits::default();
    let node = value_text(value, &limits).and_then(|text| reader::read(&text, &limits).map(Node::into_owned));
    node.map_err(|error| SchemaError::new(escaped(name), format!("a default, enum or const can't be read: {error}")))
}

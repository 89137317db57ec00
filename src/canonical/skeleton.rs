//! What is left of a call's arguments when everything is dropped that a model words anew.

use std::borrow::Cow;

use super::hints::Mode;
use super::shape::{PlaceId, Property, ROOT, Shape};
use super::writer::push_string;
use super::{Arguments, Limits, Node, read, write};

/// Texts of so many words are taken for prose.
const PROSE: usize = 4;

impl Shape {
    /// The skeleton of arguments: two calls with the same one are probably the same wish in other words. Letter case and
    /// white space don't matter, a text that is a number is that number; texts of four or more words, values that are
    /// `content` or `ignore`, nulls, empty values and defaults are dropped. `None` if nothing is left.
    pub fn skeleton(&self, arguments: &Arguments<'_>) -> Option<String> {
        self.bones(arguments.root(), ROOT)
    }

    fn bones(&self, node: &Node<'_>, place: PlaceId) -> Option<String> {
        let at = &self.places[place];
        match node {
            Node::Array(items) => {
                let items: Vec<String> =
                    items.iter().enumerate().filter_map(|(index, item)| self.bones(item, at.item(index))).collect();
                (!items.is_empty()).then(|| format!("[{}]", items.join(",")))
            }
            Node::Object(members) => {
                let member = |(name, value): &(Cow<'_, str>, Node<'_>)| {
                    let property = at.property(name);
                    if is_default(value, property) {
                        return None;
                    }
                    let bones = self.bones(value, property.map_or(at.others, |property| property.place))?;
                    let mut text = String::new();
                    push_string(&mut text, name);
                    Some(format!("{text}:{bones}"))
                };
                let members: Vec<String> = members.iter().filter_map(member).collect();
                (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
            }
            _ if at.mode != Mode::Identity => None,
            Node::Null => None,
            Node::String(text) => bare(text),
            scalar => Some(write(scalar)),
        }
    }
}

fn is_default(value: &Node<'_>, property: Option<&Property>) -> bool {
    property.and_then(|property| property.default.as_deref()).is_some_and(|default| write(value) == default)
}

/// A short text without what is often written in another way.
fn bare(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || words.len() >= PROSE {
        return None;
    }
    let text = words.join(" ");
    if let Ok(Node::Number(number)) = read(&text, &Limits::default()) {
        return Some(number.as_str().to_owned());
    }
    let folded: String = text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let mut out = String::new();
    push_string(&mut out, &folded);
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn skeleton(schema: &serde_json::Value, text: &str) -> Option<String> {
        let shape = Shape::compile(schema).unwrap();
        shape.skeleton(&Arguments::read(text, &Limits::default()).unwrap())
    }

    #[test]
    fn what_is_worded_anew_is_dropped() {
        let any = json!({"type": "object"});
        let first = skeleton(&any, r#"{"to": "Bob Ray", "n": 5, "text": "please send me the report", "x": null}"#);
        let again = skeleton(&any, r#"{"n": "5.0", "text": "send the report to me, please", "to": "bob\t RAY "}"#);
        assert_eq!(first.as_deref(), Some(r#"{"n":5,"to":"bob ray"}"#));
        assert_eq!(first, again);
        assert_ne!(first, skeleton(&any, r#"{"to": "Bob Ray", "n": 6}"#));
        assert_eq!(skeleton(&any, r#"{"text": "please send me the report", "list": [[], {}, " "]}"#), None);
    }

    #[test]
    fn hints_and_defaults_count() {
        let schema = json!({"type": "object", "properties": {
            "id": {"type": "integer"},
            "memo": {"type": "string", "x-toolonce": "content"},
            "cur": {"type": "string", "default": "usd"}
        }});
        assert_eq!(skeleton(&schema, r#"{"id": 1, "memo": "a", "cur": "usd"}"#), skeleton(&schema, r#"{"id": 1}"#));
        assert_ne!(skeleton(&schema, r#"{"id": 1, "cur": "eur"}"#), skeleton(&schema, r#"{"id": 1}"#));
    }
}

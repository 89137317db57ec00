//! What a call's arguments mean: strict reading, one canonical text, and normalisation by the tool's JSON Schema.
//!
//! Two calls are the same unit of work if they mean the same, whatever their text looks like; and two calls that
//! mean different things must never be taken for one. This module decides both, in three steps:
//!
//! 1. [`Arguments::read`] reads the model's text with a strict reader of its own. What is malformed, or what two
//!    readers could understand differently, is refused with a sentence that the model can act on.
//! 2. [`Shape::compile`] turns the tool's JSON Schema, once per tool, into what matters for meaning: defaults,
//!    where null can't be meant, and the `x-toolonce` hints.
//! 3. [`Shape::normalise`] gives the bytes that identify the call, the fingerprint of all that isn't `ignore`, and
//!    the text that is executed.
//!
//! ```
//! use toolonce::canonical::{Arguments, Limits, Shape};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shape = Shape::compile(&serde_json::json!({
//!     "type": "object",
//!     "properties": {
//!         "order": { "type": "integer" },
//!         "currency": { "type": "string", "default": "usd" },
//!         "coupon": { "type": "string" },
//!         "reason": { "type": "string", "x-toolonce": "ignore" }
//!     }
//! }))?;
//! let read = |text| Arguments::read(text, &Limits::default());
//!
//! // The same call: key order, spelling of numbers, a default, a null that can't be meant, an ignored reason.
//! let first = shape.normalise(&read(r#"{"order": 7}"#)?)?;
//! let again = shape.normalise(&read(r#"{"reason": "hi", "coupon": null, "currency": "usd", "order": 7.0}"#)?)?;
//! assert_eq!(first.identity(), again.identity());
//! assert_eq!(first.fingerprint, again.fingerprint);
//!
//! // Another order, even though both ids are the same double.
//! let a = shape.normalise(&read(r#"{"order": 9007199254740992}"#)?)?;
//! let b = shape.normalise(&read(r#"{"order": 9007199254740993}"#)?)?;
//! assert_ne!(a.identity(), b.identity());
//!
//! let refused = read(r#"{"order": 7, "order": 8}"#).unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     r#"the key "order" appears twice in one object (byte 0): send each key once"#
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # Hints
//!
//! `x-toolonce` on a property, an array's items or beside a `$ref` is a string or a list of strings:
//!
//! | hint | effect |
//! |---|---|
//! | `identity` | names the target. If any place has it, only such places form the key; unhinted ones are `content` |
//! | `content` | part of the fingerprint only: a memo, a body |
//! | `ignore` | part of neither: a reason, a generated id, a timestamp |
//! | `set` | an array whose order and repetitions don't matter |
//! | `trim` | Unicode white space at both ends doesn't matter |
//! | `casefold` | case doesn't matter: each character is upper-cased, then lower-cased, so `ß` = `SS` and `ς` = `σ` |
//! | `nfc` | composed and decomposed characters are the same (Unicode normalisation form C) |
//! | `null-is-absent` | null means the same as leaving the property out |
//! | `secret` | a password, a card number: it counts as it would without the hint, but is stored in no form but a keyed hash |
//!
//! A tool with a `secret` place needs a guard with a [`Secret`](crate::key::Secret), and its arguments are never kept:
//! after a crash only a call with the same arguments sends them again. A conflict names the place, nothing in it. What
//! the tool itself returns, or says of a failure, is its own affair: see sealing in
//! [`GuardBuilder`](crate::GuardBuilder).
//!
//! `identity`, `content` and `ignore` hold for everything below until a nearer one says otherwise. `trim`,
//! `casefold` and `nfc` hold for every string below, not for keys. Hints never change what is executed.
//!
//! Hints and defaults are found through `properties`, `additionalProperties`, `items`, `prefixItems`, `allOf`, local
//! `$ref`, and `anyOf` or `oneOf` with one branch that isn't null. A hint in any other place is a [`SchemaError`]:
//! it would be silently without effect. [`Shape::volatile`] names arguments that look as if they needed one.

mod arguments;
mod compile;
mod error;
mod hidden;
mod hints;
mod leaves;
mod lint;
mod normalise;
mod number;
mod reader;
mod scan;
mod schema;
mod shape;
mod skeleton;
mod validate;
mod writer;

use std::borrow::Cow;
use std::cmp::Ordering;

pub use self::arguments::Arguments;
pub use self::error::{ReadError, ReadErrorKind};
pub(crate) use self::hidden::{hidden, with_member};
pub use self::leaves::{LeafText, Leaves};
pub use self::lint::{Volatile, Volatility};
pub use self::normalise::{NormaliseError, Normalised};
pub use self::number::Number;
pub use self::reader::{read, read_bytes};
use self::scan::equal_prefix;
pub use self::shape::{Identifies, SchemaError, Shape};
pub use self::validate::{Problem, Refusal};
pub use self::writer::write;

/// How much text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text, in bytes. Default: 1 MiB.
    pub bytes: usize,
    /// How deep arrays and objects may be nested; a flat object has depth 1. Default: 128. Values over
    /// [`Limits::MAX_DEPTH`] count as that.
    pub depth: usize,
}

impl Limits {
    /// The deepest nesting that can be allowed: beyond it, reading could overflow a thread's stack.
    pub const MAX_DEPTH: usize = 512;

    fn allowed_depth(&self) -> usize {
        self.depth.min(Self::MAX_DEPTH)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 20, depth: 128 }
    }
}

/// One JSON value. It borrows from the text it was read from, wherever the text already is what is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exact.
    Number(Number<'a>),
    /// A string, escapes resolved.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Node<'a>>),
    /// An object. The reader gives its members in canonical order, each key once.
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl Node<'_> {
    /// The same value, borrowing from nothing.
    pub fn into_owned(self) -> Node<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Node::Null => Node::Null,
            Node::Bool(value) => Node::Bool(value),
            Node::Number(number) => Node::Number(number.into_owned()),
            Node::String(string) => Node::String(owned(string)),
            Node::Array(items) => Node::Array(items.into_iter().map(Node::into_owned).collect()),
            Node::Object(members) => {
                Node::Object(members.into_iter().map(|(name, value)| (owned(name), value.into_owned())).collect())
            }
        }
    }
}

/// RFC 8785's order of keys: by UTF-16 code units.
///
/// It differs from the order of the UTF-8 bytes only where a character beyond U+FFFF (a surrogate pair in UTF-16)
/// meets one of U+E000 – U+FFFF: only the lead bytes of these characters need to be ranked anew.
#[inline]
fn utf16_order(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| if matches!(byte, 0xee | 0xef) { byte + 0x10 } else { byte };
    let at = equal_prefix(a.as_bytes(), b.as_bytes());
    match (a.as_bytes().get(at), b.as_bytes().get(at)) {
        (Some(x), Some(y)) => rank(*x).cmp(&rank(*y)),
        (x, y) => x.is_some().cmp(&y.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_utf16_code_units() {
        let names = ["", "a", "aa", "b", "\u{7f}", "é", "\u{d7ff}", "\u{10000}", "\u{1f602}", "\u{e000}", "\u{ffff}"];
        for a in names {
            for b in names {
                assert_eq!(utf16_order(a, b), a.encode_utf16().cmp(b.encode_utf16()), "{a:?} {b:?}");
            }
        }
    }
}

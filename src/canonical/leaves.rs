//! The single values of a call's arguments, each with its place.

use std::fmt::Write as _;
use std::ops::Range;

/// The most leaves that are kept of one call.
const MAX_LEAVES: usize = 64;

/// What the fingerprint covers, value by value: every scalar, empty container and `set`, in canonical order, at most
/// 64. They tell which fields of two calls differ.
#[derive(Debug, Clone, Default)]
pub struct Leaves {
    /// What the fingerprint was taken of.
    text: String,
    /// All pointers, one after the other.
    pointers: String,
    spans: Vec<Span>,
}

/// One value of the arguments as it is hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafText<'a> {
    /// Where in the arguments: a JSON pointer (RFC 6901).
    pub pointer: &'a str,
    /// Its canonical text.
    pub value: &'a [u8],
}

#[derive(Debug, Clone)]
struct Span {
    pointer: Range<usize>,
    value: Range<usize>,
}

impl Leaves {
    /// The leaves in canonical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LeafText<'_>> {
        self.spans.iter().map(|span| LeafText {
            pointer: &self.pointers[span.pointer.clone()],
            value: &self.text.as_bytes()[span.value.clone()],
        })
    }

    /// What the fingerprint was taken of.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// How many there are: at most 64.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// Notes the leaves while their text is written.
#[derive(Default)]
pub(super) struct Recorder {
    /// Where the walk stands.
    path: String,
    pointers: String,
    spans: Vec<Span>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let (path, pointers) = (String::with_capacity(64), String::with_capacity(256));
        Self { path, pointers, spans: Vec::with_capacity(16) }
    }

    /// Steps down to a member; returns what [`leave`](Self::leave) needs to step up again.
    pub(super) fn enter(&mut self, name: &str) -> usize {
        let mark = self.path.len();
        if self.is_full() {
            return mark; // No leaf comes from down there: those that are forgotten there are forgotten from above, too.
        }
        self.path.push('/');
        if name.as_bytes().contains(&b'~') || name.as_bytes().contains(&b'/') {
            self.path.push_str(&super::schema::escaped(name));
        } else {
            self.path.push_str(name);
        }
        mark
    }

    /// Steps down to an item.
    pub(super) fn enter_item(&mut self, index: usize) -> usize {
        let mark = self.path.len();
        if self.is_full() {
            return mark;
        }
        // Writing to a string can't fail.
        let _ = write!(self.path, "/{index}");
        mark
    }

    pub(super) fn leave(&mut self, mark: usize) {
        self.path.truncate(mark);
    }

    /// Notes the value that was written at `value`. The arguments as a whole are no leaf.
    pub(super) fn add(&mut self, value: Range<usize>) {
        if value.is_empty() || self.path.is_empty() || self.is_full() {
            return;
        }
        let start = self.pointers.len();
        self.pointers.push_str(&self.path);
        self.spans.push(Span { pointer: start..self.pointers.len(), value });
    }

    fn is_full(&self) -> bool {
        self.spans.len() == MAX_LEAVES
    }

    pub(super) fn count(&self) -> usize {
        self.spans.len()
    }

    /// Drops all but the first `count` leaves.
    pub(super) fn forget(&mut self, count: usize) {
        self.spans.truncate(count);
    }

    pub(super) fn finish(self, text: String) -> Leaves {
        Leaves { text, pointers: self.pointers, spans: self.spans }
    }
}

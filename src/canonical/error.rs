//! Why argument text was refused, in words that a model can act on.

use std::fmt;

use super::number::{MAX_TOKEN, Unfit};

/// Why a text was not read. Displays as one sentence: what is wrong, where, and what to send instead.
///
/// The sentence is meant for the model that wrote the text. It never repeats an argument's value.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadError(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: ReadErrorKind,
    at: usize,
    sentence: String,
}

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text starts with a byte order mark.
    ByteOrderMark,
    /// The text is longer than [`Limits::bytes`](super::Limits::bytes).
    TooLarge,
    /// Arrays and objects are nested deeper than [`Limits::depth`](super::Limits::depth).
    TooDeep,
    /// The text ends in the middle of a value, or is empty where a value is needed.
    Truncated,
    /// A character where the grammar wants another, among them `NaN`, single quotes and comments.
    Unexpected,
    /// A comma with nothing after it.
    TrailingComma,
    /// Something follows the first value.
    SecondValue,
    /// One object holds a key twice (escapes resolved).
    DuplicateKey,
    /// A backslash with something that JSON has no escape for.
    BadEscape,
    /// Half of a surrogate pair.
    LoneSurrogate,
    /// A raw control character inside a string.
    ControlCharacter,
    /// Not a number of the JSON grammar: a leading zero, a point without digits.
    BadNumber,
    /// A number of more than 128 characters, as it is written or in its canonical text.
    NumberTooLong,
    /// A number whose exponent, written or resulting, lies beyond ±308.
    NumberOutOfRange,
    /// The value is whole JSON, but not an object.
    NotAnObject,
    /// An integer that the tool's own number type would round. See
    /// [`Arguments::unrounded`](super::Arguments::unrounded).
    WouldRound,
}

impl ReadError {
    pub(super) fn new(kind: ReadErrorKind, at: usize, sentence: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, at, sentence: sentence.into() }))
    }

    /// What is wrong.
    pub fn kind(&self) -> ReadErrorKind {
        self.0.kind
    }

    /// Where: the offset in bytes from the start of the text, counted from 0.
    pub fn offset(&self) -> usize {
        self.0.at
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.sentence)
    }
}

impl fmt::Debug for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadError({:?} at {}: {})", self.0.kind, self.0.at, self.0.sentence)
    }
}

impl std::error::Error for ReadError {}

/// A name as an error may show it: quoted, escaped, and cut after 40 characters.
pub(super) fn shown(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    if short.len() < name.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// An error's sentence: what is wrong, where, and what to send instead.
pub(super) fn error_at(at: usize, kind: ReadErrorKind, what: &str, instead: &str) -> ReadError {
    ReadError::new(kind, at, format!("{what} (byte {at}): {instead}"))
}

pub(super) fn unfit_number(unfit: Unfit, at: usize) -> ReadError {
    match unfit {
        Unfit::TooLong => {
            let what = format!("a number has more than {MAX_TOKEN} characters");
            error_at(at, ReadErrorKind::NumberTooLong, &what, "send it as a string or with fewer digits")
        }
        Unfit::OutOfRange => {
            let what = "a number's exponent lies beyond 308 in either direction";
            error_at(at, ReadErrorKind::NumberOutOfRange, what, "send a number within the range of a double")
        }
    }
}

pub(super) fn bad_escape(at: usize) -> ReadError {
    error_at(at, ReadErrorKind::BadEscape, "a backslash starts no escape of JSON", "write a backslash as \\\\")
}

pub(super) fn duplicate(name: &str, open: usize) -> ReadError {
    let what = format!("the key {} appears twice in one object", shown(name));
    error_at(open, ReadErrorKind::DuplicateKey, &what, "send each key once")
}

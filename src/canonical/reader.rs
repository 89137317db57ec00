//! A strict reader of one JSON value.
//!
//! `serde_json` is not used: it keeps the last of two equal keys, rounds integers beyond `u64`, and changes what it
//! does when any crate of the build switches one of its features on. A key must depend on nothing but the text.

use std::borrow::Cow;

use super::error::{ReadError, ReadErrorKind as Kind, bad_escape, duplicate, error_at, unfit_number};
use super::number::Number;
use super::scan::plain_prefix;
use super::{Limits, Node, utf16_order};

type Result<T> = std::result::Result<T, ReadError>;

/// What was read.
pub(super) struct Document<'a> {
    pub(super) root: Node<'a>,
    /// The first integer that a typed tool would round.
    pub(super) rounds: Option<ReadError>,
}

/// Reads one JSON value.
///
/// # Errors
/// [`ReadError`] for everything that RFC 8259 doesn't allow, and for what it allows but readers disagree about:
/// duplicate keys, lone surrogates, a byte order mark, numbers out of range, too much depth or size.
pub fn read<'a>(text: &'a str, limits: &Limits) -> Result<Node<'a>> {
    document(text, limits).map(|document| document.root)
}

/// Reads one JSON value from bytes that may not be UTF-8.
///
/// # Errors
/// As [`read`], and [`ReadErrorKind::NotUtf8`](super::ReadErrorKind::NotUtf8).
pub fn read_bytes<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Node<'a>> {
    read(utf8(bytes, limits)?, limits)
}

pub(super) fn utf8<'a>(bytes: &'a [u8], limits: &Limits) -> Result<&'a str> {
    check_size(bytes.len(), limits)?;
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        ReadError::new(Kind::NotUtf8, at, format!("byte {at} is not valid UTF-8: send the JSON as UTF-8 text"))
    })
}

pub(super) fn document<'a>(text: &'a str, limits: &Limits) -> Result<Document<'a>> {
    check_size(text.len(), limits)?;
    if text.starts_with('\u{feff}') {
        return Err(ReadError::new(Kind::ByteOrderMark, 0, "the text starts with a byte order mark: send it without"));
    }
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0, depth: limits.allowed_depth(), rounds: None };
    reader.space();
    let root = reader.value(0)?;
    reader.space();
    if reader.at < text.len() {
        return Err(reader.error(Kind::SecondValue, "there is more text after the first value", "send one JSON value"));
    }
    Ok(Document { root, rounds: reader.rounds })
}

fn check_size(bytes: usize, limits: &Limits) -> Result<()> {
    if bytes <= limits.bytes {
        return Ok(());
    }
    let sentence = format!("the text has {bytes} bytes and at most {} are allowed: send less", limits.bytes);
    Err(ReadError::new(Kind::TooLarge, limits.bytes, sentence))
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    rounds: Option<ReadError>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Node<'a>> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Node::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Node::Number),
            Some(b't') => self.literal("true", Node::Bool(true)),
            Some(b'f') => self.literal("false", Node::Bool(false)),
            Some(b'n') => self.literal("null", Node::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'a>> {
        let open = self.at;
        let depth = self.enter(depth)?;
        if self.take(b'}') {
            return Ok(Node::Object(Vec::new()));
        }
        let mut members: Vec<(Cow<'a, str>, Node<'a>)> = Vec::with_capacity(8);
        let mut is_sorted = true;
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let name = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.unexpected("a colon"));
            }
            self.space();
            let value = self.value(depth)?;
            is_sorted = is_sorted && members.last().is_none_or(|(last, _)| utf16_order(last, &name).is_lt());
            members.push((name, value));
            if !self.goes_on(b'}', "a comma or a closing brace")? {
                break;
            }
        }
        if is_sorted {
            return Ok(Node::Object(members));
        }
        members.sort_unstable_by(|(a, _), (b, _)| utf16_order(a, b));
        match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(Node::Object(members)),
            Some(pair) => Err(duplicate(&pair[0].0, open)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node<'a>> {
        let depth = self.enter(depth)?;
        if self.take(b']') {
            return Ok(Node::Array(Vec::new()));
        }
        let mut items = Vec::new();
        loop {
            items.push(self.value(depth)?);
            if !self.goes_on(b']', "a comma or a closing bracket")? {
                return Ok(Node::Array(items));
            }
        }
    }

    /// Steps over an opening brace or bracket.
    fn enter(&mut self, depth: usize) -> Result<usize> {
        if depth == self.depth {
            let what = format!("arrays and objects are nested deeper than {}", self.depth);
            return Err(self.error(Kind::TooDeep, &what, "send a flatter value"));
        }
        self.at += 1;
        self.space();
        Ok(depth + 1)
    }

    /// Steps over a comma (`true`) or the closing character (`false`) after an element.
    fn goes_on(&mut self, close: u8, wanted: &str) -> Result<bool> {
        self.space();
        if self.take(close) {
            return Ok(false);
        }
        if !self.take(b',') {
            return Err(self.unexpected(wanted));
        }
        self.space();
        if self.peek() == Some(close) {
            return Err(self.error(Kind::TrailingComma, "there is a comma with nothing after it", "leave it out"));
        }
        Ok(true)
    }

    fn literal(&mut self, word: &str, node: Node<'a>) -> Result<Node<'a>> {
        let rest = &self.bytes[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(node);
        }
        // The text may end inside the word: `{"a":tru`.
        if word.as_bytes().starts_with(rest) {
            self.at = self.bytes.len();
        }
        Err(self.unexpected("a value"))
    }

    fn number(&mut self) -> Result<Number<'a>> {
        let start = self.at;
        self.take(b'-');
        let whole = self.at;
        self.digits()?;
        if self.bytes[whole] == b'0' && self.at > whole + 1 {
            self.at = whole;
            return Err(self.error(Kind::BadNumber, "a number starts with a zero", "write it without leading zeros"));
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        self.number_from(start)
    }

    fn digits(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'0'..=b'9') => {}
            None => return Err(self.truncated()),
            Some(_) => return Err(self.error(Kind::BadNumber, "a number lacks a digit", "write it out")),
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number_from(&mut self, start: usize) -> Result<Number<'a>> {
        let token = &self.text[start..self.at];
        let number = Number::from_token(token).map_err(|unfit| unfit_number(unfit, start))?;
        // Eighteen characters without an exponent always fit an i64.
        if (token.len() > 18 || token.contains(['e', 'E'])) && self.rounds.is_none() && number.would_round() {
            let what = "an integer is too large for this tool and would be rounded";
            self.rounds = Some(error_at(start, Kind::WouldRound, what, "send one between -2^63 and 2^64-1"));
        }
        Ok(number)
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.at += 1;
        let chunk = self.chunk()?;
        if self.bytes[self.at] == b'"' {
            self.at += 1;
            return Ok(Cow::Borrowed(chunk));
        }
        let mut string = chunk.to_owned();
        while self.bytes[self.at] == b'\\' {
            string.push(self.escape()?);
            string.push_str(self.chunk()?);
        }
        self.at += 1;
        Ok(Cow::Owned(string))
    }

    /// The text up to the next quote or backslash, one of which is there.
    fn chunk(&mut self) -> Result<&'a str> {
        let start = self.at;
        self.at += plain_prefix(&self.bytes[start..]);
        match self.peek() {
            Some(b'"' | b'\\') => Ok(&self.text[start..self.at]),
            None => Err(self.truncated()),
            Some(_) => {
                let what = "a string holds a raw control character";
                Err(self.error(Kind::ControlCharacter, what, "escape it, a line break as \\n"))
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let start = self.at;
        self.at += 1;
        let letter = self.peek().ok_or_else(|| self.truncated())?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(start),
            _ => return Err(bad_escape(start)),
        })
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char> {
        let first = self.hex4(start)?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let second_follows = first < 0xdc00 && self.bytes[self.at..].starts_with(b"\\u");
        if second_follows {
            self.at += 2;
            let second = self.hex4(start)?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).ok_or_else(|| bad_escape(start));
            }
        }
        let what = "a \\u escape is half of a surrogate pair";
        Err(error_at(start, Kind::LoneSurrogate, what, "send the character itself or both halves"))
    }

    fn hex4(&mut self, start: usize) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or_else(|| self.truncated())?;
            let digit = char::from(byte).to_digit(16).ok_or_else(|| bad_escape(start))?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, wanted: &str) -> ReadError {
        match self.text[self.at..].chars().next() {
            None => self.truncated(),
            Some(found) => {
                let what = format!("{found:?} stands where {wanted} should");
                self.error(Kind::Unexpected, &what, "send plain JSON")
            }
        }
    }

    fn truncated(&self) -> ReadError {
        error_at(self.bytes.len(), Kind::Truncated, "the text ends too early", "send the whole JSON value")
    }

    fn error(&self, kind: Kind, what: &str, instead: &str) -> ReadError {
        error_at(self.at, kind, what, instead)
    }
}

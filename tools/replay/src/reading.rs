//! The harness's own reading of JSON: slow, plain and exact, and independent of the guard's.
//!
//! Whether two calls mean the same is decided here, by writing both in one fixed form and comparing the texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Deeper nesting than this is refused, as the guard does by default.
const MAX_DEPTH: usize = 128;

/// A JSON value. Numbers keep their digits, objects their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number
    Number(Decimal),
    /// A string
    Text(String),
    /// An array
    List(Vec<Json>),
    /// An object
    Object(Vec<(String, Json)>),
}

/// A number as digits × 10^exponent, without leading or trailing zeros; zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decimal {
    /// Whether it is below zero.
    pub negative: bool,
    /// Decimal digits.
    pub digits: String,
    /// Power of ten of the last digit.
    pub exponent: i64,
    /// The text it was read from.
    pub written: String,
}

/// What a call means: its tool and its arguments in one fixed form. Equal meanings are equal texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Meaning(Arc<str>);

impl Meaning {
    /// The meaning of a call of `tool` with these arguments.
    pub fn new(tool: &str, arguments: &Json) -> Self {
        let mut text = format!("{tool:?} ");
        fixed_form(arguments, &mut text);
        Self(text.into())
    }
}

impl std::fmt::Display for Meaning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn fixed_form(json: &Json, out: &mut String) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => {
            let sign = if number.negative { "-" } else { "" };
            let _ = write!(out, "{sign}{}e{}", number.digits, number.exponent);
        }
        Json::Text(text) => {
            let _ = write!(out, "{text:?}");
        }
        Json::List(items) => {
            out.push('[');
            items.iter().for_each(|item| {
                fixed_form(item, out);
                out.push(',');
            });
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (name, value) in members.iter().map(|(name, value)| (name, value)).collect::<BTreeMap<_, _>>() {
                let _ = write!(out, "{name:?}:");
                fixed_form(value, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}

/// The arguments of a call: one JSON object; nothing or `null` stands for an empty one.
///
/// # Errors
/// What is wrong with the text, if a guard has to refuse it.
pub fn arguments(text: &str) -> Result<Json, String> {
    if text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
        return Ok(Json::Object(Vec::new()));
    }
    match read(text)? {
        Json::Null => Ok(Json::Object(Vec::new())),
        object @ Json::Object(_) => Ok(object),
        _ => Err("it is not an object".to_owned()),
    }
}

/// One JSON value.
///
/// # Errors
/// What is wrong with the text and at which byte.
pub fn read(text: &str) -> Result<Json, String> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blanks();
    if reader.at < text.len() { Err(reader.wrong("nothing should follow the value")) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("{what}, at byte {}", self.at + 1)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn takes(&mut self, word: &str) -> bool {
        let found = self.text[self.at..].starts_with(word);
        if found {
            self.at += word.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(self.wrong("it is nested too deeply"));
        }
        self.blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.list(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number().map(Json::Number),
            Some(_) if self.takes("null") => Ok(Json::Null),
            Some(_) if self.takes("true") => Ok(Json::Bool(true)),
            Some(_) if self.takes("false") => Ok(Json::Bool(false)),
            Some(_) => Err(self.wrong("this is no JSON value")),
            None => Err(self.wrong("the text ends too early")),
        }
    }

    /// After a member of a list or object: whether another follows.
    fn another(&mut self, end: &str) -> Result<bool, String> {
        self.blanks();
        match (self.takes(","), self.takes(end)) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => Err(self.wrong(&format!("a comma or {end:?} should stand here"))),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.takes("]") {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if !self.another("]")? {
                return Ok(Json::List(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, String> {
        self.at += 1;
        let mut members: Vec<(String, Json)> = Vec::new();
        self.blanks();
        if self.takes("}") {
            return Ok(Json::Object(members));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a name should stand here"));
            }
            let name = self.string()?;
            if members.iter().any(|(other, _)| *other == name) {
                return Err(self.wrong(&format!("the name {name:?} stands there twice")));
            }
            self.blanks();
            if !self.takes(":") {
                return Err(self.wrong("a colon should stand here"));
            }
            members.push((name, self.value(depth + 1)?));
            if !self.another("}")? {
                return Ok(Json::Object(members));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(next) = self.text[self.at..].chars().next() else {
                return Err(self.wrong("the text ends inside a string"));
            };
            match next {
                '"' => {
                    self.at += 1;
                    return Ok(text);
                }
                '\\' => text.push(self.escape()?),
                '\0'..='\x1f' => return Err(self.wrong("a control character stands in a string")),
                _ => {
                    self.at += next.len_utf8();
                    text.push(next);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.at += 1;
        let escaped = self.peek().ok_or_else(|| self.wrong("the text ends inside a string"))?;
        let plain = match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\x08',
            b'f' => '\x0c',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(self.wrong("there is no such escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, String> {
        let first = self.unit()?;
        let code = match first {
            0xd800..=0xdbff if self.takes("\\") => match self.unit()? {
                second @ 0xdc00..=0xdfff => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                _ => first,
            },
            _ => first,
        };
        char::from_u32(code).ok_or_else(|| self.wrong("half a surrogate pair stands alone"))
    }

    /// `u` and four hex digits.
    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at + 1..self.at + 5).filter(|_| self.peek() == Some(b'u'));
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.wrong("four hex digits should follow \\u"))?;
        self.at += 5;
        Ok(unit)
    }

    fn digits(&mut self) -> Result<&str, String> {
        let from = self.at;
        while self.peek().is_some_and(|digit| digit.is_ascii_digit()) {
            self.at += 1;
        }
        if from == self.at { Err(self.wrong("a digit should stand here")) } else { Ok(&self.text[from..self.at]) }
    }

    fn number(&mut self) -> Result<Decimal, String> {
        let from = self.at;
        let negative = self.takes("-");
        let whole = self.digits()?.to_owned();
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(self.wrong("a number may not begin with 0"));
        }
        let part = if self.takes(".") { self.digits()?.to_owned() } else { String::new() };
        let mut exponent = 0;
        if self.takes("e") || self.takes("E") {
            let sign = if self.takes("-") { -1 } else { 1 };
            if sign > 0 {
                self.takes("+");
            }
            let size = self.digits()?.parse::<i64>().unwrap_or(i64::MAX);
            exponent = sign * size;
        }
        let written = &self.text[from..self.at];
        if written.len() > 128 || exponent.abs() > 308 {
            return Err(self.wrong("a number is out of range"));
        }
        Ok(decimal(negative, &whole, &part, exponent, written))
    }
}

fn decimal(negative: bool, whole: &str, part: &str, exponent: i64, written: &str) -> Decimal {
    let all = format!("{whole}{part}");
    let digits = all.trim_start_matches('0').trim_end_matches('0').to_owned();
    let zeros = all.len() - all.trim_end_matches('0').len();
    let exponent = exponent - part.len() as i64 + zeros as i64;
    match digits.is_empty() {
        true => Decimal { negative: false, digits, exponent: 0, written: written.to_owned() },
        false => Decimal { negative, digits, exponent, written: written.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(text: &str) -> Meaning {
        Meaning::new("t", &arguments(text).unwrap())
    }

    #[test]
    fn equal_values_have_equal_meanings() {
        for other in
            [r#"{"b":[1.0,-0],"a":"é"}"#, "{\"a\" : \"\\u00e9\",\n\"b\":[1e0, 0.00]}", r#"{"b":[10e-1,0e9],"a":"é"}"#]
        {
            assert_eq!(meaning(r#"{"a":"é","b":[1,0]}"#), meaning(other), "{other}");
        }
        assert_eq!(meaning(""), meaning("null"));
    }

    #[test]
    fn other_values_have_other_meanings() {
        let texts = [
            r#"{"id":9007199254740993}"#,
            r#"{"id":9007199254740992}"#,
            r#"{"id":"9007199254740993"}"#,
            r#"{"id":9007199254740993e1}"#,
            r#"{"id":-9007199254740993}"#,
            r#"{"id":null}"#,
            r#"{"id":[]}"#,
            r#"{"id":{}}"#,
            "{}",
        ];
        let mut meanings: Vec<_> = texts.iter().map(|text| meaning(text)).collect();
        meanings.sort();
        meanings.dedup();
        assert_eq!(meanings.len(), texts.len());
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for text in [
            "{",
            "[]",
            "1",
            r#"{"a":1,"a":2}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":01}"#,
            r#"{"a":1e309}"#,
            "{} {}",
            r#"{"a":1,}"#,
        ] {
            assert!(arguments(text).is_err(), "{text}");
        }
    }
}

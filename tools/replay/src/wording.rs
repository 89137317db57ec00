//! The same meaning in other words: key order, white space, escapes, number layout.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::reading::{Decimal, Json};

/// The value as plain JSON text, its numbers as they were written.
pub fn plain(json: &Json) -> String {
    let mut out = String::new();
    write(json, &mut Style::Plain, &mut out);
    out
}

/// The value in other words, drawn from `rng`.
pub fn reworded(json: &Json, rng: &mut Rng) -> String {
    let mut out = String::new();
    write(json, &mut Style::Drawn(rng), &mut out);
    out
}

enum Style<'a> {
    Plain,
    Drawn(&'a mut Rng),
}

impl Style<'_> {
    fn blank(&mut self, out: &mut String) {
        if let Self::Drawn(rng) = self
            && rng.u8(..4) == 0
        {
            out.push_str([" ", "\n", "\t", "  ", "\r\n"][rng.usize(..5)]);
        }
    }

    fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        if let Self::Drawn(rng) = self {
            rng.shuffle(&mut order);
        }
        order
    }

    fn number(&mut self, number: &Decimal) -> String {
        match self {
            Self::Plain => number.written.clone(),
            Self::Drawn(rng) => other_number(number, rng),
        }
    }

    /// Whether to write a character that needs no escape with one.
    fn escapes(&mut self) -> bool {
        match self {
            Self::Plain => false,
            Self::Drawn(rng) => rng.u8(..12) == 0,
        }
    }
}

fn write(json: &Json, style: &mut Style<'_>, out: &mut String) {
    style.blank(out);
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => out.push_str(&style.number(number)),
        Json::Text(text) => string(text, style, out),
        Json::List(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(item, style, out);
            }
            style.blank(out);
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (n, at) in style.order(members.len()).into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                style.blank(out);
                string(&members[at].0, style, out);
                style.blank(out);
                out.push(':');
                write(&members[at].1, style, out);
            }
            style.blank(out);
            out.push('}');
        }
    }
    style.blank(out);
}

fn string(text: &str, style: &mut Style<'_>, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let must = matches!(c, '"' | '\\' | '\0'..='\x1f');
        match c {
            '"' | '\\' if !style.escapes() => out.extend(['\\', c]),
            '/' if style.escapes() => out.push_str("\\/"),
            '\n' if !style.escapes() => out.push_str("\\n"),
            _ if must || style.escapes() => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                let _ = write!(out, "\\u{unit:04x}");
            }),
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// 5 as 5, 5.0, 5e0, 50e-1 or 500E-2.
fn other_number(number: &Decimal, rng: &mut Rng) -> String {
    let Decimal { negative, digits, exponent, written } = number;
    if digits.is_empty() {
        return ["0", "0.0", "-0", "0e5"][rng.usize(..4)].to_owned();
    }
    if digits.len() > 30 || exponent.abs() > 30 {
        return written.clone();
    }
    let sign = if *negative { "-" } else { "" };
    match rng.u8(..5) {
        0 if !written.contains(['.', 'e', 'E']) => format!("{written}.0"),
        1 => format!("{sign}{digits}e{exponent}"),
        2 => format!("{sign}{digits}0e{}", exponent - 1),
        3 => format!("{sign}{digits}00E{}", exponent - 2),
        _ => written.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Meaning, arguments};

    #[test]
    fn other_words_mean_the_same() {
        let text =
            r#"{"z":{"k":"a/b \"q\"\\ é😀\n\u0001"},"n":[1,0,-2.50,120,1e3,9007199254740993],"t":true,"x":null}"#;
        let json = arguments(text).unwrap();
        let mut texts = std::collections::HashSet::new();
        for seed in 0..300 {
            let other = reworded(&json, &mut Rng::with_seed(seed));
            let read = arguments(&other).unwrap_or_else(|why| panic!("{other}: {why}"));
            assert_eq!(Meaning::new("t", &json), Meaning::new("t", &read), "{other}");
            texts.insert(other);
        }
        assert!(texts.len() > 250);
        assert_eq!(Meaning::new("t", &json), Meaning::new("t", &arguments(&plain(&json)).unwrap()));
    }
}

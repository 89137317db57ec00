//! What JSON means, slow and plain, and the many ways to write it. `tests/fuzz` includes this file, too.

use std::collections::BTreeMap;

use fastrand::Rng;

/// A value as it is meant. Equality is that of meaning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meant {
    Null,
    Bool(bool),
    /// Negative, digits without zeros at either end, power of ten of the last digit. Zero has no digits.
    Number(bool, Vec<u8>, i32),
    String(String),
    Array(Vec<Meant>),
    Object(BTreeMap<String, Meant>),
}

/// One of the many ways to write it.
pub(crate) fn text(meant: &Meant, random: &mut Rng) -> String {
    let space = |random: &mut Rng| ["", "", " ", "\n\t"][random.usize(..4)];
    let body = match meant {
        Meant::Null => "null".to_owned(),
        Meant::Bool(value) => value.to_string(),
        Meant::Number(negative, digits, power) => number_text(*negative, digits, *power, random),
        Meant::String(text) => quoted(text, random),
        Meant::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| text(item, random)).collect();
            format!("[{}]", items.join(","))
        }
        Meant::Object(members) => {
            let mut members: Vec<(&String, &Meant)> = members.iter().collect();
            random.shuffle(&mut members);
            let written: Vec<String> = members
                .into_iter()
                .map(|(name, member)| format!("{}{}:{}", quoted(name, random), space(random), text(member, random)))
                .collect();
            format!("{{{}{}}}", space(random), written.join(","))
        }
    };
    format!("{}{body}{}", space(random), space(random))
}

/// The digits with zeros at their end, a point anywhere in them, and the exponent that makes up for it.
fn number_text(negative: bool, digits: &[u8], power: i32, random: &mut Rng) -> String {
    let sign = if negative || digits.is_empty() && random.bool() { "-" } else { "" };
    let more = random.i32(0..4);
    let mut all: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
    all.extend((0..more).map(|_| '0'));
    if all.is_empty() {
        return format!("{sign}0");
    }
    let point = random.usize(1..=all.len());
    let (whole, rest) = all.split_at(point);
    let whole = if whole.starts_with('0') { "0" } else { whole };
    let power = power - more + i32::try_from(rest.len()).unwrap();
    let rest = if rest.is_empty() { String::new() } else { format!(".{rest}") };
    let exponent = match power {
        0 if random.bool() => String::new(),
        power => {
            format!("{}{}{power}", ["e", "E"][random.usize(..2)], if power >= 0 && random.bool() { "+" } else { "" })
        }
    };
    format!("{sign}{whole}{rest}{exponent}")
}

fn quoted(text: &str, random: &mut Rng) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        let must = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
        if must || random.u8(..4) == 0 {
            let mut units = [0; 2];
            character.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(character);
        }
    }
    out.push('"');
    out
}

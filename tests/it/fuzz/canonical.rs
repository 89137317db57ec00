//! The canonical form against a slow and plain one: whatever two texts look like, they have one canonical text exactly if
//! they mean the same.

use fastrand::Rng;
use toolonce::canonical::{Limits, read, write};

use super::meant::{Meant, text};

fn string(random: &mut Rng) -> String {
    const SCRAPS: [&str; 12] =
        ["a", "b", "A", "\"", "\\", "\n", "\u{1}", "é", "e\u{301}", "\u{ffff}", "\u{1f602}", "/"];
    (0..random.usize(..4)).map(|_| SCRAPS[random.usize(..SCRAPS.len())]).collect()
}

fn number(random: &mut Rng) -> Meant {
    let mut digits: Vec<u8> = (0..random.usize(..22)).map(|_| random.u8(..10)).collect();
    let mut power = random.i32(-20..20);
    while digits.last() == Some(&0) {
        digits.pop();
        power += 1;
    }
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..zeros);
    match digits.is_empty() {
        true => Meant::Number(false, digits, 0),
        false => Meant::Number(random.bool(), digits, power),
    }
}

fn value(random: &mut Rng, depth: u32) -> Meant {
    match random.u8(..if depth > 0 { 8 } else { 5 }) {
        0 => Meant::Null,
        1 => Meant::Bool(random.bool()),
        2 | 3 => number(random),
        4 => Meant::String(string(random)),
        5 => Meant::Array((0..random.usize(..4)).map(|_| value(random, depth - 1)).collect()),
        _ => Meant::Object((0..random.usize(..4)).map(|_| (string(random), value(random, depth - 1))).collect()),
    }
}

/// A value that differs a little, or not at all.
fn neighbour(meant: &Meant, random: &mut Rng) -> Meant {
    match meant {
        Meant::Number(negative, digits, power) if !digits.is_empty() => match random.u8(..4) {
            0 => Meant::Number(!negative, digits.clone(), *power),
            1 => Meant::Number(*negative, digits.clone(), power + 1),
            2 => {
                let mut digits = digits.clone();
                let last = digits.len() - 1;
                digits[last] = digits[last] % 9 + 1;
                Meant::Number(*negative, digits, *power)
            }
            _ => meant.clone(),
        },
        Meant::Array(items) if !items.is_empty() => {
            let mut items = items.clone();
            let at = random.usize(..items.len());
            items[at] = neighbour(&items[at], random);
            Meant::Array(items)
        }
        Meant::Object(members) if !members.is_empty() => {
            let mut members = members.clone();
            let at = random.usize(..members.len());
            if let Some(member) = members.values_mut().nth(at) {
                *member = neighbour(member, random);
            }
            Meant::Object(members)
        }
        Meant::String(text) if random.bool() => Meant::String(format!("{text}{}", string(random))),
        other if random.bool() => other.clone(),
        _ => value(random, 1),
    }
}

fn canonical(text: &str) -> String {
    write(&read(text, &Limits::default()).unwrap_or_else(|error| panic!("{text:?}: {error}")))
}

#[test]
fn one_meaning_has_one_text_and_another_has_another() {
    for mut random in super::rounds(20_000) {
        let meant = value(&mut random, 3);
        let other = neighbour(&meant, &mut random);
        let (first, again) = (canonical(&text(&meant, &mut random)), canonical(&text(&meant, &mut random)));
        assert_eq!(first, again, "{meant:?}");
        assert_eq!(canonical(&first), first, "the canonical text of a canonical text");
        let theirs = canonical(&text(&other, &mut random));
        assert_eq!(meant == other, first == theirs, "{meant:?} and {other:?}: {first} and {theirs}");
    }
}

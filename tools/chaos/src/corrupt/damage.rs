//! What can be done to the files of a closed store.

use crate::files::Files;
use crate::workload::STORE;

/// Copies of a store: as it was closed, and as it was closed some calls earlier.
#[derive(Debug)]
pub(super) struct Copies {
    pub(super) now: Files,
    pub(super) older: Files,
}

/// One kind of damage to one file or to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    Bit,
    Bytes,
    Sector,
    Page,
    Tail,
    Anywhere,
    Appended,
    Deleted,
    Exchanged,
    OlderFile,
    OlderDirectory,
    NoDirectory,
    NewerFormat,
}

impl Damage {
    fn random(random: &mut fastrand::Rng) -> Self {
        match random.u8(..100) {
            0..32 => Self::Bit,
            32..45 => Self::Bytes,
            45..58 => Self::Sector,
            58..64 => Self::Page,
            64..74 => Self::Tail,
            74..82 => Self::Anywhere,
            82..85 => Self::Appended,
            85..89 => Self::Deleted,
            89..92 => Self::Exchanged,
            92..95 => Self::OlderFile,
            95..97 => Self::OlderDirectory,
            97 => Self::NoDirectory,
            _ => Self::NewerFormat,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bit => "flipped-bit",
            Self::Bytes => "random-bytes",
            Self::Sector => "zeroed-sector",
            Self::Page => "zeroed-page",
            Self::Tail => "torn-tail",
            Self::Anywhere => "truncated",
            Self::Appended => "appended",
            Self::Deleted => "deleted-file",
            Self::Exchanged => "exchanged-files",
            Self::OlderFile => "older-file",
            Self::OlderDirectory => "older-directory",
            Self::NoDirectory => "deleted-directory",
            Self::NewerFormat => "newer-format",
        }
    }
}

/// The files after something was done to them, its name, and where it was done: one thing in seven of eight cases,
/// else two or three.
pub(super) fn damaged(copies: &Copies, random: &mut fastrand::Rng) -> (Files, &'static str, String) {
    loop {
        let damage = Damage::random(random);
        let mut files = copies.now.clone();
        let mut at = apply(damage, &mut files, copies, random);
        // Zeros over zeros, or a copy that isn't older, do nothing: another one.
        if files == copies.now {
            continue;
        }
        if random.u8(..8) != 0 {
            return (files, damage.name(), at);
        }
        for _ in 0..random.u8(1..3) {
            let more = Damage::random(random);
            if !files.is_empty() {
                at = format!("{at}, {} {}", more.name(), apply(more, &mut files, copies, random));
            }
        }
        if files != copies.now {
            return (files, "several", at);
        }
    }
}

/// Does it, and says where.
fn apply(damage: Damage, files: &mut Files, copies: &Copies, random: &mut fastrand::Rng) -> String {
    let name = some_file(files, random);
    let is_in_store = |name: &String| name.starts_with(STORE) && name.as_bytes().get(STORE.len()) == Some(&b'/');
    match damage {
        Damage::NoDirectory => files.retain(|name, _| !is_in_store(name)),
        Damage::OlderDirectory => {
            files.retain(|name, _| !is_in_store(name));
            let older = copies.older.iter().filter(|(name, _)| is_in_store(name));
            files.extend(older.map(|(name, contents)| (name.clone(), contents.clone())));
        }
        Damage::OlderFile => {
            // An older witness knows less and contradicts nothing: that is how it is after each second.
            if let Some(older) = copies.older.get(&name) {
                files.insert(name.clone(), older.clone());
            }
        }
        Damage::Deleted => drop(files.remove(&name)),
        Damage::Exchanged => {
            let other = some_file(files, random);
            let (one, two) = (files.remove(&name).unwrap_or_default(), files.remove(&other).unwrap_or_default());
            if name != other {
                files.insert(name.clone(), two);
                files.insert(other.clone(), one);
            } else {
                files.insert(name.clone(), one);
            }
            return format!("{name} and {other}");
        }
        Damage::NewerFormat => {
            let formats = files.values_mut().filter(|contents| contents.starts_with(b"toolonce "));
            let mut formats = formats.collect::<Vec<_>>();
            if formats.is_empty() {
                return name;
            }
            let n = random.usize(..formats.len());
            let text = String::from_utf8_lossy(formats[n]).replace("\nformat 1\n", "\nformat 2\n");
            *formats[n] = text.into_bytes();
        }
        _ => {
            let contents = files.entry(name.clone()).or_default();
            return format!("{name} at {}", damage_contents(damage, contents, random));
        }
    }
    name
}

/// The log in two of three cases, sled's or the one in front of it: the rest is small.
fn some_file(files: &Files, random: &mut fastrand::Rng) -> String {
    let log = format!("{STORE}/db");
    let journal = files.keys().find(|name| name.contains("/toolonce.journal."));
    match (random.u8(..3), journal) {
        (1, Some(journal)) => return journal.clone(),
        (1 | 2, _) if files.contains_key(&log) => return log,
        _ => {}
    }
    files.keys().nth(random.usize(..files.len())).cloned().unwrap_or(log)
}

fn damage_contents(damage: Damage, contents: &mut Vec<u8>, random: &mut fastrand::Rng) -> usize {
    // Most of a log's last segment was never written: damage to what was is what matters.
    let used = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if used == 0 {
        return 0;
    }
    let at = random.usize(..used);
    let zero = |contents: &mut [u8], unit: usize| {
        let begin = at / unit * unit;
        let end = contents.len().min(begin + unit);
        contents[begin..end].fill(0);
    };
    match damage {
        Damage::Bit => contents[at] ^= 1 << random.u8(..8),
        Damage::Bytes => {
            let end = contents.len().min(at + random.usize(1..64));
            random.fill(&mut contents[at..end]);
        }
        Damage::Sector => zero(contents, 512),
        Damage::Page => zero(contents, 4096),
        Damage::Tail => {
            let at = used.saturating_sub(random.usize(1..2_000));
            contents.truncate(at);
            return at;
        }
        Damage::Anywhere => contents.truncate(at),
        Damage::Appended => {
            let mut more = vec![0; random.usize(1..2_000)];
            random.fill(&mut more);
            contents.truncate(used);
            contents.extend(more);
        }
        _ => {}
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_always_done_and_every_kind_is_met() {
        let files = |text: &str| {
            let names = ["store/db", "store/conf", "store/toolonce.store", "store.witness"];
            names.map(|name| (name.to_owned(), format!("toolonce {name}\nformat 1\n{text}").into_bytes())).into()
        };
        let copies = Copies { now: files("now"), older: files("older") };
        let mut random = fastrand::Rng::with_seed(3);
        let mut met = std::collections::BTreeSet::new();
        for _ in 0..2_000 {
            let (files, name, _) = damaged(&copies, &mut random);
            assert_ne!(files, copies.now);
            met.insert(name);
        }
        assert_eq!(met.len(), 14);
    }
}

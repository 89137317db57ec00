//! Without an engine that goes by coverage random bytes get nowhere: what once got far gets there damaged, too.

use std::fs;
use std::path::Path;

use fastrand::Rng;

use super::checks;

#[test]
fn damaged_corpora() {
    let targets: [(&str, fn(&[u8])); 4] = [
        ("arguments", checks::arguments),
        ("canonical", checks::canonical),
        ("record", checks::record),
        ("rows", checks::rows),
    ];
    for (name, target) in targets {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__").join(name).join("corpus");
        let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(corpus.len() > 10, "{name}");
        for seed in 0..3_000 {
            let damaged = damaged(&corpus, &mut Rng::with_seed(seed));
            std::panic::catch_unwind(|| target(&damaged)).unwrap_or_else(|_| panic!("{name} {seed}: {damaged:?}"));
        }
    }
}

fn damaged(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, random.u8(..)),
            3 => bytes.truncate(at),
            _ => {
                let other = &corpus[random.usize(..corpus.len())];
                bytes.splice(at.., other[random.usize(..=other.len())..].iter().copied());
            }
        }
    }
    bytes
}

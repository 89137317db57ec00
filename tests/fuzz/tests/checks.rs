//! What is checked: each takes any bytes and panics if something is wrong with what the library makes of them.

use fastrand::Rng;
use toolonce::canonical::{Limits, ReadErrorKind, read, read_bytes, write};
use toolonce::key::digest;
use toolonce::protocol::bytes::{VERSION, decode, encode};
use toolonce::row_again;

use super::meant::{self, Meant};

const LIMITS: Limits = Limits { bytes: 1 << 20, depth: 128 };

/// Of each byte that is read so many may be allocated at most, at a time: a list grows by doubling, and the shortest
/// record, of 15 bytes, takes some 700 in memory.
const FACTOR: u64 = 200;
/// What may be allocated for nothing.
const FLOOR: u64 = 4096;

/// The reader of arguments and serde_json, which each level is read with on its own here: both accept the same and take it
/// for the same, but for what RFC 8259 leaves open.
pub(crate) fn arguments(bytes: &[u8]) {
    let theirs = std::str::from_utf8(bytes).ok().and_then(Meant::read);
    match (read_bytes(bytes, &LIMITS), theirs) {
        (Ok(ours), Some(theirs)) => {
            assert_eq!(Meant::of(&ours), theirs);
            let _ = toolonce::canonical::Arguments::read_bytes(bytes, &LIMITS);
        }
        (Ok(ours), None) => panic!("only we accept {ours:?}"),
        (Err(error), theirs) => {
            assert!(error.offset() <= bytes.len() && !error.to_string().is_empty());
            let is_ours = matches!(
                error.kind(),
                ReadErrorKind::DuplicateKey
                    | ReadErrorKind::NumberOutOfRange
                    | ReadErrorKind::NumberTooLong
                    | ReadErrorKind::TooDeep
            );
            assert!(theirs.is_none() || is_ours, "only we refuse: {error}");
        }
    }
}

/// Two texts, with 0xff between them, have one canonical text exactly if they mean the same. One text has that of another
/// spelling of it, and so has its canonical text.
pub(crate) fn canonical(bytes: &[u8]) {
    let texts = bytes.splitn(2, |byte| *byte == 0xff).filter_map(|bytes| std::str::from_utf8(bytes).ok());
    let known: Vec<(Meant, String)> = texts.filter_map(known).collect();
    for (meant, canonical) in &known {
        assert_eq!(write(&read(canonical, &LIMITS).unwrap()), *canonical, "the canonical text of a canonical text");
        let spelt = meant::text(meant, &mut Rng::with_seed(canonical.len() as u64));
        // A spelling may have more digits, or a written exponent farther out, than a number may have.
        match read(&spelt, &LIMITS) {
            Ok(again) => assert_eq!(write(&again), *canonical, "{spelt}"),
            Err(error) => {
                let is_spelling =
                    matches!(error.kind(), ReadErrorKind::NumberTooLong | ReadErrorKind::NumberOutOfRange);
                assert!(is_spelling, "{spelt}: {error}");
            }
        }
    }
    if let [(meant, canonical), (other, theirs)] = &known[..] {
        assert_eq!(meant == other, canonical == theirs, "{meant:?} and {other:?}: {canonical} and {theirs}");
    }
}

fn known(text: &str) -> Option<(Meant, String)> {
    let node = read(text, &LIMITS).ok()?;
    Some((Meant::read(text)?, write(&node)))
}

/// The bytes as a base record, and as one's payload under a checksum that matches.
pub(crate) fn record(bytes: &[u8]) {
    let mut whole = [&[VERSION], bytes].concat();
    let sum = digest("toolonce record", &whole).0;
    whole.extend_from_slice(&sum[..8]);
    for bytes in [bytes, &whole] {
        let base = within(bytes, || decode(bytes).ok());
        if let Some(base) = base {
            assert_eq!(decode(&encode(&base)), Ok(base));
        }
    }
}

/// The first byte says which row of a guard the rest is the payload of.
pub(crate) fn rows(bytes: &[u8]) {
    let Some((kind, payload)) = bytes.split_first() else { return };
    if let Some(written) = within(payload, || row_again(*kind, payload)) {
        assert_eq!(row_again(*kind, &written).as_ref(), Some(&written));
        assert_eq!(written, payload, "a row has one form only");
    }
}

/// What `read` makes of `bytes`, which may not take much more memory than they do.
fn within<T>(bytes: &[u8], read: impl FnOnce() -> T) -> T {
    let mut value = None;
    let peak = allocation_counter::measure(|| value = Some(read())).bytes_max;
    assert!(peak <= FACTOR * bytes.len() as u64 + FLOOR, "{peak} bytes for {}", bytes.len());
    value.unwrap()
}

//! The test data of RFC 8785, with the differences that tests/golden/README.md lists.

use std::fs;
use std::path::{Path, PathBuf};

use toolonce::canonical::{Limits, ReadErrorKind, read, read_bytes, write};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/jcs")
}

#[test]
fn documents() -> Result<(), Box<dyn std::error::Error>> {
    for name in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let file = format!("{name}.json");
        let input = fs::read(directory().join("input").join(&file))?;
        let expected = fs::read_to_string(directory().join("output").join(&file))?;
        // The double nearest to 333333333.33333329 is written 333333333.3333333; we keep what was sent.
        let expected = expected.replace("333333333.3333333", "333333333.33333329");
        assert_eq!(write(&read_bytes(&input, &Limits::default())?), expected, "{name}");
    }
    Ok(())
}

#[test]
fn numbers() -> Result<(), Box<dyn std::error::Error>> {
    for line in fs::read_to_string(directory().join("es6-part.txt"))?.lines() {
        let (bits, expected) = line.split_once(',').ok_or("a line lacks its comma")?;
        let double = f64::from_bits(u64::from_str_radix(bits, 16)?);
        // Three spellings of the shortest text: ours to reproduce, in plain digits, and with an exponent.
        for text in [expected.to_owned(), double.to_string(), format!("{double:e}")] {
            match read(&text, &Limits::default()) {
                Ok(node) => assert_eq!(write(&node), expected, "{line}: {text}"),
                Err(error) if text.len() > 128 => assert_eq!(error.kind(), ReadErrorKind::NumberTooLong, "{line}"),
                Err(error) => {
                    assert_eq!(error.kind(), ReadErrorKind::NumberOutOfRange, "{line}: {text}");
                    assert!(double.abs() < 1e-308, "{line}: {text}");
                }
            }
        }
    }
    Ok(())
}

//! The golden vectors hold whatever features of serde_json the build has switched on.

use std::path::Path;

use serde_json::Value;
use toolonce::canonical::{Arguments, Limits, write};

#[path = "../../golden/runner.rs"]
mod runner;

#[test]
fn golden_vectors_hold() -> Result<(), Box<dyn std::error::Error>> {
    runner::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden"))
}

#[test]
fn parsed_values_have_the_key_of_their_text() -> Result<(), Box<dyn std::error::Error>> {
    for text in [r#"{"b":1.50,"a":[1e2,-0.0,18446744073709551615],"\u0061a":"é"}"#, "{}", r#"{"x":1E-7}"#] {
        let value: Value = serde_json::from_str(text)?;
        let limits = Limits::default();
        let (read, parsed) = (Arguments::read(text, &limits)?, Arguments::from_value(&value, &limits)?);
        assert_eq!(write(read.root()), write(parsed.root()));
    }
    Ok(())
}

//! The canonical form is a storage format: the golden vectors hold.

use std::path::Path;

#[path = "../golden/runner.rs"]
mod runner;

#[test]
fn golden_vectors_hold() -> Result<(), Box<dyn std::error::Error>> {
    runner::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
}

//! How long it takes from the text of a call's arguments to its key and fingerprint.
//!
//! `cargo run --release --no-default-features --example measure_keys`

use std::hint::black_box;
use std::time::Instant;

use toolonce::canonical::{Arguments, Limits, Shape};
use toolonce::key::{KeyParts, KeyScope, base_key};

const ROUNDS: u32 = 200;
/// Many short samples: the best of them was hardly disturbed by whatever else the machine does.
const SAMPLES: u32 = 2_000;
const TEXT: &str = r#"{"order_id": "ord_81723645", "customer": {"id": 4711, "email": "ada.lovelace@example.com", "name": "Ada Lovelace"},
 "amount": 129.90, "currency": "eur",
 "items": [{"sku": "PEN-BLUE-01", "quantity": 3, "price": 4.30},
 {"sku": "NOTEBOOK-A5-DOT", "quantity": 1, "price": 117.0}],
 "capture": true, "coupon": null, "note": "Please leave the parcel at the back door.",
 "reason": "The customer asked for it \"today\"."}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let open = serde_json::json!({ "type": "object" });
    let hinted = serde_json::json!({
        "type": "object",
        "properties": {
            "order_id": { "type": "string", "x-toolonce": "identity" },
            "customer": { "type": "object", "properties": { "email": { "type": "string", "x-toolonce": "casefold" } } },
            "amount": { "type": "number" },
            "currency": { "type": "string", "default": "eur" },
            "coupon": { "type": "string" },
            "note": { "type": "string", "x-toolonce": ["content", "trim"] },
            "reason": { "type": "string", "x-toolonce": "ignore" }
        }
    });
    println!("{} bytes of arguments, best of {SAMPLES} times {ROUNDS} calls", TEXT.len());
    for (name, schema) in [("no hints", &open), ("hints and defaults", &hinted)] {
        let shape = Shape::compile(schema)?;
        println!("{name:20} read      {:7.0} ns", best(|| read(TEXT).is_ok()));
        let arguments = read(TEXT)?;
        println!("{name:20} normalise {:7.0} ns", best(|| shape.normalise(&arguments).is_ok()));
        println!("{name:20} all       {:7.0} ns", best(|| whole(&shape, TEXT).is_ok()));
    }
    Ok(())
}

fn read(text: &str) -> Result<Arguments<'_>, toolonce::canonical::ReadError> {
    Arguments::read(black_box(text), &Limits::default())
}

fn whole(shape: &Shape, text: &str) -> Result<toolonce::key::BaseKey, Box<dyn std::error::Error>> {
    let normalised = shape.normalise(&read(text)?)?;
    let parts = KeyParts {
        namespace: "shop",
        scope: KeyScope::Run("run-2026-03-01-0001"),
        tool: "charge_card",
        context: &[],
        identity: normalised.identity_digest,
        again: 0,
    };
    black_box(normalised.fingerprint);
    Ok(base_key(&parts))
}

/// Nanoseconds a call.
fn best(mut call: impl FnMut() -> bool) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..SAMPLES {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            assert!(black_box(call()));
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(ROUNDS));
    }
    best * 1e9
}

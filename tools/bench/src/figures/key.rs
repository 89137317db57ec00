//! From argument text to key.

use std::hint::black_box;
use std::time::Instant;

use toolonce::canonical::{Arguments, Limits, Shape};
use toolonce::key::{BaseKey, KeyParts, KeyScope, base_key};

use super::{Bench, ROUNDS};
use crate::stage::arguments;
use crate::stats::{Times, median};
use crate::table::{Row, Unit};

/// Arguments of some size, and the schema of the tool.
pub struct Sample {
    /// As the model wrote them.
    pub text: String,
    /// As the tool takes them.
    pub shape: Shape,
}

impl Sample {
    fn new(text: String, schema: &serde_json::Value) -> anyhow::Result<Self> {
        Ok(Self { text, shape: Shape::compile(schema)? })
    }

    /// Flat, of 80 bytes.
    ///
    /// # Errors
    /// None: the schema is good.
    pub fn small() -> anyhow::Result<Self> {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {
                "customer": { "type": "string" }, "cents": { "type": "integer" }, "order": { "type": "string" }
            },
            "required": ["customer", "cents", "order"]
        });
        Self::new(arguments(7), &schema)
    }

    /// Nested, with a list and a default, of 400 bytes.
    ///
    /// # Errors
    /// None: the schema is good.
    pub fn medium() -> anyhow::Result<Self> {
        let schema = serde_json::json!({
            "type": "object",
            "properties": {
                "order_id": { "type": "string" },
                "customer": { "type": "object", "properties": { "email": { "type": "string" } } },
                "amount": { "type": "number" },
                "currency": { "type": "string", "default": "eur" },
                "coupon": { "type": "string" }
            }
        });
        let text = r#"{"order_id": "ord_81723645", "customer": {"id": 4711, "email": "ada@example.com", "name": "Ada"},
 "amount": 129.90, "currency": "eur", "items": [{"sku": "PEN-BLUE-01", "quantity": 3, "price": 4.30},
 {"sku": "NOTEBOOK-A5-DOT", "quantity": 1, "price": 117.0}], "capture": true, "coupon": null,
 "note": "Please leave it at the \"back door\".", "reason": ""}"#;
        let text = text.replace(r#""reason": """#, &format!(r#""reason": "{}""#, "r".repeat(400 - text.len())));
        Self::new(text, &schema)
    }

    /// A list of small objects, of 1 MB.
    ///
    /// # Errors
    /// None: the schema is good.
    pub fn large() -> anyhow::Result<Self> {
        let mut text = r#"{"orders":["#.to_owned();
        let mut n = 0;
        while text.len() < 1_000_000 - 82 {
            text.extend([arguments(n).as_str(), ","]);
            n += 1;
        }
        text.pop();
        text.push_str("]}");
        Self::new(text, &serde_json::json!({ "type": "object" }))
    }

    /// The key of the call, its fingerprint on the way.
    ///
    /// # Errors
    /// If the arguments can't be read.
    pub fn key(&self) -> anyhow::Result<BaseKey> {
        let arguments = Arguments::read(black_box(&self.text), &Limits::default())?;
        let normalised = self.shape.normalise(&arguments)?;
        black_box(normalised.fingerprint);
        Ok(base_key(&KeyParts {
            namespace: "shop",
            scope: KeyScope::Run("run-2026-03-01-0001"),
            tool: "charge",
            context: &[],
            identity: normalised.identity_digest,
            again: 0,
        }))
    }
}

/// The median of many, each of some repetitions so that the clock doesn't count.
fn micros(sample: &Sample, times: u32, each: u32) -> anyhow::Result<f64> {
    let mut taken = Times::default();
    for _ in 0..times {
        let begun = Instant::now();
        for _ in 0..each {
            black_box(sample.key()?);
        }
        taken.add(begun.elapsed() / each);
    }
    Ok(taken.quantile(0.5))
}

/// In the middle of five rounds.
///
/// # Errors
/// If the arguments can't be read.
pub fn time(sample: &Sample, times: u32, each: u32) -> anyhow::Result<f64> {
    Ok(median((0..ROUNDS).map(|_| micros(sample, times, each)).collect::<anyhow::Result<_>>()?))
}

pub(super) fn rows(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let often = bench.of(20, 200, 1000, 2000);
    let row =
        |size: &str, value, goal| Row::new(format!("key, {size} of arguments"), value, Unit::Micros).at_most(goal);
    Ok(vec![
        row("80 B", time(&Sample::small()?, often, 100)?, 0.8),
        row("400 B", time(&Sample::medium()?, often, 100)?, 2.0),
        row("1 MB", time(&Sample::large()?, often / 20, 1)?, 2500.0),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_named() {
        let sizes = [Sample::small(), Sample::medium(), Sample::large()].map(|sample| sample.unwrap().text.len());
        assert_eq!(&sizes[..2], [80, 400]);
        assert!((999_900..=1_000_000).contains(&sizes[2]), "{}", sizes[2]);
    }
}

//! Runs the golden vectors. Compiled into several test programs; see README.md beside this file.

use std::fs;
use std::path::Path;

use serde_json::Value;
use toolonce::canonical::{Arguments, LeafText, Limits, Normalised, Shape, read, write};
use toolonce::key::{KeyParts, KeyScope, LeafDigest, Secret, base_key};

type Failure = Box<dyn std::error::Error>;

/// Runs every vector in a directory; fails with the first that doesn't hold.
pub(super) fn run(directory: &Path) -> Result<(), Failure> {
    each(&directory.join("texts.json"), text)?;
    each(&directory.join("refused.json"), refused)?;
    each(&directory.join("keys.json"), key)?;
    each(&directory.join("keyed.json"), keyed)
}

fn each(file: &Path, check: fn(&Value) -> Result<(), Failure>) -> Result<(), Failure> {
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(file)?)?;
    assert!(vectors.len() > 20, "{} lacks vectors", file.display());
    for vector in &vectors {
        check(vector).map_err(|error| format!("{}: {vector}: {error}", file.display()))?;
    }
    Ok(())
}

fn text(vector: &Value) -> Result<(), Failure> {
    let node = read(string(vector, "text")?, &Limits::default())?;
    same("canonical", vector, &write(&node))
}

fn refused(vector: &Value) -> Result<(), Failure> {
    match read(string(vector, "text")?, &Limits::default()) {
        Ok(node) => Err(format!("was read as {node:?}").into()),
        Err(error) => same("kind", vector, &format!("{:?}", error.kind())),
    }
}

fn key(vector: &Value) -> Result<(), Failure> {
    let shape = Shape::compile(&vector["schema"])?;
    let normalised = shape.normalise(&Arguments::read(string(vector, "text")?, &Limits::default())?)?;
    let context = context(vector)?;
    let key = base_key(&parts(vector, &context, &normalised)?);
    same("identity", vector, normalised.identity())?;
    same("executed", vector, normalised.executed())?;
    same("fingerprint", vector, &hex(normalised.fingerprint.as_bytes()))?;
    same("key", vector, &hex(key.as_bytes()))?;
    leaves(vector, &normalised, |leaf| key.leaf(leaf.pointer, leaf.value))?;
    let downstream = key.downstream(number(vector, "occurrence")?, number(vector, "generation")?);
    same("hex32", vector, &downstream.hex32())?;
    same("uuid", vector, &downstream.uuid())?;
    same("hex64", vector, &downstream.hex64())?;
    same("reference", vector, &downstream.reference())
}

/// What is derived with a secret.
fn keyed(vector: &Value) -> Result<(), Failure> {
    let shape = Shape::compile(&vector["schema"])?;
    let normalised = shape.normalise(&Arguments::read(string(vector, "text")?, &Limits::default())?)?;
    let context = context(vector)?;
    let secret = Secret::new(string(vector, "secret")?);
    let key = secret.base_key(&parts(vector, &context, &normalised)?);
    same("key", vector, &hex(key.as_bytes()))?;
    same("fingerprint", vector, &hex(secret.fingerprint(normalised.fingerprint).as_bytes()))?;
    let executed = secret.digest("toolonce executed", normalised.executed().as_bytes());
    same("executed_digest", vector, &hex(&executed.0))?;
    leaves(vector, &normalised, |leaf| secret.leaf(&key, leaf.pointer, leaf.value))
}

fn context(vector: &Value) -> Result<Vec<(String, String)>, Failure> {
    Ok(serde_json::from_value(vector["context"].clone())?)
}

fn parts<'a>(
    vector: &'a Value,
    context: &'a [(String, String)],
    normalised: &Normalised,
) -> Result<KeyParts<'a>, Failure> {
    Ok(KeyParts {
        namespace: string(vector, "namespace")?,
        scope: vector["run"].as_str().map_or(KeyScope::Global, KeyScope::Run),
        tool: string(vector, "tool")?,
        context,
        identity: normalised.identity_digest,
        again: 0,
    })
}

fn leaves(
    vector: &Value,
    normalised: &Normalised,
    digest: impl Fn(&LeafText<'_>) -> LeafDigest,
) -> Result<(), Failure> {
    let found = normalised.leaves.iter().map(|leaf| {
        let value = String::from_utf8_lossy(leaf.value).into_owned();
        (leaf.pointer.to_owned(), value, format!("{:016x}", digest(&leaf).to_u64()))
    });
    let found: Vec<(String, String, String)> = found.collect();
    let expected: Vec<(String, String, String)> = serde_json::from_value(vector["leaves"].clone())?;
    if found == expected { Ok(()) } else { Err(format!("the leaves are {found:?}").into()) }
}

fn same(field: &str, vector: &Value, found: &str) -> Result<(), Failure> {
    let expected = string(vector, field)?;
    if found == expected { Ok(()) } else { Err(format!("{field} is {found}").into()) }
}

fn string<'a>(vector: &'a Value, field: &str) -> Result<&'a str, Failure> {
    vector[field].as_str().ok_or_else(|| format!("{field} is no string").into())
}

fn number(vector: &Value, field: &str) -> Result<u32, Failure> {
    let number = vector[field].as_u64().ok_or_else(|| format!("{field} is no number"))?;
    Ok(u32::try_from(number)?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

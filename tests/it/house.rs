//! The house keeps its order: which part may use which, and no module is forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn source() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    found.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The part of the library that a file belongs to.
fn part(file: &str) -> &str {
    file.split('/').next().unwrap().trim_end_matches(".rs")
}

/// What code (not docs, not tests) of a file takes from the crate.
fn uses(text: &str) -> BTreeSet<String> {
    let code = text.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let mut parts = BTreeSet::new();
    for line in code {
        let mut rest = line;
        while let Some(at) = rest.find("crate::") {
            rest = &rest[at + "crate::".len()..];
            let name =
                |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
            match rest.strip_prefix('{') {
                Some(group) => {
                    let group = group.split('}').next().unwrap_or_default();
                    parts.extend(group.split(',').map(|item| name(item.trim())).filter(|item| !item.is_empty()));
                }
                None => drop(parts.insert(name(rest))),
            }
        }
    }
    parts
}

/// Which parts of the house each part may use. Types that are re-exported at the root are named as they are.
const MAY_USE: &[(&str, &[&str])] = &[
    ("canonical", &["key"]),
    ("key", &[]),
    ("provider", &["key"]),
    ("policy", &["key", "provider"]),
    ("clock", &["store"]),
    ("codec", &["key", "codec"]),
    ("protocol", &["key", "policy", "codec", "Millis", "protocol"]),
    ("seal", &["codec", "key", "store"]),
    ("store", &["store"]),
    ("testing", &["store", "Clock", "Millis"]),
];

#[test]
fn the_arrows_point_one_way() {
    let mut checked = 0;
    for (file, text) in source() {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == part(&file)) else { continue };
        for used in uses(&text) {
            assert!(allowed.contains(&used.as_str()), "src/{file} uses crate::{used}, which its part may not");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} files were looked at");
}

#[test]
fn only_adapters_know_an_sdk() {
    for (file, text) in source() {
        let code: String = text.lines().filter(|line| !line.trim().starts_with("//")).collect();
        assert!(!code.contains("async_openai") || part(&file) == "adapter", "src/{file} knows async-openai");
        assert!(!code.contains("sled::") || file.starts_with("store/"), "src/{file} knows sled");
    }
}

#[test]
fn the_protocol_does_no_io_and_knows_no_time() {
    for (file, text) in source().into_iter().filter(|(file, _)| part(file) == "protocol") {
        for word in ["std::fs", "std::net", "std::thread", "tokio", "SystemTime", "Instant", "async fn", ".await"] {
            assert!(!text.contains(word), "src/{file} has {word}");
        }
    }
}

#[test]
fn no_test_module_is_forgotten() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = fs::read_to_string(dir.join("main.rs")).unwrap();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(name == "main" || main.contains(&format!("mod {name};")), "tests/it/{name} is in no build");
    }
}

#[test]
fn nothing_promises_what_nobody_can_keep() {
    for (file, text) in source() {
        let text = text.to_lowercase().replace('-', " ");
        assert!(!text.contains(&["exactly", "once"].join(" ")), "src/{file}");
    }
}

#[test]
fn the_program_of_the_readme_is_the_example_that_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = fs::read_to_string(root.join("examples/quickstart.rs")).unwrap();
    let (_, program) = example.split_once("\n\n").unwrap();
    assert!(fs::read_to_string(root.join("README.md")).unwrap().contains(program));
}

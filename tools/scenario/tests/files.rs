//! Every committed scenario file is in the strict form, and every case holds on both stores.

use std::path::{Path, PathBuf};

use toolonce_scenario::engine::{Job, StoreKind, run_all};
use toolonce_scenario::file::{self, Scenario};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios")
}

/// The scenario files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    files.sort();
    files
}

fn cases(files: &[PathBuf]) -> Vec<Scenario> {
    let read =
        |path: &PathBuf| file::read(path).unwrap_or_else(|problems| panic!("{}: {}", path.display(), problems[0]));
    files.iter().flat_map(read).collect()
}

#[test]
fn every_case_holds_on_both_stores() {
    let cases = cases(&files(&folder()));
    assert!(!cases.is_empty());
    let jobs: Vec<Job<'_>> = cases.iter().flat_map(|case| Job::of(case, &StoreKind::ALL)).collect();
    let found: Vec<String> = run_all(&jobs).into_iter().flatten().collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whatever is cut out of a line, reading it is no panic; and no misspelt name passes by saying nothing.
#[test]
fn damaged_lines_are_errors() {
    let folder = folder();
    let lines: Vec<String> = files(&folder)
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).expect("it can be read");
            text.lines().step_by(5).map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    for line in lines.iter().filter(|line| file::parse(line).is_ok()) {
        for (at, _) in line.char_indices().step_by(11) {
            let _ = file::parse(&line[..at]);
            let rest: String = line[at..].chars().skip(1).collect();
            let _ = file::parse(&format!("{}{rest}", &line[..at]));
            let _ = file::parse(&format!("{}\u{0}{}", &line[..at], &line[at..]));
        }
        for name in ["\"id\":", "\"tools\":", "\"steps\":", "\"expect\":"] {
            if let Some(at) = line.find(name) {
                let misspelt = format!("{}\"x{}", &line[..at], &line[at + 1..]);
                assert!(file::parse(&misspelt).is_err(), "{name} may be misspelt: {misspelt}");
            }
        }
    }
}

//! Makes mutants of the flight: each is one line of it changed. A line that isn't there any more stops the build.

use std::path::Path;
use std::{env, fs};

const MUTANTS: [(&str, &str, &str); 5] = [
    // Told before it is so.
    ("wakes_first", "            progress.stage = stage;\n", "            let published = stage;\n"),
    // Looked at under one lock, entered under another.
    ("looks_then_enters", "        let waker = context.waker();\n", RELOCKS),
    ("tells_nobody_of_its_end", "        self.shared.come_to(Stage::Ended(self.end.clone()), |_| true);\n", ""),
    ("leaves_its_place_taken", ".unwrap_or_else(PoisonError::into_inner).remove(&self.unit);\n", ";\n"),
    ("lets_two_lead", "            Entry::Occupied(entry) => Err(Follower::of(entry.get())),\n", TAKES_OVER),
];

const RELOCKS: &str =
    "        let waker = context.waker();\n        drop(progress);\n        let mut progress = self.shared.lock();\n";

const TAKES_OVER: &str = "            Entry::Occupied(entry) if entry.get().lock().stage != Stage::Claiming => {
                Err(Follower::of(entry.get()))
            }
            Entry::Occupied(entry) => {
                let shared = Arc::clone(entry.get());
                Ok(Leader { map: Arc::clone(&self.map), unit, shared, end: FlightEnd::Nothing })
            }
";

fn main() {
    let source = "../../src/guard/flight.rs";
    println!("cargo::rerun-if-changed={source}");
    println!("cargo::rerun-if-changed=build.rs");
    let text = fs::read_to_string(source).unwrap();
    // What is included as a part of a module has no docs of its own, and its tests are for tokio.
    let text: String = text.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
    let text = text.split("#[cfg(test)]").next().unwrap();
    let out = env::var("OUT_DIR").unwrap();
    let write = |name: &str, text: &str| fs::write(Path::new(&out).join(format!("{name}.rs")), text).unwrap();
    write("as_it_is", text);
    for (name, line, changed) in MUTANTS {
        assert_eq!(text.matches(line).count(), 1, "{name}: {line:?} isn't there once");
        let mut mutant = text.replacen(line, changed, 1);
        if name == "wakes_first" {
            let wakes = "        woken.into_iter().for_each(|(_, waker)| waker.wake());\n";
            assert_eq!(mutant.matches(wakes).count(), 1);
            let late = format!("{wakes}        self.lock().stage = published;\n");
            mutant = mutant.replacen(wakes, &late, 1);
            mutant = mutant.replacen("let woken = {", "let (woken, published) = {", 1);
            let both =
                "            if is_over { std::mem::take(&mut progress.waiting) } else { progress.waiting.clone() }\n";
            assert_eq!(mutant.matches(both).count(), 1);
            let pair = "            let woken =\n                if is_over { std::mem::take(&mut progress.waiting) } else { progress.waiting.clone() };\n            (woken, published)\n";
            mutant = mutant.replacen(both, pair, 1);
        }
        write(name, &mutant);
    }
}

//! The committed part of the corpus with all faults, and setups that are broken on purpose: a harness that can't fail
//! proves nothing.

use serde_json::json;
use toolonce_replay::corpus::Corpus;
use toolonce_replay::faults::Fault;
use toolonce_replay::play::Play;
use toolonce_replay::policies::{BUILT_IN, Policies};
use toolonce_replay::stage::{Setup, Stage, StoreKind};
use toolonce_replay::tally::{Count, Tally};
use toolonce_replay::{Settings, replay};

const COMMITTED: &str = include_str!("../../../tests/corpus/tau_calls.jsonl");

fn corpus() -> Corpus {
    let mut corpus = Corpus::default();
    corpus.add("tau_calls.jsonl", COMMITTED).unwrap();
    corpus
}

fn policies() -> Policies {
    Policies::read(BUILT_IN).unwrap()
}

fn settings(faults: &[Fault], seed: u64) -> Settings {
    Settings { faults: faults.to_vec(), seed, limit: usize::MAX, store: StoreKind::Memory }
}

async fn replayed(settings: &Settings) -> Tally {
    replay(&corpus(), &policies(), settings, || {}).await.unwrap()
}

#[tokio::test]
async fn nothing_is_held_and_every_wish_happens_without_faults() {
    let tally = replayed(&settings(&[], 1)).await;
    assert!(tally.is_clean(), "{:?}", tally.findings);
    assert_eq!((tally.trajectories, tally.calls, tally.held), (88, 741, 0));
    assert_eq!((tally.intended_effects, tally.effects), (161, 161));
}

#[tokio::test]
async fn no_fault_makes_a_call_happen_twice_or_loses_it() {
    for seed in 1..=3 {
        let tally = replayed(&settings(&Fault::ALL, seed)).await;
        assert!(tally.is_clean(), "seed {seed}: {:?}", tally.findings);
        assert_eq!(tally.effects, tally.intended_effects);
        assert!(tally.struck.iter().all(|times| *times > 0), "a fault never struck: {:?}", tally.struck);
        assert!(tally.held > 0);
    }
}

#[tokio::test]
async fn the_same_holds_on_disk() {
    let tally = replayed(&Settings { limit: 40, store: StoreKind::Sled, ..settings(&Fault::ALL, 1) }).await;
    assert!(tally.is_clean(), "{:?}", tally.findings);
    assert!(tally.held > 0);
}

#[tokio::test]
async fn one_seed_gives_one_replay() {
    let [first, second] = [replayed(&settings(&Fault::ALL, 9)).await, replayed(&settings(&Fault::ALL, 9)).await];
    assert_eq!(first.struck, second.struck);
    assert_eq!(first.held, second.held);
}

/// Drives the corpus on a guard that is set up in another way than the wishes are counted.
async fn replayed_wrongly(faults: &[Fault], change: impl FnOnce(&mut Setup)) -> Tally {
    let corpus = corpus();
    let (honest, settings) = (policies(), settings(faults, 1));
    let mut setup = Setup::new(StoreKind::Memory, corpus.tools(), &honest);
    change(&mut setup);
    let mut tally = Tally::default();
    let mut stage = Stage::new(setup).await.unwrap();
    for trajectory in &corpus.trajectories {
        for part in &trajectory.parts {
            let run = format!("{}/{}", trajectory.name, part.by);
            let play = Play::new(&mut stage, &mut tally, &honest, &settings, run).await.unwrap();
            play.part(part).await.unwrap();
        }
    }
    stage.close().await.unwrap();
    tally
}

fn table(from: &str, to: &str) -> Policies {
    Policies::read(&BUILT_IN.replace(from, to)).unwrap()
}

#[tokio::test]
async fn writes_that_are_registered_as_reads_are_found_twice() {
    let wrong = table("\"effect\": \"write\"", "\"effect\": \"read_only\"");
    let tally = replayed_wrongly(&[Fault::Reworded], |setup| setup.policies = wrong).await;
    assert!(tally.twice > 20, "{tally:?}");
}

#[tokio::test]
async fn writes_whose_repeats_run_each_time_are_found_twice() {
    let wrong = table("\"once\"", "\"each\"");
    let tally = replayed_wrongly(&[], |setup| setup.policies = wrong).await;
    assert!(tally.twice > 10, "{tally:?}");
    assert_eq!(tally.lost, 0);
}

#[tokio::test]
async fn wishes_that_are_swallowed_are_found_lost() {
    let wrong = table("\"each\"", "\"once\"");
    let tally = replayed_wrongly(&[], |setup| setup.policies = wrong).await;
    assert!(tally.lost > 5, "{tally:?}");
    assert!(tally.findings.iter().all(|finding| finding.count == Count::Lost));
}

#[tokio::test]
async fn keys_that_leave_out_what_matters_are_found_as_false_merges() {
    let ignored = json!({"x-toolonce": "ignore"});
    let schema = json!({"type": "object", "properties": {"reservation_id": ignored, "order_id": ignored}});
    let tally = replayed_wrongly(&[], |setup| setup.schema = schema).await;
    assert!(tally.false_merges > 0, "{tally:?}");
    assert!(tally.lost > 0, "{tally:?}");
}

/// Whatever is done to the text, reading policies is no panic; and no misspelt name passes by saying nothing.
#[test]
fn damaged_policies_are_errors() {
    for (at, character) in BUILT_IN.char_indices() {
        let (before, rest) = BUILT_IN.split_at(at);
        let rest = &rest[character.len_utf8()..];
        let _ = (Policies::read(before), Policies::read(&format!("{before}{rest}")));
        let _ = Policies::read(&format!("{before}\u{0}{rest}"));
    }
    for (at, _) in BUILT_IN.match_indices("\":") {
        let misspelt = format!("{}x{}", &BUILT_IN[..at], &BUILT_IN[at..]);
        let read = Policies::read(&misspelt);
        let is_setting = ["effect", "repeat", "kind", "in_doubt"].iter().any(|name| BUILT_IN[..at].ends_with(name));
        assert!(read.is_err() || !is_setting, "{misspelt}");
    }
}

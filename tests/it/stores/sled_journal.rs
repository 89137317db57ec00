//! The journal in front of sled: what is in it, in sled, on its way from one to the other, and what is left of it after a
//! kill.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use toolonce::store::{Batch, Durability, SledStore, Store, StoreErrorKind};

use super::{at, commit, copy_directory, key, put, read};

/// The journal's files.
fn journals(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("toolonce.journal.")).collect();
    found.sort();
    found
}

/// Everything that a store has.
async fn all(store: &SledStore) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut from) = (BTreeMap::new(), None);
    loop {
        let page = store.scan(b"", from, 7).await.unwrap();
        assert!(page.items.len() <= 7);
        for (key, value) in page.items {
            assert!(found.insert(String::from_utf8_lossy(key.as_bytes()).into_owned(), value.value).is_none());
        }
        from = page.next;
        if from.is_none() {
            return found;
        }
    }
}

/// Several journals' worth of values that are put, replaced and removed, read all the time.
#[tokio::test]
async fn whatever_is_where_is_found_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut expected = BTreeMap::new();
    let mut most = 0;
    for round in 0..600_u32 {
        let name = format!("k{:02}", random.u8(..60));
        let durability = if random.bool() { Durability::Synced } else { Durability::Ordered };
        if random.u8(..4) == 0 {
            commit(&store, Batch { deletes: vec![key(&name)], ..Batch::default() }, durability).await;
            expected.remove(&name);
        } else {
            let value: Vec<u8> = round.to_be_bytes().iter().copied().cycle().take(random.usize(..60_000)).collect();
            commit(&store, Batch { puts: vec![(key(&name), value.clone())], ..Batch::default() }, durability).await;
            expected.insert(name, value);
        }
        let name = format!("k{:02}", random.u8(..60));
        let found = store.get(&[key(&name)]).await.unwrap().remove(0);
        assert!(found.map(|found| found.value) == expected.get(&name).cloned(), "round {round}");
        most = most.max(journals(&at(&directory)).len());
        if round % 100 == 50 {
            assert!(all(&store).await == expected, "round {round}");
        }
    }
    assert!(most > 1, "no second journal was begun");
    assert!(all(&store).await == expected, "what is read is synced");
    store.abandon();
    let copy = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), copy.path());
    assert!(!journals(&at(&copy)).is_empty());
    for _ in 0..2 {
        let store = SledStore::open(at(&copy)).await.unwrap();
        assert!(all(&store).await == expected);
        store.close().await.unwrap();
        assert_eq!(journals(&at(&copy)), [] as [PathBuf; 0], "a closed store has no journal");
    }
}

/// A store that was killed after ten commits, all of which its witness has seen.
async fn killed() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    for n in 0..10 {
        commit(&store, put(&format!("k{n}"), "value"), Durability::Synced).await;
    }
    let line = format!("sequence {}\n", store.identity().sequence);
    let seen = async {
        while !fs::read_to_string(directory.path().join("store.witness")).unwrap().contains(&line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the witness never followed");
    store.abandon();
    let copy = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), copy.path());
    copy
}

async fn kind(directory: &TempDir) -> StoreErrorKind {
    SledStore::open(at(directory)).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_journal_that_is_gone_cut_older_or_anothers_is_refused_and_mended_by_the_right_one() {
    let directory = killed().await;
    let journal = journals(&at(&directory)).pop().unwrap();
    let whole = fs::read(&journal).unwrap();
    fs::remove_file(&journal).unwrap();
    assert_eq!(kind(&directory).await, StoreErrorKind::Corrupt);
    fs::write(&journal, &whole[..20]).unwrap();
    assert_eq!(kind(&directory).await, StoreErrorKind::Corrupt);
    fs::write(&journal, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(kind(&directory).await, StoreErrorKind::NotAsWitnessed);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    fs::write(&journal, flipped).unwrap();
    assert_eq!(kind(&directory).await, StoreErrorKind::Corrupt);
    let other = killed().await;
    fs::copy(journals(&at(&other)).pop().unwrap(), &journal).unwrap();
    assert_eq!(kind(&directory).await, StoreErrorKind::Corrupt);
    fs::write(&journal, &whole).unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "k9").await.as_deref(), Some("value"));
    assert_eq!(all(&store).await.len(), 10);
    // The same file again, under the number that is in use now.
    commit(&store, put("k10", "value"), Durability::Synced).await;
    store.abandon();
    let copy = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), copy.path());
    fs::write(journals(&at(&copy)).pop().unwrap(), &whole).unwrap();
    assert_eq!(kind(&copy).await, StoreErrorKind::Corrupt);
}

//! The sled store: what survives what.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use toolonce::store::{Batch, Committed, Durability, MAX_VALUE, SledStore, Store, StoreErrorKind, conformance};

use super::{commit, key, put, read};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    let directory = tempfile::tempdir().unwrap();
    let opened = AtomicU32::new(0);
    let open = async || {
        let path = directory.path().join(opened.fetch_add(1, Ordering::Relaxed).to_string());
        Ok(Arc::new(SledStore::open(path).await?) as Arc<dyn Store>)
    };
    conformance::check(open).await.unwrap();
}

#[tokio::test]
async fn a_reopened_store_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let first = commit(&store, put("a", "1"), Durability::Synced).await;
    commit(&store, Batch { deletes: vec![key("a")], ..Batch::default() }, Durability::Ordered).await;
    let before = store.identity();
    store.close().await.unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let after = store.identity();
    assert_eq!(read(&store, "a").await, None);
    assert_eq!((after.store, after.incarnation), (before.store, before.incarnation + 1));
    assert!(after.sequence > before.sequence);
    assert!(commit(&store, put("a", "2"), Durability::Synced).await > first);
}

#[tokio::test]
async fn dropping_the_store_keeps_what_was_acknowledged_and_frees_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..10 {
        let store = SledStore::open(directory.path()).await.unwrap();
        let previous = (round > 0).then(|| (round - 1).to_string());
        assert_eq!(read(&store, "round").await, previous);
        commit(&store, put("round", &round.to_string()), Durability::Ordered).await;
    }
}

/// Opens a copy of what a killed process leaves behind.
async fn after_kill(store: &SledStore, path: &Path) -> (TempDir, SledStore) {
    store.abandon();
    let copy = tempfile::tempdir().unwrap();
    copy_directory(path, copy.path());
    let found = SledStore::open(copy.path()).await.unwrap();
    (copy, found)
}

fn copy_directory(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_synced_commit_takes_the_ordered_ones_before_it_along() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    commit(&store, put("before", "1"), Durability::Ordered).await;
    commit(&store, put("synced", "2"), Durability::Synced).await;
    let (_copy, found) = after_kill(&store, directory.path()).await;
    assert_eq!(read(&found, "before").await.as_deref(), Some("1"));
    assert_eq!(read(&found, "synced").await.as_deref(), Some("2"));
    assert_eq!(store.get(&[key("synced")]).await.unwrap_err().kind(), StoreErrorKind::Closed);
}

#[tokio::test]
async fn a_version_lost_in_a_kill_is_not_given_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let told = commit(&store, put("a", "1"), Durability::Ordered).await;
    let (_copy, found) = after_kill(&store, directory.path()).await;
    assert!(commit(&found, put("a", "2"), Durability::Synced).await > told);
}

#[tokio::test]
async fn whatever_was_read_survives_a_kill() {
    for how in ["get", "scan", "conflict"] {
        let directory = tempfile::tempdir().unwrap();
        let store = SledStore::open(directory.path()).await.unwrap();
        commit(&store, put("a", "1"), Durability::Ordered).await;
        match how {
            "get" => assert_eq!(read(&store, "a").await.as_deref(), Some("1")),
            "scan" => assert_eq!(store.scan(b"a", None, 1).await.unwrap().items.len(), 1),
            _ => {
                let claim = Batch { checks: vec![(key("a"), None)], ..put("a", "2") };
                let lost = store.commit(claim, Durability::Ordered).await.unwrap();
                assert!(matches!(lost, Committed::Conflict(_)));
            }
        }
        let (_copy, found) = after_kill(&store, directory.path()).await;
        assert_eq!(read(&found, "a").await.as_deref(), Some("1"), "{how}");
    }
}

#[tokio::test]
async fn an_ordered_commit_is_synced_soon_without_being_asked() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let version = commit(&store, put("a", "1"), Durability::Ordered).await;
    let synced = async {
        while store.identity().sequence < version.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), synced).await.expect("never synced");
    let (_copy, found) = after_kill(&store, directory.path()).await;
    assert_eq!(read(&found, "a").await.as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_leaves_every_caller_uncertain_until_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SledStore::open(directory.path()).await.unwrap());
    commit(&*store, put("before", "1"), Durability::Synced).await;
    store.fail_syncs(1);
    let claim = || Batch { checks: vec![(key("claim"), None)], ..put("claim", "taken") };
    let racers = (0..64).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit(claim(), Durability::Synced).await })
    });
    for racer in racers.collect::<Vec<_>>() {
        assert_eq!(racer.await.unwrap().unwrap_err().kind(), StoreErrorKind::Uncertain);
    }
    let uncertain = [
        store.get(&[key("before")]).await.map(drop),
        store.scan(b"", None, 1).await.map(drop),
        store.commit(put("later", "1"), Durability::Ordered).await.map(drop),
        store.close().await,
    ];
    for result in uncertain {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Uncertain);
        assert!(error.to_string().contains("reopen the store"), "{error}");
    }
    let store = SledStore::open(directory.path()).await.unwrap();
    assert_eq!(read(&store, "before").await.as_deref(), Some("1"));
    assert_eq!(read(&store, "later").await, None);
    commit(&store, put("later", "2"), Durability::Synced).await;
}

#[tokio::test]
async fn a_failed_sync_for_a_reader_fails_the_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    store.fail_syncs(1);
    commit(&store, put("a", "1"), Durability::Ordered).await;
    assert_eq!(store.get(&[key("a")]).await.unwrap_err().kind(), StoreErrorKind::Uncertain);
}

#[tokio::test]
async fn values_over_the_limit_are_refused_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let mut batch = put("large", &"x".repeat(MAX_VALUE + 1));
    batch.puts.extend(put("small", "1").puts);
    let error = store.commit(batch, Durability::Synced).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("longer than 66560"), "{error}");
    assert_eq!(read(&store, "small").await, None);
}

/// sled never syncs values that it moves out of its log (spacejam/sled#1351), so none may be moved.
#[tokio::test]
async fn the_largest_values_stay_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(directory.path()).await.unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..30_u8 {
        let mut value = vec![0; MAX_VALUE];
        random.fill(&mut value);
        let puts = (0..8_u8).map(|_| (key(&format!("{:03}", random.u8(..100))), value.clone()));
        let puts = puts.collect::<std::collections::BTreeMap<_, _>>().into_iter().collect();
        let durability = if round % 2 == 0 { Durability::Ordered } else { Durability::Synced };
        commit(&store, Batch { puts, ..Batch::default() }, durability).await;
    }
    assert_eq!(fs::read_dir(directory.path().join("blobs")).unwrap().count(), 0);
}

//! The sled store: what survives what.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use toolonce::store::{Batch, Committed, Durability, MAX_VALUE, SledStore, Store, StoreErrorKind, conformance};

use super::{at, commit, copy_directory, key, put, read};

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
    let store = SledStore::open(at(&directory)).await.unwrap();
    let first = commit(&store, put("a", "1"), Durability::Synced).await;
    commit(&store, Batch { deletes: vec![key("a")], ..Batch::default() }, Durability::Ordered).await;
    let before = store.identity();
    store.close().await.unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
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
        let store = SledStore::open(at(&directory)).await.unwrap();
        let previous = (round > 0).then(|| (round - 1).to_string());
        assert_eq!(read(&store, "round").await, previous);
        commit(&store, put("round", &round.to_string()), Durability::Ordered).await;
    }
}

/// Opens a copy of what a killed process leaves behind.
async fn after_kill(store: &SledStore, directory: &TempDir) -> (TempDir, SledStore) {
    store.abandon();
    let copy = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), copy.path());
    let found = SledStore::open(at(&copy)).await.unwrap();
    (copy, found)
}

#[tokio::test]
async fn a_synced_commit_takes_the_ordered_ones_before_it_along() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    commit(&store, put("before", "1"), Durability::Ordered).await;
    commit(&store, put("synced", "2"), Durability::Synced).await;
    let (_copy, found) = after_kill(&store, &directory).await;
    assert_eq!(read(&found, "before").await.as_deref(), Some("1"));
    assert_eq!(read(&found, "synced").await.as_deref(), Some("2"));
    assert_eq!(store.get(&[key("synced")]).await.unwrap_err().kind(), StoreErrorKind::Closed);
}

#[tokio::test]
async fn a_version_lost_in_a_kill_is_not_given_out_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    let told = commit(&store, put("a", "1"), Durability::Ordered).await;
    let (_copy, found) = after_kill(&store, &directory).await;
    assert!(commit(&found, put("a", "2"), Durability::Synced).await > told);
}

#[tokio::test]
async fn whatever_was_read_survives_a_kill() {
    for how in ["get", "scan", "conflict"] {
        let directory = tempfile::tempdir().unwrap();
        let store = SledStore::open(at(&directory)).await.unwrap();
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
        let (_copy, found) = after_kill(&store, &directory).await;
        assert_eq!(read(&found, "a").await.as_deref(), Some("1"), "{how}");
    }
}

#[tokio::test]
async fn an_ordered_commit_is_synced_soon_without_being_asked() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    let version = commit(&store, put("a", "1"), Durability::Ordered).await;
    let synced = async {
        while store.identity().sequence < version.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), synced).await.expect("never synced");
    let (_copy, found) = after_kill(&store, &directory).await;
    assert_eq!(read(&found, "a").await.as_deref(), Some("1"));
}

/// 64 callers that want the same key, `failing` syncs in a row: what each is told.
async fn race_over_failing_syncs(directory: &TempDir, failing: u32) -> (Arc<SledStore>, Vec<StoreErrorKind>) {
    let store = Arc::new(SledStore::open(at(directory)).await.unwrap());
    commit(&*store, put("before", "1"), Durability::Synced).await;
    commit(&*store, put("ordered", "1"), Durability::Ordered).await;
    store.fail_syncs(failing);
    let claim = || Batch { checks: vec![(key("claim"), None)], ..put("claim", "taken") };
    let racers = (0..64).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.commit(claim(), Durability::Synced).await })
    });
    let mut told = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Err(error) => told.push(error.kind()),
            Ok(Committed::Conflict(found)) => assert!(found[0].is_some(), "lost against nobody"),
            Ok(Committed::Applied(_)) => panic!("the first batch failed, and took the claim"),
        }
    }
    assert!(!told.is_empty(), "no batch failed");
    (store, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_the_store_opens_itself_anew_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, told) = race_over_failing_syncs(&directory, 1).await;
    assert!(told.iter().all(|kind| *kind == StoreErrorKind::Uncertain), "{told:?}");
    for (name, value) in [("before", "1"), ("ordered", "1"), ("claim", "taken")] {
        assert_eq!(read(&*store, name).await.as_deref(), Some(value), "{name}");
    }
    let before = store.identity();
    assert!(commit(&*store, put("later", "1"), Durability::Synced).await.0 > before.sequence);
    let (_copy, found) = after_kill(&store, &directory).await;
    for name in ["before", "ordered", "claim", "later"] {
        assert!(read(&found, name).await.is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_opening_anew_fails_too_nobody_gets_anything_until_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let (store, told) = race_over_failing_syncs(&directory, u32::MAX).await;
    assert!(told.len() == 64 && told.iter().all(|kind| *kind == StoreErrorKind::Uncertain), "{told:?}");
    let uncertain = [
        // First: it waits in the queue until the opening anew has failed. A read could still come before that.
        store.commit(put("later", "1"), Durability::Ordered).await.map(drop),
        store.get(&[key("before")]).await.map(drop),
        store.scan(b"", None, 1).await.map(drop),
        store.close().await,
    ];
    for result in uncertain {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Uncertain);
        assert!(error.to_string().contains("reopen the store"), "{error}");
    }
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "before").await.as_deref(), Some("1"));
    assert_eq!(read(&store, "later").await, None);
    commit(&store, put("later", "2"), Durability::Synced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_could_not_be_opened_anew_tries_it_again_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = race_over_failing_syncs(&directory, 3).await;
    let works = async {
        while store.get(&[key("claim")]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), works).await.expect("never tried again");
    for (name, value) in [("before", "1"), ("ordered", "1"), ("claim", "taken")] {
        assert_eq!(read(&*store, name).await.as_deref(), Some(value), "{name}");
    }
    commit(&*store, put("later", "1"), Durability::Synced).await;
    let (_copy, found) = after_kill(&store, &directory).await;
    assert_eq!(read(&found, "later").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn each_failed_sync_has_its_second_chance_and_so_has_the_last_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    for round in 0..3 {
        store.fail_syncs(1);
        let uncertain = store.commit(put(&format!("r{round}"), "1"), Durability::Synced).await.unwrap_err();
        assert!(uncertain.to_string().contains("a claim may exist"), "{uncertain}");
        // Waits until it is opened anew.
        assert_eq!(read(&store, &format!("r{round}")).await.as_deref(), Some("1"));
    }
    commit(&store, put("last", "1"), Durability::Ordered).await;
    store.fail_syncs(1);
    store.close().await.unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    for name in ["r0", "r1", "r2", "last"] {
        assert_eq!(read(&store, name).await.as_deref(), Some("1"), "{name}");
    }
}

#[tokio::test]
async fn a_failed_sync_for_a_reader_fails_the_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
    store.fail_syncs(1);
    commit(&store, put("a", "1"), Durability::Ordered).await;
    assert_eq!(store.get(&[key("a")]).await.unwrap_err().kind(), StoreErrorKind::Uncertain);
}

#[tokio::test]
async fn values_over_the_limit_are_refused_and_nothing_is_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(at(&directory)).await.unwrap();
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
    let store = SledStore::open(at(&directory)).await.unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..30_u8 {
        let mut value = vec![0; MAX_VALUE];
        random.fill(&mut value);
        let puts = (0..8_u8).map(|_| (key(&format!("{:03}", random.u8(..100))), value.clone()));
        let puts = puts.collect::<std::collections::BTreeMap<_, _>>().into_iter().collect();
        let durability = if round % 2 == 0 { Durability::Ordered } else { Durability::Synced };
        commit(&store, Batch { puts, ..Batch::default() }, durability).await;
    }
    assert_eq!(fs::read_dir(at(&directory).join("blobs")).unwrap().count(), 0);
}

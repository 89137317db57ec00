//! The memory store.

use std::sync::Arc;

use toolonce::store::{Batch, Durability, MAX_VALUE, MemoryStore, Store, StoreErrorKind, conformance};

use super::{commit, key, put, read};

#[tokio::test(flavor = "multi_thread")]
async fn conforms() {
    conformance::check(async || Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>)).await.unwrap();
    conformance::check(async || Ok(Arc::new(MemoryStore::shared()) as Arc<dyn Store>)).await.unwrap();
}

#[tokio::test]
async fn clones_share_data_and_close_alone() {
    let one = MemoryStore::shared();
    let other = one.clone();
    assert!(!one.is_exclusive() && !other.is_exclusive() && MemoryStore::new().is_exclusive());
    commit(&one, put("a", "1"), Durability::Synced).await;
    one.close().await.unwrap();
    assert_eq!(one.get(&[key("a")]).await.unwrap_err().kind(), StoreErrorKind::Closed);
    assert_eq!(read(&other, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_crash_forgets_ordered_commits_that_nothing_synced() {
    let store = MemoryStore::new();
    commit(&store, put("kept", "1"), Durability::Ordered).await;
    commit(&store, put("deleted", "1"), Durability::Synced).await;
    commit(&store, put("kept", "2"), Durability::Ordered).await;
    commit(&store, put("lost", "2"), Durability::Ordered).await;
    let told = commit(&store, Batch { deletes: vec![key("deleted")], ..Batch::default() }, Durability::Ordered).await;
    let found = store.crash();
    assert_eq!(store.get(&[key("kept")]).await.unwrap_err().kind(), StoreErrorKind::Closed);
    assert_eq!(read(&found, "kept").await.as_deref(), Some("1"));
    assert_eq!(read(&found, "lost").await, None);
    assert_eq!(read(&found, "deleted").await.as_deref(), Some("1"));
    assert_eq!(found.identity().store, store.identity().store);
    assert_eq!(found.identity().incarnation, 2);
    assert!(commit(&found, put("lost", "3"), Durability::Synced).await > told, "a version was given out twice");
}

#[tokio::test]
async fn what_was_read_survives_a_crash() {
    for scan in [false, true] {
        let store = MemoryStore::new();
        commit(&store, put("a", "1"), Durability::Ordered).await;
        if scan {
            assert_eq!(store.scan(b"a", None, 1).await.unwrap().items.len(), 1);
        } else {
            assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
        }
        assert_eq!(read(&store.crash(), "a").await.as_deref(), Some("1"));
    }
}

#[tokio::test]
async fn a_reopened_store_has_everything() {
    let store = MemoryStore::new();
    commit(&store, put("a", "1"), Durability::Ordered).await;
    let reopened = store.reopen();
    assert_eq!(read(&reopened, "a").await.as_deref(), Some("1"));
    assert_eq!(reopened.identity().incarnation, 2);
}

#[tokio::test]
async fn takes_no_larger_values_than_the_other_stores() {
    let store = MemoryStore::new();
    let error = store.commit(put("a", &"x".repeat(MAX_VALUE + 1)), Durability::Synced).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("cut it up"), "{error}");
    assert_eq!(read(&store, "a").await, None);
}

//! What one caller sees.

use std::sync::Arc;

use super::super::{Batch, Committed, Durability, Key, MAX_VALUE, Store, StoreErrorKind, Version, Versioned};
use super::{Check, Outcome, applied, conflict, delete, ensure, get, key, put, put_if, same, text};

pub(super) const CHECKS: &[Check] = checks! {
    "a fresh store is empty" => empty,
    "what was put is read" => put_then_get,
    "answers come in the order of the keys" => order_of_answers,
    "a commit needs its checks" => conditional,
    "a conflict returns what is stored" => conflict_returns,
    "a failed batch changes nothing" => atomic,
    "deleted keys are absent" => deletes,
    "versions never repeat" => versions,
    "sizes from empty to the limits" => sizes,
    "what is over the limits is refused" => limits,
    "a batch of many values" => large_batch,
    "ordered commits are read and built upon" => ordered,
    "the sequence grows, the store stays the same" => identity,
    "a closed store says so" => closed,
};

async fn empty(store: Arc<dyn Store>) -> Outcome {
    same("an absent key", get(&*store, "a").await?, None)?;
    let page = store.scan(b"", None, 10).await.map_err(text)?;
    same("items of an empty store", page.items, vec![])?;
    same("next page of an empty store", page.next, None)?;
    same("answers to no keys", store.get(&[]).await.map_err(text)?, vec![])
}

async fn put_then_get(store: Arc<dyn Store>) -> Outcome {
    for value in [&b"one"[..], b"two", b"", b"\0\xff"] {
        let version = applied(&*store, put("a", value)).await?;
        same("the value", get(&*store, "a").await?, Some(Versioned { version, value: value.to_vec() }))?;
    }
    Ok(())
}

async fn order_of_answers(store: Arc<dyn Store>) -> Outcome {
    applied(&*store, put("a", b"1")).await?;
    applied(&*store, put("b", b"2")).await?;
    let names = ["b", "none", "a", "b"];
    let found = store.get(&names.map(key)).await.map_err(text)?;
    let values = found.into_iter().map(|found| found.map(|found| found.value)).collect::<Vec<_>>();
    let expected = [Some("2"), None, Some("1"), Some("2")].map(|value| value.map(|value| value.as_bytes().to_vec()));
    same("values", values, expected.to_vec())
}

async fn conditional(store: Arc<dyn Store>) -> Outcome {
    let first = applied(&*store, put_if("a", None, b"1")).await?;
    conflict(&*store, put_if("a", None, b"2")).await?;
    let second = applied(&*store, put_if("a", Some(first), b"2")).await?;
    conflict(&*store, put_if("a", Some(first), b"3")).await?;
    conflict(&*store, put_if("absent", Some(second), b"3")).await?;
    let guarded = Batch { checks: vec![(key("a"), Some(second))], ..put("b", b"1") };
    applied(&*store, guarded).await?;
    let only_checks = Batch { checks: vec![(key("a"), Some(second)), (key("c"), None)], ..Batch::default() };
    applied(&*store, only_checks).await.map(drop)
}

async fn conflict_returns(store: Arc<dyn Store>) -> Outcome {
    let version = applied(&*store, put("a", b"1")).await?;
    let stored = Some(Versioned { version, value: b"1".to_vec() });
    // The failing check comes last: what is returned is about all of them.
    let checks = vec![(key("a"), Some(version)), (key("none"), None), (key("a"), None)];
    let found = conflict(&*store, Batch { checks, ..put("b", b"2") }).await?;
    same("what the conflict returns", found, vec![stored.clone(), None, stored])
}

async fn atomic(store: Arc<dyn Store>) -> Outcome {
    let version = applied(&*store, put("a", b"1")).await?;
    let batch = Batch {
        checks: vec![(key("a"), None)],
        puts: vec![(key("b"), b"2".to_vec())],
        deletes: vec![key("a")],
        ..Batch::default()
    };
    conflict(&*store, batch.clone()).await?;
    same("a put of a failed batch", get(&*store, "b").await?, None)?;
    let kept = Some(Versioned { version, value: b"1".to_vec() });
    same("a delete of a failed batch", get(&*store, "a").await?, kept)?;
    let version = applied(&*store, Batch { checks: vec![(key("a"), Some(version))], ..batch }).await?;
    same("a put of a batch", get(&*store, "b").await?, Some(Versioned { version, value: b"2".to_vec() }))?;
    same("a delete of a batch", get(&*store, "a").await?, None)
}

async fn deletes(store: Arc<dyn Store>) -> Outcome {
    applied(&*store, delete("a")).await?;
    let version = applied(&*store, put("a", b"1")).await?;
    applied(&*store, Batch { checks: vec![(key("a"), Some(version))], ..delete("a") }).await?;
    same("a deleted key", get(&*store, "a").await?, None)?;
    same("a conflict about it", conflict(&*store, put_if("a", Some(version), b"2")).await?, vec![None])?;
    same("a scan", store.scan(b"", None, 10).await.map_err(text)?.items, vec![])?;
    applied(&*store, put_if("a", None, b"2")).await.map(drop)
}

async fn versions(store: Arc<dyn Store>) -> Outcome {
    let mut last = None;
    for round in 0..5 {
        let first = applied(&*store, put("a", b"same")).await?;
        let second = applied(&*store, put("a", b"same")).await?;
        ensure(last < Some(first) && first < second, || {
            format!("round {round}: versions must grow, found {last:?}, {first:?}, {second:?}")
        })?;
        last = Some(second);
        applied(&*store, delete("a")).await?;
    }
    Ok(())
}

async fn sizes(store: Arc<dyn Store>) -> Outcome {
    for length in [0, 1, 100, 4096, 8000, 32_000, 64 * 1024, MAX_VALUE] {
        let value = noise(length);
        let version = applied(&*store, put("value", &value)).await?;
        let found = get(&*store, "value").await?;
        ensure(found == Some(Versioned { version, value }), || {
            format!("a value of {length} bytes comes back changed")
        })?;
    }
    for length in [0, 1, 255, 256, 512, Key::MAX] {
        let key = Key::new(noise(length));
        let batch = Batch { puts: vec![(key.clone(), vec![1])], ..Batch::default() };
        let version = applied(&*store, batch).await?;
        let found = store.get(std::slice::from_ref(&key)).await.map_err(text)?;
        let expected = vec![Some(Versioned { version, value: vec![1] })];
        same(format_args!("the value under a key of {length} bytes"), found, expected)?;
    }
    Ok(())
}

/// Bytes that don't compress and differ by length.
fn noise(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

async fn limits(store: Arc<dyn Store>) -> Outcome {
    let twice = Batch { deletes: vec![key("a")], ..put("a", b"1") };
    match store.commit(twice, Durability::Synced).await {
        Err(error) => same("a key named twice", error.kind(), StoreErrorKind::Unavailable)?,
        Ok(done) => {
            return Err(format!("a batch that puts and deletes one key must be refused, found {done:?}"));
        }
    }
    same("its key", get(&*store, "a").await?, None)
}

async fn large_batch(store: Arc<dyn Store>) -> Outcome {
    let names = (0..40).map(|n| format!("piece{n:02}")).collect::<Vec<_>>();
    let value = noise(64 * 1024);
    let puts = names.iter().map(|name| (key(name), value.clone())).collect();
    let version = applied(&*store, Batch { puts, ..Batch::default() }).await?;
    for name in names {
        let found = get(&*store, &name).await?;
        let whole = found.is_some_and(|found| found.version == version && found.value == value);
        ensure(whole, || format!("{name} of a large batch is missing or changed"))?;
    }
    Ok(())
}

async fn ordered(store: Arc<dyn Store>) -> Outcome {
    let commit = |batch| store.commit(batch, Durability::Ordered);
    let Committed::Applied(first) = commit(put("a", b"1")).await.map_err(text)? else {
        return Err("an unconditional commit can't conflict".to_owned());
    };
    let stored = Some(Versioned { version: first, value: b"1".to_vec() });
    let lost = commit(put_if("a", None, b"2")).await.map_err(text)?;
    same("an ordered conflict", lost, Committed::Conflict(vec![stored.clone()]))?;
    same("an ordered commit", get(&*store, "a").await?, stored)?;
    commit(delete("a")).await.map_err(text)?;
    same("an ordered delete", get(&*store, "a").await?, None)?;
    commit(put("b", b"3")).await.map_err(text)?;
    same("a scan after an ordered commit", store.scan(b"", None, 10).await.map_err(text)?.items.len(), 1)
}

async fn identity(store: Arc<dyn Store>) -> Outcome {
    let before = store.identity();
    let Version(version) = applied(&*store, put("a", b"1")).await?;
    let after = store.identity();
    same("store id", after.store, before.store)?;
    same("incarnation", after.incarnation, before.incarnation)?;
    ensure(before.sequence < after.sequence, || format!("the sequence must grow over a commit ({version})"))
}

async fn closed(store: Arc<dyn Store>) -> Outcome {
    applied(&*store, put("a", b"1")).await?;
    store.close().await.map_err(text)?;
    let kinds = [
        ("get", store.get(&[key("a")]).await.map(drop)),
        ("scan", store.scan(b"", None, 1).await.map(drop)),
        ("commit", store.commit(put("a", b"2"), Durability::Synced).await.map(drop)),
    ];
    for (call, result) in kinds {
        same(call, result.map_err(|error| error.kind()), Err(StoreErrorKind::Closed))?;
    }
    store.close().await.map_err(|error| format!("closing twice is no error, found {error}"))
}

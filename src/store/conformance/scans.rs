//! What scans see.

use std::sync::Arc;

use super::super::{Batch, Key, Store};
use super::{Check, Outcome, applied, ensure, key, put, same, text};

pub(super) const CHECKS: &[Check] = checks! {
    "scans see a prefix in order" => scan_order,
    "scans go page by page" => scan_pages,
};

async fn scan_order(store: Arc<dyn Store>) -> Outcome {
    let names = [&b"p/\xff"[..], b"p/b", b"p/a", b"p/", b"p0", b"p", b"o/z", b"p/\xff\xff", b"p/a\0"];
    for name in names {
        applied(&*store, Batch { puts: vec![(Key::new(name), name.to_vec())], ..Batch::default() }).await?;
    }
    let page = store.scan(b"p/", None, 100).await.map_err(text)?;
    let found = page.items.iter().map(|(key, value)| (key.as_bytes(), &value.value[..])).collect::<Vec<_>>();
    let expected = [&b"p/"[..], b"p/a", b"p/a\0", b"p/b", b"p/\xff", b"p/\xff\xff"].map(|name| (name, name));
    same("keys under p/", found, expected.to_vec())?;
    same("the page after the last", page.next, None)?;
    let all = store.scan(b"", None, 100).await.map_err(text)?;
    same("number of keys under the empty prefix", all.items.len(), names.len())?;
    let before = store.scan(b"p/b", Some(Key::new(*b"a")), 100).await.map_err(text)?;
    same("number of keys from a place before the prefix", before.items.len(), 1)?;
    let after = store.scan(b"p/a", Some(Key::new(*b"q")), 100).await.map_err(text)?;
    same("keys from a place behind the prefix", after.items, vec![])
}

async fn scan_pages(store: Arc<dyn Store>) -> Outcome {
    let names = (0..23).map(|n| key(format!("page/{n:02}"))).collect::<Vec<_>>();
    for name in &names {
        applied(&*store, Batch { puts: vec![(name.clone(), vec![7])], ..Batch::default() }).await?;
    }
    applied(&*store, put("pagf", b"not in it")).await?;
    for limit in [1, 2, 5, 22, 23, 24, usize::MAX] {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let page = store.scan(key("page/").as_bytes(), from, limit).await.map_err(text)?;
            ensure(page.items.len() <= limit, || format!("a page of {limit} has {} keys", page.items.len()))?;
            found.extend(page.items.into_iter().map(|(key, _)| key));
            from = page.next;
            if from.is_none() || found.len() > names.len() {
                break;
            }
        }
        same(format_args!("keys in pages of {limit}"), &found, &names)?;
    }
    let page = store.scan(key("page/").as_bytes(), Some(names[20].clone()), 10).await.map_err(text)?;
    same("number of keys from the 21st on", page.items.len(), 3)
}

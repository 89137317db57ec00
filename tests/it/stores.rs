//! What the stores promise beside what the conformance suite asks of all of them.

mod memory;
mod sled;
mod sled_directory;

use toolonce::store::{Batch, Committed, Durability, Key, Store, Version};

fn key(name: &str) -> Key {
    Key::new(name.as_bytes())
}

fn put(name: &str, value: &str) -> Batch {
    Batch { puts: vec![(key(name), value.as_bytes().to_vec())], ..Batch::default() }
}

async fn commit(store: &dyn Store, batch: Batch, durability: Durability) -> Version {
    match store.commit(batch, durability).await.unwrap() {
        Committed::Applied(version) => version,
        Committed::Conflict(found) => panic!("conflicts with {found:?}"),
    }
}

async fn read(store: &dyn Store, name: &str) -> Option<String> {
    let found = store.get(&[key(name)]).await.unwrap().remove(0)?;
    Some(String::from_utf8(found.value).unwrap())
}

//! What the stores promise beside what the conformance suite asks of all of them.

mod memory;
mod sled;
mod sled_directory;
mod sled_journal;
mod witness;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use toolonce::store::{Batch, Committed, Durability, Key, Store, Version};

/// Where the store is, so that its witness is in the directory too.
fn at(directory: &TempDir) -> PathBuf {
    directory.path().join("store")
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

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

//! The witness beside a sled store: what is refused, and what accepts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use toolonce::store::{Accept, Durability, SledOptions, SledStore, Store, StoreErrorKind};

use super::{at, commit, copy_directory, put, read};

const ALL: [Accept; 4] = [Accept::Missing, Accept::Foreign, Accept::Older, Accept::Unreadable];

fn witness(directory: &TempDir) -> PathBuf {
    directory.path().join("store.witness")
}

async fn write(path: &Path, name: &str) {
    let store = SledStore::open(path).await.unwrap();
    commit(&store, put(name, "1"), Durability::Synced).await;
    store.close().await.unwrap();
}

/// Opening is refused, also if something else is accepted; `accept` opens, and from then on nothing need be accepted.
async fn refused_unless(path: &Path, accept: Accept, words: &str) {
    for other in ALL.into_iter().filter(|other| *other != accept).map(Some).chain([None]) {
        let options = SledOptions::new(path);
        let options = if let Some(other) = other { options.accept(other) } else { options };
        let error = options.open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotAsWitnessed, "{error}");
        let (text, call) = (error.to_string(), format!("SledOptions::accept(Accept::{accept:?})"));
        assert!(text.contains(words) && text.ends_with(&call) && !text.contains('\n'), "{text}");
    }
    SledOptions::new(path).accept(accept).open().await.unwrap().close().await.unwrap();
    SledStore::open(path).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_deleted_store_is_missed_and_its_place_left_free() {
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    fs::rename(at(&directory), directory.path().join("away")).unwrap();
    SledStore::open(at(&directory)).await.unwrap_err();
    fs::rename(directory.path().join("away"), at(&directory)).unwrap();
    write(&at(&directory), "b").await;
    fs::remove_dir_all(at(&directory)).unwrap();
    refused_unless(&at(&directory), Accept::Missing, "there is no store in").await;
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await, None);
}

#[tokio::test]
async fn an_emptied_directory_is_a_missing_store() {
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    fs::remove_dir_all(at(&directory)).unwrap();
    fs::create_dir(at(&directory)).unwrap();
    refused_unless(&at(&directory), Accept::Missing, "there is no store in").await;
}

#[tokio::test]
async fn another_store_in_its_place_is_refused() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(&at(&directory), "mine").await;
    write(&at(&other), "other").await;
    fs::remove_dir_all(at(&directory)).unwrap();
    copy_directory(&at(&other), &at(&directory));
    refused_unless(&at(&directory), Accept::Foreign, "holds another store").await;
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "other").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_older_copy_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    write(&at(&directory), "old").await;
    copy_directory(&at(&directory), &copy);
    write(&at(&directory), "new").await;
    fs::remove_dir_all(at(&directory)).unwrap();
    copy_directory(&copy, &at(&directory));
    refused_unless(&at(&directory), Accept::Older, "is older than its witness").await;
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "old").await.as_deref(), Some("1"));
    assert_eq!(read(&store, "new").await, None);
}

/// Within one opening only the sequence tells, and after a kill only what was witnessed while commits went on.
#[tokio::test]
async fn a_copy_made_while_the_killed_process_ran_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let store = SledStore::open(at(&directory)).await.unwrap();
    commit(&store, put("old", "1"), Durability::Synced).await;
    copy_directory(&at(&directory), &copy);
    let newest = commit(&store, put("new", "1"), Durability::Synced).await;
    let line = format!("\nsequence {}\n", newest.0);
    let seen = async {
        while !fs::read_to_string(witness(&directory)).unwrap().contains(&line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the witness stays behind");
    store.abandon();
    let moved = tempfile::tempdir().unwrap();
    fs::copy(witness(&directory), witness(&moved)).unwrap();
    copy_directory(&copy, &at(&moved));
    refused_unless(&at(&moved), Accept::Older, "is older than its witness").await;
}

#[tokio::test]
async fn a_damaged_witness_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    let whole = fs::read(witness(&directory)).unwrap();
    for length in 0..whole.len() {
        fs::write(witness(&directory), &whole[..length]).unwrap();
        let error = SledStore::open(at(&directory)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotAsWitnessed, "cut at {length}: {error}");
    }
    for damaged in [b"\xff\x00".to_vec(), [&whole[..], b"more"].concat(), flipped(&whole)] {
        fs::write(witness(&directory), damaged).unwrap();
        refused_unless(&at(&directory), Accept::Unreadable, "can't be read").await;
    }
    let store = SledStore::open(at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
}

/// Another last digit of the sequence.
fn flipped(whole: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(whole.to_vec()).unwrap();
    let at = text.find("\ncheck").unwrap() - 1;
    let mut bytes = text.into_bytes();
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    bytes
}

#[tokio::test]
async fn a_witness_of_a_newer_version_is_left_to_it() {
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    let text = fs::read_to_string(witness(&directory)).unwrap();
    fs::write(witness(&directory), text.replace("format 1", "format 2")).unwrap();
    let error = SledOptions::new(at(&directory)).accept(Accept::Unreadable).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("use a newer toolonce"), "{error}");
}

#[tokio::test]
async fn a_store_without_a_witness_is_taken_as_it_is_and_gets_one() {
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    fs::remove_file(witness(&directory)).unwrap();
    write(&at(&directory), "b").await;
    fs::remove_dir_all(at(&directory)).unwrap();
    refused_unless(&at(&directory), Accept::Missing, "there is no store in").await;
}

#[tokio::test]
async fn the_witness_is_where_it_is_told_to_be() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = elsewhere.path().join("seen");
    let open = || SledOptions::new(at(&directory)).witness(&path).open();
    open().await.unwrap().close().await.unwrap();
    assert!(path.exists() && !witness(&directory).exists());
    fs::remove_dir_all(at(&directory)).unwrap();
    assert_eq!(open().await.unwrap_err().kind(), StoreErrorKind::NotAsWitnessed);
    let nowhere = elsewhere.path().join("no/such/seen");
    let error = SledOptions::new(at(&directory)).witness(nowhere).open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("SledOptions::witness"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    write(&at(&directory), "a").await;
    assert_eq!(fs::metadata(witness(&directory)).unwrap().permissions().mode() & 0o777, 0o600);
}

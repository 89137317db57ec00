//! The directory of the sled store: whose it is, and what is done about damage.

use std::fs;
use std::path::{Path, PathBuf};

use toolonce::store::{Durability, Key, SledOptions, SledStore, Store, StoreError, StoreErrorKind};

use super::{at, commit, key, put, read};

async fn create(path: &Path) {
    let store = SledStore::open(path).await.unwrap();
    commit(&store, put("a", "1"), Durability::Synced).await;
    store.close().await.unwrap();
}

async fn refused(path: &Path, kind: StoreErrorKind, words: &str) {
    let error = SledStore::open(path).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    assert!(message.contains(words) && !message.contains('\n'), "{message}");
}

#[tokio::test]
async fn a_second_opener_is_told_who_holds_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    refused(&at(&directory), StoreErrorKind::Locked, "this program already has the store").await;
    let error = SledStore::open(&at(&directory)).await.unwrap_err();
    assert_eq!(error.holder(), Some(std::process::id()));
    drop(store);
    SledStore::open(&at(&directory)).await.unwrap();
}

#[tokio::test]
async fn an_opener_waits_for_a_holder_on_its_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    let opening = tokio::spawn(SledStore::open(at(&directory)));
    // Begins to open while the store is held.
    tokio::task::yield_now().await;
    store.close().await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_no_store_directory_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    refused(&file, StoreErrorKind::Unavailable, "file is a file: choose a directory").await;
    refused(directory.path(), StoreErrorKind::Unavailable, "holds files of something else").await;
    let looked = SledOptions::new(directory.path()).existing().open().await.unwrap_err();
    assert!(
        looked.kind() == StoreErrorKind::Missing && looked.to_string().contains("is no toolonce store"),
        "{looked}"
    );
    refused(&file.join("below"), StoreErrorKind::Unavailable, "file is a file: choose a directory").await;
    refused(Path::new(""), StoreErrorKind::Unavailable, "the store path is empty").await;
    let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names, ["file"]);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/store");
    create(&path).await;
    create(&path).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        let wanted = if entry.file_type().unwrap().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), wanted, "{:?}", entry.file_name());
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_without_rights_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    create(&path).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser may do anything.
    if fs::read_dir(&path).is_err() {
        refused(&path, StoreErrorKind::Unavailable, "let this user read and write it").await;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_creation_cut_short_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(at(&directory)).unwrap();
    fs::write(at(&directory).join("toolonce.store"), "toolonce store\nformat 1\ncreating\n").unwrap();
    fs::write(at(&directory).join("conf"), "torn").unwrap();
    fs::write(at(&directory).join("db"), [7; 100]).unwrap();
    fs::create_dir(at(&directory).join("blobs")).unwrap();
    fs::write(at(&directory).join("notes"), "mine").unwrap();
    create(&at(&directory)).await;
    let store = SledStore::open(&at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
    assert_eq!(fs::read(at(&directory).join("notes")).unwrap(), b"mine");
}

#[tokio::test]
async fn a_newer_or_broken_marker_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    create(&at(&directory)).await;
    let marker = at(&directory).join("toolonce.store");
    let whole = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, whole.replace("format 1", "format 2")).unwrap();
    refused(&at(&directory), StoreErrorKind::Unavailable, "has format 2, this version reads up to 1").await;
    for broken in ["", "toolonce store\n", "toolonce store\nformat 1\n", "else\nformat 1\ncreating\n"] {
        fs::write(&marker, broken).unwrap();
        refused(&at(&directory), StoreErrorKind::Corrupt, "its marker can't be read").await;
    }
    fs::write(&marker, b"\xff\xfe\x00noise").unwrap();
    refused(&at(&directory), StoreErrorKind::Corrupt, "its marker can't be read").await;
    for broken in ["id 12zz", "id", "number 12"] {
        fs::write(&marker, format!("toolonce store\nformat 1\n{broken}\n")).unwrap();
        refused(&at(&directory), StoreErrorKind::Corrupt, "names no store").await;
    }
    fs::write(&marker, whole).unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_store_that_lost_its_marker_is_not_taken_for_something_else() {
    let directory = tempfile::tempdir().unwrap();
    create(&at(&directory)).await;
    let marker = at(&directory).join("toolonce.store");
    let whole = fs::read(&marker).unwrap();
    fs::remove_file(&marker).unwrap();
    refused(&at(&directory), StoreErrorKind::Corrupt, "its marker toolonce.store is missing").await;
    fs::write(&marker, whole).unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn any_cache_size_is_taken() {
    for bytes in [0, 255, u64::MAX] {
        let directory = tempfile::tempdir().unwrap();
        let store = SledOptions::new(at(&directory)).cache_bytes(bytes).open().await.unwrap();
        commit(&store, put("a", "1"), Durability::Synced).await;
        assert_eq!(read(&store, "a").await.as_deref(), Some("1"), "{bytes}");
    }
}

#[tokio::test]
async fn an_error_shown_for_debugging_reads_like_its_text() {
    let error = SledStore::open("").await.unwrap_err();
    assert_eq!(format!("{error:?}"), format!("StoreError(Unavailable: {error})"));
}

#[tokio::test]
async fn a_store_that_lost_its_log_is_not_taken_for_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    create(&at(&directory)).await;
    let log = at(&directory).join("db");
    fs::write(&log, "").unwrap();
    refused(&at(&directory), StoreErrorKind::Corrupt, "its log is empty").await;
    fs::remove_file(&log).unwrap();
    refused(&at(&directory), StoreErrorKind::Corrupt, "its log is missing").await;
}

#[tokio::test]
async fn the_log_of_another_store_is_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    create(&at(&one)).await;
    create(&at(&other)).await;
    for entry in fs::read_dir(at(&one)).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name == "db" || name.to_string_lossy().starts_with("snap.") {
            fs::copy(entry.path(), at(&other).join(name)).unwrap();
        }
    }
    refused(&at(&other), StoreErrorKind::Corrupt, "its log belongs to another store").await;
}

/// spacejam/sled#1527: sled takes a half-written snapshot for the newest one and refuses to open.
#[tokio::test]
async fn a_torn_snapshot_is_cleared_away() {
    let directory = tempfile::tempdir().unwrap();
    create(&at(&directory)).await;
    let torn = at(&directory).join("snap.FFFFFFFFFFFFFFF0.generating");
    fs::write(&torn, [1; 20]).unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    assert_eq!(read(&store, "a").await.as_deref(), Some("1"));
    assert!(!torn.exists());
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.file_type().unwrap().is_file()).map(|entry| entry.path()).collect()
}

/// sled cuts its log at the first damaged place and goes on. The witness tells.
#[tokio::test]
async fn a_log_cut_short_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    create(&at(&directory)).await;
    let older = files(&at(&directory)).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect::<Vec<_>>();
    create(&at(&directory)).await;
    for path in files(&at(&directory)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with("toolonce.") {
            fs::remove_file(path).unwrap();
        }
    }
    for (bytes, path) in older {
        fs::write(path, bytes).unwrap();
    }
    refused(&at(&directory), StoreErrorKind::NotAsWitnessed, "the end of its log is lost").await;
}

/// What [`damage_is_harmless_or_refused`] stores.
fn value(n: usize) -> String {
    "value".repeat(n * 10)
}

/// Opens a store and reads everything in it.
async fn read_all(path: &Path) -> Result<Vec<(Key, Vec<u8>)>, StoreError> {
    let store = SledStore::open(path).await?;
    let items = store.scan(b"", None, usize::MAX).await?.items;
    store.commit(put("after", "1"), Durability::Synced).await?;
    store.close().await?;
    Ok(items.into_iter().map(|(key, found)| (key, found.value)).collect())
}

/// Damage to a closed store ends in an error or changes nothing. It never panics, hangs or loses a record silently.
#[tokio::test]
async fn damage_is_harmless_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = SledStore::open(&at(&directory)).await.unwrap();
    let mut expected = (0..40).map(|n| (key(&format!("key{n:02}")), value(n).into_bytes())).collect::<Vec<_>>();
    for n in 0..40 {
        commit(&store, put(&format!("key{n:02}"), &value(n)), Durability::Synced).await;
    }
    store.close().await.unwrap();
    assert_eq!(read_all(&at(&directory)).await.unwrap(), expected);
    expected.insert(0, (key("after"), b"1".to_vec()));
    let whole = files(&at(&directory)).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect::<Vec<_>>();
    let mut random = fastrand::Rng::with_seed(1);
    let mut refused = 0;
    for round in 0..60 {
        files(&at(&directory)).iter().for_each(|path| fs::remove_file(path).unwrap());
        whole.iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap());
        let (bytes, path) = &whole[random.usize(..whole.len())];
        fs::write(path, damaged(bytes.clone(), &mut random)).unwrap();
        match read_all(&at(&directory)).await {
            Ok(found) => assert_eq!(found, expected, "round {round}: {}", path.display()),
            Err(_) => refused += 1,
        }
    }
    assert!((10..60).contains(&refused), "{refused} of 60 damaged stores were refused");
}

/// Cut off, overwritten in one place, or all over.
fn damaged(mut bytes: Vec<u8>, random: &mut fastrand::Rng) -> Vec<u8> {
    let end = bytes.len().clamp(1, 20_000);
    match random.u8(..3) {
        0 => bytes.truncate(random.usize(..end)),
        1 => {
            let (at, length) = (random.usize(..end), random.usize(1..64));
            bytes.iter_mut().skip(at).take(length).for_each(|byte| *byte = random.u8(..));
        }
        _ => bytes.iter_mut().take(end).step_by(97).for_each(|byte| *byte = random.u8(..)),
    }
    bytes
}

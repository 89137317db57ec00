//! Which stores are opened, and with which keys.

use std::fs;

use serde_json::json;

use crate::bench::{Bench, Kept, Output, command, run};

#[tokio::test]
async fn a_store_that_an_agent_holds_is_said_to_be_held() {
    let bench = Bench::new();
    bench.in_doubt("order-17").await;
    let held = bench.open().await;
    let error = bench.run(&["ls"]).failed(3);
    let process = std::process::id();
    assert!(error.starts_with(&format!("error: process {process} holds the store ")), "{error}");
    assert!(error.contains("stop that program"), "{error}");
    let output = bench.run(&["ls", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&output.failed(3)).unwrap();
    assert_eq!((&error["error"], &error["exit"], &error["holder"]), (&json!("held"), &json!(3), &json!(process)));
    drop(held);
}

#[test]
fn where_there_is_no_store_none_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let (absent, empty, file, foreign) = (
        directory.path().join("absent"),
        directory.path().join("empty"),
        directory.path().join("file"),
        directory.path().join("foreign"),
    );
    fs::create_dir(&empty).unwrap();
    fs::create_dir(&foreign).unwrap();
    fs::write(&file, "").unwrap();
    fs::write(foreign.join("notes.txt"), "").unwrap();
    for (path, why) in [
        (&absent, "there is no store in "),
        (&empty, "there is no store in "),
        (&file, "is a file"),
        (&foreign, "is no toolonce store: give the directory that the program keeps its store in"),
    ] {
        let error = run(&["ls", "--namespace", "shop", "--store", path.to_str().unwrap()]).failed(4);
        assert!(error.contains(why), "{error}");
    }
    assert!(!absent.exists() && empty.read_dir().unwrap().next().is_none());
    assert_eq!(foreign.read_dir().unwrap().count(), 1);
}

#[tokio::test]
async fn a_damaged_store_is_not_repaired() {
    let bench = Bench::new();
    bench.done("order-17").await;
    fs::remove_file(format!("{}/db", bench.path())).unwrap();
    let error = bench.run(&["ls"]).failed(4);
    assert!(error.contains("is damaged (its log is missing): keep the directory, restore a copy"), "{error}");
}

#[tokio::test]
async fn the_environment_names_the_store_and_is_not_repeated() {
    let bench = Bench::new();
    let reference = bench.in_doubt("order-17").await;
    let mut command = command(&["show", &reference]);
    command.env("TOOLONCE_STORE", bench.path()).env("TOOLONCE_NAMESPACE", "shop");
    let page = Output(command.output().unwrap()).ok();
    assert!(page.contains(&format!("    toolonce resolve {reference} --happened --result '…'\n")), "{page}");
}

#[tokio::test]
async fn a_store_of_another_format_or_one_that_is_gone_is_left_alone() {
    let bench = Bench::new();
    bench.done("order-17").await;
    let marker = format!("{}/toolonce.store", bench.path());
    let text = fs::read_to_string(&marker).unwrap();
    fs::write(&marker, text.replace("format 1", "format 9")).unwrap();
    let error = bench.run(&["ls"]).failed(4);
    assert!(error.contains("has format 9, this version reads up to 1: use a newer toolonce"), "{error}");
    fs::remove_dir_all(bench.path()).unwrap();
    let error = bench.run(&["ls"]).failed(4);
    assert!(error.contains("but its witness") && error.contains("bring it back; if that can't be done"), "{error}");
    assert!(!error.contains("::"), "{error}");
    assert!(!fs::exists(bench.path()).unwrap());
}

#[tokio::test]
async fn a_store_with_a_secret_is_opened_with_it_alone() {
    let bench = Bench::kept(Kept::WithSecret("pepper"));
    let reference = bench.in_doubt("order-17").await;
    let (right, wrong) = (bench.file("right", "pepper\n"), bench.file("wrong", "salt"));
    let (empty, absent) = (bench.file("empty", "\n"), format!("{}/absent", bench.directory().display()));
    for (keys, why) in [
        (&[][..], "was written with a secret: give --secret-file PATH"),
        (&["--secret-file", &*wrong], "was written with a secret that the guard doesn't have"),
        (
            &["--secret-file", &wrong, "--secret-file", &right],
            "isn't written with the secret that is given first: give the one in use first (--secret-file)",
        ),
        (&["--secret-file", &empty], "holds no secret: it is empty"),
        (&["--secret-file", &absent], "can't be read"),
    ] {
        let error = bench.run(&[&["ls"][..], keys].concat()).failed(2);
        assert!(error.contains(why), "{error}");
    }
    let page = bench.run(&["show", &reference, "--secret-file", &right]).ok();
    assert!(page.contains(&format!(" --namespace shop --secret-file {right}\n")), "{page}");
    bench.run(&["resolve", &reference, "--happened", "--result", "1", "--secret-file", &right]).ok();
    // The agent isn't locked out by any of that.
    assert_eq!(bench.retry("order-17").await.message(), "1");
}

#[tokio::test]
async fn a_secret_or_seal_key_that_is_not_in_use_is_refused() {
    let bench = Bench::new();
    bench.in_doubt("order-17").await;
    let key = bench.file("key", [7; 32]);
    for (option, why) in [
        ("--secret-file", "\"shop\" was written without a secret: leave the secret out (--secret-file)"),
        ("--seal-key-file", "\"shop\" isn't sealed: leave the seal key out (--seal-key-file)"),
    ] {
        let error = bench.run(&["ls", option, &key]).failed(2);
        assert!(error.contains(why), "{error}");
    }
    bench.retry("order-17").await;
}

#[tokio::test]
async fn a_sealed_store_is_read_with_its_key_alone() {
    let bench = Bench::kept(Kept::Sealed([0xab; 32]));
    let reference = bench.done("order-17").await;
    let (raw, hex) = (bench.file("raw", [0xab; 32]), bench.file("hex", "Ab".repeat(32) + "\n"));
    let (wrong, short) = (bench.file("wrong", [1; 32]), bench.file("short", "abc"));
    for (keys, why) in [
        (&[][..], "give --seal-key-file PATH"),
        (&["--seal-key-file", &*wrong], "give --seal-key-file PATH"),
        (&["--seal-key-file", &short], "holds no seal key: that is 32 bytes, or 64 hex digits"),
    ] {
        let error = bench.run(&[&["show", &*reference][..], keys].concat()).failed(2);
        assert!(error.contains(why), "{error}");
    }
    for key in [raw, hex] {
        let page = bench.run(&["show", &reference, "--seal-key-file", &key]).ok();
        assert!(page.contains("\"noted\""), "{page}");
    }
}

#[tokio::test]
async fn a_named_witness_that_is_missing_is_no_witness() {
    let bench = Bench::new();
    bench.done("order-17").await;
    let missing = format!("{}/missing", bench.directory().display());
    let error = bench.run(&["ls", "--witness", &missing]).failed(2);
    assert!(error.contains("there is no witness"), "{error}");
    assert!(!fs::exists(missing).unwrap());
}

//! A disk that is full, and a directory that can't be written, under a guard on a sled store: what the operating system
//! does, not what a test double says it does.
//!
//! Neither needs a privilege, only Linux and its usual commands. The disk is full for one process: a limit on the size of
//! its files, set and lifted from outside while it runs (`prlimit`), lets real writes fail in the middle of sled. A
//! directory can't be written for a process without root's right to ignore permissions (`setpriv`). Each scene is a
//! process of its own, bounded in time (`timeout`), that must neither hang nor panic. Effects are lines of a ledger that
//! no guard knows of.

use std::error::Error;
use std::fs::{self, File, Permissions};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, process};

use serde_json::{Value, json};
use toolonce::store::{SledStore, Store, StoreError, StoreErrorKind};
use toolonce::{Attempt, Call, Guard, Policy, Registry, Reply, ReplyKind, Run, value_tool};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Names scene and directory to a child process.
const SCENE: &str = "TOOLONCE_DISK_SCENE";
const DIRECTORY: &str = "TOOLONCE_DISK_DIRECTORY";

/// How long a scene may take, in seconds.
const WITHIN: u64 = 120;

fn main() -> ExitCode {
    let result = match env::var(SCENE) {
        Ok(scene) => child(&scene),
        Err(_) if is_wanted() => parent(),
        Err(_) => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("disk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the test runner's arguments are about this test.
fn is_wanted() -> bool {
    let mut filters = env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    let listing = env::args().any(|argument| argument == "--list");
    !listing && (filters.peek().is_none() || filters.any(|filter| "disk".contains(&filter)))
}

// ---- The parent ----

/// What happens in one directory, one process after the other.
const STORIES: &[&[&str]] = &[
    &["full before the effect"],
    &["full after the effect"],
    &["full after the effect, then killed", "restarted", "restarted after that"],
    &["opened while full"],
    &["not writable"],
];

fn parent() -> Result {
    for story in STORIES {
        let directory = tempfile::tempdir()?;
        for scene in *story {
            let began = Instant::now();
            play(scene, directory.path()).map_err(|error| format!("{scene}: {error}"))?;
            println!("disk: {scene}: ok ({:.1} s)", began.elapsed().as_secs_f32());
        }
    }
    Ok(())
}

fn play(scene: &str, directory: &Path) -> Result {
    let mut command = Command::new("timeout");
    // Past the limit the system would end the process by a signal; with the signal ignored the write fails.
    command.arg(WITHIN.to_string()).args(["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    if scene == "not writable" && fs::metadata("/proc/self")?.uid() == 0 {
        command.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
    }
    command.arg(env::current_exe()?);
    command.env(SCENE, scene).env(DIRECTORY, directory);
    let output = command.output().map_err(|error| format!("`timeout` of coreutils can't be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) if said.contains("panicked") => Err(format!("something panicked:\n{said}").into()),
        Some(0) => Ok(()),
        Some(124) => Err(format!("it hangs:\n{said}").into()),
        _ => Err(format!("{}:\n{said}", output.status).into()),
    }
}

// ---- The children ----

fn child(scene: &str) -> Result {
    let at = PathBuf::from(env::var_os(DIRECTORY).ok_or("no directory")?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match scene {
            "full before the effect" => full_before(&at).await,
            "full after the effect" => full_after(&at).await,
            "full after the effect, then killed" => full_then_killed(&at).await,
            "restarted" => restarted(&at).await,
            "restarted after that" => restarted_after_that(&at).await,
            "opened while full" => opened_while_full(&at).await,
            "not writable" => not_writable(&at).await,
            other => Err(format!("there is no scene {other:?}").into()),
        }
    })
}

/// Sets how large files of this process may get, in bytes.
fn limit_files(to: &str) -> Result {
    let mut command = Command::new("prlimit");
    command.arg(format!("--pid={}", process::id())).arg(format!("--fsize={to}:"));
    let status = command.status().map_err(|error| format!("`prlimit` of util-linux can't be run: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("prlimit --fsize={to}: {status}").into()) }
}

/// No room for the store; the ledger is smaller than that.
fn fill() -> Result {
    limit_files("64")
}

fn make_room() -> Result {
    limit_files("unlimited")
}

fn check(holds: bool, what: &str, found: &dyn std::fmt::Debug) -> Result {
    if holds { Ok(()) } else { Err(format!("{what}: {found:?}").into()) }
}

fn effects(at: &Path) -> usize {
    fs::read_to_string(at.join("ledger")).map_or(0, |lines| lines.lines().count())
}

/// A guard with one tool; with `fills`, the disk is full when the tool has had its effect.
struct Shop {
    guard: Guard,
    tools: Registry,
    run: Run,
}

impl Shop {
    async fn open(at: &Path, fills: bool) -> Result<Self> {
        let guard = Guard::builder(SledStore::open(at.join("store")).await?, "disk").build().await?;
        let mut tools = Registry::new(&guard);
        let ledger = at.join("ledger");
        let body = move |args: Value, _: Attempt| {
            let ledger = ledger.clone();
            async move {
                let mut lines = File::options().append(true).create(true).open(ledger).unwrap();
                writeln!(lines, "{args}").unwrap();
                if fills && args["n"] == 2 {
                    fill().unwrap();
                }
                Ok(json!({"did": args["n"]}))
            }
        };
        tools.add(value_tool("act", "", json!({"type": "object"}), Policy::write(), body))?;
        let run = match Run::attach(&guard, "r").await {
            Ok(run) => run,
            Err(_) => Run::start(&guard, "r").await?,
        };
        Ok(Self { guard, tools, run })
    }

    async fn act(&self, n: u32, turn: u32) -> Reply {
        self.tools.call(&self.run, Call::with_value("act", &json!({"n": n})).id("c").turn(turn)).await
    }

    async fn expect(&self, (n, turn): (u32, u32), kind: ReplyKind) -> Result<Reply> {
        let reply = self.act(n, turn).await;
        check(reply.kind() == kind, &format!("{kind} expected"), &reply)?;
        Ok(reply)
    }
}

/// Asks again and again until `holds`.
async fn until<T, F: Future<Output = T>>(ask: impl Fn() -> F, holds: impl Fn(&T) -> bool) -> T {
    loop {
        let found = ask().await;
        if holds(&found) {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

async fn full_before(at: &Path) -> Result {
    let shop = Shop::open(at, false).await?;
    shop.expect((1, 0), ReplyKind::Executed).await?;
    fill()?;
    for turn in 1..4 {
        let reply = shop.expect((2, turn), ReplyKind::Refused).await?;
        let says = reply.message().contains("Nothing was done") && reply.message().contains("Try again later");
        check(says, "what to do", &reply)?;
    }
    let error = Run::start(&shop.guard, "other").await.err().ok_or("a run was started on a full disk")?;
    check(error.to_string().contains("ulimit -f"), "the error doesn't say what to do", &error)?;
    check(effects(at) == 1, "effects while the disk was full", &effects(at))?;
    make_room()?;
    until(|| shop.act(2, 4), |reply| reply.kind() != ReplyKind::Refused).await;
    shop.expect((2, 4), ReplyKind::Replayed).await?;
    shop.expect((1, 0), ReplyKind::Replayed).await?;
    check(effects(at) == 2, "effects in the end", &effects(at))?;
    shop.guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}

async fn full_after(at: &Path) -> Result {
    let shop = Shop::open(at, true).await?;
    shop.expect((1, 0), ReplyKind::Executed).await?;
    for turn in [1, 1, 2] {
        let reply = shop.expect((2, turn), ReplyKind::Unrecorded).await?;
        check(reply.outcome().map(|outcome| outcome.text()) == Some(r#"{"did":2}"#), "its result", &reply)?;
    }
    check(effects(at) == 2, "effects while the disk was full", &effects(at))?;
    make_room()?;
    until(|| shop.act(2, 1), |reply| reply.kind() != ReplyKind::Unrecorded).await;
    let again = shop.expect((2, 1), ReplyKind::Replayed).await?;
    check(!again.is_marked() && again.message() == r#"{"did":2}"#, "the same answer", &again)?;
    shop.guard.shutdown(Duration::from_secs(10)).await?;
    drop(shop);
    let shop = Shop::open(at, false).await?;
    shop.expect((2, 1), ReplyKind::Replayed).await?;
    check(effects(at) == 2, "effects in the end", &effects(at))
}

async fn full_then_killed(at: &Path) -> Result {
    let shop = Shop::open(at, true).await?;
    shop.expect((2, 0), ReplyKind::Unrecorded).await?;
    // Nothing is closed, dropped or written any more.
    process::exit(0)
}

async fn restarted(at: &Path) -> Result {
    let shop = Shop::open(at, false).await?;
    let reply = shop.expect((2, 0), ReplyKind::InDoubt).await?;
    check(effects(at) == 1, "effects after the restart", &effects(at))?;
    let inbox = shop.guard.inbox().await?;
    check(inbox.len() == 1 && Some(inbox[0].reference.as_str()) == reply.reference(), "the inbox", &inbox)
}

/// What is in doubt stays so, from one process to the next.
async fn restarted_after_that(at: &Path) -> Result {
    restarted(at).await
}

async fn opened_while_full(at: &Path) -> Result {
    for room in ["0", "64"] {
        limit_files(room)?;
        let error = SledStore::open(at.join("new")).await.err().ok_or("a store was made on a full disk")?;
        says(&error, "ulimit -f")?;
        make_room()?;
        // What a creation cut short leaves is no store: it begins anew.
        SledStore::open(at.join("new")).await?.close().await?;
        limit_files(room)?;
        let error = SledStore::open(at.join("new")).await.err().ok_or("a store was opened on a full disk")?;
        says(&error, "ulimit -f")?;
        make_room()?;
        SledStore::open(at.join("new")).await?.close().await?;
        fs::remove_dir_all(at.join("new"))?;
        fs::remove_file(at.join("new.witness"))?;
    }
    Ok(())
}

fn says(error: &StoreError, what: &str) -> Result {
    check(error.kind() == StoreErrorKind::Unavailable && error.to_string().contains(what), what, error)
}

async fn not_writable(at: &Path) -> Result {
    let there = at.join("there");
    SledStore::open(there.join("store")).await?.close().await?;
    let lock = |mode| fs::set_permissions(&there, Permissions::from_mode(mode));
    let lock_store = |mode| fs::set_permissions(there.join("store"), Permissions::from_mode(mode));
    lock(0o500)?;
    check(
        File::create(there.join("probe")).is_err(),
        "permissions don't bind this process; is setpriv at work?",
        &there,
    )?;
    let advice = "let this user read and write it, or choose another directory";
    // No place for a new store, none for the witness of one that is there, none for the store's own files.
    for (store, mode) in [("new", 0o700), ("store", 0o700), ("store", 0o500)] {
        lock_store(mode)?;
        let error = SledStore::open(there.join(store)).await.err().ok_or("opened all the same")?;
        says(&error, advice)?;
    }
    lock(0o700)?;
    lock_store(0o700)?;
    SledStore::open(there.join("store")).await?.close().await?;
    Ok(())
}

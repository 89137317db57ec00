//! The story: one conversation in which everything goes wrong that a guard is for, told by real processes.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;

use crate::agent::Lines;
use crate::chat::Conversation;
use crate::client::Endpoint;
use crate::ledger;
use crate::shop::{Death, Services};
use crate::ui::{Past, Style, Ui};
use crate::verdict::Verdict;
use crate::world::{Pace, World};

/// What the user says, and what is about to go wrong.
const LINES: [(Option<(usize, &str)>, &str); 8] = [
    (
        Some((1, "A slow charge outlives the agent's patience, and the model calls again")),
        "Hi, Ana here. Please charge order A-1042 to my card.",
    ),
    (Some((2, "The model repeats itself, in other words")), "Did that really go through? Please make sure."),
    (Some((3, "The process kills itself in mid-charge")), "Then charge order B-7 as well."),
    (Some((5, "The process kills itself again, a moment earlier")), "And charge C-300, please."),
    (Some((7, "A second e-mail, on purpose")), "Mail me the receipt for A-1042, please."),
    (None, "I deleted it by mistake. Mail it to me again."),
    (Some((8, "A tool of which asking again means it again")), "The card terminal hangs. Reboot it."),
    (None, "It still hangs. Reboot it once more."),
];
/// The processes that die, and what the next one has to do.
const DEATHS: [(&str, usize, &str); 2] = [
    ("sent", 4, "A new process resumes the run, and the ledger knows: it happened"),
    ("unsent", 6, "Another one resumes it, and the ledger knows: it did not happen"),
];

/// Tells the story. Whether nothing happened twice and nothing was lost.
pub(crate) async fn tell(store: Option<PathBuf>) -> anyhow::Result<bool> {
    let temporary = tempfile::tempdir().context("can't make a temporary directory")?;
    let directory = store.unwrap_or_else(|| temporary.path().to_owned());
    let (world, address) = World::serve(&directory, Pace::Story).await?;
    let run = format!("story-{}", ledger::now());
    let ui = Ui::new();
    ui.line(&format!("\n    {}\n", ui.paint(Style::Bold, "A shop assistant whose tool calls are safe to retry")));
    ui.note("The model is scripted and the shop is a ledger file that the guard doesn't control.");
    ui.note("The agent, its store and the crash are real.");

    let mut how = "--run";
    for (death, number, title) in DEATHS {
        if ui.is_broken() {
            return ui.finish().map(|()| true);
        }
        let died = process(&address, &directory, &[how, &run, "--dies", death]).await?;
        if died.success() {
            bail!("a process of the story outlived its end");
        }
        ui.heading(number, title);
        ui.note(&format!("The process before is gone ({died})."));
        how = "--resume";
    }
    let ended = process(&address, &directory, &[how, &run]).await?;
    if !ended.success() {
        bail!("the last process of the story failed ({ended})");
    }
    let entries = world.ledger.entries()?;
    let verdict = Verdict::of(&world.asked(), entries.iter().filter(|entry| entry.wish.run == run));
    verdict.show(&ui, world.requests());
    ui.finish()?;
    Ok(verdict.is_clean() && world.requests().1 == 0)
}

/// Runs one process of the story to its end.
async fn process(world: &str, directory: &std::path::Path, run: &[&str]) -> anyhow::Result<ExitStatus> {
    let program = std::env::current_exe().context("can't find this program to start it again")?;
    let mut child = Command::new(program);
    child.args(["--play", world, "--store"]).arg(directory).args(run).kill_on_drop(true);
    child.status().await.context("can't start a process of the story")
}

/// One process of the story: the agent, playing in a world that outlives it.
pub(crate) async fn play(world: String, dies: Option<Death>, conversation: Conversation) -> anyhow::Result<()> {
    let ui = Ui::new();
    // Short, so that the story is short: the defaults are 60 s of patience, 10 min for an attempt and 60 s until a
    // look-up's "no" counts. Who resumes is patient: the look-ups are repeated until one counts.
    let patience = Duration::from_secs(if conversation.resumed { 15 } else { 2 });
    let settings = |guard: toolonce::GuardBuilder| {
        guard.patience(patience).attempt_deadline(Duration::from_secs(8)).settle_delay(Duration::from_secs(1))
    };
    let guard = conversation.guard(settings).await?;
    let endpoint = Endpoint::scripted(&world);
    let services = Services::new(world, ui.clone(), dies)?;
    let agent = conversation.agent(&guard, &endpoint, &services, &ui).await?;
    if conversation.resumed {
        ui.replays(Past::OpenCalls);
    }
    agent.talk(&mut Told { ui }).await?;
    guard.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}

/// The user's lines, told.
struct Told {
    ui: Ui,
}

impl Lines for Told {
    async fn line(&mut self, n: usize) -> Option<String> {
        let (heading, line) = LINES.get(n)?;
        match heading {
            Some((number, title)) => self.ui.heading(*number, title),
            None => self.ui.line(""),
        }
        self.ui.you(line);
        Some((*line).to_owned())
    }
}

//! The chat in the terminal.

use std::borrow::Cow;
use std::io::{BufRead, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::mpsc;
use toolonce::store::SledStore;
use toolonce::{ErrorKind as Why, Guard, GuardBuilder, Run, Seen};

use crate::agent::{Agent, Lines};
use crate::client::{Endpoint, Model};
use crate::shop::{self, Services};
use crate::ui::{Past, Style, Ui};
use crate::world::{Pace, World};

/// Which conversation, where it is kept, and whether it exists.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) store: PathBuf,
    pub(crate) run: String,
    pub(crate) resumed: bool,
}

impl Conversation {
    /// A guard on the conversation's store.
    pub(crate) async fn guard(&self, settings: impl FnOnce(GuardBuilder) -> GuardBuilder) -> anyhow::Result<Guard> {
        let path = self.store.join("records");
        let store = SledStore::open(&path).await.with_context(|| format!("can't open the store {}", path.display()))?;
        Ok(settings(Guard::builder(store, "shop")).build().await?)
    }

    pub(crate) async fn agent(
        &self,
        guard: &Guard,
        endpoint: &Endpoint,
        services: &Services,
        ui: &Ui,
    ) -> anyhow::Result<Agent> {
        let run = match self.resumed {
            // The model's answers are steps: the log says how far the conversation had come.
            true => Run::resume(guard, &self.run, Seen::Steps).await,
            false => Run::start(guard, &self.run).await,
        };
        let run = run.map_err(|error| self.refused(error))?;
        let tools = shop::tools(guard, services)?;
        let model = Model::new(endpoint, &tools)?;
        Ok(Agent { run, tools, model, ui: ui.clone() })
    }

    /// Says which flag was meant.
    fn refused(&self, error: toolonce::Error) -> anyhow::Error {
        let (run, store) = (&self.run, self.store.display());
        match error.kind() {
            Why::NoSuchRun => anyhow!("there is no conversation {run:?} in {store}: begin it with --run"),
            Why::RunExists => anyhow!("there is a conversation {run:?} in {store}: go on with it with --resume"),
            _ => error.into(),
        }
    }
}

pub(crate) async fn chat(conversation: Conversation) -> anyhow::Result<()> {
    let real = Endpoint::from_environment()?;
    let ui = Ui::new();
    // The ledger is a file on this machine, and a charge is in it within a second or never: nothing has to be waited
    // for as long as with a bank, for which the defaults (10 min and 60 s) are made.
    let guard = conversation
        .guard(|guard| guard.attempt_deadline(Duration::from_secs(20)).settle_delay(Duration::from_secs(2)))
        .await?;
    let (_world, address) = World::serve(&conversation.store, Pace::Even).await?;
    let endpoint = real.unwrap_or_else(|| Endpoint::scripted(&address));
    let services = Services::new(address, ui.clone(), None)?;
    let agent = conversation.agent(&guard, &endpoint, &services, &ui).await?;
    opening(&ui, &conversation, &endpoint);
    if conversation.resumed {
        ui.replays(Past::Whole);
    }
    let talked = agent.talk(&mut Typed::new(ui.clone())).await;
    let closed = guard.shutdown(Duration::from_secs(30)).await;
    ui.line("");
    ui.note(&format!("Go on with it: {}", how_to_resume(&conversation)));
    talked?;
    closed?;
    ui.finish()
}

fn opening(ui: &Ui, conversation: &Conversation, endpoint: &Endpoint) {
    ui.line(&format!("\n    {}\n", ui.paint(Style::Bold, "A shop assistant whose tool calls are safe to retry")));
    ui.note(&endpoint.describe());
    ui.note(&format!("Effects go to {}.", conversation.store.join("ledger.jsonl").display()));
    ui.note("Kill this process whenever you like and go on with");
    ui.note(&how_to_resume(conversation));
    ui.note("An empty line ends the conversation. Try: charge order A-1042");
    ui.line("");
}

fn how_to_resume(conversation: &Conversation) -> String {
    let store = conversation.store.to_string_lossy();
    format!("cargo chatbot --resume {} --store {}", quoted(&conversation.run), quoted(&store))
}

/// The word as a shell takes it.
fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

/// Lines from standard input.
struct Typed {
    lines: mpsc::UnboundedReceiver<std::io::Result<String>>,
    ui: Ui,
    echo: bool,
}

impl Typed {
    fn new(ui: Ui) -> Self {
        let (send, lines) = mpsc::unbounded_channel();
        // A thread of its own, not the runtime's: a runtime waits for its threads, and nobody may type any more.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let last = line.as_ref().is_err_and(|error| error.kind() != ErrorKind::InvalidData);
                if send.send(line).is_err() || last {
                    return;
                }
            }
        });
        Self { lines, ui, echo: !std::io::stdin().is_terminal() }
    }
}

impl Lines for Typed {
    async fn line(&mut self, n: usize) -> Option<String> {
        if n > 0 {
            self.ui.line("");
        }
        let line = loop {
            if !self.echo {
                self.ui.prompt();
            }
            if self.ui.is_broken() {
                return None;
            }
            match self.lines.recv().await? {
                Ok(line) => break line,
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.ui.note("That line is not UTF-8 text, so it was left out.");
                }
                Err(error) => self.ui.note(&format!("The input can't be read: {error}.")),
            }
        };
        if line.trim().is_empty() {
            return None;
        }
        if self.echo {
            self.ui.you(&line);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_split_is_quoted() {
        assert_eq!(quoted("chat-1"), "chat-1");
        assert_eq!(quoted("it's Ana"), r"'it'\''s Ana'");
        assert_eq!(quoted(""), "''");
    }
}

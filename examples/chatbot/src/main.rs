//! A shop assistant whose tool calls are safe to retry: a chat in the terminal, and a story that tells itself.
//!
//! Everything is real but the shop: the model is reached over the chat completions protocol (a scripted one on the
//! loopback device if there is no key), the tools are guarded, their effects go to a ledger that the guard doesn't
//! control, and the process that is killed in the story is a real one.

mod agent;
mod brain;
mod chat;
mod client;
mod ledger;
mod model;
mod shop;
mod story;
mod ui;
mod verdict;
mod world;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use crate::chat::Conversation;

const ENVIRONMENT: &str = "\
With a terminal and no flag it chats; without a terminal it tells the story.

Environment:
  OPENAI_API_KEY    chat with a real model; without it (and without a base URL) a small scripted
                    model on the loopback device answers
  OPENAI_BASE_URL   where the model is [default: https://api.openai.com/v1]; https needs a build
                    with `--features tls`
  OPENAI_MODEL      which model [default: gpt-5-mini]
  NO_COLOR          no colours";

/// A shop assistant whose tool calls are safe to retry.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo chatbot", after_help = ENVIRONMENT)]
struct Options {
    /// Tell the story: no key, no input, under a minute; exit code 1 if anything happened twice or was lost
    #[arg(long, conflicts_with_all = ["resume", "run"])]
    demo: bool,
    /// Go on with a conversation after a crash; its past turns are read from the store, not paid for again
    #[arg(long, value_name = "RUN", conflicts_with = "run")]
    resume: Option<String>,
    /// Begin a conversation under this name [default: chat- and the time]
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Where the records and the ledger are kept [default: ./chatbot-data, for the story a temporary directory]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// One process of the story: the address of the world it plays in
    #[arg(long, value_name = "URL", hide = true)]
    play: Option<String>,
    /// How that process ends
    #[arg(long, value_enum, hide = true)]
    dies: Option<shop::Death>,
}

impl Options {
    fn tells_the_story(&self) -> bool {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.demo || (self.resume.is_none() && self.run.is_none() && !terminal)
    }

    fn conversation(self) -> anyhow::Result<Conversation> {
        // Absolute, so that what is said about going on holds in any directory.
        let store = std::path::absolute(self.store.unwrap_or_else(|| PathBuf::from("chatbot-data")))
            .context("can't find the directory of --store")?;
        let resumed = self.resume.is_some();
        let run = self.resume.or(self.run).unwrap_or_else(|| format!("chat-{}", ledger::now() / 1000));
        Ok(Conversation { store, run, resumed })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Whoever closed it doesn't want to know.
            let _ = writeln!(std::io::stderr(), "chatbot: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whether all went as it must.
async fn run(options: Options) -> anyhow::Result<bool> {
    match options.play.clone() {
        Some(world) => story::play(world, options.dies, options.conversation()?).await.map(|()| true),
        None if options.tells_the_story() => story::tell(options.store).await,
        None => chat::chat(options.conversation()?).await.map(|()| true),
    }
}

/// The error with its causes, without those that it spells out itself.
fn sentence(error: &anyhow::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    causes.fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        text if text.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let error =
            anyhow!("refused").context("can't connect").context("http error: can't connect").context("no answer");
        assert_eq!(sentence(&error), "no answer: http error: can't connect: refused");
    }
}

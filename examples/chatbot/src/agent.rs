//! The agent's loop. The whole conversation is in the run's log: what the user typed and what the model answered are
//! steps, so a resumed run reads them there and pays for nothing twice; what the tools did is in their records.

use std::cell::Cell;

use serde_json::{Value, json};
use toolonce::adapter::openai::chat_message;
use toolonce::{Error, Registry, Run, ToolCall};

use crate::client::{Model, Said};
use crate::ui::Ui;

const SYSTEM: &str = "You are the assistant of a small shop. Look an order up before you charge it. Amounts are in \
                      euro cents. Be brief. If a tool answers that something is still running or was done already, \
                      believe it.";

/// Where the user's lines come from.
pub(crate) trait Lines {
    /// The n-th line, or the end of the conversation.
    async fn line(&mut self, n: usize) -> Option<String>;
}

pub(crate) struct Agent {
    pub(crate) run: Run,
    pub(crate) tools: Registry,
    pub(crate) model: Model,
    pub(crate) ui: Ui,
}

impl Agent {
    /// Talks until the lines end.
    pub(crate) async fn talk(&self, lines: &mut impl Lines) -> anyhow::Result<()> {
        let mut messages = vec![json!({"role": "system", "content": SYSTEM})];
        let mut turn = 0;
        for n in 0.. {
            let Some(line) = self.listen(n, lines).await? else { break };
            messages.push(json!({"role": "user", "content": line}));
            loop {
                let said = self.ask(&messages).await?;
                messages.push(said.message()?);
                if said.calls.is_empty() {
                    turn += 1;
                    break;
                }
                for call in said.calls.iter().map(ToolCall::to_call) {
                    self.ui.call(call.tool(), call.arguments());
                }
                // One answer for each call, whatever happened: the next request would be rejected otherwise.
                for reply in self.tools.answer(&self.run, turn, &said.calls).await {
                    self.ui.answer(&reply);
                    messages.push(serde_json::to_value(chat_message(&reply))?);
                }
                turn += 1;
            }
        }
        self.ui.live();
        Ok(())
    }

    /// The user's n-th line: from the log, or typed now.
    async fn listen(&self, n: usize, lines: &mut impl Lines) -> anyhow::Result<Option<String>> {
        let (typed, ended) = (Cell::new(false), Cell::new(false));
        let line = self.run.step("user", &n, || async {
            typed.set(true);
            self.ui.live();
            let line = lines.line(n).await;
            ended.set(line.is_none());
            line.ok_or_else(|| Error::step("the conversation ended"))
        });
        match line.await {
            Err(_) if ended.get() => Ok(None),
            Err(error) => Err(error.into()),
            Ok(line) => {
                if !typed.get() {
                    if n > 0 {
                        self.ui.line("");
                    }
                    self.ui.you(&line);
                }
                Ok(Some(line))
            }
        }
    }

    /// The model's next message: from the log, or paid for now.
    async fn ask(&self, messages: &[Value]) -> anyhow::Result<Said> {
        let paid = Cell::new(false);
        let said = self.run.step("model", messages, || async {
            paid.set(true);
            self.ui.live();
            let mut speech = self.ui.speaks();
            let said = self.model.say(messages, |word| speech.word(word)).await;
            speech.ends();
            said.map_err(|error| Error::step(crate::sentence(&error)))
        });
        let said: Said = said.await?;
        if !paid.get() {
            self.ui.said(&said.text);
        }
        Ok(said)
    }
}

//! The model, reached through async-openai's client.

use std::time::Duration;

use anyhow::{Context, bail};
use async_openai::Client;
use async_openai::config::{OPENAI_API_BASE, OpenAIConfig};
use async_openai::types::chat::ChatCompletionMessageToolCalls;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolonce::Registry;
use toolonce::adapter::openai::{StreamedCalls, chat_tools};

/// Where the model is.
#[derive(Debug)]
pub(crate) struct Endpoint {
    base: String,
    key: String,
    model: String,
    local: bool,
}

impl Endpoint {
    /// The real one that the environment names, if it names one.
    pub(crate) fn from_environment() -> anyhow::Result<Option<Self>> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (key, base) = (set("OPENAI_API_KEY"), set("OPENAI_BASE_URL"));
        if key.is_none() && base.is_none() {
            return Ok(None);
        }
        let base = base.unwrap_or_else(|| OPENAI_API_BASE.to_owned());
        let address = reqwest::Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(address) = address else {
            bail!("OPENAI_BASE_URL is {base:?}: it must be an http address like http://127.0.0.1:8080/v1");
        };
        if address.scheme() == "https" && !cfg!(feature = "tls") {
            bail!(
                "{base} needs TLS, which this build leaves out so that no C compiler is needed: \
                 run `cargo run --release --package chatbot --features tls`, or set OPENAI_BASE_URL to a plain http \
                 address"
            );
        }
        let model = set("OPENAI_MODEL").unwrap_or_else(|| "gpt-5-mini".to_owned());
        Ok(Some(Self { base, key: key.unwrap_or_default(), model, local: false }))
    }

    /// The scripted one of a world on this machine.
    pub(crate) fn scripted(world: &str) -> Self {
        let (key, model) = ("none".to_owned(), "scripted".to_owned());
        Self { base: format!("{world}/v1"), key, model, local: true }
    }

    pub(crate) fn describe(&self) -> String {
        match self.local {
            true => "The model is a scripted one on this machine: set OPENAI_API_KEY for a real one.".to_owned(),
            false => format!("The model is {} at {}.", self.model, self.base),
        }
    }
}

/// One message of the model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) calls: Vec<ChatCompletionMessageToolCalls>,
}

impl Said {
    /// The message as the next request must echo it.
    pub(crate) fn message(&self) -> anyhow::Result<Value> {
        let mut message = json!({"role": "assistant", "content": self.text});
        if !self.calls.is_empty() {
            message["tool_calls"] = serde_json::to_value(&self.calls)?;
        }
        Ok(message)
    }
}

pub(crate) struct Model {
    client: Client<OpenAIConfig>,
    name: String,
    tools: Value,
}

impl Model {
    pub(crate) fn new(endpoint: &Endpoint, tools: &Registry) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
        let http = if endpoint.local { http.no_proxy() } else { http };
        let config = OpenAIConfig::new().with_api_base(&endpoint.base).with_api_key(&endpoint.key);
        Ok(Self {
            client: Client::build(http.build()?, config),
            name: endpoint.model.clone(),
            tools: serde_json::to_value(chat_tools(tools))?,
        })
    }

    /// The next message, streamed. The chunks are read as plain JSON, so that servers that are only nearly compatible
    /// are understood as well.
    pub(crate) async fn say(&self, messages: &[Value], mut word: impl FnMut(&str)) -> anyhow::Result<Said> {
        let request = json!({"model": self.name, "messages": messages, "tools": self.tools, "stream": true});
        let mut stream =
            self.client.chat().create_stream_byot::<_, Value>(&request).await.context("the model can't be asked")?;
        let (mut text, mut calls) = (String::new(), StreamedCalls::new());
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.context("the model's answer broke off")?;
            if let Some(error) = chunk.get("error") {
                bail!("the model's server gave up: {error}");
            }
            let piece = chunk.pointer("/choices/0/delta/content").and_then(Value::as_str).unwrap_or_default();
            word(piece);
            text.push_str(piece);
            calls.push_value(&chunk);
        }
        Ok(Said { text, calls: calls.finish()? })
    }
}

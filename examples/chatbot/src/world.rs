//! The world outside of the agent, on the loopback device: the scripted model and the shop's services.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::ledger::{Effect, Entry, Ledger, Wish};
use crate::model;

/// An effect as the model asked for it, noted where the model speaks: not by the guard.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

/// How long the services take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// As services do.
    Even,
    /// As the story needs it: the first charge hangs until the model has called again, and the second one takes its
    /// time, so that a process can die meanwhile.
    Story,
}

pub(crate) struct World {
    pub(crate) ledger: Ledger,
    pace: Pace,
    /// Keys of wishes that are being carried out.
    under_way: Mutex<HashSet<String>>,
    asked: Mutex<Vec<Asked>>,
    /// How many calls the model has made.
    calls: watch::Sender<usize>,
    /// Every conversation that the model was asked to go on with, and how often.
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    all: usize,
    distinct: HashSet<String>,
}

/// What the services say about a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Found {
    Done { entry: Entry },
    UnderWay,
    Nothing,
}

impl World {
    /// Opens the ledger of `directory` and serves on a free port. The address is that of the services; the model is
    /// below it, at `/v1`.
    pub(crate) async fn serve(directory: &Path, pace: Pace) -> anyhow::Result<(Arc<Self>, String)> {
        let world = Arc::new(Self {
            ledger: Ledger::open(directory)?,
            pace,
            under_way: Mutex::default(),
            asked: Mutex::default(),
            calls: watch::Sender::new(0),
            requests: Mutex::default(),
        });
        let routes = Router::new()
            .route("/effects", post(happen).get(find))
            .route("/v1/chat/completions", post(model::complete))
            .route("/v1/models", get(model::list))
            .with_state(Arc::clone(&world));
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .context("can't listen on the loopback device")?;
        let address = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok((world, address))
    }

    /// Notes that the model was asked to go on from `messages`.
    pub(crate) fn requested(&self, messages: &[Value]) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.all += 1;
        requests.distinct.insert(Value::from(messages).to_string());
    }

    /// How many requests the model got, and how many of them it had answered before.
    pub(crate) fn requests(&self) -> (usize, usize) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        (requests.all, requests.all - requests.distinct.len())
    }

    /// Notes a call that the model made.
    pub(crate) fn called(&self, tool: &str, arguments: Value) {
        let asked = Asked { tool: tool.to_owned(), arguments };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        self.calls.send_modify(|calls| *calls += 1);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn take_time(&self, effect: &Effect) {
        let Effect::Charge { order, .. } = effect else { return tokio::time::sleep(Duration::from_millis(150)).await };
        match (self.pace, order.as_str()) {
            (Pace::Even, _) => tokio::time::sleep(Duration::from_millis(700)).await,
            (Pace::Story, "A-1042") => {
                let mut calls = self.calls.subscribe();
                let now = *calls.borrow_and_update();
                // An error means that the model is gone: then there is nothing to wait for.
                let _ = calls.wait_for(|calls| *calls > now).await;
                tokio::time::sleep(Duration::from_millis(800)).await;
            }
            (Pace::Story, _) => tokio::time::sleep(Duration::from_millis(1500)).await,
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes something happen. Once taken it goes on, whether or not the sender still listens.
async fn happen(State(world): State<Arc<World>>, Json(wish): Json<Wish>) -> Response {
    world.under_way().insert(wish.key.clone());
    let work = tokio::spawn(async move {
        world.take_time(&wish.effect).await;
        let key = wish.key.clone();
        let entry = world.ledger.append(wish);
        world.under_way().remove(&key);
        entry
    });
    match work.await {
        Ok(Ok(entry)) => Json(entry).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct Key {
    key: String,
}

async fn find(State(world): State<Arc<World>>, Query(Key { key }): Query<Key>) -> Response {
    if world.under_way().contains(&key) {
        return Json(Found::UnderWay).into_response();
    }
    match world.ledger.entries() {
        Ok(entries) => {
            let found = entries.into_iter().find(|entry| entry.wish.key == key);
            Json(found.map_or(Found::Nothing, |entry| Found::Done { entry })).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!(format!("{error:#}")))).into_response(),
    }
}

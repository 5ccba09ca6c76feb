//! The program as a library: with a model that has little patience, and killed after so many records.
use super::mind::{self, KEY};
use crate::fixture::Bench;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use spinney::{
    agent::Unwatched,
    cli::Context,
    clock::{Clock, Timestamp},
    engine::{self, Asker, Ended, Models, Prepared, Project, RunOptions},
    event::{Given, NodeId, Record, RunId},
    http::{Client, Timeouts},
    journal::{Answered, Question},
    llm::{Endpoints, HttpModel, Limiter, Replay},
    plan::Plan,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// One project with models behind a server.
pub(super) struct Drive {
    project: Project,
    models: Models,
    plan: Arc<Plan>,
}

struct Nobody;

#[async_trait]
impl Asker for Nobody {
    async fn ask(&self, _: &NodeId, _: &Question) -> Option<Answered> {
        None
    }
}

fn options() -> RunOptions {
    RunOptions {
        asker: Arc::new(Nobody),
        watcher: Arc::new(Unwatched),
        clock: Clock::system(),
        given: Given { unconfined: true, ..Given::default() },
        accept_changes: false,
        recording: None,
    }
}

impl Drive {
    /// Makes a model that bears a second's silence, and whose waits between attempts take no time.
    pub(super) fn new(bench: &Bench, workflow: &str) -> Drive {
        Drive::with_window(bench, workflow, None)
    }

    /// Makes the same with a window of so many tokens.
    pub(super) fn with_window(bench: &Bench, workflow: &str, window: Option<u64>) -> Drive {
        let overrides = mind::overrides(bench).into_iter().filter(|_| workflow == "feature").map(|alias| (alias.to_owned(), mind::GEMINI.to_owned())).collect();
        let project = Project::open(Context::settings(bench.environment().clone(), bench.repo())).unwrap();
        let named = project.endpoints();
        let mut endpoints = Endpoints::default();
        for name in named.names() {
            let mut endpoint = named.get(name).unwrap().clone();
            endpoint.timeouts = Timeouts { first_byte: Duration::from_mins(1), idle: Duration::from_secs(1) };
            endpoint.window = window;
            endpoints.insert(endpoint);
        }
        let clock = Clock::fake(Timestamp(1_796_000_000_000));
        let model = HttpModel::new(Client::new().unwrap(), endpoints.clone(), Limiter::new(clock.clone(), 16), clock);
        let default = bench
            .environment()
            .get("OPENAI_API_KEY")
            .map(|_| "openai/any".to_owned())
            .or_else(|| bench.environment().get("GEMINI_API_KEY").map(|_| mind::GEMINI.to_owned()));
        Drive::of(project, workflow, Models::endpoints(Arc::new(model), &endpoints, default, overrides))
    }

    /// Makes a model that answers from a recording: one process's part of a replay.
    pub(super) fn replaying(bench: &Bench, workflow: &str, tape: &str) -> Drive {
        let project = Project::open(Context::settings(bench.environment().clone(), bench.repo())).unwrap();
        let replay = Replay::parse("tape", tape, Clock::system()).unwrap();
        let models = Models::replayed(replay, tape.to_owned(), &project.endpoints(), None, BTreeMap::new());
        Drive::of(project, workflow, models)
    }

    fn of(project: Project, workflow: &str, models: Models) -> Drive {
        let (plan, _) = project.compile(&project.workflow(workflow).unwrap(), &models).unwrap();
        Drive { project, models, plan: Arc::new(plan) }
    }

    /// Begins a run.
    pub(super) fn start(&self, inputs: Value) -> Prepared {
        let inputs: Map<String, Value> = serde_json::from_value(inputs).unwrap();
        self.project.start(self.plan.clone(), &inputs, &self.models, options()).unwrap()
    }

    /// Takes a run up again.
    pub(super) fn resume(&self, run: &RunId) -> Prepared {
        self.project.resume(run, self.plan.clone(), &self.models, options()).unwrap()
    }
}

/// The inputs of `feature`.
pub(super) fn inputs(check: &str) -> Value {
    json!({"goal": "Two parts", "check": check, "ask": false})
}

/// Carries a run on until it ends, or drops it as it stands after `records` records; `None` where it was dropped.
pub(super) fn carry_on(prepared: Prepared, records: usize) -> Option<Ended> {
    let Prepared { journal, services, dir: _dir, lease: _lease, .. } = prepared;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (enough, mut left) = (Arc::new(Notify::new()), records);
    let told = enough.clone();
    let mut observe = move |_: &Record| {
        left = left.saturating_sub(1);
        if left == 0 {
            told.notify_one();
        }
    };
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            () = enough.notified() => None,
            ended = engine::run(journal, services, CancellationToken::new(), &mut observe) => Some(ended.unwrap()),
        }
    });
    // Threads at work end what they are at, as a system call does when a process is killed.
    runtime.shutdown_timeout(Duration::from_mins(1));
    ended
}

/// Returns the names and contents of all files below a folder.
pub(super) fn files_below(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap_or_default()));
            }
        }
    }
    found
}

/// Asserts that the key stands in no file below a folder.
#[track_caller]
pub(super) fn assert_no_key_below(folder: &std::path::Path) {
    for (name, content) in files_below(folder) {
        assert!(!content.windows(KEY.len()).any(|bytes| bytes == KEY.as_bytes()), "the key stands in {name}");
    }
}

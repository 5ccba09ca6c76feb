//! The engine driven with a model that is a function: a test sees what was sent, sets what a reply costs and stops a run
//! at a record of its choice. Everything else is as the program does it.
use crate::fixture::Bench;
use async_trait::async_trait;
use serde_json::{Map, Value};
use spinney::{
    agent::Unwatched,
    cli::Context,
    clock::Clock,
    engine::{self, Asker, Ended, Models, Prepared, Project, RunOptions, Settings},
    event::{Event, Given, NodeId, Record},
    journal::{Answered, Question},
    llm::{Endpoints, ModelCall, ModelError, Script, script::reply_to},
    message::{Reply, View},
    tools::Tool,
};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// What one request held.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) node: String,
    pub(crate) system: String,
    pub(crate) tools: Vec<String>,
    /// Each message as it was shown: role, then its text and tool results.
    pub(crate) messages: Vec<String>,
}

impl Sent {
    fn of(call: &ModelCall<'_>) -> Sent {
        let shown = |block: &spinney::message::Block| match block.view() {
            View::Text(text) => text.clone(),
            View::ToolResult(result) => format!("[result] {}", result.text),
            View::ToolCall(call) => format!("[call] {} {}", call.name, call.input),
            View::Thinking(_) | View::Other(_) => String::new(),
        };
        Sent {
            node: call.node.to_string(),
            system: call.system.to_owned(),
            tools: call.tools.iter().map(|tool| tool.name.clone()).collect(),
            messages: call.messages.iter().map(|message| message.blocks.iter().map(shown).collect::<Vec<_>>().join("\n")).collect(),
        }
    }

    /// Returns how many replies came before.
    pub(crate) fn turn(&self) -> usize {
        self.messages.len() / 2
    }

    pub(crate) fn last(&self) -> &str {
        self.messages.last().map_or("", String::as_str)
    }
}

/// What a function says: text and calls, or a whole reply of its own.
pub(crate) enum Line {
    Say(String, Vec<(String, Value)>),
    Whole(Box<Reply>),
    Fail(ModelError),
}

impl Line {
    pub(crate) fn say(text: &str) -> Line {
        Line::Say(text.to_owned(), Vec::new())
    }

    pub(crate) fn call(tool: &str, input: Value) -> Line {
        Line::Say(String::new(), vec![(tool.to_owned(), input)])
    }
}

/// A run to be driven.
pub(crate) struct Drive<'a> {
    bench: &'a Bench,
    models: Models,
    clock: Clock,
    sent: Arc<Mutex<Vec<Sent>>>,
    inputs: Map<String, Value>,
    asker: Arc<dyn Asker>,
    lent: Option<Arc<dyn Tool>>,
    contained: bool,
}

impl Bench {
    /// Prepares to drive runs with a scripted model.
    pub(crate) fn drive_script(&self, script: &str) -> Drive<'_> {
        let models = Models::scripted(Arc::new(Script::parse("script", script).unwrap()), script.to_owned(), &Endpoints::from_env(&|_| None));
        Drive {
            bench: self,
            models,
            clock: Clock::system(),
            sent: Arc::default(),
            inputs: Map::new(),
            asker: Arc::new(NobodyIsThere),
            lent: None,
            contained: false,
        }
    }

    /// Prepares to drive runs with a model that is a function of what it was sent.
    pub(crate) fn drive(&self, model: impl Fn(&Sent, &ModelCall<'_>) -> Line + Send + Sync + 'static) -> Drive<'_> {
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let log = sent.clone();
        let script = Script::from_fn(Box::new(move |call| {
            let seen = Sent::of(call);
            log.lock().unwrap().push(seen.clone());
            match model(&seen, call) {
                Line::Say(text, calls) => {
                    let calls: Vec<(&str, Value)> = calls.iter().map(|(tool, input)| (tool.as_str(), input.clone())).collect();
                    Ok(reply_to(call, &text, &calls))
                }
                Line::Whole(reply) => Ok(*reply),
                Line::Fail(error) => Err(error),
            }
        }));
        Drive {
            bench: self,
            models: Models::scripted(Arc::new(script), "conversations: []".to_owned(), &Endpoints::from_env(&|_| None)),
            clock: Clock::system(),
            sent,
            inputs: Map::new(),
            asker: Arc::new(NobodyIsThere),
            lent: None,
            contained: false,
        }
    }
}

impl Drive<'_> {
    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a tool that agents may be given.
    pub(crate) fn lending(mut self, tool: Arc<dyn Tool>) -> Self {
        self.lent = Some(tool);
        self
    }

    /// Gives runs these inputs.
    pub(crate) fn inputs(mut self, inputs: Map<String, Value>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Takes it that commands reach nothing beyond their worktree.
    pub(crate) fn contained(mut self) -> Self {
        self.contained = true;
        self
    }

    /// Answers every question with yes.
    pub(crate) fn saying_yes(mut self) -> Self {
        self.asker = Arc::new(SaysYes);
        self
    }

    /// Returns what was sent so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Runs a workflow to its end.
    pub(crate) fn run(&self, workflow: &str) -> (Ended, Vec<Record>) {
        self.run_until(workflow, |_| false)
    }

    /// Runs a workflow until a record at which the process is asked to stop.
    pub(crate) fn run_until(&self, workflow: &str, stop: impl FnMut(&Record) -> bool + Send) -> (Ended, Vec<Record>) {
        self.carry_out(self.begun(workflow), stop)
    }

    /// Takes the newest run up again.
    pub(crate) fn resume(&self, workflow: &str) -> (Ended, Vec<Record>) {
        self.carry_out(self.prepared(workflow), |_| false)
    }

    /// Prepares a run to be begun.
    pub(crate) fn begun(&self, workflow: &str) -> Prepared {
        let project = self.project();
        let plan = self.plan(&project, workflow);
        project.start(plan, &self.inputs, &self.models, self.options()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Prepares the newest run to be taken up again.
    pub(crate) fn prepared(&self, workflow: &str) -> Prepared {
        let project = self.project();
        let plan = self.plan(&project, workflow);
        project.resume(&self.bench.newest(), plan, &self.models, self.options()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn project(&self) -> Project {
        let settings = Settings { contained: self.contained, ..Context::settings(self.bench.environment().clone(), self.bench.repo()) };
        let mut project = Project::open(settings).unwrap();
        if let Some(tool) = &self.lent {
            project.toolbox = Arc::new((*project.toolbox).clone().with(tool.clone()));
        }
        project
    }

    fn plan(&self, project: &Project, workflow: &str) -> Arc<spinney::plan::Plan> {
        Arc::new(project.compile(&project.workflow(workflow).unwrap(), &self.models).unwrap_or_else(|error| panic!("{error:?}")).0)
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            asker: self.asker.clone(),
            watcher: Arc::new(Unwatched),
            clock: self.clock.clone(),
            given: Given { unconfined: true, ..Given::default() },
            accept_changes: false,
            recording: None,
        }
    }

    fn carry_out(&self, prepared: Prepared, mut stop: impl FnMut(&Record) -> bool + Send) -> (Ended, Vec<Record>) {
        let Prepared { journal, services, run, lease, .. } = prepared;
        let cancel = CancellationToken::new();
        let mut observe = |record: &Record| {
            if stop(record) {
                cancel.cancel();
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(engine::run(journal, services, cancel.clone(), &mut observe)).unwrap();
        drop(lease);
        let records = self.bench.records(&run);
        crate::invariants::check(&records, &self.bench.repo());
        (ended, records)
    }
}

struct NobodyIsThere;

#[async_trait]
impl Asker for NobodyIsThere {
    async fn ask(&self, _: &NodeId, _: &Question) -> Option<Answered> {
        None
    }
}

/// Returns the answers to an agent's calls in the order of the calls, which is not always that of their ends.
pub(crate) fn answers<'a>(records: &'a [Record], node: &str) -> Vec<(&'a str, bool, &'a str)> {
    let of = |record: &'a Record| match &record.event {
        Event::ToolFinished { node: of, tool, result, .. } if of.to_string() == node => {
            Some((&result.call, (tool.as_str(), result.is_error, result.text.as_str())))
        }
        _ => None,
    };
    let mut answers: Vec<(Vec<usize>, (&str, bool, &str))> =
        records.iter().filter_map(of).map(|(call, answer)| (call.split('_').filter_map(|part| part.parse().ok()).collect(), answer)).collect();
    answers.sort_by(|a, b| a.0.cmp(&b.0));
    answers.into_iter().map(|(_, answer)| answer).collect()
}

struct SaysYes;

#[async_trait]
impl Asker for SaysYes {
    async fn ask(&self, _: &NodeId, _: &Question) -> Option<Answered> {
        Some(Answered { allowed: true, by: "a test".to_owned(), note: None })
    }
}

//! The orchestrator at work: its conversation, and its powers, which are data only.
//!
//! A power is a tool. Its call is examined against the state of the run, recorded, and visible; nothing else it says
//! changes anything.
use super::{
    added,
    ask_person::AskPerson,
    digest, fan, scope,
    steps::{self, End, Opening, Services, Sessions, Workplace},
};
use crate::{
    agent::{Account, Agent, Trouble, note},
    clock::{Pulse, Timestamp},
    event::{CommitId, Event, Failure, FailureKind, NodeId, Outcome, RunStarted, SkipCause, StepId},
    journal::{Conversation, NodeState, Recorder, RunState},
    message::ToolSpec,
    plan::{OrchestratorSpec, Plan, PlannedStep, items},
    tools::{Effect, Tool, ToolContext, ToolError, ToolOutput, Toolbox},
    workflow::Power,
};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Something the orchestrator wants, on its way to the loop.
pub(super) struct Petition {
    pub(super) orchestrator: NodeId,
    pub(super) wish: Wish,
    pub(super) answer: oneshot::Sender<Result<String, String>>,
}

/// What it wants.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wish {
    AddItems { step: NodeId, items: Vec<Value> },
    Retry(NodeId),
    Stop(NodeId),
}

/// What a wish comes to.
#[derive(Debug)]
pub(super) enum Granted {
    /// These events, and what to say.
    Record(Vec<Event>, String),
    /// The end of a node.
    Stop(NodeId),
}

/// Examines a wish against the state of the run. What was granted since the orchestrator's last reply is granted again
/// and not done again: a call may be repeated after a crash.
///
/// # Errors
/// Why not, for the model.
pub(super) fn examine(state: &RunState, orchestrator: &NodeId, wish: &Wish, now: Timestamp) -> Result<Granted, String> {
    let frame = state.frame(&orchestrator.within).ok_or("this run has no such steps")?;
    let spec = frame.plan.orchestrator.as_ref().ok_or("this run has no orchestrator")?;
    match wish {
        Wish::AddItems { step, items } => add(state, orchestrator, spec, step, items),
        Wish::Retry(node) => match open_item(state, spec, node)? {
            _ if frame.watch.has_retried(node) => Ok(Granted::Record(Vec::new(), format!("`{node}` will be tried again"))),
            Some(Outcome::Failed(failure)) => {
                let event = Event::RetryScheduled { node: node.clone(), due: now, failure: (**failure).clone(), handed_over: false, lost: false };
                Ok(Granted::Record(vec![event], format!("`{node}` will be tried again")))
            }
            _ => Err(format!("`{node}` has not failed")),
        },
        Wish::Stop(node) => match open_item(state, spec, node)? {
            None => Ok(Granted::Stop(node.clone())),
            Some(Outcome::Skipped(SkipCause::Stopped)) => Ok(Granted::Record(Vec::new(), stopped(node))),
            Some(_) => Err(format!("`{node}` has ended already")),
        },
    }
}

/// Says that a node is stopped.
pub(super) fn stopped(node: &NodeId) -> String {
    format!("`{node}` is stopped")
}

fn open_item<'a>(state: &'a RunState, spec: &OrchestratorSpec, node: &NodeId) -> Result<Option<&'a Outcome>, String> {
    if !spec.supervises.contains(&node.step) || state.node(node).is_none() || node.item.is_none() {
        return Err(format!("there is no item `{node}`"));
    }
    if state.outcome(&node.whole()).is_some() {
        return Err(format!("step `{}` has ended", node.step));
    }
    Ok(state.outcome(node))
}

fn add(state: &RunState, orchestrator: &NodeId, spec: &OrchestratorSpec, step: &NodeId, values: &[Value]) -> Result<Granted, String> {
    let planned = state.step(step).filter(|planned| spec.supervises.contains(&planned.id)).ok_or_else(|| format!("there is no step `{step}` with items"))?;
    let watch = &state.frame(&orchestrator.within).ok_or("this run has no such steps")?.watch;
    if let Some(keys) = watch.has_added(&step.step, values) {
        return Ok(Granted::Record(Vec::new(), said_added(step, &keys)));
    }
    let (Some(for_each), Some(present)) = (&planned.for_each, state.fan(step)) else { return Err(format!("step `{step}` has no items yet")) };
    if state.outcome(step).is_some() {
        return Err(format!("step `{step}` has ended"));
    }
    let added = watch.added() + u32::try_from(values.len()).unwrap_or(u32::MAX);
    if added > spec.max_added {
        return Err(format!("at most {} items may be added in a run, and {} were", spec.max_added, watch.added()));
    }
    let scope = scope::scope(state, step, &planned.reads);
    let items = fan::more(planned, for_each, &scope, present.items.len(), values).map_err(|failure| failure.message)?;
    items::check(&items, &present.keys().collect::<BTreeSet<_>>())?;
    added::check(state, step, planned, &scope, &items)?;
    let said = said_added(step, &items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>());
    Ok(Granted::Record(vec![Event::ItemsAdded { step: step.clone(), items, by: orchestrator.clone(), max_parallel: None }], said))
}

fn said_added(step: &NodeId, keys: &[&str]) -> String {
    format!("added to `{step}`: {}", keys.join(", "))
}

/// The orchestrator's session for one waking.
pub(super) struct Watcher {
    pub(super) node: NodeId,
    pub(super) plan: Arc<Plan>,
    pub(super) base: CommitId,
    pub(super) account: Arc<Account>,
    pub(super) recorder: Recorder,
    pub(super) desk: mpsc::Sender<Petition>,
    pub(super) helpers: Arc<BTreeMap<String, NodeState>>,
    pub(super) talk: Conversation,
    pub(super) run: Arc<RunStarted>,
}

impl Watcher {
    /// Goes on with the conversation until it rests.
    pub(super) async fn run(self, services: &Arc<Services>, cancel: &CancellationToken) -> End {
        match self.session(services, cancel).await {
            Ok(text) => End::Rested { text, failure: None },
            Err(Trouble::Failed(failure)) => End::Rested { text: String::new(), failure: Some(failure) },
            Err(Trouble::Parked) => End::Parked,
            Err(Trouble::Interrupted) => End::Interrupted,
        }
    }

    fn sessions(&self, services: &Arc<Services>) -> Sessions {
        Sessions {
            services: services.clone(),
            plan: self.plan.clone(),
            recorder: self.recorder.clone(),
            account: self.account.clone(),
            run: self.run.clone(),
            attempt: 1,
            began: Timestamp(0),
            helpers: self.helpers.clone(),
            pulse: Pulse::new(&services.clock),
            is_retried: false,
        }
    }

    async fn session(&self, services: &Arc<Services>, cancel: &CancellationToken) -> Result<String, Trouble> {
        let bug = || Trouble::Failed(Failure::new(FailureKind::Bug, "the orchestrator was never briefed"));
        let spec = self.plan.orchestrator.as_ref().ok_or_else(bug)?;
        let brief = self.talk.brief().cloned().ok_or_else(bug)?;
        let agent = spec.agent.clone();
        let view = steps::view(services, &self.base).await?;
        let place = Workplace {
            worktree: None,
            root: view,
            cwd: None,
            base: Some(self.base.clone()),
            scope: None,
            env: services.env.clone(),
            coming: None,
            links: Vec::new(),
        };
        let opening = Opening { node: &self.node, agent, place, talk: &self.talk, cancel };
        let (mut equipment, session) = self.sessions(services).open(opening).await?;
        equipment.toolbox = Arc::new(tools(&self.node, spec, &self.desk).into_iter().fold((*services.toolbox).clone(), Toolbox::with));
        let mut watcher = Agent::new(&equipment, session, self.talk.clone());
        let ended = watcher.run(&brief).await;
        note(watcher.span(), &ended);
        ended
    }
}

/// Makes the event that begins an orchestrator's conversation.
pub(super) fn briefed(state: &RunState, node: &NodeId, services: &Services) -> Option<Event> {
    let frame = state.frame(&node.within)?;
    let plan = &frame.plan;
    let spec = plan.orchestrator.as_ref()?;
    let started = state.started()?;
    let inputs = frame.inputs.as_ref().unwrap_or(&started.inputs);
    let said = |step: &PlannedStep| format!("- {}{}", step.id, if step.is_fan() { " (one agent for each item)" } else { "" });
    let mut steps: Vec<String> = plan.steps().take(digest::STEPS).map(said).collect();
    let mut supervised: Vec<String> = spec.supervises.iter().take(digest::STEPS).map(|step| step.0.clone()).collect();
    for (named, all) in [(&mut steps, plan.order().len()), (&mut supervised, spec.supervises.len())] {
        if all > named.len() {
            named.push(format!("and {} more", all - named.len()));
        }
    }
    let message = format!(
        "You are the orchestrator of run {} of the workflow `{}`. {}\nInputs: {}\nSteps:\n{}\nYou watch over the items of: {}. You are woken when something changes, always in this conversation. Your tools are all the power you have; what you only say changes nothing.",
        started.run,
        plan.name,
        plan.description,
        Value::Object(inputs.clone()),
        steps.join("\n"),
        if supervised.is_empty() { "nothing".to_owned() } else { supervised.join(", ") },
    );
    let mut brief = steps::brief(services, plan, &spec.agent, (&message, None));
    let (desk, _) = mpsc::channel(1);
    brief.tools.extend(tools(node, spec, &desk).iter().map(|tool| tool.spec().clone()));
    brief.tools.sort_by(|a, b| a.name.cmp(&b.name));
    Some(Event::AgentBriefed { node: node.clone(), brief: Arc::new(brief) })
}

fn tools(node: &NodeId, spec: &OrchestratorSpec, desk: &mpsc::Sender<Petition>) -> Vec<Arc<dyn Tool>> {
    let tool = |power: &Power| match PowerTool::new(*power, node.clone(), desk.clone()) {
        Some(tool) => Arc::new(tool) as Arc<dyn Tool>,
        None => Arc::new(AskPerson::new(power.tool())),
    };
    spec.may.iter().map(tool).collect()
}

/// A power as a tool.
struct PowerTool {
    power: Power,
    orchestrator: NodeId,
    spec: ToolSpec,
    desk: mpsc::Sender<Petition>,
}

impl PowerTool {
    fn new(power: Power, orchestrator: NodeId, desk: mpsc::Sender<Petition>) -> Option<PowerTool> {
        let item = json!({
            "type": "object", "additionalProperties": false, "required": ["step", "key"],
            "properties": {"step": {"type": "string", "description": "The step's id"}, "key": {"type": "string", "description": "The item's key"}}
        });
        let (description, input_schema) = match power {
            Power::AddItems => (
                "Appends items to a step that is still running, one agent for each. An item has the same form as those of the step's own list. Keys must be new.",
                json!({
                    "type": "object", "additionalProperties": false, "required": ["step", "items"],
                    "properties": {"step": {"type": "string", "description": "The step's id"}, "items": {"type": "array", "minItems": 1, "maxItems": 64, "description": "The new items"}}
                }),
            ),
            Power::Retry => ("Tries a failed item again, from its beginning.", item),
            Power::Stop => ("Stops an item that has not ended. What it did so far is not merged.", item),
            Power::Ask => return None,
        };
        let spec = ToolSpec { name: power.tool().to_owned(), description: description.to_owned(), input_schema };
        Some(PowerTool { power, orchestrator, spec, desk })
    }

    fn wish(&self, input: &Value) -> Wish {
        let text = |field: &str| input.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let step = self.orchestrator.beside(&StepId(text("step")));
        match self.power {
            Power::AddItems => Wish::AddItems { step, items: input.get("items").and_then(Value::as_array).cloned().unwrap_or_default() },
            Power::Retry => Wish::Retry(step.with_item(&text("key"))),
            Power::Stop | Power::Ask => Wish::Stop(step.with_item(&text("key"))),
        }
    }
}

#[async_trait]
impl Tool for PowerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value, _: &ToolContext) -> Effect {
        Effect::Recorded
    }

    async fn call(&self, input: &Value, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let (answer, answered) = oneshot::channel();
        let over = || ToolError::Model("the run is ending".to_owned());
        self.desk.send(Petition { orchestrator: self.orchestrator.clone(), wish: self.wish(input), answer }).await.map_err(|_| over())?;
        let text = answered.await.map_err(|_| over())?.map_err(ToolError::Model)?;
        Ok(ToolOutput { response: Value::String(text.clone()), text, ..ToolOutput::default() })
    }
}

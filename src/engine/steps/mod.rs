//! One file a kind of work. The match is exhaustive: a new kind does not compile until it has a file.
//!
//! A worker gets a [`Task`]: everything it may know, taken from the state when it was begun. It reports by the recorder
//! and ends as an [`End`]; it never sees the state itself.
mod agent;
mod approve;
mod artefact;
mod cache;
mod command;
mod hold;
mod keep;
mod merge;
mod place;
mod select;
mod servers;
mod services;
mod session;
mod shelf;

use super::{accounts::Accounts, scope, tips::Tips};
use crate::{
    agent::{Account, Trouble, note},
    clock::{Pulse, seconds},
    event::{CommitId, Event, Failure, FailureKind, NodeId, Outcome, RunStarted, Success},
    journal::{Doing, NodeState, Recorder, RunState},
    merge::Source,
    plan::{AgentSpec, Plan, PlannedStep, Work},
    prompts::Scope,
    trace,
};
pub(super) use approve::answered;
pub(super) use cache::{Makings, REFS as KEPT_RESULTS, Store as CacheStore, foresee, is_kept};
pub(super) use command::{NOT_BEGUN, TIMED_OUT, said_in_failure};
use futures_util::{FutureExt as _, future::BoxFuture};
pub(crate) use keep::checkpoint_ref;
pub(super) use keep::{Unkept, keep_all, unkept};
pub(super) use place::{VIEW_PREFIX, Workplace, globs, lost_worktree, slug, view};
pub(super) use select::no_candidate;
use serde_json::Value;
pub(super) use services::Artefacts;
pub use services::Services;
use services::Whose;
pub(super) use session::{Opening, Sessions, brief, declared, may_delegate};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{Arc, LazyLock, OnceLock},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// How a worker ended.
pub(super) enum End {
    /// The node did.
    Finished(Outcome),
    /// It waits for a person, or for a model.
    Parked,
    /// The process is to end; the node goes on on resume.
    Interrupted,
    /// The orchestrator has nothing more to say for now.
    Rested {
        /// Its words.
        text: String,
        /// Why it cannot go on at all.
        failure: Option<Failure>,
    },
    /// The files of what was stopped are kept.
    Kept,
    /// The commits that a frame is to start from, or has come to, are one.
    Joined(Result<CommitId, Failure>),
    /// The run's end.
    Closed(Result<Outcome, Failure>),
}

/// A node that begins, and where its work finds all that it may know: whoever does it takes what it needs.
pub(super) struct Order<'a> {
    pub(super) state: &'a RunState,
    pub(super) node: &'a NodeId,
    /// Its state.
    pub(super) own: &'a NodeState,
    pub(super) step: &'a PlannedStep,
    pub(super) accounts: &'a mut Accounts,
    pub(super) tips: &'a mut Tips,
    pub(super) recorder: &'a Recorder,
}

impl Order<'_> {
    /// Returns the account that its requests are charged to.
    pub(super) fn account(&mut self) -> Arc<Account> {
        self.accounts.of(self.state, self.node)
    }

    /// Returns what its templates see.
    pub(super) fn scope(&self) -> Scope {
        scope::scope(self.state, self.node, &self.step.reads)
    }

    /// Takes everything up, for a worker that never sees the state.
    pub(super) fn job(mut self) -> Job {
        let (state, node) = (self.state, self.node);
        let frame = state.frame(&node.within).expect("a step stands in a frame");
        Job {
            scope: self.scope(),
            sources: sources(state, node, self.step),
            candidates: candidates(state, node, self.step),
            run: state.started().expect("nothing begins before the run has started").clone(),
            plan: frame.plan.clone(),
            account: self.account(),
            node: node.clone(),
            state: self.own.clone(),
            helpers: helpers(state, node),
            tips: self.tips.for_node(state, node),
            framed: frame.base.clone(),
            loops: loops(state, node),
        }
    }
}

/// Everything a worker may know of the run.
pub(super) struct Job {
    /// The plan of the node's frame.
    pub(super) plan: Arc<Plan>,
    pub(super) account: Arc<Account>,
    pub(super) run: Arc<RunStarted>,
    pub(super) node: NodeId,
    pub(super) state: NodeState,
    pub(super) helpers: Arc<BTreeMap<String, NodeState>>,
    pub(super) scope: Scope,
    pub(super) sources: Vec<Source>,
    pub(super) candidates: Vec<Candidate>,
    /// What it starts from, to be joined; its frame's base where there is nothing.
    pub(super) tips: Vec<CommitId>,
    /// The commit that its frame starts from; none where that is the run's.
    pub(super) framed: Option<CommitId>,
    /// The loops that it stands inside of.
    pub(super) loops: BTreeSet<NodeId>,
}

/// A node's work with what it takes to carry it out.
pub(super) struct Task {
    job: Job,
    pub(super) services: Arc<Services>,
    pub(super) recorder: Recorder,
    pub(super) cancel: CancellationToken,
    /// Where signs of life are noted.
    pub(super) pulse: Pulse,
    /// What a command had said when it was ended.
    remains: OnceLock<Value>,
    /// What its worktree was made from, once it has one of its own.
    own: OnceLock<CommitId>,
    /// The commit of its work, once that is recorded.
    captured: OnceLock<CommitId>,
}

impl Job {
    /// Returns the commit that its frame starts from.
    pub(super) fn base(&self) -> &CommitId {
        self.framed.as_ref().unwrap_or(&self.run.base)
    }

    pub(super) fn with(self, services: &Arc<Services>, recorder: Recorder, cancel: CancellationToken) -> Task {
        let pulse = Pulse::new(&services.clock);
        let captured = self.state.deeds.captured.as_ref().map(|(commit, _)| OnceLock::from(commit.clone())).unwrap_or_default();
        Task { job: self, services: services.clone(), recorder, cancel, pulse, remains: OnceLock::new(), own: OnceLock::new(), captured }
    }
}

impl Deref for Task {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

/// Does a node's work.
pub(super) async fn run(task: Task) -> End {
    let plan = task.plan.clone();
    let Some(step) = plan.step(&task.node.step) else {
        return End::Finished(Failure::new(FailureKind::Bug, format!("the plan has no step `{}`", task.node.step)).into());
    };
    let span = trace::step(&task.node, task.state.attempts);
    let ended = within(&task, step, do_work(&task, step)).instrument(span.clone()).await;
    note(&span, &ended);
    if let Err(Trouble::Failed(failure)) = &ended
        && failure.kind == FailureKind::NoRoom
    {
        // It is gone on with as it is.
        return End::Finished(failure.clone().into());
    }
    if matches!(ended, Ok(_) | Err(Trouble::Failed(_))) {
        place::drop_scratch(&task, step).await;
    }
    match ended {
        Ok(success) => End::Finished(Outcome::Succeeded(success)),
        Err(Trouble::Failed(failure)) => {
            let kept = keep::keep_what_there_is(&task).await;
            End::Finished(kept.err().unwrap_or(failure).into())
        }
        Err(Trouble::Parked) => End::Parked,
        Err(Trouble::Interrupted) => End::Interrupted,
    }
}

async fn do_work(task: &Task, step: &PlannedStep) -> Result<Success, Trouble> {
    // A name that another node has is found before anybody is paid.
    let Some((name, is_new)) = artefact::claim(task, step)? else { return done(task, step).await };
    let kept = async {
        let success = done(task, step).await?;
        artefact::keep(task, step, &name, &success).await?;
        Ok(success)
    };
    let kept = kept.await;
    if is_new && matches!(kept, Err(Trouble::Failed(_) | Trouble::Interrupted)) {
        task.services.artefacts.release(&name);
    }
    kept
}

/// Does the work, or takes a recorded result for it.
async fn done(task: &Task, step: &PlannedStep) -> Result<Success, Trouble> {
    match cache::look_up(task, step).await? {
        cache::LookedUp::Hit(success) => Ok(success),
        cache::LookedUp::Miss(key) => {
            let success = by_kind(task, step).await?;
            cache::keep(task, key, &success).await;
            Ok(success)
        }
    }
}

fn by_kind<'a>(task: &'a Task, step: &'a PlannedStep) -> BoxFuture<'a, Result<Success, Trouble>> {
    match &step.work {
        Work::Agent { agent, prompt } => agent::run(task, step, task.agent(step, agent), &prompt.value).boxed(),
        Work::Run { command } => command::run(task, step, &command.value).boxed(),
        Work::Merge(spec) => merge::run(task, step, spec).boxed(),
        Work::Select(spec) => select::run(task, step, spec).boxed(),
        Work::Approve(spec) => approve::run(task, spec).boxed(),
        Work::Workflow(_) | Work::Loop(_) => {
            std::future::ready(Err(Failure::new(FailureKind::Bug, "a step with steps inside has no work of its own").into())).boxed()
        }
    }
}

/// Holds work to its time: cancelled at the end of it and awaited, so that nothing of it is left running.
async fn within<T>(task: &Task, step: &PlannedStep, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let mut work = std::pin::pin!(work);
    let silent = async {
        match step.idle_timeout {
            Some(longest) => task.pulse.silent_for(longest).await,
            None => std::future::pending().await,
        }
    };
    let failure = tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(step.timeout) => {
            Failure::new(FailureKind::Timeout, format!("it was not done after {}", seconds(step.timeout))).hint("raise the step's `timeout`")
        }
        () = silent => {
            let longest = step.idle_timeout.unwrap_or_default();
            Failure::new(FailureKind::Timeout, format!("it showed no sign of life for {}", seconds(longest))).hint("raise its `idle_timeout`")
        }
    };
    task.cancel.cancel();
    let _ = work.await;
    Err(Failure { output: task.remains.get().cloned().unwrap_or_default(), ..failure }.into())
}

/// One of the pieces of work that a select step chooses from.
pub(super) struct Candidate {
    /// What the step's output calls it: the item's key where all are items of one step, else the node's name.
    pub(super) key: String,
    pub(super) source: Source,
    /// What it said of its work.
    pub(super) said: String,
    /// What gives it away: its names, its agent's and its models'.
    pub(super) names: Vec<String>,
}

/// Returns what a select step chooses from, in the order of its `from` and of the items.
pub(super) fn candidates(state: &RunState, at: &NodeId, step: &PlannedStep) -> Vec<Candidate> {
    let Work::Select(spec) = &step.work else { return Vec::new() };
    let candidate = |source: Source| {
        let of = state.node(&source.node)?;
        let key = source.node.item.clone().filter(|_| spec.from.len() == 1).unwrap_or_else(|| source.node.to_string());
        let said = match &*of.outcome.as_ref().and_then(Outcome::success)?.output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let brief = of.conversation.brief();
        let models = brief.iter().flat_map(|brief| &brief.models).map(String::as_str).chain(of.conversation.model());
        let mut names: Vec<String> = models.flat_map(|model| [model, model.rsplit('/').next().unwrap_or(model)]).map(str::to_owned).collect();
        names.extend([source.node.to_string(), key.clone()]);
        names.extend(brief.map(|brief| brief.agent.clone()));
        // Longer ones first, so that none is left in part.
        names.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        names.dedup();
        Some(Candidate { key, source, said, names })
    };
    sources(state, at, step).into_iter().filter_map(candidate).collect()
}

/// Returns the work that a step joins or chooses from, in the order of its `from` and of the items.
pub(super) fn sources(state: &RunState, at: &NodeId, step: &PlannedStep) -> Vec<Source> {
    let mut sources = Vec::new();
    for from in step.sources() {
        let own = at.beside(from);
        let items = state.items(&own).collect::<Vec<_>>();
        for (node, of) in state.node(&own).map(|node| (own, node)).into_iter().chain(items) {
            let commit = of.outcome.as_ref().and_then(Outcome::success).and_then(|success| success.commit.clone());
            let first = || state.frame(&node.frame(of.attempts, 1)).and_then(|frame| frame.base.clone());
            let (Some(commit), Some(base)) = (commit, of.deeds.workspace.as_ref().map(|workspace| workspace.base.clone()).or_else(first)) else { continue };
            let title = of.item.as_ref().and_then(|item| item.title()).map_or_else(|| node.to_string(), |title| format!("{node}: {title}"));
            sources.push(Source { node, title, commit, base });
        }
    }
    sources
}

/// Returns the loops that a node stands inside of.
pub(super) fn loops(state: &RunState, node: &NodeId) -> BTreeSet<NodeId> {
    let openers = std::iter::successors(node.opener(), NodeId::opener);
    openers.filter(|opener| state.step(opener).is_some_and(|step| matches!(step.work, Work::Loop(_)))).collect()
}

/// Returns the helper sessions that a node has begun.
pub(super) fn helpers(state: &RunState, node: &NodeId) -> Arc<BTreeMap<String, NodeState>> {
    static NONE: LazyLock<Arc<BTreeMap<String, NodeState>>> = LazyLock::new(Arc::default);
    let helpers: BTreeMap<String, NodeState> = state.helpers(node).map(|(name, helper)| (name.to_owned(), helper.clone())).collect();
    if helpers.is_empty() { NONE.clone() } else { Arc::new(helpers) }
}

impl Task {
    /// Returns the agent that does the present attempt: the step's own, or the one that a failed item is handed over to.
    pub(super) fn agent<'a>(&self, step: &'a PlannedStep, own: &'a Arc<AgentSpec>) -> &'a Arc<AgentSpec> {
        step.retry_with.as_ref().filter(|_| self.state.handed_over).unwrap_or(own)
    }

    /// Names something that this attempt does outside of the run.
    pub(super) fn doing<'s>(&'s self, place: &'s str) -> Doing<'s> {
        Doing { node: &self.node, attempt: self.state.attempts, place }
    }

    /// Records an event of this task.
    async fn record(&self, event: Event) -> Result<(), Trouble> {
        Ok(self.recorder.record(event).await?)
    }

    fn render(&self, what: &str, text: &str) -> Result<String, Trouble> {
        Ok(rendered(&self.scope, what, text)?)
    }
}

/// Keeps the beginning of a text, and says what is left out.
fn cut(text: &str, bytes: usize, what: &str) -> String {
    let end = text.floor_char_boundary(bytes);
    if end == text.len() { text.to_owned() } else { format!("{}\n[… {} more bytes of {what} are not shown]", &text[..end], text.len() - end) }
}

/// Renders a template that a step has under the name `what`.
fn rendered(scope: &Scope, what: &str, text: &str) -> Result<String, Failure> {
    crate::prompts::render(text, scope).map_err(|error| Failure::new(FailureKind::Template, format!("`{what}`: {error}")))
}

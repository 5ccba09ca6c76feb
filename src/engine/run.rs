//! The loop of a run: it alone appends to the journal, and never does a step's work itself.
use super::{
    Services, close,
    decide::{Command, Live, decide},
    digest, fan,
    powers::{self, Petition},
    purse::RunPurse,
    scope,
    steps::{self, End, Task},
};
use crate::{
    agent::out_of_budget,
    clock::Timestamp,
    event::{CommitId, Event, Failure, FailureKind, Limit, NodeId, Outcome, Record, SkipCause, StepId},
    journal::{Journal, JournalError, Recorder, Report, Store},
    plan::{Plan, Work},
    prompts,
    tasks::Tasks,
    workflow::{OnExceed, RetryOn},
};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Reports that may wait for the loop, and the most it appends at once.
const BATCH: usize = 256;

/// How a process's part of a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The run is over.
    Finished(Outcome),
    /// Nothing can go on until a person answers: node and question of each.
    Parked(Vec<(NodeId, String)>),
    /// The process was asked to stop; the run can be resumed.
    Interrupted,
}

/// Why the loop itself failed; the run can be resumed once that is mended.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The run's end could not be made; what it is made of is kept.
    #[error("end the run: {}", .0.message)]
    Close(Failure),
    /// Nothing runs, nothing waits, and the run is not over: a bug.
    #[error("go on: nothing runs, nothing waits and the run is not over ({0})")]
    Stuck(String),
}

/// Runs a plan from wherever the journal stands, and hands each record to `observe` once it is acknowledged.
///
/// # Errors
/// Where the journal cannot be written, or a bug left the run stuck.
pub async fn run<S: Store>(
    journal: Journal<S>,
    services: Arc<Services>,
    cancel: CancellationToken,
    observe: &mut (dyn FnMut(&Record) + Send),
) -> Result<Ended, EngineError> {
    let (recorder, reports) = Recorder::channel(BATCH);
    let (desk, petitions) = mpsc::channel(16);
    let plan = journal.state().plan().clone();
    let purse = Arc::new(RunPurse::new(plan.limits, journal.state().spent(), services.clock.clone()));
    let mut engine = Engine {
        plan,
        journal,
        services,
        purse,
        recorder,
        desk,
        cancel,
        live: Live::default(),
        workers: Tasks::default(),
        tokens: HashMap::new(),
        stopped: HashMap::new(),
        expired: false,
        tips: HashMap::new(),
        observe,
    };
    engine.run(reports, petitions).await
}

struct Engine<'a, S> {
    plan: Arc<Plan>,
    journal: Journal<S>,
    services: Arc<Services>,
    purse: Arc<RunPurse>,
    recorder: Recorder,
    desk: mpsc::Sender<Petition>,
    cancel: CancellationToken,
    live: Live,
    workers: Tasks<(NodeId, End)>,
    tokens: HashMap<NodeId, CancellationToken>,
    stopped: HashMap<NodeId, Vec<oneshot::Sender<Result<String, String>>>>,
    /// Whether the run's time is over and what was under way is being cancelled.
    expired: bool,
    tips: HashMap<StepId, Arc<[CommitId]>>,
    observe: &'a mut (dyn FnMut(&Record) + Send),
}

impl<S: Store> Engine<'_, S> {
    async fn run(&mut self, mut reports: mpsc::Receiver<Report>, mut petitions: mpsc::Receiver<Petition>) -> Result<Ended, EngineError> {
        loop {
            self.advance()?;
            if let Some(ended) = self.ended()? {
                return Ok(ended);
            }
            let timer = self.journal.state().timers().values().min().copied().filter(|_| !self.live.stopping);
            let clock = self.services.clock.clone();
            let over = self.journal.state().limit().is_some() || self.live.stopping || self.live.closing;
            let left = self.purse.time_left();
            tokio::select! {
                Some(report) = reports.recv() => self.take(report, &mut reports)?,
                Some((node, end)) = self.workers.next() => self.worker_ended(&node, end)?,
                Some(petition) = petitions.recv() => self.petitioned(petition)?,
                () = self.cancel.cancelled(), if !self.live.stopping => self.stop(),
                () = async { match timer { Some(due) => clock.sleep_until(due).await, None => std::future::pending().await } } => self.timers_fired()?,
                () = tokio::time::sleep(left), if !over => self.out_of_time()?,
            }
        }
    }

    /// Does what is decided until nothing more is.
    fn advance(&mut self) -> Result<(), EngineError> {
        loop {
            let commands = decide(&self.plan, self.journal.state(), &self.live);
            if commands.is_empty() {
                return Ok(());
            }
            let events = commands.iter().flat_map(|command| self.events_for(command)).collect();
            self.append(events)?;
            for command in commands {
                match command {
                    Command::Start { node, .. } | Command::Continue { node } => self.spawn(node),
                    Command::Wake { .. } => self.spawn_orchestrator(),
                    Command::Close => self.spawn_close(),
                    Command::Evaluate { .. } | Command::Expand { .. } | Command::Join { .. } | Command::Skip { .. } => {}
                }
            }
        }
    }

    /// Returns the events that a command is recorded by before it is carried out.
    fn events_for(&self, command: &Command) -> Vec<Event> {
        let state = self.journal.state();
        match command {
            Command::Start { node, attempt } => vec![Event::StepStarted { node: node.clone(), attempt: *attempt }],
            Command::Skip { node, cause } => vec![Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(cause.clone()) }],
            Command::Evaluate { node } => vec![self.evaluate(node)],
            Command::Expand { step } => vec![self.expand(step)],
            Command::Join { step } => {
                let for_each = self.plan.step(step).and_then(|step| step.for_each.as_ref());
                for_each.map(|for_each| Event::StepFinished { node: NodeId::step(step), outcome: fan::join(state, step, for_each) }).into_iter().collect()
            }
            Command::Wake { idle } => {
                let fresh = self.plan.orchestrator.as_ref().and_then(|spec| state.node(&spec.node)).is_none_or(|node| node.conversation.brief().is_none());
                let brief = if fresh { powers::briefed(state, &self.services) } else { None };
                brief.into_iter().chain(digest::woken(state, *idle)).collect()
            }
            Command::Continue { .. } | Command::Close => Vec::new(),
        }
    }

    fn evaluate(&self, node: &NodeId) -> Event {
        let Some(step) = self.plan.step(&node.step) else { return failed(node, "the plan has no such step") };
        let text = step.condition.as_ref().map_or("true", |condition| condition.value.as_str());
        match prompts::condition(text, &scope::scope(self.journal.state(), node, &scope::reads(step))) {
            Ok(holds) => Event::ConditionEvaluated { node: node.clone(), holds },
            Err(error) => failed(node, &format!("`if`: {error}")),
        }
    }

    fn expand(&self, id: &StepId) -> Event {
        let node = NodeId::step(id);
        let Some((step, for_each)) = self.plan.step(id).and_then(|step| Some((step, step.for_each.as_ref()?))) else {
            return failed(&node, "the step has no `for_each`");
        };
        match fan::expand(for_each, &scope::scope(self.journal.state(), &node, &scope::reads(step))) {
            Ok((items, max_parallel)) => Event::ItemsAdded { step: id.clone(), items, by: node, max_parallel },
            Err(failure) => Event::StepFinished { node, outcome: failure.into() },
        }
    }

    fn append(&mut self, events: Vec<Event>) -> Result<(), EngineError> {
        if events.is_empty() {
            return Ok(());
        }
        for record in self.journal.append(events)? {
            (self.observe)(&record);
        }
        Ok(())
    }

    /// Appends a report and all that wait behind it in one transaction, then tells their senders.
    fn take(&mut self, first: Report, reports: &mut mpsc::Receiver<Report>) -> Result<(), EngineError> {
        let mut events = vec![first.event];
        let mut waiting: Vec<oneshot::Sender<()>> = vec![first.acknowledged];
        while events.len() < BATCH
            && let Ok(report) = reports.try_recv()
        {
            events.push(report.event);
            waiting.push(report.acknowledged);
        }
        self.append(events)?;
        for acknowledged in waiting {
            // The worker may be gone by now; its event stands all the same.
            let _ = acknowledged.send(());
        }
        Ok(())
    }

    fn spawn(&mut self, node: NodeId) {
        if self.plan.orchestrator.as_ref().is_some_and(|spec| spec.node == node) {
            return self.spawn_orchestrator();
        }
        let plan = self.plan.clone();
        let Some(step) = plan.step(&node.step) else { return };
        let tips = self.tips_for(&node);
        let state = self.journal.state();
        let token = self.cancel.child_token();
        self.tokens.insert(node.clone(), token.clone());
        self.live.nodes.insert(node.clone());
        let task = Task {
            scope: scope::scope(state, &node, &scope::reads(step)),
            sources: steps::sources(state, step),
            run: state.started().cloned().unwrap_or_else(close::no_run),
            plan: self.plan.clone(),
            services: self.services.clone(),
            purse: self.purse.clone(),
            recorder: self.recorder.clone(),
            cancel: token,
            node: node.clone(),
            state: state.node(&node).cloned().unwrap_or_default(),
            helpers: state.helpers(&node).map(|(name, talk)| (name.to_owned(), talk.clone())).collect(),
            tips,
        };
        let panicked = node.clone();
        self.workers.spawn(async move { (node, steps::run(task).await) }, move |panic| (panicked, End::Finished(Failure::from(panic).into())));
    }

    fn spawn_orchestrator(&mut self) {
        let Some(spec) = &self.plan.orchestrator else { return };
        let node = spec.node.clone();
        let token = self.cancel.child_token();
        self.tokens.insert(node.clone(), token.clone());
        self.live.nodes.insert(node.clone());
        let watch = powers::Watcher {
            plan: self.plan.clone(),
            services: self.services.clone(),
            purse: self.purse.clone(),
            recorder: self.recorder.clone(),
            desk: self.desk.clone(),
            cancel: token,
            talk: self.journal.state().node(&node).map(|state| state.conversation.clone()).unwrap_or_default(),
            run: self.journal.state().started().cloned().unwrap_or_else(close::no_run),
        };
        let panicked = node.clone();
        let rested = |panic: crate::tasks::Panicked| End::Rested { text: String::new(), failure: Some(Failure::from(panic)) };
        self.workers.spawn(async move { (node, watch.run().await) }, move |panic| (panicked, rested(panic)));
    }

    fn spawn_close(&mut self) {
        self.live.closing = true;
        let node = close::node();
        let tips = self.sink_tips();
        let job = close::Close::new(self.journal.state(), tips, &self.services, &self.recorder);
        let panicked = node.clone();
        self.workers.spawn(async move { (node, End::Closed(job.run().await)) }, move |panic| (panicked, End::Closed(Err(Failure::from(panic)))));
    }

    fn worker_ended(&mut self, node: &NodeId, end: End) -> Result<(), EngineError> {
        self.live.nodes.remove(node);
        self.tokens.remove(node);
        self.note_limit()?;
        match end {
            End::Finished(outcome) => self.node_ended(node, outcome),
            End::Parked => {
                self.live.parked.insert(node.clone());
                Ok(())
            }
            End::Interrupted if self.stopped.contains_key(node) => self.record_stopped(node),
            End::Interrupted if self.expired && !self.live.stopping => {
                let failure = out_of_budget(Limit::Time);
                match &self.plan.orchestrator {
                    Some(spec) if spec.node == *node => {
                        self.append(vec![Event::OrchestratorRested { node: node.clone(), text: String::new(), failure: Some(failure) }])
                    }
                    Some(_) | None => self.node_ended(node, failure.into()),
                }
            }
            End::Interrupted => Ok(()),
            End::Rested { text, failure } => self.append(vec![Event::OrchestratorRested { node: node.clone(), text, failure }]),
            End::Closed(Ok(outcome)) => self.append(vec![Event::RunFinished { outcome }]),
            End::Closed(Err(failure)) if self.live.stopping || matches!(failure.kind, FailureKind::Environment | FailureKind::Bug) => {
                Err(EngineError::Close(failure))
            }
            End::Closed(Err(failure)) => self.append(vec![Event::RunFinished { outcome: failure.into() }]),
        }
    }

    fn note_limit(&mut self) -> Result<(), EngineError> {
        match self.purse.reached() {
            Some(limit) if self.journal.state().limit().is_none() => self.append(vec![Event::LimitReached { limit }]),
            _ => Ok(()),
        }
    }

    fn node_ended(&mut self, node: &NodeId, outcome: Outcome) -> Result<(), EngineError> {
        if self.stopped.contains_key(node) {
            return self.record_stopped(node);
        }
        let winding_down = self.journal.state().limit().is_some() && self.plan.on_exceed == OnExceed::Finish;
        let limited = outcome.failure().is_some_and(|failure| matches!(failure.kind, FailureKind::Limit(_)));
        if winding_down && limited {
            return self.append(vec![Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(SkipCause::RunEnding) }]);
        }
        if let Some((due, failure)) = outcome.failure().and_then(|failure| Some((self.retry_at(node, failure)?, failure.clone()))) {
            return self.append(vec![Event::RetryScheduled { node: node.clone(), due, failure }]);
        }
        let failed = outcome.failure().is_some();
        self.append(vec![Event::StepFinished { node: node.clone(), outcome }])?;
        let fail_fast = self.plan.step(&node.step).and_then(|step| step.for_each.as_ref()).is_some_and(|for_each| for_each.fail_fast);
        if failed && fail_fast && node.item.is_some() {
            let siblings: Vec<NodeId> = self.journal.state().items(&node.step).filter(|(_, state)| state.outcome.is_none()).map(|(id, _)| id).collect();
            siblings.into_iter().try_for_each(|sibling| self.stop_node(&sibling).map(|_| ()))?;
        }
        Ok(())
    }

    /// Returns when a failed node is to be tried again, if it is.
    fn retry_at(&self, node: &NodeId, failure: &Failure) -> Option<Timestamp> {
        let retry = self.plan.step(&node.step)?.retry.as_ref()?;
        let attempts = self.journal.state().node(node)?.attempts;
        let class = |on: &RetryOn| match on {
            RetryOn::Transient => matches!(failure.kind, FailureKind::Unavailable),
            RetryOn::Timeout => matches!(failure.kind, FailureKind::Timeout),
            RetryOn::Any => !matches!(failure.kind, FailureKind::Bug | FailureKind::Limit(_) | FailureKind::Cancelled),
        };
        if attempts > retry.max || !retry.on.iter().any(class) {
            return None;
        }
        let factor = if retry.exponential { 2_u32.saturating_pow(attempts.saturating_sub(1)) } else { 1 };
        let delay: Duration = retry.delay.saturating_mul(factor).min(retry.max_delay);
        Some(self.services.clock.now().after(delay))
    }

    /// Ends a run whose time is over: what is under way is cancelled where it is to stop, and asks for nothing more where it
    /// is to finish.
    fn out_of_time(&mut self) -> Result<(), EngineError> {
        self.purse.expire();
        self.note_limit()?;
        if self.plan.on_exceed == OnExceed::Stop {
            self.expired = true;
            self.tokens.values().for_each(CancellationToken::cancel);
        }
        Ok(())
    }

    fn timers_fired(&mut self) -> Result<(), EngineError> {
        let now = self.services.clock.now();
        let due = self.journal.state().timers().iter().filter(|(_, due)| **due <= now).map(|(node, _)| Event::TimerFired { node: node.clone() }).collect();
        self.append(due)
    }

    /// Ends a node that has not ended, on the orchestrator's word or a sibling's failure.
    fn stop_node(&mut self, node: &NodeId) -> Result<bool, EngineError> {
        if let Some(token) = self.tokens.get(node) {
            self.stopped.entry(node.clone()).or_default();
            token.cancel();
            return Ok(true);
        }
        if self.journal.state().node(node).is_none_or(|state| state.outcome.is_some()) {
            return Ok(false);
        }
        self.append(vec![Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(SkipCause::Stopped) }])?;
        Ok(true)
    }

    /// Records that a node was stopped, and only then says so: what is answered survives the death of the process.
    fn record_stopped(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let waiting = self.stopped.remove(node).unwrap_or_default();
        self.append(vec![Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(SkipCause::Stopped) }])?;
        for answer in waiting {
            let _ = answer.send(Ok(powers::stopped(node)));
        }
        Ok(())
    }

    fn petitioned(&mut self, petition: Petition) -> Result<(), EngineError> {
        let Petition { wish, answer } = petition;
        let said = match powers::examine(self.journal.state(), &wish, self.services.clock.now()) {
            Err(why) => Err(why),
            Ok(powers::Granted::Record(events, said)) => {
                self.append(events)?;
                Ok(said)
            }
            Ok(powers::Granted::Stop(node)) => {
                if !self.stop_node(&node)? {
                    Err(format!("`{node}` has ended already"))
                } else if let Some(waiting) = self.stopped.get_mut(&node) {
                    waiting.push(answer);
                    return Ok(());
                } else {
                    Ok(powers::stopped(&node))
                }
            }
        };
        let _ = answer.send(said);
        Ok(())
    }

    fn stop(&mut self) {
        self.live.stopping = true;
        for token in self.tokens.values() {
            token.cancel();
        }
    }

    /// Returns how it ended, where nothing is under way any more.
    fn ended(&self) -> Result<Option<Ended>, EngineError> {
        let state = self.journal.state();
        if let Some(outcome) = state.finished() {
            return Ok(Some(Ended::Finished(outcome.clone())));
        }
        if !self.workers.is_empty() {
            return Ok(None);
        }
        if self.live.stopping {
            return Ok(Some(Ended::Interrupted));
        }
        if !state.timers().is_empty() {
            return Ok(None);
        }
        // The question of a merge's resolver is the merge's: the one that waits is the owner of the work.
        let parked = state.nodes().into_iter().filter(|(node, _)| self.live.parked.contains(&node.owner()));
        let questions: Vec<(NodeId, String)> = parked.filter_map(|(node, waits)| Some((node.clone(), waits.question.clone()?.1))).collect();
        if questions.is_empty() {
            return Err(EngineError::Stuck(format!("{} open steps, to do: {:?}", state.open_steps(), state.todo())));
        }
        Ok(Some(Ended::Parked(questions)))
    }
}

/// The commits that flow along the edges.
impl<S: Store> Engine<'_, S> {
    /// Returns the commits that a node starts from, to be joined: those of its step's needs, or of its item's.
    fn tips_for(&mut self, node: &NodeId) -> Vec<CommitId> {
        let plan = self.plan.clone();
        let mut tips: BTreeSet<CommitId> = BTreeSet::new();
        let merge_from: Vec<StepId> =
            plan.step(&node.step).map(|step| if let Work::Merge(merge) = &step.work { merge.from.clone() } else { Vec::new() }).unwrap_or_default();
        for need in plan.needs(&node.step).map(|(step, _)| step.id.clone()).collect::<Vec<_>>() {
            if merge_from.contains(&need) {
                // A merge starts where its sources started; their work is what it joins.
                for below in plan.needs(&need).map(|(step, _)| step.id.clone()).collect::<Vec<_>>() {
                    tips.extend(self.tips(&below).iter().cloned());
                }
            } else {
                tips.extend(self.tips(&need).iter().cloned());
            }
        }
        let item_needs = self.journal.state().node(node).and_then(|state| state.item.as_ref()).map(|item| item.needs.clone()).unwrap_or_default();
        for key in item_needs {
            let commit = self.journal.state().outcome(&NodeId::item(&node.step, &key)).and_then(Outcome::success).and_then(|success| success.commit.clone());
            tips.extend(commit);
        }
        tips.into_iter().collect()
    }

    /// Returns the commits a step passes on: its own, its items', or those it was given. Only asked of ended steps.
    fn tips(&mut self, id: &StepId) -> Arc<[CommitId]> {
        if let Some(tips) = self.tips.get(id) {
            return tips.clone();
        }
        let state = self.journal.state();
        let commit = |outcome: Option<&Outcome>| outcome.and_then(Outcome::success).and_then(|success| success.commit.clone());
        let mut tips: BTreeSet<CommitId> = commit(state.outcome(&NodeId::step(id))).into_iter().collect();
        tips.extend(state.items(id).filter_map(|(_, item)| commit(item.outcome.as_ref())));
        if tips.is_empty() {
            for need in self.plan.clone().needs(id).map(|(step, _)| step.id.clone()).collect::<Vec<_>>() {
                tips.extend(self.tips(&need).iter().cloned());
            }
        }
        let tips: Arc<[CommitId]> = tips.into_iter().collect();
        self.tips.insert(id.clone(), tips.clone());
        tips
    }

    fn sink_tips(&mut self) -> Vec<CommitId> {
        let sinks: Vec<StepId> = self.plan.sinks().map(|step| step.id.clone()).collect();
        let tips: BTreeSet<CommitId> = sinks.iter().flat_map(|sink| self.tips(sink).iter().cloned().collect::<Vec<_>>()).collect();
        tips.into_iter().collect()
    }
}

fn failed(node: &NodeId, message: &str) -> Event {
    Event::StepFinished { node: node.clone(), outcome: Failure::new(FailureKind::Template, message).into() }
}

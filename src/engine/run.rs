//! The loop of a run: it alone appends to the journal, and never does a step's work itself.
mod begin;
mod early;
mod halt;

use super::{
    Services,
    accounts::Accounts,
    caches,
    crew::{Crew, Hands, Turn, Waits},
    decide::{Command, Live, decide},
    frames,
    people::{self, Heard, People},
    powers::{self, Petition},
    steps::End,
    tips::Tips,
};
use crate::{
    agent::{Account, out_of_budget},
    clock::Timestamp,
    event::{CommitId, Event, Failure, FailureKind, Limit, NodeId, Outcome, Record, SkipCause},
    journal::{Journal, JournalError, Recorder, Report, Store, UnderWay, account, left_under_way, raised_by, whose},
    plan::Plan,
    tasks::Tasks,
    workflow::{OnExceed, RetryOn},
};
use halt::Halt;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Reports that may wait for the loop, and the most it appends at once.
const BATCH: usize = 256;

/// How a process's part of a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The run is over.
    Finished(Outcome),
    /// Nothing can go on until a person answers, or a model can be had again: node and question, or reason, of each.
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
    /// Nothing can be written; what was under way is as it was.
    #[error("go on: {}", .0.message)]
    NoRoom(Failure),
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
    let mut hands = Hands { services: services.clone(), cancel: cancel.clone() };
    let ended = caches::until_over(services.caches.clone(), drive(journal, &mut hands, cancel, observe)).await?;
    if matches!(ended, Ended::Finished(_)) {
        drop(left_under_way(&services.dir.processes()));
    } else {
        services.rest().await;
    }
    Ok(ended)
}

/// Runs a plan with whoever does the work.
pub(super) async fn drive<S: Store>(
    journal: Journal<S>,
    crew: &mut dyn Crew,
    cancel: CancellationToken,
    observe: &mut (dyn FnMut(&Record) + Send),
) -> Result<Ended, EngineError> {
    let (recorder, reports) = Recorder::channel(BATCH);
    let recorder = match crew.services() {
        Some(services) => recorder.noting(UnderWay::in_folder(&services.dir.processes())),
        None => recorder,
    };
    let (desk, petitions) = mpsc::channel(16);
    let plan = journal.state().plan().clone();
    let state = journal.state();
    let asks = plan.on_exceed == OnExceed::Ask && state.limit().is_none();
    let account = Arc::new(Account::of_run(plan.limits, state.spent(), crew.clock().clone()).allowed(state.allowance(""), asks));
    let accounts = Accounts::new(account.clone(), journal.state());
    let people = People::new(journal.state(), crew.services(), crew.clock(), &cancel);
    let mut engine = Engine {
        plan,
        journal,
        crew,
        account,
        accounts,
        recorder,
        desk,
        cancel,
        live: Live::default(),
        workers: Tasks::default(),
        tokens: BTreeMap::new(),
        stopped: BTreeMap::new(),
        expired: false,
        tips: Tips::default(),
        people,
        events: Vec::new(),
        records: Vec::new(),
        observe,
    };
    engine.run(reports, petitions).await
}

struct Engine<'a, S> {
    plan: Arc<Plan>,
    journal: Journal<S>,
    crew: &'a mut dyn Crew,
    account: Arc<Account>,
    accounts: Accounts,
    recorder: Recorder,
    desk: mpsc::Sender<Petition>,
    cancel: CancellationToken,
    live: Live,
    workers: Tasks<(NodeId, End)>,
    /// What ends the tasks among the workers.
    tokens: BTreeMap<NodeId, CancellationToken>,
    /// Nodes that are being stopped: what becomes of each, and who waits to hear of it.
    stopped: BTreeMap<NodeId, Halt>,
    /// Whether the run's time is over and what was under way is being cancelled.
    expired: bool,
    tips: Tips,
    people: People,
    /// Empty; kept for their room.
    events: Vec<Event>,
    records: Vec<Record>,
    observe: &'a mut (dyn FnMut(&Record) + Send),
}

impl<S: Store> Engine<'_, S> {
    async fn run(&mut self, mut reports: mpsc::Receiver<Report>, mut petitions: mpsc::Receiver<Petition>) -> Result<Ended, EngineError> {
        self.letters()?;
        self.call_off()?;
        loop {
            self.advance()?;
            if self.is_late() {
                self.timers_fired()?;
                continue;
            }
            if let Some(ended) = self.ended()? {
                return Ok(ended);
            }
            let state = self.journal.state();
            // What is being stopped for its time is waited for, not its time again.
            let deadlines = state.deadlines().iter().filter(|(node, _)| !self.stopped.contains_key(*node)).map(|(_, due)| due);
            let timer = state.timers().values().chain(deadlines).min().copied().filter(|_| !self.live.stopping);
            let over = self.journal.state().limit().is_some() || self.journal.state().is_held() || self.live.stopping || self.live.closing;
            let Waits { timer, time_left } = match self.crew.turn(Waits { timer, time_left: (!over).then(|| self.account.time_left()) }) {
                Turn::Ended(node, end) => {
                    self.worker_ended(&node, end)?;
                    continue;
                }
                Turn::Wait(waits) => waits,
            };
            let clock = self.crew.clock().clone();
            let deadline = people::deadline(self.journal.state());
            // In this order: the same things happening give the same run, and what ends something goes first.
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !self.live.stopping => self.stop(),
                () = async { match timer { Some(due) => clock.sleep_until(due).await, None => std::future::pending().await } } => self.timers_fired()?,
                () = async { match time_left { Some(left) => tokio::time::sleep(left).await, None => std::future::pending().await } } => self.out_of_time()?,
                Some(report) = reports.recv() => self.take(report, &mut reports)?,
                Some((node, end)) = self.workers.next() => self.worker_ended(&node, end)?,
                Some(petition) = petitions.recv() => self.petitioned(petition)?,
                heard = self.people.hear(deadline), if !self.live.stopping => self.heard(heard)?,
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
            let mut events = std::mem::take(&mut self.events);
            for command in &commands {
                self.events_for(command, &mut events);
            }
            self.append(events.drain(..))?;
            self.events = events;
            let begins_only = commands.iter().all(|command| matches!(command, Command::Start { .. }));
            for command in commands {
                match command {
                    Command::Start { node, .. } | Command::Continue { node } => self.spawn(node),
                    Command::Wake { node, .. } => self.spawn_orchestrator(node),
                    Command::Turn { node } | Command::Ending { node } => self.spawn_join(node),
                    Command::Stop { node, cause } => drop(self.halt(&node, Outcome::Skipped(cause))?),
                    Command::Close => self.spawn_close(),
                    Command::Evaluate { .. } | Command::Expand { .. } | Command::Join { .. } | Command::Skip { .. } => {}
                }
            }
            // What begins gives nothing to decide before it ends.
            if begins_only {
                return Ok(());
            }
        }
    }

    fn append(&mut self, events: impl IntoIterator<Item = Event>) -> Result<(), EngineError> {
        let mut records = std::mem::take(&mut self.records);
        self.journal.append_to(&mut records, events)?;
        let (mut more, mut cancelled) = (Vec::new(), false);
        for record in &records {
            (self.observe)(record);
            cancelled |= matches!(record.event, Event::RunCancelled { .. });
            if let Event::QuestionAnswered { node, call, allowed, .. } = &record.event
                && *node == account()
            {
                more.push((whose(call).to_owned(), allowed.then(|| raised_by(call))));
            }
            if let Some(node) = self.people.note(record, self.journal.state()) {
                self.live.parked.remove(&node);
            }
        }
        records.clear();
        self.records = records;
        more.iter().try_for_each(|(whose, raises)| self.allowed_more(whose, *raises))?;
        if cancelled { self.call_off() } else { Ok(()) }
    }

    /// Takes something up that came from people.
    fn heard(&mut self, heard: Heard) -> Result<(), EngineError> {
        let events = if self.live.closing { self.people.too_late(&heard) } else { self.people.take(heard, self.journal.state()) };
        self.append(events)?;
        self.people.put_away();
        Ok(())
    }

    /// Takes up the letters that are there.
    fn letters(&mut self) -> Result<(), EngineError> {
        while let Some(letter) = self.people.letter() {
            self.heard(letter)?;
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

    fn worker_ended(&mut self, node: &NodeId, end: End) -> Result<(), EngineError> {
        self.live.end(node);
        self.live.turning.remove(node);
        self.tokens.remove(node);
        self.note_limit()?;
        if matches!(end, End::Parked) {
            self.note_budget(node)?;
        }
        if let Some(failure) = full(&end) {
            return Err(EngineError::NoRoom(failure.clone()));
        }
        match end {
            End::Finished(outcome) => self.node_ended(node, outcome)?,
            // The answer may have come before its worker ended.
            End::Parked if self.waits(node) => {
                self.live.parked.insert(node.clone());
                self.people.ask(node, self.journal.state());
            }
            End::Interrupted if !self.live.stopping && self.journal.state().is_orchestrator(node) && self.journal.state().is_called_off(&node.within) => {
                let failure = self.journal.state().cancelled().map(frames::called_off);
                self.append([Event::OrchestratorRested { node: node.clone(), text: String::new(), failure }])?;
            }
            End::Interrupted if self.expired && !self.live.stopping && !self.is_halted(node) => {
                let failure = out_of_budget(Limit::Time);
                if self.journal.state().is_orchestrator(node) {
                    self.append([Event::OrchestratorRested { node: node.clone(), text: String::new(), failure: Some(failure) }])?;
                } else {
                    self.halt(node, failure.into())?;
                }
            }
            End::Parked | End::Interrupted | End::Kept => {}
            End::Joined(joined) => self.joined(node, joined)?,
            End::Rested { text, failure } => self.append([Event::OrchestratorRested { node: node.clone(), text, failure }])?,
            End::Closed(Ok(outcome)) => self.append([Event::RunFinished { outcome }])?,
            End::Closed(Err(failure)) if self.live.stopping || matches!(failure.kind, FailureKind::Environment | FailureKind::Bug) => {
                return Err(EngineError::Close(failure));
            }
            End::Closed(Err(failure)) => self.append([Event::RunFinished { outcome: failure.into() }])?,
        }
        self.end_halted()
    }

    /// Begins a frame, or goes on with a node whose frame is over.
    fn joined(&mut self, node: &NodeId, joined: Result<CommitId, Failure>) -> Result<(), EngineError> {
        if self.is_halted(node) || self.live.stopping {
            return Ok(());
        }
        let state = self.journal.state();
        let step = state.step(node);
        let event = match (joined, state.inner(node)) {
            (Ok(commit), Some(_)) => frames::turn(state, node, commit, self.accounts.winding(state, node)),
            (Ok(base), None) => match step.map_or(Ok(None), |step| frames::inputs(state, node, step)) {
                Ok(inputs) => Event::FrameOpened { node: node.clone(), round: 1, base, inputs },
                Err(failure) => Event::StepFinished { node: node.clone(), outcome: failure.into() },
            },
            // An ending happens, whatever became of the work.
            (Err(_), None) if step.is_none() => Event::FrameOpened { node: node.clone(), round: 1, base: self.base(&node.within), inputs: None },
            (Err(failure), _) => Event::StepFinished { node: node.clone(), outcome: failure.into() },
        };
        match event {
            Event::StepFinished { node, outcome } => self.node_ended(&node, outcome),
            event => self.append([event]),
        }
    }

    fn node_ended(&mut self, node: &NodeId, outcome: Outcome) -> Result<(), EngineError> {
        if self.stopped.contains_key(node) {
            return self.record_halt(node);
        }
        let state = self.journal.state();
        let winding_down = || {
            let of_run = (state.limit().is_some() && self.plan.on_exceed == OnExceed::Finish).then_some(SkipCause::RunEnding);
            of_run.or_else(|| self.accounts.used_up(state, node).map(SkipCause::Budget))
        };
        let limited = outcome.failure().is_some_and(|failure| matches!(failure.kind, FailureKind::Limit(_)));
        if let Some(cause) = limited.then(winding_down).flatten() {
            return self.append([Event::StepFinished { node: node.clone(), outcome: Outcome::Skipped(cause) }]);
        }
        if let Some(failure) = outcome.failure() {
            if let Some(due) = self.retry_at(node, failure) {
                return self.append([Event::RetryScheduled { node: node.clone(), due, failure: failure.clone(), handed_over: false, lost: false }]);
            }
            if self.may_hand_over(node, failure) {
                let event =
                    Event::RetryScheduled { node: node.clone(), due: self.crew.clock().now(), failure: failure.clone(), handed_over: true, lost: false };
                return self.append([event]);
            }
        }
        self.append([Event::StepFinished { node: node.clone(), outcome }])
    }

    /// Returns whether another agent is to try a failed item.
    fn may_hand_over(&self, node: &NodeId, failure: &Failure) -> bool {
        let state = self.journal.state();
        node.item.is_some()
            && state.limit().is_none()
            && !matches!(failure.kind, FailureKind::Bug | FailureKind::Cancelled | FailureKind::Aborted)
            && state.step(node).is_some_and(|step| step.retry_with.is_some())
            && state.node(node).is_some_and(|state| !state.handed_over)
    }

    /// Returns when a failed node is to be tried again, if it is.
    fn retry_at(&self, node: &NodeId, failure: &Failure) -> Option<Timestamp> {
        let retry = self.journal.state().step(node)?.retry.as_ref()?;
        let attempts = self.journal.state().node(node)?.counted_attempts();
        // An agent has its time for one session, and another session has it anew.
        let is_late = matches!(failure.kind, FailureKind::Timeout | FailureKind::Limit(Limit::Time));
        let class = |on: &RetryOn| match on {
            RetryOn::Transient => matches!(failure.kind, FailureKind::Unavailable),
            RetryOn::Timeout => is_late,
            RetryOn::Any => {
                let stays = matches!(failure.kind, FailureKind::Bug | FailureKind::Cancelled | FailureKind::Refusal | FailureKind::Template);
                !stays && (is_late || !matches!(failure.kind, FailureKind::Limit(_)))
            }
        };
        if attempts > retry.max || !retry.on.iter().any(class) {
            return None;
        }
        let factor = if retry.exponential { 2_u32.saturating_pow(attempts.saturating_sub(1)) } else { 1 };
        let delay: Duration = retry.delay.saturating_mul(factor).min(retry.max_delay);
        Some(self.crew.clock().now().after(delay))
    }

    fn petitioned(&mut self, petition: Petition) -> Result<(), EngineError> {
        let Petition { orchestrator, wish, answer } = petition;
        let said = match powers::examine(self.journal.state(), &orchestrator, &wish, self.crew.clock().now()) {
            Err(why) => Err(why),
            Ok(powers::Granted::Record(events, said)) => {
                self.append(events)?;
                Ok(said)
            }
            Ok(powers::Granted::Stop(node)) => {
                if !self.halt(&node, Outcome::Skipped(SkipCause::Stopped))? {
                    Err(format!("`{node}` has ended already"))
                } else if let Some(halt) = self.stopped.get_mut(&node) {
                    halt.waiting.push(answer);
                    return Ok(());
                } else {
                    Ok(powers::stopped(&node))
                }
            }
        };
        let _ = answer.send(said);
        Ok(())
    }

    /// Returns how it ended, where nothing is under way any more.
    fn ended(&self) -> Result<Option<Ended>, EngineError> {
        let state = self.journal.state();
        if let Some(outcome) = state.finished() {
            return Ok(Some(Ended::Finished(outcome.clone())));
        }
        if self.live.closing || self.live.nodes().next().is_some() {
            return Ok(None);
        }
        // Whoever was being asked hears of a cancelling first, and nobody's asking is no reason to park.
        if self.live.stopping || self.cancel.is_cancelled() {
            return Ok(Some(Ended::Interrupted));
        }
        let is_late = people::over(state, self.crew.clock().now()).is_some();
        if !state.timers().is_empty() || self.people.is_asking() || is_late {
            return Ok(None);
        }
        let questions = state.questions().map(|(node, question)| (node.clone(), question.text.clone()));
        let waits: Vec<(NodeId, String)> = questions.chain(state.parked().iter().map(|(node, why)| (node.clone(), why.clone()))).collect();
        if waits.is_empty() {
            return Err(EngineError::Stuck(format!("{} open steps, to do: {:?}", state.open_steps(), state.todo())));
        }
        Ok(Some(Ended::Parked(waits)))
    }
}

/// Returns why an end is none, where nothing can be written: nobody's work has failed by that.
fn full(end: &End) -> Option<&Failure> {
    let failure = match end {
        End::Finished(outcome) | End::Closed(Ok(outcome)) => outcome.failure(),
        End::Rested { failure, .. } => failure.as_ref(),
        End::Joined(Err(failure)) | End::Closed(Err(failure)) => Some(failure),
        End::Parked | End::Interrupted | End::Kept | End::Joined(Ok(_)) => None,
    };
    failure.filter(|failure| failure.kind == FailureKind::NoRoom)
}

//! A run that costs nothing: the real loop, the real fold and the real decisions, with stubbed work and a simulated clock.
//!
//! No model is asked, no process started, no file written. The clock stands still while the loop acts, and moves to the
//! next thing that is due when it waits; so that the same plan and the same stub always give the same run.
use super::{
    close::Close,
    crew::{Crew, Waits, Working},
    powers::Watcher,
    run::{self, Ended, EngineError},
    steps::{End, Job},
    stub,
};
use crate::{
    agent::{Account, Expected, Reservation, Trouble},
    clock::{Clock, Timestamp, seconds},
    event::{CommitId, Event, Failure, FailureKind, Limit, NodeId, Outcome, Record, RunStarted, SkipCause, Success},
    journal::{Journal, Nowhere, RunState, Spent},
    message::Usage,
    plan::{Plan, PlannedStep, Work},
    source::Diagnostics,
    workflow::Stub,
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// What a simulated run came to.
#[derive(Debug)]
pub struct Simulated {
    /// How it ended; absent where it waits for a person.
    pub outcome: Option<Outcome>,
    /// Everything that was done, in the order in which it began.
    pub legs: Vec<Leg>,
    /// What never began, and why.
    pub skipped: Vec<(NodeId, SkipCause)>,
    /// Places among `legs`: each began as soon as the one before it ended, and the last one ended the run.
    pub critical: Vec<usize>,
    /// The most that was under way at the same time.
    pub peak: usize,
    /// Its length on the simulated clock.
    pub took: Duration,
    /// The limit of the run that was reached.
    pub limit: Option<Limit>,
    /// How often a person would be asked for more of the run's budget, and gives it.
    pub raises: u32,
    /// Records that its journal would have.
    pub records: u64,
}

/// One attempt at one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// The node.
    pub node: NodeId,
    /// From 1.
    pub attempt: u32,
    /// When it began, from the start of the run.
    pub began: Duration,
    /// When it ended.
    pub ended: Duration,
    /// Why it failed, where it did.
    pub failure: Option<String>,
    /// Dollars.
    pub usd: f64,
    /// Tokens.
    pub tokens: u64,
    /// The leg whose end let it begin.
    after: Option<usize>,
    takes_a_place: bool,
    /// Whether its output follows from nothing but its schema.
    pub is_made_up: bool,
}

/// Why nothing could be simulated. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The stub names what is not there.
    #[error("use the stub\n{0}")]
    Stub(#[from] Diagnostics),
    /// The inputs do not fit.
    #[error("use the inputs: {}", .0.join("; "))]
    Inputs(Vec<String>),
    /// The loop.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Runs a plan on a simulated clock, each step giving what the stub says.
///
/// # Errors
/// Where the stub or the inputs do not fit the plan, or a bug left the run stuck.
pub async fn simulate(plan: Arc<Plan>, given: &Map<String, Value>, stub: Stub) -> Result<Simulated, SimulateError> {
    stub::check(&plan, &stub)?;
    let inputs = plan.check_inputs(given).map_err(SimulateError::Inputs)?;
    let started = RunStarted {
        run: "simulated".into(),
        workflow: plan.name.clone(),
        file: plan.source.name.clone(),
        inputs,
        base: CommitId("0".repeat(40)),
        head: None,
        pins: BTreeMap::new(),
        script: None,
        steps: BTreeMap::new(),
        origin: None,
    };
    let stage = Arc::new(Stage { clock: Clock::fake(Timestamp(0)), stub, scene: Mutex::default() });
    let mut journal = Journal::new(Nowhere, RunState::new(plan), stage.clock.clone());
    let mut watched = Watched::default();
    for record in journal.append(vec![Event::RunStarted(started)]).map_err(EngineError::from)? {
        watched.see(&record);
    }
    let ended = run::drive(journal, Arc::new(Cast(stage.clone())), CancellationToken::new(), &mut |record| watched.see(record)).await?;
    stub::check_items(&stage.stub, &watched.items)?;
    let scene = std::mem::take(&mut *stage.scene());
    let took = Duration::from_millis(stage.clock.now().0);
    Ok(Simulated {
        outcome: if let Ended::Finished(outcome) = ended { Some(outcome) } else { None },
        critical: critical(&scene.legs),
        peak: peak(&scene.legs),
        legs: scene.legs,
        skipped: watched.skipped,
        took,
        limit: watched.limit,
        raises: watched.raises,
        records: watched.records,
    })
}

/// What the records of the run say that its legs do not.
#[derive(Default)]
struct Watched {
    skipped: Vec<(NodeId, SkipCause)>,
    limit: Option<Limit>,
    raises: u32,
    records: u64,
    /// The keys of items by the path of their step.
    items: BTreeMap<Vec<String>, BTreeSet<String>>,
}

impl Watched {
    fn see(&mut self, record: &Record) {
        self.records += 1;
        match &record.event {
            Event::StepFinished { node, outcome: Outcome::Skipped(cause) } => self.skipped.push((node.clone(), cause.clone())),
            Event::LimitReached { limit } => self.limit = Some(*limit),
            // Nobody else asks in a simulated run.
            Event::QuestionAnswered { .. } => self.raises += 1,
            Event::ItemsAdded { step, items, .. } => {
                self.items.entry(stub::path(step)).or_default().extend(items.iter().map(|item| item.key.clone()));
            }
            _ => {}
        }
    }
}

/// Walks back from what ended last, each time to the end that let it begin.
fn critical(legs: &[Leg]) -> Vec<usize> {
    let last = (0..legs.len()).max_by_key(|at| (legs[*at].ended, *at));
    let mut path: Vec<usize> = std::iter::successors(last, |at| legs[*at].after).collect();
    path.reverse();
    path
}

fn peak(legs: &[Leg]) -> usize {
    let mut changes: Vec<(Duration, i64)> = Vec::with_capacity(legs.len() * 2);
    for leg in legs.iter().filter(|leg| leg.takes_a_place && leg.ended > leg.began) {
        changes.extend([(leg.began, 1), (leg.ended, -1)]);
    }
    // At one moment ends come before beginnings.
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or_default()
}

/// Where the work of a simulated run stands.
struct Stage {
    clock: Clock,
    stub: Stub,
    scene: Mutex<Scene>,
}

#[derive(Default)]
struct Scene {
    legs: Vec<Leg>,
    /// Work under way by when it is due, and by which of those began first.
    due: BTreeMap<(Timestamp, u64), Due>,
    begun: u64,
    /// How often each node was done.
    times: HashMap<(Vec<String>, Option<String>), usize>,
    /// The leg whose end was the last.
    cause: Option<usize>,
    /// Nodes whose work was captured, in the order in which that was.
    written: Vec<NodeId>,
    /// Whether something failed of which the loop has not heard.
    failed: bool,
    /// Whether work may have been cancelled.
    may_be_cancelled: bool,
    /// Ends on their way to the loop: until it has heard of them no time passes.
    unheard: usize,
}

struct Due {
    leg: Option<usize>,
    cancel: CancellationToken,
    release: oneshot::Sender<()>,
}

impl Stage {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes work that ends after a while; the receiver hears of it.
    fn schedule(&self, leg: Option<usize>, takes: Duration, cancel: CancellationToken) -> oneshot::Receiver<()> {
        let (release, released) = oneshot::channel();
        let mut scene = self.scene();
        let number = scene.begun;
        scene.begun += 1;
        scene.due.insert((self.clock.now().after(takes), number), Due { leg, cancel, release });
        released
    }

    fn begin(&self, job: &Job, step: &PlannedStep, act: &Act) -> usize {
        let now = Duration::from_millis(self.clock.now().0);
        let mut scene = self.scene();
        if self.counts_times() {
            *scene.times.entry((stub::path(&job.node), job.node.item.clone())).or_default() += 1;
        }
        let after = scene.cause;
        let (node, attempt) = (job.node.clone(), job.state.attempts);
        let (usd, tokens, is_made_up) = (act.usd, act.tokens, act.is_made_up);
        scene.legs.push(Leg { node, attempt, began: now, ended: now, failure: None, usd, tokens, after, takes_a_place: step.takes_a_place(), is_made_up });
        scene.legs.len() - 1
    }

    /// Notes how a leg ended, now.
    fn end(&self, leg: usize, result: Result<(), &str>) {
        let now = Duration::from_millis(self.clock.now().0);
        let mut scene = self.scene();
        scene.failed |= result.is_err();
        if let Some(leg) = scene.legs.get_mut(leg) {
            leg.ended = now;
            leg.failure = result.err().map(str::to_owned);
        }
    }

    /// Returns whether it matters how often a node was done: what it gives may differ from time to time.
    fn counts_times(&self) -> bool {
        !self.stub.steps.is_empty()
    }

    /// Returns how often a node was done, where that matters.
    fn times(&self, node: &NodeId) -> usize {
        if !self.counts_times() {
            return 0;
        }
        self.scene().times.get(&(stub::path(node), node.item.clone())).copied().unwrap_or_default()
    }

    /// Returns the nodes of these steps whose work was captured.
    fn sources(&self, job: &Job, step: &PlannedStep) -> Vec<NodeId> {
        let from = match &step.work {
            Work::Merge(merge) => &merge.from,
            Work::Select(select) => &select.from,
            Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => return Vec::new(),
        };
        let scene = self.scene();
        scene.written.iter().filter(|node| from.contains(&node.step) && stub::beside(node, &job.node)).cloned().collect()
    }

    /// Decides how a node ends: after how long, and how; nothing where it waits for more of the run's budget.
    fn act(&self, job: &Job, step: &PlannedStep, account: &Arc<Account>) -> Option<Act> {
        let said = stub::said(&self.stub, step, &job.node, self.times(&job.node));
        let spends = step.sessions().is_some();
        let (usd, tokens) = if spends { (said.usd.unwrap_or(0.0), said.tokens.unwrap_or(0)) } else { (0.0, 0) };
        let nothing = |end| Some(Act { takes: Duration::ZERO, usd: 0.0, tokens: 0, reserved: None, is_made_up: false, end });
        let reserved = match spends.then(|| account.reserve_now(Expected { tokens, usd: Some(usd) })).transpose() {
            Ok(reserved) => reserved,
            Err(Trouble::Failed(failure)) => return nothing(failure.into()),
            Err(Trouble::Parked | Trouble::Interrupted) => return None,
        };
        let (takes, too_long) = stub::takes(&said, step);
        let mut act = Act { takes, usd, tokens, reserved, is_made_up: false, end: Outcome::Succeeded(Success::default()) };
        if let Some(failure) = act.hold(step, job.state.handed_over) {
            act.end = failure.into();
        } else if too_long {
            let failure = Failure::new(FailureKind::Timeout, format!("it was not done after {}", seconds(takes)));
            act.end = failure.hint("raise the step's `timeout`").into();
        } else {
            let given = stub::give(job, step, &said, &self.sources(job, step));
            act.is_made_up = given.as_ref().is_ok_and(|given| given.is_made_up);
            act.end = given.map_or_else(Outcome::Failed, |given| Outcome::Succeeded(given.success));
        }
        Some(act)
    }
}

/// Everybody on the stage.
struct Cast(Arc<Stage>);

/// How a node ends.
struct Act {
    takes: Duration,
    usd: f64,
    tokens: u64,
    /// What is set aside for it, where it asks a model.
    reserved: Option<Reservation>,
    is_made_up: bool,
    end: Outcome,
}

impl Act {
    /// Holds it to the limits of its sessions: it uses no more than they allow, and fails where it wanted to.
    fn hold(&mut self, step: &PlannedStep, handed_over: bool) -> Option<Failure> {
        let tokens = self.reserved.as_ref().filter(|_| !matches!(step.work, Work::Merge(_))).map(|_| self.tokens)?;
        let (own, sessions) = step.sessions()?;
        let limits = step.retry_with.as_ref().filter(|_| handed_over).unwrap_or(own).limits;
        let most_tokens = limits.tokens.saturating_mul(sessions.into());
        let (limit, said) = if self.takes > limits.time {
            self.takes = limits.time;
            (Limit::Time, seconds(limits.time))
        } else if tokens > most_tokens {
            self.tokens = most_tokens;
            (Limit::Tokens, format!("{most_tokens} tokens"))
        } else {
            let most = limits.usd.map(|usd| usd * f64::from(sessions)).filter(|most| self.usd > *most)?;
            self.usd = most;
            (Limit::Money, format!("${most:.2}"))
        };
        let failure = Failure::new(FailureKind::Limit(limit), format!("agent `{}` would pass its limit of {said}", own.name));
        Some(failure.hint("raise the `budget` of the agent or of the step, or say less in the stub"))
    }
}

impl Crew for Cast {
    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn work(&self, job: Job) -> Working {
        let plan = job.plan.clone();
        let Some(step) = plan.step(&job.node.step) else {
            let bug = Failure::new(FailureKind::Bug, format!("the plan has no step `{}`", job.node.step));
            return Box::pin(async move { End::Finished(bug.into()) });
        };
        let Some(act) = self.0.act(&job, step, &job.account) else {
            let released = self.0.schedule(None, Duration::ZERO, job.cancel.clone());
            return Box::pin(async move { released.await.map_or(End::Interrupted, |()| End::Parked) });
        };
        let leg = self.0.begin(&job, step, &act);
        let released = self.0.schedule(Some(leg), act.takes, job.cancel.clone());
        let stage = self.0.clone();
        Box::pin(async move {
            tokio::select! {
                biased;
                () = job.cancel.cancelled() => {
                    stage.end(leg, Err("it was ended"));
                    End::Interrupted
                }
                _ = released => {
                    stage.end(leg, act.end.failure().map_or(Ok(()), |failure| Err(failure.message.as_str())));
                    if let Some(reserved) = act.reserved {
                        reserved.settle(&paid(act.usd, act.tokens));
                        // A session at a limit would ask once more: that says whose limit it is.
                        if act.end.failure().is_some_and(|failure| matches!(failure.kind, FailureKind::Limit(_))) {
                            drop(job.account.reserve_now(Expected { tokens: 1, usd: None }));
                        }
                    }
                    if act.end.success().is_some_and(|success| success.commit.is_some()) {
                        stage.scene().written.push(job.node.clone());
                    }
                    End::Finished(act.end)
                }
            }
        })
    }

    fn join(&self, base: CommitId, tips: Vec<CommitId>) -> Working {
        let released = self.0.schedule(None, Duration::ZERO, CancellationToken::new());
        Box::pin(async move {
            // What is joined is never looked at; that it is another commit is.
            let _ = released.await;
            End::Joined(Ok(tips.into_iter().next_back().unwrap_or(base)))
        })
    }

    fn brief(&self, _: &RunState, _: &NodeId) -> Option<Event> {
        None
    }

    /// An orchestrator needs a mind: the simulated one is woken and lets everything go on.
    fn watch(&self, watcher: Watcher) -> Working {
        let released = self.0.schedule(None, Duration::ZERO, watcher.cancel.clone());
        Box::pin(async move {
            // Whether released or dropped, it has nothing to say.
            let _ = released.await;
            End::Rested { text: String::new(), failure: None }
        })
    }

    fn close(&self, close: Close) -> Working {
        Box::pin(async move { End::Closed(close.result()) })
    }

    fn wait(&self, waits: Waits) -> Waits {
        let nothing = Waits { timer: None, time_left: None };
        let mut scene = self.0.scene();
        if std::mem::take(&mut scene.may_be_cancelled) {
            scene.drop_cancelled();
        }
        if scene.unheard > 0 {
            return nothing;
        }
        let first = scene.due.keys().next().copied();
        let next = first.map(|(at, _)| at).into_iter().chain(waits.timer).min();
        let end = waits.time_left.map(|left| self.0.clock.now().after(left));
        if let (Some(next), Some(end)) = (next, end)
            && next >= end
        {
            scene.may_be_cancelled = true;
            self.0.move_to(end);
            return Waits { timer: None, time_left: Some(Duration::ZERO) };
        }
        match (first, waits.timer) {
            (Some((at, number)), timer) if timer.is_none_or(|timer| at <= timer) => {
                self.0.move_to(at);
                if let Some(due) = scene.due.remove(&(at, number)) {
                    scene.cause = due.leg.or(scene.cause);
                    scene.unheard += 1;
                    // Whoever waited for it may be gone, which the loop hears of as well.
                    let _ = due.release.send(());
                }
                nothing
            }
            (_, timer) => {
                if let Some(timer) = timer {
                    self.0.move_to(timer);
                }
                Waits { timer, time_left: None }
            }
        }
    }

    fn heard_of_an_end(&self) {
        let mut scene = self.0.scene();
        scene.unheard = scene.unheard.saturating_sub(1);
        scene.may_be_cancelled |= std::mem::take(&mut scene.failed);
    }
}

impl Scene {
    /// Takes out what was cancelled, whose ends are on their way.
    fn drop_cancelled(&mut self) {
        let before = self.due.len();
        self.due.retain(|_, due| !due.cancel.is_cancelled());
        self.unheard += before - self.due.len();
    }
}

impl Stage {
    fn move_to(&self, moment: Timestamp) {
        self.clock.advance(moment.since(self.clock.now()));
    }
}

/// What a simulated agent has used.
fn paid(usd: f64, tokens: u64) -> Spent {
    Spent { turns: 1, usage: Usage { output: tokens, ..Usage::default() }, usd, ..Spent::default() }
}

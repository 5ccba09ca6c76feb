//! A run that costs nothing: the real loop, the real fold and the real decisions, with stubbed work and a simulated clock.
//!
//! No model is asked, no process started, no file written. The clock stands still while the loop acts, and moves to the
//! next thing that is due when it waits; so that the same plan and the same stub always give the same run.
use super::{
    close::{self, Close},
    crew::{Crew, Turn, Waits, Working},
    powers::Watcher,
    run::{self, Ended, EngineError},
    steps::{End, Order, Unkept},
    stub,
};
use crate::{
    agent::{Account, Expected, Reservation, Trouble},
    clock::{Clock, Timestamp, seconds},
    event::{CommitId, Event, Failure, FailureKind, Limit, NodeId, Outcome, Record, RunStarted, SkipCause, Success},
    journal::{Journal, Nowhere, Queue, Recorder, RunState, Spent},
    message::Usage,
    plan::{Plan, PlannedStep, Work},
    source::Diagnostics,
    workflow::Stub,
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};
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
    /// Whose work would stand on no branch at its end, nothing having joined it.
    pub left_over: Vec<NodeId>,
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
        replays: false,
        steps: BTreeMap::new(),
        origin: None,
        given: crate::event::Given::default(),
    };
    let scene = Scene { legs: Vec::with_capacity(plan.order().len()), ..Scene::default() };
    let mut cast = Cast { clock: Clock::fake(Timestamp(0)), stub, scene };
    let mut journal = Journal::new(Nowhere, RunState::new(plan), cast.clock.clone());
    let mut watched = Watched::default();
    for record in journal.append(vec![Event::RunStarted(Box::new(started))]).map_err(EngineError::from)? {
        watched.see(&record);
    }
    let ended = run::drive(journal, &mut cast, CancellationToken::new(), &mut |record| watched.see(record)).await?;
    stub::check_items(&cast.stub, &watched.items)?;
    let (scene, took) = (cast.scene, Duration::from_millis(cast.clock.now().0));
    Ok(Simulated {
        outcome: if let Ended::Finished(outcome) = ended { Some(outcome) } else { None },
        critical: critical(&scene.legs),
        peak: peak(&scene.legs),
        legs: scene.legs,
        skipped: watched.skipped,
        left_over: scene.left_over,
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
    let legs = || legs.iter().filter(|leg| leg.takes_a_place && leg.ended > leg.began);
    // They stand in the order in which they began, and nearly in that in which they ended.
    let mut ends: Vec<Duration> = legs().map(|leg| leg.ended).collect();
    ends.sort();
    let mut over = 0;
    let at_work = |(begun, leg): (usize, &Leg)| {
        // At one moment ends come before beginnings.
        while ends.get(over).is_some_and(|end| *end <= leg.began) {
            over += 1;
        }
        begun - over
    };
    (1..).zip(legs()).map(at_work).max().unwrap_or_default()
}

/// Everybody on the stage: what is done takes its time by the clock, and ends when that is over.
struct Cast {
    clock: Clock,
    stub: Stub,
    scene: Scene,
}

#[derive(Default)]
struct Scene {
    legs: Vec<Leg>,
    /// Work under way by when it is due, and by which of those began first.
    due: Queue<(Timestamp, u64), Due>,
    begun: u64,
    /// Ends that came early.
    early: VecDeque<(NodeId, End)>,
    /// How often each node was done.
    times: HashMap<(Vec<String>, Option<String>), usize>,
    /// The leg whose end was the last.
    cause: Option<usize>,
    /// Nodes whose work was captured, in the order in which that was.
    written: Vec<NodeId>,
    left_over: Vec<NodeId>,
}

struct Due {
    node: NodeId,
    part: Part,
}

/// What is under way.
enum Part {
    /// The work of a step.
    Leg { leg: usize, act: Act },
    /// Something else, and how it ends.
    Other(End),
}

impl Cast {
    /// Notes work that ends after a while.
    fn schedule(&mut self, takes: Duration, node: NodeId, part: Part) -> Working {
        let number = self.scene.begun;
        self.scene.begun += 1;
        self.scene.due.insert((self.clock.now().after(takes), number), Due { node, part });
        Working::Crew
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock.now().0)
    }

    fn begin(&mut self, order: &Order<'_>, act: &Act) -> usize {
        if self.counts_times() {
            *self.scene.times.entry((stub::path(order.node), order.node.item.clone())).or_default() += 1;
        }
        let now = self.now();
        self.scene.legs.push(Leg {
            node: order.node.clone(),
            attempt: order.own.attempts,
            began: now,
            ended: now,
            failure: None,
            usd: act.usd,
            tokens: act.tokens,
            after: self.scene.cause,
            takes_a_place: order.step.takes_a_place(),
            is_made_up: act.is_made_up,
        });
        self.scene.legs.len() - 1
    }

    /// Notes how a leg ended, now.
    fn end(&mut self, leg: usize, result: Result<(), &str>) {
        let now = self.now();
        if let Some(leg) = self.scene.legs.get_mut(leg) {
            leg.ended = now;
            leg.failure = result.err().map(str::to_owned);
        }
    }

    /// Ends what is due now.
    fn release(&mut self, Due { node, part }: Due) -> Turn {
        let (leg, act) = match part {
            Part::Other(end) => return Turn::Ended(node, end),
            Part::Leg { leg, act } => (leg, act),
        };
        self.scene.cause = Some(leg);
        self.end(leg, act.end.failure().map_or(Ok(()), |failure| Err(failure.message.as_str())));
        if let Some((reserved, account)) = act.reserved {
            reserved.settle(&paid(act.usd, act.tokens), &|_| {});
            // A session at a limit would ask once more: that says whose limit it is.
            if act.end.failure().is_some_and(|failure| matches!(failure.kind, FailureKind::Limit(_))) {
                drop(account.reserve_now(Expected { tokens: 1, usd: None }));
            }
        }
        if act.end.success().is_some_and(|success| success.commit.is_some()) {
            self.scene.written.push(node.clone());
        }
        Turn::Ended(node, End::Finished(act.end))
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
        self.scene.times.get(&(stub::path(node), node.item.clone())).copied().unwrap_or_default()
    }

    /// Returns the nodes of these steps whose work was captured.
    fn sources(&self, order: &Order<'_>) -> Vec<NodeId> {
        let from = order.step.sources();
        self.scene.written.iter().filter(|node| from.contains(&node.step) && stub::beside(node, order.node)).cloned().collect()
    }

    /// Decides how a node ends: after how long, and how; nothing where it waits for more of the run's budget.
    fn act(&self, order: &mut Order<'_>) -> Option<Act> {
        let step = order.step;
        let said = stub::said(&self.stub, step, order.node, self.times(order.node));
        let spends = step.sessions().is_some();
        let (usd, tokens) = if spends { (said.usd.unwrap_or(0.0), said.tokens.unwrap_or(0)) } else { (0.0, 0) };
        let nothing = |end| Some(Act { takes: Duration::ZERO, usd: 0.0, tokens: 0, reserved: None, is_made_up: false, end });
        let reserve = |account: Arc<Account>| account.reserve_now(Expected { tokens, usd: Some(usd) }).map(|reserved| (reserved, account));
        let reserved = match spends.then(|| reserve(order.account())).transpose() {
            Ok(reserved) => reserved,
            Err(Trouble::Failed(failure)) => return nothing(failure.into()),
            Err(Trouble::Parked | Trouble::Interrupted) => return None,
        };
        let (takes, too_long) = stub::takes(&said, step);
        let mut act = Act { takes, usd, tokens, reserved, is_made_up: false, end: Outcome::Succeeded(Success::default()) };
        if let Some(failure) = act.hold(step, order.own.handed_over) {
            act.end = failure.into();
        } else if too_long {
            let failure = Failure::new(FailureKind::Timeout, format!("it was not done after {}", seconds(takes)));
            act.end = failure.hint("raise the step's `timeout`").into();
        } else {
            let given = stub::give(order, &said, &self.sources(order));
            act.is_made_up = given.as_ref().is_ok_and(|given| given.is_made_up);
            act.end = given.map_or_else(Outcome::from, |given| Outcome::Succeeded(given.success));
        }
        Some(act)
    }
}

/// How a node ends.
struct Act {
    takes: Duration,
    usd: f64,
    tokens: u64,
    /// What is set aside for it, and where, where it asks a model.
    reserved: Option<(Reservation, Arc<Account>)>,
    is_made_up: bool,
    end: Outcome,
}

impl Act {
    /// Holds it to the limits of its sessions: it uses no more than they allow, and fails where it wanted to.
    fn hold(&mut self, step: &PlannedStep, handed_over: bool) -> Option<Failure> {
        let tokens = self.reserved.as_ref().filter(|_| !matches!(step.work, Work::Merge(_))).map(|_| self.tokens)?;
        let (own, sessions) = step.sessions()?;
        let agent = &**step.retry_with.as_ref().filter(|_| handed_over).unwrap_or(own);
        let limits = &agent.limits;
        let most_tokens = limits.tokens.saturating_mul(sessions.into());
        let (limit, said) = if self.takes > limits.time {
            self.takes = limits.time;
            (Limit::Time, seconds(limits.time))
        } else if agent.asks() {
            // A person approves more at once.
            return None;
        } else if tokens > most_tokens {
            self.tokens = most_tokens;
            (Limit::Tokens, format!("{most_tokens} tokens"))
        } else {
            let most = limits.usd.map(|usd| usd * f64::from(sessions)).filter(|most| self.usd > *most)?;
            self.usd = most;
            (Limit::Money, format!("${most:.2}"))
        };
        let failure = Failure::new(FailureKind::Limit(limit), format!("agent `{}` would pass its limit of {said}", agent.name));
        Some(failure.hint("raise the `budget` of the agent or of the step, or say less in the stub"))
    }
}

impl Crew for Cast {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn work(&mut self, mut order: Order<'_>) -> Working {
        let Some(act) = self.act(&mut order) else {
            return self.schedule(Duration::ZERO, order.node.clone(), Part::Other(End::Parked));
        };
        let leg = self.begin(&order, &act);
        self.schedule(act.takes, order.node.clone(), Part::Leg { leg, act })
    }

    fn join(&mut self, node: NodeId, base: CommitId, tips: Vec<CommitId>) -> Working {
        // What is joined is never looked at; that it is another commit is.
        self.schedule(Duration::ZERO, node, Part::Other(End::Joined(Ok(tips.into_iter().next_back().unwrap_or(base)))))
    }

    fn brief(&self, _: &RunState, _: &NodeId) -> Option<Event> {
        None
    }

    /// An orchestrator needs a mind: the simulated one is woken and lets everything go on.
    fn watch(&mut self, watcher: Watcher) -> Working {
        self.schedule(Duration::ZERO, watcher.node, Part::Other(End::Rested { text: String::new(), failure: None }))
    }

    fn keep(&mut self, node: NodeId, _: Vec<Unkept>, _: &Recorder) -> Working {
        self.schedule(Duration::ZERO, node, Part::Other(End::Kept))
    }

    fn close(&mut self, close: Close) -> Working {
        self.scene.left_over.clone_from(&close.left_over);
        self.schedule(Duration::ZERO, close::node(), Part::Other(End::Closed(Ok(close.result()))))
    }

    fn turn(&mut self, waits: Waits) -> Turn {
        if let Some((node, end)) = self.scene.early.pop_front() {
            return Turn::Ended(node, end);
        }
        let first = self.scene.due.first().map(|(at, _)| *at);
        let next = first.into_iter().chain(waits.timer).min();
        let end = waits.time_left.map(|left| self.clock.now().after(left));
        if let (Some(next), Some(end)) = (next, end)
            && next >= end
        {
            self.move_to(end);
            return Turn::Wait(Waits { timer: None, time_left: Some(Duration::ZERO) });
        }
        if let Some(at) = first.filter(|at| waits.timer.is_none_or(|timer| *at <= timer))
            && let Some((_, due)) = self.scene.due.pop_first()
        {
            self.move_to(at);
            return self.release(due);
        }
        if let Some(timer) = waits.timer {
            self.move_to(timer);
        }
        Turn::Wait(Waits { timer: waits.timer, time_left: None })
    }

    fn cancel(&mut self, node: &NodeId) {
        let found: Vec<(Timestamp, u64)> = self.scene.due.iter().filter(|(_, due)| due.node == *node && due.ends_early()).map(|(at, _)| *at).collect();
        for Due { node, part } in found.iter().filter_map(|at| self.scene.due.remove(at)).collect::<Vec<_>>() {
            let end = match part {
                Part::Leg { leg, .. } => {
                    self.end(leg, Err("it was ended"));
                    End::Interrupted
                }
                Part::Other(End::Rested { text, failure }) => End::Rested { text, failure },
                Part::Other(_) => End::Interrupted,
            };
            self.scene.early.push_back((node, end));
        }
    }
}

impl Due {
    /// Returns whether a wish to end it early is heard: what is joined is joined.
    fn ends_early(&self) -> bool {
        matches!(self.part, Part::Leg { .. } | Part::Other(End::Parked | End::Rested { .. }))
    }
}

impl Cast {
    fn move_to(&self, moment: Timestamp) {
        self.clock.advance(moment.since(self.clock.now()));
    }
}

/// What a simulated agent has used.
fn paid(usd: f64, tokens: u64) -> Spent {
    Spent { turns: 1, usage: Usage { output: tokens, ..Usage::default() }, usd, ..Spent::default() }
}

//! What to do next, from the plan and the state alone. Pure: no clock, no I/O, no randomness, no template is rendered.
//!
//! It looks at the frontier that the fold keeps and at what is live, never at the whole graph; its cost is that of what
//! it commands.
use super::{
    accounts,
    frames::{self, Stage},
};
use crate::{
    event::{NodeId, SkipCause, Wake},
    journal::{RunState, Todo},
    plan::{Plan, Work},
    workflow::OnExceed,
};
use foldhash::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What the loop is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begin an attempt.
    Start {
        /// The node.
        node: NodeId,
        /// From 1.
        attempt: u32,
    },
    /// Take up a node that was begun by a process that died.
    Continue {
        /// The node.
        node: NodeId,
    },
    /// Evaluate a step's `if`.
    Evaluate {
        /// The node.
        node: NodeId,
    },
    /// Work out the items of a step.
    Expand {
        /// The step's node.
        step: NodeId,
    },
    /// Make one result of a step's items.
    Join {
        /// The step's node.
        step: NodeId,
    },
    /// Go on with a node whose inner steps have all ended.
    Turn {
        /// The node.
        node: NodeId,
    },
    /// Begin an ending of a workflow.
    Ending {
        /// Its node.
        node: NodeId,
    },
    /// Record that a node will not start.
    Skip {
        /// The node.
        node: NodeId,
        /// Why.
        cause: SkipCause,
    },
    /// Stop a node that has begun.
    Stop {
        /// The node.
        node: NodeId,
        /// Why.
        cause: SkipCause,
    },
    /// Tell an orchestrator what changed.
    Wake {
        /// Its node.
        node: NodeId,
        /// Why, where it is not for what is noted already.
        idle: bool,
    },
    /// Everything ended: make the branch and end the run.
    Close,
}

impl Command {
    fn node(&self) -> Option<&NodeId> {
        match self {
            Command::Start { node, .. }
            | Command::Continue { node }
            | Command::Evaluate { node }
            | Command::Expand { step: node }
            | Command::Join { step: node }
            | Command::Turn { node }
            | Command::Ending { node }
            | Command::Skip { node, .. }
            | Command::Stop { node, .. }
            | Command::Wake { node, .. } => Some(node),
            Command::Close => None,
        }
    }
}

/// What this process is doing, which no journal can know.
#[derive(Debug, Clone, Default)]
pub struct Live {
    workers: HashMap<NodeId, Worker>,
    /// Workers that have one of the run's places.
    busy: usize,
    /// Orchestrators among the workers.
    watching: usize,
    /// Nodes whose frame is being joined.
    pub turning: BTreeSet<NodeId>,
    /// Nodes that wait for a person in this process, or for the next one to have a model.
    pub parked: BTreeSet<NodeId>,
    /// Nodes that are being stopped, with all that is inside them.
    pub halted: BTreeSet<NodeId>,
    /// Whether the run is being closed.
    pub closing: bool,
    /// Whether nothing new may begin: the process is to end.
    pub stopping: bool,
}

/// What a worker counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Worker {
    watches: bool,
    takes_a_place: bool,
}

impl Live {
    /// Notes that somebody works on a node.
    pub fn begin(&mut self, state: &RunState, node: NodeId) {
        let watches = state.is_orchestrator(&node);
        let worker = Worker { watches, takes_a_place: !watches && state.takes_a_place(&node) };
        let before = self.workers.insert(node, worker);
        self.count(before, |count, one| count - one);
        self.count(Some(worker), |count, one| count + one);
    }

    /// Notes that nobody works on a node any more.
    pub fn end(&mut self, node: &NodeId) {
        let before = self.workers.remove(node);
        self.count(before, |count, one| count - one);
    }

    /// Returns whether somebody works on a node.
    pub fn works_on(&self, node: &NodeId) -> bool {
        self.workers.contains_key(node)
    }

    /// Returns the nodes that somebody works on, orchestrators among them, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.workers.keys()
    }

    fn count(&mut self, worker: Option<Worker>, change: fn(usize, usize) -> usize) {
        let Some(Worker { watches, takes_a_place }) = worker else { return };
        self.watching = change(self.watching, usize::from(watches));
        self.busy = change(self.busy, usize::from(takes_a_place));
    }
}

/// Says what to do next.
pub fn decide(plan: &Plan, state: &RunState, live: &Live) -> Vec<Command> {
    if live.stopping || live.closing || state.finished().is_some() || state.started().is_none() {
        return Vec::new();
    }
    let mut commands = Vec::new();
    settle(state, live, &mut commands);
    start(plan, state, live, &mut commands);
    orchestrate(state, live, &mut commands);
    if state.open_steps() == 0 {
        match frames::stage(state, &[]) {
            Stage::Working => {}
            // The end of a run that was called off waits until its orchestrator is still.
            Stage::Ending(_) | Stage::Over if live.nodes().any(|node| state.is_called_off(&node.within)) => {}
            Stage::Ending(node) => commands.extend((!live.turning.contains(&node)).then_some(Command::Ending { node })),
            Stage::Over => commands.push(Command::Close),
        }
    }
    if !live.halted.is_empty() {
        let halted = |node: &NodeId| live.halted.iter().any(|owner| node == owner || node.is_inside(owner));
        commands.retain(|command| !command.node().is_some_and(halted));
    }
    commands
}

/// What needs no slot.
fn settle(state: &RunState, live: &Live, commands: &mut Vec<Command>) {
    let command = |(node, todo): (&NodeId, &Todo)| match todo {
        Todo::Evaluate => Some(Command::Evaluate { node: node.clone() }),
        Todo::Expand => Some(Command::Expand { step: node.clone() }),
        Todo::Join => state.may_join(node).then(|| Command::Join { step: node.clone() }),
        Todo::Skip(cause) => Some(Command::Skip { node: node.clone(), cause: cause.clone() }),
        Todo::Turn => {
            let (within, _) = state.inner(node)?;
            match frames::stage(state, &within) {
                Stage::Ending(ending) => (!live.turning.contains(&ending)).then_some(Command::Ending { node: ending }),
                Stage::Over => (!live.turning.contains(node)).then(|| Command::Turn { node: node.clone() }),
                Stage::Working => None,
            }
        }
    };
    let stop = |(node, by): (&NodeId, &NodeId)| Command::Stop { node: node.clone(), cause: SkipCause::Sibling(by.clone()) };
    commands.extend(state.todo().iter().filter_map(command));
    commands.extend(state.doomed().iter().map(stop));
}

/// What begins or goes on. A limit queues, it never refuses.
fn start(plan: &Plan, state: &RunState, live: &Live, commands: &mut Vec<Command>) {
    let mut room = plan.max_parallel.saturating_sub(live.busy);
    let waiting = live.parked.iter().filter(|node| !state.is_orchestrator(node)).count();
    let known = live.workers.len() - live.watching + waiting;
    if state.running().len() > known {
        for node in state.running().filter(|node| !live.works_on(node) && !live.parked.contains(node)) {
            let takes = state.takes_a_place(node);
            if takes && room == 0 {
                continue;
            }
            room -= usize::from(takes);
            commands.push(Command::Continue { node: node.clone() });
        }
    }
    begin(plan, state, |after| state.ready_after(after), room, commands);
    begin(plan, state, |after| state.free_after(after), usize::MAX, commands);
}

/// Begins what `waiting` gives, each time from behind the step of a node on.
fn begin<'a, Nodes: Iterator<Item = &'a NodeId>>(
    plan: &Plan,
    state: &'a RunState,
    waiting: impl Fn(Option<&NodeId>) -> Nodes,
    mut room: usize,
    commands: &mut Vec<Command>,
) {
    // At the end of its budget a run begins no agent more, and nothing at all where it is to stop.
    let limited = state.limit().is_some();
    let held = state.is_held() || !state.parked().is_empty();
    let stops = plan.on_exceed != OnExceed::Finish;
    let mut begun: BTreeMap<&NodeId, u32> = BTreeMap::new();
    let mut rest = waiting(None);
    while let Some(node) = rest.next() {
        let is_agent = || state.step(node).is_some_and(|step| matches!(step.work, Work::Agent { .. }));
        if state.is_called_off(&node.within) {
            commands.push(Command::Skip { node: node.clone(), cause: SkipCause::RunEnding });
            continue;
        }
        // While a person is asked whether more may be spent, or a model cannot be had, what would ask for one does not begin.
        if (held || accounts::is_held(state, node)) && is_agent() {
            continue;
        }
        if limited && (stops && !frames::is_of_an_ending(node) || is_agent()) {
            commands.push(Command::Skip { node: node.clone(), cause: SkipCause::RunEnding });
            continue;
        }
        if room == 0 {
            break;
        }
        if node.item.is_some()
            && let Some((whole, fan)) = state.fan_of(node)
            && let Some(most) = fan.max_parallel.map(|most| most.saturating_sub(fan.running))
        {
            let begun = begun.entry(whole).or_default();
            if *begun >= most {
                // None of its other items may begin either, however many there are.
                rest = waiting(Some(node));
                continue;
            }
            *begun += 1;
        }
        room -= 1;
        commands.push(Command::Start { node: node.clone(), attempt: state.node(node).map_or(0, |state| state.attempts) + 1 });
    }
}

fn orchestrate(state: &RunState, live: &Live, commands: &mut Vec<Command>) {
    for within in state.watched() {
        let Some(frame) = state.frame(within) else { continue };
        let (Some(spec), watch) = (&frame.plan.orchestrator, &frame.watch) else { continue };
        let node = NodeId::inside(within, &spec.node.step);
        if state.is_called_off(within) || watch.is_broken() || live.works_on(&node) || live.parked.contains(&node) {
            continue;
        }
        if watch.is_awake() {
            commands.push(Command::Continue { node });
        } else if !watch.reasons().is_empty() || (frame.open_steps == 0 && !watch.is_closed()) {
            commands.push(Command::Wake { node, idle: false });
        } else if commands.is_empty()
            && live.workers.is_empty()
            && live.turning.is_empty()
            && frame.open_steps > 0
            && !watch.knows_idle()
            && spec.wake.contains(&Wake::Idle)
        {
            commands.push(Command::Wake { node, idle: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Timestamp,
        event::{CommitId, Event, Item, Record, RunId, RunStarted, StepId},
        plan::Catalog,
        source::Source,
        workflow::Workflow,
    };
    use std::sync::Arc;

    fn state(yaml: &str, told: Vec<Event>) -> RunState {
        let source = Source { name: "w.yaml".to_owned(), text: yaml.to_owned() };
        let workflow = Workflow::load(&Arc::new(source)).unwrap();
        let (plan, _) = Plan::compile(&workflow, &Catalog::default()).unwrap();
        let began = RunStarted {
            run: RunId::from("w-1"),
            workflow: "w".to_owned(),
            file: "w.yaml".to_owned(),
            inputs: serde_json::Map::new(),
            base: CommitId::from("0"),
            head: None,
            pins: std::collections::BTreeMap::new(),
            script: None,
            replays: false,
            steps: std::collections::BTreeMap::new(),
            origin: None,
            given: crate::event::Given::default(),
        };
        let events = std::iter::once(Event::RunStarted(Box::new(began))).chain(told);
        let records: Vec<Record> = (0..).zip(events).map(|(seq, event)| Record { seq, at: Timestamp(0), event }).collect();
        RunState::replay(Arc::new(plan), &records).unwrap()
    }

    #[test]
    fn items_beyond_their_limit_do_not_hold_up_later_steps() {
        let yaml =
            "version: 1\nname: w\nsteps:\n  m:\n    for_each: { items: [1], as: n }\n    run: \"true\"\n  m0: { run: \"true\" }\n  z: { run: \"true\" }\n";
        let step = StepId::from("m");
        let items = (0..50).map(|n| Item { key: n.to_string(), value: n.into(), matrix: serde_json::Map::new(), needs: Vec::new() }).collect();
        let added = Event::ItemsAdded { step: NodeId::step(&step), items, by: NodeId::step(&step), max_parallel: Some(2) };
        let state = state(yaml, vec![added]);
        let begun: Vec<String> = decide(state.plan(), &state, &Live::default())
            .iter()
            .map(|command| if let Command::Start { node, .. } = command { node.to_string() } else { format!("{command:?}") })
            .collect();
        assert_eq!(begun, ["m/0", "m/1", "m0", "z"]);
    }
}
